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

void choose_cache_use(Problem& p) {
  const std::size_t elements = p.rows * p.cols;
  p.stream_y = p.x.data != p.y.data && elements * bytes_of(p.y.dtype) >= kStreamBytes;
  p.fetch_x = elements * bytes_of(p.x.dtype) >= kFetchBytes;
}

// A long row: moments of equal subtrees of blocks at once, their join, then the map by the same parts.
void run_row_by_parts(const Problem& p, const RowFunctions& functions, const Executor& executor, std::size_t row) {
  const std::size_t type = index_of(row_type(p));
  const std::size_t blocks = (p.cols + kBlock - 1) / kBlock;
  const std::size_t part = std::bit_ceil(std::max(kTaskElements / kBlock, (blocks + kMaxParts - 1) / kMaxParts));
  const std::size_t parts = (blocks + part - 1) / part;
  const auto count = [&](std::size_t i) { return std::min(part, blocks - i * part); };

  std::array<Moments, kMaxParts> moments;
  parallel_for(executor, parts,
               [&](std::size_t i) { functions.block_moments[type](p, row, i * part, count(i), &moments[i]); });
  RowScalars scalars;
  functions.finish_row[type](p, row, moments.data(), parts, &scalars);
  if (scalars.extreme) return functions.forward[type](p, row, 1);
  parallel_for(executor, parts,
               [&](std::size_t i) { functions.map_blocks[type](p, row, scalars, i * part, count(i)); });
}

}  // namespace

void run_problem(const Problem& problem, const RowFunctions& functions, const Executor& executor) noexcept {
  Problem p = problem;
  choose_cache_use(p);
  const std::size_t type = index_of(row_type(p));
  const std::size_t threads = usable_threads(executor);
  const std::size_t tasks = std::min(p.rows * p.cols / kTaskElements, threads * kTasksPerThread);
  if (threads <= 1 || tasks <= 1) {
    if (p.rows != 0) functions.forward[type](p, 0, p.rows);
  } else if (p.rows < threads * 2 && p.cols >= 2 * kTaskElements) {
    for (std::size_t row = 0; row < p.rows; ++row) run_row_by_parts(p, functions, executor, row);
  } else {
    const bool tiled = needs_tiles(p);
    const std::size_t unit = tiled ? kTileRows : 1, units = (p.rows + unit - 1) / unit;
    const std::size_t shares = std::min(tasks, units);
    parallel_for(executor, shares, [&](std::size_t i) {
      const auto start = [&](std::size_t share) { return units / shares * share + std::min(share, units % shares); };
      const std::size_t first = start(i) * unit, end = std::min(start(i + 1) * unit, p.rows);
      functions.forward[type](p, first, end - first);
    });
  }
}

void run_on(Target target, const Forward& forward, const Executor& executor) {
  const Problem problem = validate(forward);
  validate_buffers(problem);
  run_problem(problem, row_functions(target), executor);
}

}  // namespace evenorm::internal
