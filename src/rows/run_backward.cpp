// The backward half of rows.hpp: rows, row blocks and their tree, or two steps, by BackwardRows with scratch.
#include <algorithm>

#include "gradient_plan.hpp"
#include "rows/backward.hpp"
#include "rows/fp_environment.hpp"
#include "rows/rows.hpp"
#include "rows/types.hpp"

namespace evenorm::internal {
namespace {

template <class T>
[[gnu::noinline]] void run_rows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                std::size_t first, std::size_t count) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T>(kernels, p, plan, scratch, {0, p.cols}).run(first, count, {});
}

template <class T>
[[gnu::noinline]] void run_blocks(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                  std::size_t first, std::size_t count, double* slots) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, {0, p.cols});
  const std::size_t blocks = row_blocks(p), slot = column_numbers(p) * p.cols;
  double* nodes[kMaxNodes];
  ColumnTree<Arithmetic<T>> tree({&kernels, nodes, 2 * p.cols});
  for (std::size_t block = first; block < first + count; ++block) {
    const std::size_t row = share_start(p.rows, blocks, block), end = share_start(p.rows, blocks, block + 1);
    double* sums = slots + tree.depth() * slot;
    rows.run(row, end - row, {sums, 0, p.cols});
    tree.push(sums);
  }
  tree.finish();
}

template <class A>
void finish_blocks(const Kernels& kernels, const GradientProblem& p, double* sums, std::size_t runs,
                   std::size_t distance) {
  double* nodes[kMaxNodes];
  ColumnTree<A> tree({&kernels, nodes, 2 * p.cols});
  tree.push(sums);
  for (std::size_t i = 1; i < runs; ++i) tree.push(sums + i * distance);
  finish_columns<A>(kernels, p, {tree.finish(), 0, p.cols}, p.cols);
}

template <class T>
[[gnu::noinline]] void look_at_range(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                     std::size_t first, std::size_t count, GradientScalars* scalars) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, {0, p.cols});
  for (std::size_t row = first, n; row < first + count; row += n) {
    n = std::min(kRowsAtOnce, first + count - row);
    rows.look(row, n, {}, scalars + row);
  }
}

template <class T>
[[gnu::noinline]] void run_strips(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                  const GradientScalars* scalars, std::size_t first, std::size_t count) {
  using A = Arithmetic<T>;
  ScratchMemory<kGradientScratchBytes> scratch;
  auto* values = scratch.at<double>(plan.scratch.strip_sums);
  BackwardRows<T> rows(kernels, p, plan, scratch, {first, first + count});
  for (std::size_t col = first, n; col < first + count; col += n) {
    n = std::min(kGradientPiece<A>, first + count - col);
    const ColumnSums sums{values, col, kGradientPiece<A>};
    rows.run_strip(scalars, col, n, sums);
    finish_columns<A>(kernels, p, sums, n);
  }
}

template <class T>
[[gnu::noinline]] void sum_runs(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                const Cuts& cuts, std::size_t first, std::size_t count, double* message) {
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, {0, p.cols});
  const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kWide);
  for (std::size_t row = first, n; row < first + count; row += n) {
    n = std::min(kRowsAtOnce, first + count - row);
    std::fill_n(message + row * numbers, n * numbers, 0.0);
    std::size_t place = row * numbers;
    for (const Cuts::Run& run : cuts.runs_of(cuts.rank())) {
      GradientSums sums[kRowsAtOnce];
      const std::size_t col = run.first * kBlock;
      rows.sum_run(row, n, col, std::min(run.blocks * kBlock, p.cols - col), sums);
      for (std::size_t r = 0; r < n; ++r) visit_sums(Writer(message + place + r * numbers), p.kind, kWide, sums[r]);
      place += numbers_of_run(Pass::backward, p.kind, kWide);
    }
  }
}

template <class T>
[[gnu::noinline]] void finish_rows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                   const Cuts& cuts, const Messages& messages, std::size_t first, std::size_t count,
                                   GradientScalars* scalars) {
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, plan, scratch, {0, p.cols});
  const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kWide);
  GradientSums nodes[kMaxNodes];
  GradientSumsTree<Arithmetic<T>> tree({nodes});
  for (std::size_t row = first; row < first + count; ++row) {
    tree.clear();
    for_runs(cuts, [&](std::size_t process, const Cuts::Run& run, std::size_t, std::size_t i) {
      const double* from = messages.of(process, row, numbers);
      GradientSums part{};
      visit_sums(Reader(from + i * numbers_of_run(Pass::backward, p.kind, kWide)), p.kind, kWide, part);
      tree.push(part, run.weight);
    });
    scalars[row] = rows.finish_sums(row, tree.finish());
  }
}

}  // namespace

void sums_of_shards(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Cuts& cuts,
                    std::size_t first, std::size_t count, double* message) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { sum_runs<T>(kernels, p, plan, cuts, first, count, message); });
}

void finish_shards(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Cuts& cuts,
                   const Messages& messages, std::size_t first, std::size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p),
            [&]<class T>() { finish_rows<T>(kernels, p, plan, cuts, messages, first, count, scalars); });
}

void run_backward(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                  std::size_t count) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { run_rows<T>(kernels, p, plan, first, count); });
}

void run_row_blocks(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                    std::size_t count, double* slots) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { run_blocks<T>(kernels, p, plan, first, count, slots); });
}

void finish_row_blocks(const Kernels& kernels, const GradientProblem& p, double* sums, std::size_t runs,
                       std::size_t distance) noexcept {
  const FpEnvironment environment;
  arithmetic_type(p) == DType::f64 ? finish_blocks<double>(kernels, p, sums, runs, distance)
                                   : finish_blocks<float>(kernels, p, sums, runs, distance);
}

void look_at_rows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                  std::size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { look_at_range<T>(kernels, p, plan, first, count, scalars); });
}

void run_columns(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                 const GradientScalars* scalars, std::size_t first, std::size_t count) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { run_strips<T>(kernels, p, plan, scalars, first, count); });
}

}  // namespace evenorm::internal
