// How the forward and backward passes are divided into tasks.
#include "run/schedule.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "plan/scratch_plan.hpp"
#include "problem/shapes.hpp"
#include "problem/validate.hpp"
#include "rows/passes.hpp"
#include "run/parallel.hpp"

namespace evenorm::internal {
namespace {

// --- the forward pass: tasks are rows if there are enough of them, else blocks of one row after the other

// The parts of a long row: equal subtrees of its runs, or of the blocks of its only run, except that the last one may
// be smaller.
struct RowParts {
  std::size_t cols, run, unit, part, count;

  explicit RowParts(const Partition& row)
      : cols(row.cols),
        run(row.run),
        unit(row.runs() == 1 ? kBlock : run),
        part(std::bit_ceil(std::max({kForwardTask / unit, (units() + kMaxParts - 1) / kMaxParts, std::size_t{1}}))),
        count((units() + part - 1) / part) {}
  std::size_t units() const { return (cols + unit - 1) / unit; }
  std::size_t first_col(std::size_t i) const { return i * part * unit; }
  Partition of(std::size_t i) const {
    const std::size_t n = std::min(part * unit, cols - first_col(i));
    return {n, std::min(run, n)};
  }
};

// Computes the moments of all parts in parallel and joins them. Not inlined, so that its array has left the stack when
// the row is normalised.
[[gnu::noinline]] RowScalars join_row_by_parts(const Problem& p, const Kernels& kernels, const Executor& executor,
                                               std::size_t row, const RowParts& parts) {
  std::array<MomentNode, kMaxParts> moments;
  parallel_for(executor, parts.count,
               [&](std::size_t i) { moments[i] = part_moments(kernels, p, row, parts.first_col(i), parts.of(i)); });
  return finish_row(p, row, moments.data(), parts.count);
}

// Not inlined, so that what it keeps is not on the stack of other passes.
[[gnu::noinline]] void run_row_by_parts(const Problem& p, const ForwardPlan& plan, const Kernels& kernels,
                                        const Executor& executor, std::size_t row) {
  const RowParts parts(partition(p));
  const RowScalars scalars = join_row_by_parts(p, kernels, executor, row, parts);
  if (scalars.out_of_range) {
    ForwardPlan by_rows = plan;
    by_rows.lines.reset();  // rows by lines are numbered in another way
    return run_forward(kernels, p, by_rows, row, 1);
  }
  parallel_for(executor, parts.count,
               [&](std::size_t i) { normalise_part(kernels, p, plan, row, scalars, parts.first_col(i), parts.of(i)); });
}

// --- the backward pass: tasks are rows if dx is the only output or rows have runs, else shares of the
// sets, or row blocks of one set after the other; if a set has only one row block, tasks are first rows, then columns

// The first multiple of a cache line in scratch.
template <class T>
T* aligned(std::byte* scratch) {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch);
  return reinterpret_cast<T*>((address + kCacheLine - 1) / kCacheLine * kCacheLine);
}

std::size_t tasks_of(const GradientProblem& p, std::size_t rows, const Executor& executor) {
  return count_tasks(executor, rows * p.cols, kBackwardTask);
}

void run_shares_of_blocks(const GradientProblem& p, const GradientPlan& plan, const Kernels& kernels, double* slots,
                          const Executor& executor) {
  const std::size_t blocks = row_blocks(p), slot = sums_bytes(p.cols, plan.chain_length) / sizeof(double);
  const std::size_t tasks = tasks_of(p, p.rows, executor);
  // Subtrees. Rather more shares than tasks than few unequal ones: 10 blocks by twos are six blocks' time on two
  // threads.
  const std::size_t share = tasks == 1 ? blocks : std::bit_floor(std::max(std::size_t{1}, blocks / tasks));
  const std::size_t shares = (blocks + share - 1) / share;
  parallel_for(executor, shares, [&](std::size_t i) {
    run_row_blocks(kernels, p, plan, i * share, std::min(share, blocks - i * share), slots + i * share * slot);
  });
  finish_row_blocks(kernels, p, 0, slots, shares, share * slot);
}

void run_in_two_steps(const GradientProblem& p, const GradientPlan& plan, const Kernels& kernels,
                      GradientScalars* scalars, const Executor& executor) {
  const std::size_t tasks = tasks_of(p, p.rows, executor);
  if (p.scalars == nullptr) {
    share_out(executor, p.rows, 1, tasks,
              [&](std::size_t first, std::size_t count) { find_row_scalars(kernels, p, plan, first, count, scalars); });
  }
  GradientProblem known = p;
  if (p.scalars == nullptr) known.scalars = scalars;
  const std::size_t pieces = (p.cols + kColumnPiece<float> - 1) / kColumnPiece<float>;
  share_out(executor, pieces, 1, tasks, [&](std::size_t first, std::size_t count) {
    const std::size_t col = first * kColumnPiece<float>;
    run_columns(kernels, known, plan, col, std::min(count * kColumnPiece<float>, p.cols - col));
  });
}

// dx, and each row's sums over runs of columns, if wanted. Those of the rows of a set are then joined.
void run_by_rows(const GradientProblem& p, const GradientPlan& plan, const Kernels& kernels, std::byte* scratch,
                 const Executor& executor) {
  const std::size_t rows = rows_of_set(p), slot = slot_of_row(p);
  double* const sums = plan.scratch_bytes != 0 ? aligned<double>(scratch) : nullptr;
  const std::size_t tasks = tasks_of(p, p.rows, executor);
  share_out(executor, p.rows, plan.unit, tasks,
            [&](std::size_t first, std::size_t count) { run_backward(kernels, p, plan, first, count, sums); });
  if (sums == nullptr) return;
  if (rows == 0) std::fill_n(sums, slot, 0.0);
  share_out(executor, p.sets, 1, tasks, [&](std::size_t first, std::size_t count) {
    for (std::size_t set = first; set < first + count; ++set) {
      finish_row_blocks(kernels, p, set, sums + set * rows * slot, std::max<std::size_t>(rows, 1), slot);
    }
  });
}

template <class Pointer>
void move_by(Pointer& data, std::ptrdiff_t bytes) {
  if (data != nullptr) data = const_cast<char*>(static_cast<const char*>(data)) + bytes;
}

// The problem of one set alone.
GradientProblem problem_of(const GradientProblem& p, std::size_t set) {
  GradientProblem one = p;
  one.sets = 1;
  one.rows = rows_of_set(p);
  const std::size_t row = set * one.rows;
  for (Matrix<const void*>* m : {&one.x, &one.dy, &one.dsum}) move_by(m->data, m->rows.offset(row));
  for (Vector<const void*>* v : {&one.mean, &one.rstd}) move_by(v->data, v->axes.offset(row));
  move_by(one.dx.data, one.dx.rows.offset(row));
  one.gamma.data = p.gamma.of_set(set);
  for (SetGradient* v : {&one.dgamma, &one.dbeta}) move_by(v->data, v->sets.offset(set));
  return one;
}

// Computes the gradients of one problem without sets, of which at least one is a sum over rows.
void run_set(const GradientProblem& p, const GradientPlan& plan, const Kernels& kernels, std::byte* scratch,
             const Executor& executor) {
  const bool in_two_steps =
      plan.route == GradientRoute::two_steps || (plan.may_take_two_steps && tasks_of(p, p.rows, executor) > 1);
  if (in_two_steps) {
    run_in_two_steps(p, plan, kernels, aligned<GradientScalars>(scratch), executor);
  } else {
    run_shares_of_blocks(p, plan, kernels, aligned<double>(scratch), executor);
  }
}

// The same for several sets: their shares are tasks if there are as many as one set would have.
void run_sets(const GradientProblem& p, const GradientPlan& plan, const Kernels& kernels, std::byte* scratch,
              const Executor& executor) {
  const std::size_t tasks = std::min(tasks_of(p, p.rows, executor), plan.sets_at_once);
  const bool alone = tasks >= tasks_of(p, rows_of_set(p), executor);  // whether one thread takes all of a set
  const std::size_t shares = alone ? tasks : 1;
  parallel_for(executor, shares, [&](std::size_t i) {
    for (std::size_t set = share_start(p.sets, shares, i); set < share_start(p.sets, shares, i + 1); ++set) {
      run_set(problem_of(p, set), plan, kernels, scratch + i * plan.set_bytes, alone ? Executor{} : executor);
    }
  });
}

// Not inlined, so that the problem that is moved into the pass has left the stack when it runs.
[[gnu::noinline]] ForwardPass validated_pass(const Forward& forward) {
  ForwardPass pass(validate(forward));
  validate_buffers(pass.problem);
  return pass;
}

}  // namespace

