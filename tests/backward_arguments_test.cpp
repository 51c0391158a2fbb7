// Wrong arguments of a backward pass, also of the plain form. Each is refused before anything is written, with a
// message that names the argument, its value and what it should be. backward_overlap_test.cpp has memory shared by
// tensors, and enumerations_test.cpp has numbers that are no type or kind.
#include <limits>

#include "support/backward_call.hpp"
#include "support/tensors.hpp"

namespace evenorm::testing {
namespace {

using ::testing::HasSubstr;
using Call = BackwardCall;
using Refusals = std::vector<Refusal<Call>>;

// scratch_bytes() refuses them too.
void expect_refused_without_buffers(const Refusals& refusals) {
  expect_refused(&Call::plain, &Call::error_without_buffers, refusals);
}

// Runs a correct call after a change.
bool passes_with(const std::function<void(Call&)>& change) {
  Call call;
  change(call);
  return passes(call);
}

TEST(Backward_Arguments, AcceptsACorrectCall) { EXPECT_TRUE(passes(Call())); }

TEST(Backward_Arguments, RejectsGradientsOfAnotherShapeThanX) {
  expect_refused_without_buffers({
      {with(&Call::dy_shape, {3, 2, 8}), "dy has shape (3, 2, 8), but x has (2, 3, 8)"},
      {with(&Call::dy_shape, {2, 24}), "dy has shape (2, 24), but x has (2, 3, 8)"},
      {with(&Call::dx_shape, {2, 3, 9}), "dx has shape (2, 3, 9), but x has (2, 3, 8)"},
  });
}

TEST(Backward_Arguments, RejectsShapesThatDoNotFit) {
  expect_refused_without_buffers({
      {with(&Call::weight_shape, {5}), "weight has shape (5), but normalized_shape is (3, 8)"},
      {with(&Call::dweight_shape, {24}), "dweight has shape (24), but normalized_shape is (3, 8)"},
      {with(&Call::dbias_shape, {8, 3}), "dbias has shape (8, 3), but normalized_shape is (3, 8)"},
      {with(&Call::mean_shape, {2, 3}), "mean has shape (2, 3), but x has rows of shape (2)"},
      {with(&Call::rstd_shape, {}), "rstd has shape (), but x has rows of shape (2)"},
      {with(&Call::normalized, {4, 8}), "x has shape (2, 3, 8), but it should end in normalized_shape (4, 8)"},
      {with(&Call::normalized, {}), "normalized_shape is (), but it or axes should name at least one axis"},
  });
}

TEST(Backward_Arguments, NeedsAtLeastOneOutput) {
  for (const auto output : {&Backward::dx, &Backward::dweight, &Backward::dbias}) {
    Call call;
    const Tensor kept = call.backward.*output;
    call.backward.dx.data = call.backward.dweight.data = call.backward.dbias.data = nullptr;
    EXPECT_EQ(call.error_without_buffers(), "dx, dweight and dbias are null, but at least one should be given");
    call.backward.*output = kept;
    EXPECT_TRUE(passes(call));
  }
}

TEST(Backward_Arguments, ChecksTheTypeOfStatistics) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::string wrong = " has dtype " + std::string(name(dtype)) + ", but the backward pass needs f64";
    expect_refused_without_buffers({{[=](Call& c) { c.backward.mean.dtype = dtype; }, "mean" + wrong},
                                    {[=](Call& c) { c.backward.rstd.dtype = dtype; }, "rstd" + wrong}});
  }
}

TEST(Backward_Arguments, ChecksAbsentStatisticsAndWeights) {
  expect_refused_without_buffers({
      {[](Call& c) { c.backward.mean.data = nullptr; }, "rstd is given, but mean is absent"},
      {[](Call& c) { c.backward.rstd.data = nullptr; }, "mean is given, but rstd is absent"},
      {[](Call& c) { c.backward.kind = Kind::rms; }, "mean is given, but RMS norm has none"},
      {[](Call& c) {
         c.backward.zero_centered = true;
         c.backward.weight.data = nullptr;
       },
       "weight is absent, but zero_centered needs one"},
  });
  EXPECT_TRUE(passes_with([](Call& c) { c.backward.mean.data = c.backward.rstd.data = nullptr; }));
  EXPECT_TRUE(passes_with([](Call& c) { c.backward.zero_centered = true; }));
  for (const bool rstd : {true, false}) {  // RMS norm may have a bias
    EXPECT_TRUE(passes_with([=](Call& c) {
      c.backward.kind = Kind::rms;
      c.backward.mean.data = nullptr;
      if (!rstd) c.backward.rstd.data = nullptr;
    }));
  }
}

