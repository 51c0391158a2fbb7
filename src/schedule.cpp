// First the forward pass, then the backward pass, each with what its shares are; then the ways in.
#include "schedule.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <string>
#include <utility>

#include "caches.hpp"
#include "looks.hpp"
#include "parallel.hpp"
#include "rows/rows.hpp"
#include "scratch_plan.hpp"
#include "shapes.hpp"
#include "validate.hpp"

namespace evenorm::internal {
namespace {

constexpr std::size_t kForwardTask = 32768;   // below this, handing a task over costs more than it saves
constexpr std::size_t kTileRows = 32;         // neighbours that one thread gathers: whole cache lines of 16 bits each
constexpr std::size_t kMaxParts = 512;        // of a long row: bounds the memory for their moments
constexpr std::size_t kBackwardTask = 16384;  // below this, handing a task over costs more than it saves
constexpr std::size_t kMostScratch = 256u << 10u;  // bytes, where x is small
constexpr std::size_t kLine = 64;
constexpr std::size_t kStripCols = 512;     // columns of the second step that stay together, a part of a block
constexpr std::size_t kTwoStepCols = 1024;  // of rows below this a second look costs what threads gain

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

// --- the forward pass: rows where there are enough of them, else the blocks of each row

void choose_cache_use(Problem& p) {
  const std::size_t elements = p.rows * p.cols;
  const auto streams = [&](const Matrix<void*>& to) {
    const bool in_place = to.data == p.x.data || to.data == p.residual.data;
    return !in_place && elements * bytes_of(to.dtype) >= streamed_from(caches());
  };
  p.stream_y = streams(p.y);
  p.stream_sum = streams(p.sum);
  p.fetch_x = elements * bytes_of(p.x.dtype) >= fetched_from(caches());
}

// How a long row is cut: into equal subtrees of its blocks, the last one smaller.
struct RowParts {
  std::size_t blocks, part, count;

