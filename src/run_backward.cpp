// Shares a backward pass out: row blocks where something is summed over rows, rows where not; and, where there is but
// one row block, first rows, then columns. What the blocks are depends on the problem alone, so none of it affects a
// bit.
#include "run_backward.hpp"

#include <algorithm>
#include <bit>
#include <memory>

#include "kernels/gradient_functions.hpp"
#include "parallel.hpp"
#include "scratch_plan.hpp"
#include "sharing.hpp"
#include "validate.hpp"

namespace evenorm::internal {
namespace {

constexpr std::size_t kTaskElements = 16384;    // below this, handing a task over costs more than it saves
constexpr std::size_t kMostSums = 128u << 10u;  // bytes of one row block's sums, where x is small
constexpr std::size_t kLine = 64;
constexpr std::size_t kStripCols = 512;     // columns of the second step that stay together, a part of a block
constexpr std::size_t kTwoStepCols = 1024;  // of rows below this a second look costs what threads gain

bool sums_over_rows(const GradientProblem& p) { return p.dgamma.data != nullptr || p.dbeta.data != nullptr; }

std::size_t sums_bytes(const GradientProblem& p) { return column_numbers(p) * p.cols * sizeof(double); }

std::size_t scalars_bytes(const GradientProblem& p) { return p.rows * sizeof(GradientScalars); }

// Would the sums of all columns be more than one keeps?
bool has_long_rows(const GradientProblem& p) {
  const std::size_t x_bytes = p.rows * p.cols * bytes_of(p.x.dtype);
  return row_blocks(p) == 1 && sums_bytes(p) + kLine > std::max(kMostSums, x_bytes / 8);
}

// What scratch holds, at a multiple of a cache line.
template <class T>
T* aligned(std::byte* scratch) {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch);
  return reinterpret_cast<T*>((address + kLine - 1) / kLine * kLine);
}

std::size_t tasks_of(const GradientProblem& p, const Executor& executor) {
  const std::size_t threads = usable_threads(executor);
  return threads <= 1 ? 1
                      : std::max(std::size_t{1}, std::min(p.rows * p.cols / kTaskElements, threads * kTasksPerThread));
}

// One row block is one thread's, unless rows and columns are looked at by turns.
bool pays_in_two_steps(const GradientProblem& p, const Executor& executor) {
  return row_blocks(p) == 1 && p.cols >= kTwoStepCols && tasks_of(p, executor) > 1 && scalars_bytes(p) <= sums_bytes(p);
}

// share(first, count) for `shares` even shares of `units`.
template <class Share>
void share_out(const Executor& executor, std::size_t units, std::size_t shares, const Share& share) {
  if (units == 0) return;
  shares = std::min(shares, units);
  if (shares <= 1) return share(std::size_t{0}, units);
  parallel_for(executor, shares, [&](std::size_t i) {
    const std::size_t first = share_start(units, shares, i);
    share(first, share_start(units, shares, i + 1) - first);
  });
}

void run_blocks(const GradientProblem& p, const GradientFunctions& functions, double* slots, const Executor& executor) {
  const std::size_t blocks = row_blocks(p), slot = column_numbers(p) * p.cols;
  const std::size_t run = std::bit_ceil((blocks + tasks_of(p, executor) - 1) / tasks_of(p, executor));
  const std::size_t runs = (blocks + run - 1) / run;
  const auto one_run = [&](std::size_t i) {
    functions.blocks(p, i * run, std::min(run, blocks - i * run), slots + i * run * slot);
  };
  if (runs == 1) {
    one_run(0);
  } else {
    parallel_for(executor, runs, one_run);
  }
  functions.finish(p, slots, runs, run * slot);
}

void run_in_two_steps(const GradientProblem& p, const GradientFunctions& functions, GradientScalars* scalars,
                      const Executor& executor) {
  const std::size_t tasks = tasks_of(p, executor);
  share_out(executor, p.rows, tasks,
            [&](std::size_t first, std::size_t count) { functions.look(p, first, count, scalars); });
  const std::size_t strips = (p.cols + kStripCols - 1) / kStripCols;
  share_out(executor, strips, tasks, [&](std::size_t first, std::size_t count) {
    const std::size_t col = first * kStripCols;
    functions.strip(p, scalars, col, std::min(count * kStripCols, p.cols - col));
  });
}

}  // namespace

std::size_t scratch_bytes(const GradientProblem& p) noexcept {
  if (!sums_over_rows(p)) return 0;
  return (has_long_rows(p) ? scalars_bytes(p) : row_blocks(p) * sums_bytes(p)) + kLine;
}

void run_problem(GradientProblem& p, Target target, std::byte* scratch, const Executor& executor) noexcept {
  p.stream_dx = p.dx.data != nullptr && p.rows * p.cols * bytes_of(p.dx.dtype) >= kStreamBytes;
  p.fetch = p.rows * p.cols * bytes_of(p.x.dtype) >= kFetchBytes;
  const GradientFunctions& functions = gradient_functions(target, gradient_type(p));
  if (!sums_over_rows(p)) {
    share_out(executor, p.rows, tasks_of(p, executor),
              [&](std::size_t first, std::size_t count) { functions.rows(p, first, count); });
  } else if (has_long_rows(p) || pays_in_two_steps(p, executor)) {
    run_in_two_steps(p, functions, aligned<GradientScalars>(scratch), executor);
  } else {
    run_blocks(p, functions, aligned<double>(scratch), executor);
  }
}

void run_on(Target target, const Backward& backward, const Executor& executor) {
  GradientProblem problem = validate(backward);
  validate_buffers(problem, {});
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes(problem));
  run_problem(problem, target, scratch.get(), executor);
}

}  // namespace evenorm::internal
