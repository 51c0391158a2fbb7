// The results of rows as plain data: moments of a tree's nodes, scalars of finished rows, sums over rows.
#pragma once

#include <cstddef>

#include "plan/spec.hpp"

namespace evenorm::internal {

// The moments of a node of a row's tree: like Moments, but without an exponent.
struct MomentNode {
  double count;
  double mean_hi, mean_lo;
  double m2_hi, m2_lo;
};

// The scalars of a row that the normalise step uses. near_zero: IsNearZero() of statistics.inc. out_of_range: the row
// is out of range and must take the scaled path.
struct RowScalars {
  double mean_hi, mean_lo;
  double rstd;
  bool near_zero, out_of_range;
};

// The scalars of a row that the dx step uses, as hi + lo where lo is used (f64 arithmetic). mean is the mean of x
// 2^-x_exponent. rstd 2^rstd_exponent is the row's rstd, c1 2^c1_exponent = mean(g) and c2 2^c2_exponent = mean(g
// xhat). The exponents are 0 unless the row is wide.
struct GradientScalars {
  double mean_hi, mean_lo;
  double rstd, rstd_lo;
  double c1_hi, c1_lo;
  double c2_hi, c2_lo;
  int x_exponent, rstd_exponent, c1_exponent, c2_exponent;
  bool wide;     // computed in wider numbers: rows/wide_gradient.hpp
  bool wide_dx;  // only its dx is, or all of it
};

// The sums of g and of g (centre - x) over blocks of a row.
struct GradientNode {
  double g_hi, g_lo, gd_hi, gd_lo;
};

// The same of g 2^-g_exponent and of g (centre - x) 2^-gd_exponent. The exponents are 0 unless a block is wide.
struct GradientSums {
  GradientNode sums;
  int g_exponent = 0, gd_exponent = 0;
};

// Sums over rows, from column `first` on: dgamma, dbeta and, in f64 arithmetic, the low parts of both. Each takes
// `stride` numbers. `chains` are the rows that have not been added to them yet: two times chain_length(stride) numbers
// of the arithmetic's type.
struct ColumnSums {
  double* values = nullptr;
  std::size_t first = 0;
  std::size_t stride = 0;
  void* chains = nullptr;
};

}  // namespace evenorm::internal
