// Fused passes have the bits of their separate steps: the sum with a residual, the norm, and quantising to i8. Every
// form in every layout and place, shared out over threads; then numbers computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contracts/digests.hpp"
#include "support/cases.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::Inputs;
using contracts::Operation;
using contracts::Outcome;
using contracts::parse_case;
using contracts::runnable_targets;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

std::string type_of(const auto& test) { return word(test.param); }

// --- every form, compared with its steps

class Contract_FusedWays : public ::testing::TestWithParam<DType> {};

const std::string kForms =
    "{layer $ residual=$*0.3,layer $ residual=$,layer $->i8,layer $->i8 residual=$*0.3,"
    "layer $->i8 residual=$ given_scale=0.02} weight=$ bias=$ ";

TEST_P(Contract_FusedWays, HaveTheSameBits) {
  for (const std::string& text : expanded(kForms + "36x{33,200,1300}" + kEveryRow, name(GetParam()))) {
    const contracts::Case c = parse_case(text);
    const Inputs inputs = contracts::inputs_of(c);
    const Outcome plain = contracts::plain_outcome(c, inputs);
    for (const std::string& way : contracts::ways_of(c)) {
      EXPECT_EQ(contracts::differences(contracts::with_way(c, way), inputs, plain), "");
    }
  }
}

