// The results of rows as plain data: moments of a tree's nodes, scalars of finished rows, sums over rows.
#pragma once

#include <cstddef>

#include "plan/spec.hpp"

namespace evenorm::internal {

// The moments of a node of a row's tree. mean_lo, the mean's low part, is used in f64 arithmetic.
struct MomentNode {
  double count;
  double mean, mean_lo;
  double m2;
};

// The scalars of a row that the normalise step uses. near_zero: IsNearZero() of formulas.inc. out_of_range: the row
// is rare.
struct RowScalars {
  double mean, mean_lo;
  double rstd;
  bool near_zero, out_of_range;
};

// The scalars of a row that the dx step uses. mean and rstd are those of x 2^-exponent, which is 0 unless the row is
// rare in f64 arithmetic. c1 = mean(g) and c2 = mean(g xhat).
struct GradientScalars {
  double mean, mean_lo;
  double rstd;
  double c1, c2;
  int exponent;
  bool rare;     // see rows/backward_rare.cpp
  bool rare_dx;  // only its dx is, or all of it
};

// The sums of g and of g (centre - x) over blocks of a row.
struct GradientNode {
  double g, gd;
};

// Sums over rows, from column `first` on: dgamma, then dbeta, `stride` numbers of each. `chains` are the rows that have
// not been added to them yet: two times chain_length() numbers of the arithmetic's type.
struct ColumnSums {
  double* values = nullptr;
  std::size_t first = 0;
  std::size_t stride = 0;
  void* chains = nullptr;
};

}  // namespace evenorm::internal
