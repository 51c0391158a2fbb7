// Climbs against the bounds: every type, kind and result stays within its proved limit, and the climber reaches known
// heights. Rows that it has found are separate tests.
#include "contracts/climb.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "contracts/digests.hpp"

namespace evenorm::contracts {

void PrintTo(const Route& route, std::ostream* out) { *out << route.name(); }

namespace {

constexpr std::size_t kTurn = 30000;          // steps for the cheapest route
constexpr std::size_t kSlowTurn = 1'000'000;  // takes minutes in total

std::string shown(const Peak& peak) {
  std::string text = peak.route.name() + ": " + std::to_string(peak.error) + " of " + std::to_string(peak.limit()) +
                     ", " + peak.rows.text();
  for (const std::string& target : peak.differing) text += ", other bits on " + target;
  return text;
}

class Contract_Climb : public ::testing::TestWithParam<Route> {};

TEST_P(Contract_Climb, StaysWithinTheLimit) {
  const Peak peak = climb(GetParam(), {GetParam().share(kTurn)});
  EXPECT_TRUE(peak.pass()) << shown(peak);
  EXPECT_GT(peak.error, 0);
}

TEST_P(Contract_Climb, StaysWithinTheLimit_Slow) {
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1";
  const Peak peak = climb(GetParam(), {GetParam().share(kSlowTurn), 2});
  EXPECT_TRUE(peak.pass()) << shown(peak);
  RecordProperty("peak", shown(peak));
}

INSTANTIATE_TEST_SUITE_P(Routes, Contract_Climb, ::testing::ValuesIn(all_routes()), [](const auto& test) {
  std::string word;
  for (const char c : test.param.name()) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) word += c;
  }
  return word;
});

Route route_named(const std::string& name) {
  for (const Route& route : all_routes()) {
    if (route.name() == name) return route;
  }
  throw std::invalid_argument("there is no route '" + name + "'");
}

