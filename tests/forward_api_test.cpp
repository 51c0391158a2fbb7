// The forms of the C++ API: plans, the plain form, shapes and strides, executors, threads, and a forked child.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "support/cases.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"

namespace evenorm {
namespace {

using contracts::Array;
using contracts::Case;
using contracts::Inputs;
using contracts::Outcome;
using contracts::parse_case;
using ::testing::HasSubstr;
using ::testing::Property;

std::vector<float> floats(const Array& values) {
  std::vector<float> result(values.size());
  std::copy_n(values.data(), values.bytes().size(), reinterpret_cast<std::byte*>(result.data()));
  return result;
}

// A case of f32 with its numbers, as vectors, and its results.
struct Data {
  explicit Data(const std::string& text)
      : c(parse_case(text + " x:normal,normal,normal,mean_1e4,normal")),
        inputs(contracts::inputs_of(c)),
        x(floats(inputs.x)),
        weight(floats(inputs.weight)),
        bias(floats(inputs.bias)),
        expected(contracts::plain_outcome(c, inputs)),
        y(floats(expected.y)) {}

  Outcome run(const Executor& executor) const {
    return run_operation(contracts::on_target(internal::active_target()), c.op, inputs, {}, executor);
  }

  Case c;
  Inputs inputs;
  std::vector<float> x, weight, bias;
  Outcome expected;
  std::vector<float> y;
};

TEST(Forward_Api, PlainFormGivesTheSameBits) {
  const Data data("layer f32 weight=f32 bias=f32 7x100"), rms("rms f32 weight=f32 bias=f32 7x100");
  std::vector<float> y(data.x.size()), in_place = data.x;
  std::vector<double> mean(7), rstd(7);
  layer_norm<float>(data.x, y, 100, {.weight = data.weight, .bias = data.bias, .mean = mean, .rstd = rstd});
  EXPECT_EQ(y, data.y);
  EXPECT_EQ(mean, data.expected.mean);
  EXPECT_EQ(rstd, data.expected.rstd);
  const Executor executor = pool_executor(2);
  layer_norm<float>(in_place, in_place, 100, {.weight = data.weight, .bias = data.bias, .executor = &executor});
  EXPECT_EQ(in_place, data.y);
  rms_norm<float>(rms.x, y, 100, {.weight = rms.weight, .bias = rms.bias});
  EXPECT_EQ(y, rms.y);
}

TEST(Forward_Api, PlainFormNamesTheWrongArgument) {
  const std::vector<float> x(24), weight(5);
  std::vector<float> y(24), shorter(16);
  const auto message = [](const char* text) { return Property(&Error::what, HasSubstr(text)); };
  EXPECT_THROW(layer_norm<float>(x, y, 0), Error);
  EXPECT_THAT([&] { layer_norm<float>(x, y, 7); }, ::testing::Throws<Error>(message("x has 24 elements")));
  EXPECT_THAT([&] { layer_norm<float>(x, shorter, 8); }, ::testing::Throws<Error>(message("y has 16 elements")));
  EXPECT_THAT([&] { layer_norm<float>(x, y, 8, {.weight = weight}); },
              ::testing::Throws<Error>(message("weight has shape (5), but normalized_shape is (8)")));
  layer_norm<float>(std::span<const float>{}, std::span<float>{}, 8);  // no rows
}

// A braced list is copied. Anything else is referred to.
TEST(Forward_Api, ShapesMayBeWrittenInPlace) {
  const std::vector<float> x = {4, 2, 8, 1, 0, 1};
  std::vector<float> expected(6), y(6);
  layer_norm<float>(x, expected, 3);
  const std::int64_t strides[] = {3, 1};
  Forward first{.x = {x.data(), DType::f32, {2U, 3}, strides}, .y = {y.data(), DType::f32, {2, 3}}, .axes = {-1}};
  const Forward copy = first;
  first.x.shape = first.y.shape = first.axes = {};
  run(copy);
  EXPECT_EQ(y, expected);
  EXPECT_EQ(copy.x.strides.data(), strides);
  EXPECT_NE(copy.x.shape.data(), first.x.shape.data());
  EXPECT_THROW((Dims{1, 2, 3, 4, 5, 6, 7, 8, 9}), Error);
}

// By normalized_shape, which trailing axes are given as, and by axes.
TEST(Forward_Api, NormalisesAnyNumberOfTrailingAxes) {
  testing::expect_same_bits("layer f32 weight=f32 4x3x8 axes={-1,2}");
  for (const char* axes : {"-2,-1", "1,2", "-3,-2,-1", "0,1,2"}) {
    const Case c = parse_case("layer f32 weight=f32 4x3x8 axes=" + std::string(axes));
    const Inputs inputs = contracts::inputs_of(c);
    EXPECT_EQ(contracts::differences(c, inputs, contracts::plain_outcome(c.op, inputs)), "");
  }
}

TEST(Forward_Api, PlanRunsAgainOnOtherBuffers) {
  const Data data("layer f32 weight=f32 bias=f32 9x65");
  const contracts::Call call(data.c.op, data.inputs, {.statistics = {}});
  const Forward forward = call.forward();
  const Plan plan(forward);
  for (const std::size_t threads : {1, 2}) {
    plan.run(pool_executor(threads));
    EXPECT_EQ(floats(call.outcome().y), data.y);
  }
  std::vector<float> second(data.x.size());
  const Buffers buffers{.x = data.x.data(), .y = second.data(), .weight = data.weight.data(), .bias = data.bias.data()};
  Plan copy(plan);
  copy.run(buffers);
  EXPECT_EQ(second, data.y);
  copy = Plan(forward);
  second.assign(second.size(), 0);
  copy.run(buffers, pool_executor(2));
  EXPECT_EQ(second, data.y);

  double mean[9];
  Buffers over_x = buffers, without_bias = buffers, with_mean = buffers;
  over_x.y = const_cast<float*>(data.x.data()) + 1;
  without_bias.bias = nullptr;
  with_mean.mean = mean;
  for (const Buffers& wrong : {over_x, without_bias, with_mean}) EXPECT_THROW(plan.run(wrong), Error);
  EXPECT_EQ(data.x, floats(data.inputs.x));
}

struct Counter {
  std::atomic<std::size_t> calls{0}, tasks{0};
};

// Runs tasks in order and counts them.
Executor counting_executor(Counter& counter, std::size_t threads) {
  return {threads, &counter,
          [](void* context, std::size_t tasks, void (*task)(void*, std::size_t) noexcept, void* argument) {
            auto* c = static_cast<Counter*>(context);
            ++c->calls;
            c->tasks += tasks;
            for (std::size_t i = 0; i < tasks; ++i) task(argument, i);
          }};
}

// Rows with a small and with a large mean are normalised by different code.
TEST(Forward_Executor, SharesOutManyRowsAndLongRows) {
  for (const std::string& text : testing::expanded("layer {f32 weight=f32 bias=f32,f64 weight=f64} "
                                                   "{4096x64,64x4096,1x1048576,3x300000} {x:normal,x:mean_1e4}")) {
    const Case c = parse_case(text);
    const Inputs inputs = contracts::inputs_of(c);
    Counter counter;
    const contracts::Runner run = contracts::on_target(internal::active_target());
    EXPECT_EQ(run_operation(run, c.op, inputs, {}, counting_executor(counter, 4))
                  .difference_to(contracts::plain_outcome(c, inputs)),
              "")
        << text;
    EXPECT_GE(counter.calls, 1u) << text;
    EXPECT_GE(counter.tasks, 4u) << text;
  }
}

TEST(Forward_Executor, IsNotCalledForOneThread) {
  Counter counter;
  Data("layer f32 1000x100").run(counting_executor(counter, 1));
  EXPECT_EQ(counter.calls, 0u);
}

TEST(Forward_Executor, PoolRunsEachTaskOnce) {
  for (const std::size_t threads : {0, 1, 2, 5}) {
    const Executor executor = pool_executor(threads);
    EXPECT_GE(executor.threads, 1u);
    for (const std::size_t tasks : {0, 1, 2, 17, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      executor.parallel_for(
          executor.context, tasks,
          [](void* argument, std::size_t i) noexcept { ++(*static_cast<std::vector<std::atomic<int>>*>(argument))[i]; },
          &runs);
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

// The parent's pool does not exist in the child. The child runs serially, gives the same bits, and ends.
TEST(Forward_Executor, AForkedChildRunsSerially) {
  const Data data("layer f32 weight=f32 bias=f32 500x300");
  const auto matches = [&] { return data.run(pool_executor(2)).has_the_bits_of(data.expected); };
  ASSERT_TRUE(matches());
  EXPECT_EQ(testing::outcome_of_child([&] {
              Counter counter;
              data.run(counting_executor(counter, 2));
              return counter.calls == 0 && matches() ? 0 : 1;
            }),
            "");
}

TEST(Forward_Targets, NamesAgree) {
  const std::vector<std::string> compiled = compiled_targets(), supported = supported_targets();
  EXPECT_EQ(compiled.back(), "portable");
  EXPECT_EQ(supported.back(), "portable");
  EXPECT_EQ(supported.size(), contracts::runnable_targets().size());
  EXPECT_THAT(supported, ::testing::Contains(target()));
}

TEST(Forward_Api, EmptySpansWithAnAddressAreAbsent) {
  std::vector<float> x = {4, 2, 8}, y(3), expected(3), empty;
  std::vector<double> no_statistics;
  empty.reserve(8);
  no_statistics.reserve(8);
  layer_norm<float>(x, expected, 3);
  layer_norm<float>(x, y, 3, {.weight = empty, .bias = empty, .mean = no_statistics, .rstd = no_statistics});
  EXPECT_EQ(y, expected);
  EXPECT_NO_THROW(rms_norm<float>(x, y, 3, {.mean = no_statistics}));
}

// Runs in a child process, which may crash.
TEST(Forward_Plan, RejectsAMovedFromPlan) {
  const std::vector<float> x = {4, 2, 8};
  std::vector<float> y(3);
  const std::vector<std::int64_t> shape = {1, 3}, normalized = {3};
  Plan plan({.x = {x.data(), DType::f32, shape}, .y = {y.data(), DType::f32, shape}, .normalized_shape = normalized});
  const Plan other = std::move(plan);
  const Plan copy(plan);  // NOLINT(bugprone-use-after-move): allowed, and has no state
  const auto refuses = [](const std::function<void()>& call) {
    return testing::outcome_of_child([&] { return testing::error_of(call) == "no error" ? 1 : 0; });
  };
  for (const Plan* empty : {static_cast<const Plan*>(&plan), &copy}) {
    EXPECT_EQ(refuses([&] { empty->run(); }), "");
    EXPECT_EQ(refuses([&] { empty->run(pool_executor(2)); }), "");
    EXPECT_EQ(refuses([&] { empty->run(Buffers{.x = x.data(), .y = y.data()}); }), "");
    EXPECT_EQ(refuses([&] { empty->run(Buffers{.x = x.data(), .y = y.data()}, pool_executor(2)); }), "");
  }
}

TEST(Forward_Plan, RejectsCopiesOfAMovedFromPlan) {
  const std::vector<float> x = {4, 2, 8};
  std::vector<float> y(3), expected(3);
  layer_norm<float>(x, expected, 3);
  const std::vector<std::int64_t> shape = {1, 3}, normalized = {3};
  Plan plan({.x = {x.data(), DType::f32, shape}, .y = {y.data(), DType::f32, shape}, .normalized_shape = normalized});
  Plan other = std::move(plan);
  Plan copy_of_nothing(plan);  // NOLINT(bugprone-use-after-move): allowed, and has no state
  plan = other;
  copy_of_nothing = other;
  copy_of_nothing.run();
  EXPECT_EQ(y, expected);
}

}  // namespace
}  // namespace evenorm
