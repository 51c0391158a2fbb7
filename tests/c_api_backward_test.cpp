// Gradients through the C API: the bits of the C++ API, its refusals, scratch, memory that runs out.
// What a C compiler says: c_api_c11.c.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "contracts/through_c.hpp"
#include "support/backward_call.hpp"
#include "support/c_call.hpp"
#include "support/gradient_rows.hpp"
#include "support/memory.hpp"
#include "support/names.hpp"

namespace evenorm {
namespace {

using contracts::Array;
using contracts::BackwardInputs;
using contracts::BackwardOperation;
using contracts::BackwardOutcome;
using ::testing::HasSubstr;
using testing::last_error;

void run_in_cpp(const Backward& backward, const Executor& executor) { run(backward, executor); }

// --- bits ------------------------------------------------------------------------------------------------------------

class CApi_Gradients : public ::testing::TestWithParam<std::tuple<Kind, DType>> {
 protected:
  Kind kind() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  BackwardInputs inputs(const BackwardOperation& op, std::size_t rows) const {
    return testing::inputs_of(op, {"normal", "mean_1e4"}, {"normal"}, rows);
  }
};

TEST_P(CApi_Gradients, SameBitsAsCpp) {
  for (const bool options : {false, true}) {
    BackwardOperation op = contracts::same_type_backward(kind(), dtype(), 129);
    op.forward.zero_centered = op.accumulate = options;
    op.forward.eps = 1e-3;
    op.dgamma = options ? DType::f64 : dtype();
    BackwardInputs given = inputs(op, 130);
    given.dgamma = contracts::make_bias(*op.dgamma, 129);
    given.dbeta = contracts::make_bias(*op.dbeta, 129);
    if (options) add_statistics(contracts::runnable_targets()[0], op.forward, given);
    const contracts::BackwardLayout layout{.x = {.gap = 3}, .dx = {.gap = 1}};
    const BackwardOutcome expected = run_backward(run_in_cpp, op, given, layout);
    const BackwardOutcome actual = run_backward(contracts::gradients_through_c(), op, given, layout);
    EXPECT_TRUE(actual.has_the_bits_of(expected)) << op.name();
    EXPECT_TRUE(actual.kept_inside) << op.name();
  }
}

// What the plain form of a type makes of raw storage.
evenorm_status plain_form(Kind kind, DType dtype, const BackwardInputs& inputs, std::size_t cols, void* dx,
                          void* dweight, void* dbias, double eps) {
  const auto call = [&](auto layer, auto rms, auto* storage) {
    using Storage = std::remove_pointer_t<decltype(storage)>;
    const auto from = [](const Array& array) {
      return array.empty() ? nullptr : reinterpret_cast<const Storage*>(array.data());
    };
    auto *to = static_cast<Storage*>(dx), *dgamma = static_cast<Storage*>(dweight);
    const Storage *dy = from(inputs.dy), *x = from(inputs.x), *weight = from(inputs.weight);
    const std::size_t rows = inputs.x.size() / cols;
    return kind == Kind::layer ? layer(dy, x, to, rows, cols, weight, dgamma, static_cast<Storage*>(dbias), eps)
                               : rms(dy, x, to, rows, cols, weight, dgamma, eps);
  };
  switch (dtype) {
    case DType::f64:
      return call(evenorm_layer_norm_backward_f64, evenorm_rms_norm_backward_f64, static_cast<double*>(nullptr));
    case DType::f32:
      return call(evenorm_layer_norm_backward_f32, evenorm_rms_norm_backward_f32, static_cast<float*>(nullptr));
    case DType::bf16:
      return call(evenorm_layer_norm_backward_bf16, evenorm_rms_norm_backward_bf16,
                  static_cast<std::uint16_t*>(nullptr));
    default:
      return call(evenorm_layer_norm_backward_f16, evenorm_rms_norm_backward_f16, static_cast<std::uint16_t*>(nullptr));
  }
}

TEST_P(CApi_Gradients, PlainFormGivesTheSameBits) {
  for (const bool parameters : {false, true}) {
    BackwardOperation op = contracts::same_type_backward(kind(), dtype(), 100);
    op.forward.eps = 1e-2;
    if (!parameters) op.forward.weight = op.dgamma = op.dbeta = {};
    if (kind() == Kind::rms) op.dbeta.reset();
    BackwardInputs given = inputs(op, 65);
    const BackwardOutcome expected = run_backward(contracts::gradients_through_c(), op, given);
    BackwardOutcome actual{Array(dtype(), 6500), Array(dtype(), op.dgamma ? 100U : 0U),
                           Array(dtype(), op.dbeta ? 100U : 0U)};
    const auto data = [](Array& array) { return array.empty() ? nullptr : array.data(); };
    const auto run_to = [&](void* dx) {
      return plain_form(kind(), dtype(), given, 100, dx, data(actual.dgamma), data(actual.dbeta), 1e-2);
    };
    const auto is_as_expected = [&](const Array& dx, const char* what) {
      EXPECT_TRUE(std::ranges::equal(dx.bytes(), expected.dx.bytes())) << what << op.name();
      EXPECT_TRUE(std::ranges::equal(actual.dgamma.bytes(), expected.dgamma.bytes())) << what << op.name();
      EXPECT_TRUE(std::ranges::equal(actual.dbeta.bytes(), expected.dbeta.bytes())) << what << op.name();
    };
    ASSERT_EQ(run_to(actual.dx.data()), EVENORM_OK) << last_error();
    is_as_expected(actual.dx, "");
    if (parameters) {
      ASSERT_EQ(run_to(nullptr), EVENORM_OK) << last_error();
      is_as_expected(expected.dx, "without dx, ");
    }
    ASSERT_EQ(run_to(given.dy.data()), EVENORM_OK) << last_error();
    is_as_expected(given.dy, "in place of dy, ");
  }
}

std::string test_name(const ::testing::TestParamInfo<std::tuple<Kind, DType>>& info) {
  return testing::word(std::get<0>(info.param)) + "_" + testing::word(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, CApi_Gradients,
                         ::testing::Combine(::testing::ValuesIn(contracts::kBothKinds),
                                            ::testing::ValuesIn(contracts::kAllTypes)),
                         test_name);

// --- a right call, and what can be wrong with one --------------------------------------------------------------------

// As C says what support/backward_call.hpp describes.
struct CCall : testing::BackwardCall {
  evenorm_backward given = contracts::c_backward(complete());

  // The text of the refusal, with scratch and without; nothing may have been written.
  std::string error() {
    const std::vector<float> before = memory;
    const std::vector<std::byte> scratch_before = scratch;
    EXPECT_EQ(evenorm_run_backward(&given, nullptr, 0, nullptr), EVENORM_INVALID_ARGUMENT);
    const std::string text = last_error();
    EXPECT_EQ(evenorm_run_backward(&given, scratch.data(), scratch.size(), nullptr), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(last_error(), text);
    EXPECT_EQ(memory, before);
    EXPECT_EQ(scratch, scratch_before);
    return text;
  }
  // Where it concerns no buffer, the scratch's size is refused alike.
  std::string error_without_buffers() {
    const std::string text = error();
    std::size_t bytes = 1;
    EXPECT_EQ(evenorm_backward_scratch_bytes(&given, &bytes), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(last_error(), text);
    EXPECT_EQ(bytes, 0u);
    return text;
  }
};

std::string error_after(const std::function<void(evenorm_backward&)>& spoil) {
  CCall call;
  spoil(call.given);
  return call.error_without_buffers();
}

TEST(CApi_GradientArguments, RightOnesPass) {
  CCall call;
  const std::vector<float> before = call.memory;
  EXPECT_EQ(evenorm_run_backward(&call.given, nullptr, 0, nullptr), EVENORM_OK) << last_error();
  EXPECT_NE(call.memory, before);
}

TEST(CApi_GradientArguments, TextsAreThoseOfCpp) {
  const std::int64_t five = 5;
  EXPECT_EQ(error_after([&](evenorm_backward& b) {
              b.dweight.rank = 1;
              b.dweight.shape = &five;
            }),
            "dweight has shape (5), but normalized_shape is (3, 8)");
  EXPECT_THAT(error_after([](evenorm_backward& b) { b.eps = std::nan(""); }), HasSubstr("eps is nan"));
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.kind = EVENORM_RMS; }), "mean is given, but RMS norm has none");
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.mean.data = nullptr; }), "rstd is given, but mean is absent");
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.rstd.dtype = EVENORM_F32; }),
            "rstd has dtype f32, but the backward pass needs f64");
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.dx.data = b.dweight.data = b.dbias.data = nullptr; }),
            "dx, dweight and dbias are null, but at least one should be given");
  EXPECT_EQ(error_after([](evenorm_backward& b) {
              b.weight.data = nullptr;
              b.zero_centered = 1;
            }),
            "weight is absent, but zero_centered needs one");
  CCall call;
  call.given.dbias.data = call.given.dweight.data;
  EXPECT_EQ(call.error(), "dbias may overlap dweight");
  call = CCall();
  call.given.dy.data = nullptr;
  EXPECT_EQ(call.error(), "dy is null");
}

