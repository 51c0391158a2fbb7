// The C API: the bits of the C++ API, plans, executors, the calling thread's last error, memory that runs out.
// What a C compiler says: c_api_c11.c.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "c_api_c11.h"
#include "contracts/digests.hpp"
#include "contracts/through_c.hpp"
#include "support/c_call.hpp"
#include "support/memory.hpp"
#include "support/names.hpp"

namespace evenorm {
namespace {

using contracts::Operation;
using contracts::Outcome;
using testing::Call;
using ::testing::HasSubstr;
using testing::last_error;

// --- bits ------------------------------------------------------------------------------------------------------------

class CApi_Types : public ::testing::TestWithParam<std::tuple<Kind, DType>> {};

TEST_P(CApi_Types, SameBitsAsCpp) {
  const auto [kind, dtype] = GetParam();
  for (const bool parameters : {false, true}) {
    Operation op = contracts::same_type(kind, dtype, 129, parameters);
    for (const bool zero_centered : {false, true}) {
      if (zero_centered && !parameters) continue;
      op.zero_centered = zero_centered;
      op.eps = 1e-3;
      const contracts::CaseData data = contracts::make_case_data(op);
      contracts::Layout layout;
      layout.x_gap = 3;
      layout.y_gap = 1;
      const contracts::Runner in_cpp = [](const Forward& forward, const Executor& e) { run(forward, e); };
      const Outcome expected = contracts::run_operation(in_cpp, op, data.x, data.weight, data.bias, layout);
      const Outcome actual =
          contracts::run_operation(contracts::through_c(), op, data.x, data.weight, data.bias, layout);
      EXPECT_EQ(contracts::row_digests(op, actual), contracts::row_digests(op, expected)) << op.name();
      EXPECT_TRUE(actual.kept_inside);
    }
  }
}

// Over the first and the last axis of x, which lies in memory with its axes the other way round.
TEST(CApi_Axes, SameBitsAsCpp) {
  const std::int64_t shape[] = {5, 3, 7}, strides[] = {1, 5, 15}, inner[] = {5, 7}, outer[] = {3}, axes[] = {-1, 0};
  std::vector<float> x(105), weight(35), expected(105), actual(105);
  std::vector<double> rstd(3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 37) - 11;
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 9) / 4;
  Forward forward;
  forward.x = {x.data(), DType::f32, shape, strides};
  forward.y = {expected.data(), DType::f32, shape};
  forward.axes = axes;
  forward.weight = {weight.data(), DType::f32, inner};
  forward.rstd = {rstd.data(), DType::f64, outer};
  run(forward);
  const std::vector<double> expected_rstd = std::exchange(rstd, {0, 0, 0});
  forward.rstd.data = rstd.data();
  forward.y.data = actual.data();
  contracts::through_c()(forward, {});
  EXPECT_EQ(actual, expected);
  EXPECT_EQ(rstd, expected_rstd);
  EXPECT_NE(rstd[0], 0);
}

// What the plain form of a type makes of raw storage.
evenorm_status plain_form(Kind kind, DType dtype, const void* x, void* y, std::size_t rows, std::size_t cols,
                          const void* weight, const void* bias) {
  const auto call = [&](auto layer, auto rms, auto* storage) {
    using Storage = std::remove_pointer_t<decltype(storage)>;
    const auto *from = static_cast<const Storage*>(x), *gamma = static_cast<const Storage*>(weight);
    auto* to = static_cast<Storage*>(y);
    return kind == Kind::layer ? layer(from, to, rows, cols, gamma, static_cast<const Storage*>(bias), 1e-5)
                               : rms(from, to, rows, cols, gamma, 1e-5);
  };
  switch (dtype) {
    case DType::f64:
      return call(evenorm_layer_norm_f64, evenorm_rms_norm_f64, static_cast<double*>(nullptr));
    case DType::f32:
      return call(evenorm_layer_norm_f32, evenorm_rms_norm_f32, static_cast<float*>(nullptr));
    case DType::bf16:
      return call(evenorm_layer_norm_bf16, evenorm_rms_norm_bf16, static_cast<std::uint16_t*>(nullptr));
    default:
      return call(evenorm_layer_norm_f16, evenorm_rms_norm_f16, static_cast<std::uint16_t*>(nullptr));
  }
}

TEST_P(CApi_Types, PlainFormGivesTheSameBits) {
  const auto [kind, dtype] = GetParam();
  for (const bool parameters : {false, true}) {
    Operation op = contracts::same_type(kind, dtype, 100, parameters);
    if (kind == Kind::rms) op.bias.reset();
    const contracts::CaseData data = contracts::make_case_data(op);
    const Outcome expected = contracts::run_operation(contracts::through_c(), op, data.x, data.weight, data.bias);
    contracts::Array y(dtype, data.x.size());
    const void* weight = op.weight ? data.weight.data() : nullptr;
    const void* bias = op.bias ? data.bias.data() : nullptr;
    ASSERT_EQ(plain_form(kind, dtype, data.x.data(), y.data(), data.rows, op.cols, weight, bias), EVENORM_OK);
    EXPECT_EQ(std::memcmp(y.data(), expected.y.data(), y.bytes().size()), 0) << op.name();
    contracts::Array in_place = data.x;
    ASSERT_EQ(plain_form(kind, dtype, in_place.data(), in_place.data(), data.rows, op.cols, weight, bias), EVENORM_OK);
    EXPECT_EQ(std::memcmp(in_place.data(), expected.y.data(), y.bytes().size()), 0) << op.name();
  }
}

std::string test_name(const ::testing::TestParamInfo<std::tuple<Kind, DType>>& info) {
  return testing::word(std::get<0>(info.param)) + "_" + testing::word(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, CApi_Types,
                         ::testing::Combine(::testing::ValuesIn(contracts::kBothKinds),
                                            ::testing::ValuesIn(contracts::kAllTypes)),
                         test_name);

// --- plans, executors, threads ---------------------------------------------------------------------------------------

TEST(CApi_Plan, RunsAgainAndElsewhere) {
  Call call;
  ASSERT_EQ(evenorm_run(&call.forward, nullptr), EVENORM_OK);
  const std::vector<float> expected(call.memory.begin() + 64, call.memory.begin() + 112);
  evenorm_plan* plan = nullptr;
  ASSERT_EQ(evenorm_plan_create(&call.forward, &plan), EVENORM_OK);
  const evenorm_forward f = call.forward;
  std::memset(&call.forward, 0, sizeof call.forward);  // the plan keeps none of it
  for (int i = 0; i < 2; ++i) {
    std::fill_n(call.memory.begin() + 64, 48, 0.0f);
    ASSERT_EQ(evenorm_plan_run(plan, nullptr), EVENORM_OK);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), call.memory.begin() + 64));
  }
  std::vector<float> y(48);
  evenorm_buffers buffers = contracts::c_buffers(f);
  buffers.y = y.data();
  ASSERT_EQ(evenorm_plan_run_with(plan, &buffers, nullptr), EVENORM_OK) << last_error();
  EXPECT_EQ(y, expected);
  buffers.bias = nullptr;
  EXPECT_EQ(evenorm_plan_run_with(plan, &buffers, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "bias is null, but the plan has one");
  evenorm_plan_destroy(plan);
}

