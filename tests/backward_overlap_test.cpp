// Which buffers of a backward pass may share memory. dx may be dy or x itself; outputs and scratch must not overlap
// anything else.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "support/backward_call.hpp"
#include "support/tensors.hpp"

namespace evenorm::testing {
namespace {

using Call = BackwardCall;

// A tensor of 3 rows of 8, starting at float number `place`.
struct Place {
  std::int64_t place;
  Shape strides{8, 1};
  DType dtype = DType::f32;
};

std::string overlap_error(const Place& dx, const Place& dy, const Place& x) {
  std::vector<float> memory(512);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i * i % 31);
  const Shape shape{3, 8}, normalized{8};
  const auto tensor = [&](auto& view, const Place& where) {
    view = {memory.data() + where.place, where.dtype, shape, where.strides};
  };
  Backward backward;
  tensor(backward.x, x);
  tensor(backward.dy, dy);
  tensor(backward.dx, dx);
  backward.normalized_shape = normalized;
  const std::vector<float> before = memory;
  const std::string message = error_of([&] { run(backward); });
  if (message == "no error") {
    EXPECT_NE(before, memory);
  } else {
    EXPECT_EQ(before, memory);
  }
  return message;
}

constexpr std::int64_t kElsewhere = 400, kAlsoElsewhere = 450;

TEST(Backward_Overlap, DxMayBeDyOrX) {
  const Place other{kElsewhere};
  EXPECT_EQ(overlap_error({100}, {100}, other), "no error");
  EXPECT_EQ(overlap_error({100}, other, {100}), "no error");
  EXPECT_EQ(overlap_error({100}, {100}, {100}), "no error");
  EXPECT_EQ(overlap_error({100, {20, 2}}, {100, {20, 2}}, other), "no error");
  EXPECT_EQ(overlap_error({100, {8, 1}, DType::f16}, {100, {8, 1}, DType::f16}, other), "no error");
}

TEST(Backward_Overlap, RejectsDxInPlaceOfAnotherTypeOfEqualSize) {
  const Place other{kElsewhere}, f16{100, {8, 1}, DType::f16}, bf16{100, {8, 1}, DType::bf16};
  for (const auto& [dx, input] : {std::pair{f16, bf16}, {bf16, f16}}) {
    EXPECT_EQ(overlap_error(dx, input, other), "dx may overlap dy");
    EXPECT_EQ(overlap_error(dx, other, input), "dx may overlap x");
    EXPECT_EQ(overlap_error(dx, dx, input), "dx may overlap x");
  }
}

TEST(Backward_Overlap, RejectsDxThatPartlyOverlapsDyOrX) {
  const Place other{kElsewhere};
  for (const Place& dx : {Place{100, {8, 1}, DType::bf16}, Place{100, {16, 2}, DType::bf16}, Place{100, {16, 1}},
                          Place{101}, Place{108}, Place{84}, Place{123}, Place{77}, Place{100, {1, 3}}}) {
    EXPECT_EQ(overlap_error(dx, {100}, other), "dx may overlap dy") << dx.place;
    EXPECT_EQ(overlap_error(dx, other, {100}), "dx may overlap x") << dx.place;
  }
  for (const std::int64_t apart : {124, 76}) {
    EXPECT_EQ(overlap_error({apart}, {100}, other), "no error");
    EXPECT_EQ(overlap_error({apart}, other, {100}), "no error");
  }
}

// dx in place of one input must not overlap the other, unless all three are the same.
TEST(Backward_Overlap, RejectsDxInPlaceOfOneInputAcrossTheOther) {
  EXPECT_EQ(overlap_error({100}, {100}, {104}), "dx may overlap x");
  EXPECT_EQ(overlap_error({100}, {104}, {100}), "dx may overlap dy");
  EXPECT_EQ(overlap_error({100}, {100}, {100, {0, 1}}), "dx may overlap x");
  EXPECT_EQ(overlap_error({100}, {100, {8, 0}}, {100}), "dx may overlap dy");
  EXPECT_EQ(overlap_error({kElsewhere}, {100}, {104}), "no error");  // inputs may share memory
}

// Rows of 8 elements, 20 apart, at every distance. dx is in place of one input and interleaved with the other.
TEST(Backward_Overlap, InterleavedSlicesAreDecidedExactly) {
  const Shape strides{20, 1};
  for (std::int64_t distance = -60; distance <= 60; ++distance) {
    bool meet = false;
    for (std::int64_t a = 0; a < 3; ++a) {
      for (std::int64_t b = 0; b < 3; ++b) {
        const std::int64_t apart = distance + 20 * (b - a);
        meet = meet || (apart > -8 && apart < 8);
      }
    }
    if (distance == 0) meet = false;  // in place
    const Place dx{100 + distance, strides}, input{100, strides};
    EXPECT_EQ(overlap_error(dx, input, {kElsewhere}), meet ? "dx may overlap dy" : "no error") << distance;
    EXPECT_EQ(overlap_error(dx, {kElsewhere}, input), meet ? "dx may overlap x" : "no error") << distance;
    EXPECT_EQ(overlap_error(dx, input, dx), meet ? "dx may overlap dy" : "no error") << distance;
    EXPECT_EQ(overlap_error(dx, dx, input), meet ? "dx may overlap x" : "no error") << distance;
  }
}

TEST(Backward_Overlap, RowsOfInputsMayRepeatButRowsOfDxMayNot) {
  EXPECT_EQ(overlap_error({100}, {kElsewhere, {0, 1}}, {kAlsoElsewhere, {0, 0}}), "no error");
  EXPECT_EQ(overlap_error({100, {0, 1}}, {kElsewhere}, {kAlsoElsewhere}), "dx may overlap itself");
  EXPECT_EQ(overlap_error({100, {7, 1}}, {kElsewhere}, {kAlsoElsewhere}), "dx may overlap itself");
  EXPECT_EQ(overlap_error({100, {0, 1}}, {100, {0, 1}}, {kElsewhere}), "dx may overlap itself");
  EXPECT_EQ(overlap_error({200, {-8, 1}}, {kElsewhere}, {kAlsoElsewhere}), "no error");
}

constexpr Extent kX{"x", Call::kX, 48}, kDy{"dy", Call::kDy, 48}, kWeight{"weight", Call::kWeight, 24},
    kMean{"mean", Call::kMean, 4}, kRstd{"rstd", Call::kRstd, 4};
constexpr Extent kDx{"dx", Call::kDx, 48}, kDweight{"dweight", Call::kDweight, 24}, kDbias{"dbias", Call::kDbias, 24};

void expect_output_apart(Tensor Backward::*output, const Extent& moved, const Extent& other) {
  expect_apart(&Call::plain, &Call::backward, output, moved, other);
}

TEST(Backward_Overlap, RejectsOutputsThatOverlapOthers) {
  for (const Extent& input : {kX, kDy, kWeight, kMean, kRstd}) {
    expect_output_apart(&Backward::dx, kDx, input);
    expect_output_apart(&Backward::dweight, kDweight, input);
    expect_output_apart(&Backward::dbias, kDbias, input);
  }
  expect_output_apart(&Backward::dweight, kDweight, kDx);
  expect_output_apart(&Backward::dbias, kDbias, kDx);
  expect_output_apart(&Backward::dbias, kDbias, kDweight);
}

// The weight is read after the first rows were written, so only dx can be in place.
TEST(Backward_Overlap, RejectsDweightAndDbiasInPlaceOrSelfOverlapping) {
  expect_refused(&Call::plain, &Call::error,
                 {{[](Call& c) { c.backward.dweight.data = c.at(Call::kWeight); }, "dweight may overlap weight"},
                  {[](Call& c) { c.backward.dbias.data = c.at(Call::kDweight); }, "dbias may overlap dweight"},
                  {with(&Call::dweight_strides, {0, 1}), "dweight may overlap itself"},
                  {with(&Call::dbias_strides, {7, 1}), "dbias may overlap itself"}});
}

// dx has no elements to overlap, but dweight and dbias are written.
TEST(Backward_Overlap, ChecksDweightAndDbiasWithoutRows) {
  const auto error_with = [](std::ptrdiff_t dweight, std::ptrdiff_t dbias) {
    Call call;
    call.shape = call.dy_shape = call.dx_shape = {0, 3, 8};
    call.mean_shape = call.rstd_shape = {0};
    call.backward.dweight.data = call.at(dweight);
    call.backward.dbias.data = call.at(dbias);
    return error_of([&] { run(call.complete()); });
  };
  EXPECT_EQ(error_with(Call::kDweight, Call::kDweight + 23), "dbias may overlap dweight");
  EXPECT_EQ(error_with(Call::kWeight, Call::kDbias), "dweight may overlap weight");
  EXPECT_EQ(error_with(Call::kDweight, Call::kWeight - 23), "dbias may overlap weight");
  EXPECT_EQ(error_with(Call::kX, Call::kDx), "no error");
  EXPECT_EQ(error_with(Call::kMean, Call::kDy), "no error");
  Call call;
  call.shape = call.dy_shape = call.dx_shape = {0, 3, 8};
  call.mean_shape = call.rstd_shape = {0};
  call.dbias_strides = {0, 1};
  EXPECT_EQ(call.error(), "dbias may overlap itself");
}

// --- scratch -------------------------------------------------------------------------------------------------------

// Scratch and one tensor of a Call in the same memory, with both places in bytes.
template <class T>
std::string scratch_error(T Backward::*tensor, const Extent& extent, std::ptrdiff_t scratch_place,
                          std::ptrdiff_t tensor_place, std::size_t scratch_size) {
  const auto bytes = static_cast<std::size_t>(extent.size) * sizeof(float);
  std::vector<std::byte> memory(scratch_size + bytes);
  Call call;
  std::memcpy(memory.data() + tensor_place, call.at(extent.begin), bytes);
  (call.backward.*tensor).data = memory.data() + tensor_place;
  const std::vector<std::byte> before = memory;
  const std::vector<float> call_before = call.memory;
  const std::span<std::byte> scratch = std::span(memory).subspan(static_cast<std::size_t>(scratch_place), scratch_size);
  const std::string message = error_of([&] { run(call.complete(), scratch, Executor{}); });
  EXPECT_EQ(error_of([&] { BackwardPlan(call.complete()).run(scratch); }), message);
  if (message != "no error") {
    EXPECT_EQ(memory, before);
    EXPECT_EQ(std::memcmp(call.memory.data(), call_before.data(), call_before.size() * sizeof(float)), 0);
  }
  return message;
}

template <class T>
void expect_scratch_apart(T Backward::*tensor, const Extent& extent) {
  SCOPED_TRACE(extent.name);
  const std::string message = "scratch may overlap " + std::string(extent.name);
  Call call;
  const std::size_t size = std::max<std::size_t>(scratch_bytes(call.complete()), 64);
  const auto scratch = static_cast<std::ptrdiff_t>(size);
  const std::ptrdiff_t bytes = extent.size * static_cast<std::ptrdiff_t>(sizeof(float));
  EXPECT_EQ(scratch_error(tensor, extent, bytes, 0, size), "no error");
  EXPECT_EQ(scratch_error(tensor, extent, bytes - 1, 0, size), message);
  EXPECT_EQ(scratch_error(tensor, extent, 0, scratch, size), "no error");
  EXPECT_EQ(scratch_error(tensor, extent, 0, scratch - 1, size), message);
}

TEST(Backward_Scratch, MustNotOverlapAnyTensor) {
  expect_scratch_apart(&Backward::x, kX);
  expect_scratch_apart(&Backward::dy, kDy);
  expect_scratch_apart(&Backward::weight, kWeight);
  expect_scratch_apart(&Backward::mean, kMean);
  expect_scratch_apart(&Backward::rstd, kRstd);
  expect_scratch_apart(&Backward::dx, kDx);
  expect_scratch_apart(&Backward::dweight, kDweight);
  expect_scratch_apart(&Backward::dbias, kDbias);
}

TEST(Backward_Scratch, WithoutRowsOnlyParametersCanOverlapIt) {
  Call call;
  call.shape = call.dy_shape = call.dx_shape = {0, 3, 8};
  call.mean_shape = call.rstd_shape = {0};
  const auto error_at = [&](void*& tensor) {
    void* const kept = std::exchange(tensor, call.scratch.data());
    const std::string message = error_of([&] { run(call.complete(), call.scratch, Executor{}); });
    tensor = kept;
    return message;
  };
  EXPECT_EQ(error_at(call.backward.dweight.data), "scratch may overlap dweight");
  EXPECT_EQ(error_at(call.backward.dbias.data), "scratch may overlap dbias");
  EXPECT_EQ(error_at(call.backward.dx.data), "no error");
}

TEST(Backward_Scratch, RejectsNull) {
  Call call;
  const std::span<std::byte> scratch(static_cast<std::byte*>(nullptr), std::size_t{1} << 20);
  const std::vector<float> before = call.memory;
  EXPECT_EQ(error_of([&] { run(call.complete(), scratch, Executor{}); }), "scratch is null");
  EXPECT_EQ(std::memcmp(before.data(), call.memory.data(), before.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace evenorm::testing
