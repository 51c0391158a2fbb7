// The fused forms through the C API: the bits of C++, in plans too; callers of the first structures have none of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "contracts/harness.hpp"
#include "contracts/through_c.hpp"
#include "evenorm/evenorm.h"
#include "run/dispatch.hpp"
#include "support/fused.hpp"
#include "support/tensors.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kBothKinds;
using ::testing::HasSubstr;

// Every field of the fused forms is in one of them.
std::vector<FusedOperation> operations(Kind kind) {
  FusedOperation second{contracts::same_type(kind, DType::f32, 300)};
  second.residual = DType::bf16;
  second.residual_scale = 0.75;
  second.y2 = second.weight2 = DType::f16;
  if (kind == Kind::layer) second.bias2 = DType::f32;
  FusedOperation rows{contracts::same_type(kind, DType::f32, 70)};
  rows.norm.y = DType::i8;
  rows.residual = DType::f32;
  FusedOperation given = rows;
  given.given_scale = 0.03;
  given.residual.reset();
  return {second, rows, given};
}

// A plan made without buffers, run with them.
contracts::Runner through_plans_in_c() {
  return [](const Forward& forward, const Executor& executor) {
    const evenorm_forward whole = contracts::c_forward(forward);
    const evenorm_executor shared = contracts::c_executor(executor);
    evenorm_forward described = whole;
    described.x.data = nullptr;
    described.y.data = nullptr;
    evenorm_plan* plan = nullptr;
    contracts::check_status(evenorm_plan_create(&described, &plan));
    const evenorm_buffers buffers = contracts::c_buffers(whole);
    const evenorm_status status = evenorm_plan_run_with(plan, &buffers, &shared);
    evenorm_plan_destroy(plan);
    contracts::check_status(status);
  };
}

TEST(CApi_Fused, HasTheBitsOfTheStepsOneByOne) {
  for (const Kind kind : kBothKinds) {
    for (const FusedOperation& op : operations(kind)) {
      const FusedInputs inputs = fused_inputs(op, 40);
      const FusedOutcome expected = one_by_one(internal::active_target(), op, inputs);
      for (const contracts::Runner& run : {contracts::through_c(), through_plans_in_c()}) {
        const FusedOutcome outcome = run_fused(run, op, inputs, {}, contracts::reversed_executor(3));
        EXPECT_EQ(outcome.difference_to(expected), "") << op.name();
        EXPECT_TRUE(outcome.kept_inside) << op.name();
      }
    }
  }
}

TEST(CApi_Fused, TheGradientOfASum) {
  const std::vector<float> x = {4, 2, 8, 1, 0, 5}, dy = {1, -1, 2, 3, 0, 1}, dsum = {10, 20, 30, 40, 50, 60};
  const Shape shape = {2, 3}, normalized = {3};
  std::vector<float> through_c(6), through_cpp(6);
  Backward backward;
  backward.x = {x.data(), DType::f32, shape, {}};
  backward.dy = {dy.data(), DType::f32, shape, {}};
  backward.normalized_shape = normalized;
  backward.dsum = {dsum.data(), DType::f32, shape, {}};
  backward.dx = {through_cpp.data(), DType::f32, shape, {}};
  run(backward);
  backward.dx = {through_c.data(), DType::f32, shape, {}};
  contracts::gradients_through_c()(backward, {});
  EXPECT_EQ(through_c, through_cpp);
  EXPECT_GT(through_c[3], 30);
}

