// The reference compared with independently known numbers: worked examples, the C++ conversions, closed forms.
#include "reference/reference.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "contracts/inputs.hpp"

namespace evenorm::reference {
namespace {

using contracts::Random;

double decoded(DType dtype, std::uint64_t bits) { return static_cast<double>(widen(dtype, &bits, 1)[0]); }

std::uint64_t bits_of(double v) { return std::bit_cast<std::uint64_t>(v); }
std::uint64_t bits_of(float v) { return std::bit_cast<std::uint32_t>(v); }

TEST(Reference_Decoding, AllBf16AreTheUpperHalvesOfF32) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto expected = static_cast<double>(std::bit_cast<float>(bits << 16));
    const double value = decoded(DType::bf16, bits);
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(value) : bits_of(value) == bits_of(expected)) << bits;
  }
}

TEST(Reference_Decoding, AllF16AreTheirFractionsTimesPowersOfTwo) {
  for (std::uint32_t bits = 0; bits < 32768; ++bits) {
    const int exponent = static_cast<int>(bits >> 10);
    const int fraction = static_cast<int>(bits & 1023);
    const double value = decoded(DType::f16, bits), negative = decoded(DType::f16, bits | 32768);
    if (exponent == 31) {
      EXPECT_EQ(std::isinf(value), fraction == 0) << bits;
      EXPECT_EQ(std::isnan(value), fraction != 0) << bits;
      continue;
    }
    const double expected = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(value, expected) << bits;
    EXPECT_EQ(bits_of(negative), bits_of(-expected)) << bits;
  }
}

TEST(Reference_Decoding, F32AndF64AreExact) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t bits = random.next();
    const auto wide = std::bit_cast<double>(bits);
    if (wide == wide) {
      EXPECT_EQ(bits_of(decoded(DType::f64, bits)), bits);
    }
    const auto narrow = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (narrow == narrow) {
      EXPECT_EQ(bits_of(decoded(DType::f32, bits & 0xFFFFFFFF)), bits_of(static_cast<double>(narrow)));
    }
  }
  EXPECT_EQ(decoded(DType::f32, 1), 0x1p-149);
  EXPECT_EQ(decoded(DType::f64, 1), 0x1p-1074);
}

// Stored values round to themselves. Between neighbours a and b, numbers below the midpoint round to a, those above it
// to b, and the midpoint to the even one.
TEST(Reference_Rounding, IsToNearestEvenAroundEveryMidpoint) {
  constexpr auto kTiny = static_cast<Real>(0x1p-60);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::uint64_t infinity = dtype == DType::bf16 ? 0x7F80 : 0x7C00;
    for (std::uint64_t a = 0; a + 1 < infinity; ++a) {
      const std::uint64_t b = a + 1;
      const Real low = widen(dtype, &a, 1)[0], high = widen(dtype, &b, 1)[0];
      const Real middle = (low + high) / 2, little = (high - low) * kTiny;
      EXPECT_EQ(round_to(dtype, low), a);
      EXPECT_EQ(round_to(dtype, -low), a | 0x8000);
      EXPECT_EQ(round_to(dtype, middle - little), a);
      EXPECT_EQ(round_to(dtype, middle), a % 2 == 0 ? a : b);
      EXPECT_EQ(round_to(dtype, middle + little), b);
      EXPECT_EQ(round_to(dtype, -middle - little), b | 0x8000);
    }
  }
}

TEST(Reference_Rounding, OverflowsFromHalfAStepAboveTheLargest) {
  EXPECT_EQ(round_to(DType::f16, 65519.99), 0x7BFFu);
  EXPECT_EQ(round_to(DType::f16, 65504), 0x7BFFu);
  EXPECT_EQ(round_to(DType::bf16, std::numeric_limits<double>::infinity()), 0x7F80u);
  EXPECT_EQ(round_to(DType::f16, 65520), 0x7C00u);
  EXPECT_EQ(round_to(DType::f16, -65520), 0xFC00u);
  EXPECT_EQ(round_to(DType::bf16, 0x1.FEFFFFp127), 0x7F7Fu);
  EXPECT_EQ(round_to(DType::bf16, 0x1.FFp127), 0x7F80u);
  EXPECT_EQ(round_to(DType::f32, 0x1.FFFFFEFFFFp127), 0x7F7FFFFFu);
  EXPECT_EQ(round_to(DType::f32, 0x1.FFFFFFp127), 0x7F800000u);
  const Real largest = std::numeric_limits<double>::max();
  const Real half_step = 0x1p970;
  EXPECT_EQ(round_to(DType::f64, largest + half_step * static_cast<Real>(0.99)), 0x7FEFFFFFFFFFFFFFu);
  EXPECT_EQ(round_to(DType::f64, largest + half_step), 0x7FF0000000000000u);
}

