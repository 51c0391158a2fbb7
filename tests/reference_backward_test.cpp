// The reference's gradients compared with central differences of its own forward pass, and with results by hand.
#include "reference/reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "contracts/harness.hpp"
#include "support/names.hpp"

namespace evenorm::reference {
namespace {

using contracts::Array;
using contracts::kBothKinds;
using contracts::make_input;
using contracts::make_weight;

const Real kEpsilon = static_cast<Real>(0x1p-112);

std::vector<Real> wide(std::initializer_list<double> values) { return {values.begin(), values.end()}; }
std::vector<Real> wide(const Array& values) { return widen(values.dtype(), values.data(), values.size()); }

Real magnitude(Real a) { return a < 0 ? -a : a; }
Real largest(std::span<const Real> values) {
  Real most = 0;
  for (const Real v : values) most = std::max(most, magnitude(v));
  return most;
}
Real sum_of_products(std::span<const Real> a, std::span<const Real> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), Real{});
}
Real sum_of_magnitudes(std::span<const Real> a) {
  return std::accumulate(a.begin(), a.end(), Real{}, [](Real sum, Real v) { return sum + magnitude(v); });
}

// One row and everything that its gradients depend on.
struct Row {
  Kind kind;
  std::vector<Real> x, dy, gamma;
  double eps;
  bool zero_centered = false;

  Parameters parameters() const { return {gamma, {}, zero_centered}; }
  Moments m() const { return moments(kind, x); }
  Real r() const { return rstd(m(), eps); }
  std::vector<Real> xhat() const { return apply(x, m(), r(), {}); }
  std::vector<Real> dx() const { return dx_of_row(kind, x, dy, m(), r(), parameters()); }
  std::vector<Real> dgamma() const {
    ParameterGradients sums(x.size());
    sums.add_row(x, dy, m(), r());
    return sums.dgamma();
  }
  // A loss whose gradient with respect to y is dy.
  Real loss() const { return sum_of_products(dy, apply(x, m(), r(), parameters())); }
};

Row make_row(Kind kind, std::string_view input, std::size_t cols, double eps, bool gamma = true) {
  Row row{
      kind, wide(make_input(input, DType::f32, cols, 11)), wide(make_input("normal", DType::f32, cols, 12)), {}, eps};
  if (gamma) row.gamma = wide(make_weight(DType::f32, cols, 13));
  return row;
}

// dx_j by central differences D(h), D(h/2) and Richardson's (4 D(h/2) - D(h)) / 3, whose error is -h^4/480 times the
// fifth derivative. As a function of t = h rstd, the loss is analytic where the variance's factor |1 + 2 t xhat_j/n +
// t^2 (..)/n| > 0. On the circle |t| = rho = sqrt(n)/4 that factor is at least 7/16 because |xhat_j| <= sqrt(n), and
// |loss| <= 1.52 (sum |g xhat| + rho (|g_j| + mean|g|)) = B. By Cauchy, the fifth derivative is at most 5! B/rho^5.
// With t = 2^-16 rho, the truncation error is below 2^-65 B/rho (twice the first term, to cover all terms). The error
// of a loss is `cols` roundings of products, and roundings of x that change xhat by max|x| rstd. The differences divide
// these errors by t.
struct Difference {
  Real value, tolerance;
};
Difference central_difference(const Row& row, std::size_t j) {
  const auto n = static_cast<Real>(row.x.size());
  const Real r = row.r(), rho = static_cast<Real>(std::sqrt(static_cast<double>(n)) / 4);
  const Real h = rho * static_cast<Real>(0x1p-16) / r;
  const auto difference = [&](Real step) {
    Row above = row, below = row;
    above.x[j] += step;
    below.x[j] -= step;
    return (above.loss() - below.loss()) / (2 * step);
  };
  const GradientSums sums = gradient_sums(row.kind, row.xhat(), row.dy, row.parameters());
  Real g_xhat = 0;
  const std::vector<Real> xhat = row.xhat();
  for (std::size_t i = 0; i < xhat.size(); ++i) g_xhat += magnitude(sums.g[i] * xhat[i]);
  const Real g = magnitude(sums.g[j]) + sum_of_magnitudes(sums.g) / n;
  const Real bound = static_cast<Real>(1.52) * (g_xhat + rho * g);
  const Real truncation = static_cast<Real>(0x1p-65) * bound / rho;
  const Real of_loss = kEpsilon * n * (g_xhat + (1 + largest(row.x) * r) * sum_of_magnitudes(sums.g));
  const Real rounding = of_loss * static_cast<Real>(0x1p17) / rho;
  return {(4 * difference(h / 2) - difference(h)) / 3, (truncation + rounding) * r};
}

