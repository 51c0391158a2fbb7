// Gradients stay within the bound of docs/numerics.md. One target is compared with the reference in binary128, and the
// others must have its bits.
#include <gtest/gtest.h>

#include <cstdlib>

#include "contracts/backward_accuracy.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::inputs_of;
using evenorm::testing::Names;

constexpr std::size_t kRows = 5;

std::string text_of(const Names& names) {
  std::string text;
  for (const std::string_view name : names) text += " " + std::string(name);
  return text;
}

GradientErrors expect_within_limits(const BackwardOperation& op, const BackwardInputs& inputs,
                                    const std::string& what) {
  const BackwardOutcome first = run_backward(gradients_on_target(runnable_targets()[0]), op, inputs);
  const GradientErrors errors = ExpectedGradients(op.measured(), inputs.x, inputs.dy, inputs.weight)
                                    .errors_of(first.dx, first.dgamma, first.dbeta);
  EXPECT_TRUE(errors.within_limits(op.measured())) << op.name() << ", " << what << ": dx " << errors.dx << ", dgamma "
                                                   << errors.dgamma << ", dbeta " << errors.dbeta;
  for (const internal::Target target : runnable_targets()) {
    const BackwardOutcome outcome = run_backward(gradients_on_target(target), op, inputs);
    EXPECT_TRUE(outcome.has_the_bits_of(first)) << op.name() << ", " << what << " on " << internal::name(target);
  }
  return errors;
}

void expect_rows_within_limits(const BackwardOperation& op, const Names& x, const Names& dy, std::uint64_t seed) {
  expect_within_limits(op, inputs_of(op, x, dy, kRows, seed), "x" + text_of(x) + ", dy" + text_of(dy));
}

Names gradients_of(DType dtype, std::size_t cols) {
  Names held;
  const std::vector<std::string_view> known = input_names(dtype, cols);
  for (const std::string_view name :
       {"normal", "mean_1e2", "outlier_10000_first", "outlier_1e6_first", "subnormal", "huge", "std_1e300"}) {
    if (std::ranges::find(known, name) != known.end()) held.push_back(name);
  }
  return held;
}

// Runs all inputs, kRows of them at a time. Each takes one of the gradients that dy's type can hold, or all of them.
void try_inputs(const BackwardOperation& op, bool with_all_gradients, std::uint64_t seed) {
  const Names inputs = input_names(op.forward.x, op.forward.cols);
  const Names gradients = gradients_of(op.forward.y, op.forward.cols);
  std::size_t turn = op.forward.cols + seed;
  for (std::size_t first = 0; first < inputs.size(); first += kRows) {
    const Names some(inputs.begin() + static_cast<std::ptrdiff_t>(first),
                     inputs.begin() + static_cast<std::ptrdiff_t>(std::min(inputs.size(), first + kRows)));
    for (std::size_t i = 0; i < (with_all_gradients ? gradients.size() : 1); ++i) {
      expect_rows_within_limits(op, some, {gradients[turn++ % gradients.size()]}, seed);
    }
  }
}

using Parameters = std::tuple<DType, Kind, std::size_t>;

class Contract_GradientsAccuracy : public ::testing::TestWithParam<Parameters> {};

TEST_P(Contract_GradientsAccuracy, AdversarialRowsAreWithinTheBound) {
  const auto [dtype, kind, cols] = GetParam();
  BackwardOperation op = same_type_backward(kind, dtype, cols);
  try_inputs(op, cols < 100, 1);
  // Five rows of the same input: sums over rows have no terms of other rows that could hide an error.
  for (const std::string_view input : {"mean_1e6", "std_1e-18", "one_ulp_0.1"}) {
    const Names known = input_names(dtype, cols);
    if (std::ranges::find(known, input) == known.end()) continue;
    expect_rows_within_limits(op, {input}, {"normal"}, 2);
  }
}

std::string test_name(const ::testing::TestParamInfo<Parameters>& info) {
  return evenorm::testing::word(std::get<0>(info.param)) + "_" + evenorm::testing::word(std::get<1>(info.param)) +
         "_Cols" + std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_GradientsAccuracy,
                         ::testing::Combine(::testing::ValuesIn(kAllTypes), ::testing::ValuesIn(kBothKinds),
                                            ::testing::Values(1, 2, 31, 768, 1025, 3000)),
                         test_name);

std::vector<BackwardOperation> mixtures(Kind kind, std::size_t cols) {
  using enum DType;
  const auto forward = [&](DType x, DType dy, std::optional<DType> weight, bool zero_centered = false) {
    return Operation{kind, x, dy, weight, {}, zero_centered, 1e-5, cols};
  };
  return {{forward(bf16, bf16, f32), bf16, f32, f32},    {forward(bf16, bf16, bf16, true), f32, f64, bf16},
          {forward(f16, f32, f16), f16, f16, f32},       {forward(f32, f32, f32, true), f32, f32, f32},
          {forward(f32, f32, f32), f16, bf16, f64},      {forward(f32, f64, f32), f32, f32, f64},
          {forward(f64, f64, f64, true), f64, f64, f64}, {forward(bf16, f16, f64), bf16, f64, f16},
          {forward(f32, f32, {}), f64, f64, f32},        {forward(f32, f32, {}), f32, {}, f32}};
}

