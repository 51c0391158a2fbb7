// What a worker's scratch holds during a pass: every piece, its place and its size, as a function of the problem alone.
// The drivers take what is planned here and nothing else; validation refuses a problem whose plan is too large.
// Plain C++; knows nothing of SIMD. No bit depends on any of it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "plan/numbers.hpp"
#include "plan/spec.hpp"
#include "plan/tuning.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// With what else a pass keeps on the stack of a worker or of the calling thread, below the 64 KiB that are promised: of
// a forward pass by its arithmetic, of a backward pass. On x86 16 gathered rows of 768 columns of f32 just fit.
constexpr std::size_t forward_scratch_bytes(DType arithmetic) {
  return std::size_t{arithmetic == DType::f64 ? 796U : 833U} * 64;
}
inline constexpr std::size_t kGradientScratchBytes = std::size_t{720} * 64;

inline constexpr std::size_t kLine = 64;  // bytes of a cache line

// Nodes of a row's tree that wait to be joined: one for each level. The most that any row of kMaxCols columns has.
inline constexpr std::size_t kMaxNodes = 40;
constexpr std::size_t nodes_for(std::size_t parts) { return static_cast<std::size_t>(std::bit_width(parts)); }
static_assert(nodes_for(blocks_of(kMaxCols)) <= kMaxNodes);

// Bytes [offset, offset + bytes) of scratch, from a cache line on; absent where there are none.
struct Piece {
  std::uint32_t offset = 0, bytes = 0;
};

// gamma or beta in the arithmetic's type; no piece where it is used where it lies.
struct ParameterPlan {
  Piece values;
  bool whole = false;  // all columns, converted once; else a block at each use
};

// The tensors whose rows are not dense, gathered: rows by columns, `..._bytes` from one row to the next. One piece for
// both where elements have one size: results take the place of what they were made from.
struct TilePlan {
  std::size_t rows = 0, cols = 0;  // 0 rows: both tensors have dense rows
  std::size_t x_bytes = 0, y_bytes = 0;
  Piece x, y;
};

// Outputs that the caches would not hold are written past them, by non-temporal stores; x that they would not hold is
// prefetched.
struct CacheUse {
  bool stream_y = false, stream_sum = false;
  bool fetch_x = false;
};

struct ForwardScratch {
  Piece x, y, sum;  // a block of each in the arithmetic's type, of no more columns than there are
  Piece raw;        // kRawColumns of a parameter
  ParameterPlan gamma, beta;
  Piece nodes;  // of the trees of rows of several blocks, or of one row that is scaled
  TilePlan tile;
  Piece lane_sums, row_nodes;     // of each row of a tile that holds pieces of rows
  std::size_t group = 0;          // short rows that go together
  std::size_t rows_together = 1;  // rows of several blocks that go together in the caches
  std::size_t rows_ahead = 0;     // of those that go alone: how far their sums are before their map
  // The fused forms.
  Piece y2;
  ParameterPlan gamma2, beta2;
  Piece ring;                                   // sums of rows on their way from their reduction to their map
  std::size_t ring_rows = 0, ring_bytes = 0;    // how many, and from one to the next
  bool sums_in_tensor = false;                  // such sums wait where the sum or y goes
  Piece values;                                 // an i8 y before it is rounded
  std::size_t value_rows = 0, value_bytes = 0;  // how many rows at once, and from one to the next
  bool holds_row = false;                       // all of a row; else a block
  std::size_t bytes = 0;                        // of all pieces
};
ForwardScratch forward_scratch(const Problem& p, CacheUse cache) noexcept;

// Of blocks of one row, for its moments alone.
struct BlockScratch {
  Piece converted, tile;
  std::size_t bytes = 0;
};
BlockScratch block_scratch(const Problem& p) noexcept;
inline constexpr std::size_t kBlockScratchBytes = 2 * kBlock * sizeof(double);

// One row's blocks, or pieces of them. What is converted is gathered before for a moment only: all such tiles are one
// piece.
struct RowPlan {
  Piece tile, converted;
};
// The spec's numbers, of a problem.
inline std::size_t column_numbers(const GradientProblem& p) { return column_numbers(arithmetic_type(p)); }
// How the sums of `cols` columns over the rows of a row block lie in scratch: column_numbers() f64 a column, then two
// chains in the arithmetic's type, each with room for whole vectors.
inline std::size_t chain_length(std::size_t cols) { return (cols + kLanes - 1) / kLanes * kLanes; }
inline std::size_t sums_bytes(const GradientProblem& p, std::size_t cols) {
  return column_numbers(p) * cols * sizeof(double) + 2 * chain_length(cols) * bytes_of(arithmetic_type(p));
}
inline std::size_t row_blocks(const GradientProblem& p) {
  return row_blocks(arithmetic_type(p), p.x.dtype, p.rows, p.whole_cols);
}

struct GradientScratch {
  Piece nodes;        // of a row's trees: of moments, then of sums
  RowPlan whole_row;  // x by blocks
  RowPlan x, dy;      // by pieces
  Piece raw;
  ParameterPlan gamma;
  RowPlan dx;
  Piece aside;       // dx, where it takes the place of what it is made from, or is not asked for
  Piece strip_sums;  // over rows, of the columns of a piece, and their chains
  std::size_t bytes = 0;
};
GradientScratch gradient_scratch(const GradientProblem& p) noexcept;

// The type of a backward pass's kernels: that of x, dy and dx where all are of one 16-bit type, their rows are
// dense and dx is apart; else the arithmetic's, to which blocks of others are converted.
DType gradient_type(const GradientProblem& p) noexcept;

// Is there scratch for all that a run of the problem can plan, whatever it finds of the caches?
inline constexpr const char* kTooLarge = "the columns, types and layouts need more scratch than a worker has";

}  // namespace evenorm::internal
