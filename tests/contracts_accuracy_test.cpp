// The accuracy contract on every target: every adversarial row and type, from 1 column to 2^20.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "contracts/accuracy.hpp"
#include "support/cases.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::expanded;
using evenorm::testing::expect_kept;

using Parameters = std::tuple<DType, std::size_t>;

class Contract_Accuracy : public ::testing::TestWithParam<Parameters> {};

std::string text_of(const ReportRow& row) {
  return std::string(name(row.type)) + " " + std::to_string(row.cols) + " " + row.input + " on " + row.target +
         ": output " + std::to_string(row.worst.output) + " u of " + std::to_string(row.limit) + ", rstd " +
         std::to_string(row.worst.rstd) + " u, mean " + std::to_string(row.worst.mean);
}

void expect_within_limits(const AccuracyOptions& options) {
  const Report report = run_accuracy(options);
  EXPECT_GE(report.rows.size(), 5u);
  for (const ReportRow& row : report.rows) EXPECT_TRUE(row.pass) << text_of(row);
  for (const ReportRow& row : report.rows) EXPECT_FALSE(row.target.empty());
}

TEST_P(Contract_Accuracy, AdversarialRowsAreWithinTheBound) {
  AccuracyOptions options;
  options.types = {std::get<0>(GetParam())};
  options.cols = {std::get<1>(GetParam())};
  options.quick = true;
  expect_within_limits(options);
}

std::string test_name(const ::testing::TestParamInfo<Parameters>& info) {
  const std::size_t cols = std::get<1>(info.param);
  return evenorm::testing::word(std::get<0>(info.param)) + "_Cols" + std::to_string(cols) +
         (cols > 4096 ? "_Whole" : "");
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_Accuracy,
                         ::testing::Combine(::testing::ValuesIn(kAllTypes),
                                            ::testing::Values(1, 2, 3, 15, 31, 64, 768, 1000, 1025, 4096, 65536,
                                                              std::size_t{1} << 20)),
                         test_name);

TEST(Contract_Accuracy, EveryRowOfTheTableIsWithinTheBound_Slow) {
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1";
  AccuracyOptions options;
  options.threads = 2;
  expect_within_limits(options);
}

// 1; around the number of lanes; around 2^k {1, 2, 3}.
std::set<std::size_t> odd_cols() {
  std::set<std::size_t> cols = {1, internal::kLanes - 1, internal::kLanes, internal::kLanes + 1, 31, 32, 33};
  for (std::size_t power = 2; power <= 2048; power *= 2) {
    for (const std::size_t times : {1, 2, 3}) {
      for (const std::size_t off : {0, 1, 2}) cols.insert(power * times + off - 1);
    }
  }
  return cols;
}

// Three kinds of rows, with and without weight and bias.
TEST(Contract_Accuracy, ColumnsNearEveryEdgeAreWithinTheBound) {
  constexpr const char* kParameters[] = {" weight=$ bias=$", " bias=$", " weight=$+1", ""};
  std::size_t turn = 0;
  for (const std::size_t cols : odd_cols()) {
    for (const DType type : kAllTypes) {
      for (const char* input : {"normal", "mean_300", "wide_exponents"}) {
        const std::string kind = turn % 4 < 2 ? "layer $" : "rms $";
        expect_kept(kind + kParameters[turn++ % 3] + " 1x" + std::to_string(cols) + " x:" + input, name(type));
      }
    }
  }
}

void expect_row_kept(const std::string& text, const Array& x, const Array& weight = {}, const Array& bias = {}) {
  EXPECT_EQ(verify(parse_case(text), {.x = x, .weight = weight, .bias = bias}), "");
}

// Outliers near the start, in every column: there the chain of a lane's later additions is longest.
TEST(Contract_Accuracy, LoneOutlierInAnyEarlyColumnIsWithinTheBound) {
  for (const std::size_t cols : {257, 1024, 3000}) {
    for (std::size_t column = 0; column < 72; ++column) {
      Array x = make_input("normal", DType::f32, cols, column + 7);
      x.set(column, column % 2 == 0 ? 1e6 : -4096);
      expect_row_kept("layer f32 1x" + std::to_string(cols), x);
    }
  }
}

