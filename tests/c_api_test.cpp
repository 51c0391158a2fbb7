// The C API: the bits of the C++ API, plans, executors, and the calling thread's last error. c_api_arguments_test.cpp
// has wrong arguments, stress_memory_test.cpp has memory that runs out, and c_api_c11.c is compiled as C.
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "c_api_c11.h"
#include "contracts/backward_digests.hpp"
#include "support/c_call.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::BackwardRunner;
using contracts::Runner;
using ::testing::StartsWith;

// --- bits: equal memory before a call is equal after it, in C and C++ ------------------------------------------------

using ForwardChange = std::function<void(ForwardCall&)>;
using BackwardChange = std::function<void(BackwardCall&)>;

// Runs a plan that was made without buffers.
void run_planned(const Forward& forward, const Executor& executor) {
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
}

evenorm_backward_buffers c_buffers(const Backward& b) {
  return {sizeof(evenorm_backward_buffers),
          b.x.data,
          b.dy.data,
          b.weight.data,
          b.mean.data,
          b.rstd.data,
          b.dx.data,
          b.dweight.data,
          b.dbias.data,
          b.dsum.data};
}

void run_backward_planned(const Backward& backward, const Executor& executor) {
  evenorm_backward described = contracts::c_backward(backward);
  const evenorm_executor shared = contracts::c_executor(executor);
  described.x.data = described.dy.data = nullptr;
  evenorm_backward_plan* plan = nullptr;
  contracts::check_status(evenorm_backward_plan_create(&described, &plan));
  std::vector<std::byte> scratch(scratch_bytes(backward));
  const evenorm_backward_buffers buffers = c_buffers(backward);
  const evenorm_status status = evenorm_backward_plan_run_with(plan, &buffers, scratch.data(), scratch.size(), &shared);
  evenorm_backward_plan_destroy(plan);
  contracts::check_status(status);
}

// Bytes of i8 may be NaNs as f32.
bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

void expect_same_forward(ForwardCall (*make)(), const ForwardChange& change) {
  ForwardCall expected = make();
  change(expected);
  run(expected.complete());
  for (const Runner& runner : {contracts::through_c(), Runner(run_planned)}) {
    ForwardCall call = make();
    change(call);
    runner(call.complete(), contracts::reversed_executor(3));
    EXPECT_TRUE(same_bytes(call.memory, expected.memory));
  }
}

void expect_same_gradients(const BackwardChange& change) {
  BackwardCall expected;
  change(expected);
  run(expected.complete());
  for (const BackwardRunner& runner : {contracts::gradients_through_c(), BackwardRunner(run_backward_planned)}) {
    BackwardCall call;
    change(call);
    runner(call.complete(), contracts::reversed_executor(3));
    EXPECT_TRUE(same_bytes(call.memory, expected.memory));
  }
}

TEST(CApi_Bits, EqualCppForEveryFieldOfForward) {
  for (const auto make : {&ForwardCall::plain, &ForwardCall::fused, &ForwardCall::quantising}) {
    expect_same_forward(make, [](ForwardCall&) {});
    expect_same_forward(make, [](ForwardCall& c) { c.forward.eps = 64; });
    expect_same_forward(make, [](ForwardCall& c) { c.forward.mean.data = nullptr; });
    expect_same_forward(make, [](ForwardCall& c) {
      c.forward.kind = Kind::rms;
      c.forward.mean.data = nullptr;
    });
    expect_same_forward(make, [](ForwardCall& c) { c.y_strides = c.x_strides = {30, 8, 1}; });
  }
  expect_same_forward(&ForwardCall::fused, [](ForwardCall& c) { c.forward.residual_scale = 0.75; });
  expect_same_forward(&ForwardCall::fused, [](ForwardCall& c) { c.forward.zero_centered = true; });
  expect_same_forward(&ForwardCall::quantising, [](ForwardCall& c) {
    c.forward.scale = {};
    c.forward.given_scale = 0.03;
  });
  expect_same_forward(&ForwardCall::plain, [](ForwardCall& c) {
    c.normalized = {};
    c.axes = {-1, 0};
    c.weight_shape = c.bias_shape = {2, 8};
    c.statistics_shape = {3};
  });
}