// The error that the climber must reach in this many steps, for the roundings of the step that writes y or dx. Change
// the heights with that step: a climber that misses known errors tests nothing, and neither does a limit far above
// them.
TEST(Contract_ClimbHeights, ReachForwardRoundings) {
  const auto height = [](const char* route, const ClimbOptions& options) {
    const Peak peak = climb(route_named(route), options);
    return peak.error / peak.limit();
  };
  EXPECT_GE(height("layer f32, y", {200'000, 3}), 0.94);
  EXPECT_GE(height("layer f32 zero-centred, y", {200'000, 3}), 0.94);
  EXPECT_GE(height("rms f32, y", {20'000, 1}), 0.89);
}

TEST(Contract_ClimbHeights, ReachBackwardRoundings) {
  EXPECT_GE(climb(route_named("layer f32, dx"), {20'000, 1}).error, 2.7);
  EXPECT_GE(climb(route_named("rms f32, dx"), {20'000, 1}).error, 2.7);
  EXPECT_GE(climb(route_named("layer f32, dbeta"), {2000, 1}).error, 0.99);
}

TEST(Contract_ClimbRows, AreShortAndFinite) {
  Random random(1);
  for (const Route& route : all_routes()) {
    for (int i = 0; i < 40; ++i) {
      ShortRows rows = draw_rows(route.op, route.result, random);
      ASSERT_TRUE(rows.cols >= 1 && rows.cols <= 17);
      for (int changes = 0; changes < 20; ++changes) change(rows, random);
      EXPECT_TRUE(rows.eps >= 0 && std::isfinite(rows.eps));
      for (const Array* values : {&rows.x, &rows.weight, &rows.bias, &rows.dy}) {
        for (std::size_t k = 0; k < values->size(); ++k) ASSERT_TRUE(std::isfinite(value_at(*values, k)));
      }
    }
  }
}

// Digests of the rows that a program built with GCC draws. They show that no evaluation order is left to the compiler.
// Changed families have other digests.
TEST(Contract_ClimbRows, AreTheSameForEveryCompiler) {
  Digest rows_of_all;
  for (const Route& route : all_routes()) {
    Random random(7);
    for (int i = 0; i < 100; ++i) {
      ShortRows rows = draw_rows(route.op, route.result, random);
      for (int changes = 0; changes < 20; ++changes) change(rows, random);
      for (const Array* values : {&rows.x, &rows.weight, &rows.bias, &rows.dy}) {
        rows_of_all.add(values->size());
        rows_of_all.add(values->bytes().data(), values->bytes().size());
      }
      rows_of_all.add(std::bit_cast<std::uint64_t>(rows.eps));
    }
  }
  EXPECT_EQ(digest_text(rows_of_all.value()), "80614c99a893351d");
}

TEST(Contract_ClimbRows, DependOnTheSeed) {
  const Route route = route_named("layer f32, y");
  const Peak peak = climb(route, {2000, 5});
  EXPECT_EQ(climb(route, {2000, 5}).rows.text(), peak.rows.text());
  EXPECT_NE(climb(route, {2000, 6}).rows.text(), peak.rows.text());
  EXPECT_EQ(error_of(route, peak.rows, runnable_targets()[0]), peak.error);
  // The starting rows count too.
  EXPECT_GE(climb(route, {1, 6, &peak.rows}).error, peak.error);
}

TEST(Contract_ClimbRows, PrintExactly) {
  ShortRows rows;
  rows.cols = 2;
  rows.eps = 0.5;
  rows.x = Array(DType::f32, std::vector<double>{1 + 0x1p-23, -3});
  rows.weight = Array(DType::bf16, std::vector<double>{0, 1});
  EXPECT_EQ(rows.text(), "2 columns, eps 0x1p-1, x {0x1.000002p+0, -0x1.8p+1}, weight {0x0p+0, 0x1p+0}");
}

TEST(Contract_ClimbRows, APeakPassesOnlyWithinItsLimitAndWithEqualBits) {
  Peak peak{route_named("rms f32, y"), 3.03, {}, {}};
  EXPECT_TRUE(peak.pass());
  peak.differing = {"portable"};
  EXPECT_FALSE(peak.pass());
  for (const double error : {3.04, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_FALSE((Peak{peak.route, error, {}, {}}).pass()) << error;
  }
}

// Rows that climbing found, or that broke other formulas.
struct Known {
  const char* route;
  double eps;
  std::vector<double> x, weight, bias, dy;
};

void expect_within_limits(const Known& known) {
  const Route route = route_named(known.route);
  ShortRows rows;
  rows.cols = known.x.size();
  rows.eps = known.eps;
  rows.x = Array(route.op.x, known.x);
  rows.weight = Array(*route.op.weight, known.weight);
  if (route.op.bias) rows.bias = Array(*route.op.bias, known.bias);
  if (is_gradient(route.result)) rows.dy = Array(route.op.y, known.dy);
  const Peak peak{route, error_of(route, rows, runnable_targets()[0]), rows, differing_targets(route, rows)};
  EXPECT_TRUE(peak.pass()) << shown(peak);
}

std::vector<Known> known_rows() {
  return {
      // In ((x - mean_hi) - mean_lo) rstd, all steps would round in the same direction here, for an error of 4.997 u.
      {"layer f32, y",
       1e-5,
       {-0x1.dd8p-15, 0x1.0000c8p+1, 0x1.d6e9c6p-6, 0x1.ffdc5p+0},
       {0x1.020652p+0, 1, 1, 1},
       {0, 0, 0, 0},
       {}},
      // eps and x are so large that var + eps exceeds what rstd's Newton step can hold without scaling.
      {"rms f64, y",
       0x1.37ccd44badbc8p+1022,
       {0x1.0000000000032p+455, 0x1.2f98e940e89edp+458},
       {0x1.0000000000006p+17, -0x1.df81880fb137fp+17},
       {0x1.1b158941efc15p-1022, -0x1.000000000003fp-1018},
       {}},
      {"rms f64 zero-centred, dx",
       0x1.4fbc3d66e53e3p-21,
       {-0x1.0000000000021p+461, -0x1.6c457e6cad90ep+465, 0x1.0a541eabefcaep+465, -0x1.ede911ac536d3p+464},
       {0x1.00000000000d9p+0, 0x1.1055b890a7f4cp-1, 0x1.f1ed6a9783cdep-2, -0x1.00000000000d9p+0},
       {},
       {0x1.00201b1e8839dp-20, 0x1.114e9bae789ep-1020, -0x1.0000000000013p-1015, -0x1.000000000004ap-1015}},
      // A scaled row whose eps is so far above x^2 that scaling it would leave the range.
      {"rms f64, y",
       0x1.d2b5db70dc775p+134,
       {0x1.724b2d7ea15a1p-402, -0x1.7f53a78a59596p-402, -0x1.7f4e5a884033ep-405, 0x1.1722130c9b4e7p-408},
       {0x1.f068059ab9b6dp+59, -0x1.d0fbd15f82ae5p+73, 0x1.000000000b9c4p+61, 0x1.7bd26409edd9dp+62},
       {-0x1.0000000000018p-868, 0x1.15ad396238441p-870, -0x1.3227b45d20c3ap-867, 0x1.989f99cf7bd29p-866},
       {}},
      // dx of a scaled row contains rstd three times, so its low part counts.
      {"rms f64, dx",
       0x1.4f7b67cbad17dp-17,
       {-0x1.4764d33664dbdp+676, -0x1.17e918c298ef8p+673},
       {0x1.001d220c0a2d8p+0, 0x1.ffc1a53c8d427p-4},
       {},
       {0x1.0000000000012p-2, -0x1.26f1be385d44cp-6}},
      // mean(g xhat) rstd^2, or its terms, are below the smallest number, but dx is not.
      {"rms f64, dx",
       0x1.58938192fe5e9p-181,
       {-0x1.5d3a5a4356ad7p+189, -0x1.803aaf63e8426p+189},
       {0x1.ad9449a759312p-773, 0x1.0000000000025p-847},
       {},
       {-0x1.5d6b95d1f9969p+57, -0x1.00308ea853cc7p+57}},
      {"layer f64, dx",
       0,
       {-0x1.c58142ae984f3p-35, -0x1.c58142b7c05ffp-35, -0x1.c58142aae8602p-35, -0x1.c58142abc07p-35},
       {0x1.43e1ea02a3bd9p-1000, 0x1.43e1ead0ea0dfp-1000, -0x1.fe379f5e0c3a4p-1001, 0x1.409186292066ep-1000},
       {},
       {-0x1.0000000000023p-131, 0x1.7ce2759c9098dp-12, 0x1.d9214221b8c26p-11, -0x1.d351324b4b948p-11}},
      // The same for f32, with a tiny gamma or gradient.
      {"rms f32, dx",
       0x1.4f8b5888ce481p-10,
       {0x1.66cfc8p+32, 0x1.76f7dcp+29},
       {-0x1.071a14p-101, -0x1.071b04p-101},
       {},
       {0x1.ad717ap-61, 0x1.5378a4p+18}},
      {"layer f32, dx",
       0x1.973da9879752fp-144,
       {-0x1.22388p+30, 0x1.0f9596p+30},
       {-0x1.7961eep+3, -0x1.19ee2ap+4},
       {},
       {0, 0x1.01a85cp-93}},
      {"layer f32, dx",
       0,
       {-0x1.541cd8p+19, -0x1.28d94p+20, -0x1.59ee14p+17},
       {-0x1.64bc1p-127, 0x1.54p-143, -0x1.caa3ccp-118},
       {},
       {-0x1.02404cp-5, -0x1.000006p-9, 0x1.bf813ap+5}},
  };
}

TEST(Contract_ClimbKnown, RowsAreWithinTheLimit) {
  for (const Known& known : known_rows()) expect_within_limits(known);
}

// Each product dy xhat is below the smallest number, but their sum is not. The measure allows the quantum because the
// bound is not 0.
TEST(Contract_ClimbKnown, ProductsBelowTheSmallestNumberAreWithinTheLimit) {
  const Route route = route_named("rms f64, dgamma");
  ShortRows rows;
  rows.cols = 2;
  rows.eps = 0x1.4f8ae432e2b05p-17;
  rows.x = Array(DType::f64, std::vector<double>{-0x1.a45cbfddb3d0dp-68, 0x1.af45d75e08f2dp-68, -0x1.7c93bc3e17527p-66,
                                                 -0x1.4949e5c93ada8p-58});
  rows.weight = Array(DType::f64, std::vector<double>{0x1p-75, 0x1p-77});
  rows.dy = Array(DType::f64, std::vector<double>{-0x0.15bbdb54d9988p-1022, 0x1.99ae691da2548p-1019,
                                                  -0x0.000000000083dp-1022, -0x0.0ffd342948ee8p-1022});
  EXPECT_LE(error_of(route, rows, runnable_targets()[0]), route.limit());
}

// The elements are an ulp apart, so the mean's last places in f32 are part of xhat.
TEST(Contract_ClimbKnown, ElementsAnUlpApartAreWithinTheLimit) {
  std::vector<double> x(7, 0x1.ddc4e4p+0);
  x[6] = 0x1.ddc4e6p+0;
  const std::vector<double> gamma(7, 0x1.000a6ep+0), zeros(7);
  expect_within_limits({"layer f32, y", 1e-5, x, gamma, zeros, {}});
  expect_within_limits({"layer f32, dx", 1e-5, x, gamma, {}, {0, 0, 0, 0, 0, 0, 1}});
}

}  // namespace
}  // namespace evenorm::contracts