void expect_row_within_limits(const std::vector<double>& values, const std::vector<double>& gamma, double eps,
                              DType dtype = DType::f64) {
  const Operation op{.x = dtype, .y = dtype, .weight = dtype, .eps = eps, .cols = values.size()};
  EXPECT_EQ(verify(case_of(op, 1), {.x = Array(dtype, values), .weight = Array(dtype, gamma)}), "");
}

// The means of the row's blocks differ in their last places, and each join changes the mean by some of them.
TEST(Contract_Accuracy, MeansOfManyBlocksAnUlpApartAreWithinTheBound) {
  constexpr std::size_t kBlockCols = 1024, kCols = 8162;
  std::vector<double> row;
  for (const std::size_t above : {571, 783, 177, 150, 808, 335, 398, 795}) {
    for (std::size_t i = 0; i < kBlockCols && row.size() < kCols; ++i) row.push_back(i < above ? 1 + 0x1p-52 : 1);
  }
  expect_row_within_limits(row, std::vector<double>(kCols, 0x1.000000000001cp+0), 0x1.7dd5d061147cap-105);
}

// The largest variances of rows that are not scaled.
TEST(Contract_Accuracy, VariancesAbove2To900AreWithinTheBound) {
  expect_row_within_limits({0x1.9c1270c5980b8p+451, 0x1.e9d1b4b547b6p+455, 0x1.d6f7afb70891p+455},
                           {0x1.8a72690c0b93ap+0, 0x1.fcc112922de86p+0, 0x1.7b021514e0e5ep+0}, 0);
}
// The row is scaled because x is small, and that puts eps out of range.
TEST(Contract_Accuracy, EpsFarAboveScaledRowsIsWithinTheBound) {
  expect_row_within_limits({0x1.5fbf135e3f2e7p-454, 0x1.029c1702c5f12p-452, 0x1.52c0d28d2800cp-452},
                           {0x1.3e3d9338221f8p+600, 0x1.1226cadda177cp+600, 0x1.ec5cc726e7e36p+600},
                           0x1.c05feda25b435p+157);
}

// y* is in range, and closer to its end than the bound, so y may be infinite.
TEST(Contract_Accuracy, YMayBeInfiniteWithinTheBoundOfTheRangesEnd) {
  const std::vector<float> row = {-0x1.e8461ep-2F, -0x1.67918cp-2F, 0x1.52557ep-1F,
                                  0x1.19a7b2p-3F,  0x1.9bbccep-2F,  0x1.30c908p-1F};
  const std::vector<double> gamma = {1, 1, 0x1.c3e2bep+127, 1, 1, 1};
  expect_row_within_limits({row.begin(), row.end()}, gamma, 0, DType::f32);
  std::vector<float> y(6), weight(gamma.begin(), gamma.end());
  layer_norm<float>(row, y, 6, {.weight = weight, .eps = 0});
  EXPECT_EQ(y[2], std::numeric_limits<float>::infinity());
  weight[2] *= 1 - 0x1p-20F;
  layer_norm<float>(row, y, 6, {.weight = weight, .eps = 0});
  EXPECT_LT(y[2], std::numeric_limits<float>::max());
}

// eps far above, near and far below the variance, zero-centred weights, and mixtures of types.
TEST(Contract_Accuracy, AnyEpsAndMixtureIsWithinTheBound) {
  std::vector<std::string> operations = {"bf16->f32 weight=f32 ROWSx300", "f32->f16 weight=bf16+1 bias=f16 ROWSx300",
                                         "f64->bf16 weight=f16 ROWSx300", "f32 bias=f64 ROWSx300"};
  for (const DType type : kAllTypes) {
    for (const char* form :
         {"$ weight=$ bias=$ ROWSx300", "$ weight=$+1 ROWSx300", "$ weight=f32 bias=f32 ROWSx1500"}) {
      operations.push_back(expanded(form, name(type))[0]);
    }
  }
  for (std::string& op : operations) {
    const Case c = parse_case(op.replace(op.find("ROWS"), 4, "1"));
    std::string names;
    std::size_t rows = 0;
    for (const std::string_view input : input_names(c.op.x, c.op.cols)) {
      if (input.starts_with("outlier") && input != "outlier_10000_at_5") continue;
      names += (rows++ == 0 ? " x:" : ",") + std::string(input);
    }
    expect_kept("{layer,rms} " + op + names + " " + std::to_string(rows) + "x" + std::to_string(c.op.cols) +
                " eps={0,1e-300,1e-12,1e-5,1,1e10,1e300} seed=5");
  }
}

