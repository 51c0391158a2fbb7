#include "rows/line_rows.hpp"

#include <algorithm>
#include <utility>

namespace evenorm::internal {

void LinesOfRows::load(const Kernels& kernels, const SetVector& v, std::size_t rows_of_set, bool plus_one, float absent,
                       std::size_t from, std::size_t n, float* to) const {
  if (v.data == nullptr) {
    std::fill_n(to, n, absent);
    return;
  }
  const auto bytes = static_cast<std::ptrdiff_t>(bytes_of(v.dtype));
  const bool by_position = place_.by_position,
             dense = by_position ? v.axes.is_dense(bytes_of(v.dtype))
                                 : v.axes.count() == 2 && v.axes[0] == Axis{place_.lines, bytes};
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
}

template <class T>
bool LineStatistics<T>::find() {
  const std::size_t positions = lines_.place().positions;
  std::size_t line_of_row = 0;
  bool in_range = true;
  lines_.for_parts(width_, [&](std::size_t line, std::size_t n, std::size_t first) {
    for (std::size_t col = 0, blocks; col < positions; col += blocks * kBlock) {
      const std::size_t cols = std::min(kBlock, positions - col);
      blocks = width_ != 1 ? 1 : std::clamp<std::size_t>((positions - col) / kBlock, 1, kMaxGroup);
      MeanAndSquares found[kMaxGroup];  // of blocks of one line
      sum_blocks(line, n, col, cols, blocks, width_ != 1 ? tree_.begin_block() : found);
      for (std::size_t i = 0; i < blocks; ++i) {
        if (width_ == 1) *tree_.begin_block() = found[i];
        tree_.end_block(static_cast<double>(cols));
      }
    }
    const MeanAndSquares* found = tree_.finish();
    for (std::size_t i = first; i < n; ++i) {
      row_.push(found[i]);
      if (++line_of_row != lines_.place().lines) continue;
      line_of_row = 0;
      const MeanAndSquares row = row_.finish();
      group_.set(pending_++, row.mean, 0, row.m2);
      if (pending_ == kMaxGroup) in_range = finish_rows() && in_range;
    }
  });
  return (pending_ == 0 || finish_rows()) && in_range;
}

// Sums columns [col, col + cols) of n lines, or as many in each of some blocks of one line.
template <class T>
void LineStatistics<T>::sum_blocks(std::size_t line, std::size_t n, std::size_t col, std::size_t cols,
                                   std::size_t blocks, MeanAndSquares* to) {
  const bool across = lines_.place().across;
  const std::ptrdiff_t step = x_.step();
  const T* x = x_.at(line, col);
  if (across) {
    const std::size_t ahead = prefetch_ ? static_cast<std::size_t>(step) * kPositionsAhead : 0;
    kernels_.of<T>().sum_across[centred_ ? 0 : 1]({x, step, cols, n, lanes_, groups_, ahead});
  } else {
    const std::ptrdiff_t apart = blocks == 1 ? step : std::ptrdiff_t{kBlock * sizeof(T)};
    kernels_.of<T>().sum_rows[centred_ ? 0 : 1](
        {{x, apart}, n * blocks, cols, groups_, 0, prefetch_ ? kPrefetchAhead : 0});
    groups_[0].clear_from(n * blocks);
  }
  const std::size_t all = n * blocks;
  for (std::size_t i = 0; i < all; i += kMaxGroup) {
    RowGroup<float>& g = groups_[i / kMaxGroup];
    const std::size_t rows = std::min(kMaxGroup, all - i);
    if (centred_ && kernels_.in<float>().find_moments(g, rows, static_cast<double>(cols))) {
      second_pass(g, line + i, rows, col, cols, blocks);
    }
    for (std::size_t k = 0; k < rows; ++k) to[i + k] = {centred_ ? g.mean[k] : 0, g.m2[k]};
  }
}

// The second pass of those of n lines, or blocks of one line, that need one.
template <class T>
[[gnu::noinline]] void LineStatistics<T>::second_pass(RowGroup<float>& g, std::size_t line, std::size_t n,
                                                      std::size_t col, std::size_t cols, std::size_t blocks) {
  for (std::size_t k = 0; k < n; ++k) {
    if (g.flag[k] == 0) continue;
    T gathered[kBlock];
    const T* x = blocks == 1 ? x_.at(line + k, col) : x_.at(line, col + k * kBlock);
    if (lines_.place().across) {
      const EvenRows<const T> positions{x, x_.step()};
      for (std::size_t c = 0; c < cols; ++c) gathered[c] = load_one(positions.at(c));
      x = gathered;
    }
    const MomentNode m = moments_about<T>(kernels_, x, cols, g.mean[k]);
    g.set(k, m.mean, 0, m.m2);
  }
}

// Finishes the rows of the group. Returns false if one is out of range.
template <class T>
bool LineStatistics<T>::finish_rows() {
  group_.clear_from(pending_);
  const std::size_t cols = lines_.place().lines * lines_.place().positions;
  kernels_.in<float>().finish(group_, pending_, static_cast<double>(cols), eps_);
  for (std::size_t i = 0; i < pending_; ++i, ++finished_) {
    mean[finished_] = group_.mean[i];
    rstd[finished_] = group_.rstd[i];
    scalars[finished_] = group_.scalars.of(i);
  }
  return !group_.any_flag(std::exchange(pending_, 0));
}

template <class T>
bool LineRows<T>::run() {
  if (lines_.place().across && lines_.count() < kOfCacheLine<T>) return false;
  if (!has_finite_parameters() || !statistics_.find()) return false;
  for (std::size_t i = 0; i < lines_.rows(); ++i) {
    if (p_.mean.data != nullptr) store_statistic(p_.mean, lines_.row(i), statistics_.mean[i]);
    if (p_.rstd.data != nullptr) store_statistic(p_.rstd, lines_.row(i), statistics_.rstd[i]);
  }
  return lines_.for_strips<T>([&](std::size_t from, std::size_t n) {
    load_scalars(from, n);
    normalise(from, n);
    return true;
  });
}

template <class T>
void LineRows<T>::load_scalars(std::size_t from, std::size_t n) {
  const std::size_t lines = lines_.place().lines;
  for (std::size_t i = 0, count; i < n; i += count) {
    count = std::min(n - i, lines - (from + i) % lines);
    const NormScalars<float>& row = statistics_.scalars[(from + i) / lines];
    std::fill_n(scalars_[0] + i, count, row.centre);
    std::fill_n(scalars_[1] + i, count, row.offset);
    std::fill_n(scalars_[2] + i, count, row.rstd);
  }
}

// Those of n lines, or positions, unless they are loaded already.
template <class T>
void LineRows<T>::load_parameters(std::size_t from, std::size_t n) {
  if (from == loaded_ && n == loaded_count_) return;
  const std::size_t set = rows_of_set(p_);
  lines_.load(kernels_, p_.gamma, set, p_.zero_centered, 1, from, n, scalars_[3]);
  lines_.load(kernels_, p_.beta, set, false, 0, from, n, scalars_[4]);
  loaded_ = from, loaded_count_ = n;
}

template <class T>
bool LineRows<T>::has_finite_parameters() {
  const auto are_finite = [&](std::size_t from, std::size_t n) {
    load_parameters(from, n);
    return kernels_.in<float>().are_finite(scalars_[3], n) && kernels_.in<float>().are_finite(scalars_[4], n);
  };
  return lines_.place().by_position ? lines_.for_positions(are_finite) : lines_.for_strips<T>(are_finite);
}

template <class T>
void LineRows<T>::normalise(std::size_t from, std::size_t lines) {
  const LinePlace& place = lines_.place();
  const auto kernel = place.across ? kernels_.of<T>().normalise_across : kernels_.of<T>().normalise_along;
  const auto x = lines_.access<const T>(p_.x);
  const auto y = lines_.access<T>(p_.y);
  // The next rows.
  const std::size_t bytes = lines_.count() * place.positions * sizeof(T);
  const std::size_t along = plan_.cache.prefetch_x && place.follows && bytes <= kMostAhead ? bytes : 0;
  const std::size_t ahead = !place.across            ? along
                            : plan_.cache.prefetch_x ? static_cast<std::size_t>(x.step()) * kPositionsAheadOfStep
                                                     : 0;
  const auto run = [&](std::size_t line, std::size_t n, std::size_t col, std::size_t cols, std::size_t scalars) {
    kernel({x.at(line, col), y.at(line, col), x.step(), y.step(), cols, n, scalars_[0] + scalars, scalars_[1] + scalars,
            scalars_[2] + scalars, scalars_[3] + scalars, scalars_[4] + scalars, ahead, plan_.cache.stream_y,
            place.by_position});
  };
  if (place.by_position) {
    lines_.for_positions([&](std::size_t col, std::size_t cols) {
      load_parameters(col, cols);
      run(from, lines, col, cols, 0);
      return true;
    });
    return;
  }
  load_parameters(from, lines);
  for (std::size_t i = 0, n; i < lines; i += n) {
    n = place.across ? lines : lines_.even(from + i, lines - i);
    run(from + i, n, 0, place.positions, i);
  }
}

template class LineRows<float>;
template class LineRows<bfloat16>;
template class LineRows<float16>;
template class LineStatistics<float>;
template class LineStatistics<bfloat16>;
template class LineStatistics<float16>;

}  // namespace evenorm::internal
