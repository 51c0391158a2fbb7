// Rows of f64 arithmetic whose x, dy or gamma would leave the range on the way: scaled by powers of two, element by
// element, in double-double. Rows that hold a NaN or an infinity come out as they should here, too.
#pragma once

#include <cstddef>

#include "kernels/kernels.hpp"
#include "plan/numbers.hpp"
#include "rows/wide.hpp"

namespace evenorm::internal {

// Below all others, even twice.
inline constexpr int kExponentOfZero = -100000;

// One row, given its scalars.
class ScaledGradient {
 public:
  using W = plain::Number<double>;

  explicit ScaledGradient(const GradientScalars& s) : s_(s) {}

  // The largest exponents of g and of g (x - mean) in n elements, where they are above what is there.
  void find_exponents(const double* x, const double* dy, const double* gamma, std::size_t n, int* g, int* gd) const;

  // Adds n elements to a row's sums of g 2^-c1_exponent and g (x - mean) 2^-c2_exponent, as it is without rstd's. dy
  // and gamma are not scaled each by its largest: where one is huge the other may be tiny, and the products that matter
  // be subnormal.
  void sum(const double* x, const double* dy, const double* gamma, std::size_t n, W* g, W* gd) const;

  // Adds n elements to the sums over rows. Factors keep exponents of their own until they are multiplied: beside a huge
  // x or dy, one would else be subnormal.
  void add_to_columns(const double* x, const double* dy, std::size_t n, const ColumnPlaces& to) const;

  // dx of n elements; `zero`: it is 0 by definition. Terms keep exponents of their own until they are added: beside a
  // huge dy, a g_i or xhat_i c2 that is all of dx_i would else be subnormal.
  void map(bool zero, const double* x, const double* dy, const double* gamma, std::size_t n, double* dx) const;

 private:
  // value 2^exponent; 0 has an exponent below all others.
  struct Term {
    W value;
    int exponent;
    W below(int largest) const { return shifted(value, exponent - largest); }
  };
  static W shifted(const W& w, int by);
  static Term normalised(const W& w, int exponent);
  Term rstd_term() const;
  static Term g_term(double dy, double gamma);
  static Term product(const Term& a, const Term& b);
  Term centred_term(double x) const;

  const GradientScalars& s_;
};

}  // namespace evenorm::internal
