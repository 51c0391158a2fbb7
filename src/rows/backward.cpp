// The order of rows and columns in the backward pass.
#include "rows/backward.hpp"

#include <algorithm>

#include "rows/stream.hpp"

namespace evenorm::internal {

template <class T>
BackwardRows<T>::BackwardRows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                              std::size_t set, ColumnRange used)
    : kernels_(kernels),
      p_(p),
      x_(kernels, p.x),
      dy_(kernels, p.dy),
      dsum_(kernels, p.dsum),
      gamma_(kernels, p.gamma, set, p.zero_centered, p.cols, used, gamma_values_),
      dx_tile_(kernels, p.dx, false, p.dx.data == nullptr || has_dense_rows(p.dx) ? nullptr : dx_gathered_, 0),
      sink_(kernels, p.dx, dx_tile_.if_used(), dx_converted_),
      aside_(p.dx.data == nullptr || is_in_place(p) || p.dsum.data != nullptr ? reinterpret_cast<T*>(aside_values_)
                                                                              : nullptr),
      stream_(plan.cache.stream_dx && !sink_.is_staged() && !is_in_place(p)),
      direct_(!x_.get().is_staged() && !dy_.get().is_staged() && !sink_.is_staged() && aside_ == nullptr),
      ahead_(plan.cache.prefetch && direct_
                 ? std::min(kGradientAhead, p.cols * sizeof(T) * (p.cols <= kNarrowColumns ? kNarrowRows : 1))
                 : 0),
      piece_(direct_ ? kBlock : kGradientPiece<A>) {}

template <class T>
void BackwardRows<T>::run(RowBlock rows, ColumnRange range, const GradientScalars* scalars, const ColumnSums& sums) {
  if (sums.values != nullptr) std::fill_n(sums.values, 2 * sums.stride, 0.0);
  if (scalars == nullptr && direct_ && p_.cols <= kBlock && !sums_runs()) {
    run_short_rows(rows, sums);
    repair_columns(nullptr, rows, range, sums);
  } else {
    run_rows(scalars, rows, range, sums);
  }
  if (stream_) flush_stream();
}

template <class T>
void BackwardRows<T>::find_scalars(std::size_t first, std::size_t count, GradientScalars* scalars) {
  for (std::size_t i = 0, n; i < count; i += n) {
    n = std::min(kMaxGroup, count - i);
    find_statistics(first + i, n, scalars + i);
    for (std::size_t r = i; r < i + n; ++r) {
      GradientScalars& s = scalars[r];
      finish(sums_runs() ? sum_runs(first + r, s) : sum_by_blocks(first + r, s, {0, p_.cols}), &s);
    }
  }
}

// Some columns of a row block, of whole rows where their scalars are not known. Sums over rows may have to be made
// again, from x and dy: where dx takes their place it is made last.
template <class T>
void BackwardRows<T>::run_rows(const GradientScalars* scalars, RowBlock rows, ColumnRange range,
                               const ColumnSums& sums) {
  const auto run = [&](const ColumnSums& to, bool writes_dx) {
    for (std::size_t row = rows.first; row < rows.end; ++row) {
      scalars != nullptr ? dx_of_row(row, scalars[row], range, to, rows.chain(row), writes_dx)
                         : run_row(row, rows, to, writes_dx);
    }
  };
  const bool takes_place = sums.values != nullptr && is_in_place(p_);
  run(sums, !takes_place);
  repair_columns(scalars, rows, range, sums);
  if (takes_place) run({}, true);
}

template <class T>
void BackwardRows<T>::run_row(std::size_t row, RowBlock rows, const ColumnSums& sums, bool writes_dx) {
  GradientScalars s;
  find_scalars(row, 1, &s);
  if (p_.dx.data == nullptr && sums.values == nullptr) return;
  dx_of_row(row, s, {0, p_.cols}, sums, rows.chain(row), writes_dx);
}

// Rows of one block that are of type T, dense and apart.
template <class T>
void BackwardRows<T>::run_short_rows(RowBlock rows, const ColumnSums& sums) {
  const std::size_t most = !kWide && p_.rstd.data != nullptr ? kMaxShortRows : kMaxGroup;  // all of f64 may be found
  RowStatistics statistics;
  for (std::size_t row = rows.first, n; row < rows.end; row += n) {
    n = std::min(most, rows.end - row);
    const std::size_t even =
        std::min({x_.get().even_rows(row, n), dy_.get().even_rows(row, n), sink_.even_rows(row, n)});
    if (even == n && find_short_statistics(row, n, statistics)) {
      run_even_rows(row, n, statistics, rows, sums);
    } else {
      for (std::size_t i = row; i < row + n; ++i) run_row(i, rows, sums, true);
    }
  }
}

template <class T>
void BackwardRows<T>::run_even_rows(std::size_t first, std::size_t count, const RowStatistics& statistics,
                                    RowBlock rows, const ColumnSums& sums) {
  GradientShortRows<T> all{{x_.get().block(first, 0, p_.cols), x_.get().step()},
                           {dy_.get().block(first, 0, p_.cols), dy_.get().step()},
                           {sink_.block(first, 0, p_.cols), sink_.step()},
                           0,
                           count,
                           p_.cols,
                           gamma_.block(0, p_.cols),
                           statistics,
                           columns_at<A>(sums, 0),
                           is_centred(),
                           stream_,
                           ahead_};
  while (all.begin < count) {
    const GradientsDone done = kernels_.of<T>().gradient_short_rows(all);
    all.begin = done.next;
    for (std::size_t i = done.next - done.not_finite; i < done.next; ++i) run_row(first + i, rows, {}, true);
    if (done.not_finite != 0 || done.next == count) continue;
    run_row(first + all.begin++, rows, sums, true);
  }
}

template class BackwardRows<double>;
template class BackwardRows<float>;
template class BackwardRows<bfloat16>;
template class BackwardRows<float16>;

}  // namespace evenorm::internal
