// Shares a problem out: rows where there are enough of them, else the blocks of each row. Neither affects any bit.
#include "run.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "looks.hpp"
#include "parallel.hpp"
#include "scratch_plan.hpp"
#include "sharing.hpp"
#include "validate.hpp"

namespace evenorm::internal {
namespace {

constexpr std::size_t kTaskElements = 32768;  // below this, handing a task over costs more than it saves
constexpr std::size_t kTileRows = 32;         // neighbours that one thread gathers: whole cache lines of 16 bits each
constexpr std::size_t kMaxParts = 512;        // of a long row: bounds the memory for their moments

void choose_cache_use(Problem& p) {
  const std::size_t elements = p.rows * p.cols;
  const auto streams = [&](const Matrix<void*>& to) {
    const bool in_place = to.data == p.x.data || to.data == p.residual.data;
    return !in_place && elements * bytes_of(to.dtype) >= kStreamBytes;
  };
  p.stream_y = streams(p.y);
  p.stream_sum = streams(p.sum);
  p.fetch_x = elements * bytes_of(p.x.dtype) >= kFetchBytes;
}

// How a long row is cut: into equal subtrees of its blocks, the last one smaller.
struct RowParts {
  std::size_t blocks, part, count;

  explicit RowParts(std::size_t cols)
      : blocks(blocks_of(cols)),
        part(std::bit_ceil(std::max(kTaskElements / kBlock, (blocks + kMaxParts - 1) / kMaxParts))),
        count((blocks + part - 1) / part) {}
  std::size_t length(std::size_t i) const { return std::min(part, blocks - i * part); }
};

// Moments of all parts at once, and their join. Not inlined: its array is gone from the stack when the row is mapped.
[[gnu::noinline]] RowScalars join_row_by_parts(const Problem& p, const RowFunctions& functions,
                                               const Executor& executor, std::size_t row, const RowParts& parts) {
  const std::size_t type = index_of(row_type(p));
  std::array<MomentNode, kMaxParts> moments;
  parallel_for(executor, parts.count, [&](std::size_t i) {
    functions.block_moments[type](p, row, i * parts.part, parts.length(i), &moments[i]);
  });
  RowScalars scalars;
  functions.finish_row[type](p, row, moments.data(), parts.count, &scalars);
  return scalars;
}

void run_row_by_parts(const Problem& p, const RowFunctions& functions, const Executor& executor, std::size_t row) {
  const std::size_t type = index_of(row_type(p));
  const RowParts parts(p.cols);
  const RowScalars scalars = join_row_by_parts(p, functions, executor, row, parts);
  if (scalars.extreme) return functions.forward[type](p, row, 1);
  parallel_for(executor, parts.count,
               [&](std::size_t i) { functions.map_blocks[type](p, row, scalars, i * parts.part, parts.length(i)); });
}

void run_look(Problem& p, const RowFunctions& functions, const Executor& executor) noexcept {
  choose_cache_use(p);
  const std::size_t type = index_of(row_type(p));
  const std::size_t threads = usable_threads(executor);
  const std::size_t tasks = std::min(p.rows * p.cols / kTaskElements, threads * kTasksPerThread);
  if (threads <= 1 || tasks <= 1) {
    if (p.rows != 0) functions.forward[type](p, 0, p.rows);
  } else if (p.rows < threads * 2 && p.cols >= 2 * kTaskElements && p.scale.data == nullptr && p.moments == nullptr) {
    for (std::size_t row = 0; row < p.rows; ++row) run_row_by_parts(p, functions, executor, row);
  } else {
    const bool tiled = needs_tiles(p);
    const std::size_t unit = tiled ? kTileRows : 1, units = (p.rows + unit - 1) / unit;
    const std::size_t shares = std::min(tasks, units);
    parallel_for(executor, shares, [&](std::size_t i) {
      const std::size_t first = share_start(units, shares, i) * unit;
      const std::size_t end = std::min(share_start(units, shares, i + 1) * unit, p.rows);
      functions.forward[type](p, first, end - first);
    });
  }
}

}  // namespace

void run_problem(Problem& p, const RowFunctions& functions, const Executor& executor) noexcept {
  if (p.y2.data == nullptr || fits_in_one_look(p)) return run_look(p, functions, executor);
  for (const Output which : {Output::second, Output::first}) {  // y and the sum may be written over x: they come last
    const OneOutput alone(p, which);
    run_look(p, functions, executor);
  }
}

void run_on(Target target, const Forward& forward, const Executor& executor) {
  Problem problem = validate(forward);
  validate_buffers(problem);
  run_problem(problem, row_functions(target), executor);
}

void run_on(Target target, const RowMoments& rows, std::span<Moments> parts, const Executor& executor) {
  const Problem p = validate(rows);
  validate_buffers(p, parts);
  const auto run_parts = row_functions(target).parts[index_of(row_type(p))];
  const std::size_t tasks = std::min(p.rows * p.cols / kTaskElements, usable_threads(executor) * kTasksPerThread);
  if (tasks <= 1) return run_parts(p, 0, parts.size(), parts.data());
  const std::size_t shares = std::min(tasks, parts.size());
  parallel_for(executor, shares, [&](std::size_t i) {
    const std::size_t first = share_start(parts.size(), shares, i);
    run_parts(p, first, share_start(parts.size(), shares, i + 1) - first, parts.data());
  });
}

Moments join_on(Target target, Kind kind, std::span<const Moments> parts, bool wide) {
  if (kind != Kind::layer && kind != Kind::rms) throw Error("kind is none of layer and rms");
  if (parts.empty()) throw Error("parts is empty, but it should have at least one element");
  return row_functions(target).join_parts[index_of(wide ? DType::f64 : DType::f32)](kind, parts.data(), parts.size());
}

}  // namespace evenorm::internal
