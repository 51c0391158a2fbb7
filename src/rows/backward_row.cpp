// One row of the backward pass: its sums, its scalars, dx, and what it adds to the columns.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "rows/backward.hpp"

namespace evenorm::internal {
namespace {

// A row's sum of g (x - mean). The centre of a rare row is its mean, or the mean's high part. RMS norm needs no sum of
// g, which may not be finite.
template <class A>
double about_mean(bool centred, const GradientScalars& s, const GradientNode& sums) {
  using namespace plain;
  const double rest = s.rare ? s.mean_lo : RestOfMean<A>(kOne, s.mean, s.mean_lo);
  return SumAboutMean(kOne, centred ? sums.g : 0, sums.gd, rest);
}

template <class A>
void clear_chains(const GradientColumns<A>& columns, std::size_t n) {
  std::fill_n(columns.dgamma_chain, n, A{0});
  std::fill_n(columns.dbeta_chain, n, A{0});
}
// Adds chains of n columns to their sums: chains that end with a row that is not in them.
template <class A>
void end_chains(const GradientColumns<A>& columns, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    columns.sums.dgamma[i] += static_cast<double>(columns.dgamma_chain[i]);
    columns.sums.dbeta[i] += static_cast<double>(columns.dbeta_chain[i]);
  }
}

}  // namespace

template <class T>
GradientNode BackwardRows<T>::sum_by_blocks(std::size_t row, const GradientScalars& s, ColumnRange range) {
  GradientTree tree({sum_nodes_});
  for (std::size_t block = range.first; block < range.end; block += kBlock) {
    tree.push(sum_block(row, s, {block, std::min(block + kBlock, range.end)}));
  }
  return tree.finish();
}

template <class T>
GradientNode BackwardRows<T>::sum_block(std::size_t row, const GradientScalars& s, ColumnRange range) {
  if (s.rare) return sum_rare_block(row, s, range);
  GradientLanes lanes;
  for_pieces(row, range, [&](const GradientPiece<T>& piece, std::size_t col) {
    kernels_.of<T>().sum_gradients(piece, static_cast<A>(s.mean), col == range.first, &lanes);
  });
  const GradientNode sums = joined(lanes);
  const bool has_digits = weighs_ || std::abs(sums.gd) >= kLeastOfRun, needs_g = is_centred() || !weighs_;
  if (kWide || (has_digits && (!needs_g || std::isfinite(sums.g)) && std::isfinite(sums.gd))) return sums;
  return sum_rare_block(row, s, range);
}

template <class T>
void BackwardRows<T>::finish(const GradientNode& sums, GradientScalars* s) {
  using namespace plain;
  const SumsOfRows<double> about{sums.g, about_mean<A>(is_centred(), *s, sums)};
  const auto means = GradientMeansOf(kOne, is_centred(), about, s->rstd, static_cast<double>(p_.whole_cols));
  s->c1 = means.c1, s->c2 = means.c2;
  DxScalarsOfRows<A> scalars;
  s->rare_dx = !store_dx_scalars(*s, scalars) || s->rare;
}

template <class T>
GradientNode BackwardRows<T>::sum_part(std::size_t row, std::size_t first_col, std::size_t cols) {
  GradientScalars s;
  find_statistics(row, 1, &s);
  return sum_by_blocks(row, s, {first_col, first_col + cols});
}

template <class T>
GradientScalars BackwardRows<T>::finish_sums(std::size_t row, const GradientNode& sums) {
  GradientScalars s;
  find_statistics(row, 1, &s);
  finish(sums, &s);
  return s;
}

// Sums each run of columns. Returns the sums of the row, weighed run by run.
template <class T>
GradientNode BackwardRows<T>::sum_runs(std::size_t row, const GradientScalars& s) {
  double* const to = row_sums_ != nullptr ? row_sums_ + row * slot_of_row(p_) : nullptr;
  GradientTree tree({sum_nodes_ + nodes_for(blocks_of(p_.shared))});
  weighs_ = false;
  for (std::size_t i = 0, col = 0; col < p_.cols; ++i, col += p_.shared) {
    const GradientNode sums = sum_by_blocks(row, s, {col, col + p_.shared});
    if (to != nullptr) {  // the sums of dy xhat and of dy; 0 is +0
      to[i] = about_mean<A>(is_centred(), s, sums) * s.rstd + 0.0;
      to[i + p_.cols / p_.shared] = sums.g + 0.0;
    }
    const double gamma = p_.gamma.data == nullptr ? 1.0 : static_cast<double>(gamma_.at(col));
    tree.push({sums.g * gamma, sums.gd * gamma});
  }
  weighs_ = true;
  return tree.finish();
}

// A rare row of f32 arithmetic is in no chain.
template <class T>
void BackwardRows<T>::dx_of_row(std::size_t row, const GradientScalars& s, ColumnRange range, const ColumnSums& sums,
                                Chain chain, bool writes_dx) {
  DxScalarsOfRows<A> scalars;
  store_dx_scalars(s, scalars);
  const GradientColumns<A> columns = columns_at<A>(sums, range.first);
  const bool is_apart = !kWide && s.rare && columns.are_wanted();
  if (is_apart && chain == Chain::begin) clear_chains(columns, range.end - range.first);
  for_pieces(row, range, [&](const GradientPiece<T>& piece, std::size_t col) {
    dx_of_piece(row, s, scalars, piece, columns_at<A>(sums, col), chain, col, writes_dx);
  });
  if (is_apart && chain == Chain::end) end_chains(columns, range.end - range.first);
}

template <class T>
void BackwardRows<T>::dx_of_piece(std::size_t row, const GradientScalars& s, const DxScalarsOfRows<A>& scalars,
                                  const GradientPiece<T>& piece, const GradientColumns<A>& columns, Chain chain,
                                  std::size_t col, bool writes_dx) {
  T* to = writes_dx && p_.dx.data != nullptr ? sink_.block(row, col, piece.n) : nullptr;
  T* dx = aside_ != nullptr ? aside_ : to;
  if (s.rare) {
    dx_of_rare_piece(s, scalars, piece, columns, chain, dx);
  } else {
    const Chain used = columns.are_wanted() ? chain : Chain::none;
    const bool finite = kernels_.of<T>().dx_of_piece(piece, dx, scalars, columns, used, stream_ && dx == to);
    if (to != nullptr && (s.rare_dx || !finite)) dx_of_rare_piece(s, scalars, piece, {}, chain, dx);
  }
  if (to != nullptr) deliver(row, col, piece.n, dx, to);
}

template <class T>
void BackwardRows<T>::deliver(std::size_t row, std::size_t col, std::size_t n, const T* dx, T* place) {
  if (p_.dsum.data != nullptr) {
    add_sum(row, col, n, place);
  } else if (dx != place) {
    std::memcpy(static_cast<void*>(place), dx, n * sizeof(T));
  }
  sink_.done(row, 1, col, n);
}

// What is aside and the gradient of the sum, to `place`.
template <class T>
void BackwardRows<T>::add_sum(std::size_t row, std::size_t col, std::size_t n, T* place) {
  const std::size_t at_once = dsum_.get().is_staged() ? kSumPiece : n;
  for (std::size_t i = 0, count; i < n; i += count) {
    count = std::min(at_once, n - i);
    kernels_.of<T>().add(A{1}, aside_ + i, dsum_.get().block(row, col + i, count), count, place + i, stream_);
  }
}

template class BackwardRows<double>;
template class BackwardRows<float>;
template class BackwardRows<bfloat16>;
template class BackwardRows<float16>;

}  // namespace evenorm::internal
