// The forward pass of rows whose columns are split over processes: the moments of a process's parts, and
// their join to the moments of whole rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/forward_plan.hpp"
#include "problem/fp_environment.hpp"
#include "rows/statistics.hpp"
#include "rows/types.hpp"
#include "sharded/rows.hpp"

namespace evenorm::internal {
namespace {

// A node as a message has it, with all numbers replaced by the canonical NaN if one of them is not finite.
Moments moments_of(const MomentNode& m) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(m.mean) || !std::isfinite(m.m2)) return {m.count, kNan, kNan, kNan};
  return {m.count, m.mean, m.mean_lo, m.m2};
}

template <class T>
[[gnu::noinline]] void find_parts(const Kernels& kernels, const Problem& p, const Cuts& cuts, std::size_t first,
                                  std::size_t count, double* message) {
  ScratchMemory<kBlockScratchBytes> scratch;
  BlockSource<T> block_source(kernels, p, scratch);
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  const std::size_t numbers = cuts.numbers(Pass::forward, p.kind, kWide);
  MomentNode nodes[kMaxNodes];
  for (std::size_t row = first; row < first + count; ++row) {
    double* to = message + row * numbers;
    std::fill_n(to, numbers, 0.0);
    for (const Cuts::Part& part : cuts.parts_of(cuts.rank())) {
      const std::size_t first_col = part.first * kBlock, cols = std::min(part.blocks * kBlock, p.cols - first_col);
      const MomentNode m = sum_blocks<T>(kernels, p.kind, nodes, block_source.get(), row, {cols, cols}, first_col);
      visit(Writer(to), p.kind, kWide, moments_of(m));
      to += numbers_of_part(Pass::forward, p.kind, kWide);
    }
  }
}

template <class A>
Moments join_row(const Cuts& cuts, Kind kind, const Messages& messages, std::size_t row) {
  constexpr bool kWide = std::is_same_v<A, double>;
  const std::size_t numbers = cuts.numbers(Pass::forward, kind, kWide);
  MomentNode nodes[kMaxNodes];
  MomentTree<A> tree({nodes, kind == Kind::layer});
  for_parts(cuts, [&](std::size_t process, const Cuts::Part& part, std::size_t cols, std::size_t i) {
    const double* from = messages.of(process, row, numbers);
    Moments moments;
    moments.count = static_cast<double>(cols);
    visit(Reader(from + i * numbers_of_part(Pass::forward, kind, kWide)), kind, kWide, moments);
    tree.push(node_of<A>(moments), part.weight);
  });
  return moments_of(tree.finish());
}

}  // namespace

void moments_of_shards(const Kernels& kernels, const Problem& p, const Cuts& cuts, std::size_t first, std::size_t count,
                       double* message) noexcept {
  const FpEnvironment environment;
  with_type(row_type(p), [&]<class T>() { find_parts<T>(kernels, p, cuts, first, count, message); });
}

void join_shards(const Cuts& cuts, Kind kind, bool wide, const Messages& messages,
                 std::span<Moments> moments) noexcept {
  const FpEnvironment environment;
  for (std::size_t row = 0; row < moments.size(); ++row) {
    moments[row] = wide ? join_row<double>(cuts, kind, messages, row) : join_row<float>(cuts, kind, messages, row);
  }
}

}  // namespace evenorm::internal
