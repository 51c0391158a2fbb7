// The forward pass of rows by lines, which lie along vectors or across them: see plan/lines.hpp. Lines go through the
// kernels in place: some are summed at once, and joined row by row; then all lines of some rows are normalised.
#pragma once

#include "plan/forward_plan.hpp"
#include "rows/line_trees.hpp"
#include "rows/statistics.hpp"

namespace evenorm::internal {

// The rows that run at once from row `first` on, in the order of LinePlace::row(): at most `chunk`, of one sample.
inline std::size_t chunk_at(const LinePlace& place, std::size_t chunk, std::size_t first, std::size_t end) {
  const std::size_t n = std::min(end - first, place.groups - first % place.groups);
  return n >= chunk + place.unit ? chunk : n;
}
// run(first, end) runs chunks and returns the place of the first one that it cannot run, or `end`. That chunk's rows
// are passed to rows(i, n), in the order of the problem.
template <class Run, class Rows>
void for_chunks(const LinePlace& place, std::size_t chunk, std::size_t first, std::size_t end, const Run& run,
                const Rows& rows) {
  for (std::size_t i = run(first, end), n; i < end; i = run(i + n, end)) {
    n = chunk_at(place, chunk, i, end);
    const std::size_t together = place.step == 1 ? n : 1;
    for (std::size_t k = i; k < i + n; k += together) rows(place.row(k), together);
  }
}

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
    if (!place.across) return std::clamp<std::size_t>(kChunkBytes / row, 1, kMaxGroup);
    const bool are_near = place.lines == 1 && place.unit * row <= kMostAhead;
    const std::size_t most = are_near ? kChunkBytesOfRows / row : kChunkLines / place.lines;
    const std::size_t rows = std::clamp<std::size_t>(most, 1, kMostRows - kLine / 2);
    return std::max(rows / place.unit, std::size_t{1}) * place.unit;
  }

  const LinePlace& place() const { return place_; }
  std::size_t rows() const { return rows_; }
  std::size_t count() const { return rows_ * place_.lines; }
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
  std::size_t row_of(std::size_t line) const { return row(line / place_.lines); }
  std::size_t column_of(std::size_t line) const { return line % place_.lines * place_.positions; }

  // Where the elements of these lines are in a tensor of elements U.
  template <class U>
  struct Access {
    U* at(std::size_t line, std::size_t col = 0) const {
      const std::size_t row = line / lines;
      return EvenRows<U>{EvenRows<U>{EvenRows<U>{first, of_row}.at(row), of_line}.at(line - row * lines), of_col}.at(
          col);
    }
    // The bytes from a line to the next along vectors, from a position to the next across them.
    std::ptrdiff_t step() const { return across ? of_col : lines == 1 ? of_row : of_line; }

    U* first;
    std::ptrdiff_t of_row, of_line, of_col;
    std::size_t lines;
    bool across;
  };
  template <class U, class Pointer>
  Access<U> access(const Matrix<Pointer>& m) const {
    if (m.data == nullptr) return {};
    char* data = static_cast<char*>(const_cast<void*>(static_cast<const void*>(m.data)));
    const std::ptrdiff_t first = m.rows.offset(first_row_);
    return {reinterpret_cast<U*>(data + first),
            place_.groups > 1 ? m.rows.offset(first_row_ + (rows_ > 1 ? place_.step : 0)) - first : 0,
            place_.lines > 1 ? m.cols.offset(place_.positions) : 0,
            place_.across ? m.cols.inner().stride : static_cast<std::ptrdiff_t>(sizeof(U)),
            place_.lines,
            place_.across};
  }
  // How many of the next lines, at most n, are at this distance.
  std::size_t even(std::size_t line, std::size_t n) const {
    return std::min(n, (place_.follows ? count() : (line / place_.lines + 1) * place_.lines) - line);
  }
  // How many lines are summed at once, at most `most`: along vectors as many as a group has blocks. Across vectors,
  // which hold at most `unit` lines, these are equal parts, of which the last ones may overlap.
  std::size_t at_once(std::size_t most, std::size_t unit) const {
    if (!place_.across) return place_.positions <= kBlock ? kMaxGroup : 1;
    most = most / unit * unit;
    const std::size_t parts = (count() + most - 1) / most, each = (count() + parts - 1) / parts;
    return std::min((each + unit - 1) / unit, count() / unit) * unit;
  }
  // Calls work(line, n, first) for all lines, n at once, of which those from number `first` on are new.
  template <class Work>
  void for_parts(std::size_t width, const Work& work) const {
    for (std::size_t from = 0, n; from < count(); from += n) {
      n = place_.across ? std::min(width, count() - from) : even(from, width);
      place_.across ? work(std::min(from, count() - width), width, from - std::min(from, count() - width))
                    : work(from, n, 0);
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
  // A parameter of lines [from, from + n), or of such positions, or `absent`: in place, or at `to`.
  const float* load(const Kernels& kernels, const SetVector& v, std::size_t rows_of_set, bool plus_one, float absent,
                    std::size_t from, std::size_t n, float* to) const;

 private:
  const LinePlace& place_;
  std::size_t first_row_, rows_;
};

// The statistics of these rows.
template <class T>
class LineStatistics {
 public:
  LineStatistics(const Kernels& kernels, Kind kind, double eps, const Matrix<const void*>& x, const LinePlace& place,
                 bool prefetch)
      : kernels_(kernels),
        centred_(kind == Kind::layer),
        eps_(eps),
        matrix_(x),
        place_(place),
        prefetch_(prefetch),
        row_(place.positions) {}

  // Returns false if a row is out of range.
  bool find(const LinesOfRows& lines);

  double mean[LinesOfRows::kMostRows], rstd[LinesOfRows::kMostRows];
  float centre[LinesOfRows::kMostRows], offset[LinesOfRows::kMostRows], rounded_rstd[LinesOfRows::kMostRows];
  // What is needed once the statistics are found shares the memory of lanes.
  union {
    alignas(64) double lanes[2 * kLanes * kLinesAtOnce];
    float strips[5][kStripLines];
  };

 private:
  template <class Use>
  void sum_blocks(std::size_t line, std::size_t n, std::size_t col, std::size_t cols, std::size_t blocks,
                  std::size_t ahead, const Use& use);
  void second_pass(RowGroup<float>& g, std::size_t line, std::size_t n, std::size_t col, std::size_t cols,
                   std::size_t blocks);
  bool finish_rows(RowGroup<float>& g, std::size_t first, std::size_t rows);

  const Kernels& kernels_;
  bool centred_;
  double eps_;
  const Matrix<const void*>& matrix_;
  const LinePlace& place_;
  bool prefetch_;
  LinesOfRows::Access<const T> x_{};
  std::size_t width_ = 1;
  LinesTree<MeanAndSquares> tree_;
  RowOfLines<MeanAndSquares> row_;
};

template <class T>
class LineRows {
 public:
  LineRows(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, const LinePlace& place)
      : kernels_(kernels),
        p_(p),
        plan_(plan),
        place_(place),
        statistics_(kernels, p.kind, p.eps, p.x, place, plan.cache.prefetch_x) {}

  // Returns false, and writes no y, if one of the rows is out of range, or a parameter is not finite.
  bool run(const LinesOfRows& lines);

 private:
  bool has_finite_parameters(const LinesOfRows& lines);
  void load_scalars(std::size_t from, std::size_t n);
  void load_parameters(const LinesOfRows& lines, std::size_t from, std::size_t n);
  void normalise(const LinesOfRows& lines, std::size_t from, std::size_t n);

  const Kernels& kernels_;
  const Problem& p_;
  const ForwardPlan& plan_;
  const LinePlace& place_;
  LineStatistics<T> statistics_;
  std::size_t set_ = ~std::size_t{0};  // by position: the set whose parameters are finite
  const float *gamma_ = nullptr, *beta_ = nullptr;
};

}  // namespace evenorm::internal
