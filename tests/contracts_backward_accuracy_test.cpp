// The bound on gradients and its measure: that they see what must not pass. What must, is in
// backward_accuracy_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "contracts/backward_accuracy.hpp"
#include "support/cases.hpp"

namespace evenorm::contracts {
namespace {

// A backward pass in f32.
struct Pass {
  Case c;
  Inputs in = inputs_of(c);

  ExpectedGradients expected() const { return {c.op, in.x, in.dy, in.weight}; }
  GradientErrors of_library() const {
    const Outcome found = plain_outcome(c, in);
    return expected().errors_of(found.dx, found.dgamma, found.dbeta);
  }
};
Pass pass_of(const char* rows) {
  return {parse_case(std::string("layer f32 weight=f32 dx=f32 dgamma=f32 dbeta=f32 ") + rows)};
}

// As one writes it down at first: sums about 0 in one look, all in type T, the mean one number of type T.
template <class T>
GradientErrors naive(const Pass& pass) {
  const std::vector<double> x = values_of(pass.in.x), dy = values_of(pass.in.dy), gamma = values_of(pass.in.weight);
  const std::size_t n = pass.c.op.cols;
  const auto cols = static_cast<T>(n);
  std::vector<T> dgamma(n), dbeta(n);
  std::vector<double> dx(x.size());
  for (std::size_t first = 0; first < x.size(); first += n) {
    T sum = 0, squares = 0, sum_g = 0, sum_gx = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const T v = static_cast<T>(x[first + i]), g = static_cast<T>(dy[first + i]) * static_cast<T>(gamma[i]);
      sum += v;
      squares += v * v;
      sum_g += g;
      sum_gx += g * v;
    }
    const T mean = sum / cols, var = squares / cols - mean * mean;
    const T rstd = 1 / std::sqrt(std::max(var, T{0}) + static_cast<T>(pass.c.op.eps));
    const T mean_g = sum_g / cols, mean_g_xhat = (sum_gx - mean * sum_g) / cols * rstd;
    for (std::size_t i = 0; i < n; ++i) {
      const T xhat = (static_cast<T>(x[first + i]) - mean) * rstd, d = static_cast<T>(dy[first + i]);
      dx[first + i] = static_cast<double>((d * static_cast<T>(gamma[i]) - mean_g - xhat * mean_g_xhat) * rstd);
      dgamma[i] += d * xhat;
      dbeta[i] += d;
    }
  }
  const auto rounded = [](const auto& values) {
    return Array(DType::f32, std::vector<double>(values.begin(), values.end()));
  };
  return pass.expected().errors_of(rounded(dx), rounded(dgamma), rounded(dbeta));
}

TEST(Contract_GradientBound, SeesDbetaSummedInF32) {
  const Pass pass = pass_of("1000x8 dy:mean_1e2");
  const double limit = gradient_limits(pass.c.op).dbeta;
  EXPECT_LE(pass.of_library().dbeta, limit);
  EXPECT_GT(naive<float>(pass).dbeta, limit);
}

TEST(Contract_GradientBound, SeesNaivePasses) {
  const Pass far = pass_of("4x768 x:mean_1e6"), near = pass_of("4x768");
  EXPECT_TRUE(far.of_library().within_limits(far.c.op));
  EXPECT_GT(naive<float>(far).dx, 1e4);
  EXPECT_GT(naive<float>(far).dgamma, 1e4);
  // Even in f64: E[x^2] - mean^2 keeps 13 of 53 bits there.
  const GradientErrors in_f64 = naive<double>(far);
  EXPECT_GT(in_f64.dx, gradient_limits(far.c.op).dx);
  EXPECT_GT(in_f64.dgamma, gradient_limits(far.c.op).dgamma);
  EXPECT_TRUE(naive<double>(near).within_limits(near.c.op));
}

// One row without gamma or eps; the results are given.
GradientErrors errors_of(Kind kind, std::vector<double> x, std::vector<double> dy, std::vector<double> dx,
                         std::vector<double> dgamma, std::vector<double> dbeta, DType outputs = DType::f32,
                         double eps = 0) {
  Operation op = same_type(kind, DType::f32, x.size(), false);
  op.eps = eps;
  const ExpectedGradients expected(op, {DType::f32, x}, {DType::f32, dy}, {});
  return expected.errors_of({outputs, dx}, {outputs, dgamma}, {outputs, dbeta});
}

constexpr double kU = 0x1p-24;

// A row's worth of f32 without gamma.
Operation plain(Kind kind) { return same_type(kind, DType::f32, 2, false); }

bool within_limits(const GradientErrors& errors, Kind kind) { return errors.within_limits(plain(kind)); }

// xhat = (1, 1) and c2 = 0, so dx = dgamma = dbeta = dy; the terms are 2 for dx, 1 for the others.
GradientErrors of_rms(double dx, double dgamma, double dbeta) {
  return errors_of(Kind::rms, {1, 1}, {1, -1}, {dx, -1}, {dgamma, -1}, {dbeta, -1});
}

TEST(Contract_GradientMeasure, CountsUnitsOfRoundoff) {
  EXPECT_TRUE(within_limits(of_rms(1, 1, 1), Kind::rms));
  const GradientErrors apart = of_rms(1 + 6 * kU, 1 + 4 * kU, 1 + 2 * kU);
  EXPECT_NEAR(apart.dx, 3, 1e-9);
  EXPECT_NEAR(apart.dgamma, 4, 1e-9);
  EXPECT_NEAR(apart.dbeta, 2, 1e-9);
  EXPECT_TRUE(within_limits(of_rms(1 + 16 * kU, 1 + 8 * kU, 1 + 4 * kU), Kind::rms));
  EXPECT_FALSE(within_limits(of_rms(1 + 18 * kU, 1, 1), Kind::rms));
  EXPECT_FALSE(within_limits(of_rms(1, 1 + 10 * kU, 1), Kind::rms));
  EXPECT_FALSE(within_limits(of_rms(1, 1, 1 + 6 * kU), Kind::rms));
  // Layer norm takes the mean out, and a zero-centred gamma is rounded.
  Operation op = same_type(Kind::layer, DType::f32, 2);
  EXPECT_EQ(gradient_limits(op).dx, 10 + 0x1p-5);
  op.zero_centered = true;
  EXPECT_EQ(gradient_limits(op).dx, 11 + 0x1p-5);
}

// xhat = (1, -1), g = (1, 0), c1 = c2 = 1/2: dx is 0 by cancelling, of terms that are 2 and 1.
TEST(Contract_GradientMeasure, IsOfTheTermsWhereTheyCancel) {
  const auto of_layer = [](double first, double second) {
    return errors_of(Kind::layer, {1, -1}, {1, 0}, {first, second}, {1, 0}, {1, 0}).dx;
  };
  EXPECT_EQ(of_layer(0, 0), 0);
  EXPECT_NEAR(of_layer(8 * kU, 0), 4, 1e-5);
  EXPECT_NEAR(of_layer(0, -5 * kU), 5, 1e-5);
}

TEST(Contract_GradientMeasure, DemandsZeroWhereTheBoundIsZero) {
  const auto of_constant = [](double dx, double dgamma) {
    return errors_of(Kind::layer, {3, 3}, {1, 2}, {dx, 0}, {dgamma, 0}, {1, 2});
  };
  const auto passes = [](const GradientErrors& errors) { return within_limits(errors, Kind::layer); };
  EXPECT_TRUE(passes(of_constant(0, 0)));
  EXPECT_FALSE(passes(of_constant(0x1p-149, 0)));
  EXPECT_FALSE(passes(of_constant(0, 0x1p-149)));
  EXPECT_FALSE(passes(errors_of(Kind::layer, {3}, {1}, {0x1p-149}, {0}, {1})));
  // With eps, so that rstd is not 0.
  EXPECT_FALSE(passes(errors_of(Kind::layer, {3, 3}, {1, 1}, {0, 0}, {0x1p-149, 0}, {1, 1}, DType::f32, 1e-5)));
  EXPECT_FALSE(passes(errors_of(Kind::layer, {3}, {1}, {0x1p-149}, {0}, {1}, DType::f32, 1e-5)));
}

TEST(Contract_GradientMeasure, ForgivesTheOneRoundingToASmallerType) {
  const auto to_bf16 = [](double dbeta) {
    return errors_of(Kind::rms, {1}, {1 + 0x1p-8}, {0}, {1}, {dbeta}, DType::bf16);
  };
  EXPECT_EQ(to_bf16(1).dbeta, 0);
  EXPECT_EQ(to_bf16(1 + 0x1p-7).dbeta, 0);
  EXPECT_GT(to_bf16(1 - 0x1p-8).dbeta, gradient_limits(plain(Kind::rms)).dbeta);
}

// xhat = (1, 1) again, in f64 arithmetic: dgamma is the largest number there is, and 4 u of it leave the range.
TEST(Contract_GradientMeasure, ForgivesOnlyWhatTheBoundTakesOutOfRange) {
  const double largest = std::numeric_limits<double>::max(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto dgamma_error = [&](double dy, double dgamma) {
    Operation op = same_type(Kind::rms, DType::f64, 2, false);
    op.eps = 0;
    const auto array = [](double a, double b) { return Array(DType::f64, std::vector<double>{a, b}); };
    return ExpectedGradients(op, array(1, 1), array(dy, 0), {}).errors_of({}, array(dgamma, 0), {}).dgamma;
  };
  EXPECT_EQ(dgamma_error(largest, largest), 0);
  EXPECT_EQ(dgamma_error(largest, nan), 0);
  const double limit = gradient_limits(same_type(Kind::rms, DType::f64, 2)).dgamma;
  EXPECT_GT(dgamma_error(largest * (1 - 0x1p-44), nan), limit);
  EXPECT_GT(dgamma_error(largest / 2, largest), limit);
  // x = 2^1023 is scaled to 1, and rstd to 32. So dx of dy = 2^1019 is past the range before it is scaled back to 2.
  const auto dx_error = [](Kind kind, double other_x, double dy, std::vector<double> dx) {
    std::vector<double> x{0x1p1023}, dys{0, dy, dy / 2};
    x.resize(1024, other_x), dys.resize(1024), dx.resize(1024);
    Operation op = same_type(kind, DType::f64, 1024, false);
    op.eps = 1e-300;
    return ExpectedGradients(op, {DType::f64, x}, {DType::f64, dys}, {}).errors_of({DType::f64, dx}, {}, {}).dx;
  };
  EXPECT_EQ(dx_error(Kind::rms, 0, 0x1p1019, {0, HUGE_VAL, 1}), 0);
  EXPECT_GT(dx_error(Kind::rms, 0, 0x1p1019, {0, HUGE_VAL, 1.01}), 1e9);
  EXPECT_GT(dx_error(Kind::rms, 0, 0x1p1018, {0, HUGE_VAL, 0.5}), 1e9);
  EXPECT_GT(dx_error(Kind::layer, 0x1p1023, 0x1p500, {0, HUGE_VAL}), 1e9);  // constant rows are not scaled
}

// f32's quanta, not those of what x - mean multiplies: k2 is subnormal here, dx is not.
TEST(Contract_GradientMeasure, ForgivesNoSubnormalFactors) {
  const auto dx_error = [](double first) {
    return errors_of(Kind::layer, {1e9, 2e9, 3e9, 5e9}, {2e-27, -2e-27, 1e-27, 4e-27},
                     {first, -1.7772387e-36, -3.0908498e-37, 5.9885216e-37}, {0, 0, 0, 0}, {0, 0, 0, 0})
        .dx;
  };
  EXPECT_LE(dx_error(1.4874715e-36), gradient_limits(plain(Kind::layer)).dx);
  EXPECT_GT(dx_error(5.1e-37), 1e6);
}

// Not 0, so the smallest number is allowed.
TEST(Contract_GradientMeasure, TermsBelowTheRangeAreNotZero) {
  const auto dgamma_error = [](double x, double dgamma) {
    Operation op = same_type(Kind::rms, DType::f64, 2, false);
    op.eps = 0;
    const auto array = [](double a, double b) { return Array(DType::f64, std::vector<double>{a, b}); };
    return ExpectedGradients(op, array(1, x), array(0, 0x1p-1074), {}).errors_of({}, array(0, dgamma), {}).dgamma;
  };
  EXPECT_EQ(dgamma_error(0x1p-40, 0), 0);
  EXPECT_EQ(dgamma_error(0x1p-40, 0x1p-1074), 0);
  EXPECT_GT(dgamma_error(0x1p-40, 0x1p-1070), gradient_limits(plain(Kind::layer)).dgamma);
  EXPECT_GT(dgamma_error(0, 0x1p-1074), gradient_limits(plain(Kind::layer)).dgamma);
}

TEST(Contract_GradientMeasure, KeepsNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(within_limits(of_rms(nan, 1, 1), Kind::rms));
  GradientErrors errors{0, nan, 0};
  errors.include({1, 1, 1});
  EXPECT_FALSE(within_limits(errors, Kind::layer));
}

}  // namespace
}  // namespace evenorm::contracts
