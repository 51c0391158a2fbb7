// The interface between the target-independent code and the kernels of the backward pass: one table per SIMD target.
// The constants here are part of the specification of the bits (docs/numerics.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "dispatch.hpp"
#include "problem.hpp"

namespace evenorm::internal {

// Sums over rows are kept in so many f64 for each column, and cut by blocks of rows: how many, by the problem's size
// alone, and where one begins. Their sums, 16 bytes a column in f32 arithmetic and 32 in f64 arithmetic, stay below 1/8
// of x.
inline constexpr std::size_t kMaxRowBlocks = 256;
inline std::size_t column_numbers(const GradientProblem& p) { return arithmetic_type(p) == DType::f64 ? 4 : 2; }
inline std::size_t row_blocks(const GradientProblem& p) {
  const std::size_t least = 128 * column_numbers(p) / bytes_of(p.x.dtype);  // rows of a block
  return std::clamp(p.rows / least, std::size_t{1}, kMaxRowBlocks);
}
inline std::size_t row_block_start(std::size_t rows, std::size_t blocks, std::size_t block) {
  return rows / blocks * block + rows % blocks * block / blocks;
}

// A row's rstd in f32 arithmetic for which dx is computed in f32; outside, and where that is not finite, in f64.
inline constexpr double kLeastMapRstd = 0x1p-32, kLargestMapRstd = 0x1p32;
// In f64 arithmetic: rows with rstd outside [1/2^300, 2^300], or with a |dy| outside that is not 0, or with an |x|
// below 2^-500 that is not 0, are scaled by powers of two, and all rows where some |gamma| is outside [1/2^100, 2^100]
// and not 0: what is left, and products of it, keep all their digits. Of the others, rows whose c2 or k2 = c2 rstd^2 is
// below 2^-960 are mapped so.
inline constexpr double kLargestF64 = 0x1p300, kLargestGammaF64 = 0x1p100, kLeastXF64 = 0x1p-500;
inline constexpr double kLeastK2F64 = 0x1p-960;

// What dx of a row is made of; hi + lo where lo is used (f64 arithmetic). mean is that of x 2^-x_exponent,
// rstd 2^rstd_exponent that of the row itself, c1 2^c1_exponent = mean(g), c2 2^c2_exponent = mean(g xhat). The
// exponents are 0 unless the row is scaled.
struct GradientScalars {
  double mean_hi, mean_lo;
  double rstd, rstd_lo;
  double c1_hi, c1_lo;
  double c2_hi, c2_lo;
  int x_exponent, rstd_exponent, c1_exponent, c2_exponent;
  bool scaled;      // are the row's sums taken with exponents of their own?
  bool scaled_map;  // and is dx mapped so? Where the sums are, and where k2 is tiny
};

// Sums over blocks of a row: of g and of g (x - mean).
struct GradientNode {
  double g_hi, g_lo, gd_hi, gd_lo;
};

// Sums over rows, from column `first` on: dgamma and dbeta, then, in f64 arithmetic, the low parts of both, each in a
// run of `stride` numbers.
struct ColumnSums {
  double* values = nullptr;
  std::size_t first = 0;
  std::size_t stride = 0;
};

struct GradientFunctions {
  // dx of rows [first, first + count), where nothing is summed over rows.
  using Rows = void(const GradientProblem&, std::size_t first, std::size_t count) noexcept;
  // Row blocks [first, first + count): dx, where it is asked for, and their sums over all columns, joined, to the first
  // of `slots`, each column_numbers() * cols long; there must be as many slots as row blocks. 2^k blocks from a
  // multiple of 2^k on are a subtree of the join.
  using Blocks = void(const GradientProblem&, std::size_t first, std::size_t count, double* slots) noexcept;
  // Joins such runs of row blocks, all but the last of one length, that begin `distance` numbers apart; then writes
  // dgamma and dbeta.
  using Finish = void(const GradientProblem&, double* sums, std::size_t runs, std::size_t distance) noexcept;
  // The same in two steps, for few long rows, where there is but one row block: the scalars of some rows, one element
  // of `scalars` for each row of the problem; then all gradients of columns [first, first + count).
  using Look = void(const GradientProblem&, std::size_t first, std::size_t count, GradientScalars* scalars) noexcept;
  using Strip = void(const GradientProblem&, const GradientScalars* scalars, std::size_t first,
                     std::size_t count) noexcept;

  Rows* rows;
  Blocks* blocks;
  Finish* finish;
  Look* look;
  Strip* strip;
};

// Of a supported target, by storage type: f32 and f64; bf16 and f16, for x, dy and dx that are all of it.
const GradientFunctions& wide_gradient_functions(Target target, DType type) noexcept;
const GradientFunctions& narrow_gradient_functions(Target target, DType type) noexcept;
inline const GradientFunctions& gradient_functions(Target target, DType type) noexcept {
  const bool narrow = type == DType::bf16 || type == DType::f16;
  return narrow ? narrow_gradient_functions(target, type) : wide_gradient_functions(target, type);
}

}  // namespace evenorm::internal
