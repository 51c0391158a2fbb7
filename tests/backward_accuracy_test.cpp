// Gradients stay within the bound of docs/numerics.md: the best target's, whose bits the others must have.
#include <gtest/gtest.h>

#include <cstdlib>

#include "contracts/backward_accuracy.hpp"
#include "support/cases.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::expanded;
using evenorm::testing::expect_kept;
using evenorm::testing::expect_same_bits;

std::string operation(Kind kind, DType dtype) {
  return expanded((kind == Kind::layer ? "layer" : "rms") + std::string(" $ weight=$ dx=$ dgamma=$ dbeta=$ "),
                  name(dtype))[0];
}

std::vector<std::string> gradients_of(DType dtype, std::size_t cols) {
  std::vector<std::string> held;
  const std::vector<std::string_view> known = input_names(dtype, cols);
  for (const char* name :
       {"normal", "mean_1e2", "outlier_10000_first", "outlier_1e6_first", "subnormal", "huge", "std_1e300"}) {
    if (std::ranges::find(known, name) != known.end()) held.emplace_back(name);
  }
  return held;
}

// All inputs, five rows of them at a time. Each takes one of the gradients that dy's type can hold, or all of them.
void try_inputs(const std::string& op, std::size_t cols, bool with_all_gradients = false) {
  static std::size_t turn = 0;
  const Case c = parse_case(op + " 5x" + std::to_string(cols));
  const std::vector<std::string_view> inputs = input_names(c.op.x, cols);
  const std::vector<std::string> gradients = gradients_of(c.op.y, cols);
  for (std::size_t first = 0; first < inputs.size(); first += 5) {
    std::string names;
    for (std::size_t i = first; i < std::min(inputs.size(), first + 5); ++i)
      names += (i == first ? "" : ",") + std::string(inputs[i]);
    for (std::size_t i = 0; i < (with_all_gradients ? gradients.size() : 1); ++i) {
      expect_kept(c.text() + " x:" + names + " dy:" + gradients[turn++ % gradients.size()]);
    }
  }
}

class Contract_GradientsAccuracy : public ::testing::TestWithParam<std::tuple<DType, Kind, std::size_t>> {};

TEST_P(Contract_GradientsAccuracy, AdversarialRowsAreWithinTheBound) {
  const auto [dtype, kind, cols] = GetParam();
  try_inputs(operation(kind, dtype), cols, cols < 100);
  // Five rows of the same input: sums over rows have no terms of other rows that could hide an error.
  expect_kept(operation(kind, dtype) + "5x" + std::to_string(cols) + " x:{mean_1e6,std_1e-18,one_ulp_0.1} seed=2");
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_GradientsAccuracy,
                         ::testing::Combine(::testing::ValuesIn(kAllTypes), ::testing::ValuesIn(kBothKinds),
                                            ::testing::Values(1, 2, 31, 768, 1025, 3000)),
                         [](const auto& test) {
                           return evenorm::testing::word(std::get<0>(test.param)) + "_" +
                                  evenorm::testing::word(std::get<1>(test.param)) + "_Cols" +
                                  std::to_string(std::get<2>(test.param));
                         });

TEST(Contract_GradientsAccuracy, AnyMixtureOfTypesIsWithinTheBound) {
  for (const char* mixture :
       {"bf16 weight=f32 dx=bf16 dgamma=f32 dbeta=f32", "bf16 weight=bf16+1 dx=f32 dgamma=f64 dbeta=bf16",
        "f16->f32 weight=f16 dx=f16 dgamma=f16 dbeta=f32", "f32 weight=f32+1 dx=f32 dgamma=f32 dbeta=f32",
        "f32 weight=f32 dx=f16 dgamma=bf16 dbeta=f64", "f32->f64 weight=f32 dx=f32 dgamma=f32 dbeta=f64",
        "f64 weight=f64+1 dx=f64 dgamma=f64 dbeta=f64", "bf16->f16 weight=f64 dx=bf16 dgamma=f64 dbeta=f16",
        "f32 dx=f64 dgamma=f64 dbeta=f32", "f32 dx=f32 dbeta=f32"}) {
    for (const std::size_t cols : {2, 33, 300}) {
      for (const std::string& op : expanded("{layer,rms} " + std::string(mixture))) try_inputs(op, cols);
    }
  }
}

