// A correct call of a forward pass, for tests to make wrong: plain, with all fused forms that can be combined, or
// quantising.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"
#include "support/refusal.hpp"

namespace evenorm::testing {

// Shape (2, 3, 8), normalised over the last two axes, all of f32.
struct ForwardCall {
  using Shape = std::vector<std::int64_t>;

  // Offset of each tensor in memory, in floats. The gaps have room for the largest tensor.
  static constexpr std::ptrdiff_t kX = 64, kY = 192, kResidual = 320, kSum = 448, kWeight = 704, kBias = 832,
                                  kMean = 1216, kRstd = 1344, kScale = 1472, kFloats = 1600;

  Shape shape{2, 3, 8}, y_shape{2, 3, 8}, residual_shape{2, 3, 8}, sum_shape{2, 3, 8};
  Shape normalized{3, 8}, axes, weight_shape{3, 8}, bias_shape{3, 8};
  Shape statistics_shape{2}, scale_shape{2};
  Shape x_strides, y_strides, residual_strides, sum_strides, weight_strides, scale_strides;
  std::vector<float> memory = std::vector<float>(kFloats);
  Forward forward;

  ForwardCall() {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i * i % 31);
    forward.x.data = at(kX);
    forward.y.data = at(kY);
    forward.weight.data = at(kWeight);
    forward.bias.data = at(kBias);
    forward.mean.data = at(kMean);
    forward.rstd.data = at(kRstd);
  }

  ForwardCall(ForwardCall&&) = default;  // keeps the memory's address
  ForwardCall& operator=(ForwardCall&&) = default;

  static ForwardCall plain() { return {}; }

  static ForwardCall fused() {
    ForwardCall call;
    call.forward.residual.data = call.at(kResidual);
    call.forward.sum.data = call.at(kSum);
    return call;
  }

  // y is i8 with a scale per row.
  static ForwardCall quantising() {
    ForwardCall call = fused();
    call.forward.y.dtype = DType::i8;
    call.forward.scale.data = call.at(kScale);
    return call;
  }

  float* at(std::ptrdiff_t index) { return memory.data() + index; }

  const Forward& complete() {
    describe(forward.x, shape, x_strides);
    describe(forward.y, y_shape, y_strides);
    describe(forward.residual, residual_shape, residual_strides);
    describe(forward.sum, sum_shape, sum_strides);
    describe(forward.weight, weight_shape, weight_strides);
    describe(forward.bias, bias_shape, {});
    describe(forward.mean, statistics_shape, {});
    describe(forward.rstd, statistics_shape, {});
    describe(forward.scale, scale_shape, scale_strides);
    forward.normalized_shape = normalized;
    forward.axes = axes;
    return forward;
  }

  Buffers buffers() const {
    const Forward& f = forward;
    return {f.x.data,    f.y.data,        f.weight.data, f.bias.data, f.mean.data,
            f.rstd.data, f.residual.data, f.sum.data,    f.scale.data};
  }

  // The message, which every overload and a plan must give. Nothing may be written.
  std::string error() {
    const std::vector<float> before = memory;
    const std::string message = error_of([&] { run(complete()); });
    EXPECT_EQ(error_of([&] { run(complete(), pool_executor(2)); }), message);
    EXPECT_EQ(error_of([&] { Plan(complete()).run(); }), message);
    EXPECT_EQ(std::memcmp(before.data(), memory.data(), before.size() * sizeof(float)), 0) << message;
    return message;
  }
};

}  // namespace evenorm::testing
