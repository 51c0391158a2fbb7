// The order of rows and the sums; their statistics: backward_statistics.cpp, dx: backward_map.cpp.
#include "rows/backward.hpp"

#include <algorithm>

#include "rows/stream.hpp"

namespace evenorm::internal {

namespace {

std::size_t fetch_distance(const GradientProblem& p, GradientCacheUse cache, ColumnRange used) {
  return cache.fetch_columns && used.end - used.first == p.cols ? kFetchColumns : kRowsAtOnce * p.cols;
}

}  // namespace

template <class T>
BackwardRows<T>::BackwardRows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                              const Scratch& scratch, ColumnRange used)
    : kernels_(kernels),
      p_(p),
      wants_dx_(p.dx.data != nullptr),
      moment_nodes_(scratch.at<MomentNode>(plan.scratch.nodes)),
      sum_nodes_(scratch.at<GradientNode>(plan.scratch.nodes)),
      whole_row_(kernels, p.x, plan.scratch.whole_row, scratch),
      x_{{kernels, p.x, plan.scratch.x[0], scratch},
         {kernels, p.x, plan.scratch.x[1], scratch},
         {kernels, p.x, plan.scratch.x[2], scratch},
         {kernels, p.x, plan.scratch.x[3], scratch}},
      dy_{{kernels, p.dy, plan.scratch.dy[0], scratch},
          {kernels, p.dy, plan.scratch.dy[1], scratch},
          {kernels, p.dy, plan.scratch.dy[2], scratch},
          {kernels, p.dy, plan.scratch.dy[3], scratch}},
      gamma_(kernels, p.gamma, p.zero_centered, p.cols, used, plan.scratch.gamma, scratch,
             scratch.at<void>(plan.scratch.raw)),
      dx_tile_(kernels, p.dx, false, scratch.at<char>(plan.scratch.dx.tile), 0),
      sink_(kernels, p.dx, plan.scratch.dx.tile.bytes == 0 ? nullptr : &dx_tile_,
            scratch.at<A>(plan.scratch.dx.converted)),
      aside_(scratch.at<T>(plan.scratch.aside)),
      stream_(plan.cache.stream_dx && !sink_.is_staged() && !is_in_place(p)),
      direct_(!x_[0].get().is_staged() && !dy_[0].get().is_staged() && !sink_.is_staged() && aside_ == nullptr),
      ahead_(plan.cache.fetch && !x_[0].get().is_staged() && !dy_[0].get().is_staged()
                 ? fetch_distance(p, plan.cache, used)
                 : 0) {
  if constexpr (kWide) find_gamma_range(used);
}

template <class T>
void BackwardRows<T>::run(std::size_t first, std::size_t count, const ColumnSums& sums) {
  if (sums.values != nullptr) std::fill_n(sums.values, sums.stride * column_numbers(p_), 0.0);
  if (p_.scalars != nullptr) return run_known(first, count, sums);
  const bool together = !kWide && direct_ && wants_dx_ && p_.cols > 1;
  for (std::size_t row = first, n; row < first + count; row += n) {
    const std::size_t left = first + count - row;
    n = std::min(kRowsAtOnce, left);
    if (!together || n < kRowsAtOnce) {
      run_rows(row, n, sums);
    } else if (p_.cols > kBlock) {
      run_together(row, sums);
    } else {
      n = std::min(p_.rstd.data != nullptr ? kMaxShortRows : kMaxGroup, left) / kRowsAtOnce * kRowsAtOnce;
      run_short_rows(row, n, sums);
    }
  }
  if (stream_) flush_stream();
}

// At most kRowsAtOnce, in every case.
template <class T>
void BackwardRows<T>::run_rows(std::size_t first, std::size_t count, const ColumnSums& sums) {
  GradientScalars scalars[kRowsAtOnce];
  look(first, count, sums, scalars);
  if (wants_dx_) map(first, count, scalars, 0, p_.cols);
}