// eps ranges from 0, with which constant rows have no gradient, to far above the variance.
TEST(Contract_GradientsAccuracy, AnyEpsIsWithinTheBound) {
  for (const std::string& op :
       expanded("{layer,rms} {f32 weight=f32 dx=f32 dgamma=f32,f64 weight=f64 dx=f64 dgamma=f64} dbeta=f64 "
                "eps={0,0x1p-1074,1e-300,1e-30,1,1e30,1e300}")) {
    try_inputs(op, 40);
  }
}

// Many rows, in row blocks of unequal size.
TEST(Contract_GradientsAccuracy, SumsOverManyRowsAreWithinTheBound) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    expect_kept("layer $ weight=$ dx=$ dgamma=f64 dbeta=f64 {127,1000,5003}x18 x:normal,mean_300 dy:normal,mean_1e2",
                name(dtype));
  }
}

// Short, for tools/mutants.
TEST(Contract_GradientsAccuracy, RowsWithALargeMeanAreWithinTheBound) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    expect_kept(operation(Kind::layer, dtype) + "5x65 {x:mean_1e6,dy:mean_1e2} seed=5");
  }
}
TEST(Contract_GradientsAccuracy, GradientsOfAnySizeAreWithinTheBound) {
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const std::string& gradient : gradients_of(dtype, 65)) {
        expect_kept(operation(kind, dtype) + "5x65 x:{normal,std_1e30,std_1e-30,huge,subnormal} seed=7 dy:" + gradient);
      }
    }
  }
}

// dx plus the gradient of a residual sum: one pass has the bits of the two steps.
TEST(Contract_BackwardSum, HasTheBitsOfTheTwoSteps) {
  for (const DType x : kAllTypes) {
    for (const DType other : kAllTypes) {
      const std::string dsum = " dsum=" + std::string(name(other));
      expect_same_bits("{layer,rms} $ dx=$ 5x{1,67,1300} {tasks=3,x=first dx=first~1,dx=reversed}" + dsum, name(x));
      expect_same_bits("{layer,rms} $ 5x{1,67,1300} dx@dsum dx=" + std::string(name(other)) + dsum, name(x));
    }
  }
  expect_same_bits("layer f32 dx=f32 dsum=f32 2500x1024 threads=2");  // with non-temporal stores
}

// --- numbers for one weakness each

void expect_rows_kept(const std::string& text, const Inputs& inputs) {
  EXPECT_EQ(verify(parse_case(text), inputs), "");
}

// f64's bound counts every addition; what rows reach is far below it.
TEST(Contract_GradientsAccuracy, RowsOfF64AreWithinAFewUnits) {
  for (const std::string& text :
       expanded("{layer,rms} f64 weight=f64 dx=f64 dgamma=f64 dbeta=f64 eps=0 100x{15,64,768,3000} "
                "x:{normal,mean_1e2,mean_1e6,outlier_1e6_first,ramp} seed=4")) {
    const Case c = parse_case(text);
    Inputs inputs = inputs_of(c);
    for (std::size_t i = 0; i < inputs.x.size() && c.x[0] == "ramp"; ++i) inputs.x.set(i, value_at(inputs.x, i) + 1e12);
    const Outcome found = plain_outcome(c, inputs);
    EXPECT_EQ(differences(c, inputs, found), "");
    const GradientErrors errors =
        ExpectedGradients(c.op, inputs.x, inputs.dy, inputs.weight).errors_of(found.dx, found.dgamma, found.dbeta);
    const bool one_square_is_nearly_all = c.x[0] == "outlier_1e6_first" && c.op.kind == Kind::rms;
    EXPECT_LE(std::max({errors.dx, errors.dgamma, errors.dbeta}), one_square_is_nearly_all ? 20 : 16) << text;
  }
}

// One dy of a row is far above the others. The bounds of the other columns do not depend on it.
TEST(Contract_GradientsAccuracy, SmallGradientsBesideHugeOnesStayAccurate) {
  for (const auto& [dtype, huge] : {std::pair{DType::f32, 1e38}, {DType::f64, 1e305}}) {
    for (const std::string& text :
         expanded("{layer,rms} $ weight=$ dx=$ dgamma=$ dbeta=$ 5x40 x:{normal,std_1e-18,subnormal} "
                  "dy:normal,std_1e-18",
                  name(dtype))) {
      Inputs inputs = inputs_of(parse_case(text));
      for (std::size_t r = 0; r < 5; ++r) {
        inputs.dy.set(r * 40 + 17, huge);
        inputs.x.set(r * 40 + 5, 0);
      }
      expect_rows_kept(text, inputs);
    }
  }
}