  explicit RowParts(std::size_t cols)
      : blocks(blocks_of(cols)),
        part(std::bit_ceil(std::max(kForwardTask / kBlock, (blocks + kMaxParts - 1) / kMaxParts))),
        count((blocks + part - 1) / part) {}
  std::size_t length(std::size_t i) const { return std::min(part, blocks - i * part); }
};

// Moments of all parts at once, and their join. Not inlined: its array is gone from the stack when the row is mapped.
[[gnu::noinline]] RowScalars join_row_by_parts(const Problem& p, const Kernels& kernels, const Executor& executor,
                                               std::size_t row, const RowParts& parts) {
  std::array<MomentNode, kMaxParts> moments;
  parallel_for(executor, parts.count,
               [&](std::size_t i) { moments[i] = block_moments(kernels, p, row, i * parts.part, parts.length(i)); });
  return finish_row(p, row, moments.data(), parts.count);
}

void run_row_by_parts(const Problem& p, const ForwardScratch& scratch, const Kernels& kernels, const Executor& executor,
                      std::size_t row) {
  const RowParts parts(p.cols);
  const RowScalars scalars = join_row_by_parts(p, kernels, executor, row, parts);
  if (scalars.extreme) return run_forward(kernels, p, scratch, row, 1);
  parallel_for(executor, parts.count,
               [&](std::size_t i) { map_blocks(kernels, p, row, scalars, i * parts.part, parts.length(i)); });
}

// With the cache use chosen.
void run_look(const Problem& p, const ForwardScratch& scratch, const Kernels& kernels,
              const Executor& executor) noexcept {
  const std::size_t threads = usable_threads(executor);
  const std::size_t tasks = std::min(p.rows * p.cols / kForwardTask, threads * kTasksPerThread);
  if (threads <= 1 || tasks <= 1) {
    if (p.rows != 0) run_forward(kernels, p, scratch, 0, p.rows);
  } else if (p.rows < threads * 2 && p.cols >= 2 * kForwardTask && p.scale.data == nullptr && p.moments == nullptr) {
    for (std::size_t row = 0; row < p.rows; ++row) run_row_by_parts(p, scratch, kernels, executor, row);
  } else {
    const bool tiled = needs_tiles(p);
    const std::size_t unit = tiled ? kTileRows : 1, units = (p.rows + unit - 1) / unit;
    const std::size_t shares = std::min(tasks, units);
    parallel_for(executor, shares, [&](std::size_t i) {
      const std::size_t first = share_start(units, shares, i) * unit;
      const std::size_t end = std::min(share_start(units, shares, i + 1) * unit, p.rows);
      run_forward(kernels, p, scratch, first, end - first);
    });
  }
}

void run_look(Problem& p, const Kernels& kernels, const Executor& executor) noexcept {
  choose_cache_use(p);
  run_look(p, forward_scratch(p, true), kernels, executor);
}

bool is_one_look(const Problem& p) { return p.y2.data == nullptr || fits_in_one_look(p); }

// --- the backward pass: row blocks where something is summed over rows, rows where not; and, where there is but one
// row block, first rows, then columns

bool sums_over_rows(const GradientProblem& p) { return p.dgamma.data != nullptr || p.dbeta.data != nullptr; }

// Of one row block.
std::size_t sums_bytes(const GradientProblem& p) { return column_numbers(p) * p.cols * sizeof(double); }

// Of all rows, in two steps.
std::size_t scalars_bytes(const GradientProblem& p) { return p.rows * sizeof(GradientScalars); }

// What a caller is promised that scratch is at most.
std::size_t most_scratch(const GradientProblem& p) {
  return std::max(kMostScratch, p.rows * p.cols * bytes_of(p.x.dtype) / 8);
}

// Would the sums of all columns be more than that?
bool has_long_rows(const GradientProblem& p) { return row_blocks(p) == 1 && sums_bytes(p) > most_scratch(p); }

// What is fetched: from memory always, from the last cache where the next rows fit beside these in the first one.
void choose_cache_use(GradientProblem& p) {
  const std::size_t elements = p.rows * p.cols, both = bytes_of(p.x.dtype) + bytes_of(p.dy.dtype);
  const std::size_t rows = kRowsAtOnce * p.cols * both;
  p.stream_dx = p.dx.data != nullptr && elements * bytes_of(p.dx.dtype) >= streamed_from(caches());
  p.fetch = elements * bytes_of(p.x.dtype) >= fetched_from(caches()) ||
            (rows <= kFetchRowsBytes && elements * both >= caches().second);
  p.fetch_columns = arithmetic_type(p) == DType::f32 && rows > caches().second / kSecondToFetchRows;
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
                      : std::max(std::size_t{1}, std::min(p.rows * p.cols / kBackwardTask, threads * kTasksPerThread));
}

// One row block is one thread's, unless rows and columns are looked at by turns.
bool pays_in_two_steps(const GradientProblem& p, const Executor& executor) {
  return row_blocks(p) == 1 && p.cols >= kTwoStepCols && tasks_of(p, executor) > 1 && scalars_bytes(p) <= sums_bytes(p);
}

// What scratch has beside the sums of all row blocks, to align them: nothing where they fill it.
std::size_t spare_bytes(const GradientProblem& p) {
  return std::min(kLine, most_scratch(p) - row_blocks(p) * sums_bytes(p));
}

// Sums fill scratch where there is but one row block, of fewer rows than this. If they have no room to be aligned in,
// the two steps have: their scalars are fewer bytes.
constexpr std::size_t kMostRowsOfOneBlock = 2 * least_rows_of_block(DType::f64, DType::bf16);
static_assert(kMostRowsOfOneBlock * sizeof(GradientScalars) + kLine <= kMostScratch - kLine);
bool has_room_aligned(const GradientProblem& p, std::byte* scratch) {
  return static_cast<std::size_t>(aligned<std::byte>(scratch) - scratch) <= spare_bytes(p);
}

void run_blocks(const GradientProblem& p, const Kernels& kernels, double* slots, const Executor& executor) {
  const std::size_t blocks = row_blocks(p), slot = column_numbers(p) * p.cols, tasks = tasks_of(p, executor);
  // Subtrees. Rather more runs than tasks than few unequal ones: 10 blocks by twos are six blocks' time on two threads.
  const std::size_t run = tasks == 1 ? blocks : std::bit_floor(std::max(std::size_t{1}, blocks / tasks));
  const std::size_t runs = (blocks + run - 1) / run;
  const auto one_run = [&](std::size_t i) {
    run_row_blocks(kernels, p, i * run, std::min(run, blocks - i * run), slots + i * run * slot);
  };
  if (runs == 1) {
    one_run(0);
  } else {
    parallel_for(executor, runs, one_run);
  }
  finish_row_blocks(kernels, p, slots, runs, run * slot);
}

void run_in_two_steps(const GradientProblem& p, const Kernels& kernels, GradientScalars* scalars,
                      const Executor& executor) {
  const std::size_t tasks = tasks_of(p, executor);
  if (p.scalars == nullptr) {
    share_out(executor, p.rows, tasks,
              [&](std::size_t first, std::size_t count) { look_at_rows(kernels, p, first, count, scalars); });
  }
  const GradientScalars* known = p.scalars == nullptr ? scalars : p.scalars;
  const std::size_t strips = (p.cols + kStripCols - 1) / kStripCols;
  share_out(executor, strips, tasks, [&](std::size_t first, std::size_t count) {
    const std::size_t col = first * kStripCols;
    run_columns(kernels, p, known, col, std::min(count * kStripCols, p.cols - col));
  });
}

// With the cache use chosen.
void run_chosen(const GradientProblem& p, const Kernels& kernels, std::byte* scratch, const Executor& executor) {
  if (!sums_over_rows(p)) {
    share_out(executor, p.rows, tasks_of(p, executor),
              [&](std::size_t first, std::size_t count) { run_backward(kernels, p, first, count); });
  } else if (has_long_rows(p) || pays_in_two_steps(p, executor) || !has_room_aligned(p, scratch)) {
    run_in_two_steps(p, kernels, aligned<GradientScalars>(scratch), executor);
  } else {
    run_blocks(p, kernels, aligned<double>(scratch), executor);
  }
}

}  // namespace

void run_problem(Problem& p, const Kernels& kernels, const Executor& executor) noexcept {
  if (is_one_look(p)) return run_look(p, kernels, executor);
  for (const Output which : {Output::second, Output::first}) {  // y and the sum may be written over x: they come last
    const OneOutput alone(p, which);
    run_look(p, kernels, executor);
  }
}

KeptProblem::KeptProblem(Problem problem) noexcept : problem_(std::move(problem)), in_one_look_(is_one_look(problem_)) {
  choose_cache_use(problem_);
  scratch_ = forward_scratch(problem_, true);
}

void KeptProblem::run(const Kernels& kernels, const Executor& executor) const {
  if (in_one_look_) return run_look(problem_, scratch_, kernels, executor);
  Problem p = problem_;
  run_problem(p, kernels, executor);
}

std::size_t scratch_bytes(const GradientProblem& p) noexcept {
  if (!sums_over_rows(p)) return 0;
  return has_long_rows(p) ? scalars_bytes(p) + kLine : row_blocks(p) * sums_bytes(p) + spare_bytes(p);
}

void run_problem(GradientProblem& p, const Kernels& kernels, std::byte* scratch, const Executor& executor) noexcept {
  choose_cache_use(p);
  run_chosen(p, kernels, scratch, executor);
}

KeptGradientProblem::KeptGradientProblem(GradientProblem problem) noexcept
    : problem_(std::move(problem)), scratch_bytes_(internal::scratch_bytes(problem_)) {
  choose_cache_use(problem_);
}

void KeptGradientProblem::run(const Kernels& kernels, std::byte* scratch, const Executor& executor) const noexcept {
  run_chosen(problem_, kernels, scratch, executor);
}

void run_on(Target target, const Forward& forward, const Executor& executor) {
  Problem problem = validate(forward);
  validate_buffers(problem);
  run_problem(problem, kernels_of(target), executor);
}

void run_on(Target target, const Backward& backward, const Executor& executor) {
  GradientProblem problem = validate(backward);
  validate_buffers(problem);
  const OwnScratch scratch(scratch_bytes(problem));
  run_problem(problem, kernels_of(target), scratch.get(), executor);
}

}  // namespace evenorm::internal