struct Counter {
  std::size_t calls = 0, tasks = 0;
};

TEST(CApi_Executor, CallbackIsCalledByRunAndPlan) {
  const std::int64_t shape[2] = {512, 512};
  std::vector<float> x(512 * 512, 1.5f), y(x.size());
  Counter counter;
  const evenorm_executor executor{sizeof executor, 4, &counter,
                                  [](void* context, std::size_t tasks, void (*task)(void*, std::size_t), void* a) {
                                    ++static_cast<Counter*>(context)->calls;
                                    static_cast<Counter*>(context)->tasks += tasks;
                                    for (std::size_t i = 0; i < tasks; ++i) task(a, i);
                                  }};
  evenorm_forward forward = evenorm_forward_defaults();
  forward.x = {x.data(), EVENORM_F32, 2, shape, nullptr};
  forward.y = {y.data(), EVENORM_F32, 2, shape, nullptr};
  forward.normalized_shape = shape + 1;
  forward.normalized_shape_count = 1;
  ASSERT_EQ(evenorm_run(&forward, &executor), EVENORM_OK);
  EXPECT_EQ(counter.calls, 1u);
  EXPECT_GT(counter.tasks, 3u);
  EXPECT_EQ(y, std::vector<float>(x.size(), 0.0f));  // constant rows, no bias
  evenorm_plan* plan = nullptr;
  ASSERT_EQ(evenorm_plan_create(&forward, &plan), EVENORM_OK);
  ASSERT_EQ(evenorm_plan_run(plan, &executor), EVENORM_OK);
  const evenorm_buffers buffers = contracts::c_buffers(forward);
  ASSERT_EQ(evenorm_plan_run_with(plan, &buffers, &executor), EVENORM_OK);
  EXPECT_EQ(counter.calls, 3u);
  evenorm_plan_destroy(plan);
}