// f64's bound counts every addition; what rows reach is far below it.
TEST(Contract_GradientsAccuracy, RowsOfF64AreWithinAFewUnits) {
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {15, 64, 768, 3000}) {
      BackwardOperation op = same_type_backward(kind, DType::f64, cols);
      op.forward.eps = 0;
      for (const std::string_view input : {"normal", "mean_1e2", "mean_1e6", "outlier_1e6_first", "ramp"}) {
        BackwardInputs inputs = inputs_of(op, {input}, {"normal"}, 100, 4);
        if (input == "ramp") {
          for (std::size_t i = 0; i < inputs.x.size(); ++i) inputs.x.set(i, value_at(inputs.x, i) + 1e12);
        }
        const GradientErrors errors = expect_within_limits(op, inputs, std::string(input));
        const double most = input == "outlier_1e6_first" && kind == Kind::rms ? 20 : 16;  // one square is nearly all
        EXPECT_LE(errors.dx, most) << input << " " << op.name();
        EXPECT_LE(errors.dgamma, most) << input << " " << op.name();
        EXPECT_LE(errors.dbeta, most) << input << " " << op.name();
      }
    }
  }
}

TEST(Contract_GradientsAccuracy, AnyMixtureOfTypesIsWithinTheBound) {
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {2, 33, 300}) {
      for (const BackwardOperation& op : mixtures(kind, cols)) try_inputs(op, false, 3);
    }
  }
}

// eps ranges from 0, with which constant rows have no gradient, to far above the variance.
TEST(Contract_GradientsAccuracy, AnyEpsIsWithinTheBound) {
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const double eps : {0.0, 0x1p-1074, 1e-300, 1e-30, 1.0, 1e30, 1e300}) {
        BackwardOperation op = same_type_backward(kind, dtype, 40);
        op.forward.eps = eps;
        try_inputs(op, false, 4);
      }
    }
  }
}

// Many rows, in row blocks of unequal size.
TEST(Contract_GradientsAccuracy, SumsOverManyRowsAreWithinTheBound) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const std::size_t rows : {127, 1000, 5003}) {
      BackwardOperation op = same_type_backward(Kind::layer, dtype, 18);
      op.dgamma = op.dbeta = DType::f64;
      const BackwardInputs inputs = inputs_of(op, {"normal", "mean_300"}, {"normal", "mean_1e2"}, rows);
      expect_within_limits(op, inputs, std::to_string(rows) + " rows");
    }
  }
}

// Short, for tools/mutants.
TEST(Contract_GradientsAccuracy, RowsWithALargeMeanAreWithinTheBound) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    expect_rows_within_limits(same_type_backward(Kind::layer, dtype, 65), {"mean_1e6"}, {"normal"}, 5);
    expect_rows_within_limits(same_type_backward(Kind::layer, dtype, 65), {"normal"}, {"mean_1e2"}, 6);
  }
}
TEST(Contract_GradientsAccuracy, GradientsOfAnySizeAreWithinTheBound) {
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const std::string_view gradient : gradients_of(dtype, 65)) {
        for (const std::string_view input : {"normal", "std_1e30", "std_1e-30", "huge", "subnormal"}) {
          expect_rows_within_limits(same_type_backward(kind, dtype, 65), {input}, {gradient}, 7);
        }
      }
    }
  }
}

// One dy of a row is far above the others. The bounds of the other columns do not depend on it.
TEST(Contract_GradientsAccuracy, SmallGradientsBesideHugeOnesStayAccurate) {
  for (const Kind kind : kBothKinds) {
    for (const auto& [dtype, huge] : {std::pair{DType::f32, 1e38}, {DType::f64, 1e305}}) {
      const BackwardOperation op = same_type_backward(kind, dtype, 40);
      for (const std::string_view input : {"normal", "std_1e-18", "subnormal"}) {
        BackwardInputs inputs = inputs_of(op, {input}, {"normal", "std_1e-18"}, kRows);
        for (std::size_t r = 0; r < kRows; ++r) {
          inputs.dy.set(r * 40 + 17, huge);
          inputs.x.set(r * 40 + 5, 0);
        }
        expect_within_limits(op, inputs, "x " + std::string(input) + ", one dy huge");
      }
    }
  }
}

// c2 rstd^2 exceeds f32's range although dx does not. No target may clamp a value that becomes infinite on others.
TEST(Contract_GradientsAccuracy, FactorsBeyondF32InRowsDoneTogetherAreWithinTheBound) {
  for (const Kind kind : kBothKinds) {
    BackwardOperation op = same_type_backward(kind, DType::f32, 64);
    op.forward.eps = 0;
    Random random(1);
    BackwardInputs inputs{Array(DType::f32, std::size_t{512}), Array(DType::f32, std::size_t{512}),
                          Array(DType::f32, std::vector<double>(64, 1))};
    for (std::size_t i = 0; i < 512; ++i) {
      const double x = random.normal();
      inputs.x.set(i, x * 0x1p-31);
      inputs.dy.set(i, (random.normal() + 0.9 * x) * 0x1p75);
    }
    expect_within_limits(op, inputs, "x 2^-31, dy 2^75");
  }
}

