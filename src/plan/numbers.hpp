// What rows leave behind: moments of a tree's nodes, scalars of finished rows, sums over rows. Plain data.
#pragma once

#include <cstddef>

#include "plan/spec.hpp"

namespace evenorm::internal {

// The moments of a node of a row's tree: Moments without an exponent.
struct MomentNode {
  double count;
  double mean_hi, mean_lo;
  double m2_hi, m2_lo;
};

// What the map needs of a row. near_zero: as IsNearZero() of statistics.inc has it. extreme: the row must go through
// the scaled path instead.
struct RowScalars {
  double mean_hi, mean_lo;
  double rstd;
  bool near_zero, extreme;
};

// What dx of a row is made of; hi + lo where lo is used (f64 arithmetic). mean is that of x 2^-x_exponent,
// rstd 2^rstd_exponent that of the row itself, c1 2^c1_exponent = mean(g), c2 2^c2_exponent = mean(g xhat). The
// exponents are 0 unless the row is wide.
struct GradientScalars {
  double mean_hi, mean_lo;
  double rstd, rstd_lo;
  double c1_hi, c1_lo;
  double c2_hi, c2_lo;
  int x_exponent, rstd_exponent, c1_exponent, c2_exponent;
  bool wide;  // the row leaves the arithmetic's range on the way: rows/wide_gradient.hpp
};

// Sums over blocks of a row: of g and of g (centre - x).
struct GradientNode {
  double g_hi, g_lo, gd_hi, gd_lo;
};

// The same of g 2^-g_exponent and of g (centre - x) 2^-gd_exponent. The exponents are 0 unless a block is wide.
struct GradientSums {
  GradientNode sums;
  int g_exponent = 0, gd_exponent = 0;
};

// Sums over rows, from column `first` on: dgamma and dbeta, then, in f64 arithmetic, the low parts of both, each in a
// run of `stride` numbers; and the chains of rows on their way to them, two runs of chain_length(stride) numbers of the
// arithmetic's type.
struct ColumnSums {
  double* values = nullptr;
  std::size_t first = 0;
  std::size_t stride = 0;
  void* chains = nullptr;
};

}  // namespace evenorm::internal
