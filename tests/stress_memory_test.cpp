// Each allocation fails in turn. Calls report it as evenorm.hpp and evenorm.h document, leak nothing and leave nothing
// half done. A norm that runs allocates nothing.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <new>

#include "contracts/through_c.hpp"
#include "support/c_call.hpp"
#include "support/memory.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using Call = CForwardCall;

// Runs `body` with the first allocation failing, then the second, until none fails. body returns true if it reported
// missing memory. Returns how many allocations failed.
std::size_t fail_each(const std::function<bool()>& body) {
  std::size_t failures = 0;
  for (const Failing failing : {Failing::one, Failing::one_and_all_after}) {
    bool failed = true;
    for (std::size_t n = 0; failed; ++n) {
      const long live = allocations().live;
      bool told = false;
      {
        const FailingAllocation scope(n, failing);
        told = body();
        failed = FailingAllocation::has_failed();
      }
      EXPECT_EQ(told, failed) << "allocation " << n;
      EXPECT_EQ(allocations().live, live) << "allocation " << n;
      failures += failed ? 1 : 0;
      if (n == 100000) return 0;
    }
  }
  return failures;
}

// For bodies that throw or return anything.
template <class Body>
std::function<bool()> throws_bad_alloc(Body body) {
  return [body] {
    try {
      body();
      return false;
    } catch (const std::bad_alloc&) {
      return true;
    }
  };
}

struct Norm {
  std::vector<float> x = std::vector<float>(24, 2.0f), y = x, dy = std::vector<float>(24, 1.0f);
  std::vector<std::int64_t> shape = {3, 8}, normalized = {8};
  Forward forward{.x = {x.data(), DType::f32, shape}, .y = {y.data(), DType::f32, shape}, .normalized_shape = {8}};
  Backward backward{
      .x = forward.x, .dy = {dy.data(), DType::f32, shape}, .normalized_shape = normalized, .dx = forward.y};
};

TEST(Stress_Memory, PlansAndQueriesThrowBadAlloc) {
  const Norm norm;
  EXPECT_GE(fail_each(throws_bad_alloc([&] { const Plan made(norm.forward); })), 2u);
  EXPECT_GE(fail_each(throws_bad_alloc([&] { const BackwardPlan made(norm.backward); })), 1u);
  EXPECT_GE(fail_each(throws_bad_alloc([] { compiled_targets(); })), 2u);
  EXPECT_GE(fail_each(throws_bad_alloc([] { supported_targets(); })), 2u);
}

// The axes do not fit into a description on the stack. The plan keeps them, so a run allocates nothing.
TEST(Stress_Memory, PlansOfManyAxesThrowBadAlloc) {
  const std::array<std::int64_t, 6> shape = {2, 2, 2, 2, 2, 8}, strides = {159, 79, 39, 19, 9, 1};
  std::vector<float> x(320, 1), y(320);
  const Forward forward{.x = {x.data(), DType::f32, shape, strides},
                        .y = {y.data(), DType::f32, shape, strides},
                        .normalized_shape = {8}};
  EXPECT_GE(fail_each(throws_bad_alloc([&] { const Plan made(forward); })), 2u);
  const Plan plan(forward);
  EXPECT_EQ(fail_each(throws_bad_alloc([&] { plan.run(); })), 0u);
}

// The failing process has no memory for an error text either. The other processes report it, and all stay in step.
TEST(Stress_Memory, AllProcessesReportThatOneIsOutOfMemory) {
  const auto texts = told(3, [](const Communicator& communicator) {
    Norm norm;
    ShardedNorm sharded(norm.forward, communicator);
    Forward wrong = norm.forward;
    if (communicator.rank == 1) wrong.eps = -1;
    try {
      const FailingAllocation scope(communicator.rank == 1 ? 0 : 100000, Failing::one);
      sharded.run(wrong);
    } catch (const std::exception&) {
      EXPECT_NO_THROW(sharded.run(norm.forward));
      throw;
    }
  });
  expect_failure_of(1, std::bad_alloc().what(), texts);
}

TEST(Stress_Memory, CopiesOfPlansNeedNoMemory) {
  Norm norm, other;
  other.x[3] = 11;
  Plan plan(norm.forward);
  const BackwardPlan backward(norm.backward);
  {
    const Plan another(other.forward);
    const FailingAllocation scope(0, Failing::one_and_all_after);
    plan = another;
    const BackwardPlan copy(backward);
  }
  other.y.assign(other.y.size(), 7.0f);
  plan.run();
  EXPECT_NE(other.y, std::vector<float>(other.y.size(), 7.0f));
}