void expect_differences_agree(const Row& row, const std::string& what) {
  const std::vector<Real> dx = row.dx();
  const std::size_t step = std::max<std::size_t>(1, row.x.size() / 8);
  for (std::size_t j = 0; j < row.x.size(); j += step) {
    const Difference d = central_difference(row, j);
    // Checks that the tolerance is tight: it must not allow an error of one f64 unit in dx's terms.
    const GradientSums sums = gradient_sums(row.kind, row.xhat(), row.dy, row.parameters());
    EXPECT_LT(static_cast<double>(d.tolerance), static_cast<double>(largest(sums.g) * row.r()) * 0x1p-48) << what;
    EXPECT_LE(static_cast<double>(magnitude(d.value - dx[j])), static_cast<double>(d.tolerance)) << what << ", " << j;
  }
}

using Case = std::tuple<Kind, std::size_t>;
class Reference_Backward : public ::testing::TestWithParam<Case> {};

TEST_P(Reference_Backward, DxIsTheDerivativeOfTheLoss) {
  const auto [kind, cols] = GetParam();
  for (const std::string_view input : {"normal", "mean_1e6", "outlier_1e6_first"}) {
    if (cols < 2 && input != "normal") continue;
    for (const double eps : {0.0, 1e-5, 1e4}) {
      if (kind == Kind::layer && cols == 1 && eps == 0) continue;  // y is no function of x; dx is 0 by definition
      for (const int parameters : {0, 1, 2}) {
        Row row = make_row(kind, input, cols, eps, parameters != 0);
        row.zero_centered = parameters == 2;
        expect_differences_agree(row, std::string(input) + ", eps " + std::to_string(eps));
      }
    }
  }
}

// The loss is linear in gamma (or in the number added to 1) and in beta, so one difference of any length is exact.
TEST_P(Reference_Backward, DgammaAndDbetaAreTheDerivativesOfTheLossOverAllRows) {
  const auto [kind, cols] = GetParam();
  for (const bool zero_centered : {false, true}) {
    std::vector<Row> rows;
    ParameterGradients sums(cols);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      Row row = make_row(kind, "normal", cols, 1e-5);
      row.zero_centered = zero_centered;
      row.x = wide(make_input("normal", DType::f32, cols, 20 + seed));
      row.dy = wide(make_input("normal", DType::f32, cols, 30 + seed));
      sums.add_row(row.x, row.dy, row.m(), row.r());
      rows.push_back(row);
    }
    const double allowed = static_cast<double>(64 * static_cast<Real>(cols) * kEpsilon) * 100;
    for (std::size_t i = 0; i < std::min<std::size_t>(cols, 9); ++i) {
      Real of_gamma = 0, of_beta = 0;
      for (const Row& row : rows) {
        Row raised = row;
        raised.gamma[i] += 1;
        of_gamma += raised.loss() - row.loss();
        std::vector<Real> beta(cols);
        beta[i] = 1;
        const Parameters with_beta{row.gamma, beta, zero_centered};
        of_beta += sum_of_products(row.dy, apply(row.x, row.m(), row.r(), with_beta)) - row.loss();
      }
      EXPECT_LE(static_cast<double>(magnitude(sums.dgamma()[i] - of_gamma)), allowed);
      EXPECT_LE(static_cast<double>(magnitude(sums.dbeta()[i] - of_beta)), allowed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Reference_Backward,
                         ::testing::Combine(::testing::ValuesIn(kBothKinds), ::testing::Values(1, 2, 3, 8, 33, 768)),
                         [](const auto& test) {
                           return testing::word(std::get<0>(test.param)) + "_Cols" +
                                  std::to_string(std::get<1>(test.param));
                         });

void expect_near(const std::vector<Real>& values, const std::vector<Real>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(static_cast<double>(magnitude(values[i] - expected[i])), 1e-32) << i;
  }
}
// By hand: mean = 14/3, var = 56/9, so xhat = (-2, -8, 10) / sqrt(56). g = (1.5, -1, 1): mean(g) = 1/2 and
// mean(g xhat) = 5 / sqrt(56). dx = ((1.5, -1, 1) - 1/2 - (-10, -40, 50) / 56) 3 / sqrt(56) = (198, -132, -66) /
// 56^1.5.
TEST(Reference_LayerNormBackward, ReproducesTheWorkedVector) {
  const Row row{Kind::layer, wide({4, 2, 8}), wide({1, -1, 2}), wide({1.5, 1, 0.5}), 0};
  const Real r = 3 * rstd({0, 56}, 0);  // 3 / sqrt(56)
  expect_near(row.dx(), {r * 66 / 56, -r * 44 / 56, -r * 22 / 56});
  expect_near(row.dgamma(), {-r * 2 / 3, r * 8 / 3, r * 20 / 3});
}

// By hand: the mean square is 28, xhat = (4, 2, 8) / sqrt(28), mean(g xhat) = 4 / sqrt(28), and
// dx = ((1.5, -1, 1) - (4, 2, 8) / 7) / sqrt(28) = (6.5, -9, -1) / (7 sqrt(28)).
TEST(Reference_RmsNormBackward, ReproducesTheWorkedVector) {
  const Row row{Kind::rms, wide({4, 2, 8}), wide({1, -1, 2}), wide({1.5, 1, 0.5}), 0};
  const Real r = rstd({0, 28}, 0);
  expect_near(row.dx(), {r * static_cast<Real>(6.5) / 7, -r * 9 / 7, -r / 7});
  expect_near(row.dgamma(), {r * 4, -r * 2, r * 16});
}

bool all_zero(const std::vector<Real>& values) {
  return std::all_of(values.begin(), values.end(), [](Real v) { return v == 0; });
}
bool all_nan(const std::vector<Real>& values) {
  return std::all_of(values.begin(), values.end(), [](Real v) { return v != v; });
}

TEST(Reference_LayerNormBackward, ConstantRowPassesTheCentredGradient) {
  const Row row{Kind::layer, wide({0.1, 0.1, 0.1}), wide({1, 2, 5}), wide({3, 1, 2}), 0.25};  // g = (3, 2, 10)
  EXPECT_TRUE(all_zero(row.dgamma()));
  EXPECT_TRUE(row.dx() == wide({-4, -6, 10}));  // (g - 5) 2
}

TEST(Reference_Backward, OneColumnNoVarianceAndNoRowsAreZero) {
  for (const Row& row : {Row{Kind::layer, wide({0.1}), wide({0.3}), wide({0.7}), 0},
                         Row{Kind::layer, wide({0.1}), wide({0.3}), wide({0.7}), 1e-5},
                         Row{Kind::layer, wide({0.1, 0.1, 0.1}), wide({1, 2, 5}), {}, 0},
                         Row{Kind::rms, wide({0, 0, 0}), wide({1, 2, 5}), {}, 0}}) {
    EXPECT_TRUE(all_zero(row.dx()) && all_zero(row.dgamma())) << row.x.size() << " columns, eps " << row.eps;
  }
  const ParameterGradients sums(3);
  EXPECT_TRUE(all_zero(sums.dgamma()) && all_zero(sums.dbeta()));
}

TEST(Reference_Backward, DgammaOfOnesIsTheSumOfXhatAndDbetaCountsTheRows) {
  ParameterGradients sums(4);
  const Row row{Kind::rms, wide({3, -1, 1, 5}), wide({1, 1, 1, 1}), {}, 0};  // mean square 9
  for (int i = 0; i < 4096; ++i) sums.add_row(row.x, row.dy, row.m(), row.r());
  EXPECT_TRUE(sums.dbeta() == wide({4096, 4096, 4096, 4096}));
  constexpr double kRounded = 4096 * 6827 * 0x1p-113;  // the number of additions is at most 5 * 4096 / 3
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(sums.dgamma()[i] - row.x[i] * 4096 / 3), 0, kRounded);
  }
}

