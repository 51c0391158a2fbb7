// Wrong arguments of the backward pass: each is refused with a message that names it, what it has and what it should
// have, and nothing is written before. The plain form's. How buffers may lie: backward_overlap_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/backward_call.hpp"

namespace evenorm {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using Call = testing::BackwardCall;
using Shape = Call::Shape;

TEST(Backward_Arguments, RightOnesPass) { EXPECT_TRUE(Call().passes()); }

TEST(Backward_Arguments, GradientsOfAnotherShapeThanX) {
  Call call;
  call.dy_shape = {3, 2, 8};
  EXPECT_EQ(call.error_without_buffers(), "dy has shape (3, 2, 8), but x has (2, 3, 8)");
  call.dy_shape = {2, 24};
  EXPECT_EQ(call.error_without_buffers(), "dy has shape (2, 24), but x has (2, 3, 8)");
  call = Call();
  call.dx_shape = {2, 3, 9};
  EXPECT_EQ(call.error_without_buffers(), "dx has shape (2, 3, 9), but x has (2, 3, 8)");
  call.backward.dx.data = nullptr;  // absent: its shape is not looked at
  EXPECT_TRUE(call.passes());
}

TEST(Backward_Arguments, OneOutputIsEnoughButNoneIsNot) {
  for (const auto output : {&Backward::dx, &Backward::dweight, &Backward::dbias}) {
    Call call;
    const Tensor kept = call.backward.*output;
    call.backward.dx.data = call.backward.dweight.data = call.backward.dbias.data = nullptr;
    EXPECT_EQ(call.error_without_buffers(), "dx, dweight and dbias are null, but at least one should be given");
    call.backward.*output = kept;
    EXPECT_TRUE(call.passes());
  }
}

TEST(Backward_Arguments, ParametersOfAnotherShape) {
  Call call;
  call.weight_shape = {5};
  EXPECT_EQ(call.error_without_buffers(), "weight has shape (5), but normalized_shape is (3, 8)");
  call = Call();
  call.dweight_shape = {24};
  EXPECT_EQ(call.error_without_buffers(), "dweight has shape (24), but normalized_shape is (3, 8)");
  call = Call();
  call.dbias_shape = {8, 3};
  EXPECT_EQ(call.error_without_buffers(), "dbias has shape (8, 3), but normalized_shape is (3, 8)");
  call = Call();
  call.weight_shape = call.dweight_shape = call.dbias_shape = {};
  call.backward.weight.data = call.backward.dweight.data = call.backward.dbias.data = nullptr;
  EXPECT_TRUE(call.passes());
}

TEST(Backward_Arguments, StatisticsOfAnotherShape) {
  Call call;
  call.mean_shape = {2, 3};
  EXPECT_EQ(call.error_without_buffers(), "mean has shape (2, 3), but x has rows of shape (2)");
  call = Call();
  call.rstd_shape = {};
  EXPECT_EQ(call.error_without_buffers(), "rstd has shape (), but x has rows of shape (2)");
}

TEST(Backward_Arguments, StatisticsOfAnotherTypeThanF64) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::string wrong = " has dtype " + std::string(name(dtype)) + ", but the backward pass needs f64";
    Call call;
    call.backward.mean.dtype = dtype;
    EXPECT_EQ(call.error_without_buffers(), "mean" + wrong);
    call = Call();
    call.backward.rstd.dtype = dtype;
    EXPECT_EQ(call.error_without_buffers(), "rstd" + wrong);
  }
}

TEST(Backward_Arguments, LayerNormHasBothStatisticsOrNeither) {
  Call call;
  call.backward.mean.data = nullptr;
  EXPECT_EQ(call.error_without_buffers(), "rstd is given, but mean is absent");
  call = Call();
  call.backward.rstd.data = nullptr;
  EXPECT_EQ(call.error_without_buffers(), "mean is given, but rstd is absent");
  call.backward.mean.data = nullptr;
  EXPECT_TRUE(call.passes());
}

TEST(Backward_Arguments, RmsNormHasNoMeanButMayHaveABias) {
  Call call;
  call.backward.kind = Kind::rms;
  EXPECT_EQ(call.error_without_buffers(), "mean is given, but RMS norm has none");
  call.backward.mean.data = nullptr;
  EXPECT_TRUE(call.passes());
  call = Call();
  call.backward.kind = Kind::rms;
  call.backward.mean.data = call.backward.rstd.data = nullptr;
  EXPECT_TRUE(call.passes());
}

