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
constexpr std::size_t kMostScratch = 256u << 10u;  // bytes of a norm's, where x is small
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

std::size_t sums_bytes(const GradientProblem& p) { return column_numbers(p) * p.cols * sizeof(double); }

// Of the rows of each norm, in two steps.
std::size_t scalars_bytes(const GradientNorms& norms) {
  return (norms.second == nullptr ? 1 : 2) * norms.first.rows * sizeof(GradientScalars);
}

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
bool pays_in_two_steps(const GradientNorms& norms, const Executor& executor) {
  const GradientProblem& p = norms.first;
  return row_blocks(p) == 1 && p.cols >= kTwoStepCols && tasks_of(p, executor) > 1 &&
         scalars_bytes(norms) <= sums_bytes(p);
}

bool sums_in_second(const GradientNorms& norms) { return norms.second != nullptr && sums_over_rows(*norms.second); }

// Sums of all row blocks and norms; and what scratch has besides, to align them: none where they fill it.
struct SumsScratch {
  std::size_t bytes, spare;

  explicit SumsScratch(const GradientNorms& norms) {
    const GradientProblem& p = norms.first;
    const std::size_t summed = (sums_over_rows(p) ? 1 : 0) + (sums_in_second(norms) ? 1 : 0);
    bytes = summed * row_blocks(p) * sums_bytes(p);
    spare = std::min(kLine, summed * most_scratch(p) - bytes);
  }
};

// Sums fill scratch where there is but one row block, of fewer rows than this. If they have no room to be aligned in,
// the two steps have: their scalars are fewer bytes.
constexpr std::size_t kMostRowsOfOneBlock = 2 * least_rows_of_block(DType::f64, DType::bf16);
static_assert(2 * kMostRowsOfOneBlock * sizeof(GradientScalars) + kLine <= kMostScratch - kLine);
bool has_room_aligned(const GradientNorms& norms, std::byte* scratch) {
  return static_cast<std::size_t>(aligned<std::byte>(scratch) - scratch) <= SumsScratch(norms).spare;
}

// scratch: the sums of each norm that has some, one after the other.
void run_blocks(const GradientNorms& norms, const Kernels& kernels, double* scratch, const Executor& executor) {
  const GradientProblem& p = norms.first;
  const std::size_t blocks = row_blocks(p), slot = column_numbers(p) * p.cols, tasks = tasks_of(p, executor);
  double* const sums = sums_over_rows(p) ? scratch : nullptr;
  double* const sums2 = sums_in_second(norms) ? scratch + (sums == nullptr ? 0 : blocks * slot) : nullptr;
  // Subtrees. Rather more runs than tasks than few unequal ones: 10 blocks by twos are six blocks' time on two threads.
  const std::size_t run = tasks == 1 ? blocks : std::bit_floor(std::max(std::size_t{1}, blocks / tasks));
  const std::size_t runs = (blocks + run - 1) / run;
  const auto one_run = [&](std::size_t i) {
    const auto from = [&](double* slots) { return slots == nullptr ? nullptr : slots + i * run * slot; };
    run_row_blocks(kernels, norms, i * run, std::min(run, blocks - i * run), {from(sums), from(sums2)});
  };
  if (runs == 1) {
    one_run(0);
  } else {
    parallel_for(executor, runs, one_run);
  }
  if (sums != nullptr) finish_row_blocks(kernels, p, sums, runs, run * slot);
  if (sums2 != nullptr) finish_row_blocks(kernels, *norms.second, sums2, runs, run * slot);
}

void run_in_two_steps(const GradientNorms& norms, const Kernels& kernels, GradientScalars* scalars,
                      const Executor& executor) {
  const GradientProblem& p = norms.first;
  const std::size_t tasks = tasks_of(p, executor);
  if (p.scalars == nullptr) {
    share_out(executor, p.rows, tasks, [&](std::size_t first, std::size_t count) {
      look_at_rows(kernels, p, first, count, scalars);
      if (norms.second != nullptr) look_at_rows(kernels, *norms.second, first, count, scalars + p.rows);
    });
  }
  const KnownScalars known{p.scalars == nullptr ? scalars : p.scalars,
                           norms.second == nullptr ? nullptr : scalars + p.rows};
  const std::size_t strips = (p.cols + kStripCols - 1) / kStripCols;
  share_out(executor, strips, tasks, [&](std::size_t first, std::size_t count) {
    const std::size_t col = first * kStripCols;
    run_columns(kernels, norms, known, col, std::min(count * kStripCols, p.cols - col));
  });
}

