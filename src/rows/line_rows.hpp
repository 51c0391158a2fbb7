// Rows by lines, which lie along vectors or across them: see plan/lines.hpp. Lines go through the kernels in place:
// some are summed at once, and joined row by row; then y or dx of all lines of some rows is written.
#pragma once

#include <array>

#include "plan/forward_plan.hpp"
#include "plan/gradient_plan.hpp"
#include "rows/statistics.hpp"

namespace evenorm::internal {

// The lines of some rows of one sample, and where they are.
class LinesOfRows {
 public:
  static constexpr std::size_t kMostRows = 128;

  LinesOfRows(const LinePlace& place, std::size_t first, std::size_t rows)
      : place_(place), first_row_(place.row(first)), rows_(rows) {}

  // The most rows of T that go through the kernels at once.
  template <class T>
  static std::size_t chunk(const LinePlace& place) {
    const std::size_t row = place.lines * place.positions * sizeof(T);
    if (!place.across) return std::clamp<std::size_t>(kChunkBytes / row, 1, kMostRows);
    const bool are_near = place.lines == 1 && place.unit * row <= kMostAhead;
    const std::size_t most = are_near ? kChunkBytesOfRows / row : kChunkLines / place.lines;
    const std::size_t rows = std::clamp<std::size_t>(most, 1, kMostRows - kLine / 2);
    return std::max(rows / place.unit, std::size_t{1}) * place.unit;
  }

  const LinePlace& place() const { return place_; }
  std::size_t rows() const { return rows_; }
  std::size_t count() const { return rows_ * place_.lines; }
  // Kernels across vectors take whole cache lines.
  template <class T>
  bool fill_vectors() const {
    return !place_.across || count() >= kOfCacheLine<T>;
  }
  // The bytes to the next rows of U, which are worth prefetching while these are normalised; 0 if they are too far.
  template <class U>
  std::size_t next_rows() const {
    const std::size_t bytes = count() * place_.positions * sizeof(U);
    if (!place_.follows || bytes > kMostAhead) return 0;
    if (!place_.across) return bytes;
    return place_.lines != 1 ? count() * sizeof(U)
                             : std::max(kChunkBytes / (place_.positions * kLine), std::size_t{1}) * kLine;
  }
  std::size_t row(std::size_t i) const { return first_row_ + i * place_.step; }

  // Where the elements of these lines are in a tensor of elements U. step: from a line to the next along vectors, from
  // a position to the next across them.
  template <class U>
  struct Access {
    U* at(std::size_t row, std::size_t line_of_row, std::size_t col) const {
      const auto bytes = row * static_cast<std::size_t>(of_row) + line_of_row * static_cast<std::size_t>(of_line) +
                         col * static_cast<std::size_t>(of_col);
      return EvenRows<U>{first, 1}.at(bytes);
    }

    U* first;
    std::ptrdiff_t of_row, of_line, of_col, step;
  };
  template <class U, class Pointer>
  Access<U> access(const Matrix<Pointer>& m) const {
    const std::ptrdiff_t first = m.rows.offset(first_row_);
    Access<U> to;
    to.first = EvenRows<U>{static_cast<U*>(const_cast<void*>(static_cast<const void*>(m.data))), first}.at(1);
    to.of_row = rows_ > 1 ? m.rows.offset(first_row_ + place_.step) - first : 0;
    to.of_line = place_.lines > 1 ? m.cols.offset(place_.positions) : 0;
    to.of_col = place_.across ? m.cols.inner().stride : static_cast<std::ptrdiff_t>(sizeof(U));
    to.step = place_.across ? to.of_col : place_.lines == 1 ? to.of_row : to.of_line;
    return to;
  }