TEST(Backward_Arguments, RejectsAnEpsThatIsNegativeOrNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Call call;
  for (const double eps : {-1e-5, -1e-300, -kInfinity, kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    call.backward.eps = eps;
    EXPECT_THAT(call.error_without_buffers(), HasSubstr("eps is ")) << eps;
  }
  for (const double eps : {0.0, -0.0, 1e-320, 1e300}) {
    EXPECT_TRUE(passes_with([=](Call& c) { c.backward.eps = eps; })) << eps;
  }
}

TEST(Backward_Arguments, OnlyRunRejectsNullPointers) {
  for (const auto& [tensor, message] : {std::pair(&Backward::x, "x is null"), {&Backward::dy, "dy is null"}}) {
    Call call;
    (call.backward.*tensor).data = nullptr;
    EXPECT_EQ(call.error(), message);
    EXPECT_EQ(error_of([&] { scratch_bytes(call.complete()); }), "no error");
  }
}

TEST(Backward_Arguments, IgnoresTheFieldsOfAbsentTensors) {
  const auto absent = [](auto& tensor) { tensor = {.data = nullptr, .dtype = static_cast<DType>(9)}; };
  EXPECT_TRUE(passes_with([&](Call& c) {
    for (Tensor* tensor : {&c.backward.dweight, &c.backward.dbias}) absent(*tensor);
    for (ConstTensor* tensor : {&c.backward.weight, &c.backward.mean, &c.backward.rstd}) absent(*tensor);
    c.weight_shape = c.dweight_shape = c.dbias_shape = c.mean_shape = {7, 7};
    c.weight_strides = c.dweight_strides = c.mean_strides = {1};
  }));
  EXPECT_TRUE(passes_with([&](Call& c) {
    absent(c.backward.dx);
    c.dx_shape = {7};
    c.dx_strides = {1};
  }));
}

TEST(Backward_Arguments, ChecksTheGradientOfASum) {
  const Shape shape = {2, 3, 8}, other = {2, 24};
  const auto with_dsum = [&](std::ptrdiff_t place, const Shape& of, DType dtype = DType::f32) {
    return [=, &of](Call& call) { call.backward.dsum = {call.at(place), dtype, of, {}}; };
  };
  EXPECT_TRUE(passes_with(with_dsum(900, shape)));
  expect_refused_without_buffers({
      {with_dsum(900, other), "dsum has shape (2, 24), but x has (2, 3, 8)"},
      {with_dsum(900, shape, static_cast<DType>(9)), "dsum has dtype 9, which is none of f64, f32, bf16, f16"},
      {[&](Call& c) {
         with_dsum(900, shape)(c);
         c.backward.dx.data = nullptr;
       },
       "dsum is given, but dx is absent"},
  });
  expect_refused(&Call::plain, &Call::error,
                 {{with_dsum(Call::kDx + 1, shape), "dx may overlap dsum"},
                  {[&](Call& c) {
                     with_dsum(Call::kDx, shape, DType::bf16)(c);
                     c.backward.dx.dtype = DType::f16;
                   },
                   "dx may overlap dsum"},
                  {with_dsum(Call::kDweight, shape), "dweight may overlap dsum"}});
}

// --- axes, sizes, strides ------------------------------------------------------------------------------------------

TEST(Backward_Arguments, ChecksAxes) {
  const auto over_first_and_last = [](Call& call) {
    call.normalized = {};
    call.axes = {0, 2};
    call.weight_shape = call.dweight_shape = call.dbias_shape = {2, 8};
    call.mean_shape = call.rstd_shape = {3};
  };
  const auto but = [=](Shape Call::*shape, const Shape& wrong) {
    return [=](Call& call) {
      over_first_and_last(call);
      call.*shape = wrong;
    };
  };
  EXPECT_TRUE(passes_with(over_first_and_last));
  expect_refused_without_buffers({
      {with(&Call::axes, {1, 2}), "axes and normalized_shape are given, but only one of them should be"},
      {but(&Call::axes, {-4, 1}), "axes is (-4, 1), but x has 3 axes"},
      {but(&Call::axes, {1, -2}), "axes is (1, -2), which names an axis twice"},
      {but(&Call::weight_shape, {3, 8}), "weight has shape (3, 8), but the axes normalised have shape (2, 8)"},
      {but(&Call::dweight_shape, {3, 8}), "dweight has shape (3, 8), but the axes normalised have shape (2, 8)"},
      {but(&Call::dbias_shape, {3, 8}), "dbias has shape (3, 8), but the axes normalised have shape (2, 8)"},
      {but(&Call::mean_shape, {2}), "mean has shape (2), but x has rows of shape (3)"},
      {but(&Call::rstd_shape, {2}), "rstd has shape (2), but x has rows of shape (3)"},
  });
  EXPECT_TRUE(passes_with([](Call& c) {
    c.normalized = {};
    c.axes = {-1, 1};
  }));
}

TEST(Backward_Arguments, RejectsImpossibleSizes) {
  const auto with_shape = [](const Shape& shape, const Shape& normalized, const Shape& axes = {}) {
    return [=](Call& call) {
      call.shape = call.dy_shape = call.dx_shape = shape;
      call.normalized = normalized;
      call.axes = axes;
      if (shape.back() == 0) call.weight_shape = call.dweight_shape = call.dbias_shape = {3, 0};
    };
  };
  expect_refused_without_buffers({
      {with_shape({2, 3, 0}, {3, 0}), "normalized_shape is (3, 0), but it should have at least one element"},
      {with_shape({2, 3, 0}, {}, {1, 2}), "axes have shape (3, 0), but it should have at least one element"},
      {with_shape({-2, 3, 8}, {3, 8}), "x has shape (-2, 3, 8), but sizes should be at least 0"},
      {with_shape({std::int64_t{1} << 58, 3, 8}, {3, 8}), "more than memory can hold"},
  });
}

TEST(Backward_Arguments, RejectsImpossibleStrides) {
  const Shape four = {24, 8, 1, 1};
  expect_refused_without_buffers({
      {with(&Call::x_strides, four), "x has strides (24, 8, 1, 1), but shape (2, 3, 8)"},
      {with(&Call::dy_strides, four), "dy has strides (24, 8, 1, 1), but shape (2, 3, 8)"},
      {with(&Call::dx_strides, four), "dx has strides (24, 8, 1, 1), but shape (2, 3, 8)"},
      {with(&Call::weight_strides, four), "weight has strides (24, 8, 1, 1), but shape (3, 8)"},
      {with(&Call::dweight_strides, four), "dweight has strides (24, 8, 1, 1), but shape (3, 8)"},
      {with(&Call::dbias_strides, four), "dbias has strides (24, 8, 1, 1), but shape (3, 8)"},
      {with(&Call::mean_strides, four), "mean has strides (24, 8, 1, 1), but shape (2)"},
      {with(&Call::dy_strides, {std::int64_t{1} << 60, 8, 1}),
       "dy has strides (1152921504606846976, 8, 1), which span more"},
  });
}

TEST(Backward_Arguments, AcceptsInputsWithZeroAndNegativeStrides) {
  EXPECT_TRUE(passes_with([](Call& c) {
    c.dy_strides = {0, 0, 0};
    c.weight_strides = {0, 1};
    c.mean_strides = {0};
    c.backward.x.data = c.at(Call::kX + 47);
    c.x_strides = {-24, -8, -1};
  }));
}

// Without rows, addresses may be null, and dx may be absent as well as empty. All other arguments are checked.
TEST(Backward_Arguments, ChecksCallsWithoutRows) {
  const auto without_rows = [] {
    Call call;
    call.shape = call.dy_shape = call.dx_shape = {0, 3, 8};
    call.mean_shape = call.rstd_shape = {0};
    call.backward.x.data = call.backward.dy.data = nullptr;
    return call;
  };
  Call call = without_rows();
  EXPECT_EQ(error_of([&] { run(call.complete()); }), "no error");
  call.backward.dx.data = call.backward.dweight.data = call.backward.dbias.data = nullptr;
  EXPECT_EQ(error_of([&] { run(call.complete()); }), "no error");
  call.backward.eps = -1;
  EXPECT_EQ(call.error(), "eps is -1, but it should be finite and at least 0");
  expect_refused<Call>(without_rows, &Call::error_without_buffers,
                       {
                           {with(&Call::dy_shape, {0, 3, 9}), "dy has shape (0, 3, 9), but x has (0, 3, 8)"},
                           {with(&Call::dx_shape, {1, 3, 8}), "dx has shape (1, 3, 8), but x has (0, 3, 8)"},
                           {with(&Call::dbias_shape, {5}), "dbias has shape (5), but normalized_shape is (3, 8)"},
                           {with(&Call::rstd_shape, {2}), "rstd has shape (2), but x has rows of shape (0)"},
                       });
}

// --- scratch -------------------------------------------------------------------------------------------------------

TEST(Backward_Scratch, RejectsTooLittle) {
  Call call;
  const std::size_t needed = scratch_bytes(call.complete());
  ASSERT_GT(needed, 0u);
  const std::vector<float> before = call.memory;
  const std::span<std::byte> scratch = std::span(call.scratch).first(needed);
  for (const std::size_t bytes : {std::size_t{0}, needed - 1}) {
    EXPECT_EQ(error_of([&] { run(call.complete(), scratch.first(bytes), Executor{}); }),
              "scratch has " + std::to_string(bytes) + " bytes, but this problem needs " + std::to_string(needed));
    EXPECT_EQ(call.memory, before);
  }
  EXPECT_EQ(error_of([&] { run(call.complete(), scratch, Executor{}); }), "no error");
  EXPECT_NE(call.memory, before);
}

TEST(Backward_Scratch, IsNotNeededForDxAlone) {
  Call call;
  call.backward.dweight.data = call.backward.dbias.data = nullptr;
  EXPECT_EQ(scratch_bytes(call.complete()), 0u);
  const std::vector<float> before = call.memory;
  run(call.complete(), {}, Executor{});
  EXPECT_NE(call.memory, before);
}

// --- the plain form ------------------------------------------------------------------------------------------------

TEST(Backward_PlainForm, NamesTheWrongArgument) {
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
  EXPECT_EQ(error_with(x, dx, 8, {.weight = five}), "weight has shape (5), but normalized_shape is (8)");
  EXPECT_EQ(error_with(x, dx, 8, {.dweight = dweight}), "dweight has shape (5), but normalized_shape is (8)");
  EXPECT_EQ(error_with(x, dx, 8, {.dbias = dweight}), "dbias has shape (5), but normalized_shape is (8)");
  EXPECT_EQ(error_with(x, dx, 8, {.mean = statistics, .rstd = statistics}),
            "mean has shape (4), but x has rows of shape (3)");
  EXPECT_EQ(error_with(x, dx, 8, {.dsum = shorter}), "dsum has 16 elements, but x has 24");
  EXPECT_EQ(error_with(x, x, 8), "no error");  // dx overlaps both dy and x exactly
  layer_norm_backward<float>({}, {}, {}, 8);   // no rows
  const double one = 1;
  EXPECT_EQ(error_of([&] { rms_norm_backward<float>({}, {}, {}, 8, {.rstd = std::span(&one, 1)}); }),
            "rstd has shape (1), but x has rows of shape (0)");
}

// The statistics differ from those of x, so that the result depends on them. Without them it depends on eps.
TEST(Backward_PlainForm, HasTheResultsOfRun) {
  for (const Kind kind : {Kind::layer, Kind::rms}) {
    for (const bool given : {false, true}) {
      Call call, plain;
      const auto view = [&](std::ptrdiff_t place, std::ptrdiff_t size) {
        return std::span(plain.at(place), static_cast<std::size_t>(size));
      };
      const std::vector<double> mean = {15, 14}, rstd = {0.125, 0.25};
      const Shape shape{2, 3, 8};
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
      if (given) {
        options.dsum = view(Call::kDy, 48);
        call.backward.dsum = {call.at(Call::kDy), DType::f32, shape, {}};
      }
      EXPECT_TRUE(passes(call));
      const auto plain_form = kind == Kind::layer ? layer_norm_backward<float> : rms_norm_backward<float>;
      plain_form(view(Call::kDy, 48), view(Call::kX, 48), view(Call::kDx, 48), 24, options);
      EXPECT_EQ(plain.memory, call.memory);
    }
  }
}

}  // namespace
}  // namespace evenorm::testing
