// Wrong arguments of the C API give a status and a text, and nothing is written. Structures of other sizes. Arguments
// that the C++ API refuses have one case here, which checks that the text arrives.
#include <cmath>

#include "support/c_call.hpp"

namespace evenorm::testing {
namespace {

using ::testing::StartsWith;
using CForward = CForwardCall;
using CBackward = CBackwardCall;

void expect_forward_refused(const std::vector<Refusal<CForward>>& refusals) {
  expect_refused(&CForward::make, &CForward::error, refusals);
}
void expect_backward_refused(const std::vector<Refusal<CBackward>>& refusals) {
  expect_refused(&CBackward::make, &CBackward::error_without_buffers, refusals);
}

void expect_refusal(evenorm_status status, const std::string& text) {
  EXPECT_THAT(refusal_of(status), StartsWith(text));
}

TEST(CApi_Arguments, HasTheTextsOfCpp) {
  static const std::int64_t kFive = 5;
  const auto of_shape_5 = [](auto structure, auto tensor) {
    return [=](auto& call) {
      (call.*structure.*tensor).rank = 1;
      (call.*structure.*tensor).shape = &kFive;
    };
  };
  expect_forward_refused({
      {of_shape_5(&CForward::given, &evenorm_forward::weight), "weight has shape (5), but normalized_shape is (3, 8)"},
      {with(&CForward::given, &evenorm_forward::eps, std::nan("")), "eps is nan"},
  });
  expect_backward_refused({
      {of_shape_5(&CBackward::given, &evenorm_backward::dbias), "dbias has shape (5), but normalized_shape is (3, 8)"},
      {with(&CBackward::given, &evenorm_backward::eps, -1), "eps is -1"},
  });
  CBackward call;
  call.given.dbias.data = call.given.dweight.data;
  EXPECT_EQ(call.error(), "dbias may overlap dweight");
}

TEST(CApi_Arguments, RejectsValuesThatAreNoType) {
  for (const evenorm_dtype dtype : {77, 5, 256, 259, -1, -256, INT32_MAX, INT32_MIN}) {
    using F = evenorm_forward;
    expect_types_refused(&CForward::make_fused, &CForward::error, &CForward::given, dtype,
                         {"x", "y", "weight", "bias", "mean", "rstd", "residual", "sum"}, &F::x, &F::y, &F::weight,
                         &F::bias, &F::mean, &F::rstd, &F::residual, &F::sum);
    using B = evenorm_backward;
    expect_types_refused(&CBackward::make, &CBackward::error_without_buffers, &CBackward::given, dtype,
                         {"x", "dy", "dx", "weight", "mean", "rstd", "dweight", "dbias"}, &B::x, &B::dy, &B::dx,
                         &B::weight, &B::mean, &B::rstd, &B::dweight, &B::dbias);
    EXPECT_EQ(evenorm_dtype_name(dtype), nullptr);
    EXPECT_EQ(evenorm_dtype_size(dtype), 0u);
  }
  for (const evenorm_kind kind : {2, 256, -1}) {
    const std::string wrong = "kind is " + std::to_string(kind) + ", which is none of layer, rms";
    expect_forward_refused({{with(&CForward::given, &evenorm_forward::kind, kind), wrong}});
    expect_backward_refused({{with(&CBackward::given, &evenorm_backward::kind, kind), wrong}});
  }
}

TEST(CApi_Arguments, AbsentTensorsMayHoldAnything) {
  CForward forward;
  for (auto* tensor : {&forward.given.weight, &forward.given.bias}) *tensor = {nullptr, 77, -3, nullptr, nullptr};
  for (auto* tensor : {&forward.given.mean, &forward.given.rstd}) *tensor = {nullptr, 77, 9, nullptr, nullptr};
  EXPECT_EQ(evenorm_run(&forward.given, nullptr), EVENORM_OK) << last_error();
  CBackward backward;
  for (auto* tensor : {&backward.given.weight, &backward.given.mean, &backward.given.rstd}) {
    *tensor = {nullptr, 77, -3, nullptr, nullptr};
  }
  for (auto* tensor : {&backward.given.dx, &backward.given.dbias}) *tensor = {nullptr, 77, 99, nullptr, nullptr};
  EXPECT_EQ(evenorm_run_backward(&backward.given, nullptr, 0, nullptr), EVENORM_OK) << last_error();
}

TEST(CApi_Arguments, RejectsWrongRanksAndNullShapes) {
  for (const std::int32_t rank : {-1, 65, INT32_MAX, INT32_MIN}) {
    const std::string wrong = ".rank is " + std::to_string(rank) + ", but it should be 0 to 64";
    expect_forward_refused({{[=](auto& call) { call.given.x.rank = rank; }, "x" + wrong}});
    expect_backward_refused({{[=](auto& call) { call.given.dy.rank = rank; }, "dy" + wrong}});
  }
  expect_forward_refused({
      {[](auto& call) { call.given.y.shape = nullptr; }, "y.shape is null, but y.rank is 3"},
      {[](auto& call) { call.given.bias.shape = nullptr; }, "bias.shape is null, but bias.rank is 2"},
      {with(&CForward::given, &evenorm_forward::normalized_shape, nullptr),
       "normalized_shape is null, but normalized_shape_count is 2"},
      {with(&CForward::given, &evenorm_forward::normalized_shape_count, SIZE_MAX),
       "normalized_shape_count is 18446744073709551615, but it should be 0 to 64"},
      {with(&CForward::given, &evenorm_forward::axes_count, 65), "axes_count is 65, but it should be 0 to 64"},
      {[](auto& call) {
         call.given.axes = nullptr;
         call.given.axes_count = 2;
       },
       "axes is null, but axes_count is 2"},
  });
  expect_backward_refused({
      {[](auto& call) { call.given.dx.shape = nullptr; }, "dx.shape is null, but dx.rank is 3"},
      {with(&CBackward::given, &evenorm_backward::normalized_shape, nullptr),
       "normalized_shape is null, but normalized_shape_count is 2"},
      {with(&CBackward::given, &evenorm_backward::axes_count, 65), "axes_count is 65, but it should be 0 to 64"},
  });
}

TEST(CApi_Arguments, RejectsNullStructures) {
  CForward forward;
  CBackward backward;
  evenorm_plan* plan = nullptr;
  std::size_t bytes = 7;
  expect_refusal(evenorm_run(nullptr, nullptr), "forward is null");
  expect_refusal(evenorm_plan_create(nullptr, &plan), "forward is null");
  expect_refusal(evenorm_forward_init(nullptr, sizeof(evenorm_forward)), "forward is null");
  expect_refusal(evenorm_plan_create(&forward.given, nullptr), "out is null");
  expect_refusal(evenorm_plan_run(nullptr, nullptr), "plan is null");
  ASSERT_EQ(evenorm_plan_create(&forward.given, &plan), EVENORM_OK);
  expect_refusal(evenorm_plan_run_with(plan, nullptr, nullptr), "buffers is null");
  evenorm_plan_destroy(plan);
  expect_refusal(evenorm_pool_executor(1, nullptr), "out is null");
  expect_refusal(evenorm_target(nullptr), "out is null");
  expect_refusal(evenorm_run_backward(nullptr, nullptr, 0, nullptr), "backward is null");
  expect_refusal(evenorm_backward_scratch_bytes(nullptr, &bytes), "backward is null");
  expect_refusal(evenorm_backward_init(nullptr, sizeof(evenorm_backward)), "backward is null");
  expect_refusal(evenorm_backward_scratch_bytes(&backward.given, nullptr), "out is null");
  expect_refusal(evenorm_backward_plan_create(&backward.given, nullptr), "out is null");
  expect_refusal(evenorm_backward_plan_run(nullptr, nullptr, 0, nullptr), "plan is null");
  bytes = 7;
  expect_refusal(evenorm_backward_plan_scratch_bytes(nullptr, &bytes), "plan is null");
  EXPECT_EQ(bytes, 0u);
}

TEST(CApi_Arguments, RejectsScratchThatDoesNotFit) {
  CBackward call;
  const std::vector<float> before = call.memory;
  const std::size_t bytes = scratch_bytes(call.complete());
  std::size_t found = 0;
  ASSERT_EQ(evenorm_backward_scratch_bytes(&call.given, &found), EVENORM_OK);
  EXPECT_EQ(found, bytes);
  expect_refusal(evenorm_run_backward(&call.given, call.scratch.data(), bytes - 1, nullptr), "scratch has ");
  expect_refusal(evenorm_run_backward(&call.given, nullptr, bytes, nullptr), "scratch is null, but scratch_size is ");
  evenorm_backward_plan* plan = nullptr;
  ASSERT_EQ(evenorm_backward_plan_create(&call.given, &plan), EVENORM_OK);
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 64}) {
    float* const place = call.at(CBackward::kX);
    expect_refusal(evenorm_run_backward(&call.given, place, size, nullptr),
                   "scratch would end beyond the address space");
    expect_refusal(evenorm_backward_plan_run(plan, place, size, nullptr), "scratch would end beyond the address space");
  }
  evenorm_backward_plan_destroy(plan);
  EXPECT_EQ(call.memory, before);
}

