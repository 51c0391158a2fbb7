// Rows by lines (plan/lines.hpp). A pass takes some rows of a sample at a time: kernels sum their lines in place, the
// sums are joined row by row, and then kernels write y or dx of all these lines.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "panels/parameter.hpp"
#include "plan/forward_plan.hpp"
#include "rows/statistics.hpp"

namespace evenorm::internal {

// Columns [col, col + cols) of `lines` lines from `line` on; or as many columns in each of `blocks` blocks of one line.
struct LinePart {
  std::size_t line, lines, col, cols, blocks = 1;
};

// Some rows of one sample. Their lines are numbered from 0 on, row by row, and are evenly spaced.
class LinesOfRows {
 public:
  static constexpr std::size_t kMostRows = 128;

  // first: numbered as LinePlace does.
  LinesOfRows(const LinePlace& place, std::size_t first, std::size_t rows)
      : place_(place), first_row_(place.row(first)), rows_(rows) {}

  // How many rows of T go through the kernels at once.
  template <class T>
  static std::size_t chunk(const LinePlace& place) {
    const std::size_t row = place.row_lines * place.positions * sizeof(T);
    if (!place.across) return std::clamp<std::size_t>(kChunkBytes / row, 1, kMostRows);
    const bool are_near = place.row_lines == 1 && place.unit * row <= kMostAhead;
    const std::size_t most = are_near ? kChunkBytesOfRows / row : kChunkLines / place.row_lines;
    const std::size_t rows = std::clamp<std::size_t>(most, 1, kMostRows - kCacheLine / 2);
    return std::max(rows / place.unit, std::size_t{1}) * place.unit;
  }

  const LinePlace& place() const { return place_; }
  std::size_t rows() const { return rows_; }
  std::size_t lines() const { return rows_ * place_.row_lines; }
  // The row of the problem.
  std::size_t row(std::size_t i) const { return first_row_ + i * place_.row_step; }

  // These lines of a tensor of elements U. A step leads from one line to the next along memory, and from one position
  // to the next across it.
  template <class U, class Pointer>
  EvenRows<U> in(const Matrix<Pointer>& m) const {
    const std::ptrdiff_t first = m.rows.offset(first_row_);
    const std::ptrdiff_t next = place_.row_lines != 1 ? m.cols.offset(place_.positions) : m.rows.offset(row(1)) - first;
    U* const data = static_cast<U*>(const_cast<void*>(static_cast<const void*>(m.data)));
    return {EvenRows<U>{data, first}.at(1), place_.across ? m.cols.inner().stride : next};
  }

  // Sums the blocks of all lines, joins blocks to lines, and lines to rows. A Node holds the sums of any of these.
  // - sum_part(part, to) stores the nodes of the lines of a part, or of its blocks.
  // - of_lines(line, n, nodes) gets the nodes of n whole lines, and may change them before they are joined.
  // - of_row(i, node) gets the node of a row.
  // Returns false as soon as sum_part or of_row does.
  template <class Node, class SumPart, class OfLines, class OfRow>
  bool sum(const SumPart& sum_part, const OfLines& of_lines, const OfRow& of_row) const {
    const std::size_t width = lines_at_once(), positions = place_.positions;
    Node nodes[kNodes], row_nodes[kMaxNodes];
    typename JoinLines<Node>::Part parts[kMaxNodes], row_parts[kMaxNodes];
    JoinTree<JoinLines<Node>> tree({width, nodes, parts}), row_tree({1, row_nodes, row_parts});
    for (std::size_t from = 0, n, row = 0, line_of_row = 0; from < lines(); from += n) {
      n = std::min(width, lines() - from);
      LinePart part{from, n, 0, 0};
      if (place_.across) part.line = std::min(from, lines() - width), part.lines = width;  // the last may overlap
      for (; part.col < positions; part.col += part.blocks * kBlock) {
        const std::size_t left = positions - part.col;
        part.cols = std::min(kBlock, left);
        part.blocks = width != 1 ? 1 : std::clamp<std::size_t>(left / kBlock, 1, kMaxGroup);
        Node* const to = nodes + tree.depth() * width;
        if (!sum_part(part, to)) return false;
        for (std::size_t i = 0; i < part.blocks; ++i) tree.push({to + i, static_cast<double>(part.cols)});
      }
      Node* const found = tree.finish().numbers + (from - part.line);
      of_lines(from, n, found);
      for (std::size_t i = 0; i < n; ++i) {
        Node* sums = found + i;
        if (place_.row_lines != 1) {
          row_tree.push({sums, static_cast<double>(positions)});
          if (++line_of_row != place_.row_lines) continue;
          line_of_row = 0;
          sums = row_tree.finish().numbers;
        }
        if (!of_row(row++, *sums)) return false;
      }
    }
    return true;
  }

