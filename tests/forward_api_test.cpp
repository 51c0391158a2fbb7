// The forms of the C++ API: plans, the plain form, shapes and strides, executors, threads, and a forked child.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "contracts/harness.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"

namespace evenorm {
namespace {

using contracts::Array;
using contracts::make_bias;
using contracts::make_input;
using contracts::make_weight;
using contracts::Operation;
using contracts::Outcome;
using ::testing::HasSubstr;
using ::testing::Property;

std::vector<float> floats(const Array& values) {
  std::vector<float> result(values.size());
  std::copy_n(values.data(), values.bytes().size(), reinterpret_cast<std::byte*>(result.data()));
  return result;
}

struct Data {
  Operation op;
  Array x, weight, bias;
  std::vector<float> expected;
  std::vector<double> mean, rstd;

  Data(Kind kind, std::size_t rows, std::size_t cols) : op(contracts::same_type(kind, DType::f32, cols)) {
    x = Array(DType::f32, std::size_t{0});
    for (std::uint64_t r = 0; r < rows; ++r)
      x.append(make_input(r % 5 == 3 ? "mean_1e4" : "normal", DType::f32, cols, r));
    weight = make_weight(DType::f32, cols);
    bias = make_bias(DType::f32, cols);
    const auto target = internal::active_target();
    const Outcome outcome = contracts::run_operation(contracts::on_target(target), op, x, weight, bias);
    expected = floats(outcome.y);
    mean = outcome.mean;
    rstd = outcome.rstd;
  }
};

TEST(Forward_Api, PlainFormGivesTheSameBits) {
  const Data data(Kind::layer, 7, 100);
  const std::vector<float> x = floats(data.x), weight = floats(data.weight), bias = floats(data.bias);
  std::vector<float> y(x.size());
  std::vector<double> mean(7), rstd(7);
  layer_norm<float>(x, y, 100, {.weight = weight, .bias = bias, .mean = mean, .rstd = rstd});
  EXPECT_EQ(y, data.expected);
  EXPECT_EQ(mean, data.mean);
  EXPECT_EQ(rstd, data.rstd);
  std::vector<float> in_place = x;
  const Executor executor = pool_executor(2);
  layer_norm<float>(in_place, in_place, 100, {.weight = weight, .bias = bias, .executor = &executor});
  EXPECT_EQ(in_place, data.expected);
  const Data rms(Kind::rms, 7, 100);
  rms_norm<float>(floats(rms.x), y, 100, {.weight = weight, .bias = bias});
  EXPECT_EQ(y, rms.expected);
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

// (4, 3, 8) over (8), over (3, 8) and over all axes: the same memory with other rows.
TEST(Forward_Api, NormalisesAnyNumberOfTrailingAxes) {
  const std::array<std::int64_t, 3> shape{4, 3, 8};
  const std::vector<float> x = floats(make_input("normal", DType::f32, 96));
  for (std::size_t axes = 1; axes <= 3; ++axes) {
    const std::span<const std::int64_t> normalized = std::span(shape).last(axes),
                                        outer = std::span(shape).first(3 - axes);
    std::size_t cols = 1;
    for (const std::int64_t size : normalized) cols *= static_cast<std::size_t>(size);
    std::vector<float> y(96), expected(96);
    std::vector<double> mean(96 / cols), expected_mean(96 / cols);
    Forward forward;
    forward.x = {x.data(), DType::f32, shape};
    forward.y = {y.data(), DType::f32, shape};
    forward.normalized_shape = normalized;
    forward.mean = {mean.data(), DType::f64, outer};
    run(forward);
    layer_norm<float>(x, expected, cols, {.mean = expected_mean});
    EXPECT_EQ(y, expected) << axes;
    EXPECT_EQ(mean, expected_mean) << axes;
  }
}

TEST(Forward_Api, PlanRunsAgainOnOtherBuffers) {
  const Data data(Kind::layer, 9, 65), other(Kind::layer, 9, 65);
  const std::vector<float> x = floats(data.x), weight = floats(data.weight), bias = floats(data.bias);
  const std::array<std::int64_t, 2> shape{9, 65};
  const std::span<const std::int64_t> normalized(&shape[1], 1);
  std::vector<float> y(x.size()), second(x.size());
  Forward forward;
  forward.x = {x.data(), DType::f32, shape};
  forward.y = {y.data(), DType::f32, shape};
  forward.normalized_shape = normalized;
  forward.weight = {weight.data(), DType::f32, normalized};
  forward.bias = {bias.data(), DType::f32, normalized};
  const Plan plan(forward);
  plan.run();
  EXPECT_EQ(y, data.expected);
  y.assign(y.size(), 0);
  plan.run(pool_executor(2));
  EXPECT_EQ(y, data.expected);

  const Buffers buffers{x.data(), second.data(), weight.data(), bias.data(), nullptr, nullptr};
  Plan copy(plan);
  copy.run(buffers);
  EXPECT_EQ(second, data.expected);
  copy = Plan(forward);
  second.assign(second.size(), 0);
  copy.run(buffers, pool_executor(2));
  EXPECT_EQ(second, data.expected);

  Buffers wrong = buffers;
  wrong.y = const_cast<float*>(x.data()) + 1;
  EXPECT_THROW(plan.run(wrong), Error);
  wrong = buffers;
  wrong.bias = nullptr;
  EXPECT_THROW(plan.run(wrong), Error);
  wrong = buffers;
  double mean[9];
  wrong.mean = mean;
  EXPECT_THROW(plan.run(wrong), Error);
  EXPECT_EQ(x, floats(data.x));
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

TEST(Forward_Executor, SharesOutManyRowsAndLongRows) {
  for (const auto& [rows, cols] : {std::pair{4096, 64}, {64, 4096}, {1, 1 << 20}, {3, 300000}}) {
    const Data data(Kind::layer, static_cast<std::size_t>(rows), static_cast<std::size_t>(cols));
    Counter counter;
    const Outcome outcome = contracts::run_operation(contracts::on_target(internal::active_target()), data.op, data.x,
                                                     data.weight, data.bias, {}, counting_executor(counter, 4));
    EXPECT_GE(counter.calls, 1u) << rows << " x " << cols;
    EXPECT_GE(counter.tasks, 4u) << rows << " x " << cols;
    EXPECT_EQ(floats(outcome.y), data.expected);
    EXPECT_EQ(outcome.rstd, data.rstd);
  }
}

// Rows with a small and with a large mean are normalised by different code.
TEST(Forward_Executor, SharesOutALongRowWithALargeMeanWithTheSameBits) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const contracts::Operation op = contracts::same_type(Kind::layer, dtype, 300000);
    for (const char* input : {"normal", "mean_1e4"}) {
      const Array x = contracts::make_input(input, dtype, op.cols, 5);
      const Array weight = contracts::make_weight(dtype, op.cols), bias = contracts::make_bias(dtype, op.cols);
      const contracts::Runner runner = contracts::on_target(internal::active_target());
      Counter counter;
      const Outcome alone = contracts::run_operation(runner, op, x, weight, bias);
      const Outcome shared = contracts::run_operation(runner, op, x, weight, bias, {}, counting_executor(counter, 4));
      EXPECT_GE(counter.tasks, 4u);
      EXPECT_TRUE(std::ranges::equal(shared.y.bytes(), alone.y.bytes())) << op.name() << ", " << input;
    }
  }
}

TEST(Forward_Executor, IsNotCalledForOneThread) {
  const Data data(Kind::layer, 1000, 100);
  Counter counter;
  contracts::run_operation(contracts::on_target(internal::active_target()), data.op, data.x, data.weight, data.bias, {},
                           counting_executor(counter, 1));
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
  const Data data(Kind::layer, 500, 300);
  const auto matches = [&] {
    const Outcome outcome = contracts::run_operation(contracts::on_target(internal::active_target()), data.op, data.x,
                                                     data.weight, data.bias, {}, pool_executor(2));
    return floats(outcome.y) == data.expected;
  };
  ASSERT_TRUE(matches());
  EXPECT_EQ(testing::outcome_of_child([&] {
              Counter counter;
              contracts::run_operation(contracts::on_target(internal::active_target()), data.op, data.x, data.weight,
                                       data.bias, {}, counting_executor(counter, 2));
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