TEST(CApi_GradientArguments, ValuesThatAreNoType) {
  for (const evenorm_dtype dtype : {77, 5, 256, -1}) {
    const std::string wrong = " has dtype " + std::to_string(dtype) + ", which is none of f64, f32, bf16, f16";
    EXPECT_EQ(error_after([&](evenorm_backward& b) { b.x.dtype = dtype; }), "x" + wrong);
    EXPECT_EQ(error_after([&](evenorm_backward& b) { b.dy.dtype = dtype; }), "dy" + wrong);
    EXPECT_EQ(error_after([&](evenorm_backward& b) { b.dx.dtype = dtype; }), "dx" + wrong);
    EXPECT_EQ(error_after([&](evenorm_backward& b) { b.weight.dtype = dtype; }), "weight" + wrong);
    EXPECT_EQ(error_after([&](evenorm_backward& b) { b.mean.dtype = dtype; }), "mean" + wrong);
    EXPECT_EQ(error_after([&](evenorm_backward& b) { b.rstd.dtype = dtype; }), "rstd" + wrong);
    EXPECT_EQ(error_after([&](evenorm_backward& b) { b.dweight.dtype = dtype; }), "dweight" + wrong);
    EXPECT_EQ(error_after([&](evenorm_backward& b) { b.dbias.dtype = dtype; }), "dbias" + wrong);
  }
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.kind = 2; }), "kind is 2, which is none of layer, rms");
}