TEST(CApi_Bits, EqualCppForEveryFieldOfBackward) {
  static const std::int64_t kShape[] = {2, 3, 8};
  expect_same_gradients([](BackwardCall&) {});
  expect_same_gradients([](BackwardCall& c) { c.backward.mean.data = c.backward.rstd.data = nullptr; });
  expect_same_gradients([](BackwardCall& c) {
    c.backward.mean.data = c.backward.rstd.data = nullptr;
    c.backward.eps = 64;
  });
  expect_same_gradients([](BackwardCall& c) {
    c.backward.kind = Kind::rms;
    c.backward.mean.data = nullptr;
  });
  expect_same_gradients([](BackwardCall& c) { c.backward.zero_centered = true; });
  expect_same_gradients([](BackwardCall& c) { c.backward.accumulate = true; });
  expect_same_gradients([](BackwardCall& c) { c.backward.dsum = {c.at(900), DType::f32, kShape, {}}; });
  expect_same_gradients([](BackwardCall& c) { c.dy_strides = {0, 8, 1}; });
  expect_same_gradients([](BackwardCall& c) { c.backward.dx.data = nullptr; });
  expect_same_gradients([](BackwardCall& c) {
    c.normalized = {};
    c.axes = {-2, 2};
  });
}

// The four plain forms of a type.
template <class Storage>
struct PlainForms {
  DType dtype;
  evenorm_status (*layer)(const Storage*, Storage*, std::size_t, std::size_t, const Storage*, const Storage*, double);
  evenorm_status (*rms)(const Storage*, Storage*, std::size_t, std::size_t, const Storage*, double);
  evenorm_status (*layer_backward)(const Storage*, const Storage*, Storage*, std::size_t, std::size_t, const Storage*,
                                   Storage*, Storage*, double);
  evenorm_status (*rms_backward)(const Storage*, const Storage*, Storage*, std::size_t, std::size_t, const Storage*,
                                 Storage*, double);
};

template <class Storage>
void expect_same_plain_forms(const PlainForms<Storage>& forms, Kind kind, bool parameters) {
  contracts::BackwardOperation op = contracts::same_type_backward(kind, forms.dtype, 100);
  if (!parameters) op.forward.weight = op.dgamma = op.dbeta = {};
  if (parameters && kind == Kind::layer) op.forward.bias = forms.dtype;
  if (kind == Kind::rms) op.dbeta.reset();
  const contracts::BackwardInputs in = contracts::make_gradient_inputs({op, 65});
  const contracts::Array bias = contracts::make_bias(forms.dtype, op.forward.bias ? 100 : 0);
  const auto storage = [](const contracts::Array& array) {
    return array.empty() ? nullptr : reinterpret_cast<Storage*>(const_cast<std::byte*>(array.data()));
  };
  const Storage *x = storage(in.x), *dy = storage(in.dy), *weight = storage(in.weight);
  const auto rows = in.x.size() / 100;
  const auto expect_bits = [&](const contracts::Array& found, const contracts::Array& expected) {
    EXPECT_TRUE(std::ranges::equal(found.bytes(), expected.bytes())) << op.name();
  };

  const auto y = run_operation(contracts::through_c(), op.forward, in.x, in.weight, bias).y;
  contracts::Array in_place = in.x;
  ASSERT_EQ(kind == Kind::layer
                ? forms.layer(storage(in_place), storage(in_place), rows, 100, weight, storage(bias), 1e-5)
                : forms.rms(storage(in_place), storage(in_place), rows, 100, weight, 1e-5),
            EVENORM_OK);
  expect_bits(in_place, y);

  const auto gradients = run_backward(contracts::gradients_through_c(), op, in);
  contracts::Array dx(forms.dtype, 6500), dgamma(forms.dtype, op.dgamma ? 100 : 0),
      dbeta(forms.dtype, op.dbeta ? 100 : 0);
  ASSERT_EQ(kind == Kind::layer
                ? forms.layer_backward(dy, x, storage(dx), rows, 100, weight, storage(dgamma), storage(dbeta), 1e-5)
                : forms.rms_backward(dy, x, storage(dx), rows, 100, weight, storage(dgamma), 1e-5),
            EVENORM_OK);
  expect_bits(dx, gradients.dx);
  expect_bits(dgamma, gradients.dgamma);
  expect_bits(dbeta, gradients.dbeta);
}