void run_norms(const GradientNorms& norms, const Kernels& kernels, std::byte* scratch, const Executor& executor) {
  const GradientProblem& p = norms.first;
  if (!sums_over_rows(p) && !sums_in_second(norms)) {
    share_out(executor, p.rows, tasks_of(p, executor),
              [&](std::size_t first, std::size_t count) { run_backward(kernels, norms, first, count); });
  } else if (has_long_rows(p) || pays_in_two_steps(norms, executor) || !has_room_aligned(norms, scratch)) {
    run_in_two_steps(norms, kernels, aligned<GradientScalars>(scratch), executor);
  } else {
    run_blocks(norms, kernels, aligned<double>(scratch), executor);
  }
}

// Of a pair both norms at once, if dx is to be of both; else one after the other, whose arithmetic may differ.
bool is_one_run(const GradientPass& pass) { return !pass.second || pass.first.dx.data != nullptr; }
GradientNorms norms_of(const GradientPass& pass) { return {pass.first, pass.second ? &*pass.second : nullptr}; }

void choose_cache_use(GradientPass& pass) {
  choose_cache_use(pass.first);
  if (!pass.second) return;
  choose_cache_use(*pass.second);
  const void* dx = pass.first.dx.data;
  if (is_in_place(pass.first) || dx == pass.second->dy.data || dx == pass.second->dsum.data) {
    pass.first.stream_dx = false;
  }
}

// With the cache use chosen.
void run_chosen(const GradientPass& pass, const Kernels& kernels, std::byte* scratch, const Executor& executor) {
  if (is_one_run(pass)) return run_norms(norms_of(pass), kernels, scratch, executor);
  for (const GradientProblem* p : {&pass.first, &*pass.second}) {
    if (sums_over_rows(*p)) run_norms({*p}, kernels, scratch, executor);
  }
}

std::size_t scratch_bytes_of(const GradientNorms& norms) {
  const GradientProblem& p = norms.first;
  if (!sums_over_rows(p) && !sums_in_second(norms)) return 0;
  if (has_long_rows(p)) return scalars_bytes(norms) + kLine;
  const SumsScratch sums(norms);
  return sums.bytes + sums.spare;
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

std::size_t scratch_bytes(const GradientPass& pass) noexcept {
  if (is_one_run(pass)) return scratch_bytes_of(norms_of(pass));
  return std::max(scratch_bytes_of({pass.first}), scratch_bytes_of({*pass.second}));
}

void run_pass(GradientPass& pass, const Kernels& kernels, std::byte* scratch, const Executor& executor) noexcept {
  choose_cache_use(pass);
  run_chosen(pass, kernels, scratch, executor);
}

KeptGradientPass::KeptGradientPass(GradientPass pass) noexcept
    : pass_(std::move(pass)), scratch_bytes_(internal::scratch_bytes(pass_)) {
  choose_cache_use(pass_);
}

void KeptGradientPass::run(const Kernels& kernels, std::byte* scratch, const Executor& executor) const noexcept {
  run_chosen(pass_, kernels, scratch, executor);
}

void run_on(Target target, const Forward& forward, const Executor& executor) {
  Problem problem = validate(forward);
  validate_buffers(problem);
  run_problem(problem, kernels_of(target), executor);
}

void run_on(Target target, const Backward& backward, const Executor& executor) {
  GradientPass pass = validate(backward);
  validate_buffers(pass);
  const OwnScratch scratch(scratch_bytes(pass));
  run_pass(pass, kernels_of(target), scratch.get(), executor);
}

void run_on(Target target, const RowMoments& rows, std::span<Moments> parts, const Executor& executor) {
  const Problem p = validate(rows);
  validate_buffers(p, parts);
  const std::size_t tasks = std::min(p.rows * p.cols / kForwardTask, usable_threads(executor) * kTasksPerThread);
  share_out(executor, parts.size(), std::max(std::size_t{1}, tasks), [&](std::size_t first, std::size_t count) {
    parts_of_rows(kernels_of(target), p, first, count, parts.data());
  });
}

Moments join_on(Target target, Kind kind, std::span<const Moments> parts, bool wide) {
  (void)target;  // plain C++, the same for all
  check_kind(kind);
  if (parts.empty()) throw Error("parts is empty, but it should have at least one element");
  if (parts.size() > blocks_of(kMaxCols)) {
    throw Error("parts has " + std::to_string(parts.size()) + " elements, but a row has at most " +
                std::to_string(blocks_of(kMaxCols)));
  }
  return join_parts(kind, wide, parts);
}

}  // namespace evenorm::internal
