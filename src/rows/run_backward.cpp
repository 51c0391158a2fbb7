// The backward half of rows.hpp: rows, row blocks and their tree, or two steps, by BackwardRows with scratch.
#include <algorithm>

#include "plan/gradient_plan.hpp"
#include "problem/fp_environment.hpp"
#include "rows/backward.hpp"
#include "rows/line_gradients.hpp"
#include "rows/rows.hpp"
#include "rows/stream.hpp"
#include "rows/types.hpp"

namespace evenorm::internal {
namespace {

void run_by_sets(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                 std::size_t count, double* sums) {
  for_sets(p, first, count, [&](std::size_t set, std::size_t row, std::size_t rows) {
    with_type(gradient_type(p), [&]<class T>() {
      BackwardRows<T> work(kernels, p, plan, set, {0, p.cols});
      work.set_row_sums(sums);
      work.run({row, row + rows}, {0, p.cols}, p.scalars, {});
    });
  });
}

[[gnu::noinline]] void run_lines(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                 std::size_t first, std::size_t count, double* sums) {
  with_type(p.x.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      for_lines<T>(
          *plan.line_place, first, first + count,
          [&](const LinesOfRows& lines) { return gradients_of_lines<T>(kernels, p, plan, lines, sums); },
          [&](std::size_t row, std::size_t rows) { run_by_sets(kernels, p, plan, row, rows, sums); });
    }
  });
  if (plan.cache.stream_dx) flush_stream();
}

}  // namespace

void run_backward(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                  std::size_t count, double* sums) noexcept {
  const FpEnvironment environment;
  if (plan.line_place) return run_lines(kernels, p, plan, first, count, sums);
  run_by_sets(kernels, p, plan, first, count, sums);
}

void run_row_blocks(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                    std::size_t count, double* slots) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() {
    BackwardRows<T> rows(kernels, p, plan, 0, {0, p.cols});
    const std::size_t blocks = row_blocks(p), slot = 2 * p.cols;
    double* nodes[kMaxNodes];
    ColumnTree tree({&kernels, nodes, slot});
    for (std::size_t block = first; block < first + count; ++block) {
      const std::size_t row = share_start(p.rows, blocks, block), end = share_start(p.rows, blocks, block + 1);
      double* sums = slots + tree.depth() * slot;
      rows.run({row, end}, {0, p.cols}, p.scalars, {sums, 0, p.cols, slots + count * slot});
      tree.push(sums);
    }
    tree.finish();
  });
}

void finish_row_blocks(const Kernels& kernels, const GradientProblem& p, std::size_t set, double* sums,
                       std::size_t shares, std::size_t distance) noexcept {
  const FpEnvironment environment;
  const std::size_t columns = p.cols / summed_run(p);
  double* nodes[kMaxNodes];
  ColumnTree tree({&kernels, nodes, 2 * columns});
  for (std::size_t i = 0; i < shares; ++i) tree.push(sums + i * distance);
  finish_columns(kernels, p, set, {tree.finish(), 0, columns}, columns);
}

void find_row_scalars(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                      std::size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() {
    BackwardRows<T>(kernels, p, plan, 0, {0, p.cols}).find_scalars(first, count, scalars + first);
  });
}

void run_columns(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                 const GradientScalars* scalars, std::size_t first, std::size_t count) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() {
    constexpr std::size_t kPiece = kColumnPiece<Arithmetic<T>>;
    double values[2 * kPiece];
    Arithmetic<T> chains[2 * kPiece];
    BackwardRows<T> rows(kernels, p, plan, 0, {first, first + count});
    for (std::size_t col = first, n; col < first + count; col += n) {
      n = std::min(kPiece, first + count - col);
      const ColumnSums sums{values, col, kPiece, chains};
      rows.run({0, p.rows}, {col, col + n}, scalars, sums);
      finish_columns(kernels, p, 0, sums, n);
    }
  });
}

}  // namespace evenorm::internal
