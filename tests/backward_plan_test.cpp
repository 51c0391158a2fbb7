// Plans of the backward pass: they run again and on other buffers, and refuse wrong ones. Cases with entry=plan compare
// their bits with run(). backward_arguments_test.cpp has wrong descriptions, and also makes each call by a plan.
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <utility>

#include "support/backward_call.hpp"
#include "support/cases.hpp"
#include "support/names.hpp"

namespace evenorm {
namespace {

using testing::error_of;
using Call = testing::BackwardCall;

BackwardBuffers buffers_of(const Backward& b) {
  return {b.x.data,  b.dy.data,      b.weight.data, b.mean.data, b.rstd.data,
          b.dx.data, b.dweight.data, b.dbias.data,  b.dsum.data};
}

// The description has dsum, and no precomputed statistics.
TEST(Backward_Plan, RunsAgainAndOnOtherBuffers) {
  Call call, expected;
  call.backward.dsum = call.complete().dy;
  expected.backward.dsum = expected.complete().dy;
  run(expected.complete());
  const BackwardPlan plan(call.complete());
  plan.run(call.scratch);
  EXPECT_EQ(call.memory, expected.memory);
  plan.run(call.scratch, pool_executor(2));
  EXPECT_EQ(call.memory, expected.memory);

  Call other;
  for (std::ptrdiff_t i = 0; i < 48; ++i) other.at(Call::kDy)[i] *= 3;
  Call right = other;
  const auto buffers_at = [](Call& c) {
    return BackwardBuffers{c.at(Call::kX),       c.at(Call::kDy),    c.at(Call::kWeight),
                           c.at(Call::kMean),    c.at(Call::kRstd),  c.at(Call::kDx),
                           c.at(Call::kDweight), c.at(Call::kDbias), c.at(Call::kDy)};
  };
  plan.run(buffers_at(other), call.scratch);
  BackwardPlan(call.complete()).run(buffers_at(right), right.scratch, pool_executor(3));
  EXPECT_EQ(other.memory, right.memory);
  EXPECT_NE(other.memory, expected.memory);
  Call anew;
  for (std::ptrdiff_t i = 0; i < 48; ++i) anew.at(Call::kDy)[i] *= 3;
  anew.backward.dsum = anew.complete().dy;
  run(anew.complete());
  EXPECT_EQ(other.memory, anew.memory);
  EXPECT_EQ(call.memory, expected.memory);
}

TEST(Backward_Plan, RejectsBuffersThatArePresentOrAbsentUnlikeThePlan) {
  Call call;
  const BackwardPlan plan(call.complete());
  const std::vector<float> before = call.memory;
  const BackwardBuffers planned = buffers_of(call.backward);
  const auto error_with = [&](const auto& change) {
    BackwardBuffers buffers = planned;
    change(buffers);
    return error_of([&] { plan.run(buffers, call.scratch); });
  };
  EXPECT_EQ(error_with([](auto& buffers) { buffers.weight = nullptr; }), "weight is null, but the plan has one");
  EXPECT_EQ(error_with([](auto& buffers) { buffers.dx = nullptr; }), "dx is null, but the plan has one");
  EXPECT_EQ(error_with([](auto& buffers) { buffers.dbias = nullptr; }), "dbias is null, but the plan has one");
  EXPECT_EQ(error_with([](auto& buffers) { buffers.dsum = buffers.x; }), "dsum is given, but the plan has none");
  EXPECT_EQ(error_with([](auto& buffers) { buffers.x = nullptr; }), "x is null");
  EXPECT_EQ(error_with([](auto& buffers) { buffers.dweight = buffers.dx; }), "dweight may overlap dx");
  EXPECT_EQ(before, call.memory);
  EXPECT_EQ(error_with([](auto&) {}), "no error");
}

TEST(Backward_Plan, RejectsScratchThatOverlapsATensor) {
  Call call;
  const BackwardPlan plan(call.complete());
  const std::vector<float> before = call.memory;
  const auto all = std::as_writable_bytes(std::span(call.memory));
  EXPECT_EQ(error_of([&] { plan.run(all); }), "scratch may overlap x");
  EXPECT_EQ(error_of([&] { plan.run(std::span(call.scratch).first(plan.scratch_bytes() - 1)); }),
            "scratch has " + std::to_string(plan.scratch_bytes() - 1) + " bytes, but this problem needs " +
                std::to_string(plan.scratch_bytes()));
  EXPECT_EQ(before, call.memory);
}

TEST(Backward_Plan, RunsOnSeveralThreadsAtOnce) {
  std::array<Call, 4> calls;
  Call expected;
  run(expected.complete());
  const BackwardPlan plan(calls[0].complete());
  for (int round = 0; round < 5; ++round) {
    std::vector<std::thread> threads;
    for (Call& call : calls) {
      threads.emplace_back([&] { plan.run(buffers_of(call.backward), call.scratch); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Call& call : calls) EXPECT_EQ(call.memory, expected.memory);
  }
}

TEST(Backward_Plan, RejectsAMovedFromPlan) {
  Call call;
  BackwardPlan plan(call.complete());
  BackwardPlan other = std::move(plan);
  const BackwardPlan copy(plan);  // NOLINT(bugprone-use-after-move): allowed, and has no state
  const std::string message = "the plan was moved from";
  for (const BackwardPlan* empty : {static_cast<const BackwardPlan*>(&plan), &copy}) {
    EXPECT_EQ(error_of([&] { static_cast<void>(empty->scratch_bytes()); }), message);
    EXPECT_EQ(error_of([&] { empty->run(call.scratch); }), message);
    EXPECT_EQ(error_of([&] { empty->run(BackwardBuffers{}, call.scratch); }), message);
  }
  plan = other;
  EXPECT_EQ(error_of([&] { plan.run(call.scratch); }), "no error");
}

}  // namespace
}  // namespace evenorm
