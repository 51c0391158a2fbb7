// The backward half of rows.hpp: rows, row blocks and their tree, or two steps, by BackwardRows with scratch.
#include <algorithm>

#include "plan/gradient_plan.hpp"
#include "problem/fp_environment.hpp"
#include "problem/sets.hpp"
#include "rows/backward.hpp"
#include "rows/line_rows.hpp"
#include "rows/rows.hpp"
#include "rows/stream.hpp"
#include "rows/types.hpp"

namespace evenorm::internal {
namespace {

template <class T>
[[gnu::noinline]] void run_rows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                std::size_t set, std::size_t first, std::size_t count, double* sums) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, set, {0, p.cols});
  rows.set_row_sums(sums);
  rows.run(first, count, {});
}

void run_by_sets(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                 std::size_t count, double* sums) {
  for_sets(p, first, count, [&](std::size_t set, std::size_t row, std::size_t rows) {
    with_type(gradient_type(p), [&]<class T>() { run_rows<T>(kernels, p, plan, set, row, rows, sums); });
  });
}

[[gnu::noinline]] void run_lines(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                 std::size_t first, std::size_t count, double* sums) {
  with_type(p.x.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      for_lines<T>(
          plan.line_place, first, first + count,
          [&](const LinesOfRows& lines) { return gradients_of_lines<T>(kernels, p, plan, lines, sums); },
          [&](std::size_t row, std::size_t rows) { run_by_sets(kernels, p, plan, row, rows, sums); });
    }
  });
  if (plan.cache.stream_dx) flush_stream();
}

template <class T>
[[gnu::noinline]] void run_blocks(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                  std::size_t first, std::size_t count, double* slots) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, 0, {0, p.cols});
  const std::size_t blocks = row_blocks(p), slot = 2 * p.cols;
  double* const chains = slots + count * slot;
  double* nodes[kMaxNodes];
  ColumnTree tree({&kernels, nodes, 2 * p.cols});
  for (std::size_t block = first; block < first + count; ++block) {
    const std::size_t row = share_start(p.rows, blocks, block), end = share_start(p.rows, blocks, block + 1);
    double* sums = slots + tree.depth() * slot;
    rows.run(row, end - row, {sums, 0, p.cols, chains});
    tree.push(sums);
  }
  tree.finish();
}

void finish_blocks(const Kernels& kernels, const GradientProblem& p, std::size_t set, double* sums, std::size_t shares,
                   std::size_t distance) {
  const std::size_t columns = p.cols / summed_run(p);
  double* nodes[kMaxNodes];
  ColumnTree tree({&kernels, nodes, 2 * columns});
  tree.push(sums);
  for (std::size_t i = 1; i < shares; ++i) tree.push(sums + i * distance);
  finish_columns(kernels, p, set, {tree.finish(), 0, columns}, columns);
}

template <class T>
[[gnu::noinline]] void find_range_scalars(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                          std::size_t first, std::size_t count, GradientScalars* scalars) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, 0, {0, p.cols});
  rows.find_scalars(first, count, scalars + first);
}

template <class T>
[[gnu::noinline]] void run_column_pieces(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                         const GradientScalars* scalars, std::size_t first, std::size_t count) {
  ScratchMemory<kGradientScratchBytes> scratch;
  auto* values = scratch.at<double>(plan.scratch.column_sums);
  const std::size_t piece = plan.scratch.piece_cols;
  BackwardRows<T> rows(kernels, p, plan, scratch, 0, {first, first + count});
  for (std::size_t col = first, n; col < first + count; col += n) {
    n = std::min(piece, first + count - col);
    const ColumnSums sums{values, col, piece, values + 2 * piece};
    rows.run_column_piece(scalars, col, n, sums);
    finish_columns(kernels, p, 0, sums, n);
  }
}

}  // namespace

void run_backward(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                  std::size_t count, double* sums) noexcept {
  const FpEnvironment environment;
  if (plan.line_place.lines != 0) return run_lines(kernels, p, plan, first, count, sums);
  run_by_sets(kernels, p, plan, first, count, sums);
}

void run_row_blocks(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                    std::size_t count, double* slots) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { run_blocks<T>(kernels, p, plan, first, count, slots); });
}

void finish_row_blocks(const Kernels& kernels, const GradientProblem& p, std::size_t set, double* sums,
                       std::size_t shares, std::size_t distance) noexcept {
  const FpEnvironment environment;
  finish_blocks(kernels, p, set, sums, shares, distance);
}

void find_row_scalars(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                      std::size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { find_range_scalars<T>(kernels, p, plan, first, count, scalars); });
}

void run_columns(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                 const GradientScalars* scalars, std::size_t first, std::size_t count) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { run_column_pieces<T>(kernels, p, plan, scalars, first, count); });
}

}  // namespace evenorm::internal