// Whole groups of short rows.
template <class T>
void BackwardRows<T>::run_short_rows(std::size_t first, std::size_t count, const ColumnSums& sums) {
  double mean[kMaxShortRows], rstd[kMaxShortRows];
  if (!find_short_statistics(first, count, mean, rstd)) {
    for (std::size_t i = 0; i < count; i += kRowsAtOnce) run_rows(first + i, kRowsAtOnce, sums);
    return;
  }
  for (std::size_t i = 0, n; i < count; i += n) {
    const std::size_t row = first + i, left = count - i;
    const std::size_t even =
        std::min({x_[0].get().even_rows(row, left), dy_[0].get().even_rows(row, left), sink_.even_rows(row, left)});
    n = std::max(even / kRowsAtOnce, std::size_t{1}) * kRowsAtOnce;
    even < kRowsAtOnce ? run_rows(row, n, sums) : run_even_rows(row, n, mean + i, rstd + i, sums);
  }
}

// Of groups that need wider steps, one by one.
template <class T>
void BackwardRows<T>::run_even_rows(std::size_t first, std::size_t count, const double* mean, const double* rstd,
                                    const ColumnSums& sums) {
  const auto run = kernels_.of<T>().gradient_short_rows[index_of(p_.kind)];
  BlockSums joined[kRowsAtOnce];
  for (std::size_t done = 0;;) {
    const std::size_t row = first + done;
    done += run({{x_[0].get().block(row, 0, p_.cols), x_[0].get().step()},
                 {dy_[0].get().block(row, 0, p_.cols), dy_[0].get().step()},
                 {sink_.block(row, 0, p_.cols), sink_.step()},
                 count - done,
                 p_.cols,
                 mean + done,
                 rstd + done,
                 gamma_.block(0, p_.cols),
                 places_at<A>(sums, 0),
                 ahead_,
                 stream_},
                joined);
    if (done >= count) return;
    GradientScalars scalars[kRowsAtOnce] = {};
    for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
      scalars[r].mean_hi = mean[done + r];
      scalars[r].rstd = rstd[done + r];
      finish_look(joined[r], &scalars[r]);
    }
    map(first + done, kRowsAtOnce, scalars, 0, p_.cols);
    done += kRowsAtOnce;
    if (done >= count) return;
  }
}

template <class T>
void BackwardRows<T>::look(std::size_t first, std::size_t count, const ColumnSums& sums, GradientScalars* scalars) {
  find_statistics(first, count, scalars);
  for (std::size_t i = 0, n; i < count; i += n) {
    n = run_length(scalars + i, count - i);
    if (scalars[i].scaled) {
      sum_scaled_gradients(first + i, &scalars[i]);
      if (sums.values != nullptr) add_scaled_to_columns(first + i, scalars[i], 0, p_.cols, sums);
    } else {
      BlockSums joined[kRowsAtOnce];
      look_at(first + i, n, scalars + i, {0, p_.cols}, sums, joined);
      for (std::size_t r = 0; r < n; ++r) finish_look(joined[r], &scalars[i + r]);
    }
  }
}

template <class T>
void BackwardRows<T>::run_strip(const GradientScalars* scalars, std::size_t first_col, std::size_t cols,
                                const ColumnSums& sums) {
  std::fill_n(sums.values, sums.stride * column_numbers(p_), 0.0);
  add_and_map(scalars, 0, p_.rows, first_col, cols, sums);
  if (stream_) flush_stream();
}

// Piece by piece, all rows of each.
template <class T>
void BackwardRows<T>::run_known(std::size_t first, std::size_t count, const ColumnSums& sums) {
  for (std::size_t col = 0; col < p_.cols; col += kPiece) {
    add_and_map(p_.scalars, first, count, col, std::min(kPiece, p_.cols - col), sums);
  }
  if (stream_) flush_stream();
}

