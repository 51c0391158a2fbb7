// The interface between the target-independent code and the kernels: one table of row functions per SIMD target.
// The constants here are part of the specification of the bits (docs/numerics.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "problem.hpp"

namespace evenorm::internal {

inline constexpr std::size_t kLanes = 16;    // virtual lanes that a block's sums are kept in
inline constexpr std::size_t kBlock = 1024;  // columns per block
static_assert(kBlock % kLanes == 0);

// A block's squares are summed again about its mean where less than this share of them is left after the mean is
// taken out: for f32 and smaller types, and for f64. docs/numerics.md derives the error that remains.
inline constexpr double kSecondLookF32 = 0x1p-16;
inline constexpr double kSecondLookF64 = 0x1p-40;

// Rows whose mean square lies outside [low, high] are scaled by a power of two before anything else.
struct SafeRange {
  double low, high;
};
inline constexpr SafeRange kSafeF32{0x1p-120, 0x1p200};
inline constexpr SafeRange kSafeF64{0x1p-800, 0x1p960};
// Above it every row of f32 arithmetic is scaled: rstd would be subnormal there, with digits lost.
inline constexpr double kLargestEpsF32 = 0x1p251;

// The moments of a node of a row's tree: Moments without an exponent.
struct MomentNode {
  double count;
  double mean_hi, mean_lo;
  double m2_hi, m2_lo;
};

// What the map needs of a row. `extreme`: the row must go through the scaled path instead.
struct RowScalars {
  double mean_hi, mean_lo;
  double rstd;
  bool extreme;
};

// Converts n elements; exact when widening, rounded once to nearest even when narrowing.
using ConvertFunction = void(const void* from, void* to, std::size_t n) noexcept;

// Keyed by the type of the arithmetic (index_of(f64), index_of(f32)) and, where x and y have one type, by that type.
struct RowFunctions {
  // Rows [first, first + count) of the problem, x to y.
  using Forward = void(const Problem&, std::size_t first, std::size_t count) noexcept;
  // Blocks [first, first + count) of one row; 2^k blocks from a multiple of 2^k on are a subtree of the join.
  using BlockMoments = void(const Problem&, std::size_t row, std::size_t first, std::size_t count,
                            MomentNode*) noexcept;
  // The moments of parts, which are blocks, of all rows, numbered row by row: parts [first, first + count), from
  // moments[first] on. Not finite where an element is not; rows of f64 scaled where they need it.
  using Parts = void(const Problem&, std::size_t first, std::size_t count, Moments* moments) noexcept;
  // Joins parts from left to right.
  using JoinParts = Moments(Kind kind, const Moments* parts, std::size_t count) noexcept;
  // Joins the moments of equal subtrees (the last may be smaller), finishes the row and stores its statistics.
  using FinishRow = void(const Problem&, std::size_t row, const MomentNode*, std::size_t count, RowScalars*) noexcept;
  // Maps blocks [first, first + count) of one row.
  using MapBlocks = void(const Problem&, std::size_t row, const RowScalars&, std::size_t first,
                         std::size_t count) noexcept;

  std::array<Forward*, kDTypeCount> forward;             // by row_type()
  std::array<BlockMoments*, kDTypeCount> block_moments;  // likewise
  std::array<FinishRow*, kDTypeCount> finish_row;        // likewise
  std::array<MapBlocks*, kDTypeCount> map_blocks;        // likewise
  std::array<Parts*, kDTypeCount> parts;                 // likewise
  std::array<JoinParts*, 2> join_parts;                  // by the type of the arithmetic

  std::array<std::array<ConvertFunction*, kDTypeCount>, kDTypeCount> convert;  // [from][to]; to or from is f32 or f64
};

// The type whose row functions a problem runs: that of x and y where they agree and need no f64 arithmetic,
// else that of the arithmetic, with x and y converted block by block.
inline DType row_type(const Problem& p) {
  const DType arithmetic = arithmetic_type(p);
  const bool agree = p.x.dtype == p.y.dtype && (p.y2.data == nullptr || p.x.dtype == p.y2.dtype);
  return agree && (p.x.dtype == DType::f64) == (arithmetic == DType::f64) ? p.x.dtype : arithmetic;
}

}  // namespace evenorm::internal