  // Calls work(line, n) for strips of lines, until it returns false. Across memory these are whole cache lines; the
  // last one may overlap.
  template <class T, class Work>
  bool for_strips(const Work& work) const {
    const std::size_t unit = place_.across ? kOfCacheLine<T> : 1;
    for (std::size_t line = 0, n; line < lines(); line += n) {
      line = std::min(line, lines() - unit);
      n = std::min(kStripLines, (lines() - line) / unit * unit);
      if (!work(line, n)) return false;
    }
    return true;
  }
  // Copies numbers of rows to n of their lines.
  void spread(const float* of_rows, std::size_t line, std::size_t n, float* to) const {
    if (place_.row_lines == 1) return static_cast<void>(std::copy_n(of_rows + line, n, to));
    for (std::size_t i = 0, count; i < n; i += count) {
      count = std::min(n - i, place_.row_lines - (line + i) % place_.row_lines);
      std::fill_n(to + i, count, of_rows[(line + i) / place_.row_lines]);
    }
  }
  // Copies the elements of a parameter, or `absent`, of n lines, as f32.
  void load(const Kernels& kernels, const SetVector& v, std::size_t rows_of_set, bool plus_one, float absent,
            std::size_t line, std::size_t n, float* to) const {
    if (v.data == nullptr) return static_cast<void>(std::fill_n(to, n, absent));
    const std::size_t bytes = bytes_of(v.dtype), of_row = place_.row_lines;
    const bool dense = v.axes.count() == 2 && v.axes[0] == Axis{of_row, static_cast<std::ptrdiff_t>(bytes)};
    Convert* const convert = kernels.convert[index_of(v.dtype)][index_of(DType::f32)];
    for (std::size_t i = 0, count; i < n; i += count) {
      const std::size_t i_row = (line + i) / of_row, i_line = (line + i) % of_row;
      count = dense ? std::min(n - i, of_row - i_line) : 1;
      const auto* from = static_cast<const char*>(v.of_set(row(i_row) / rows_of_set));
      if (i_line != 0) from += v.axes.offset(i_line * place_.positions);
      v.dtype == DType::f32 ? static_cast<void>(std::memcpy(to + i, from, count * bytes))
                            : convert(from, to + i, count);
    }
    for (std::size_t i = 0; plus_one && i < n; ++i) to[i] += 1.0F;
  }

 private:
  static constexpr std::size_t kNodes = 896;

  // The lines that are summed at once. Along memory, as many as a group has, unless these have several blocks. Across
  // it, equal parts of whole cache lines of f32.
  std::size_t lines_at_once() const {
    if (!place_.across) return place_.positions <= kBlock ? kMaxGroup : 1;
    constexpr std::size_t kUnit = kOfCacheLine<float>;
    const std::size_t levels = nodes_for(blocks_of(place_.positions) - 1) + 1;
    const std::size_t most = std::min(kLinesAtOnce, kNodes / levels) / kUnit * kUnit;
    const std::size_t parts = (lines() + most - 1) / most, each = (lines() + parts - 1) / parts;
    return std::min((each + kUnit - 1) / kUnit, lines() / kUnit) * kUnit;
  }

  const LinePlace& place_;
  std::size_t first_row_, rows_;
};

// What both passes do with the lines of some rows.
template <class T>
class LinePass {
 public:
  // dy: null in a forward pass. to: y or dx.
  LinePass(const Kernels& kernels, const LinesOfRows& lines, const Matrix<const void*>& x,
           const Matrix<const void*>* dy, const Matrix<void*>& to, bool prefetch, bool stream)
      : kernels_(kernels),
        lines_(lines),
        x_(lines.in<const T>(x)),
        dy_(lines.in<const T>(dy != nullptr ? *dy : x)),
        to_(lines.in<T>(to)),
        stream_(stream) {
    if (prefetch) set_distances(dy != nullptr);
  }

  // Finds mean, rstd and the scalars of y that are those of rows. Returns false if a row is out of range.
  [[gnu::noinline]] bool find_statistics(Kind kind, double eps) {
    alignas(64) double lanes[2 * kLanes * kLinesAtOnce];
    lines_.template sum<LineMoments>(
        [&](const LinePart& part, LineMoments* to) { return sum_part(part, kind, lanes, to); },
        [](std::size_t, std::size_t, LineMoments*) {},
        [&](std::size_t row, const LineMoments& m) {
          mean[row] = m.mean, rstd[row] = m.m2;  // until rstd is known
          return true;
        });
    const auto cols = static_cast<double>(lines_.place().row_lines * lines_.place().positions);
    bool in_range = true;
    RowGroup<float> group;
    group.clear_from(0);
    for (std::size_t i = 0; i < lines_.rows(); i += kMaxGroup) {
      const std::size_t n = std::min(kMaxGroup, lines_.rows() - i);
      std::copy_n(mean + i, kMaxGroup, group.mean);
      std::copy_n(rstd + i, kMaxGroup, group.m2);
      group.clear_from(n);
      kernels_.in<float>().finish(group, n, cols, eps);
      std::copy_n(group.rstd, kMaxGroup, rstd + i);
      std::copy_n(group.scalars.centre, kMaxGroup, scalars[OfY::centre] + i);
      std::copy_n(group.scalars.offset, kMaxGroup, scalars[OfY::offset] + i);
      std::copy_n(group.scalars.rstd, kMaxGroup, scalars[OfY::rstd] + i);
      in_range = in_range && !group.any_flag(n);
    }
    return in_range;
  }

