// The accuracy of gradients, as docs/numerics.md bounds it: how errors of dx, dgamma and dbeta are measured.
// Knows nothing of how gradients are computed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "contracts/accuracy.hpp"
#include "reference/reference.hpp"

namespace evenorm::contracts {

// What is proved, for sums over up to 2^13 rows. Per row, h_i = |xhat_i| + e, e as docs/numerics.md has it.
struct GradientLimits {
  double dx;      // u rstd (|g_i| + mean|g| + h_i mean(|g| h))
  double dgamma;  // u sum over rows of |dy_i| h_i
  double dbeta;   // u sum over rows of |dy_i|
};
GradientLimits gradient_limits(const Operation& op);

struct GradientErrors {
  double dx = 0;  // each in the units of its limit, gradient_limits()
  double dgamma = 0;
  double dbeta = 0;

  void include(const GradientErrors& other);
  bool within_limits(const Operation& op) const;  // false for a NaN
};

// All rows of a backward pass in the reference's eyes; made once, compared with every target.
class ExpectedGradients {
 public:
  // x and dy: whole rows of op.cols finite elements.
  ExpectedGradients(const Operation& op, const Array& x, const Array& dy, const Array& weight);

  // dx: as many elements as x; dgamma, dbeta: op.cols. Of the arithmetic's type, or of a smaller one that they were
  // rounded to once. An empty array counts as absent.
  GradientErrors errors_of(const Array& dx, const Array& dgamma, const Array& dbeta) const;

 private:
  // Real results, each with what its error is measured in, u left out.
  struct Bounded {
    std::vector<Pair> exact;
    std::vector<long double> terms;  // the bound's magnitude: below f64's range it is not 0
    std::vector<double> quanta;      // how many of the arithmetic's smallest numbers are allowed besides
  };
  void add_row(std::span<const reference::Real> x, std::span<const reference::Real> dy,
               const reference::Parameters& parameters, reference::ParameterGradients& sums);
  double error_of(const Array& values, const Bounded& expected, double limit) const;

  Operation op_;
  Bounded dx_, dgamma_, dbeta_;
};

}  // namespace evenorm::contracts