template <class T>
void BackwardRows<T>::add_and_map(const GradientScalars* scalars, std::size_t first, std::size_t count,
                                  std::size_t first_col, std::size_t cols, const ColumnSums& sums) {
  for (std::size_t row = first, n; row < first + count; row += n) {
    n = run_length(scalars + row, first + count - row);
    if (sums.values == nullptr) {
    } else if (scalars[row].scaled) {
      add_scaled_to_columns(row, scalars[row], first_col, cols, sums);
    } else {
      add_to_columns(row, n, scalars + row, first_col, cols, sums);
    }
    if (wants_dx_) map(row, n, scalars + row, first_col, cols);
  }
}

// kRowsAtOnce longer rows, their scalars side by side; should one of them need wider steps, one by one.
template <class T>
void BackwardRows<T>::run_together(std::size_t first, const ColumnSums& sums) {
  GradientScalars scalars[kRowsAtOnce];
  find_statistics(first, kRowsAtOnce, scalars);
  BlockSums joined[kRowsAtOnce];
  look_at(first, kRowsAtOnce, scalars, {0, p_.cols}, sums, joined);
  if (map_together(first, scalars, joined)) return;
  for (std::size_t r = 0; r < kRowsAtOnce; ++r) finish_look(joined[r], &scalars[r]);
  map(first, kRowsAtOnce, scalars, 0, p_.cols);
}

// False where that cannot be done so: nothing of dx is of use, then.
template <class T>
bool BackwardRows<T>::map_together(std::size_t first, const GradientScalars* statistics, const BlockSums* sums) {
  if constexpr (kWide) {
    (void)first, (void)statistics, (void)sums;
    return false;
  } else {
    GradientGroup group;
    for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
      group.mean[r] = statistics[r].mean_hi;
      group.rstd[r] = statistics[r].rstd;
      group.sums[r] = sums[r].s.hi;
      group.sums[kRowsAtOnce + r] = sums[r].q.hi;
    }
    GradientMapScalarsOfRows<float> scalars;
    if (!kernels_.finish_gradients(group, p_.cols, is_centred(), scalars)) return false;
    bool finite = true;
    for (std::size_t col = 0, n; col < p_.cols; col += n) {
      n = std::min(kPiece, p_.cols - col);
      GradientRow<T> rows[kRowsAtOnce];
      T* dx[kRowsAtOnce];
      fill_rows(first, kRowsAtOnce, statistics, col, n, rows);
      for (std::size_t r = 0; r < kRowsAtOnce; ++r) dx[r] = sink_.block(first + r, col, n);
      finite &= kernels_.of<T>().gradient_map({rows, kRowsAtOnce, n, gamma_.block(col, n), &scalars, dx, stream_});
    }
    return finite;
  }
}

// As many rows as are done alike, and at once: all of kRowsAtOnce, or one.
template <class T>
std::size_t BackwardRows<T>::run_length(const GradientScalars* scalars, std::size_t count) {
  if (count < kRowsAtOnce) return 1;
  for (std::size_t i = 0; i < kRowsAtOnce; ++i) {
    if (scalars[i].scaled) return 1;
  }
  return kRowsAtOnce;
}

template <class T>
void BackwardRows<T>::fill_rows(std::size_t first, std::size_t count, const GradientScalars* s, std::size_t col,
                                std::size_t n, GradientRow<T>* rows) {
  for (std::size_t r = 0; r < count; ++r) {
    rows[r] = {x_[r].get().block(first + r, col, n),
               dy_[r].get().block(first + r, col, n),
               s[r].mean_hi,
               s[r].mean_lo,
               s[r].rstd,
               ahead_};
  }
}

// Sums of `count` rows over a range of columns, whole blocks.
template <class T>
void BackwardRows<T>::look_at(std::size_t first, std::size_t count, const GradientScalars* scalars, ColumnRange range,
                              const ColumnSums& sums, BlockSums* joined) {
  const std::size_t cols = range.end - range.first;
  if (cols <= kBlock) return look_at_block(first, count, scalars, range.first, cols, sums, joined);
  GradientTree<A> trees[kRowsAtOnce];
  const std::size_t nodes = nodes_for(blocks_of(cols));
  for (std::size_t r = 0; r < count; ++r) trees[r] = GradientTree<A>({sum_nodes_ + r * nodes});
  for (std::size_t block = range.first; block < range.end; block += kBlock) {
    look_at_block(first, count, scalars, block, std::min(kBlock, range.end - block), sums, joined);
    for (std::size_t r = 0; r < count; ++r) trees[r].push(joined[r]);
  }
  for (std::size_t r = 0; r < count; ++r) joined[r] = trees[r].finish();
}

