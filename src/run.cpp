// Shares a problem out: rows where there are enough of them, else the blocks of each row. Neither affects any bit.
#include "run.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "parallel.hpp"
#include "validate.hpp"

namespace evenorm::internal {
namespace {

constexpr std::size_t kTaskElements = 32768;     // below this, handing a task over costs more than it saves
constexpr std::size_t kTasksPerThread = 4;       // so that a slow thread holds nobody up
constexpr std::size_t kStreamBytes = 8u << 20u;  // of y, above which it is written past the caches
constexpr std::size_t kFetchBytes = 4u << 20u;   // of x, above which it is fetched ahead
constexpr std::size_t kTileRows = 32;   // neighbours that one thread gathers: whole cache lines of 16 bits each
constexpr std::size_t kMaxParts = 512;  // of a long row: bounds the memory for their moments

// Where share i of `shares` even ones of `units` begins.
std::size_t share_start(std::size_t units, std::size_t shares, std::size_t i) {
  return units / shares * i + std::min(i, units % shares);
}

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

// A long row: moments of equal subtrees of blocks at once, their join, then the map by the same parts.
void run_row_by_parts(const Problem& p, const RowFunctions& functions, const Executor& executor, std::size_t row) {
  const std::size_t type = index_of(row_type(p));
  const std::size_t blocks = (p.cols + kBlock - 1) / kBlock;
  const std::size_t part = std::bit_ceil(std::max(kTaskElements / kBlock, (blocks + kMaxParts - 1) / kMaxParts));
  const std::size_t parts = (blocks + part - 1) / part;
  const auto count = [&](std::size_t i) { return std::min(part, blocks - i * part); };

  std::array<MomentNode, kMaxParts> moments;
  parallel_for(executor, parts,
               [&](std::size_t i) { functions.block_moments[type](p, row, i * part, count(i), &moments[i]); });
  RowScalars scalars;
  functions.finish_row[type](p, row, moments.data(), parts, &scalars);
  if (scalars.extreme) return functions.forward[type](p, row, 1);
  parallel_for(executor, parts,
               [&](std::size_t i) { functions.map_blocks[type](p, row, scalars, i * part, count(i)); });
}

// Is gamma or beta used where it lies, in f64 arithmetic?
bool needs_no_scratch(const Vector<const void*>& v) {
  return v.data == nullptr || (v.dtype == DType::f64 && v.axes.is_dense(sizeof(double)));
}

// Both y in one look at x: of one arithmetic, and where scratch has room for what both need.
bool fits_in_one_look(const Problem& p) {
  if (arithmetic_type(p) != arithmetic_type_of_second(p) || needs_tiles(p) || !has_dense_rows(p.y2)) return false;
  if (arithmetic_type(p) == DType::f32) return true;
  return !p.zero_centered && needs_no_scratch(p.gamma) && needs_no_scratch(p.beta) && needs_no_scratch(p.gamma2) &&
         needs_no_scratch(p.beta2);
}

// The second y as the only one.
Problem second_of(const Problem& p) {
  Problem second = p;
  second.y = p.y2;
  second.gamma = p.gamma2;
  second.beta = p.beta2;
  second.y2 = second.sum = {};
  second.gamma2 = second.beta2 = {};
  second.mean = second.rstd = {};
  return second;
}

}  // namespace

void run_problem(const Problem& problem, const RowFunctions& functions, const Executor& executor) noexcept {
  Problem p = problem;
  if (p.y2.data != nullptr && !fits_in_one_look(p)) {  // y and the sum may be written over x: they come last
    run_problem(second_of(p), functions, executor);
    p.y2 = {};
    p.gamma2 = p.beta2 = {};
  }
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

void run_on(Target target, const Forward& forward, const Executor& executor) {
  const Problem problem = validate(forward);
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