// eps is so large that rstd, or the rstd of the scaled row, is below the smallest normal number, although xhat is not.
TEST(Contract_HugeEps, KeepsTheBoundOnEveryTarget) {
  const Array gamma(DType::f32, std::vector<double>(63, 1e15)), beta(DType::f32, 63);
  for (const DType dtype : kAllTypes) {
    for (const std::string& text : expanded("layer $ 5x63 x:std_1e30,huge,normal,subnormal,std_1e300 "
                                            "eps={3,1e3,1e70,1e76,1e86,1e100,1e120,1e156,1e300}",
                                            name(dtype))) {
      expect_kept(text);
      const Inputs inputs{.x = inputs_of(parse_case(text)).x, .weight = gamma, .bias = beta};
      EXPECT_EQ(verify(with_way(parse_case(text), std::string(name(dtype)) + "->f32 weight=f32 bias=f32"), inputs), "");
    }
  }
}

// rstd lies between two subnormal numbers, and the row has one large element with a distance of 4 to its mean. A
// rounded rstd would be off by half of the smallest number, and xhat by twice that number.
TEST(Contract_HugeEps, KeepsTheBoundBetweenTwoSubnormalRstd) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double smallest = smallest_normal(dtype), quantum = smallest_subnormal(dtype);
    const double magnitude = 2 * smallest - quantum;
    std::vector<double> values(63, -magnitude);
    values[17] = magnitude;
    for (const double steps : {1.51, 3.49, 200.5}) {  // of a row scaled by 1 / smallest: rstd in quanta
      expect_row_within_limits(values, std::vector<double>(63, 1e15), std::pow(smallest / quantum / steps, 2), dtype);
    }
  }
}

std::uint64_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// y = gamma: for x = 3 and 1, the mean is 2 and xhat is 1. The error is what the mean's last places may cost.
TEST(Contract_Limits, AllowForTheMeansLastPlaces) {
  const auto error = [](double gamma, double y) {
    Operation op = same_type(Kind::layer, DType::f32, 2);
    op.eps = 0;
    const auto pair = [](double a, double b) { return Array(DType::f32, std::vector<double>{a, b}); };
    const Expected expected(op, pair(3, 1), pair(gamma, gamma), pair(0, 0));
    return expected.errors_of(pair(y, -gamma), 0, 2, 1).output;
  };
  EXPECT_EQ(error(0.75, 0.75), 0);
  EXPECT_NEAR(error(0.75, 0.75 + 0x1p-24), 1 / 0.75 - 3 * 2 * 0x1p-29, 1e-12);
}

// f64's bound counts every addition; what rows reach is far below it.
TEST(Contract_Accuracy, RowsOfF64AreWithinAFewUnits) {
  for (const std::string& text :
       expanded("{layer,rms} f64 weight=f64 bias=f64 eps=0 1x{15,64,768,5000} "
                "x:{normal,mean_1e2,mean_1e6,std_1e4,outlier_1e6_first,constant_0.1,wide_exponents,ramp}")) {
    const Case c = parse_case(text);
    Inputs in = inputs_of(c);
    for (std::size_t i = 0; i < in.x.size() && c.x[0] == "normal"; ++i) in.x.set(i, value_at(in.x, i) + 1e12);
    const Outcome found = plain_outcome(c, in);
    const double mean = found.mean.empty() ? 0 : found.mean[0];
    const Errors errors = Expected(c.op, in.x, in.weight, in.bias).errors_of(found.y, 0, mean, found.rstd[0]);
    EXPECT_LE(errors.output, 8) << text;
    EXPECT_LE(errors.rstd, 8) << text;
  }
}