  // What kernels get for sums, apart from the scalars.
  Lines<T> for_sums(const LinePart& part) const { return at(part, ahead_of_sums_); }

  // Writes y or dx. The first `count` scalars of a line are those of its row; load(from, n) returns the others, of
  // lines, or of positions. Returns false if the kernel does.
  template <class Load>
  bool write(bool (*kernel)(const Lines<T>&), std::size_t count, const Load& load) const {
    const LinePlace& place = lines_.place();
    const std::size_t most = place.by_position ? kStripLines : place.positions;
    float of_lines[4][kStripLines];
    return lines_.for_strips<T>([&](std::size_t line, std::size_t n) {
      for (std::size_t k = 0; k < count; ++k) lines_.spread(scalars[k], line, n, of_lines[k]);
      for (std::size_t col = 0; col < place.positions; col += most) {
        const std::size_t cols = std::min(most, place.positions - col);
        const std::array<const float*, 2> others = place.by_position ? load(col, cols) : load(line, n);
        Lines<T> some = at({line, n, col, cols}, ahead_of_step_);
        for (std::size_t k = 0; k < 5; ++k) some.scalars[k] = k < count ? of_lines[k] : others[k - count];
        if (!kernel(some)) return false;
      }
      return true;
    });
  }

  double mean[LinesOfRows::kMostRows], rstd[LinesOfRows::kMostRows];
  float scalars[4][LinesOfRows::kMostRows];

 private:
  // Across memory, the next rows of the sample are prefetched if they are near; else the next positions.
  void set_distances(bool is_backward) {
    const LinePlace& place = lines_.place();
    const std::size_t bytes = lines_.lines() * place.positions * sizeof(T);
    const bool near = !is_backward && place.sample_rows != 1 && bytes <= kMostAhead;  // gradients do not gain
    if (!place.across) {
      ahead_of_sums_ = is_backward ? kGradientAhead : kPrefetchAhead;
      ahead_of_step_ = near ? bytes : 0;
    } else if (near) {
      ahead_of_step_ = place.row_lines != 1
                           ? lines_.lines() * sizeof(T)
                           : std::max(kChunkBytes / (place.positions * kCacheLine), std::size_t{1}) * kCacheLine;
    } else {
      ahead_of_sums_ = static_cast<std::size_t>(x_.step) * kPositionsAhead;
      ahead_of_step_ = static_cast<std::size_t>(x_.step) * kPositionsAheadOfStep;
    }
  }

  Lines<T> at(const LinePart& part, std::size_t ahead) const {
    const LinePlace& place = lines_.place();
    const auto from = [&]<class U>(const EvenRows<U>& all) {
      U* const first = all.at(place.across ? part.col : part.line);
      return EvenRows<U>{EvenRows<U>{first, sizeof(T)}.at(place.across ? part.line : part.col),
                         part.blocks == 1 ? all.step : static_cast<std::ptrdiff_t>(kBlock * sizeof(T))};
    };
    const std::size_t count = part.lines * part.blocks;
    return {from(x_), from(dy_), from(to_), part.cols, count, {}, ahead, place.across, place.by_position, stream_};
  }

  // Finds the moments of a part.
  bool sum_part(const LinePart& part, Kind kind, double* lanes, LineMoments* to) const {
    const Lines<T> lines = for_sums(part);
    const bool centred = kind == Kind::layer;
    RowGroup<float> g;
    if (lines.across) {
      kernels_.of<T>().sum_across[index_of(kind)](lines, lanes);
    } else {
      kernels_.of<T>().sum_rows[index_of(kind)]({lines.x, lines.count, lines.positions, &g, 0, lines.ahead});
    }
    for (std::size_t i = 0, n; i < lines.count; i += n) {
      n = std::min(kMaxGroup, lines.count - i);
      if (lines.across) {
        std::copy_n(lanes + i, n, g.mean);
        std::copy_n(lanes + kLinesAtOnce + i, n, g.m2);
      }
      if (centred && kernels_.in<float>().find_moments(g, n, static_cast<double>(lines.positions))) {
        second_pass(lines, i, n, lanes, g);
      }
      for (std::size_t k = 0; k < n; ++k) to[i + k] = {centred ? g.mean[k] : 0, g.m2[k]};
    }
    return true;
  }