TEST(CApi_Arguments, ChecksThePlainForms) {
  constexpr std::size_t kMany = std::size_t{1} << 61;
  float x[4] = {1, 2, 3, 4}, y[4] = {}, dweight[2] = {0, 7};
  expect_refusal(evenorm_layer_norm_f32(nullptr, y, 2, 2, nullptr, nullptr, 1e-5), "x is null");
  expect_refusal(evenorm_rms_norm_f32(x, nullptr, 2, 2, nullptr, 1e-5), "y is null");
  expect_refusal(evenorm_rms_norm_f32(x, y, 2, 0, nullptr, 1e-5), "cols is 0, but it should be at least 1");
  expect_refusal(evenorm_layer_norm_f32(x, y, kMany, 4, nullptr, nullptr, 0),
                 "rows is 2305843009213693952 and cols is 4, which is more than memory can hold");
  expect_refusal(evenorm_layer_norm_f32(x, y, SIZE_MAX, SIZE_MAX, nullptr, nullptr, 0), "rows is ");
  expect_refusal(evenorm_layer_norm_f32(x, x + 1, 1, 3, nullptr, nullptr, 0), "y may overlap x");
  EXPECT_EQ(evenorm_layer_norm_f32(nullptr, nullptr, 0, 3, nullptr, nullptr, 0), EVENORM_OK);
  expect_refusal(evenorm_layer_norm_backward_f32(nullptr, x, y, 2, 2, nullptr, nullptr, nullptr, 0), "dy is null");
  expect_refusal(evenorm_rms_norm_backward_f32(x, nullptr, y, 2, 2, nullptr, nullptr, 0), "x is null");
  expect_refusal(evenorm_rms_norm_backward_f32(x, x, nullptr, 2, 2, nullptr, nullptr, 0),
                 "dx, dweight and dbias are null, but at least one should be given");
  expect_refusal(evenorm_rms_norm_backward_f32(x, x, y, kMany, 4, nullptr, nullptr, 0), "rows is ");
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(evenorm_rms_norm_backward_f32(nullptr, nullptr, nullptr, 0, 2, nullptr, dweight, 0), EVENORM_OK);
  EXPECT_EQ(dweight[1], 0);  // the sum over no rows
}

