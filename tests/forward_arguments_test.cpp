// Wrong arguments of a forward pass, plain and fused. Each is refused before anything is written, with a message that
// names the argument, its value and what it should be. forward_overlap_test.cpp has memory shared by tensors, and
// enumerations_test.cpp has numbers that are no type or kind.
#include <cmath>
#include <limits>

#include "support/forward_call.hpp"

namespace evenorm::testing {
namespace {

using Call = ForwardCall;
using Refusals = std::vector<Refusal<Call>>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void expect_plain_refused(const Refusals& refusals) { expect_refused(&Call::plain, &Call::error, refusals); }
void expect_fused_refused(const Refusals& refusals) { expect_refused(&Call::fused, &Call::error, refusals); }
void expect_quantising_refused(const Refusals& refusals) { expect_refused(&Call::quantising, &Call::error, refusals); }

void give_scale(Call& call, double given_scale) {
  call.forward.scale = {};
  call.forward.given_scale = given_scale;
}

TEST(Forward_Arguments, AcceptsCorrectCalls) {
  for (const auto make : {&Call::plain, &Call::fused, &Call::quantising}) EXPECT_TRUE(passes(make()));
  Call given = Call::quantising();
  give_scale(given, 0.5);
  EXPECT_TRUE(passes(given));
}

TEST(Forward_Arguments, RejectsShapesThatDoNotFit) {
  expect_plain_refused({
      {with(&Call::weight_shape, {5}), "weight has shape (5), but normalized_shape is (3, 8)"},
      {with(&Call::bias_shape, {24}), "bias has shape (24), but normalized_shape is (3, 8)"},
      {with(&Call::y_shape, {3, 2, 8}), "y has shape (3, 2, 8), but x has (2, 3, 8)"},
      {with(&Call::statistics_shape, {2, 3}), "mean has shape (2, 3)"},
      {with(&Call::normalized, {4, 8}), "x has shape (2, 3, 8), but it should end in normalized_shape (4, 8)"},
      {with(&Call::normalized, {1, 2, 3, 8}), "normalized_shape (1, 2, 3, 8)"},
      {with(&Call::normalized, {}), "normalized_shape is (), but it or axes should name at least one axis"},
  });
  expect_fused_refused({
      {with(&Call::residual_shape, {2, 24}), "residual has shape (2, 24), but x has (2, 3, 8)"},
      {with(&Call::sum_shape, {2, 3, 7}), "sum has shape (2, 3, 7), but x has (2, 3, 8)"},
  });
  expect_quantising_refused(
      {{with(&Call::scale_shape, {2, 3}), "scale has shape (2, 3), but x has rows of shape (2)"}});
}

TEST(Forward_Arguments, RejectsImpossibleSizesAndStrides) {
  const auto with_columns = [](const Call::Shape& shape, const Call::Shape& columns) {
    return [=](Call& call) {
      call.shape = call.y_shape = shape;
      call.normalized = call.weight_shape = call.bias_shape = columns;
    };
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  expect_plain_refused({
      {with_columns({-2, 3, 8}, {3, 8}), "x has shape (-2, 3, 8)"},
      {with_columns({2, 3, 0}, {3, 0}), "normalized_shape is (3, 0)"},
      {with_columns({kLarge, kLarge, 24}, {24}), "more than memory can hold"},
      {with(&Call::x_strides, {24, 8}), "x has strides (24, 8), but shape (2, 3, 8)"},
      {with(&Call::weight_strides, {16, 1, 1}), "weight has strides (16, 1, 1), but shape (3, 8)"},
  });
}

TEST(Forward_Arguments, ChecksAxes) {
  const auto with_axes = [](const Call::Shape& axes) {
    return [=](Call& call) {
      call.normalized = {};
      call.axes = axes;
    };
  };
  expect_plain_refused({
      {with(&Call::axes, {1, 2}), "axes and normalized_shape are given, but only one of them should be"},
      {with_axes({3}), "axes is (3), but x has 3 axes"},
      {with_axes({-4, 1}), "axes is (-4, 1), but x has 3 axes"},
      {with_axes({1, -2}), "axes is (1, -2), which names an axis twice"},
      {with_axes({0, 2}), "weight has shape (3, 8), but the axes normalised have shape (2, 8)"},
  });
}

TEST(Forward_Arguments, ChecksTypes) {
  expect_plain_refused({
      {[](Call& c) { c.forward.rstd.dtype = DType::bf16; }, "rstd has dtype bf16, but statistics should be f64 or f32"},
      {[](Call& c) { c.forward.mean.dtype = DType::f16; }, "mean has dtype f16, but statistics should be f64 or f32"},
  });
  expect_fused_refused({{[](Call& c) { c.forward.sum.dtype = DType::bf16; }, "sum has dtype bf16, but x has f32"}});
  expect_quantising_refused(
      {{[](Call& c) { c.forward.scale.dtype = DType::f64; }, "scale has dtype f64, but it should be f32"}});
  Call call = Call::fused();
  call.forward.residual.dtype = DType::f16;
  EXPECT_TRUE(passes(call));
}

// Only y may hold integers.
TEST(Forward_Arguments, RejectsI8ForOtherTensors) {
  const auto set_i8 = [](auto tensor) { return [=](Call& call) { (call.forward.*tensor).dtype = DType::i8; }; };
  expect_fused_refused({{set_i8(&Forward::x), "x has dtype i8"},
                        {set_i8(&Forward::residual), "residual has dtype i8"},
                        {set_i8(&Forward::sum), "sum has dtype i8"},
                        {set_i8(&Forward::weight), "weight has dtype i8"},
                        {set_i8(&Forward::rstd), "rstd has dtype i8"}});
}

TEST(Forward_Arguments, RejectsMissingTensors) {
  expect_plain_refused({
      {[](Call& c) { c.forward.x.data = nullptr; }, "x is null"},
      {[](Call& c) { c.forward.y.data = nullptr; }, "y is null"},
      {[](Call& c) { c.forward.kind = Kind::rms; }, "mean is given, but RMS norm has none"},
      {[](Call& c) { c.forward.scale.data = c.at(Call::kScale); }, "scale is given, but y is not i8"},
      {[](Call& c) { c.forward.residual_scale = 0.5; }, "residual_scale is 0.5, but residual is absent"},
      {[](Call& c) { c.forward.residual_scale = kNan; }, "residual_scale is nan, but residual is absent"},
      {[](Call& c) { c.forward.given_scale = 0.25; }, "given_scale is 0.25, but y is not i8"},
      {[](Call& c) { c.forward.given_scale = kNan; }, "given_scale is nan, but y is not i8"},
      {[](Call& c) {
         c.forward.zero_centered = true;
         c.forward.weight.data = nullptr;
       },
       "weight is absent"},
  });
  expect_fused_refused({
      {[](Call& c) { c.forward.residual.data = nullptr; }, "sum is given, but residual is absent"},
  });
  expect_quantising_refused({
      {[](Call& c) { c.forward.scale.data = nullptr; }, "scale is null, but y is i8 and there is no given_scale"},
      {[](Call& c) { c.forward.given_scale = 1; }, "scale is given, but so is given_scale"},
  });
}

TEST(Forward_Arguments, AcceptsCallsWithoutOptionalTensors) {
  Call rms, zero_centered = Call::fused();
  rms.forward.kind = Kind::rms;
  rms.forward.mean.data = nullptr;
  EXPECT_TRUE(passes(rms));
  zero_centered.forward.zero_centered = true;
  EXPECT_TRUE(passes(zero_centered));
}

TEST(Forward_Arguments, RejectsAnEpsThatIsNegativeOrNotFinite) {
  Call call;
  for (const double eps : {-1e-5, -1e-300, -kInfinity, kInfinity, kNan}) {
    call.forward.eps = eps;
    EXPECT_THAT(call.error(), ::testing::HasSubstr("eps is ")) << eps;
  }
  call.forward.eps = -1e-5;
  EXPECT_EQ(call.error(), "eps is -1e-05, but it should be finite and at least 0");
  for (const double eps : {0.0, -0.0, 1e-320, 1e300}) {
    Call right;
    right.forward.eps = eps;
    EXPECT_TRUE(passes(right)) << eps;
  }
}

TEST(Forward_Arguments, RejectsAResidualScaleThatIsNotFinite) {
  const auto set_scale = [](double scale) { return [=](Call& call) { call.forward.residual_scale = scale; }; };
  expect_fused_refused({{set_scale(kNan), "residual_scale is nan, but it should be finite in f32"},
                        {set_scale(kInfinity), "residual_scale is inf, but it should be finite in f32"},
                        {set_scale(-kInfinity), "residual_scale is -inf, but it should be finite in f32"},
                        {set_scale(1e39), "residual_scale is 1e+39, but it should be finite in f32"}});
  Call large = Call::fused(), small = Call::fused();
  large.forward.residual_scale = 1e39;
  large.forward.residual.dtype = DType::f64;
  EXPECT_TRUE(passes(large));
  small.forward.residual_scale = -1e-3;
  EXPECT_TRUE(passes(small));
}

TEST(Forward_Arguments, RejectsInvalidGivenScales) {
  for (const auto& [scale, text] : {std::pair{-1.0, "-1"},
                                    {kNan, "nan"},
                                    {kInfinity, "inf"},
                                    {1e39, "1e+39"},
                                    {1e-39, "1e-39"},
                                    {1e-300, "1e-300"}}) {
    Call call = Call::quantising();
    give_scale(call, scale);
    EXPECT_EQ(call.error(), "given_scale is " + std::string(text) + ", but it should be a normal f32 above 0");
  }
}

// --- strides -------------------------------------------------------------------------------------------------------

void expect_strides_refused(Call (*make)(), Call::Shape Call::*strides, const std::string& name, const char* where) {
  Call call = make();
  call.*strides = {24, 1, 3};
  EXPECT_EQ(call.error(), name + " has strides (24, 1, 3) for shape (2, 3, 8), but the elements of a row should lie " +
                              "side by side where " + where);
}

TEST(Forward_Arguments, RejectsStridedRowsOfFusedForms) {
  expect_strides_refused(&Call::fused, &Call::x_strides, "x", "residual is given");
  expect_strides_refused(&Call::fused, &Call::y_strides, "y", "residual is given");
  expect_strides_refused(&Call::fused, &Call::residual_strides, "residual", "residual is given");
  expect_strides_refused(&Call::fused, &Call::sum_strides, "sum", "residual is given");
  const auto without_residual = [] {
    Call call = Call::quantising();
    call.forward.residual = {};
    call.forward.sum = {};
    return call;
  };
  expect_strides_refused(without_residual, &Call::x_strides, "x", "y is i8");
  expect_strides_refused(without_residual, &Call::y_strides, "y", "y is i8");
}

// Rows may be strided. Without a residual, their elements may be strided too.
TEST(Forward_Arguments, AcceptsOtherStrides) {
  Call call = Call::fused();
  call.x_strides = call.residual_strides = {0, 8, 1};
  call.y_strides = call.sum_strides = {30, 8, 1};
  EXPECT_TRUE(passes(call));
  call = Call::fused();
  call.forward.residual = {};
  call.forward.sum = {};
  call.x_strides = call.y_strides = {24, 1, 3};
  EXPECT_TRUE(passes(call));
}

TEST(Forward_Arguments, IgnoresStridesOfAxesOfOneElement) {
  for (const std::int64_t any : {std::int64_t{999}, std::int64_t{-1}, std::int64_t{1} << 60, std::int64_t{1} << 62,
                                 std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    Call call;
    call.shape = call.y_shape = {2, 1, 24};
    call.normalized = call.weight_shape = call.bias_shape = {24};
    call.statistics_shape = {2, 1};
    call.x_strides = {24, any, 1};
    call.y_strides = {48, any / 2, 1};
    EXPECT_TRUE(passes(call)) << any;
  }
}

// --- plans ---------------------------------------------------------------------------------------------------------

template <class Pointer>
void expect_present_as_planned(Call& call, Pointer Buffers::*member, const std::string& name) {
  static std::byte elsewhere[1024];
  const Plan plan(call.complete());
  Buffers buffers = call.buffers();
  EXPECT_EQ(error_of([&] { plan.run(buffers); }), "no error");
  const std::vector<float> before = call.memory;
  const bool planned = buffers.*member != nullptr;
  buffers.*member = planned ? nullptr : elsewhere;
  const std::string message = name + (planned ? " is null, but the plan has one" : " is given, but the plan has none");
  EXPECT_EQ(error_of([&] { plan.run(buffers); }), message);
  EXPECT_EQ(std::memcmp(before.data(), call.memory.data(), before.size() * sizeof(float)), 0) << name;
}

TEST(Forward_Arguments, RejectsBuffersThatArePresentOrAbsentUnlikeThePlan) {
  Call fused = Call::fused(), plain, quantising = Call::quantising();
  for (Call* call : {&fused, &plain}) {
    expect_present_as_planned(*call, &Buffers::bias, "bias");
    expect_present_as_planned(*call, &Buffers::mean, "mean");
    expect_present_as_planned(*call, &Buffers::residual, "residual");
    expect_present_as_planned(*call, &Buffers::sum, "sum");
  }
  for (Call* call : {&quantising, &plain}) expect_present_as_planned(*call, &Buffers::scale, "scale");
  plain.forward.mean = {};
  expect_present_as_planned(plain, &Buffers::mean, "mean");
}

TEST(Forward_Arguments, PlansRunOnOtherBuffers) {
  for (const auto make : {&Call::fused, &Call::quantising}) {
    Call planned = make(), other = make(), direct = make();
    const Plan plan(planned.complete());
    const std::vector<float> before = planned.memory;
    for (std::size_t i = 0; i < 24; ++i) {
      other.at(Call::kX)[i] += 1;
      other.at(Call::kWeight)[i] += 2;
    }
    std::copy(other.memory.begin(), other.memory.end(), direct.memory.begin());
    run(direct.complete());
    plan.run(other.buffers());
    EXPECT_EQ(std::memcmp(other.memory.data(), direct.memory.data(), direct.memory.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(planned.memory.data(), before.data(), before.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace evenorm::testing
