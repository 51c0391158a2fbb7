// Wrong arguments: each is refused with a message that names it, what it has and what it should have, and nothing is
// written before. Which overlaps pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "contracts/harness.hpp"
#include "support/refusal.hpp"

namespace evenorm {
namespace {

using Shape = std::vector<std::int64_t>;
using testing::error_of;
using ::testing::HasSubstr;

// A norm over (2, 3, 8) by the last two axes, right in every respect; each test spoils one thing.
struct Call {
  Shape shape{2, 3, 8}, y_shape{2, 3, 8}, normalized{3, 8}, weight_shape{3, 8}, bias_shape{3, 8}, statistics_shape{2};
  Shape x_strides, y_strides, weight_strides;
  std::vector<float> memory = std::vector<float>(512, 7.0f);  // x at 0, y at 128, weight, bias, mean, rstd after it
  Forward forward;

  Call() {
    forward.x = {memory.data(), DType::f32, {}, {}};
    forward.y = {memory.data() + 128, DType::f32, {}, {}};
    forward.weight = {memory.data() + 256, DType::f32, {}, {}};
    forward.bias = {memory.data() + 288, DType::f32, {}, {}};
    forward.mean = {memory.data() + 320, DType::f64, {}, {}};
    forward.rstd = {memory.data() + 324, DType::f32, {}, {}};
  }

  const Forward& complete() {
    forward.x.shape = shape;
    forward.x.strides = x_strides;
    forward.y.shape = y_shape;
    forward.y.strides = y_strides;
    forward.normalized_shape = normalized;
    forward.weight.shape = weight_shape;
    forward.weight.strides = weight_strides;
    forward.bias.shape = bias_shape;
    forward.mean.shape = forward.rstd.shape = statistics_shape;
    return forward;
  }