// Piece by piece.
template <class T>
void BackwardRows<T>::look_at_block(std::size_t first, std::size_t count, const GradientScalars* scalars,
                                    std::size_t first_col, std::size_t cols, const ColumnSums& sums,
                                    BlockSums* joined) {
  const auto look = kernels_.of<T>().gradient_look[index_of(p_.kind)];
  GradientRow<T> rows[kRowsAtOnce];
  GradientLanes lanes[kRowsAtOnce];
  for (std::size_t done = 0, n; done < cols; done += n) {
    n = std::min(kPiece, cols - done);
    const std::size_t col = first_col + done;
    fill_rows(first, count, scalars, col, n, rows);
    look({rows, count, gamma_.block(col, n), n, places_at<A>(sums, col), lanes, done == 0, done + n == cols, joined});
  }
}

// The columns' part alone; the rows' sums are known already.
template <class T>
void BackwardRows<T>::add_to_columns(std::size_t first, std::size_t count, const GradientScalars* scalars,
                                     std::size_t col, std::size_t n, const ColumnSums& sums) {
  GradientRow<T> rows[kRowsAtOnce];
  fill_rows(first, count, scalars, col, n, rows);
  kernels_.of<T>().gradient_look[index_of(p_.kind)](
      {rows, count, nullptr, n, places_at<A>(sums, col), nullptr, true, true, nullptr});
}

template <class T>
void BackwardRows<T>::finish_look(const BlockSums& sums, GradientScalars* s) {
  set_means(sums, s);
  if (!holds_k2(sums, *s)) set_scaled_means({JoinGradients<A>::node_of(sums), 0, 0, false}, s);
}

// A wide look at the means c1 and c2 of one row.
template <class T>
void BackwardRows<T>::set_means(const BlockSums& sums, GradientScalars* s) {
  using namespace plain;
  using W = Number<A>;
  const WideSums<W> wide{from_memory<A>(sums.s), from_memory<A>(sums.q)};
  const auto means = GradientMeansOf(kOne, is_centred(), wide, W::From(kOne, s->rstd, s->rstd_lo), p_.whole_cols);
  s->c1_hi = means.c1.hi;
  s->c1_lo = means.c1.Low(kOne);
  s->c2_hi = means.c2.hi;
  s->c2_lo = means.c2.Low(kOne);
}

// False if, in f64 arithmetic, k2 would lose digits below the range. dx is then computed with scaling.
template <class T>
bool BackwardRows<T>::holds_k2(const BlockSums& sums, const GradientScalars& s) {
  if (!kWide || sums.q.hi == 0) return true;
  const double c2 = std::fabs(s.c2_hi);
  return c2 >= kLeastK2F64 && c2 * s.rstd * s.rstd >= kLeastK2F64;
}

template <class T>
[[gnu::noinline]] void BackwardRows<T>::add_scaled_to_columns(std::size_t row, const GradientScalars& s,
                                                              std::size_t first_col, std::size_t cols,
                                                              const ColumnSums& sums) {
  if constexpr (kWide) {
    for (std::size_t col = first_col; col < first_col + cols; col += kPiece) {
      const std::size_t n = std::min(kPiece, first_col + cols - col);
      ScaledGradient(s).add_to_columns(x_[0].get().block(row, col, n), dy_[0].get().block(row, col, n), n,
                                       places_at<A>(sums, col));
    }
  }
}

template class BackwardRows<double>;
template class BackwardRows<float>;
template class BackwardRows<bfloat16>;
template class BackwardRows<float16>;

}  // namespace evenorm::internal
