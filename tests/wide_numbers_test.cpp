// The wide arithmetic of statistics compared with binary128: accumulating pairs of f64 loses only their last places.
#include <gtest/gtest.h>

#include <cmath>

#include "contracts/inputs.hpp"
#include "reference/reference.hpp"
#include "rows/wide.hpp"

namespace evenorm::internal {
namespace {

using Exact = reference::Real;
using Pair = plain::Number<double>;

Exact exact(const Pair& a) { return static_cast<Exact>(a.hi) + a.lo; }

// A number with any of the first `places` binary places, of any sign.
double number(contracts::Random& random, int places) {
  const int exponent = static_cast<int>(random.uniform() * (2 * places)) - places;
  return std::ldexp(random.uniform() < 0.5 ? -1 - random.uniform() : 1 + random.uniform(), exponent);
}

void expect_near(const Pair& got, Exact wanted, Exact magnitude) {
  const Exact error = exact(got) - wanted;
  EXPECT_LE(static_cast<double>((error < 0 ? -error : error) / magnitude), 0x1p-103)
      << got.hi << " + " << got.lo << " for " << static_cast<double>(wanted);
}

// Squares below and above the accumulated sum, of numbers near each other and far apart.
TEST(WideNumbers, SquaresAccumulate) {
  contracts::Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const int places = i % 2 == 0 ? 3 : 60;
    const double q = std::abs(number(random, places)), x = number(random, places / 2);
    Pair sum{q, q * 0x1p-60};
    const Exact wanted = exact(sum) + static_cast<Exact>(x) * x;
    plain::AccumulateSquare(plain::kOne, sum, x);
    expect_near(sum, wanted, wanted);
  }
}

// Numbers and products of either sign. Errors are relative to their magnitudes, because they may cancel.
TEST(WideNumbers, NumbersAndProductsAccumulate) {
  contracts::Random random(4);
  for (int i = 0; i < 20000; ++i) {
    const int places = i % 2 == 0 ? 3 : 60;
    const double s = number(random, places), a = number(random, places / 2), b = number(random, places / 2);
    Pair sum{s, 0}, products{s, 0};
    const Exact product = static_cast<Exact>(a) * b, magnitude = std::abs(s);
    plain::AccumulateSum(plain::kOne, sum, a);
    expect_near(sum, static_cast<Exact>(s) + a, magnitude + std::abs(a));
    plain::AccumulateProduct(plain::kOne, products, Pair{a, 0}, b);
    expect_near(products, s + product, magnitude + (product < 0 ? -product : product));
  }
}

}  // namespace
}  // namespace evenorm::internal
