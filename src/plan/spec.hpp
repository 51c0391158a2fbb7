// The constants that fix the bits: lanes, blocks, trees, ranges. docs/numerics.md specifies them. tuning.hpp has the
// others.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "problem/dtype.hpp"

namespace evenorm::internal {

inline constexpr std::size_t kLanes = 16;  // virtual lanes that hold a block's sums
// The backward pass sums runs of at least so many neighbouring columns that share elements of gamma, dgamma and dbeta
// before rows. Time relative to columns first on Zen 4, (8, 512, 32 by 8 or 16 by 16) in 32 groups: f32 0.65, bf16
// 0.77; runs of 196: 1.0.
inline constexpr std::size_t kLeastRun = 256;
// The least |D| of a run's block that is used as it was added up. Then products that were subnormal, of up to kMaxCols
// columns, matter by less than 2^-10 u of its terms. Without a bound, a large rstd or gamma would show them.
template <class A>
inline constexpr double kLeastOfRun = sizeof(A) == sizeof(double) ? 0x1p-960 : 0x1p-64;
// The numbers that hold the lanes' sums of a piece of a block: sums of x and of x^2, and in f64 arithmetic their low
// parts and their anchors.
template <class A>
inline constexpr std::size_t kPieceSums = sizeof(A) == sizeof(double) ? 5 * kLanes : 2 * kLanes;
inline constexpr std::size_t kBlock = 1024;  // columns per block
static_assert(kBlock % kLanes == 0);
constexpr std::size_t blocks_of(std::size_t cols) { return cols / kBlock + (cols % kBlock != 0 ? 1 : 0); }
constexpr std::size_t block_cols(std::size_t cols, std::size_t block) {
  const std::size_t rest = cols - block * kBlock;
  return rest < kBlock ? rest : kBlock;  // not std::min: its reference to kBlock is no constant on a GPU
}
// The parts of the largest full subtree of a tree of parts that begins with part `first` and has no more than `most`.
constexpr std::size_t subtree_at(std::size_t first, std::size_t most) {
  const std::size_t size = std::bit_floor(most);
  return first == 0 ? size : std::min(size, first & (~first + 1));
}

// A block is summed again about its mean if subtracting the mean leaves less than this fraction of its sum of squares.
// docs/numerics.md derives the error that remains.
inline constexpr double kSecondPass = 0x1p-16;
// Layer norm's sums in f64 arithmetic are biased accumulators. Their initial value, the anchor, is a power of two of
// the block's first columns times one of these factors, for x and x^2. An anchor holds while each lane's sum of squares
// is at most kMostOfAnchor of it, so that the high parts of all lanes can be added exactly.
inline constexpr double kSumAnchor = 0x1p13;
inline constexpr double kSquareAnchor = 0x1p15;
inline constexpr double kMostOfAnchor = 1.125;

// Rows whose mean square is outside [low, high] are scaled by a power of two.
struct SafeRange {
  double low, high;
};
inline constexpr SafeRange kSafeF32{0x1p-120, 0x1p200};
inline constexpr SafeRange kSafeF64{0x1p-800, 0x1p960};
// The largest |x| of an out-of-range row is in a block with a mean square outside these ranges, for up to kMaxCols
// columns.
inline constexpr SafeRange kScaledByOthersF32{0x1p-64, 0x1p180};
inline constexpr SafeRange kScaledByOthersF64{0x1p-740, 0x1p940};
// In f32 arithmetic every row is scaled if eps is larger: rstd would be subnormal and lose digits.
inline constexpr double kLargestEpsF32 = 0x1p251;

// Rows with mean^2 up to this fraction of var are normalised without subtracting the mean (docs/numerics.md).
inline constexpr double kNearZero = 0.8125;

inline constexpr double kLargestInt8 = 127;  // of an i8 y

// Sums over rows are kept per row block, column_numbers() f64 for each column. The number of row blocks depends only on
// the problem's size (of whole rows, which processes may share). All their sums, 16 bytes a column in f32 and 32 in f64
// arithmetic, stay below 1/8 of x, or are two blocks of at most 1,024 columns, so that two threads can share few rows.
inline constexpr std::size_t kMaxRowBlocks = 256, kLeastOfTwo = 32768;  // elements of x
constexpr std::size_t column_numbers(DType arithmetic) { return arithmetic == DType::f64 ? 4 : 2; }
constexpr std::size_t least_rows_of_block(DType arithmetic, DType x) {
  return 128 * column_numbers(arithmetic) / bytes_of(x);
}
constexpr std::size_t row_blocks(DType arithmetic, DType x, std::size_t rows, std::size_t whole_cols) {
  const std::size_t blocks = std::clamp(rows / least_rows_of_block(arithmetic, x), std::size_t{1}, kMaxRowBlocks);
  return blocks == 1 && whole_cols <= kBlock && rows * whole_cols >= kLeastOfTwo ? 2 : blocks;
}
// The start of share i if units are split evenly into `shares`: row blocks, and what threads take.
constexpr std::size_t share_start(std::size_t units, std::size_t shares, std::size_t i) {
  return units / shares * i + units % shares * i / shares;
}

// The backward pass adds in the arithmetic's type along short chains, and adds these wide. A row's chain takes so many
// lines of kLanes columns, a column's chain so many rows.
inline constexpr std::size_t kChainLines = 4, kChainRows = 4;

// A row's dx is computed in the arithmetic's type if rstd is 0 or within these limits, and c2 and k2 = c2 rstd^2 are 0
// or at least `k2` in magnitude. Other rows are wide.
struct GradientRange {
  double least_rstd, largest_rstd, k2;
};
template <class A>
inline constexpr GradientRange kGradientRange = sizeof(A) == sizeof(double) ? GradientRange{0x1p-300, 0x1p300, 0x1p-960}
                                                                            : GradientRange{0x1p-32, 0x1p32, 0x1p-126};

}  // namespace evenorm::internal