TEST(CApi_Bits, EqualCppForThePlainForms) {
  const PlainForms<double> f64{DType::f64, evenorm_layer_norm_f64, evenorm_rms_norm_f64,
                               evenorm_layer_norm_backward_f64, evenorm_rms_norm_backward_f64};
  const PlainForms<float> f32{DType::f32, evenorm_layer_norm_f32, evenorm_rms_norm_f32, evenorm_layer_norm_backward_f32,
                              evenorm_rms_norm_backward_f32};
  const PlainForms<std::uint16_t> bf16{DType::bf16, evenorm_layer_norm_bf16, evenorm_rms_norm_bf16,
                                       evenorm_layer_norm_backward_bf16, evenorm_rms_norm_backward_bf16};
  const PlainForms<std::uint16_t> f16{DType::f16, evenorm_layer_norm_f16, evenorm_rms_norm_f16,
                                      evenorm_layer_norm_backward_f16, evenorm_rms_norm_backward_f16};
  for (const Kind kind : contracts::kBothKinds) {
    for (const bool parameters : {false, true}) {
      expect_same_plain_forms(f64, kind, parameters);
      expect_same_plain_forms(f32, kind, parameters);
      expect_same_plain_forms(bf16, kind, parameters);
      expect_same_plain_forms(f16, kind, parameters);
    }
  }
}

// --- plans, executors, threads -------------------------------------------------------------------------------------

TEST(CApi_Plan, RunsAgainWithoutTheDescription) {
  CForwardCall call, expected;
  run(expected.complete());
  evenorm_plan* plan = nullptr;
  ASSERT_EQ(evenorm_plan_create(&call.given, &plan), EVENORM_OK);
  evenorm_buffers buffers = contracts::c_buffers(call.given);
  std::memset(&call.given, 0, sizeof call.given);
  for (int i = 0; i < 2; ++i) {
    std::fill_n(call.at(CForwardCall::kY), 48, 0.0f);
    ASSERT_EQ(evenorm_plan_run(plan, nullptr), EVENORM_OK);
    EXPECT_EQ(call.memory, expected.memory);
  }
  buffers.bias = nullptr;
  EXPECT_TRUE(is_refused(evenorm_plan_run_with(plan, &buffers, nullptr)));
  EXPECT_EQ(last_error(), "bias is null, but the plan has one");
  evenorm_plan_destroy(plan);
}

TEST(CApi_Plan, RunsABackwardPassAgain) {
  CBackwardCall call;
  BackwardCall expected;
  run(expected.complete());
  evenorm_backward_plan* plan = nullptr;
  ASSERT_EQ(evenorm_backward_plan_create(&call.given, &plan), EVENORM_OK) << last_error();
  std::size_t bytes = 0;
  ASSERT_EQ(evenorm_backward_plan_scratch_bytes(plan, &bytes), EVENORM_OK);
  EXPECT_EQ(bytes, scratch_bytes(call.complete()));
  std::memset(&call.given, 0, sizeof call.given);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(evenorm_backward_plan_run(plan, call.scratch.data(), bytes, nullptr), EVENORM_OK) << last_error();
    EXPECT_EQ(call.memory, expected.memory);
  }
  EXPECT_TRUE(is_refused(evenorm_backward_plan_run(plan, call.scratch.data(), bytes - 1, nullptr)));
  EXPECT_THAT(last_error(), StartsWith("scratch has "));
  EXPECT_TRUE(is_refused(evenorm_backward_plan_run(plan, nullptr, bytes, nullptr)));
  EXPECT_EQ(last_error(), "scratch is null");
  evenorm_backward_buffers buffers = c_buffers(call.complete());
  buffers.dbias = nullptr;
  EXPECT_TRUE(is_refused(evenorm_backward_plan_run_with(plan, &buffers, call.scratch.data(), bytes, nullptr)));
  EXPECT_EQ(last_error(), "dbias is null, but the plan has one");
  buffers.struct_size = 3;
  EXPECT_TRUE(is_refused(evenorm_backward_plan_run_with(plan, &buffers, call.scratch.data(), bytes, nullptr)));
  EXPECT_THAT(last_error(), StartsWith("buffers.struct_size is 3"));
  evenorm_backward_plan_destroy(plan);
  evenorm_backward_plan_destroy(nullptr);
}