// c2 rstd^2 exceeds f32's range although dx does not. No target may clamp a value that becomes infinite on others.
TEST(Contract_GradientsAccuracy, FactorsBeyondF32InRowsDoneTogetherAreWithinTheBound) {
  Random random(1);
  Inputs inputs{Array(DType::f32, 512), Array(DType::f32, 512), Array(DType::f32, std::vector<double>(64, 1))};
  for (std::size_t i = 0; i < 512; ++i) {
    const double x = random.normal();
    inputs.x.set(i, x * 0x1p-31);
    inputs.dy.set(i, (random.normal() + 0.9 * x) * 0x1p75);
  }
  for (const Kind kind : kBothKinds) expect_rows_kept(operation(kind, DType::f32) + "eps=0 8x64", inputs);
}

// One row.
void expect_row_kept(Kind kind, DType dtype, const std::vector<double>& x, const std::vector<double>& dy,
                     const std::vector<double>& gamma, const std::string& eps = "0") {
  const auto array = [&](const std::vector<double>& values) { return Array(dtype, values); };
  expect_rows_kept(operation(kind, dtype) + "1x" + std::to_string(x.size()) + " eps=" + eps,
                   {array(x), array(dy), array(gamma)});
}

// Subnormal intermediate values are later multiplied by x - mean or by rstd.
TEST(Contract_GradientsAccuracy, TinyGammasAreWithinTheBound) {
  const std::vector<double> dy = {1, -1, 0.5, 2};
  expect_row_kept(Kind::layer, DType::f64, {1e30, 2e30, 3e30, 5e30}, dy, std::vector<double>(4, 1e-200));
  expect_row_kept(Kind::layer, DType::f32, {1e9, 2e9, 3e9, 5e9}, dy, std::vector<double>(4, 2e-27));
}

// dy (x - mean), or its product with gamma, is below f64's range, but rstd makes up for it.
TEST(Contract_GradientsAccuracy, ProductsBelowTheRangeStayAccurate) {
  constexpr DType kType = DType::f64;
  expect_row_kept(Kind::layer, kType, {0x1p-254, 0, 0x1.8p-254}, {1, 0x1.9p-900, 0x1p-800}, {1, 1, 1});
  expect_row_kept(Kind::rms, kType, {0x1.8p-706, 0x1p-254}, {0x1p-149, 0x1p-149}, {0x1p-455, 0});
  for (const Kind kind : kBothKinds) {
    expect_row_kept(kind, kType, {0x1.8p-150, 0x1p-151, -0x1.2p-150}, {0x1.9p-250, 0x1p-250, -0x1.3p-250},
                    {0x1.1p-750, 0x1.7p-750, 0x1p-752});
  }
}

// Some terms contain rstd three times, so its error counts three times.
TEST(Contract_GradientsAccuracy, ScaledRowsWithRstdFarFromOneAreWithinTheBound) {
  expect_row_kept(Kind::rms, DType::f64, {0x1.b03bc49da0c0dp-651, 0x1.f12b62cb7de0bp-653}, {-0x1.652e8077855ep+762, 0},
                  {0x1.69e9a2p-63, 0}, "0x1.6ec065adf2646p+28");
  expect_row_kept(Kind::rms, DType::f64, {-0x1p+463, -0x1.0000000002p+463, -0x1.fcp+462},
                  {-0x1.d74a1fa3a1c36p+1023, 0x1p+1023, 0x1p+1023},
                  {0x1p-601, -0x1.c5e5e6276d628p-640, 0x1.f2784802e0cep-618});
}

class Contract_EveryGradient : public ::testing::TestWithParam<std::tuple<DType, Kind>> {};

TEST_P(Contract_EveryGradient, IsWithinTheBoundForEveryInput_Slow) {
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1";
  const auto [dtype, kind] = GetParam();
  for (const std::size_t cols : {1, 2, 3, 31, 64, 768, 1025, 3000, 20000})
    try_inputs(operation(kind, dtype), cols, true);
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_EveryGradient,
                         ::testing::Combine(::testing::ValuesIn(kAllTypes), ::testing::ValuesIn(kBothKinds)),
                         [](const auto& test) {
                           return evenorm::testing::word(std::get<0>(test.param)) +
                                  evenorm::testing::word(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace evenorm::contracts