// A NaN or infinity in x, dy or gamma makes its rows of dx NaN. In x it also makes all of dgamma NaN, and in dy one
// column of dgamma and dbeta. In gamma it affects neither.
TEST(Reference_Backward, NonFiniteInputsAffectOnlyTheirOutputs) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const Kind kind : kBothKinds) {
      const Row good{kind, wide({1, 3, 2}), wide({1, 0, 2}), wide({1, 1, 0}), 1e-5};
      Row bad_x = good, bad_dy = good, bad_gamma = good;
      bad_x.x[0] = bad_dy.dy[1] = bad_gamma.gamma[2] = bad;
      for (const Row& row : {bad_x, bad_dy, bad_gamma}) EXPECT_TRUE(all_nan(row.dx()));
      const auto sums_with = [&](const Row& row) {
        ParameterGradients sums(3);
        for (const Row& r : {good, row, good}) sums.add_row(r.x, r.dy, r.m(), r.r());
        return sums;
      };
      const ParameterGradients of_x = sums_with(bad_x), of_dy = sums_with(bad_dy), of_gamma = sums_with(bad_gamma);
      EXPECT_TRUE(all_nan(of_x.dgamma()));
      EXPECT_TRUE(of_x.dbeta() == wide({3, 0, 6}));
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(of_dy.dgamma()[i] != of_dy.dgamma()[i], i == 1);
        EXPECT_EQ(of_dy.dbeta()[i] != of_dy.dbeta()[i], i == 1);
      }
      EXPECT_TRUE(of_gamma.dgamma() == sums_with(good).dgamma());
      EXPECT_TRUE(of_gamma.dbeta() == wide({3, 0, 6}));
    }
  }
}

}  // namespace
}  // namespace evenorm::reference