// What a program has that was compiled before there were fused forms: the fields beyond its size are not looked at.
TEST(CApi_Fused, OlderStructuresHaveNone) {
  const std::array<float, 3> x = {4, 2, 8};
  const std::array<std::int64_t, 2> shape = {1, 3};
  std::array<float, 3> plain{}, older{};
  evenorm_forward forward = evenorm_forward_defaults();
  EXPECT_EQ(forward.residual_scale, 1);
  forward.x = {x.data(), EVENORM_F32, 2, shape.data(), nullptr};
  forward.y = {plain.data(), EVENORM_F32, 2, shape.data(), nullptr};
  forward.normalized_shape = &shape[1];
  forward.normalized_shape_count = 1;
  ASSERT_EQ(evenorm_run(&forward, nullptr), EVENORM_OK);
  forward.struct_size = offsetof(evenorm_forward, residual);
  forward.residual = forward.x;
  forward.given_scale = -1;
  forward.y.data = older.data();
  ASSERT_EQ(evenorm_run(&forward, nullptr), EVENORM_OK) << evenorm_last_error();
  EXPECT_EQ(older, plain);

  evenorm_plan* plan = nullptr;
  ASSERT_EQ(evenorm_plan_create(&forward, &plan), EVENORM_OK);
  older.fill(0);
  evenorm_buffers buffers = contracts::c_buffers(forward);
  buffers.struct_size = offsetof(evenorm_buffers, residual);  // and a residual behind it, which the plan has not
  EXPECT_EQ(evenorm_plan_run_with(plan, &buffers, nullptr), EVENORM_OK) << evenorm_last_error();
  EXPECT_EQ(older, plain);
  evenorm_plan_destroy(plan);

  evenorm_backward backward = evenorm_backward_defaults();
  std::array<float, 3> dx{}, older_dx{};
  backward.x = backward.dy = forward.x;
  backward.normalized_shape = &shape[1];
  backward.normalized_shape_count = 1;
  backward.dx = {dx.data(), EVENORM_F32, 2, shape.data(), nullptr};
  ASSERT_EQ(evenorm_run_backward(&backward, nullptr, 0, nullptr), EVENORM_OK);
  backward.struct_size = offsetof(evenorm_backward, dsum);
  backward.dsum = forward.x;
  backward.dx.data = older_dx.data();
  ASSERT_EQ(evenorm_run_backward(&backward, nullptr, 0, nullptr), EVENORM_OK) << evenorm_last_error();
  EXPECT_EQ(older_dx, dx);
}

struct Call {
  std::array<float, 6> x{4, 2, 8, 1, 0, 5}, y{}, other{};
  std::array<std::int64_t, 2> shape{2, 3}, wrong{3, 2};
  evenorm_forward forward = evenorm_forward_defaults();

  Call() {
    forward.x = {x.data(), EVENORM_F32, 2, shape.data(), nullptr};
    forward.y = {y.data(), EVENORM_F32, 2, shape.data(), nullptr};
    forward.normalized_shape = &shape[1];
    forward.normalized_shape_count = 1;
  }
  Call(const Call&) = delete;  // its tensors point into it
  Call& operator=(const Call&) = delete;

  std::string error() const {
    if (evenorm_run(&forward, nullptr) != EVENORM_INVALID_ARGUMENT) return "passes";
    return y == std::array<float, 6>{} ? evenorm_last_error() : "has written";
  }
};

// What the call says after a change.
template <class Change>
std::string error_after(const Change& change) {
  Call call;
  change(call);
  return call.error();
}

TEST(CApi_FusedArguments, AreRefusedByName) {
  const auto other = [](Call& call, const std::int64_t* shape, evenorm_dtype dtype) {
    return evenorm_tensor{call.other.data(), dtype, 2, shape, nullptr};
  };
  const auto const_other = [](Call& call, const std::int64_t* shape, evenorm_dtype dtype) {
    return evenorm_const_tensor{call.other.data(), dtype, 2, shape, nullptr};
  };
  EXPECT_EQ(error_after([](Call&) {}), "passes");
  EXPECT_THAT(error_after([&](Call& c) { c.forward.residual = const_other(c, c.wrong.data(), EVENORM_F32); }),
              HasSubstr("residual has shape (3, 2)"));
  EXPECT_THAT(error_after([&](Call& c) { c.forward.residual = const_other(c, c.shape.data(), 9); }),
              HasSubstr("residual has dtype 9"));
  EXPECT_THAT(error_after([&](Call& c) { c.forward.sum = other(c, c.shape.data(), EVENORM_F32); }), HasSubstr("sum"));
  EXPECT_THAT(error_after([](Call& c) { c.forward.x.dtype = EVENORM_I8; }), HasSubstr("x has dtype i8"));
}

TEST(CApi_Types, I8HasANameAndASize) {
  EXPECT_STREQ(evenorm_dtype_name(EVENORM_I8), "i8");
  EXPECT_EQ(evenorm_dtype_size(EVENORM_I8), 1U);
}

}  // namespace
}  // namespace evenorm::testing