// --- structures of other sizes -------------------------------------------------------------------------------------

template <class Call, class Structure>
void expect_one_size_alone(Structure Call::*structure, std::string (Call::*error)(), const std::string& name,
                           evenorm_status (*init)(Structure*, std::size_t)) {
  constexpr std::size_t kSize = sizeof(Structure);
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{8}, kSize - 8, kSize - 1, kSize + 8, SIZE_MAX}) {
    const std::string text =
        name + ".struct_size is " + std::to_string(wrong) + ", but it should be " + std::to_string(kSize);
    expect_refused(&Call::make, error, {{with(structure, &Structure::struct_size, wrong), text}});
    Structure untouched{};
    expect_refusal(init(&untouched, wrong), text);
    EXPECT_EQ(untouched.struct_size, 0u);
  }
}

TEST(CApi_StructSize, RejectsOtherSizes) {
  expect_one_size_alone(&CForward::given, &CForward::error, "forward", evenorm_forward_init);
  expect_one_size_alone(&CBackward::given, &CBackward::error_without_buffers, "backward", evenorm_backward_init);
  CForward forward;
  CBackward backward;
  evenorm_executor executor{};
  expect_refusal(evenorm_run(&forward.given, &executor), "executor.struct_size is 0");
  expect_refusal(evenorm_run_backward(&backward.given, nullptr, 0, &executor), "executor.struct_size is 0");
  expect_refusal(evenorm_pool_executor(2, &executor), "out.struct_size is 0");
  EXPECT_EQ(executor.parallel_for, nullptr);
  evenorm_plan* plan = nullptr;
  ASSERT_EQ(evenorm_plan_create(&forward.given, &plan), EVENORM_OK);
  expect_refusal(evenorm_plan_run(plan, &executor), "executor.struct_size is 0");
  const evenorm_buffers buffers{};
  expect_refusal(evenorm_plan_run_with(plan, &buffers, nullptr), "buffers.struct_size is 0");
  evenorm_plan_destroy(plan);
}

TEST(CApi_StructSize, InitSetsDefaults) {
  evenorm_forward forward, expected{};
  std::memset(&forward, 0xA5, sizeof forward);
  ASSERT_EQ(evenorm_forward_init(&forward, sizeof forward), EVENORM_OK);
  expected.struct_size = sizeof expected;
  expected.eps = 1e-5;
  expected.residual_scale = 1;
  EXPECT_EQ(std::memcmp(&forward, &expected, sizeof forward), 0);
  evenorm_backward backward, expected_backward{};
  std::memset(&backward, 0xA5, sizeof backward);
  ASSERT_EQ(evenorm_backward_init(&backward, sizeof backward), EVENORM_OK);
  expected_backward.struct_size = sizeof backward;
  expected_backward.eps = 1e-5;
  EXPECT_EQ(std::memcmp(&backward, &expected_backward, sizeof backward), 0);
}

}  // namespace
}  // namespace evenorm::testing