TEST_P(Contract_FusedWays, HaveTheSameBitsOverThreads) {
  expect_same_bits(kForms + "{300x300,70x1025}" + kEveryRow + " threads=7", name(GetParam()));
  expect_same_bits(
      "{layer $ residual=$*0.3,layer $->i8 residual=$} weight=$ bias=$ {300x300,70x1025} sum@x tasks=64" + kEveryRow,
      name(GetParam()));
  expect_same_bits(kForms + "2x70001 x:normal,mean_1e4 threads=7", name(GetParam()));
  expect_same_bits("layer $ residual=$*0.3 weight=$ bias=$ {300x300,70x1025,2x70001} y@x sum@residual odd threads=2",
                   name(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedWays, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return type_of(test); });

class Contract_FusedResidual : public ::testing::TestWithParam<DType> {};

// One row, two, a few, or more than two groups.
TEST_P(Contract_FusedResidual, HasTheBitsOfTheSumAndThenTheNorm) {
  expect_same_bits(
      "{layer,rms} $ {weight=$+1 bias=$,eps=1e-5} residual=$*{1,-0.7} "
      "{33x1,9x15,2x16,33x17,9x64,2x127,1x768,33x1023,9x1024,2x1025,3x3000,2x12000} {nosum,threads=2}" +
          kEveryRow,
      name(GetParam()));
}

// A long row that is scaled or not finite, after its blocks have been shared out.
TEST_P(Contract_FusedResidual, HandlesOutOfRangeLongRowsInPlace) {
  expect_same_bits(
      "rms $ weight=$ bias=$ 1x70001 residual=$ x:{nan,huge,constant_max,std_1e300} residual:std_1e300 "
      "y@residual sum@x threads=7",
      name(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedResidual, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return type_of(test); });

// The sum uses f64 arithmetic if x or the residual is f64. The norm uses it if x, y, weight or bias is f64.
TEST(Contract_FusedResidual, HandlesMixturesOfTypes) {
  for (const char* norm :
       {"layer bf16->f32 weight=f32 bias=f32", "layer f32->bf16 weight=f32+1", "rms f16 weight=f32",
        "layer f32 weight=f64 bias=f32", "layer f64->f16 weight=bf16", "rms bf16 bias=f64", "layer f16->f64"}) {
    expect_same_bits(norm + (" residual={f64,f32,bf16,f16} {17x17,17x129,5x1100} {tasks=3,odd threads=2}" + kEveryRow));
    expect_same_bits(norm + std::string(" residual={f64,f32,bf16,f16}*0.1 17x129"));
  }
}

// Short rows of every kind, kept in scratch or in the memory of y or the sum.
TEST(Contract_FusedResidual, HandlesShortRowsWithStreamingStores_Whole) {
  expect_same_bits(
      "layer f32 weight=f32 bias=f32 residual=f32*0.3 {2800x768,21000x100,44000x48} {threads=1,nosum} "
      "{x=rows,x=+1~3 y=+2~4 threads=2}" +
      kEveryRow);
  expect_same_bits("layer f32 weight=f32 bias=f32 residual=f32 2100x1040 {threads=2,y@x x=+1}");
  expect_same_bits("layer {f32->bf16,f32->i8} residual=f32 20000x200");
}

TEST(Contract_FusedResidual, HandlesGapsInOneTensor) {
  expect_same_bits("layer f32 weight=f32 bias=f32 residual={f32,bf16} 40x48 {x=~5,y=~5,x=~5 y@x}" + kEveryRow);
}

// The heads of query and key in (tokens, 3 * heads * 64): strided rows.
TEST_P(Contract_FusedWays, HandleRowsWithinALargerTensor) {
  expect_same_bits("rms $ weight=$ bias=$ residual=$ 7x3x64 {x=~0~384,y=~0~192,x=~0~384 y=~0~192 sum@x}" + kEveryRow,
                   name(GetParam()));
}

class Contract_FusedInt8 : public ::testing::TestWithParam<DType> {};

// Rows that fit into scratch, and longer ones. The limit is 5000 to 14000 columns, by type and other uses of scratch.
TEST_P(Contract_FusedInt8, QuantisesTheNormsResult) {
  expect_same_bits(
      "{layer,rms} $->i8 {weight=$ bias=$,weight=$+1 given_scale=0.03,residual=$} "
      "{17x1,17x15,17x16,17x17,17x64,17x127,17x768,17x1023,17x1024,17x1025,3x3000,3x7000,3x12000,3x14000} "
      "{threads=1,tasks=3 x=+1 vectors=apart}" +
          kEveryRow,
      name(GetParam()));
}

// Dozens of rows fill pipeline stages of narrow rows, of few rows, and of other rows. Scaled rows and second passes
// interrupt them.
TEST_P(Contract_FusedInt8, QuantisesManyShortRows) {
  expect_same_bits("{layer,rms} $->i8 weight=$ bias=$ {eps=1e-5,given_scale=0.03} 59x{8,32,64,100,128,250,768,1024}",
                   name(GetParam()));
  expect_same_bits("{layer,rms} $->i8 weight=$ 59x{8,32,64,100,128,250,768,1024}" + kEveryRow, name(GetParam()));
}

// A row longer than scratch needs two passes, so x and the residual must stay unchanged until the second.
TEST_P(Contract_FusedInt8, QuantisesLongRowsInPlace) {
  expect_same_bits("layer $->i8 weight=$ bias=$ residual=$ 17x14100 {sum@x,sum@residual}" + kEveryRow,
                   name(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedInt8, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return type_of(test); });

// In f64 arithmetic the quantised values are f64.
TEST(Contract_FusedInt8, QuantisesMixturesOfTypes) {
  for (const char* norm : {"layer f32->i8 weight=f64", "rms bf16->i8 weight=f32 bias=f64",
                           "layer f16->i8 weight=f32+1 bias=bf16", "layer f64->i8 weight=bf16 bias=f16"}) {
    expect_same_bits(norm + (" {residual=f32,residual=f64,eps=1e-5} {17x17,17x129 given_scale=0.02,3x1100,3x9000} "
                             "{tasks=3,odd threads=2}" +
                             kEveryRow));
  }
}

// Short runs of rows at even distances, one of which is rare.
TEST(Contract_FusedInt8, TakesRowsAtUnevenDistances) {
  expect_same_bits("layer f32->i8 5x3x33 x:normal,normal,normal,normal,normal,normal,normal,std_1e30 x=~7~40");
}

// --- numbers computed by hand --------------------------------------------------------------------------------------

Operation with_residual(const char* text) { return parse_case(text).op; }

// The norm takes the sum as rounded to x's type, whether the sum is an output or not. 257 in bf16 is 256.
TEST(Contract_FusedResidual, IsRoundedBeforeTheNorm) {
  const Inputs inputs{.x = Array(DType::bf16, std::vector<double>{256, 1, 2, 3}),
                      .residual = Array(DType::bf16, std::vector<double>{1, 0, 0, 0})};
  for (const char* text :
       {"layer bf16->f32 residual=bf16 eps=0 1x4", "layer bf16->f32 residual=bf16 eps=0 1x4 nosum"}) {
    for (const internal::Target target : runnable_targets()) {
      const Outcome outcome = run_operation(contracts::on_target(target), with_residual(text), inputs);
      EXPECT_EQ(outcome.mean[0], 65.5) << internal::name(target);
      EXPECT_TRUE(outcome.sum.empty() || contracts::bits_at(outcome.sum, 0) == 0x4380) << internal::name(target);
    }
  }
}

// fma rounds once: (1 + 2^-12)^2 leaves 2^-24 beside 2^-11.
TEST(Contract_FusedResidual, MultipliesTheScaleInOneRounding) {
  Operation op = with_residual("layer f32 residual=f32 eps=0 1x2");
  op.residual_scale = 1 + 0x1p-12;
  const Inputs inputs{.x = Array(DType::f32, std::vector<double>{-1 - 0x1p-11, 8}),
                      .residual = Array(DType::f32, std::vector<double>{op.residual_scale, 0})};
  for (const internal::Target target : runnable_targets()) {
    EXPECT_EQ(contracts::value_at(run_operation(contracts::on_target(target), op, inputs).sum, 0), 0x1p-24)
        << internal::name(target);
  }
}

// RMS norm of alternating +1 and -1 with eps = 0 returns them unchanged, so y = +-weight.
struct Weights {
  Operation op;
  Inputs inputs;

  Weights(DType type, const std::vector<double>& weight, double given_scale)
      : op{.kind = Kind::rms,
           .x = type,
           .y = DType::i8,
           .weight = type,
           .eps = 0,
           .cols = weight.size(),
           .given_scale = given_scale},
        inputs{.x = contracts::make_input("alternating", type, weight.size()), .weight = Array(type, weight)} {}

  std::vector<int> run_on(internal::Target target, double* scale = nullptr) const {
    const Outcome outcome = run_operation(contracts::on_target(target), op, inputs);
    if (scale != nullptr) *scale = contracts::value_at(outcome.scale, 0);
    std::vector<int> integers;
    for (const std::byte b : outcome.y.bytes()) integers.push_back(static_cast<std::int8_t>(b));
    return integers;
  }
  void expect_composed() const {
    const contracts::Case c = contracts::case_of(op, 1);
    EXPECT_EQ(contracts::differences(c, inputs, contracts::plain_outcome(c, inputs)), "");
  }
};

using Integers = std::vector<int>;
constexpr DType kArithmetics[] = {DType::f32, DType::f64};

template <class Number>
std::vector<Number> repeated(const std::vector<Number>& numbers, std::size_t times) {
  std::vector<Number> all;
  for (std::size_t i = 0; i < times; ++i) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}

TEST(Contract_FusedInt8, RoundsToNearestEvenAndClamps) {
  for (const DType type : kArithmetics) {
    for (const std::size_t times : {1, 30}) {  // a tail alone, and whole vectors
      const Weights ties(type, repeated<double>({0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 126.5, 126.5, 0.49, 2.51}, times), 1);
      const Weights beyond(
          type, repeated<double>({127.4, 127.5, 1e30, 1e30, kInfinity, kInfinity, kNan, kNan, -0.0, 128}, times), 1);
      const Weights halves(type, repeated<double>({0.125, 0.375, 0.625, 31.75}, times), 0.25);
      for (const internal::Target target : runnable_targets()) {
        EXPECT_EQ(ties.run_on(target), repeated<int>({0, 0, 2, -2, 2, -2, 126, -126, 0, -3}, times))
            << internal::name(target);
        EXPECT_EQ(beyond.run_on(target), repeated<int>({127, -127, 127, -127, 127, -127, 0, 0, 0, -127}, times))
            << internal::name(target);
        EXPECT_EQ(halves.run_on(target), repeated<int>({0, -2, 2, -127}, times)) << internal::name(target);
      }
    }
  }
}

// 16 columns and more: the largest element may be in whole vectors or in the tail.
TEST(Contract_FusedInt8, TheLargestOfTheRowIs127) {
  for (const DType type : kArithmetics) {
    for (const std::size_t cols : {3, 40, 1100, 14100}) {
      for (const std::size_t place : {std::size_t{0}, cols / 2, cols - 1}) {
        std::vector<double> weight(cols, 1.5);
        weight[place] = 254;  // factor 1/2, scale 2
        Integers expected;
        for (std::size_t i = 0; i < cols; ++i) expected.push_back((i % 2 == 0 ? 1 : -1) * (i == place ? 127 : 1));
        for (const internal::Target target : runnable_targets()) {
          double scale = 0;
          EXPECT_EQ(Weights(type, weight, 0).run_on(target, &scale), expected) << place << " of " << cols;
          EXPECT_EQ(scale, 2) << internal::name(target);
        }
      }
    }
  }
}

TEST(Contract_FusedInt8, QuantisesRowsOfZerosAndNonFiniteRows) {
  for (const DType type : kArithmetics) {
    for (const std::size_t cols : {5, 14100}) {
      std::vector<double> with_nan(cols, 1), with_infinity(cols, 1);
      with_nan[cols - 2] = kNan;
      with_infinity[1] = kInfinity;
      for (const internal::Target target : runnable_targets()) {
        double scale = 1;
        EXPECT_EQ(Weights(type, std::vector<double>(cols), 0).run_on(target, &scale), Integers(cols));
        EXPECT_EQ(scale, 0);
        for (const std::vector<double>& weight : {with_nan, with_infinity}) {
          EXPECT_EQ(Weights(type, weight, 0).run_on(target, &scale), Integers(cols));
          EXPECT_TRUE(std::isnan(scale));
        }
      }
    }
  }
}

// Below 2^-121, 127 / m exceeds f32's range, and m / 127 is subnormal. In f64, m may exceed f32's range at both ends.
TEST(Contract_FusedInt8, QuantisesRowsAtTheEndsOfTheRange) {
  for (const double m : {0x1p-119, 0x1p-122, 0x1p-149, 0x1p127, 0x1.FFFFFEp127}) {
    Weights(DType::f32, {m, m, m / 2, 0}, 0).expect_composed();
  }
  for (const double m : {1e-300, 0x1p-151, 0x1p-150, 1e-40, 1e38, 0x1p128, 1e300}) {
    Weights(DType::f64, {m, m, m / 2, 0}, 0).expect_composed();
  }
  for (const double given : {0x1p-126, static_cast<double>(std::numeric_limits<float>::max())}) {
    for (const DType type : kArithmetics) {
      const Weights weights(type, {given, given * 0.75, given * 0.25, given * 0.5, 0x1p-130, 0}, given);
      weights.expect_composed();
      EXPECT_EQ(weights.run_on(runnable_targets()[0])[0], 1) << given;
    }
  }
}

// 127 / m exceeds f32's range, so the largest f32 replaces it. 2^-122 times it is 64.
TEST(Contract_FusedInt8, UsesTheLargestFactorBelowItsRange) {
  for (const DType type : kArithmetics) {
    const Weights weights(type, {0x1p-122, 0x1p-122, 0x1p-123, 0x1p-126, 0x1p-140, 0x1p-149}, 0);
    const Weights smallest(type, {0x1p-149, 0x1p-149, 0}, 0);
    for (const internal::Target target : runnable_targets()) {
      double scale = 0;
      EXPECT_EQ(weights.run_on(target, &scale), (Integers{64, -64, 32, -4, 0, 0})) << internal::name(target);
      EXPECT_EQ(scale, 0x1p-122f / 127);
      EXPECT_EQ(smallest.run_on(target, &scale), (Integers{0, 0, 0})) << internal::name(target);
      EXPECT_EQ(scale, 0);
    }
  }
}

// 0.1 rounded to f32 is above 0.1, and its reciprocal is 10. A scale rounded in another direction would break the ties.
TEST(Contract_FusedInt8, RoundsTheGivenScaleToNearestInEveryMode) {
  const Inputs inputs{.x = Array(DType::f32, std::vector<double>{1, 2, 3, 5}),
                      .weight = Array(DType::f32, std::vector<double>(4, 0)),
                      .bias = Array(DType::f32, std::vector<double>{0.05, 0.15, 0.25, 0.35})};
  const std::vector<std::byte> expected = {std::byte{0}, std::byte{2}, std::byte{2}, std::byte{4}};
  for (const std::string& text : expanded(
           "layer f32->i8 weight=f32 bias=f32 given_scale=0.1 1x4 mode={flush_to_zero,upward,downward,toward_zero}")) {
    for (const internal::Target target : runnable_targets()) {
      EXPECT_TRUE(std::ranges::equal(contracts::outcome_by(parse_case(text), target, inputs).y.bytes(), expected))
          << text;
    }
  }
}

}  // namespace
}  // namespace evenorm::testing
