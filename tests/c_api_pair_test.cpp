// Gradients of two norms of one x through the C API: the bits of the C++ API, and structures from before they were.
#include <gtest/gtest.h>

#include <cstddef>

#include "contracts/through_c.hpp"
#include "dispatch.hpp"
#include "support/c_call.hpp"
#include "support/pairs.hpp"

namespace evenorm {
namespace {

using testing::last_error;

// By a plan, too.
TEST(CApi_Gradients, OfTwoNorms) {
  using testing::pair_of_type;
  const contracts::BackwardRunner planned = [](const Backward& backward, const Executor&) {
    Backward elsewhere = backward;
    std::vector<float> others(400);
    elsewhere.dx.data = others.data();
    elsewhere.dy2.data = others.data() + 200;
    elsewhere.x.data = elsewhere.dy.data = others.data() + 300;
    const evenorm_backward given = contracts::c_backward(elsewhere);
    evenorm_backward_plan* plan = nullptr;
    ASSERT_EQ(evenorm_backward_plan_create(&given, &plan), EVENORM_OK) << last_error();
    const Backward& b = backward;
    const evenorm_backward_buffers buffers{sizeof buffers, b.x.data,       b.dy.data,       b.weight.data, b.mean.data,
                                           b.rstd.data,    b.dx.data,      b.dweight.data,  b.dbias.data,  b.dsum.data,
                                           b.dy2.data,     b.weight2.data, b.dweight2.data, b.dbias2.data};
    std::vector<std::byte> scratch(scratch_bytes(b));
    EXPECT_EQ(evenorm_backward_plan_run_with(plan, &buffers, scratch.data(), scratch.size(), nullptr), EVENORM_OK)
        << last_error();
    evenorm_backward_plan_destroy(plan);
  };
  const testing::PairOperation op = pair_of_type(Kind::layer, DType::f32, 16);
  const testing::PairTensors inputs = testing::pair_inputs(op, 5);
  const testing::PairTensors expected = one_by_one(internal::active_target(), op, inputs);
  EXPECT_EQ(difference(run_pair(contracts::gradients_through_c(), op, inputs), expected), "");
  EXPECT_EQ(difference(run_pair(planned, op, inputs), expected), "");
}

TEST(CApi_StructSize, OfBackwardWithoutASecondNorm) {
  const std::vector<float> x = {4, 2, 8, 1, 0, 5};
  const std::int64_t shape[] = {2, 3};
  std::vector<float> dx(6), older_dx(6);
  evenorm_backward backward = evenorm_backward_defaults();
  backward.x = backward.dy = {x.data(), EVENORM_F32, 2, shape, nullptr};
  backward.normalized_shape = &shape[1];
  backward.normalized_shape_count = 1;
  backward.dx = {dx.data(), EVENORM_F32, 2, shape, nullptr};
  ASSERT_EQ(evenorm_run_backward(&backward, nullptr, 0, nullptr), EVENORM_OK);
  backward.struct_size = offsetof(evenorm_backward, dy2);
  backward.dy2 = backward.x;
  backward.dx.data = older_dx.data();
  ASSERT_EQ(evenorm_run_backward(&backward, nullptr, 0, nullptr), EVENORM_OK) << last_error();
  EXPECT_EQ(older_dx, dx);
  evenorm_backward_plan* plan = nullptr;
  ASSERT_EQ(evenorm_backward_plan_create(&backward, &plan), EVENORM_OK) << last_error();
  evenorm_backward_buffers buffers{};
  buffers.struct_size = offsetof(evenorm_backward_buffers, dy2);
  buffers.x = buffers.dy = x.data();
  buffers.dx = older_dx.data();
  buffers.dy2 = x.data();
  EXPECT_EQ(evenorm_backward_plan_run_with(plan, &buffers, nullptr, 0, nullptr), EVENORM_OK) << last_error();
  evenorm_backward_plan_destroy(plan);
}

}  // namespace
}  // namespace evenorm