TEST(CApi_GradientArguments, RanksShapesAndAxes) {
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.dy.rank = -1; }), "dy.rank is -1, but it should be 0 to 64");
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.dx.shape = nullptr; }), "dx.shape is null, but dx.rank is 3");
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.normalized_shape = nullptr; }),
            "normalized_shape is null, but normalized_shape_count is 2");
  EXPECT_EQ(error_after([](evenorm_backward& b) { b.axes_count = 65; }), "axes_count is 65, but it should be 0 to 64");
}

TEST(CApi_GradientArguments, AbsentTensorsMayHoldAnything) {
  CCall call;
  for (evenorm_const_tensor* tensor : {&call.given.weight, &call.given.mean, &call.given.rstd}) {
    *tensor = {nullptr, 77, -3, nullptr, nullptr};
  }
  for (evenorm_tensor* tensor : {&call.given.dx, &call.given.dbias}) *tensor = {nullptr, 77, 99, nullptr, nullptr};
  EXPECT_EQ(evenorm_run_backward(&call.given, nullptr, 0, nullptr), EVENORM_OK) << last_error();
}

TEST(CApi_GradientArguments, NullStructures) {
  CCall call;
  std::size_t bytes = 0;
  for (const evenorm_status status :
       {evenorm_run_backward(nullptr, nullptr, 0, nullptr), evenorm_backward_scratch_bytes(nullptr, &bytes),
        evenorm_backward_init(nullptr, sizeof(evenorm_backward))}) {
    EXPECT_EQ(status, EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(last_error(), "backward is null");
  }
  EXPECT_EQ(evenorm_backward_scratch_bytes(&call.given, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "out is null");
}

TEST(CApi_GradientArguments, ScratchBeyondTheAddressSpace) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  for (const std::size_t size : {kMost, kMost / 2, kMost / 2 + 1, kMost - 64}) {
    CCall call;
    const std::vector<float> before = call.memory;
    EXPECT_EQ(evenorm_run_backward(&call.given, call.at(CCall::kX), size, nullptr), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(last_error(), "scratch would end beyond the address space");
    EXPECT_EQ(call.memory, before);
    evenorm_backward_plan* plan = nullptr;
    ASSERT_EQ(evenorm_backward_plan_create(&call.given, &plan), EVENORM_OK);
    EXPECT_EQ(evenorm_backward_plan_run(plan, call.at(CCall::kX), size, nullptr), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(last_error(), "scratch would end beyond the address space");
    evenorm_backward_plan_destroy(plan);
  }
}

TEST(CApi_GradientArguments, PlainForms) {
  const float x[] = {1, 2, 3, 4};
  float dx[4] = {}, dweight[2] = {};
  EXPECT_EQ(evenorm_layer_norm_backward_f32(nullptr, x, dx, 2, 2, nullptr, nullptr, nullptr, 0),
            EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "dy is null");
  EXPECT_EQ(evenorm_rms_norm_backward_f32(x, nullptr, dx, 2, 2, nullptr, dweight, 0), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "x is null");
  EXPECT_EQ(evenorm_rms_norm_backward_f32(x, x, nullptr, 2, 2, nullptr, nullptr, 0), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "dx, dweight and dbias are null, but at least one should be given");
  EXPECT_EQ(evenorm_rms_norm_backward_f32(x, x, dx, 2, 0, nullptr, dweight, 0), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "cols is 0, but it should be at least 1");
  EXPECT_EQ(evenorm_rms_norm_backward_f32(x, x, dx, std::size_t{1} << 61, 4, nullptr, dweight, 0),
            EVENORM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("which is more than memory can hold"));
  EXPECT_EQ(dx[0], 0);
  dweight[1] = 7;
  EXPECT_EQ(evenorm_rms_norm_backward_f32(nullptr, nullptr, nullptr, 0, 2, nullptr, dweight, 0), EVENORM_OK);
  EXPECT_EQ(dweight[1], 0);  // the sum of no rows
}

// --- plans -----------------------------------------------------------------------------------------------------------

TEST(CApi_BackwardPlan, RunsAgainAndElsewhere) {
  testing::BackwardCall call, elsewhere, expected;
  run(expected.complete());
  const evenorm_backward given = contracts::c_backward(call.complete());
  evenorm_backward_plan* plan = nullptr;
  ASSERT_EQ(evenorm_backward_plan_create(&given, &plan), EVENORM_OK) << last_error();
  std::size_t bytes = 0;
  ASSERT_EQ(evenorm_backward_plan_scratch_bytes(plan, &bytes), EVENORM_OK);
  EXPECT_EQ(bytes, scratch_bytes(call.complete()));
  void* scratch = call.scratch.data();
  EXPECT_EQ(evenorm_backward_plan_run(plan, scratch, bytes, nullptr), EVENORM_OK) << last_error();
  EXPECT_EQ(call.memory, expected.memory);
  evenorm_executor executor{.struct_size = sizeof executor, .threads = {}, .context = {}, .parallel_for = {}};
  ASSERT_EQ(evenorm_pool_executor(2, &executor), EVENORM_OK);
  EXPECT_EQ(evenorm_backward_plan_run(plan, scratch, bytes, &executor), EVENORM_OK) << last_error();

  const Backward& b = elsewhere.complete();
  evenorm_backward_buffers buffers{sizeof buffers, b.x.data,  b.dy.data,      b.weight.data, b.mean.data,
                                   b.rstd.data,    b.dx.data, b.dweight.data, b.dbias.data,  nullptr};
  EXPECT_EQ(evenorm_backward_plan_run_with(plan, &buffers, scratch, bytes, nullptr), EVENORM_OK) << last_error();
  EXPECT_EQ(elsewhere.memory, expected.memory);
  EXPECT_EQ(call.memory, expected.memory);

  EXPECT_EQ(evenorm_backward_plan_run(plan, scratch, bytes - 1, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("scratch has "));
  EXPECT_EQ(evenorm_backward_plan_run(plan, nullptr, bytes, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "scratch is null");
  buffers.dbias = nullptr;
  EXPECT_EQ(evenorm_backward_plan_run_with(plan, &buffers, scratch, bytes, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "dbias is null, but the plan has one");
  buffers.struct_size = 3;
  EXPECT_EQ(evenorm_backward_plan_run_with(plan, &buffers, scratch, bytes, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("buffers.struct_size is 3"));
  evenorm_backward_plan_destroy(plan);
  evenorm_backward_plan_destroy(nullptr);
}

TEST(CApi_BackwardPlan, NullsAndWrongPassesAreRefused) {
  testing::BackwardCall call;
  evenorm_backward given = contracts::c_backward(call.complete());
  EXPECT_EQ(evenorm_backward_plan_create(&given, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "out is null");
  given.eps = -1;
  auto* plan = reinterpret_cast<evenorm_backward_plan*>(&call);
  EXPECT_EQ(evenorm_backward_plan_create(&given, &plan), EVENORM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("eps is -1"));
  EXPECT_EQ(plan, nullptr);
  EXPECT_EQ(evenorm_backward_plan_run(nullptr, nullptr, 0, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "plan is null");
  std::size_t bytes = 7;
  EXPECT_EQ(evenorm_backward_plan_scratch_bytes(nullptr, &bytes), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, 0u);
}

TEST(CApi_StructSize, OfBackward) {
  const std::string size =
      std::to_string(offsetof(evenorm_backward, dsum)) + " or " + std::to_string(sizeof(evenorm_backward));
  for (const std::size_t wrong :
       {std::size_t{0}, sizeof(evenorm_backward) - 1, sizeof(evenorm_backward) + 1, SIZE_MAX}) {
    CCall call;
    call.given.struct_size = wrong;
    const std::string text = "backward.struct_size is " + std::to_string(wrong) + ", but it should be " + size;
    EXPECT_EQ(call.error_without_buffers(), text);
    EXPECT_EQ(evenorm_backward_init(&call.given, wrong), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(call.given.struct_size, wrong);
  }
  CCall call;
  const evenorm_executor executor{};
  EXPECT_EQ(evenorm_run_backward(&call.given, nullptr, 0, &executor), EVENORM_INVALID_ARGUMENT);
  EXPECT_THAT(last_error(), HasSubstr("executor.struct_size is 0"));
}

TEST(CApi_StructSize, InitSetsDefaultsOfBackward) {
  evenorm_backward backward;
  std::memset(&backward, 0xA5, sizeof backward);
  ASSERT_EQ(evenorm_backward_init(&backward, sizeof backward), EVENORM_OK);
  EXPECT_EQ(backward.struct_size, sizeof backward);
  EXPECT_EQ(backward.eps, 1e-5);
  EXPECT_EQ(backward.kind, EVENORM_LAYER);
  EXPECT_EQ(backward.zero_centered, 0);
  EXPECT_EQ(backward.accumulate, 0);
  const auto* rest = reinterpret_cast<const char*>(&backward.x);
  const auto* end = reinterpret_cast<const char*>(&backward) + sizeof backward;
  EXPECT_TRUE(std::all_of(rest, end, [](char c) { return c == 0; }));
}

// --- scratch, executors, memory --------------------------------------------------------------------------------------

TEST(CApi_GradientScratch, IsAsLargeAsCppSays) {
  CCall call;
  std::size_t bytes = 0;
  ASSERT_EQ(evenorm_backward_scratch_bytes(&call.given, &bytes), EVENORM_OK);
  EXPECT_EQ(bytes, scratch_bytes(call.backward));
  EXPECT_GT(bytes, 0u);
  const std::vector<float> before = call.memory;
  const std::string needs = " bytes, but this problem needs " + std::to_string(bytes);
  for (const std::size_t less : {std::size_t{0}, bytes - 1}) {
    EXPECT_EQ(evenorm_run_backward(&call.given, call.scratch.data(), less, nullptr), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(last_error(), "scratch has " + std::to_string(less) + needs);
  }
  EXPECT_EQ(evenorm_run_backward(&call.given, nullptr, bytes, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "scratch is null, but scratch_size is " + std::to_string(bytes));
  EXPECT_EQ(call.memory, before);
  EXPECT_EQ(evenorm_run_backward(&call.given, call.scratch.data(), bytes, nullptr), EVENORM_OK) << last_error();
  const std::vector<std::byte> beside(call.scratch.begin() + static_cast<std::ptrdiff_t>(bytes), call.scratch.end());
  EXPECT_EQ(beside, std::vector<std::byte>(beside.size(), std::byte{85}));
}

TEST(CApi_GradientScratch, LiesApartFromTensors) {
  CCall call;
  const std::vector<float> before = call.memory;
  EXPECT_EQ(evenorm_run_backward(&call.given, call.at(0), call.memory.size() * sizeof(float), nullptr),
            EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "scratch may overlap x");
  EXPECT_EQ(call.memory, before);
}

TEST(CApi_GradientScratch, IsNoneForDxAlone) {
  CCall call;
  call.given.dweight.data = call.given.dbias.data = nullptr;
  std::size_t bytes = 1;
  ASSERT_EQ(evenorm_backward_scratch_bytes(&call.given, &bytes), EVENORM_OK);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(evenorm_run_backward(&call.given, call.scratch.data(), 0, nullptr), EVENORM_OK) << last_error();
}

TEST(CApi_GradientScratch, WithoutMemoryForItNothingIsWritten) {
  CCall call;
  const std::vector<float> before = call.memory;
  evenorm_status ran = EVENORM_OK, with_scratch = EVENORM_INTERNAL;
  {
    const testing::OutOfMemory scope;
    ran = evenorm_run_backward(&call.given, nullptr, 0, nullptr);
  }
  EXPECT_EQ(ran, EVENORM_OUT_OF_MEMORY);
  EXPECT_EQ(last_error(), "out of memory");
  EXPECT_EQ(call.memory, before);
  {
    const testing::OutOfMemory scope;
    with_scratch = evenorm_run_backward(&call.given, call.scratch.data(), call.scratch.size(), nullptr);  // needs none
  }
  EXPECT_EQ(with_scratch, EVENORM_OK);
}

TEST(CApi_GradientExecutor, IsCalledWithScratchAndWithout) {
  const BackwardOperation op = contracts::same_type_backward(Kind::layer, DType::f32, 256);
  const BackwardInputs inputs = testing::inputs_of(op, {"normal"}, {"normal"}, 512);
  const BackwardOutcome expected = run_backward(run_in_cpp, op, inputs);
  for (const bool with_scratch : {false, true}) {
    std::size_t calls = 0;
    const evenorm_executor executor{sizeof executor, 3, &calls,
                                    [](void* context, std::size_t tasks, void (*task)(void*, std::size_t), void* a) {
                                      ++*static_cast<std::size_t*>(context);
                                      for (std::size_t i = tasks; i-- > 0;) task(a, i);
                                    }};
    const contracts::BackwardRunner runner = [&](const Backward& backward, const Executor&) {
      const evenorm_backward described = contracts::c_backward(backward);
      std::vector<std::byte> scratch(with_scratch ? scratch_bytes(backward) : 0);
      void* place = with_scratch ? scratch.data() : nullptr;
      contracts::check_status(evenorm_run_backward(&described, place, scratch.size(), &executor));
    };
    EXPECT_TRUE(run_backward(runner, op, inputs).has_the_bits_of(expected));
    EXPECT_EQ(calls, 1u);
  }
}

}  // namespace
}  // namespace evenorm
