// See backward_pair.hpp. Whole rows: both norms make their dx by kernels for short rows, and then they are added.
// Pieces: the first norm adds what it finds, as it adds the gradient of a sum.
#include "rows/backward_pair.hpp"

#include <algorithm>
#include <cstdint>

#include "rows/stream.hpp"

namespace evenorm::internal {
namespace {

// The address from which `bytes` lead to `place`.
template <class Pointer>
Pointer before(Pointer place, std::size_t bytes) {
  return reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(place) - bytes);
}

template <class Pointer>
Vector<Pointer> of_rows(Pointer data, std::size_t rows) {
  Vector<Pointer> v{data, DType::f64, {}};
  v.axes.append({rows, sizeof(double)});
  return v;
}

}  // namespace

template <class A>
BackwardPairRows<A>::BackwardPairRows(const Kernels& kernels, const GradientNorms& norms,
                                      const GradientPairScratch& plan, const Scratch& scratch, ColumnRange used)
    : kernels_(kernels),
      p_(norms.first),
      dsum_(norms.second->dsum),
      rows_(plan.rows),
      row_bytes_(plan.row_bytes),
      at_once_(rows_ != 0 ? rows_ : plan.first.at_once),
      between_(scratch.at<char>(plan.between)),
      finds_(std::is_same_v<A, float> && p_.rstd.data == nullptr),
      mean_(of_rows<const void*>(nullptr, p_.rows)),
      rstd_(of_rows<const void*>(nullptr, p_.rows)),
      of_second_(dense_rows<void*>(between_, dtype_of<A>, p_.rows, row_bytes_)),
      of_first_(of_second_),
      added_(dense_rows<const void*>(between_, dtype_of<A>, p_.rows, row_bytes_)),
      second_(kernels, *norms.second, plan.second, scratch, used,
              {of_second_, rows_ != 0 ? none_ : dsum_, finds_ ? mean_ : p_.mean, finds_ ? rstd_ : p_.rstd, false}),
      first_(kernels, p_, plan.first, scratch, used,
             {rows_ != 0 ? of_first_ : p_.dx, rows_ != 0 ? none_ : added_, finds_ ? mean_ : p_.mean,
              finds_ ? rstd_ : p_.rstd, rows_ == 0}) {}

// From now on `between` holds what begins with this element.
template <class A>
void BackwardPairRows<A>::hold(std::size_t row, std::size_t col) {
  of_second_.data = before<void*>(between_, row * row_bytes_ + col * sizeof(A));
  added_.data = of_second_.data;
  of_first_.data = before<void*>(between_ + rows_ * row_bytes_, row * row_bytes_);
}

template <class A>
void BackwardPairRows<A>::share_statistics(std::size_t first, std::size_t count) {
  if (!finds_) return;
  mean_.data = rstd_.data = nullptr;
  for (std::size_t i = 0, n; i < count; i += n) {
    n = std::min(kMaxGroup, count - i);
    first_.find_plain_statistics(first + i, n, found_[0] + i, found_[1] + i);
  }
  mean_.data = before<const void*>(found_[0], first * sizeof(double));
  rstd_.data = before<const void*>(found_[1], first * sizeof(double));
}

template <class A>
void BackwardPairRows<A>::run(std::size_t first, std::size_t count, const PairSums& sums) {
  first_.clear(sums.first);
  second_.clear(sums.second);
  for (std::size_t row = first, n; row < first + count; row += n) {
    n = std::min(at_once_, first + count - row);
    share_statistics(row, n);
    rows_ != 0 ? run_whole(row, n, sums) : run_pieces(row, n, sums);
  }
  if (p_.stream_dx) flush_stream();
}

template <class A>
void BackwardPairRows<A>::run_whole(std::size_t first, std::size_t count, const PairSums& sums) {
  hold(first, 0);
  second_.add_rows(first, count, sums.second);
  first_.add_rows(first, count, sums.first);
  for (std::size_t row = first; row < first + count; ++row) add(row);
}

// Dense rows of the arithmetic's type.
template <class A>
void BackwardPairRows<A>::add(std::size_t row) {
  const auto at = [&](const auto& m) { return reinterpret_cast<A*>(const_cast<char*>(place_in_row(m, row, 0))); };
  A* d2 = at(of_second_);
  const auto kernel = kernels_.of<A>().add;
  if (dsum_.data != nullptr) kernel(A{1}, d2, at(dsum_), p_.cols, d2, false);
  kernel(A{1}, at(of_first_), d2, p_.cols, at(p_.dx), p_.stream_dx);
}

template <class A>
void BackwardPairRows<A>::run_pieces(std::size_t first, std::size_t count, const PairSums& sums) {
  GradientScalars of_first[kRowsAtOnce], of_second[kRowsAtOnce];
  second_.look(first, count, sums.second, of_second);
  first_.look(first, count, sums.first, of_first);
  map(first, count, {of_first, of_second}, 0, p_.cols);
}

template <class A>
void BackwardPairRows<A>::map_strip(const KnownScalars& scalars, std::size_t first_col, std::size_t cols) {
  for (std::size_t row = 0, n; row < p_.rows; row += n) {
    n = std::min(kRowsAtOnce, p_.rows - row);
    map(row, n, {scalars.first + row, scalars.second + row}, first_col, cols);
  }
  if (p_.stream_dx) flush_stream();
}

// At most kRowsAtOnce rows, piece by piece.
template <class A>
void BackwardPairRows<A>::map(std::size_t row, std::size_t count, const KnownScalars& scalars, std::size_t first_col,
                              std::size_t cols) {
  for (std::size_t col = first_col, n; col < first_col + cols; col += n) {
    n = std::min(kPiece, first_col + cols - col);
    hold(row, col);
    second_.map(row, count, scalars.second, col, n);
    first_.map(row, count, scalars.first, col, n);
  }
}

template class BackwardPairRows<double>;
template class BackwardPairRows<float>;

}  // namespace evenorm::internal
