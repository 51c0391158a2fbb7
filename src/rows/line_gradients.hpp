// The backward pass of rows by lines (plan/lines.hpp), in place: some lines are summed at once, and joined row by row;
// then all lines of some rows get their dx.
#pragma once

#include "plan/gradient_plan.hpp"
#include "rows/line_rows.hpp"

namespace evenorm::internal {

struct MeanAndRstd {
  double mean, rstd;
};
// The given statistics of some rows, or those of the forward pass. Returns false if one of them is rare.
template <class T>
bool find_statistics(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                     const LinesOfRows& lines, MeanAndRstd* to);

template <class T>
class LineGradients {
 public:
  // sums: null, or slot_of_row() numbers for each row of the problem.
  LineGradients(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const LinesOfRows& lines,
                const MeanAndRstd* statistics, double* sums);

  // Returns false if the rows need other steps: one of them is rare, or some dx may not be finite.
  bool run();

 private:
  struct Row {
    double rstd, rest;  // rest: what the centre leaves of the mean
    float centre, rounded_rstd, k2, a;
  };

  bool sum();
  bool sum_blocks(std::size_t line, std::size_t n, std::size_t col, std::size_t cols, std::size_t blocks,
                  const float* centres, GradientNode* to);
  bool is_zero(std::size_t line, std::size_t col, std::size_t cols) const;
  void store_line(const Row& row, const GradientNode& sums, double* to) const;
  bool finish_row(Row& row, const GradientNode& sums) const;
  bool write_dx(std::size_t from, std::size_t n);
  GradientLines<T> at(std::size_t line, std::size_t col, std::size_t n) const;
  bool is_centred() const { return p_.kind == Kind::layer; }

  const Kernels& kernels_;
  const GradientProblem& p_;
  const GradientPlan& plan_;
  const LinesOfRows& lines_;
  LinesOfRows::Access<const T> x_, dy_;
  LinesOfRows::Access<T> dx_;
  double* row_sums_;
  std::size_t width_;
  LinesTree<GradientNode> tree_;
  RowOfLines<GradientNode> row_;
  Row rows_[LinesOfRows::kMostRows];
  union {
    alignas(64) double lanes_[kLanes * kLinesAtOnce];
    float scalars_[5][kStripLines];  // of lines: centre, rstd, gamma, k2, a
  };
};

}  // namespace evenorm::internal