TEST(CApi_Executor, PoolRunsEachTaskOnce) {
  evenorm_executor pool{};
  pool.struct_size = sizeof pool;
  ASSERT_EQ(evenorm_pool_executor(3, &pool), EVENORM_OK);
  EXPECT_EQ(pool.threads, 3u);
  EXPECT_EQ(pool.struct_size, sizeof pool);
  std::vector<std::atomic<int>> runs(1000);
  const auto count = [](void* argument, std::size_t i) {
    ++(*static_cast<std::vector<std::atomic<int>>*>(argument))[i];
  };
  pool.parallel_for(pool.context, runs.size(), count, &runs);
  for (const auto& n : runs) ASSERT_EQ(n, 1);
  ASSERT_EQ(evenorm_pool_executor(0, &pool), EVENORM_OK);
  EXPECT_EQ(pool.threads, pool_executor(0).threads);
}

TEST(CApi_LastError, IsOfTheThreadAndOutlivesSuccess) {
  Call call;
  std::string before = "?", after = "?";
  EXPECT_EQ(evenorm_run(nullptr, nullptr), EVENORM_INVALID_ARGUMENT);
  std::thread([&] {
    before = last_error();
    evenorm_plan_run(nullptr, nullptr);
    after = last_error();
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_EQ(after, "plan is null");
  EXPECT_EQ(evenorm_run(&call.forward, nullptr), EVENORM_OK);
  EXPECT_EQ(last_error(), "forward is null");
}

TEST(CApi_LastError, LongTextsAreCut) {
  std::vector<std::int64_t> shape(64, std::int64_t{1} << 60);
  Call call;
  call.forward.x.shape = call.forward.y.shape = shape.data();
  call.forward.x.rank = call.forward.y.rank = 64;
  EXPECT_NE(evenorm_run(&call.forward, nullptr), EVENORM_OK);
  EXPECT_EQ(last_error().size(), 1023u);
  EXPECT_THAT(last_error(), HasSubstr("x has shape (1152921504606846976"));
}

TEST(CApi_Memory, ThatRunsOutIsAStatus) {
  Call call;
  evenorm_plan* plan = nullptr;
  evenorm_status created = EVENORM_OK, ran = EVENORM_INTERNAL;
  {
    const testing::OutOfMemory scope;
    created = evenorm_plan_create(&call.forward, &plan);
    ran = evenorm_run(&call.forward, nullptr);  // needs none
  }
  EXPECT_EQ(created, EVENORM_OUT_OF_MEMORY);
  EXPECT_EQ(plan, nullptr);
  EXPECT_EQ(last_error(), "out of memory");
  EXPECT_EQ(ran, EVENORM_OK);
}

TEST(CApi_Library, SaysWhatItIs) {
  EXPECT_EQ(evenorm_version(), version());
  EXPECT_EQ(evenorm_version_number(), static_cast<std::uint32_t>(EVENORM_VERSION_NUMBER));
  EXPECT_EQ(evenorm_numerics_revision(), numerics_revision());
  const auto names = [](const char* const* from) {
    std::vector<std::string> list;
    for (; *from != nullptr; ++from) list.emplace_back(*from);
    return list;
  };
  EXPECT_EQ(names(evenorm_compiled_targets()), compiled_targets());
  EXPECT_EQ(names(evenorm_supported_targets()), supported_targets());
  const char* name = nullptr;
  ASSERT_EQ(evenorm_target(&name), EVENORM_OK);
  EXPECT_EQ(name, target());
  for (const DType dtype : contracts::kAllTypes) {
    EXPECT_EQ(evenorm_dtype_name(static_cast<evenorm_dtype>(dtype)), evenorm::name(dtype));
    EXPECT_EQ(evenorm_dtype_size(static_cast<evenorm_dtype>(dtype)), size_of(dtype));
  }
}

TEST(CApi_Library, UnknownTargetIsAStatus) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // a new process, whose target is not chosen yet
  EXPECT_EXIT(
      {
        setenv("EVENORM_TARGET", "m\nx\033", 1);
        const char* name = "?";
        const bool refused = evenorm_target(&name) == EVENORM_INVALID_ARGUMENT && name == nullptr &&
                             last_error().find("EVENORM_TARGET is 'm?x?', but") == 0;
        std::exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(CApi_C11, Works) {
  for (const auto check : {evenorm_c11_forward, evenorm_c11_plan, evenorm_c11_executor, evenorm_c11_plain_forms,
                           evenorm_c11_gradients, evenorm_c11_errors, evenorm_c11_library}) {
    EXPECT_STREQ(check(), nullptr);
  }
}

}  // namespace
}  // namespace evenorm