  // The lines that are summed at once and have the same columns: along vectors as many as a group has, unless these
  // have several blocks. Across vectors, these are equal parts, of which the last ones may overlap.
  std::size_t at_once() const {
    if (!place_.across) return place_.positions <= kBlock ? kMaxGroup : 1;
    constexpr std::size_t kUnit = kOfCacheLine<float>;
    const std::size_t waiting = static_cast<std::size_t>(std::bit_width(blocks_of(place_.positions) - 1)) + 1;
    const std::size_t most = std::min(kLinesAtOnce, kNodes / waiting) / kUnit * kUnit;
    const std::size_t parts = (count() + most - 1) / most, each = (count() + parts - 1) / parts;
    return std::min((each + kUnit - 1) / kUnit, count() / kUnit) * kUnit;
  }
  // How many of the next lines, at most n, are at this distance.
  std::size_t even(std::size_t line, std::size_t n) const {
    if (place_.across) return n;
    return std::min(n, (place_.follows ? count() : (line / place_.lines + 1) * place_.lines) - line);
  }
  // Sums all lines, and joins them: sum(line, n, col, cols, blocks, to) finds the numbers of columns [col, col + cols)
  // of n lines, or of as many in each of some blocks of one line. of_lines(line, first, n, numbers) gets those of whole
  // lines, of which the first ones have been there before, and may change them. of_row(row, numbers) gets those of
  // rows.
  template <class Node, class Sum, class OfLines, class OfRow>
  void sum(const Sum& sum, const OfLines& of_lines, const OfRow& of_row) const {
    const std::size_t width = at_once(), positions = place_.positions;
    Node nodes[kNodes], row_nodes[kMaxNodes];
    typename JoinLines<Node>::Part parts[kMaxNodes], row_parts[kMaxNodes];
    JoinTree<JoinLines<Node>> tree({width, parts}), row_tree({1, row_parts});
    for (std::size_t from = 0, line_of_row = 0, row_number = 0, n; from < count(); from += n) {
      n = even(from, std::min(width, count() - from));
      const std::size_t line = place_.across ? std::min(from, count() - width) : from, first = from - line;
      for (std::size_t col = 0, blocks; col < positions; col += blocks * kBlock) {
        const std::size_t cols = std::min(kBlock, positions - col);
        blocks = width != 1 ? 1 : std::clamp<std::size_t>((positions - col) / kBlock, 1, kMaxGroup);
        Node* const to = nodes + tree.depth() * width;
        sum(line, first + n, col, cols, blocks, to);
        for (std::size_t i = 0; i < blocks; ++i) {
          Node* const place = nodes + tree.depth() * width;  // nodes that wait are neighbours
          *place = to[i];
          tree.push({place, static_cast<double>(cols)});
        }
      }
      Node* const found = tree.finish().numbers;
      of_lines(line, first, first + n, found);
      for (std::size_t i = first; i < first + n; ++i) {
        if (place_.lines == 1) {
          of_row(line + i, found[i]);
          continue;
        }
        Node* const place = row_nodes + row_tree.depth();
        *place = found[i];
        row_tree.push({place, static_cast<double>(positions)});
        if (++line_of_row != place_.lines) continue;
        line_of_row = 0;
        of_row(row_number++, *row_tree.finish().numbers);
      }
    }
  }

  // Calls work(from, n) for strips of lines; across vectors, of whole cache lines, of which the last may overlap.
  template <class T, class Work>
  bool for_strips(const Work& work) const {
    constexpr std::size_t kUnit = kOfCacheLine<T>;
    const std::size_t whole = place_.across ? count() / kUnit * kUnit : count();
    for (std::size_t from = 0; from < whole; from += kStripLines) {
      if (!work(from, std::min(kStripLines, whole - from))) return false;
    }
    return whole == count() || work(count() - kUnit, kUnit);
  }
  // Calls work(col, n) for the positions of lines, as many at once as there is room for parameters.
  template <class Work>
  bool for_positions(const Work& work) const {
    for (std::size_t col = 0; col < place_.positions; col += kStripLines) {
      if (!work(col, std::min(kStripLines, place_.positions - col))) return false;
    }
    return true;
  }
  // Copies numbers of rows to n of their lines.
  void spread(const float* of_rows, std::size_t line, std::size_t n, float* to) const {
    if (place_.lines == 1) return static_cast<void>(std::copy_n(of_rows + line, n, to));
    for (std::size_t i = 0, count; i < n; i += count) {
      count = std::min(n - i, place_.lines - (line + i) % place_.lines);
      std::fill_n(to + i, count, of_rows[(line + i) / place_.lines]);
    }
  }
  // A parameter of lines [from, from + n), or of such positions, or `absent`: in place, or at `to`.
  const float* load(const Kernels& kernels, const SetVector& v, std::size_t rows_of_set, bool plus_one, float absent,
                    std::size_t from, std::size_t n, float* to) const;

 private:
  static constexpr std::size_t kNodes = 896;

  const LinePlace& place_;
  std::size_t first_row_, rows_;
};

// What both passes do with the lines of some rows.
template <class T>
class LinePass {
 public:
  // dy: null in a forward pass. to: y or dx. prefetch: x and dy.
  LinePass(const Kernels& kernels, const LinesOfRows& lines, const Matrix<const void*>& x,
           const Matrix<const void*>* dy, const Matrix<void*>& to, bool prefetch, bool stream)
      : kernels_(kernels),
        lines_(lines),
        x_(lines.access<const T>(x)),
        dy_(dy != nullptr ? lines.access<const T>(*dy) : LinesOfRows::Access<const T>{}),
        to_(lines.access<T>(to)),
        prefetch_(prefetch),
        stream_(stream),
        next_rows_(prefetch && dy == nullptr ? lines.next_rows<T>() : 0) {}

  // Finds mean, rstd and the scalars of y that are those of rows. Returns false if a row is out of range.
  bool find_statistics(Kind kind, double eps);

