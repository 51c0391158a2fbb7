#include "rows/line_rows.hpp"

#include <algorithm>
#include <utility>

namespace evenorm::internal {

const float* LinesOfRows::load(const Kernels& kernels, const SetVector& v, std::size_t rows_of_set, bool plus_one,
                               float absent, std::size_t from, std::size_t n, float* to) const {
  if (v.data == nullptr) {
    std::fill_n(to, n, absent);
    return to;
  }
  const auto bytes = static_cast<std::ptrdiff_t>(bytes_of(v.dtype));
  const bool by_position = place_.by_position,
             dense = by_position ? v.axes.is_dense(bytes_of(v.dtype))
                                 : v.axes.count() == 2 && v.axes[0] == Axis{place_.lines, bytes};
  if (by_position && dense && v.dtype == DType::f32 && !plus_one) {
    return static_cast<const float*>(v.of_set(row(0) / rows_of_set)) + from;
  }
  Convert* widen = v.dtype == DType::f32 ? nullptr : kernels.convert[index_of(v.dtype)][index_of(DType::f32)];
  for (std::size_t i = 0, count; i < n; i += count) {
    const std::size_t line = by_position ? 0 : from + i;
    count = !dense ? 1 : by_position ? n : std::min(n - i, place_.lines - line % place_.lines);
    const auto* data = static_cast<const char*>(v.of_set(row_of(line) / rows_of_set));
    if (by_position || place_.lines != 1) data += v.axes.offset(by_position ? from + i : column_of(line));
    if (widen != nullptr) {
      widen(data, to + i, count);
    } else {
      std::memcpy(to + i, data, count * sizeof(float));
    }
  }
  for (std::size_t i = 0; plus_one && i < n; ++i) to[i] += 1.0F;
  return to;
}

template <class T>
bool LineStatistics<T>::find(const LinesOfRows& lines) {
  const std::size_t positions = place_.positions;
  x_ = lines.access<const T>(matrix_);
  width_ = lines.at_once(LinesTree<MeanAndSquares>::most_lines(blocks_of(positions)), kMaxGroup);
  tree_.set_width(width_);
  const std::size_t across = lines.next_rows<T>() != 0 ? 0 : static_cast<std::size_t>(x_.step()) * kPositionsAhead;
  const std::size_t ahead = !prefetch_ ? 0 : place_.across ? across : kPrefetchAhead;
  std::size_t line_of_row = 0, finished = 0, waiting = 0;  // waiting: rows in the group, behind those that are finished
  bool in_range = true;
  RowGroup<float> group;
  const auto finish = [&](RowGroup<float>& g, std::size_t first, std::size_t rows) {
    in_range = finish_rows(g, first, rows) && in_range;
  };
  lines.for_parts(width_, [&](std::size_t line, std::size_t n, std::size_t first) {
    if (place_.lines == 1 && positions <= kBlock) {
      return sum_blocks(line, n, 0, positions, 1, ahead,
                        [&](RowGroup<float>& g, std::size_t i, std::size_t rows) { finish(g, line + i, rows); });
    }
    for (std::size_t col = 0, blocks; col < positions; col += blocks * kBlock) {
      const std::size_t cols = std::min(kBlock, positions - col);
      blocks = width_ != 1 ? 1 : std::clamp<std::size_t>((positions - col) / kBlock, 1, kMaxGroup);
      MeanAndSquares* to = tree_.begin_block();
      sum_blocks(line, n, col, cols, blocks, ahead, [&](const RowGroup<float>& g, std::size_t i, std::size_t rows) {
        for (std::size_t k = 0; k < rows; ++k) {
          to[width_ != 1 ? i + k : 0] = {centred_ ? g.mean[k] : 0, g.m2[k]};
          if (width_ != 1) continue;
          tree_.end_block(static_cast<double>(cols));
          to = tree_.begin_block();
        }
      });
      if (width_ != 1) tree_.end_block(static_cast<double>(cols));
    }
    const MeanAndSquares* found = tree_.finish();
    for (std::size_t i = first; i < n; ++i) {
      row_.push(found[i]);
      if (++line_of_row != place_.lines) continue;
      line_of_row = 0;
      const MeanAndSquares row = row_.finish();
      group.set(waiting++, row.mean, 0, row.m2);
      if (waiting != kMaxGroup) continue;
      finish(group, finished, kMaxGroup);
      finished += std::exchange(waiting, 0);
    }
  });
  if (waiting != 0) finish(group, finished, waiting);
  return in_range;
}

// Finds the moments of columns [col, col + cols) of n lines, or of as many in each of some blocks of one line. They are
// passed to use(group, first, count), group after group.
template <class T>
template <class Use>
void LineStatistics<T>::sum_blocks(std::size_t line, std::size_t n, std::size_t col, std::size_t cols,
                                   std::size_t blocks, std::size_t ahead, const Use& use) {
  const std::ptrdiff_t step = x_.step();
  const T* x = x_.at(line, col);
  RowGroup<float> g;
  if (place_.across) {
    kernels_.of<T>().sum_across[centred_ ? 0 : 1]({x, step, cols, n, lanes, ahead});
  } else {
    const std::ptrdiff_t apart = blocks == 1 ? step : std::ptrdiff_t{kBlock * sizeof(T)};
    kernels_.of<T>().sum_rows[centred_ ? 0 : 1]({{x, apart}, n * blocks, cols, &g, 0, ahead});
  }
  for (std::size_t i = 0, rows; i < n * blocks; i += rows) {
    rows = std::min(kMaxGroup, n * blocks - i);
    if (place_.across) {
      std::copy_n(lanes + i, rows, g.mean);
      std::copy_n(lanes + kLinesAtOnce + i, rows, g.m2);
    }
    if (centred_ && kernels_.in<float>().find_moments(g, rows, static_cast<double>(cols))) {
      second_pass(g, line + i, rows, col, cols, blocks);
    }
    use(g, i, rows);
  }
}

// The second pass of those of n lines, or blocks of one line, that need one.
template <class T>
[[gnu::noinline]] void LineStatistics<T>::second_pass(RowGroup<float>& g, std::size_t line, std::size_t n,
                                                      std::size_t col, std::size_t cols, std::size_t blocks) {
  for (std::size_t k = 0; k < n; ++k) {
    if (g.flag[k] == 0) continue;
    T* gathered = reinterpret_cast<T*>(lanes + std::size_t{2} * kLinesAtOnce);  // behind the sums
    const T* x = blocks == 1 ? x_.at(line + k, col) : x_.at(line, col + k * kBlock);
    if (place_.across) {
      const EvenRows<const T> positions{x, x_.step()};
      for (std::size_t c = 0; c < cols; ++c) gathered[c] = load_one(positions.at(c));
      x = gathered;
    }
    const MomentNode m = moments_about<T>(kernels_, x, cols, g.mean[k]);
    g.set(k, m.mean, 0, m.m2);
  }
}

// Finishes rows of a group, which are those from `first` on. Returns false if one is out of range.
template <class T>
bool LineStatistics<T>::finish_rows(RowGroup<float>& g, std::size_t first, std::size_t rows) {
  g.clear_from(rows);
  const std::size_t cols = place_.lines * place_.positions;
  kernels_.in<float>().finish(g, rows, static_cast<double>(cols), eps_);
  std::copy_n(g.mean, rows, mean + first);
  std::copy_n(g.rstd, rows, rstd + first);
  std::copy_n(g.scalars.centre, rows, centre + first);
  std::copy_n(g.scalars.offset, rows, offset + first);
  std::copy_n(g.scalars.rstd, rows, rounded_rstd + first);
  return !g.any_flag(rows);
}

template <class T>
bool LineRows<T>::run(const LinesOfRows& lines) {
  if (place_.across && lines.count() < kOfCacheLine<T>) return false;
  if (!has_finite_parameters(lines) || !statistics_.find(lines)) return false;
  for (std::size_t i = 0; i < lines.rows(); ++i) {
    if (p_.mean.data != nullptr) store_statistic(p_.mean, lines.row(i), statistics_.mean[i]);
    if (p_.rstd.data != nullptr) store_statistic(p_.rstd, lines.row(i), statistics_.rstd[i]);
  }
  return lines.for_strips<T>([&](std::size_t from, std::size_t n) {
    load_scalars(from, n);
    normalise(lines, from, n);
    return true;
  });
}

template <class T>
void LineRows<T>::load_scalars(std::size_t from, std::size_t n) {
  const std::size_t lines = place_.lines;
  const float* const of_rows[] = {statistics_.centre, statistics_.offset, statistics_.rounded_rstd};
  for (std::size_t k = 0; k < 3; ++k) {
    if (lines == 1) {
      std::copy_n(of_rows[k] + from, n, statistics_.strips[k]);
      continue;
    }
    for (std::size_t i = 0, count; i < n; i += count) {
      count = std::min(n - i, lines - (from + i) % lines);
      std::fill_n(statistics_.strips[k] + i, count, of_rows[k][(from + i) / lines]);
    }
  }
}

// Those of n lines, or positions.
template <class T>
void LineRows<T>::load_parameters(const LinesOfRows& lines, std::size_t from, std::size_t n) {
  const std::size_t set = rows_of_set(p_);
  gamma_ = lines.load(kernels_, p_.gamma, set, p_.zero_centered, 1, from, n, statistics_.strips[3]);
  beta_ = lines.load(kernels_, p_.beta, set, false, 0, from, n, statistics_.strips[4]);
}

template <class T>
bool LineRows<T>::has_finite_parameters(const LinesOfRows& lines) {
  const auto are_finite = [&](std::size_t from, std::size_t n) {
    load_parameters(lines, from, n);
    return kernels_.in<float>().are_finite(gamma_, n) && kernels_.in<float>().are_finite(beta_, n);
  };
  if (!place_.by_position) return lines.for_strips<T>(are_finite);
  const std::size_t set = lines.row(0) / rows_of_set(p_);
  if (set == set_) return true;
  if (lines.for_positions(are_finite)) set_ = set;
  return set == set_;
}

template <class T>
void LineRows<T>::normalise(const LinesOfRows& lines, std::size_t from, std::size_t count) {
  const auto kernel = place_.across ? kernels_.of<T>().normalise_across : kernels_.of<T>().normalise_along;
  const auto x = lines.access<const T>(p_.x);
  const auto y = lines.access<T>(p_.y);
  std::size_t ahead = plan_.cache.prefetch_x ? lines.next_rows<T>() : 0;
  if (ahead == 0 && place_.across && plan_.cache.prefetch_x) {
    ahead = static_cast<std::size_t>(x.step()) * kPositionsAheadOfStep;
  }
  const auto& strips = statistics_.strips;
  const auto run = [&](std::size_t line, std::size_t n, std::size_t col, std::size_t cols, std::size_t scalars) {
    kernel({x.at(line, col), y.at(line, col), x.step(), y.step(), cols, n, strips[0] + scalars, strips[1] + scalars,
            strips[2] + scalars, gamma_ + scalars, beta_ + scalars, ahead, plan_.cache.stream_y, place_.by_position});
  };
  if (place_.by_position) {
    lines.for_positions([&](std::size_t col, std::size_t cols) {
      load_parameters(lines, col, cols);
      run(from, count, col, cols, 0);
      return true;
    });
    return;
  }
  load_parameters(lines, from, count);
  for (std::size_t i = 0, n; i < count; i += n) {
    n = place_.across ? count : lines.even(from + i, count - i);
    run(from + i, n, 0, place_.positions, i);
  }
}

template class LineRows<float>;
template class LineRows<bfloat16>;
template class LineRows<float16>;
template class LineStatistics<float>;
template class LineStatistics<bfloat16>;
template class LineStatistics<float16>;

}  // namespace evenorm::internal
