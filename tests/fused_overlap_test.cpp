// Which buffers of the fused forms may share memory: y and the sum may be x or the residual themselves, not both the
// same one; all else is refused as `may overlap`, and nothing is written.
#include <gtest/gtest.h>

#include "support/fused_call.hpp"

namespace evenorm::testing {
namespace {

using Call = FusedCall;

// A tensor of a Call: how many floats of memory it has.
struct Extent {
  const char* name;
  std::ptrdiff_t begin, size;
};
constexpr Extent kX{"x", Call::kX, 48}, kResidual{"residual", Call::kResidual, 48}, kY{"y", Call::kY, 48},
    kSum{"sum", Call::kSum, 48}, kY2{"y2", Call::kY2, 48}, kWeight{"weight", Call::kWeight, 24},
    kBias{"bias", Call::kBias, 24}, kWeight2{"weight2", Call::kWeight2, 24}, kBias2{"bias2", Call::kBias2, 24},
    kMean{"mean", Call::kMean, 2}, kRstd{"rstd", Call::kRstd, 2}, kScale{"scale", Call::kScale, 2};

Call full_call() { return {}; }

// An output, moved so that it ends just before `other`, or begins just after it, passes; one element nearer it does
// not.
void expect_apart(Call (*make)(), Tensor Forward::*tensor, const Extent& output, const Extent& other,
                  const std::string& message) {
  SCOPED_TRACE(message);
  const auto error_at = [&](std::ptrdiff_t place) {
    Call call = make();
    (call.forward.*tensor).data = call.at(place);
    return error_of([&] { run(call.complete()); });
  };
  const std::ptrdiff_t before = other.begin - output.size, after = other.begin + other.size;
  EXPECT_EQ(error_at(before), "no error");
  EXPECT_EQ(error_at(after), "no error");
  for (const std::ptrdiff_t place : {before + 1, after - 1}) {
    Call call = make();
    (call.forward.*tensor).data = call.at(place);
    EXPECT_EQ(call.error(), message);
  }
}

TEST(Fused_Overlap, OutputsAreApartFromAllInputs) {
  for (const Extent& input : {kX, kResidual, kWeight, kBias, kWeight2, kBias2}) {
    const std::string message = std::string(" may overlap ") + input.name;
    expect_apart(full_call, &Forward::y, kY, input, "y" + message);
    expect_apart(full_call, &Forward::sum, kSum, input, "sum" + message);
    expect_apart(full_call, &Forward::y2, kY2, input, "y2" + message);
    expect_apart(full_call, &Forward::rstd, kRstd, input, "rstd" + message);
  }
  for (const Extent& input : {kX, kResidual, kWeight, kBias}) {
    expect_apart(Call::quantising, &Forward::scale, kScale, input, std::string("scale may overlap ") + input.name);
  }
}

TEST(Fused_Overlap, OutputsAreApartFromEachOther) {
  expect_apart(full_call, &Forward::sum, kSum, kY, "sum may overlap y");
  expect_apart(full_call, &Forward::y2, kY2, kY, "y2 may overlap y");
  expect_apart(full_call, &Forward::y2, kY2, kSum, "y2 may overlap sum");
  expect_apart(full_call, &Forward::rstd, kRstd, kY2, "rstd may overlap y2");
  expect_apart(full_call, &Forward::mean, kMean, kSum, "mean may overlap sum");
  expect_apart(Call::quantising, &Forward::scale, kScale, kMean, "scale may overlap mean");
  expect_apart(Call::quantising, &Forward::scale, kScale, kRstd, "scale may overlap rstd");
  expect_apart(Call::quantising, &Forward::scale, kScale, kSum, "scale may overlap sum");
}

// --- in place
// ---------------------------------------------------------------------------------------------------------

bool passes_in_place(std::ptrdiff_t y, std::ptrdiff_t sum) {
  Call call;
  call.forward.y.data = call.at(y);
  call.forward.sum.data = call.at(sum);
  return call.passes();
}

TEST(Fused_Overlap, YAndTheSumMayBeXAndTheResidual) {
  for (const std::ptrdiff_t y : {Call::kY, Call::kX, Call::kResidual}) {
    for (const std::ptrdiff_t sum : {Call::kSum, Call::kX, Call::kResidual}) {
      EXPECT_TRUE(y == sum || passes_in_place(y, sum)) << y << " " << sum;
    }
  }
}

TEST(Fused_Overlap, YAndTheSumAreNotBothTheSame) {
  for (const std::ptrdiff_t place : {Call::kX, Call::kResidual, Call::kSum}) {
    Call call;
    call.forward.y.data = call.at(place);
    call.forward.sum.data = call.at(place);
    EXPECT_EQ(call.error(), "sum may overlap y");
  }
}

TEST(Fused_Overlap, NoOtherOutputIsEverInPlace) {
  Call call;
  call.forward.y2.data = call.at(Call::kX);
  EXPECT_EQ(call.error(), "y2 may overlap x");
  call = Call();
  call.forward.y2.data = call.at(Call::kResidual);
  EXPECT_EQ(call.error(), "y2 may overlap residual");
  call = Call::quantising();
  call.forward.y.data = call.at(Call::kX);  // of another size
  EXPECT_EQ(call.error(), "y may overlap x");
}

// The same address, but other strides or another size.
TEST(Fused_Overlap, InPlaceMeansElementByElement) {
  Call call;
  call.forward.sum.data = call.at(Call::kX);
  call.sum_strides = {30, 8, 1};
  EXPECT_EQ(call.error(), "sum may overlap x");
  call = Call();
  call.forward.y.data = call.at(Call::kResidual);
  call.forward.residual.dtype = DType::bf16;
  EXPECT_EQ(call.error(), "y may overlap residual");
  call = Call();
  call.forward.sum.data = call.at(Call::kResidual);
  call.sum_strides = call.residual_strides = {30, 8, 1};
  EXPECT_TRUE(call.passes());
  call = Call();
  call.forward.sum.data = call.at(Call::kResidual);
  call.forward.sum.dtype = call.forward.x.dtype = DType::bf16;
  call.forward.residual.dtype = DType::f16;
  EXPECT_TRUE(call.passes());
}

// x and the residual are only read: they may meet. What is in place of one that is the other is in place of both.
TEST(Fused_Overlap, XAndTheResidualMayMeet) {
  Call call;
  call.forward.residual.data = call.at(Call::kX + 3);
  EXPECT_TRUE(call.passes());
  call = Call();
  call.forward.residual.data = call.at(Call::kX);
  call.forward.sum.data = call.at(Call::kX);
  EXPECT_TRUE(call.passes());
  call = Call();
  call.forward.residual.data = call.at(Call::kX + 3);
  call.forward.sum.data = call.at(Call::kX);
  EXPECT_EQ(call.error(), "sum may overlap residual");
}

TEST(Fused_Overlap, OutputsInThemselves) {
  Call call;
  call.sum_strides = {0, 8, 1};
  EXPECT_EQ(call.error(), "sum may overlap itself");
  call = Call();
  call.y2_strides = {12, 8, 1};
  EXPECT_EQ(call.error(), "y2 may overlap itself");
  call = Call::quantising();
  call.scale_strides = {0};
  EXPECT_EQ(call.error(), "scale may overlap itself");
}

// Heads interleaved: y, the sum and x within one tensor, decided exactly.
TEST(Fused_Overlap, InterleavedRowsPass) {
  std::vector<float> memory(6 * 4 * 8), residual(6 * 8);
  const Call::Shape shape = {6, 8}, strides = {32, 1}, normalized = {8};
  const auto view = [&](std::size_t place) { return Tensor{&memory[place], DType::f32, shape, strides}; };
  Forward forward;
  forward.x = {&memory[0], DType::f32, shape, strides};
  forward.y = view(8);
  forward.sum = view(16);
  forward.y2 = view(24);
  forward.residual = {residual.data(), DType::f32, shape, {}};
  forward.normalized_shape = normalized;
  EXPECT_EQ(error_of([&] { run(forward); }), "no error");
  forward.y2 = view(23);
  EXPECT_EQ(error_of([&] { run(forward); }), "y2 may overlap sum");
}

TEST(Fused_Overlap, OfAPlansBuffers) {
  Call call;
  const Plan plan(call.complete());
  const Forward& f = call.complete();
  Buffers buffers{f.x.data,        f.y.data,   f.weight.data,  f.bias.data,  f.mean.data, f.rstd.data,
                  f.residual.data, f.sum.data, f.weight2.data, f.bias2.data, f.y2.data};
  buffers.sum = call.at(Call::kX);
  EXPECT_EQ(error_of([&] { plan.run(buffers); }), "no error");
  buffers.sum = call.at(Call::kX + 1);
  EXPECT_EQ(error_of([&] { plan.run(buffers); }), "sum may overlap x");
  buffers.sum = call.at(Call::kSum);
  buffers.y2 = call.at(Call::kSum + 1);
  EXPECT_EQ(error_of([&] { plan.run(buffers); }), "y2 may overlap sum");
}

TEST(Fused_Overlap, APlanOfBuffersThatMeetRunsOnOthers) {
  Call call;
  const Forward good = call.complete();
  Forward meeting = good;
  meeting.y2.data = call.at(Call::kSum + 1);
  const Plan plan(meeting);
  EXPECT_EQ(error_of([&] { plan.run(); }), "y2 may overlap sum");
  EXPECT_EQ(error_of([&] {
              plan.run({good.x.data, good.y.data, good.weight.data, good.bias.data, good.mean.data, good.rstd.data,
                        good.residual.data, good.sum.data, good.weight2.data, good.bias2.data, good.y2.data});
            }),
            "no error");
}

TEST(Fused_Overlap, WithoutRowsNothingMeets) {
  Call call = full_call();
  call.shape = call.y_shape = call.residual_shape = call.sum_shape = call.y2_shape = {0, 3, 8};
  call.forward.mean = call.forward.rstd = {};
  call.forward.y2.data = call.forward.sum.data = call.at(Call::kX + 1);
  EXPECT_EQ(error_of([&] { run(call.complete()); }), "no error");
}

}  // namespace
}  // namespace evenorm::testing
