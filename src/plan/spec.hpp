// The constants that fix the bits: lanes, blocks, trees, ranges. docs/numerics.md specifies them. tuning.hpp has the
// others.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "problem/dtype.hpp"

namespace evenorm::internal {

inline constexpr std::size_t kLanes = 16;  // virtual lanes that hold a block's sums
// The least neighbouring columns that share an element of each parameter and form a run.
inline constexpr std::size_t kLeastRun = 16;
// The least |D| of a run's block that is used as it was added up, in f32 arithmetic. Then products that were subnormal,
// of up to kMaxCols columns, matter by less than 2^-10 u of its terms. Without a bound, a large rstd or gamma would
// show them.
inline constexpr double kLeastOfRun = 0x1p-64;
inline constexpr std::size_t kBlock = 1024;  // columns per block
static_assert(kBlock % kLanes == 0);
constexpr std::size_t blocks_of(std::size_t cols) { return cols / kBlock + (cols % kBlock != 0 ? 1 : 0); }
constexpr std::size_t block_cols(std::size_t cols, std::size_t block) {
  const std::size_t rest = cols - block * kBlock;
  return rest < kBlock ? rest : kBlock;  // not std::min: its reference to kBlock is no constant on a GPU
}
// A row is a sequence of runs of `run` columns, and each run one of blocks.
struct Partition {
  struct Block {
    std::size_t first, n;
  };

  std::size_t cols, run;

  constexpr std::size_t runs() const { return run == cols ? 1 : cols / run; }  // a division takes as long as a join
  constexpr std::size_t blocks_of_run() const { return blocks_of(run); }
  constexpr std::size_t blocks() const { return runs() * blocks_of_run(); }
  constexpr Block block(std::size_t i) const {
    if (run == cols) return {i * kBlock, block_cols(run, i)};
    const std::size_t of_run = blocks_of_run(), in_run = i % of_run;
    return {i / of_run * run + in_run * kBlock, block_cols(run, in_run)};
  }
};
// shared: how many neighbouring columns share an element of each parameter.
constexpr Partition partition_of(std::size_t cols, std::size_t shared) {
  return {cols, shared >= kLeastRun && shared < cols ? shared : cols};
}
// The parts of the largest full subtree of a tree of parts that begins with part `first` and has no more than `most`.
constexpr std::size_t subtree_at(std::size_t first, std::size_t most) {
  const std::size_t size = std::bit_floor(most);
  return first == 0 ? size : std::min(size, first & (~first + 1));
}

// A block is summed again about its mean if subtracting the mean leaves less than this fraction of its sum of squares;
// in f64 arithmetic no more than it. docs/numerics.md derives the error that remains.
template <class A>
inline constexpr double kSecondPass = sizeof(A) == sizeof(double) ? 0.5 : 0x1p-16;
// In f64 arithmetic, a block is constant if its second pass leaves no more than this fraction of the squares.
inline constexpr double kConstantSquares = 0x1p-40;

// Rows whose mean square is outside [low, high] are rare (forward/rare_row.hpp): rstd or sums might leave the range.
struct SafeRange {
  double low, high;
};
inline constexpr SafeRange kSafeF32{0x1p-120, 0x1p200};
inline constexpr SafeRange kSafeF64{0x1p-500, 0x1p500};
// A rare row of f64 whose eps, scaled as its squares are, is larger has the rstd of eps alone.
inline constexpr double kLargestScaledEps = 0x1p500;
// In f32 arithmetic every row is rare if eps is larger: rstd would be subnormal and lose digits.
inline constexpr double kLargestEpsF32 = 0x1p251;

// Rows with mean^2 up to this fraction of var are normalised without subtracting the mean (docs/numerics.md).
inline constexpr double kNearZero = 0.8125;

inline constexpr double kLargestInt8 = 127;  // of an i8 y

// Sums over rows are kept per row block, two f64 for each column. The number of row blocks depends only on the
// problem's size (of whole rows, which processes may share). All their sums stay below 1/8 of x, or are two blocks of
// at most 1,024 columns, so that two threads can share few rows.
inline constexpr std::size_t kMaxRowBlocks = 256, kLeastOfTwo = 32768;  // elements of x
constexpr std::size_t least_rows_of_block(DType x) { return 256 / bytes_of(x); }
constexpr std::size_t row_blocks(DType x, std::size_t rows, std::size_t whole_cols) {
  const std::size_t blocks = std::clamp(rows / least_rows_of_block(x), std::size_t{1}, kMaxRowBlocks);
  return blocks == 1 && whole_cols <= kBlock && rows * whole_cols >= kLeastOfTwo ? 2 : blocks;
}
// The start of share i if units are split evenly into `shares`: row blocks, and what threads take.
constexpr std::size_t share_start(std::size_t units, std::size_t shares, std::size_t i) {
  return units / shares * i + units % shares * i / shares;
}

// The backward pass adds in the arithmetic's type along short chains, and adds these wide. A row's chain takes so many
// slices of kLanes columns, a column's chain so many rows.
inline constexpr std::size_t kChainSlices = 4, kChainRows = 4;
// The rows of a pair of chains, which are added before they are widened; in f64 arithmetic of one chain.
template <class A>
inline constexpr std::size_t kPairRows = sizeof(A) == sizeof(double) ? kChainRows : 2 * kChainRows;
template <class A>
inline constexpr std::size_t kChainsOfColumn = 2 * kPairRows<A> / kChainRows;  // of dgamma and dbeta

// The gradients of a row are rare if its rstd is outside these limits. An rstd of 0 is in range if it is given, and in
// f32 arithmetic. There, only dx is rare if c2 or k2 = c2 rstd^2 is not 0 and below kLeastK2 in magnitude.
struct RstdRange {
  double least, most;
  constexpr bool has(double rstd) const { return rstd >= least && rstd <= most; }
};
template <class A>
inline constexpr RstdRange kRstdRange = sizeof(A) == sizeof(double) ? RstdRange{0x1p-250, 0x1p250}
                                                                    : RstdRange{0x1p-32, 0x1p32};
template <class A>
constexpr bool is_rare_rstd(double rstd) {
  return rstd != 0 && !kRstdRange<A>.has(rstd);
}
inline constexpr double kLeastK2 = 0x1p-126;

}  // namespace evenorm::internal
