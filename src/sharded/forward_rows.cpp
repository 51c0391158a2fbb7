// The forward pass of rows whose columns are split over processes: the moments of a process's parts, and
// their join to the moments of whole rows.
#include <algorithm>

#include "plan/forward_plan.hpp"
#include "problem/fp_environment.hpp"
#include "rows/scaled.hpp"
#include "rows/types.hpp"
#include "sharded/rows.hpp"

namespace evenorm::internal {
namespace {

// A source that shows one block of a row as a row of its own.
template <class A>
class OneBlock {
 public:
  OneBlock(const Source<A>& source, std::size_t block) : source_(source), first_(block * kBlock) {}

  void set_scale(A scale) { source_.set_scale(scale); }
  const A* block(std::size_t row, std::size_t first, std::size_t n) { return source_.block(row, first_ + first, n); }

 private:
  Source<A> source_;
  std::size_t first_;
};

// The largest magnitude of n elements; NaN if one is not finite.
template <class T>
double largest_of(const Kernels& kernels, const T* x, std::size_t n) {
  using A = Arithmetic<T>;
  A largest = 0;
  const auto include = [&](const A* values, std::size_t count) {
    kernels.in<A>().largest_finite({values, 0}, 1, count, &largest);
  };
  if constexpr (std::is_same_v<T, A>) {
    include(x, n);
  } else {
    constexpr std::size_t kAtOnce = 64;
    A values[kAtOnce];
    for (std::size_t i = 0, count; i < n && largest == largest; i += count) {
      count = std::min(kAtOnce, n - i);
      kernels.convert[index_of(dtype_of<T>)][index_of(dtype_of<A>)](x + i, values, count);
      include(values, count);
    }
  }
  return static_cast<double>(largest);
}

bool is_within(const SafeRange& range, double mean_square) {
  return mean_square >= range.low && mean_square <= range.high;
}

// Returns m, with all numbers replaced by the canonical NaN if one of them is not finite.
Moments without_infinities(const Moments& m) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (is_finite(m)) return m;
  return {m.count, kNan, kNan, kNan, kNan, 0, 0};
}

// The moments of one block, with the largest |x| if the row may have to be scaled by it.
template <class T>
Moments scalable_moments(const Kernels& kernels, const Problem& p, Source<T>& source, std::size_t row,
                         std::size_t block) {
  using A = Arithmetic<T>;
  constexpr bool kWide = std::is_same_v<A, double>;
  const std::size_t n = block_cols(p.cols, block);
  const T* x = source.block(row, block * kBlock, n);
  Moments m = with_exponent(moments_of_block<T>(kernels, p.kind, x, n), 0, 0);
  const double mean_square = m.mean_hi * m.mean_hi + m.m2_hi / m.count;
  const bool by_eps = !kWide && p.eps > kLargestEpsF32;
  if (!by_eps && is_within(kWide ? kScaledByOthersF64 : kScaledByOthersF32, mean_square)) return m;
  m.largest = largest_of<T>(kernels, x, n);
  if constexpr (kWide) {
    if (!is_within(kSafeF64, mean_square)) {
      OneBlock<double> part(source, block);
      MomentNode nodes[1];
      m = out_of_range_moments<double>(kernels, p.kind, part, row, n, nodes);
    }
  }
  return without_infinities(m);
}

// The moments of the blocks of a part, joined.
template <class T>
Moments moments_of_part(const Kernels& kernels, const Problem& p, Source<T>& source, std::size_t row, std::size_t first,
                        std::size_t blocks) {
  Moments nodes[kMaxNodes];
  ScaledMomentTree<Arithmetic<T>> tree({nodes, p.kind == Kind::layer});
  for (std::size_t block = first; block < first + blocks; ++block) {
    tree.push(scalable_moments<T>(kernels, p, source, row, block));
  }
  return without_infinities(tree.finish());
}

template <class T>
[[gnu::noinline]] void find_parts(const Kernels& kernels, const Problem& p, const Cuts& cuts, std::size_t first,
                                  std::size_t count, double* message) {
  ScratchMemory<kBlockScratchBytes> scratch;
  BlockSource<T> block_source(kernels, p, scratch);
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  const std::size_t numbers = cuts.numbers(Pass::forward, p.kind, kWide);
  for (std::size_t row = first; row < first + count; ++row) {
    double* to = message + row * numbers;
    std::fill_n(to, numbers, 0.0);
    for (const Cuts::Part& part : cuts.parts_of(cuts.rank())) {
      const Moments m = moments_of_part<T>(kernels, p, block_source.get(), row, part.first, part.blocks);
      visit(Writer(to), p.kind, kWide, m);
      to += numbers_of_part(Pass::forward, p.kind, kWide);
    }
  }
}

template <class A>
Moments join_row(const Cuts& cuts, Kind kind, const Messages& messages, std::size_t row) {
  constexpr bool kWide = std::is_same_v<A, double>;
  const std::size_t numbers = cuts.numbers(Pass::forward, kind, kWide);
  Moments nodes[kMaxNodes];
  ScaledMomentTree<A> tree({nodes, kind == Kind::layer});
  for_parts(cuts, [&](std::size_t process, const Cuts::Part& part, std::size_t cols, std::size_t i) {
    const double* from = messages.of(process, row, numbers);
    Moments moments;
    moments.count = static_cast<double>(cols);
    visit(Reader(from + i * numbers_of_part(Pass::forward, kind, kWide)), kind, kWide, moments);
    tree.push(moments, part.weight);
  });
  return without_infinities(tree.finish());
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