  // The second pass of those of n lines that need one.
  [[gnu::noinline]] void second_pass(const Lines<T>& lines, std::size_t first, std::size_t n, double* lanes,
                                     RowGroup<float>& g) const {
    T* gathered = reinterpret_cast<T*>(lanes + std::size_t{2} * kLinesAtOnce);  // behind the sums
    for (std::size_t k = 0; k < n; ++k) {
      if (g.flag[k] == 0) continue;
      for (std::size_t c = 0; lines.across && c < lines.positions; ++c)
        gathered[c] = load_one(lines.x.at(c) + first + k);
      const T* x = lines.across ? gathered : lines.x.at(first + k);
      set_moments(g, k, moments_about<T>(kernels_, x, lines.positions, g.mean[k]));
    }
  }

  const Kernels& kernels_;
  const LinesOfRows& lines_;
  EvenRows<const T> x_, dy_;  // dy: x in a forward pass
  EvenRows<T> to_;
  bool stream_;
  std::size_t ahead_of_sums_ = 0, ahead_of_step_ = 0;  // prefetch distances in bytes
};

template <class T>
[[gnu::noinline]] bool write_y(const Kernels& kernels, const Problem& p, const LinesOfRows& lines,
                               const LinePass<T>& pass, std::optional<std::size_t>& finite_set) {
  const auto write = [&](const auto& load) {
    for (std::size_t i = 0; i < lines.rows(); ++i) {
      store_statistic(p.mean, lines.row(i), pass.mean[i]);
      store_statistic(p.rstd, lines.row(i), pass.rstd[i]);
    }
    return pass.write(kernels.of<T>().normalise_lines, 3, load);
  };
  using Parameters = std::array<const float*, 2>;
  float values[2][kBlock];
  static_assert(kStripLines <= kBlock);
  if (lines.place().by_position) {
    const std::size_t set = lines.row(0) / rows_of_set(p);
    const ColumnRange unknown{0, finite_set == set ? 0 : p.cols};
    Parameter<float, 1> gamma(kernels, p.gamma, set, p.zero_centered, p.cols, unknown, values[0]);
    Parameter<float, 0> beta(kernels, p.beta, set, false, p.cols, unknown, values[1]);
    if (!gamma.is_finite() || !beta.is_finite()) return false;
    finite_set = set;
    return write([&](std::size_t col, std::size_t n) { return Parameters{gamma.block(col, n), beta.block(col, n)}; });
  }
  std::optional<std::size_t> loaded;  // the first line of the strip that is; often there is no other
  const auto load = [&](std::size_t line, std::size_t n) {
    if (loaded != line) {
      lines.load(kernels, p.gamma, rows_of_set(p), p.zero_centered, 1, line, n, values[0]);
      lines.load(kernels, p.beta, rows_of_set(p), false, 0, line, n, values[1]);
      loaded = line;
    }
    return Parameters{values[0], values[1]};
  };
  const bool finite = lines.for_strips<T>([&](std::size_t line, std::size_t n) {
    const auto [gamma, beta] = load(line, n);
    return kernels.in<float>().are_finite(gamma, n) && kernels.in<float>().are_finite(beta, n);
  });
  return finite && write(load);
}

// Writes y and statistics of some rows. Returns false, and writes nothing, if one of them is out of range or a
// parameter is not finite. finite_set: a set whose parameters of positions are known to be finite.
template <class T>
[[gnu::noinline]] bool normalise_lines(const Kernels& kernels, const Problem& p, const ForwardPlan& plan,
                                       const LinesOfRows& lines, std::optional<std::size_t>& finite_set) {
  LinePass<T> pass(kernels, lines, p.x, nullptr, p.y, plan.cache.prefetch_x, plan.cache.stream_y);
  return pass.find_statistics(p.kind, p.eps) && write_y<T>(kernels, p, lines, pass, finite_set);
}

// Runs rows [first, end), numbered as LinePlace does: run(lines) takes some of one sample. If it returns false,
// rows(i, n) gets them, numbered as the problem does.
template <class T, class Run, class Rows>
void for_lines(const LinePlace& place, std::size_t first, std::size_t end, const Run& run, const Rows& rows) {
  const std::size_t chunk = LinesOfRows::chunk<T>(place);
  for (std::size_t i = first, n; i < end; i += n) {
    n = std::min(end - i, place.sample_rows - i % place.sample_rows);
    if (n >= chunk + place.unit) n = chunk;
    if (run(LinesOfRows(place, i, n))) continue;
    const std::size_t together = place.row_step == 1 ? n : 1;
    for (std::size_t k = i; k < i + n; k += together) rows(place.row(k), together);
  }
}

}  // namespace evenorm::internal
