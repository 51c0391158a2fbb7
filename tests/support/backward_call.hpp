// A correct call of a backward pass, for tests to make wrong.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"
#include "support/refusal.hpp"

namespace evenorm::testing {

// Shape (2, 3, 8), normalised over the last two axes.
struct BackwardCall {
  using Shape = std::vector<std::int64_t>;

  // Offset of each tensor in memory, in floats. The gaps have room for the largest tensor.
  static constexpr std::ptrdiff_t kX = 64, kDy = 192, kDx = 320, kWeight = 448, kDweight = 576, kDbias = 704,
                                  kMean = 832, kRstd = 960, kFloats = 1088;

  Shape shape{2, 3, 8}, dy_shape{2, 3, 8}, dx_shape{2, 3, 8}, normalized{3, 8}, axes;
  Shape weight_shape{3, 8}, dweight_shape{3, 8}, dbias_shape{3, 8}, mean_shape{2}, rstd_shape{2};
  Shape x_strides, dy_strides, dx_strides, weight_strides, dweight_strides, dbias_strides, mean_strides;
  std::vector<float> memory = std::vector<float>(kFloats);
  std::vector<std::byte> scratch = std::vector<std::byte>(1 << 20, std::byte{85});
  Backward backward;

  static BackwardCall plain() { return {}; }

  BackwardCall() {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i * i % 31);
    const double mean[2] = {15, 14}, rstd[2] = {0.125, 0.25};
    std::memcpy(at(kMean), mean, sizeof mean);
    std::memcpy(at(kRstd), rstd, sizeof rstd);
    backward.x.data = at(kX);
    backward.dy.data = at(kDy);
    backward.dx.data = at(kDx);
    backward.weight.data = at(kWeight);
    backward.dweight.data = at(kDweight);
    backward.dbias.data = at(kDbias);
    backward.mean = {at(kMean), DType::f64, {}, {}};
    backward.rstd = {at(kRstd), DType::f64, {}, {}};
  }

  float* at(std::ptrdiff_t index) { return memory.data() + index; }

  const Backward& complete() {
    describe(backward.x, shape, x_strides);
    describe(backward.dy, dy_shape, dy_strides);
    describe(backward.dx, dx_shape, dx_strides);
    describe(backward.weight, weight_shape, weight_strides);
    describe(backward.dweight, dweight_shape, dweight_strides);
    describe(backward.dbias, dbias_shape, dbias_strides);
    describe(backward.mean, mean_shape, mean_strides);
    describe(backward.rstd, rstd_shape, {});
    backward.normalized_shape = normalized;
    backward.axes = axes;
    return backward;
  }

  // The message, which every overload must give. Nothing may be written.
  std::string error() {
    const std::vector<float> before = memory;
    const std::vector<std::byte> scratch_before = scratch;
    const std::string message = error_of([&] { run(complete()); });
    EXPECT_EQ(error_of([&] { run(complete(), pool_executor(2)); }), message);
    EXPECT_EQ(error_of([&] { run(complete(), scratch, Executor{}); }), message);
    EXPECT_EQ(error_of([&] { BackwardPlan(complete()).run(scratch); }), message);
    EXPECT_EQ(std::memcmp(before.data(), memory.data(), before.size() * sizeof(float)), 0) << message;
    EXPECT_EQ(scratch, scratch_before) << message;
    return message;
  }

  // The message of errors that do not depend on buffers, which scratch_bytes() must give too.
  std::string error_without_buffers() {
    const std::string message = error();
    EXPECT_EQ(error_of([&] { scratch_bytes(complete()); }), message);
    return message;
  }
};

}  // namespace evenorm::testing
