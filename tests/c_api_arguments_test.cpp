// Wrong arguments of the C API: a status and a text, with nothing written; structures of other sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "api/c_struct.hpp"
#include "support/c_call.hpp"

namespace evenorm {
namespace {

using testing::Call;
using ::testing::HasSubstr;
using testing::last_error;

TEST(CApi_Arguments, RightOnesPass) {
  Call call;
  EXPECT_EQ(evenorm_run(&call.forward, nullptr), EVENORM_OK) << last_error();
  EXPECT_NE(call.statistics[2], 0);
}

TEST(CApi_Arguments, TextsAreThoseOfCpp) {
  Call call;
  const std::int64_t five = 5;
  call.forward.weight = {call.memory.data() + 128, EVENORM_F32, 1, &five, nullptr};
  EXPECT_EQ(call.error(), "weight has shape (5), but normalized_shape is (3, 8)");
  call = Call();
  call.forward.eps = std::nan("");
  EXPECT_THAT(call.error(), HasSubstr("eps is nan"));
  call = Call();
  call.forward.kind = EVENORM_RMS;
  EXPECT_EQ(call.error(), "mean is given, but RMS norm has none");
  call = Call();
  call.forward.rstd.dtype = EVENORM_BF16;
  EXPECT_THAT(call.error(), HasSubstr("rstd has dtype bf16"));
}

TEST(CApi_Arguments, ValuesThatAreNoType) {
  for (const evenorm_dtype dtype : {77, 5, 256, 259, -1, -256, INT32_MAX, INT32_MIN}) {
    const std::string wrong = " has dtype " + std::to_string(dtype) + ", which is none of f64, f32, bf16, f16";
    Call call;
    call.forward.x.dtype = dtype;
    EXPECT_EQ(call.error(), "x" + wrong);
    call = Call();
    call.forward.y.dtype = dtype;
    EXPECT_EQ(call.error(), "y" + wrong);
    call = Call();
    call.forward.weight.dtype = dtype;
    EXPECT_EQ(call.error(), "weight" + wrong);
    call = Call();
    call.forward.bias.dtype = dtype;
    EXPECT_EQ(call.error(), "bias" + wrong);
    call = Call();
    call.forward.mean.dtype = dtype;
    EXPECT_EQ(call.error(), "mean" + wrong);
    call = Call();
    call.forward.rstd.dtype = dtype;
    EXPECT_EQ(call.error(), "rstd" + wrong);
    EXPECT_EQ(evenorm_dtype_name(dtype), nullptr);
    EXPECT_EQ(evenorm_dtype_size(dtype), 0u);
  }
  for (const evenorm_kind kind : {2, 256, -1}) {
    Call call;
    call.forward.kind = kind;
    EXPECT_EQ(call.error(), "kind is " + std::to_string(kind) + ", which is none of layer, rms");
  }
}

TEST(CApi_Arguments, AbsentTensorsMayHoldAnything) {
  Call call;
  for (evenorm_const_tensor* tensor : {&call.forward.weight, &call.forward.bias}) {
    *tensor = {nullptr, 77, -3, nullptr, nullptr};
  }
  for (evenorm_tensor* tensor : {&call.forward.mean, &call.forward.rstd}) *tensor = {nullptr, 77, 9, nullptr, nullptr};
  EXPECT_EQ(evenorm_run(&call.forward, nullptr), EVENORM_OK) << last_error();
}

TEST(CApi_Arguments, RanksAndNullShapes) {
  Call call;
  for (const std::int32_t rank : {-1, 65, INT32_MAX, INT32_MIN}) {
    call.forward.x.rank = rank;
    EXPECT_EQ(call.error(), "x.rank is " + std::to_string(rank) + ", but it should be 0 to 64");
  }
  call = Call();
  call.forward.y.shape = nullptr;
  EXPECT_EQ(call.error(), "y.shape is null, but y.rank is 3");
  call = Call();
  call.forward.bias.shape = nullptr;
  EXPECT_EQ(call.error(), "bias.shape is null, but bias.rank is 2");
  call = Call();
  call.forward.normalized_shape = nullptr;
  EXPECT_EQ(call.error(), "normalized_shape is null, but normalized_shape_count is 2");
  call.forward.normalized_shape_count = SIZE_MAX;
  EXPECT_THAT(call.error(), HasSubstr("normalized_shape_count is 18446744073709551615, but it should be 0 to 64"));
}

TEST(CApi_Arguments, Axes) {
  Call call;
  const std::int64_t axes[] = {1, 2};
  call.forward.axes = axes;
  call.forward.axes_count = 2;
  EXPECT_THAT(call.error(), HasSubstr("axes"));  // and normalized_shape, too
  call.forward.normalized_shape_count = 0;
  EXPECT_EQ(evenorm_run(&call.forward, nullptr), EVENORM_OK) << last_error();
  const std::int64_t beyond[] = {1, 3};
  call.forward.axes = beyond;
  EXPECT_THAT(call.error(), HasSubstr("axes"));
  call.forward.axes = nullptr;
  EXPECT_EQ(call.error(), "axes is null, but axes_count is 2");
  call.forward.axes_count = 65;
  EXPECT_EQ(call.error(), "axes_count is 65, but it should be 0 to 64");
}

TEST(CApi_Arguments, NullStructures) {
  evenorm_plan* plan = nullptr;
  EXPECT_EQ(evenorm_run(nullptr, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "forward is null");
  EXPECT_EQ(evenorm_forward_init(nullptr, sizeof(evenorm_forward)), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "forward is null");
  Call call;
  EXPECT_EQ(evenorm_plan_create(&call.forward, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "out is null");
  EXPECT_EQ(evenorm_plan_create(nullptr, &plan), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(evenorm_plan_run(nullptr, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "plan is null");
  ASSERT_EQ(evenorm_plan_create(&call.forward, &plan), EVENORM_OK);
  EXPECT_EQ(evenorm_plan_run_with(plan, nullptr, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "buffers is null");
  evenorm_plan_destroy(plan);
  EXPECT_EQ(evenorm_pool_executor(1, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(evenorm_target(nullptr), EVENORM_INVALID_ARGUMENT);
}

TEST(CApi_Arguments, PlainForms) {
  float x[4] = {1, 2, 3, 4}, y[4] = {};
  EXPECT_EQ(evenorm_layer_norm_f32(nullptr, y, 2, 2, nullptr, nullptr, 1e-5), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "x is null");
  EXPECT_EQ(evenorm_rms_norm_f32(x, nullptr, 2, 2, nullptr, 1e-5), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "y is null");
  EXPECT_EQ(evenorm_rms_norm_f32(x, y, 2, 0, nullptr, 1e-5), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "cols is 0, but it should be at least 1");
  EXPECT_EQ(evenorm_layer_norm_f32(x, y, std::size_t{1} << 61, 4, nullptr, nullptr, 0), EVENORM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("rows is 2305843009213693952 and cols is 4, which is more than memory can hold"));
  EXPECT_EQ(evenorm_layer_norm_f32(x, y, SIZE_MAX, SIZE_MAX, nullptr, nullptr, 0), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(evenorm_layer_norm_f32(x, x + 1, 1, 3, nullptr, nullptr, 0), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "y may overlap x");
  EXPECT_EQ(evenorm_layer_norm_f32(nullptr, nullptr, 0, 3, nullptr, nullptr, 0), EVENORM_OK);
}

// --- structures of other sizes ---------------------------------------------------------------------------------------

TEST(CApi_StructSize, OnlyThoseKnown) {
  Call call;
  constexpr std::size_t kFirst = offsetof(evenorm_forward, residual);
  const std::string size = std::to_string(kFirst) + " or " + std::to_string(sizeof(evenorm_forward));
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{8}, kFirst - 1, kFirst + 8, sizeof(evenorm_forward) - 1,
                                  sizeof(evenorm_forward) + 1, SIZE_MAX}) {
    call.forward.struct_size = wrong;
    EXPECT_EQ(call.error(), "forward.struct_size is " + std::to_string(wrong) + ", but it should be " + size);
    EXPECT_EQ(evenorm_forward_init(&call.forward, wrong), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(call.forward.struct_size, wrong);
  }
  call = Call();
  evenorm_executor executor{};
  EXPECT_EQ(evenorm_run(&call.forward, &executor), EVENORM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("executor.struct_size is 0"));
  EXPECT_EQ(evenorm_pool_executor(2, &executor), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(executor.parallel_for, nullptr);
  evenorm_plan* plan = nullptr;
  ASSERT_EQ(evenorm_plan_create(&call.forward, &plan), EVENORM_OK);
  EXPECT_EQ(evenorm_plan_run(plan, &executor), EVENORM_INVALID_ARGUMENT);
  const evenorm_buffers buffers{};
  EXPECT_EQ(evenorm_plan_run_with(plan, &buffers, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("buffers.struct_size is 0"));
  evenorm_plan_destroy(plan);
}

// A structure that has grown by a field: callers built before it, with it, and after it.
TEST(CApi_StructSize, LaterFieldsHaveTheirDefaults) {
  struct Grown {
    std::size_t struct_size;
    double old_field;
    double new_field;
  };
  constexpr std::size_t kFirst = offsetof(Grown, new_field);
  constexpr std::array kSizes{kFirst, sizeof(Grown)};
  const Grown defaults{0, 1, 2};
  Grown given{kFirst, 10, 20};
  EXPECT_EQ(internal::completed("given", &given, kSizes, defaults).old_field, 10);
  EXPECT_EQ(internal::completed("given", &given, kSizes, defaults).new_field, 2);
  given.struct_size = sizeof given;
  EXPECT_EQ(internal::completed("given", &given, kSizes, defaults).new_field, 20);
  for (const std::size_t wrong : {kFirst - 8, kFirst + 4, sizeof given + 8}) {
    given.struct_size = wrong;
    EXPECT_THROW(internal::completed("given", &given, kSizes, defaults), Error);
  }
}

TEST(CApi_StructSize, InitSetsDefaults) {
  evenorm_forward forward;
  std::memset(&forward, 0xA5, sizeof forward);
  ASSERT_EQ(evenorm_forward_init(&forward, sizeof forward), EVENORM_OK);
  evenorm_forward expected{};
  expected.struct_size = sizeof expected;
  expected.eps = 1e-5;
  expected.residual_scale = 1;
  EXPECT_EQ(std::memcmp(&forward, &expected, sizeof forward), 0);
}

}  // namespace
}  // namespace evenorm