TEST(CApi_Executor, CallbackIsCalledOnceByEachRun) {
  const std::int64_t shape[2] = {512, 512};
  std::vector<float> x(512 * 512, 1.5f), y(x.size());
  struct Counter {
    std::size_t calls = 0, tasks = 0;
  } counter;
  const evenorm_executor executor{sizeof executor, 4, &counter,
                                  [](void* context, std::size_t tasks, void (*task)(void*, std::size_t), void* a) {
                                    ++static_cast<Counter*>(context)->calls;
                                    static_cast<Counter*>(context)->tasks += tasks;
                                    for (std::size_t i = tasks; i-- > 0;) task(a, i);
                                  }};
  Forward forward{.x = {x.data(), DType::f32, shape}, .y = {y.data(), DType::f32, shape}};
  forward.normalized_shape = std::span(shape).last(1);
  const evenorm_forward given = contracts::c_forward(forward);
  ASSERT_EQ(evenorm_run(&given, &executor), EVENORM_OK);
  EXPECT_EQ(counter.calls, 1u);
  EXPECT_GT(counter.tasks, 3u);
  EXPECT_EQ(y, std::vector<float>(x.size(), 0.0f));  // constant rows, no bias
  evenorm_plan* plan = nullptr;
  ASSERT_EQ(evenorm_plan_create(&given, &plan), EVENORM_OK);
  ASSERT_EQ(evenorm_plan_run(plan, &executor), EVENORM_OK);
  const evenorm_buffers buffers = contracts::c_buffers(given);
  ASSERT_EQ(evenorm_plan_run_with(plan, &buffers, &executor), EVENORM_OK);
  EXPECT_EQ(counter.calls, 3u);
  evenorm_plan_destroy(plan);

  const Backward backward{
      .x = forward.x, .dy = forward.x, .normalized_shape = forward.normalized_shape, .dx = forward.y};
  const evenorm_backward gradients = contracts::c_backward(backward);
  ASSERT_EQ(evenorm_run_backward(&gradients, nullptr, 0, &executor), EVENORM_OK);
  std::byte scratch[64];
  ASSERT_EQ(evenorm_run_backward(&gradients, scratch, sizeof scratch, &executor), EVENORM_OK);
  EXPECT_EQ(counter.calls, 5u);
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

TEST(CApi_LastError, IsPerThreadAndOutlivesSuccess) {
  CForwardCall call;
  std::string before = "?", after = "?";
  EXPECT_TRUE(is_refused(evenorm_run(nullptr, nullptr)));
  std::thread([&] {
    before = last_error();
    evenorm_plan_run(nullptr, nullptr);
    after = last_error();
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_EQ(after, "plan is null");
  EXPECT_EQ(evenorm_run(&call.given, nullptr), EVENORM_OK);
  EXPECT_EQ(last_error(), "forward is null");
}

TEST(CApi_LastError, TruncatesLongTexts) {
  std::vector<std::int64_t> shape(64, std::int64_t{1} << 60);
  CForwardCall call;
  call.given.x.shape = call.given.y.shape = shape.data();
  call.given.x.rank = call.given.y.rank = 64;
  EXPECT_NE(evenorm_run(&call.given, nullptr), EVENORM_OK);
  EXPECT_EQ(last_error().size(), 1023u);
  EXPECT_THAT(last_error(), StartsWith("x has shape (1152921504606846976"));
}

TEST(CApi_Library, ReportsItsVersionAndTargets) {
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
  const char* target_name = nullptr;
  ASSERT_EQ(evenorm_target(&target_name), EVENORM_OK);
  EXPECT_EQ(target_name, target());
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i8}) {
    EXPECT_EQ(evenorm_dtype_name(static_cast<evenorm_dtype>(dtype)), name(dtype));
    EXPECT_EQ(evenorm_dtype_size(static_cast<evenorm_dtype>(dtype)), size_of(dtype));
  }
}

TEST(CApi_Library, UnknownTargetGivesAStatus) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // runs in a new process, which has not chosen a target yet
  EXPECT_EXIT(
      {
        setenv("EVENORM_TARGET", "m\nx\033", 1);
        const char* name = "?";
        const bool refused = is_refused(evenorm_target(&name)) && name == nullptr &&
                             last_error().find("EVENORM_TARGET is 'm?x?', but") == 0;
        std::exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(CApi_C11, Works) {
  for (const auto check : {evenorm_c11_forward, evenorm_c11_plain_forms, evenorm_c11_gradients, evenorm_c11_sharded}) {
    EXPECT_STREQ(check(), nullptr);
  }
}

}  // namespace
}  // namespace evenorm::testing