TEST(Backward_Arguments, ZeroCenteredNeedsAWeight) {
  Call call;
  call.backward.zero_centered = true;
  EXPECT_TRUE(call.passes());
  call = Call();
  call.backward.zero_centered = true;
  call.backward.weight.data = nullptr;
  EXPECT_EQ(call.error_without_buffers(), "weight is absent, but zero_centered needs one");
}

TEST(Backward_Arguments, EpsThatIsNegativeOrNotFinite) {
  Call call;
  for (const double eps : {-1e-5, -1e-300, -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    call.backward.eps = eps;
    EXPECT_THAT(call.error_without_buffers(), HasSubstr("eps is ")) << eps;
  }
  call.backward.eps = -1e-5;
  EXPECT_EQ(call.error_without_buffers(), "eps is -1e-05, but it should be finite and at least 0");
  for (const double eps : {0.0, -0.0, 1e-320, 1e300}) {
    Call right;
    right.backward.eps = eps;
    EXPECT_TRUE(right.passes()) << eps;
  }
}

TEST(Backward_Arguments, NullPointersMatterToRunAlone) {
  Call call;
  call.backward.x.data = nullptr;
  EXPECT_EQ(call.error(), "x is null");
  EXPECT_EQ(error_of([&] { scratch_bytes(call.complete()); }), "no error");
  call = Call();
  call.backward.dy.data = nullptr;
  EXPECT_EQ(call.error(), "dy is null");
  EXPECT_EQ(error_of([&] { scratch_bytes(call.complete()); }), "no error");
}

template <class T>
void expect_unknown_type_refused(T Backward::*tensor, const char* name) {
  Call call;
  (call.backward.*tensor).dtype = static_cast<DType>(9);
  EXPECT_EQ(call.error_without_buffers(), std::string(name) + " has dtype 9, which is none of f64, f32, bf16, f16");
}

TEST(Backward_Arguments, UnknownTypes) {
  expect_unknown_type_refused(&Backward::x, "x");
  expect_unknown_type_refused(&Backward::dy, "dy");
  expect_unknown_type_refused(&Backward::dx, "dx");
  expect_unknown_type_refused(&Backward::weight, "weight");
  expect_unknown_type_refused(&Backward::dweight, "dweight");
  expect_unknown_type_refused(&Backward::dbias, "dbias");
  expect_unknown_type_refused(&Backward::mean, "mean");
  expect_unknown_type_refused(&Backward::rstd, "rstd");
}

TEST(Backward_Arguments, NothingOfAbsentTensorsIsLookedAt) {
  const auto absent = [](auto& tensor) { tensor = {.data = nullptr, .dtype = static_cast<DType>(9)}; };
  Call call;
  for (Tensor* tensor : {&call.backward.dweight, &call.backward.dbias}) absent(*tensor);
  for (ConstTensor* tensor : {&call.backward.weight, &call.backward.mean, &call.backward.rstd}) absent(*tensor);
  call.weight_shape = call.dweight_shape = call.dbias_shape = call.mean_shape = {7, 7};
  call.weight_strides = call.dweight_strides = call.mean_strides = {1};
  EXPECT_TRUE(call.passes());
  call = Call();
  absent(call.backward.dx);
  call.dx_strides = {1};
  EXPECT_TRUE(call.passes());
}

// --- axes, sizes, strides -------------------------------------------------------------------------------------------

TEST(Backward_Arguments, NormalizedShapeThatXDoesNotEndIn) {
  Call call;
  call.normalized = {4, 8};
  EXPECT_EQ(call.error_without_buffers(), "x has shape (2, 3, 8), but it should end in normalized_shape (4, 8)");
  call.normalized = {};
  EXPECT_EQ(call.error_without_buffers(), "normalized_shape is (), but it or axes should name at least one axis");
}

TEST(Backward_Arguments, Axes) {
  Call call;
  call.axes = {1, 2};
  EXPECT_EQ(call.error_without_buffers(), "axes and normalized_shape are given, but only one of them should be");
  call.normalized = {};
  call.axes = {-4, 1};
  EXPECT_EQ(call.error_without_buffers(), "axes is (-4, 1), but x has 3 axes");
  call.axes = {1, -2};
  EXPECT_EQ(call.error_without_buffers(), "axes is (1, -2), which names an axis twice");
  call.axes = {0, 2};
  EXPECT_EQ(call.error_without_buffers(), "weight has shape (3, 8), but the axes normalised have shape (2, 8)");
  call.weight_shape = {2, 8};
  EXPECT_EQ(call.error_without_buffers(), "dweight has shape (3, 8), but the axes normalised have shape (2, 8)");
  call.dweight_shape = {2, 8};
  EXPECT_EQ(call.error_without_buffers(), "dbias has shape (3, 8), but the axes normalised have shape (2, 8)");
  call.dbias_shape = {2, 8};
  EXPECT_EQ(call.error_without_buffers(), "mean has shape (2), but x has rows of shape (3)");
  call.mean_shape = {3};
  EXPECT_EQ(call.error_without_buffers(), "rstd has shape (2), but x has rows of shape (3)");
  call.rstd_shape = {3};
  EXPECT_TRUE(call.passes());
  call = Call();
  call.normalized = {};
  call.axes = {-1, 1};
  EXPECT_TRUE(call.passes());
}

TEST(Backward_Arguments, NoColumns) {
  Call call;
  call.shape = call.dy_shape = call.dx_shape = {2, 3, 0};
  call.normalized = call.weight_shape = call.dweight_shape = call.dbias_shape = {3, 0};
  EXPECT_EQ(call.error_without_buffers(), "normalized_shape is (3, 0), but it should have at least one element");
  call.normalized = {};
  call.axes = {1, 2};
  EXPECT_EQ(call.error_without_buffers(), "axes have shape (3, 0), but it should have at least one element");
}

TEST(Backward_Arguments, SizesThatAreNegativeOrBeyondMemory) {
  Call call;
  call.shape = call.dy_shape = call.dx_shape = {-2, 3, 8};
  EXPECT_EQ(call.error_without_buffers(), "x has shape (-2, 3, 8), but sizes should be at least 0");
  call.shape = call.dy_shape = call.dx_shape = {std::int64_t{1} << 58, 3, 8};
  EXPECT_THAT(call.error_without_buffers(), HasSubstr("more than memory can hold"));
}

TEST(Backward_Arguments, StridesOfAnotherNumber) {
  const auto error_with = [](Shape Call::*strides) {
    Call call;
    call.*strides = {24, 8, 1, 1};
    return call.error_without_buffers();
  };
  EXPECT_EQ(error_with(&Call::x_strides), "x has strides (24, 8, 1, 1), but shape (2, 3, 8)");
  EXPECT_EQ(error_with(&Call::dy_strides), "dy has strides (24, 8, 1, 1), but shape (2, 3, 8)");
  EXPECT_EQ(error_with(&Call::dx_strides), "dx has strides (24, 8, 1, 1), but shape (2, 3, 8)");
  EXPECT_EQ(error_with(&Call::weight_strides), "weight has strides (24, 8, 1, 1), but shape (3, 8)");
  EXPECT_EQ(error_with(&Call::dweight_strides), "dweight has strides (24, 8, 1, 1), but shape (3, 8)");
  EXPECT_EQ(error_with(&Call::dbias_strides), "dbias has strides (24, 8, 1, 1), but shape (3, 8)");
  EXPECT_EQ(error_with(&Call::mean_strides), "mean has strides (24, 8, 1, 1), but shape (2)");
}

TEST(Backward_Arguments, StridesBeyondMemory) {
  Call call;
  call.dy_strides = {std::int64_t{1} << 60, 8, 1};
  EXPECT_THAT(call.error_without_buffers(), HasSubstr("dy has strides (1152921504606846976, 8, 1), which are more"));
}

TEST(Backward_Arguments, InputsMayRepeatAndRunBackwards) {
  Call call;
  call.dy_strides = {0, 0, 0};
  call.weight_strides = {0, 1};
  call.mean_strides = {0};
  call.backward.x.data = call.at(Call::kX + 47);
  call.x_strides = {-24, -8, -1};
  EXPECT_TRUE(call.passes());
}

// --- no rows --------------------------------------------------------------------------------------------------------

struct NoRows : Call {
  NoRows() {
    shape = dy_shape = dx_shape = {0, 3, 8};
    mean_shape = rstd_shape = {0};
    backward.x.data = nullptr;
    backward.dy.data = nullptr;
  }
  std::string error_without_output() {
    backward.dx.data = backward.dweight.data = backward.dbias.data = nullptr;
    return error_of([&] { run(complete()); });
  }
};

TEST(Backward_Arguments, WithoutRowsAddressesMayBeNull) {
  EXPECT_EQ(error_of([] { run(NoRows().complete()); }), "no error");
  EXPECT_EQ(NoRows().error_without_output(), "no error");  // as of an empty dx
}

TEST(Backward_Arguments, WithoutRowsAllElseIsChecked) {
  NoRows call;
  call.dy_shape = {0, 3, 9};
  EXPECT_EQ(call.error_without_buffers(), "dy has shape (0, 3, 9), but x has (0, 3, 8)");
  call = NoRows();
  call.dx_shape = {1, 3, 8};
  EXPECT_EQ(call.error_without_buffers(), "dx has shape (1, 3, 8), but x has (0, 3, 8)");
  call = NoRows();
  call.dbias_shape = {5};
  EXPECT_EQ(call.error_without_buffers(), "dbias has shape (5), but normalized_shape is (3, 8)");
  call = NoRows();
  call.rstd_shape = {2};
  EXPECT_EQ(call.error_without_buffers(), "rstd has shape (2), but x has rows of shape (0)");
  call = NoRows();
  call.backward.mean.dtype = DType::f32;
  EXPECT_EQ(call.error_without_buffers(), "mean has dtype f32, but the backward pass needs f64");
  call = NoRows();
  call.backward.eps = -1;
  EXPECT_EQ(call.error_without_buffers(), "eps is -1, but it should be finite and at least 0");
  EXPECT_EQ(call.error_without_output(), "eps is -1, but it should be finite and at least 0");
}

// --- scratch --------------------------------------------------------------------------------------------------------

// 4096 rows of 64.
struct Large {
  std::vector<float> x = std::vector<float>(4096 * 64, 1.5f), dy = x, dx = x;
  std::vector<float> dweight = std::vector<float>(64, 1.5f);
  Shape shape{4096, 64}, normalized{64};

  Backward describe() {
    Backward backward;
    backward.x = {x.data(), DType::f32, shape};
    backward.dy = {dy.data(), DType::f32, shape};
    backward.dx = {dx.data(), DType::f32, shape};
    backward.normalized_shape = normalized;
    backward.dweight = {dweight.data(), DType::f32, normalized};
    return backward;
  }
};

TEST(Backward_Scratch, TooLittleIsRefused) {
  Large large;
  const std::vector<float> dx = large.dx, dweight = large.dweight;
  const std::size_t needed = scratch_bytes(large.describe());
  ASSERT_GT(needed, 0u);
  std::vector<std::byte> scratch(needed);
  for (const std::size_t bytes : {std::size_t{0}, needed - 1}) {
    EXPECT_EQ(error_of([&] { run(large.describe(), std::span(scratch).first(bytes), Executor{}); }),
              "scratch has " + std::to_string(bytes) + " bytes, but this problem needs " + std::to_string(needed));
    EXPECT_EQ(large.dx, dx);
    EXPECT_EQ(large.dweight, dweight);
  }
  EXPECT_EQ(error_of([&] { run(large.describe(), scratch, Executor{}); }), "no error");
  EXPECT_NE(large.dx, dx);
  EXPECT_NE(large.dweight, dweight);
}

TEST(Backward_Scratch, IsNotWantedForDxAlone) {
  Large large;
  const std::vector<float> dx = large.dx;
  Backward backward = large.describe();
  backward.dweight = {};
  EXPECT_EQ(scratch_bytes(backward), 0u);
  run(backward, {}, Executor{});
  EXPECT_NE(large.dx, dx);
}

// --- the plain form -------------------------------------------------------------------------------------------------

TEST(Backward_PlainForm, NamesWhatIsWrong) {
  const std::vector<float> shorter(16), five(5);
  const std::vector<double> statistics(4);
  std::vector<float> x(24, 1.0f), dx(24), short_dx(16), dweight(5);
  const auto error_with = [&](std::span<const float> dy, std::span<float> out, std::size_t cols,
                              const GradientOptions<float>& options = {}) {
    return error_of([&] { layer_norm_backward<float>(dy, x, out, cols, options); });
  };
  EXPECT_EQ(error_with(x, dx, 0), "cols is 0, but it should be at least 1");
  EXPECT_EQ(error_with(x, dx, 7), "x has 24 elements, but cols is 7");
  EXPECT_EQ(error_with(shorter, dx, 8), "dy has 16 elements, but x has 24");
  EXPECT_EQ(error_with(x, short_dx, 8), "dx has 16 elements, but x has 24");
  EXPECT_EQ(error_with(x, {}, 8), "dx, dweight and dbias are null, but at least one should be given");
  EXPECT_EQ(error_with(x, dx, 8, {.weight = five}), "weight has shape (5), but normalized_shape is (8)");
  EXPECT_EQ(error_with(x, dx, 8, {.dweight = dweight}), "dweight has shape (5), but normalized_shape is (8)");
  EXPECT_EQ(error_with(x, dx, 8, {.dbias = dweight}), "dbias has shape (5), but normalized_shape is (8)");
  EXPECT_EQ(error_with(x, dx, 8, {.mean = statistics, .rstd = statistics}),
            "mean has shape (4), but x has rows of shape (3)");
  EXPECT_EQ(error_with(x, dx, 8, {.rstd = std::span(statistics).first(3)}), "rstd is given, but mean is absent");
  EXPECT_EQ(error_with(x, dx, 8, {.eps = -1}), "eps is -1, but it should be finite and at least 0");
  EXPECT_EQ(error_with(x, dx, 8, {.zero_centered = true}), "weight is absent, but zero_centered needs one");
  EXPECT_EQ(error_with(x, x, 8), "no error");  // dx is dy and x
  EXPECT_EQ(error_of([&] { rms_norm_backward<float>(x, x, dx, 8, {.mean = statistics}); }),
            "mean is given, but RMS norm has none");
}

// Statistics other than x's own, so that they count; without them eps counts.
TEST(Backward_PlainForm, IsTheSamePassAsRun) {
  for (const Kind kind : {Kind::layer, Kind::rms}) {
    for (const bool given : {false, true}) {
      Call call, plain;
      const auto view = [&](std::ptrdiff_t place, std::ptrdiff_t size) {
        return std::span(plain.at(place), static_cast<std::size_t>(size));
      };
      const std::vector<double> mean = {15, 14}, rstd = {0.125, 0.25};
      call.backward.kind = kind;
      call.backward.eps = 64;
      call.backward.zero_centered = call.backward.accumulate = true;
      if (kind == Kind::rms || !given) call.backward.mean.data = nullptr;
      if (!given) call.backward.rstd.data = nullptr;
      GradientOptions<float> options{.weight = view(Call::kWeight, 24),
                                     .dweight = view(Call::kDweight, 24),
                                     .dbias = view(Call::kDbias, 24),
                                     .eps = 64,
                                     .zero_centered = true,
                                     .accumulate = true};
      if (kind == Kind::layer && given) options.mean = mean;
      if (given) options.rstd = rstd;
      EXPECT_TRUE(call.passes());
      const auto plain_form = kind == Kind::layer ? layer_norm_backward<float> : rms_norm_backward<float>;
      plain_form(view(Call::kDy, 48), view(Call::kX, 48), view(Call::kDx, 48), 24, options);
      EXPECT_EQ(plain.memory, call.memory);
    }
  }
}

TEST(Backward_PlainForm, WithoutRows) {
  layer_norm_backward<float>({}, {}, {}, 8);
  rms_norm_backward<bfloat16>({}, {}, {}, 8);
  const double one = 1;
  EXPECT_EQ(error_of([&] { rms_norm_backward<float>({}, {}, {}, 8, {.rstd = std::span(&one, 1)}); }),
            "rstd has shape (1), but x has rows of shape (0)");
}

}  // namespace
}  // namespace evenorm
