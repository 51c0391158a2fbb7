// Wrong arguments of the fused forms: each is refused with a message that names it, what it has and what it should
// have, and nothing is written before. Overlap: fused_overlap_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "support/fused_call.hpp"

namespace evenorm::testing {
namespace {

using Call = FusedCall;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Fused_Arguments, RightOnesPass) {
  Call call;
  EXPECT_TRUE(call.passes());
  call = Call::quantising();
  EXPECT_TRUE(call.passes());
  call = Call::quantising();
  call.forward.scale = {};
  call.forward.given_scale = 0.5;
  EXPECT_TRUE(call.passes());
}

// --- residual and sum -----------------------------------------------------------------------------------------------

TEST(Fused_Arguments, WhatBelongsToAResidualThatIsAbsent) {
  Call call;
  call.forward.residual.data = nullptr;
  EXPECT_EQ(call.error(), "sum is given, but residual is absent");
  call.forward.sum.data = nullptr;
  EXPECT_TRUE(call.passes());
  call.forward.residual_scale = 0.5;
  EXPECT_EQ(call.error(), "residual_scale is 0.5, but residual is absent");
  call.forward.residual_scale = kNan;
  EXPECT_EQ(call.error(), "residual_scale is nan, but residual is absent");
}

TEST(Fused_Arguments, ResidualScaleThatIsNotFinite) {
  for (const double scale : {kNan, kInfinity, -kInfinity}) {
    Call call;
    call.forward.residual_scale = scale;
    EXPECT_EQ(call.error(), "residual_scale is " +
                                std::string(std::isnan(scale) ? "nan"
                                            : scale > 0       ? "inf"
                                                              : "-inf") +
                                ", but it should be finite in f32");
  }
  Call large;
  large.forward.residual_scale = 1e39;
  EXPECT_EQ(large.error(), "residual_scale is 1e+39, but it should be finite in f32");
  large.forward.residual.dtype = DType::f64;
  EXPECT_TRUE(large.passes());
  Call call;
  call.forward.residual_scale = -1e-3;
  EXPECT_TRUE(call.passes());
}

TEST(Fused_Arguments, ResidualOrSumOfAnotherShapeOrType) {
  Call call;
  call.residual_shape = {2, 24};
  EXPECT_EQ(call.error(), "residual has shape (2, 24), but x has (2, 3, 8)");
  call = Call();
  call.sum_shape = {2, 3, 7};
  EXPECT_EQ(call.error(), "sum has shape (2, 3, 7), but x has (2, 3, 8)");
  call = Call();
  call.forward.sum.dtype = DType::bf16;
  EXPECT_EQ(call.error(), "sum has dtype bf16, but x has f32");
  call = Call();
  call.forward.residual.dtype = DType::f16;
  EXPECT_TRUE(call.passes());
}

// Wherever only numbers with arithmetic can be.
TEST(Fused_Arguments, NoTensorButYIsI8) {
  const auto error_with = [](auto tensor) {
    Call call;
    (call.forward.*tensor).dtype = DType::i8;
    return call.error();
  };
  const auto refused = [](const std::string& argument, const std::string& message) {
    EXPECT_EQ(message.find(argument + " has dtype i8"), 0u) << message;
  };
  refused("x", error_with(&Forward::x));
  refused("residual", error_with(&Forward::residual));
  refused("sum", error_with(&Forward::sum));
  refused("y2", error_with(&Forward::y2));
  refused("weight", error_with(&Forward::weight));
  refused("weight2", error_with(&Forward::weight2));
  refused("bias2", error_with(&Forward::bias2));
  refused("rstd", error_with(&Forward::rstd));
}

TEST(Fused_Arguments, DtypesThatAreNone) {
  const auto error_with = [](auto tensor) {
    Call call;
    (call.forward.*tensor).dtype = static_cast<DType>(9);
    return call.error();
  };
  for (const std::string& message :
       {error_with(&Forward::residual), error_with(&Forward::sum), error_with(&Forward::y2), error_with(&Forward::y),
        error_with(&Forward::weight2), error_with(&Forward::bias2)}) {
    EXPECT_NE(message.find("dtype"), std::string::npos) << message;
  }
  Call call = Call::quantising();
  call.forward.scale.dtype = static_cast<DType>(9);
  EXPECT_NE(call.error().find("scale has "), std::string::npos);
}

// --- rows that do not lie side by side
// --------------------------------------------------------------------------------

using Strides = Call::Shape Call::*;

std::string strides_error(Call call, Strides strides) {
  call.*strides = {24, 1, 3};
  return call.error();
}

TEST(Fused_Arguments, RowsInStridesWhereResidualIsGiven) {
  const std::string text =
      " has strides (24, 1, 3) for shape (2, 3, 8), but the elements of a row should lie side by side where residual "
      "is "
      "given";
  EXPECT_EQ(strides_error(Call(), &Call::x_strides), "x" + text);
  EXPECT_EQ(strides_error(Call(), &Call::y_strides), "y" + text);
  EXPECT_EQ(strides_error(Call(), &Call::residual_strides), "residual" + text);
  EXPECT_EQ(strides_error(Call(), &Call::sum_strides), "sum" + text);
  EXPECT_EQ(strides_error(Call(), &Call::y2_strides), "y2" + text);
}

TEST(Fused_Arguments, RowsInStridesWhereYIsI8) {
  const std::string text =
      " has strides (24, 1, 3) for shape (2, 3, 8), but the elements of a row should lie side by side where y is i8";
  for (const auto& [strides, name] : {std::pair(&Call::x_strides, "x"), std::pair(&Call::y_strides, "y")}) {
    Call call = Call::quantising();
    call.forward.residual = {};
    call.forward.sum = {};
    EXPECT_EQ(strides_error(std::move(call), strides), name + text);
  }
}

// What is outside a row may be in strides, and so may all be with y2 alone.
TEST(Fused_Arguments, StridesThatPass) {
  Call call;
  call.x_strides = call.residual_strides = {0, 8, 1};
  call.y_strides = call.sum_strides = call.y2_strides = {30, 8, 1};
  EXPECT_TRUE(call.passes());
  call = Call();
  call.forward.residual = {};
  call.forward.sum = {};
  call.x_strides = call.y_strides = call.y2_strides = {24, 1, 3};
  EXPECT_TRUE(call.passes());
}

// --- y2 -------------------------------------------------------------------------------------------------------------

TEST(Fused_Arguments, WhatBelongsToAY2ThatIsAbsent) {
  Call call;
  call.forward.y2.data = nullptr;
  EXPECT_EQ(call.error(), "weight2 is given, but y2 is absent");
  call.forward.weight2.data = nullptr;
  EXPECT_EQ(call.error(), "bias2 is given, but y2 is absent");
  call.forward.bias2.data = nullptr;
  EXPECT_TRUE(call.passes());
}

TEST(Fused_Arguments, Y2OrItsParametersOfAnotherShape) {
  Call call;
  call.y2_shape = {3, 2, 8};
  EXPECT_EQ(call.error(), "y2 has shape (3, 2, 8), but x has (2, 3, 8)");
  call = Call();
  call.weight2_shape = {8};
  EXPECT_EQ(call.error(), "weight2 has shape (8), but normalized_shape is (3, 8)");
  call = Call();
  call.bias2_shape = {24};
  EXPECT_EQ(call.error(), "bias2 has shape (24), but normalized_shape is (3, 8)");
}

TEST(Fused_Arguments, ZeroCentredNeedsBothWeights) {
  Call call;
  call.forward.zero_centered = true;
  call.forward.weight2.data = nullptr;
  EXPECT_EQ(call.error(), "weight2 is absent, but zero_centered needs one");
  call = Call();
  call.forward.zero_centered = true;
  EXPECT_TRUE(call.passes());
}

// --- y of type i8
// -----------------------------------------------------------------------------------------------------

TEST(Fused_Arguments, WhatBelongsToI8Alone) {
  Call call;
  call.forward.scale.data = call.at(Call::kScale);
  EXPECT_EQ(call.error(), "scale is given, but y is not i8");
  call = Call();
  call.forward.given_scale = 0.25;
  EXPECT_EQ(call.error(), "given_scale is 0.25, but y is not i8");
  call.forward.given_scale = kNan;
  EXPECT_EQ(call.error(), "given_scale is nan, but y is not i8");
}

TEST(Fused_Arguments, I8WithoutItsScaleOrWithTwo) {
  Call call = Call::quantising();
  call.forward.scale.data = nullptr;
  EXPECT_EQ(call.error(), "scale is null, but y is i8 and there is no given_scale");
  call = Call::quantising();
  call.forward.given_scale = 1;
  EXPECT_EQ(call.error(), "scale is given, but given_scale is as well");
}

TEST(Fused_Arguments, I8WithASecondY) {
  Call call;
  call.forward.y.dtype = DType::i8;
  call.forward.scale.data = call.at(Call::kScale);
  EXPECT_EQ(call.error(), "y2 is given, but y is i8");
}

TEST(Fused_Arguments, GivenScalesThatAreNone) {
  struct Case {
    double value;
    const char* text;
  };
  for (const Case& c : {Case{-1, "-1"}, Case{kNan, "nan"}, Case{kInfinity, "inf"}, Case{1e39, "1e+39"},
                        Case{1e-39, "1e-39"}, Case{1e-300, "1e-300"}}) {
    Call call = Call::quantising();
    call.forward.scale = {};
    call.forward.given_scale = c.value;
    EXPECT_EQ(call.error(), "given_scale is " + std::string(c.text) + ", but it should be a normal f32 above 0");
  }
}

TEST(Fused_Arguments, ScaleOfAnotherShapeOrType) {
  Call call = Call::quantising();
  call.scale_shape = {2, 3};
  EXPECT_EQ(call.error(), "scale has shape (2, 3), but x has rows of shape (2)");
  call = Call::quantising();
  call.forward.scale.dtype = DType::f64;
  EXPECT_EQ(call.error(), "scale has dtype f64, but it should be f32");
}

// --- plans
// ------------------------------------------------------------------------------------------------------------

Buffers buffers_of(Call& call) {
  const Forward& f = call.complete();
  return {f.x.data,        f.y.data,   f.weight.data,  f.bias.data,  f.mean.data, f.rstd.data,
          f.residual.data, f.sum.data, f.weight2.data, f.bias2.data, f.y2.data,   f.scale.data};
}

template <class Pointer>
void expect_present_as_planned(Call& call, Pointer Buffers::*member, const std::string& name, Pointer other) {
  const Plan plan(call.complete());
  Buffers buffers = buffers_of(call);
  EXPECT_EQ(error_of([&] { plan.run(buffers); }), "no error");
  const std::vector<float> before = call.memory;
  const bool planned = buffers.*member != nullptr;
  buffers.*member = planned ? nullptr : other;
  const std::string message = name + (planned ? " is null, but the plan has one" : " is given, but the plan has none");
  EXPECT_EQ(error_of([&] { plan.run(buffers); }), message);
  EXPECT_EQ(std::memcmp(before.data(), call.memory.data(), before.size() * sizeof(float)), 0) << name;
}

TEST(Fused_Plan, BuffersArePresentAsPlanned) {
  Call full, plain, int8 = Call::quantising();
  for (Tensor* tensor : {&plain.forward.sum, &plain.forward.y2}) tensor->data = nullptr;
  for (ConstTensor* tensor : {&plain.forward.residual, &plain.forward.weight2, &plain.forward.bias2}) {
    tensor->data = nullptr;
  }
  std::byte elsewhere[1024] = {};
  const void* const input = elsewhere;
  void* const output = elsewhere;
  for (Call* call : {&full, &plain}) {
    expect_present_as_planned(*call, &Buffers::residual, "residual", input);
    expect_present_as_planned(*call, &Buffers::sum, "sum", output);
    expect_present_as_planned(*call, &Buffers::weight2, "weight2", input);
    expect_present_as_planned(*call, &Buffers::bias2, "bias2", input);
    expect_present_as_planned(*call, &Buffers::y2, "y2", output);
  }
  for (Call* call : {&int8, &plain}) expect_present_as_planned(*call, &Buffers::scale, "scale", output);
}

void expect_runs_on_other_buffers(Call planned, Call other, Call direct) {
  const Plan plan(planned.complete());
  const std::vector<float> before = planned.memory;
  for (std::size_t i = 0; i < 24; ++i) {
    other.at(Call::kX)[i] += 1;
    other.at(Call::kWeight)[i] += 2;
  }
  std::copy(other.memory.begin(), other.memory.end(), direct.memory.begin());
  run(direct.complete());
  plan.run(buffers_of(other));
  EXPECT_EQ(std::memcmp(other.memory.data(), direct.memory.data(), direct.memory.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(planned.memory.data(), before.data(), before.size() * sizeof(float)), 0);
}

TEST(Fused_Plan, RunsOnOtherBuffers) {
  expect_runs_on_other_buffers({}, {}, {});
  expect_runs_on_other_buffers(Call::quantising(), Call::quantising(), Call::quantising());
}

}  // namespace
}  // namespace evenorm::testing