  // The message; and nothing may have been written.
  std::string error() {
    const std::vector<float> before = memory;
    const std::string message = error_of([&] { run(complete()); });
    EXPECT_EQ(std::memcmp(before.data(), memory.data(), before.size() * sizeof(float)), 0) << message;
    EXPECT_EQ(error_of([&] { Plan(complete()).run(); }), message);
    return message;
  }
  bool passes() {
    return error_of([&] { run(complete()); }) == "no error";
  }
};

TEST(Forward_Arguments, RightOnesPass) { EXPECT_TRUE(Call().passes()); }

TEST(Forward_Arguments, WeightOfAnotherShape) {
  Call call;
  call.weight_shape = {5};
  EXPECT_EQ(call.error(), "weight has shape (5), but normalized_shape is (3, 8)");
}

TEST(Forward_Arguments, BiasOfAnotherShape) {
  Call call;
  call.bias_shape = {24};
  EXPECT_EQ(call.error(), "bias has shape (24), but normalized_shape is (3, 8)");
}

TEST(Forward_Arguments, NormalizedShapeThatXDoesNotEndIn) {
  Call call;
  call.normalized = {4, 8};
  EXPECT_EQ(call.error(), "x has shape (2, 3, 8), but it should end in normalized_shape (4, 8)");
  call.normalized = {1, 2, 3, 8};
  EXPECT_THAT(call.error(), HasSubstr("normalized_shape (1, 2, 3, 8)"));
  call.normalized = {};
  EXPECT_THAT(call.error(), HasSubstr("normalized_shape is ()"));
}

TEST(Forward_Arguments, NoColumns) {
  Call call;
  call.shape = call.y_shape = {2, 3, 0};
  call.normalized = call.weight_shape = call.bias_shape = {3, 0};
  EXPECT_THAT(call.error(), HasSubstr("normalized_shape is (3, 0)"));
}

TEST(Forward_Arguments, NegativeSizes) {
  Call call;
  call.shape = call.y_shape = {-2, 3, 8};
  EXPECT_THAT(call.error(), HasSubstr("x has shape (-2, 3, 8)"));
}

TEST(Forward_Arguments, YOfAnotherShape) {
  Call call;
  call.y_shape = {3, 2, 8};
  EXPECT_EQ(call.error(), "y has shape (3, 2, 8), but x has (2, 3, 8)");
}

TEST(Forward_Arguments, StatisticsOfAnotherShapeOrType) {
  Call call;
  call.statistics_shape = {2, 3};
  EXPECT_THAT(call.error(), HasSubstr("mean has shape (2, 3)"));
  call.statistics_shape = {2};
  call.forward.rstd.dtype = DType::bf16;
  EXPECT_EQ(call.error(), "rstd has dtype bf16, but statistics should be f64 or f32");
  call.forward.rstd.dtype = DType::f32;
  call.forward.mean.dtype = DType::f16;
  EXPECT_EQ(call.error(), "mean has dtype f16, but statistics should be f64 or f32");
}

TEST(Forward_Arguments, MeanOfRmsNorm) {
  Call call;
  call.forward.kind = Kind::rms;
  EXPECT_THAT(call.error(), HasSubstr("mean"));
  call.forward.mean.data = nullptr;
  EXPECT_TRUE(call.passes());
}

TEST(Forward_Arguments, EpsThatIsNegativeOrNotFinite) {
  Call call;
  for (const double eps : {-1e-5, -1e-300, -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    call.forward.eps = eps;
    EXPECT_THAT(call.error(), HasSubstr("eps is ")) << eps;
  }
  call.forward.eps = -1e-5;
  EXPECT_EQ(call.error(), "eps is -1e-05, but it should be finite and at least 0");
  for (const double eps : {0.0, -0.0, 1e-320, 1e300}) {
    call.forward.eps = eps;
    EXPECT_TRUE(call.passes()) << eps;
  }
}

TEST(Forward_Arguments, NullPointers) {
  Call call;
  call.forward.x.data = nullptr;
  EXPECT_EQ(call.error(), "x is null");
  call = Call();
  call.forward.y.data = nullptr;
  EXPECT_EQ(call.error(), "y is null");
}

TEST(Forward_Arguments, ZeroCenteredNeedsAWeight) {
  Call call;
  call.forward.zero_centered = true;
  call.forward.weight.data = nullptr;
  EXPECT_THAT(call.error(), HasSubstr("weight is absent"));
}

TEST(Forward_Arguments, UnknownTypes) {
  Call call;
  call.forward.x.dtype = static_cast<DType>(9);
  EXPECT_THAT(call.error(), HasSubstr("x has dtype 9"));
  call = Call();
  call.forward.bias.dtype = static_cast<DType>(5);
  EXPECT_THAT(call.error(), HasSubstr("bias has dtype 5"));
}

TEST(Forward_Arguments, StridesOfAnotherNumber) {
  Call call;
  call.x_strides = {24, 8};
  EXPECT_EQ(call.error(), "x has strides (24, 8), but shape (2, 3, 8)");
  call.x_strides = {};
  call.weight_strides = {16, 1, 1};
  EXPECT_EQ(call.error(), "weight has strides (16, 1, 1), but shape (3, 8)");
}

TEST(Forward_Arguments, Axes) {
  const auto error_with = [](Shape axes, bool keep_shape = false) {
    Call call;
    if (!keep_shape) call.normalized = {};
    call.forward.axes = axes;
    return call.error();
  };
  EXPECT_EQ(error_with({1, 2}, true), "axes and normalized_shape are given, but only one of them should be");
  EXPECT_EQ(error_with({}), "normalized_shape is (), but it or axes should name at least one axis");
  EXPECT_EQ(error_with({3}), "axes is (3), but x has 3 axes");
  EXPECT_EQ(error_with({-4, 1}), "axes is (-4, 1), but x has 3 axes");
  EXPECT_EQ(error_with({1, -2}), "axes is (1, -2), which names an axis twice");
  EXPECT_EQ(error_with({0, 2}), "weight has shape (3, 8), but the axes normalised have shape (2, 8)");
}

TEST(Forward_Arguments, StridesOfAxesOfOneElementDoNotMatter) {
  Call call;
  call.shape = call.y_shape = {2, 1, 24};
  call.normalized = call.weight_shape = call.bias_shape = {24};
  call.statistics_shape = {2, 1};
  for (const std::int64_t any : {std::int64_t{999}, std::int64_t{-1}, std::int64_t{1} << 60, std::int64_t{1} << 62,
                                 std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    call.x_strides = {24, any, 1};
    call.y_strides = {48, any / 2, 1};
    EXPECT_TRUE(call.passes()) << any;
  }
}

TEST(Forward_Arguments, SizesBeyondMemory) {
  Call call;
  call.shape = call.y_shape = {std::int64_t{1} << 40, std::int64_t{1} << 40, 24};
  call.normalized = call.weight_shape = call.bias_shape = {24};
  EXPECT_THAT(call.error(), HasSubstr("more than memory can hold"));
}

// --- overlap
// ----------------------------------------------------------------------------------------------------------

// 3 rows of 8 in one block of memory; y `distance` elements after x.
std::string overlap_error(std::int64_t distance, Shape x_strides, Shape y_strides, DType y_type = DType::f32) {
  std::vector<float> memory(256, 1.0f);
  const Shape shape{3, 8}, normalized{8};
  Forward forward;
  forward.x = {memory.data() + 100, DType::f32, shape, x_strides};
  forward.y = {memory.data() + 100 + distance, y_type, shape, y_strides};
  forward.normalized_shape = normalized;
  const std::vector<float> before = memory;
  const std::string message = error_of([&] { run(forward); });
  if (message != "no error") {
    EXPECT_EQ(before, memory);
  }
  return message;
}

TEST(Forward_Overlap, InPlaceIsTheSameAddressTypeAndStrides) {
  EXPECT_EQ(overlap_error(0, {8, 1}, {8, 1}), "no error");
  EXPECT_EQ(overlap_error(0, {20, 1}, {20, 1}), "no error");
  EXPECT_EQ(overlap_error(0, {8, 1}, {8, 1}, DType::bf16), "y may overlap x");
  EXPECT_EQ(overlap_error(0, {8, 1}, {16, 1}), "y may overlap x");
  EXPECT_EQ(overlap_error(1, {8, 1}, {8, 1}), "y may overlap x");
  EXPECT_EQ(overlap_error(8, {8, 1}, {8, 1}), "y may overlap x");
  EXPECT_EQ(overlap_error(-16, {8, 1}, {8, 1}), "y may overlap x");
}

TEST(Forward_Overlap, DisjointRangesPass) {
  EXPECT_EQ(overlap_error(24, {8, 1}, {8, 1}), "no error");
  EXPECT_EQ(overlap_error(-24, {8, 1}, {8, 1}), "no error");
  EXPECT_EQ(overlap_error(23, {8, 1}, {8, 1}), "y may overlap x");
  EXPECT_EQ(overlap_error(-23, {8, 1}, {8, 1}), "y may overlap x");
}

// Rows 20 apart with 8 elements each: x and y interleave, for every distance between them.
TEST(Forward_Overlap, InterleavedSlicesAreDecidedExactly) {
  for (std::int64_t distance = -60; distance <= 60; ++distance) {
    bool meet = false;
    for (std::int64_t a = 0; a < 3; ++a) {
      for (std::int64_t b = 0; b < 3; ++b) {
        const std::int64_t apart = distance + 20 * (b - a);
        meet = meet || (apart > -8 && apart < 8);
      }
    }
    if (distance == 0) meet = false;  // in place
    EXPECT_EQ(overlap_error(distance, {20, 1}, {20, 1}), meet ? "y may overlap x" : "no error") << distance;
  }
}

TEST(Forward_Overlap, OtherInterleavingsAreRefused) {
  EXPECT_EQ(overlap_error(8, {20, 1}, {24, 1}), "y may overlap x");
}

TEST(Forward_Overlap, RowsOfXMayRepeatButNotThoseOfY) {
  EXPECT_EQ(overlap_error(50, {0, 1}, {8, 1}), "no error");
  EXPECT_EQ(overlap_error(50, {3, 1}, {8, 1}), "no error");
  EXPECT_EQ(overlap_error(50, {8, 1}, {0, 1}), "y may overlap itself");
  EXPECT_EQ(overlap_error(50, {8, 1}, {7, 1}), "y may overlap itself");
  EXPECT_EQ(overlap_error(70, {8, 1}, {-8, 1}), "no error");
}

TEST(Forward_Overlap, ParametersAndStatisticsAreApartFromOutputs) {
  Call call;
  call.forward.weight.data = call.memory.data() + 128 + 47;
  EXPECT_EQ(call.error(), "y may overlap weight");
  call = Call();
  call.forward.bias.data = call.memory.data() + 128 - 23;
  EXPECT_EQ(call.error(), "y may overlap bias");
  call = Call();
  call.forward.rstd.data = call.memory.data() + 128;
  EXPECT_EQ(call.error(), "rstd may overlap y");
  call = Call();
  call.forward.rstd.data = call.memory.data() + 321;
  EXPECT_EQ(call.error(), "mean may overlap rstd");
  call = Call();
  call.forward.rstd.data = call.memory.data() + 5;
  EXPECT_EQ(call.error(), "rstd may overlap x");
  call = Call();
  call.forward.bias.data = call.forward.weight.data;  // inputs may share memory
  EXPECT_TRUE(call.passes());
}

}  // namespace
}  // namespace evenorm
