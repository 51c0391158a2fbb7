// A forward pass with all that can be fused into it at once, right in every respect, for tests to spoil.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"
#include "support/refusal.hpp"

namespace evenorm::testing {

// Over (2, 3, 8) by the last two axes, all of f32.
struct FusedCall {
  using Shape = std::vector<std::int64_t>;

  // Where each tensor begins in memory, in floats. Between any two there is room for the largest.
  static constexpr std::ptrdiff_t kX = 64, kY = 192, kResidual = 320, kSum = 448, kY2 = 576, kWeight = 704, kBias = 832,
                                  kWeight2 = 960, kBias2 = 1088, kMean = 1216, kRstd = 1344, kScale = 1472,
                                  kFloats = 1600;

  Shape shape{2, 3, 8}, y_shape{2, 3, 8}, residual_shape{2, 3, 8}, sum_shape{2, 3, 8}, y2_shape{2, 3, 8};
  Shape normalized{3, 8}, weight2_shape{3, 8}, bias2_shape{3, 8}, scale_shape{2};
  Shape x_strides, y_strides, residual_strides, sum_strides, y2_strides, weight2_strides, scale_strides;
  std::vector<float> memory = std::vector<float>(kFloats);
  Forward forward;

  FusedCall() {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i * i % 31);
    forward.x.data = at(kX);
    forward.y.data = at(kY);
    forward.residual.data = at(kResidual);
    forward.sum.data = at(kSum);
    forward.y2.data = at(kY2);
    forward.weight.data = at(kWeight);
    forward.bias.data = at(kBias);
    forward.weight2.data = at(kWeight2);
    forward.bias2.data = at(kBias2);
    forward.mean.data = at(kMean);
    forward.rstd.data = at(kRstd);
  }

  FusedCall(FusedCall&&) = default;  // its memory stays where it is
  FusedCall& operator=(FusedCall&&) = default;

  // y of i8 with scale, so without y2.
  static FusedCall quantising() {
    FusedCall call;
    call.forward.y2 = {};
    call.forward.weight2 = call.forward.bias2 = {};
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
    describe(forward.y2, y2_shape, y2_strides);
    describe(forward.weight, normalized, {});
    describe(forward.bias, normalized, {});
    describe(forward.weight2, weight2_shape, weight2_strides);
    describe(forward.bias2, bias2_shape, {});
    describe(forward.mean, outer_, {});
    describe(forward.rstd, outer_, {});
    describe(forward.scale, scale_shape, scale_strides);
    forward.normalized_shape = normalized;
    return forward;
  }

  // The message, the same from every overload and from a plan; and nothing may have been written.
  std::string error() {
    const std::vector<float> before = memory;
    const std::string message = error_of([&] { run(complete()); });
    EXPECT_EQ(error_of([&] { run(complete(), pool_executor(2)); }), message);
    EXPECT_EQ(error_of([&] { Plan(complete()).run(); }), message);
    EXPECT_EQ(std::memcmp(before.data(), memory.data(), before.size() * sizeof(float)), 0) << message;
    return message;
  }

  // Does it run, and write?
  bool passes() {
    const std::vector<float> before = memory;
    const std::string message = error_of([&] { run(complete()); });
    if (message != "no error") ADD_FAILURE() << message;
    return message == "no error" && std::memcmp(before.data(), memory.data(), before.size() * sizeof(float)) != 0;
  }

 private:
  Shape outer_{2};
};

}  // namespace evenorm::testing