// The measure itself: which errors it must detect, and which it must allow.
TEST(Contract_ErrorMeasure, CountsUnitsOfRoundoff) {
  const OutputBound f32{DType::f32, DType::f32, 1, 1, 0};
  EXPECT_EQ(error_in_u(bits_of(1.0f), {1.0, 0}, f32), 0);
  EXPECT_NEAR(error_in_u(bits_of(1.0f + 0x1p-23f), {1.0, 0}, f32), 2, 1e-9);
  EXPECT_NEAR(error_in_u(bits_of(1.0f), {1.0, 0x1p-24}, f32), 1, 1e-9);
  EXPECT_NEAR(error_in_u(bits_of(1.0f + 0x1p-21f), {1.0, 0}, OutputBound{DType::f32, DType::f32, 2, 1.5, 1}), 2, 1e-9);
  // The bound exceeds the range, but the result and its error do not.
  const OutputBound huge{DType::f64, DType::f64, 0x1p1023, 4, 0};
  EXPECT_NEAR(error_in_u(std::bit_cast<std::uint64_t>(0x1p1023), {0x1p1022, 0}, huge), 0x1p50, 1);
  EXPECT_GT(error_in_u(bits_of(std::numeric_limits<float>::quiet_NaN()), {1.0, 0}, f32), 1e300);
  EXPECT_GT(error_in_u(bits_of(std::numeric_limits<float>::infinity()), {1.0, 0}, f32), 1e30);
  EXPECT_EQ(error_in_u(bits_of(std::numeric_limits<float>::infinity()), {1e39, 0}, f32), 0);
  EXPECT_EQ(error_in_u(bits_of(0x1p-149f), {0, 0}, f32), 0);
  EXPECT_GT(error_in_u(bits_of(0x1p-140f), {0, 0}, OutputBound{DType::f32, DType::f32, 1, 0, 0}), 1e300);
}

// y* is just above the largest f64, so the error of a result at the end of the range is small.
TEST(Contract_ErrorMeasure, CountsUnitsBeyondTheEndOfTheRange) {
  const double largest = std::numeric_limits<double>::max();
  const reference::Real end = static_cast<reference::Real>(0x1p1023) * 2;
  const auto error = [&](double y, reference::Real exact) {
    return error_in_u(std::bit_cast<std::uint64_t>(y), to_pair(exact),
                      OutputBound{DType::f64, DType::f64, 0x1p1023, 2, 0});
  };
  EXPECT_EQ(error(largest, end), 1);
  EXPECT_EQ(error(-largest, -end), 1);
  EXPECT_EQ(error(largest, end + static_cast<reference::Real>(0x1p974)), 9);
  EXPECT_EQ(error(std::numeric_limits<double>::infinity(), end), 0);
  EXPECT_GT(error(std::numeric_limits<double>::infinity(), end * (1 - 0x1p-40)), 1e3);
  EXPECT_GT(error(largest, -end), 1e15);
  EXPECT_GT(error(largest, 3 * end), 1e300);
}

TEST(Contract_ErrorMeasure, AllowsOnlyTheOneRoundingToTheOutput) {
  const OutputBound bf16{DType::f32, DType::bf16, 1, 1, 0};
  const std::uint64_t one = 0x3F80, above = 0x3F81;
  EXPECT_EQ(error_in_u(one, {1.0 + 0x1p-8, 0}, bf16), 0);  // the midpoint may round either way
  EXPECT_EQ(error_in_u(above, {1.0 + 0x1p-8, 0}, bf16), 0);
  EXPECT_NEAR(error_in_u(one, {1.0 + 0x1p-8, 0x1p-22}, bf16), 4, 1e-9);  // 4 u above it
  EXPECT_NEAR(error_in_u(above, {1.0 + 0x1p-8, -0x1p-22}, bf16), 4, 1e-9);
  // below a power of two, numbers are half as far apart
  EXPECT_NEAR(error_in_u(one, {1.0 - 0x1p-9, -0x1p-24}, bf16), 1, 1e-9);
  const OutputBound f16{DType::f32, DType::f16, 1, 1, 0};
  EXPECT_EQ(error_in_u(0x7C00, {65520, 0}, f16), 0);
  EXPECT_NEAR(error_in_u(0x7C00, {65520, -0x1p-24}, f16), 1, 1e-9);
  EXPECT_EQ(error_in_u(0x8000, {0x1p-25, 0}, f16), 0);
}

TEST(Contract_ErrorMeasure, KeepsNans) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Operation op;
  Errors errors;
  errors.include({nan, 0, 0});
  errors.include({1, 0, 0});
  EXPECT_FALSE(errors.within_limits(op));
  EXPECT_FALSE(relative_error_in_u(nan, 1, 1) <= kRstdLimit);
}

}  // namespace
}  // namespace evenorm::contracts