// Subnormal intermediate values are later multiplied by x - mean or by rstd.
TEST(Contract_GradientsAccuracy, TinyGammasAreWithinTheBound) {
  struct Case {
    DType dtype;
    double x, gamma, first_dx;
  };
  for (const Case& c : {Case{DType::f64, 1e30, 1e-200, 7.43736e-231}, Case{DType::f32, 1e9, 2e-27, 1.48747e-36}}) {
    BackwardOperation op = same_type_backward(Kind::layer, c.dtype, 4);
    op.forward.eps = 0;
    const BackwardInputs inputs{Array(c.dtype, std::vector<double>{1 * c.x, 2 * c.x, 3 * c.x, 5 * c.x}),
                                Array(c.dtype, std::vector<double>{1, -1, 0.5, 2}),
                                Array(c.dtype, std::vector<double>(4, c.gamma))};
    expect_within_limits(op, inputs, c.dtype == DType::f64 ? "gamma 1e-200" : "gamma 2e-27");
    const BackwardOutcome outcome = run_backward(gradients_on_target(runnable_targets()[0]), op, inputs);
    const auto dx = static_cast<double>(reference::widen(c.dtype, outcome.dx.data(), 1)[0]);
    EXPECT_NEAR(dx / c.first_dx, 1, 1e-4);
  }
}

// One row of f64. eps is 0 unless given.
void expect_row_within_limits(Kind kind, const std::vector<double>& x, const std::vector<double>& dy,
                              const std::vector<double>& gamma, double eps, const std::string& what) {
  BackwardOperation op = same_type_backward(kind, DType::f64, x.size());
  op.forward.eps = eps;
  expect_within_limits(op, {Array(DType::f64, x), Array(DType::f64, dy), Array(DType::f64, gamma)}, what);
}

// dy (x - mean), or its product with gamma, is below f64's range, but rstd makes up for it.
TEST(Contract_GradientsAccuracy, ProductsBelowTheRangeStayAccurate) {
  expect_row_within_limits(Kind::layer, {0x1p-254, 0, 0x1.8p-254}, {1, 0x1.9p-900, 0x1p-800}, {1, 1, 1}, 0,
                           "dy (x - mean) is subnormal");
  expect_row_within_limits(Kind::rms, {0x1.8p-706, 0x1p-254}, {0x1p-149, 0x1p-149}, {0x1p-455, 0}, 0,
                           "dy x gamma is subnormal");
  for (const Kind kind : kBothKinds) {
    expect_row_within_limits(kind, {0x1.8p-150, 0x1p-151, -0x1.2p-150}, {0x1.9p-250, 0x1p-250, -0x1.3p-250},
                             {0x1.1p-750, 0x1.7p-750, 0x1p-752}, 0, "dy gamma is below the range");
  }
}

// Some terms contain rstd three times, so its error counts three times.
TEST(Contract_GradientsAccuracy, ScaledRowsWithRstdFarFromOneAreWithinTheBound) {
  expect_row_within_limits(Kind::rms, {0x1.b03bc49da0c0dp-651, 0x1.f12b62cb7de0bp-653}, {-0x1.652e8077855ep+762, 0},
                           {0x1.69e9a2p-63, 0}, 0x1.6ec065adf2646p+28, "eps far above x^2");
  expect_row_within_limits(Kind::rms, {-0x1p+463, -0x1.0000000002p+463, -0x1.fcp+462},
                           {-0x1.d74a1fa3a1c36p+1023, 0x1p+1023, 0x1p+1023},
                           {0x1p-601, -0x1.c5e5e6276d628p-640, 0x1.f2784802e0cep-618}, 0, "x^2 above 2^900");
}

class Contract_EveryGradient : public ::testing::TestWithParam<std::tuple<DType, Kind>> {};

TEST_P(Contract_EveryGradient, IsWithinTheBoundForEveryInput_Slow) {
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1";
  const auto [dtype, kind] = GetParam();
  for (const std::size_t cols : {1, 2, 3, 31, 64, 768, 1025, 3000, 20000}) {
    for (const std::string_view input : input_names(dtype, cols)) {
      for (const std::string_view gradient : gradients_of(dtype, cols)) {
        expect_rows_within_limits(same_type_backward(kind, dtype, cols), {input}, {gradient}, 8);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_EveryGradient,
                         ::testing::Combine(::testing::ValuesIn(kAllTypes), ::testing::ValuesIn(kBothKinds)),
                         [](const auto& test) {
                           return evenorm::testing::word(std::get<0>(test.param)) +
                                  evenorm::testing::word(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace evenorm::contracts
