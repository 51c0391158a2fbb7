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

// The scalars of a row that the normalise step uses. near_zero: IsNearZero() of statistics.inc. extreme: the row is out
// of range and must take the scaled path.
struct RowScalars {
  double mean_hi, mean_lo;
  double rstd;
  bool near_zero, extreme;
};

// The scalars of a row that the dx step uses, as hi + lo where lo is used (f64 arithmetic). mean is the mean of x
// 2^-x_exponent. rstd 2^rstd_exponent is the row's rstd, c1 2^c1_exponent = mean(g) and c2 2^c2_exponent = mean(g
// xhat). The exponents are 0 unless the row is scaled.
struct GradientScalars {
  double mean_hi, mean_lo;
  double rstd, rstd_lo;
  double c1_hi, c1_lo;
  double c2_hi, c2_lo;
  int x_exponent, rstd_exponent, c1_exponent, c2_exponent;
  bool scaled;      // the row's sums have exponents of their own
  bool scaled_map;  // dx is computed so, too: always if the sums are, and if k2 is tiny
};

// The sums of g and of g (x - mean) over blocks of a row.
struct GradientNode {
  double g_hi, g_lo, gd_hi, gd_lo;
};

// Sums over consecutive blocks of a row, like BlockSums: of g 2^-g_exponent and of g (x - mean) 2^-gd_exponent. The
// exponents are 0 unless the row is scaled element by element.
struct GradientSums {
  GradientNode sums;
  int g_exponent = 0, gd_exponent = 0;
  bool scaled = false;
};

// Sums over rows, from column `first` on: dgamma, dbeta and, in f64 arithmetic, the low parts of both. Each takes
// `stride` numbers.
struct ColumnSums {
  double* values = nullptr;
  std::size_t first = 0;
  std::size_t stride = 0;
};

}  // namespace evenorm::internal