// An error text needs memory. If there is none, std::bad_alloc is thrown instead, before anything is written.
TEST(Stress_Memory, ErrorsThrowBadAllocInstead) {
  Norm norm;
  const std::vector<std::int64_t> wrong = {5};
  norm.forward.weight = {norm.x.data(), DType::f32, wrong};
  const auto refused = [&](auto call) {
    return throws_bad_alloc([=] {
      try {
        call();
      } catch (const Error&) {
      }
    });
  };
  EXPECT_GE(fail_each(refused([&] { run(norm.forward); })), 8u);
  EXPECT_GE(fail_each(refused([&] { const Plan plan(norm.forward); })), 8u);
  EXPECT_GE(fail_each(refused([&] { layer_norm<float>(norm.x, norm.y, 7); })), 2u);
  EXPECT_EQ(norm.y, std::vector<float>(24, 2.0f));
}

TEST(Stress_Memory, TheCApiReturnsAStatus) {
  Call call;
  const auto is_out = [](evenorm_status status) {
    return status == EVENORM_OUT_OF_MEMORY && last_error() == "out of memory";
  };
  EXPECT_GE(fail_each([&] {
              auto* plan = reinterpret_cast<evenorm_plan*>(&call);
              const bool told = is_out(evenorm_plan_create(&call.given, &plan));
              if (told && plan != nullptr) return false;
              evenorm_plan_destroy(plan);
              return told;
            }),
            4u);
  call.given.eps = -1;
  const std::vector<float> before = call.memory;
  CBackwardCall gradients;
  float x = 0;
  const std::function<evenorm_status()> refused[] = {
      [&] { return evenorm_run(&call.given, nullptr); },
      [&] { return evenorm_run(nullptr, nullptr); },
      [&] { return evenorm_run_backward(&gradients.given, nullptr, 0, nullptr); },
      [&] { return evenorm_plan_run(nullptr, nullptr); },
      [&] { return evenorm_plan_run_with(nullptr, nullptr, nullptr); },
      [&] { return evenorm_pool_executor(1, nullptr); },
      [&] { return evenorm_forward_init(nullptr, 8); },
      [&] { return evenorm_target(nullptr); },
      [&] { return evenorm_layer_norm_f32(&x, &x, 1, 0, nullptr, nullptr, 1e-5); },
  };
  for (const auto& refusal : refused) {
    EXPECT_GE(fail_each([&] { return is_out(refusal()); }), 2u) << "refusal " << &refusal - refused;
  }
  EXPECT_EQ(call.memory, before);
}

// Every layout and mixture of types, statistics and parameters, in C++ and C, with and without a plan.
TEST(Stress_Memory, ARunAllocatesNothing) {
  Call call;
  const std::int64_t shape[] = {40, 30, 20}, strides[] = {1, 40, 1200}, axes[] = {1}, cols[] = {30};
  std::vector<double> x(24000, 3.0);
  std::vector<std::uint16_t> y(24000), weight(30, 0x3F80);
  const Forward strided{.x = {x.data(), DType::f64, shape, strides},
                        .y = {y.data(), DType::bf16, shape},
                        .axes = axes,
                        .weight = {weight.data(), DType::bf16, cols}};
  std::vector<float> dense(1 << 20, 1.5f);
  const Executor reversed = contracts::reversed_executor(4), pool = pool_executor(2);
  layer_norm<float>(dense, dense, 1024, {.executor = &pool});  // starts the pool
  const Plan plan(strided);
  std::vector<float> dx(1 << 16), dweight(1024);
  const BackwardPlan gradients({.x = {dense.data(), DType::f32, {64, 1024}},
                                .dy = {dense.data(), DType::f32, {64, 1024}},
                                .normalized_shape = {1024},
                                .dx = {dx.data(), DType::f32, {64, 1024}},
                                .dweight = {dweight.data(), DType::f32, {1024}}});
  std::vector<std::byte> scratch(gradients.scratch_bytes());
  evenorm_plan* c_plan = nullptr;
  ASSERT_EQ(evenorm_plan_create(&call.given, &c_plan), EVENORM_OK);
  const auto last = [&] { return evenorm_plan_run(c_plan, nullptr) == EVENORM_OK; };

  const long before = allocations().made;
  run(strided);
  run(strided, reversed);
  plan.run();
  plan.run({.x = x.data(), .y = y.data(), .weight = weight.data()}, reversed);
  gradients.run(scratch);
  gradients.run({.x = dense.data(), .dy = dense.data(), .dx = dx.data(), .dweight = dweight.data()}, scratch, reversed);
  for (const Executor* executor : {static_cast<const Executor*>(nullptr), &reversed, &pool}) {
    layer_norm<float>(dense, dense, 1024, {.executor = executor});
    rms_norm<float>(dense, dense, std::size_t{1} << 20U, {.executor = executor});
  }
  const bool ran = evenorm_run(&call.given, nullptr) == EVENORM_OK && last() &&
                   evenorm_layer_norm_f32(dense.data(), dense.data(), 1024, 1024, nullptr, nullptr, 0) == EVENORM_OK;
  const long after = allocations().made;
  EXPECT_TRUE(ran);
  EXPECT_EQ(after, before);
  evenorm_plan_destroy(c_plan);
}

}  // namespace
}  // namespace evenorm::testing