TEST(Reference_Rounding, OfF32EqualsTheCompilers) {
  Random random(2);
  for (int i = 0; i < 1000000; ++i) {
    // Exponents from below f32's subnormals to above its largest number.
    const std::uint64_t exponent = 1023 - 155 + random.below(290);
    const auto value = std::bit_cast<double>((random.next() & 0x800FFFFFFFFFFFFF) | (exponent << 52));
    EXPECT_EQ(round_to(DType::f32, value), bits_of(static_cast<float>(value))) << value;
  }
}

TEST(Reference_Rounding, HandlesF64SubnormalsAndSpecialValues) {
  const Real quantum = 0x1p-1074;
  EXPECT_EQ(round_to(DType::f64, quantum / 2), 0u);
  EXPECT_EQ(round_to(DType::f64, quantum * static_cast<Real>(0.5000001)), 1u);
  EXPECT_EQ(round_to(DType::f64, quantum * static_cast<Real>(1.5)), 2u);
  EXPECT_EQ(round_to(DType::f64, quantum * static_cast<Real>(2.5)), 2u);
  EXPECT_EQ(round_to(DType::f64, -quantum / 4), 0x8000000000000000u);
  EXPECT_EQ(round_to(DType::f64, static_cast<Real>(-0.0)), 0x8000000000000000u);
  const Real nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(round_to(DType::f64, -nan), 0x7FF8000000000000u);
  EXPECT_EQ(round_to(DType::f32, -nan), 0x7FC00000u);
  EXPECT_EQ(round_to(DType::bf16, nan), 0x7FC0u);
  EXPECT_EQ(round_to(DType::f16, nan), 0x7E00u);
}

std::vector<Real> wide(std::initializer_list<double> values) { return {values.begin(), values.end()}; }

void expect_near(const std::vector<Real>& values, std::initializer_list<double> expected, double tolerance = 1e-15) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(values[i]), expected.begin()[i], tolerance) << i;
  }
}

TEST(Reference_LayerNorm, ReproducesTheWorkedVector) {
  const auto x = wide({4, 2, 8}), gamma = wide({1.5, 1, 0.5}), beta = wide({0.5, 0, -0.5});
  const Moments m = moments(Kind::layer, x);
  expect_near({m.mean, m.var}, {14.0 / 3, 56.0 / 9});
  expect_near(apply(x, m, rstd(m, 1e-5), {gamma, beta, false}), {0.0991, -1.0690, 0.1682}, 5e-5);
}

TEST(Reference_LayerNorm, IsExactFarBeyondF64) {
  // The mean is 1e30 and the deviations are -1, 0, 1, which f64 would lose.
  const Real far = 1e30;
  const std::vector<Real> x = {far - 1, far, far + 1};
  const Moments m = moments(Kind::layer, x);
  EXPECT_TRUE(m.mean == far);
  expect_near({m.var, largest_xhat(x, m, rstd(m, 0))}, {2.0 / 3, std::sqrt(1.5)});
}

TEST(Reference_LayerNorm, HasRstdToTwiceThePrecisionOfF64) {
  const Real r = rstd({0, 2}, 0);
  const Real residual = 2 * r * r - 1;
  EXPECT_LT(std::fabs(static_cast<double>(residual)), 1e-33);
}

TEST(Reference_LayerNorm, ConstantRowIsBetaAndZeroVarianceHasZeroRstd) {
  const auto x = wide({0.1, 0.1, 0.1}), beta = wide({1, 2, 3});
  const Moments m = moments(Kind::layer, x);
  EXPECT_TRUE(m.var == 0);
  EXPECT_TRUE(rstd(m, 0) == 0);
  EXPECT_TRUE(rstd(m, 0.25) == 2);
  EXPECT_TRUE(apply(x, m, rstd(m, 1e-5), {{}, beta, false}) == beta);
  EXPECT_TRUE(apply(x, m, rstd(m, 0), {{}, beta, false}) == beta);
}

TEST(Reference_RmsNorm, HasNoMean) {
  const auto x = wide({3, 4}), gamma = wide({1, -0.5});
  const Moments m = moments(Kind::rms, x);
  EXPECT_TRUE(m.mean == 0);
  EXPECT_EQ(static_cast<double>(m.var), 12.5);
  expect_near(apply(x, m, rstd(m, 0), {gamma, {}, true}), {6 / std::sqrt(12.5), 2 / std::sqrt(12.5)});
}

TEST(Reference_LayerNorm, ANanAnywhereMakesTheWholeRowNan) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const Kind kind : {Kind::layer, Kind::rms}) {
      const auto x = wide({1, bad, 2});
      const Moments m = moments(kind, x);
      EXPECT_TRUE(m.mean != m.mean && m.var != m.var);
      for (const Real y : apply(x, m, rstd(m, 1e-5), {})) EXPECT_TRUE(y != y);
    }
  }
}

TEST(Reference_LayerNorm, HandlesSquaresBeyondF64) {
  for (const double size : {1e300, 0x1p-1074}) {
    const auto x = wide({-size, size});
    const Moments m = moments(Kind::layer, x);
    expect_near(apply(x, m, rstd(m, 0), {}), {-1, 1});
  }
}

}  // namespace
}  // namespace evenorm::reference
