// What fixes the bits: lanes, blocks, trees, ranges. docs/numerics.md is their specification. What is for speed, and
// fixes none, is in tuning.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "problem/dtype.hpp"

namespace evenorm::internal {

inline constexpr std::size_t kLanes = 16;  // virtual lanes that a block's sums are kept in
// How many numbers the lanes' sums of a piece of a block are: sums of x and of x^2, and in f64 arithmetic their low
// parts and their anchors.
template <class A>
inline constexpr std::size_t kPieceSums = sizeof(A) == sizeof(double) ? 5 * kLanes : 2 * kLanes;
inline constexpr std::size_t kBlock = 1024;  // columns per block
static_assert(kBlock % kLanes == 0);
constexpr std::size_t blocks_of(std::size_t cols) { return cols / kBlock + (cols % kBlock != 0 ? 1 : 0); }
constexpr std::size_t block_cols(std::size_t cols, std::size_t block) {
  return std::min(kBlock, cols - block * kBlock);
}

// A block's squares are summed again about its mean where less than this share of them is left after the mean is
// taken out. docs/numerics.md derives the error that remains.
inline constexpr double kSecondLook = 0x1p-16;
// Layer norm's sums in f64 arithmetic begin at anchors, a power of two of the block's first columns times these: of x
// and of x^2. A lane holds squares that add up to no more than its anchor.
inline constexpr double kSumAnchor = 0x1p11;
inline constexpr double kSquareAnchor = 0x1p12;

// Rows whose mean square lies outside [low, high] are scaled by a power of two before anything else.
struct SafeRange {
  double low, high;
};
inline constexpr SafeRange kSafeF32{0x1p-120, 0x1p200};
inline constexpr SafeRange kSafeF64{0x1p-800, 0x1p960};
// The largest |x| of a row outside is in a block whose mean square is outside these, for up to kMaxCols columns.
inline constexpr SafeRange kScaledByOthersF32{0x1p-64, 0x1p180};
inline constexpr SafeRange kScaledByOthersF64{0x1p-740, 0x1p940};
// Above it every row of f32 arithmetic is scaled: rstd would be subnormal there, with digits lost.
inline constexpr double kLargestEpsF32 = 0x1p251;

// Rows with mean^2 up to this share of var are mapped without taking the mean from x. docs/numerics.md has the error.
inline constexpr double kNearZero = 0.8125;

inline constexpr double kLargestInt8 = 127;  // of quantised y

// Sums over rows are kept in so many f64 for each column, and cut by blocks of rows: how many, by the problem's size
// alone (of whole rows, which processes may share). Their sums, 16 bytes a column in f32 arithmetic and 32 in f64
// arithmetic, stay below 1/8 of x, or are those of two blocks of at most 1,024 columns: few rows, too, are two threads'
// work.
inline constexpr std::size_t kMaxRowBlocks = 256, kLeastOfTwo = 32768;  // elements of x
constexpr std::size_t column_numbers(DType arithmetic) { return arithmetic == DType::f64 ? 4 : 2; }
constexpr std::size_t least_rows_of_block(DType arithmetic, DType x) {
  return 128 * column_numbers(arithmetic) / bytes_of(x);
}
constexpr std::size_t row_blocks(DType arithmetic, DType x, std::size_t rows, std::size_t whole_cols) {
  const std::size_t blocks = std::clamp(rows / least_rows_of_block(arithmetic, x), std::size_t{1}, kMaxRowBlocks);
  return blocks == 1 && whole_cols <= kBlock && rows * whole_cols >= kLeastOfTwo ? 2 : blocks;
}
// Where share i of `shares` even ones begins: row blocks, and what threads take.
inline std::size_t share_start(std::size_t units, std::size_t shares, std::size_t i) {
  return units / shares * i + units % shares * i / shares;
}

// The backward pass adds in the arithmetic's type along chains before it adds wide: of a row over so many lines of
// kLanes columns, of a column over so many rows.
inline constexpr std::size_t kChainLines = 4, kChainRows = 4;

// Where a row's dx is made in the arithmetic's type: rstd is 0 or within these, and c2 and k2 = c2 rstd^2 are 0 or at
// least `k2` in magnitude. Other rows are done in wider numbers.
struct GradientRange {
  double least_rstd, largest_rstd, k2;
};
template <class A>
inline constexpr GradientRange kGradientRange = sizeof(A) == sizeof(double) ? GradientRange{0x1p-300, 0x1p300, 0x1p-960}
                                                                            : GradientRange{0x1p-32, 0x1p32, 0x1p-126};

}  // namespace evenorm::internal
