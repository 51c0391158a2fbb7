// A call of the C API that is right in every respect, for tests to spoil.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "evenorm/evenorm.h"

namespace evenorm::testing {

inline std::string last_error() { return evenorm_last_error(); }

// A norm over (2, 3, 8) by the last two axes.
struct Call {
  std::vector<float> memory = std::vector<float>(256, 7.0f);
  std::vector<double> statistics = {0, 0, 0, 0};
  std::int64_t shape[3] = {2, 3, 8}, rows = 2;
  evenorm_forward forward = evenorm_forward_defaults();

  Call() { describe(); }
  // Takes a new one's place: that one's shape is gone afterwards.
  Call& operator=(Call&& other) noexcept {
    memory = std::move(other.memory);
    statistics = std::move(other.statistics);
    describe();
    return *this;
  }

  void describe() {
    forward = evenorm_forward_defaults();
    for (std::size_t i = 0; i < 48; ++i) memory[i] = static_cast<float>(i * i % 31);
    forward.x = {memory.data(), EVENORM_F32, 3, shape, nullptr};
    forward.y = {memory.data() + 64, EVENORM_F32, 3, shape, nullptr};
    forward.normalized_shape = shape + 1;
    forward.normalized_shape_count = 2;
    forward.weight = {memory.data() + 128, EVENORM_F32, 2, shape + 1, nullptr};
    forward.bias = {memory.data() + 160, EVENORM_F32, 2, shape + 1, nullptr};
    forward.mean = {statistics.data(), EVENORM_F64, 1, &rows, nullptr};
    forward.rstd = {statistics.data() + 2, EVENORM_F64, 1, &rows, nullptr};
  }

  // The text of the refusal, by run and by plan alike; nothing may have been written.
  std::string error() {
    const std::vector<float> before = memory;
    const std::string text = evenorm_run(&forward, nullptr) == EVENORM_INVALID_ARGUMENT ? last_error() : "none";
    EXPECT_EQ(memory, before);
    auto* plan = reinterpret_cast<evenorm_plan*>(this);
    EXPECT_EQ(evenorm_plan_create(&forward, &plan), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(plan, nullptr);
    EXPECT_EQ(last_error(), text);
    return text;
  }
};

}  // namespace evenorm::testing