  // What kernels get for columns [col, col + cols) of n lines, or for as many in each of some blocks of one line.
  Lines<T> at(std::size_t line, std::size_t n, std::size_t col, std::size_t cols, std::size_t blocks = 1) const {
    const std::size_t lines = lines_.place().lines, row = lines == 1 ? line : line / lines, of_row = line - row * lines;
    Lines<T> c{};
    c.x = {x_.at(row, of_row, col), blocks == 1 ? x_.step : kBlockBytes};
    c.dy = {dy_.at(row, of_row, col), blocks == 1 ? dy_.step : kBlockBytes};
    c.to = {to_.at(row, of_row, col), to_.step};
    c.positions = cols;
    c.lines = n * blocks;
    c.stream = stream_;
    c.by_position = lines_.place().by_position;
    return c;
  }
  // The prefetch distance of sums. along: that along vectors.
  std::size_t ahead_of_sums(std::size_t along) const {
    if (!prefetch_ || !lines_.place().across) return prefetch_ ? along : 0;
    return next_rows_ != 0 ? 0 : static_cast<std::size_t>(x_.step) * kPositionsAhead;
  }

  // Writes y or dx. The first `count` scalars are those of rows; load(from, n) returns the others: those of lines, or
  // of positions. Returns false if the kernel does.
  template <class Load>
  bool write(bool (*kernel)(const Lines<T>&), std::size_t count, const Load& load) const {
    const bool by_position = lines_.place().by_position;
    float strips[4][kStripLines];
    std::size_t ahead = next_rows_;
    if (ahead == 0 && prefetch_ && lines_.place().across) {
      ahead = static_cast<std::size_t>(x_.step) * kPositionsAheadOfStep;
    }
    return lines_.for_strips<T>([&](std::size_t from, std::size_t n) {
      for (std::size_t k = 0; k < count; ++k) lines_.spread(scalars[k], from, n, strips[k]);
      const auto write_columns = [&](std::size_t col, std::size_t cols) {
        const std::array<const float*, 2> others = by_position ? load(col, cols) : load(from, n);
        bool usual = true;
        for (std::size_t i = 0, even; i < n; i += even) {
          even = lines_.even(from + i, n - i);
          Lines<T> some = at(from + i, even, col, cols);
          for (std::size_t k = 0; k < 5; ++k) some.scalars[k] = (k < count ? strips[k] : others[k - count]) + i;
          some.ahead = ahead;
          usual = kernel(some) && usual;
        }
        return usual;
      };
      return by_position ? lines_.for_positions(write_columns) : write_columns(0, lines_.place().positions);
    });
  }

  double mean[LinesOfRows::kMostRows], rstd[LinesOfRows::kMostRows];
  float scalars[4][LinesOfRows::kMostRows];

 private:
  static constexpr std::ptrdiff_t kBlockBytes = kBlock * sizeof(T);

  void find_moments(const Lines<T>& lines, Kind kind, double* lanes, LineMoments* to) const;
  void second_pass(const Lines<T>& lines, std::size_t first, std::size_t n, double* lanes, RowGroup<float>& g) const;

  const Kernels& kernels_;
  const LinesOfRows& lines_;
  LinesOfRows::Access<const T> x_, dy_;
  LinesOfRows::Access<T> to_;
  bool prefetch_, stream_;
  std::size_t next_rows_;  // see LinesOfRows; gradients do not gain
};

// Writes y and statistics of some rows. Returns false, and writes nothing, if one of them is out of range or a
// parameter is not finite. finite_set: the set of which positions are known to have finite parameters, or none.
template <class T>
bool normalise_lines(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, const LinesOfRows& lines,
                     std::size_t& finite_set);
// Writes dx and sums, slot_of_row() numbers for each row of the problem, unless this is null. Returns false if the rows
// need other steps: one of them is rare, or some dx may not be finite.
template <class T>
bool gradients_of_lines(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                        const LinesOfRows& lines, double* sums);

// Runs rows [first, end), which are numbered by LinePlace::row(): run(lines) takes some of one sample. Where it returns
// false, rows(i, n) gets them in the order of the problem.
template <class T, class Run, class Rows>
void for_lines(const LinePlace& place, std::size_t first, std::size_t end, const Run& run, const Rows& rows) {
  const std::size_t chunk = LinesOfRows::chunk<T>(place);
  for (std::size_t i = first, n; i < end; i += n) {
    n = std::min(end - i, place.groups - i % place.groups);
    if (n >= chunk + place.unit) n = chunk;
    if (run(LinesOfRows(place, i, n))) continue;
    const std::size_t together = place.step == 1 ? n : 1;
    for (std::size_t k = i; k < i + n; k += together) rows(place.row(k), together);
  }
}

}  // namespace evenorm::internal
