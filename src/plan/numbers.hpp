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

// What of a row's gradients is rare, and so computed in f64: nothing, only dx, or all of the row.
enum class Rare : unsigned char { nothing, dx, row };

// The scalars of a row that the dx step uses. mean and rstd are those of x 2^-exponent, which is 0 unless the row is
// rare in f64 arithmetic. c1 = mean(g) and c2 = mean(g xhat).
struct GradientScalars {
  double mean = 0, mean_lo = 0;
  double rstd = 0;
  double c1 = 0, c2 = 0;
  int exponent = 0;
  Rare rare = Rare::nothing;
};

// The sums of g and of g (centre - x) over blocks of a row.
struct GradientNode {
  double g, gd;
};

}  // namespace evenorm::internal