void run(const ForwardPass& pass, const Kernels& kernels, const Executor& executor) noexcept {
  const Problem& p = pass.problem;
  const ForwardPlan& plan = pass.plan;
  const std::size_t tasks = count_tasks(executor, p.rows * p.cols, kForwardTask);
  if (tasks > 1 && (!plan.lines || plan.unit == 1) && p.rows < usable_threads(executor) * 2 &&
      p.cols >= 2 * kForwardTask && p.scale.data == nullptr && p.moments == nullptr) {
    for (std::size_t row = 0; row < p.rows; ++row) run_row_by_parts(p, plan, kernels, executor, row);
    return;
  }
  share_out(executor, p.rows, plan.unit, tasks,
            [&](std::size_t first, std::size_t count) { run_forward(kernels, p, plan, first, count); });
}

void run(const GradientPass& pass, const Kernels& kernels, std::byte* scratch, const Executor& executor) noexcept {
  const GradientProblem& p = pass.problem;
  const GradientPlan& plan = pass.plan;
  if (plan.route == GradientRoute::rows) return run_by_rows(p, plan, kernels, scratch, executor);
  if (p.sets == 1) return run_set(p, plan, kernels, scratch, executor);
  run_sets(p, plan, kernels, scratch, executor);
}

void run_on(Target target, const Forward& forward, const Executor& executor) {
  run(validated_pass(forward), kernels_of(target), executor);
}

void run_on(Target target, const Backward& backward, const Executor& executor) {
  const GradientPass pass(validate(backward));
  validate_buffers(pass.problem);
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(pass.plan.scratch_bytes);
  run(pass, kernels_of(target), scratch.get(), executor);
}

}  // namespace evenorm::internal
