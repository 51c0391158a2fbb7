// The C API: the bits of the C++ API, plans, executors, and the calling thread's last error. c_api_arguments_test.cpp
// has wrong arguments, stress_memory_test.cpp has memory that runs out, and c_api_c11.c is compiled as C.
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "contracts/digests.hpp"
#include "support/c_call.hpp"
#include "support/names.hpp"

extern "C" const char* evenorm_c11();  // c_api_c11.c

namespace evenorm::testing {
namespace {

using contracts::Runner;
using ::testing::StartsWith;

// --- bits: equal memory before a call is equal after it, in C and C++ ------------------------------------------------

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
  const evenorm_backward_buffers buffers{sizeof buffers, b.x.data,  b.dy.data,      b.weight.data, b.mean.data,
                                         b.rstd.data,    b.dx.data, b.dweight.data, b.dbias.data,  b.dsum.data};
  return buffers;
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

// Every change to a call has the same results in C and in C++.
template <class Call, class Runner>
void expect_same_bits(Call (*make)(), const std::vector<Runner>& runners,
                      const std::vector<std::function<void(Call&)>>& changes) {
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Call expected = make();
    changes[i](expected);
    run(expected.complete());
    for (const Runner& runner : runners) {
      Call call = make();
      changes[i](call);
      runner(call.complete(), contracts::reversed_executor(3));
      EXPECT_TRUE(same_bytes(call.memory, expected.memory)) << "change " << i;
    }
  }
}

TEST(CApi_Bits, EqualCppForEveryFieldOfForward) {
  using Call = ForwardCall;
  const std::vector<Runner> runners = {contracts::through_c(), run_planned};
  for (const auto make : {&Call::plain, &Call::fused, &Call::quantising}) {
    expect_same_bits(make, runners,
                     {[](Call&) {}, with(&Call::forward, &Forward::eps, 64), with(&Call::forward, &Forward::mean, {}),
                      [](Call& c) {
                        c.forward.kind = Kind::rms;
                        c.forward.mean.data = nullptr;
                      },
                      [](Call& c) {
                        c.y_strides = c.x_strides = {30, 8, 1};
                      }});
  }
  expect_same_bits(
      &Call::fused, runners,
      {with(&Call::forward, &Forward::residual_scale, 0.75), with(&Call::forward, &Forward::zero_centered, true)});
  expect_same_bits(&Call::quantising, runners, {[](Call& c) {
    c.forward.scale = {};
    c.forward.given_scale = 0.03;
  }});
  expect_same_bits(&Call::plain, runners, {[](Call& c) {
    c.normalized = {};
    c.axes = {-1, 0};
    c.weight_shape = c.bias_shape = {2, 8};
    c.statistics_shape = {3};
  }});
}

TEST(CApi_Bits, EqualCppForEveryFieldOfBackward) {
  using Call = BackwardCall;
  static const std::int64_t kShape[] = {2, 3, 8};
  const auto compute_statistics = [](Call& c) { c.backward.mean.data = c.backward.rstd.data = nullptr; };
  const std::vector<Runner> runners = {contracts::through_c(), run_backward_planned};
  expect_same_bits(
      &Call::plain, runners,
      {[](Call&) {}, compute_statistics,
       [=](Call& c) {
         compute_statistics(c);
         c.backward.eps = 64;
       },
       [](Call& c) {
         c.backward.kind = Kind::rms;
         c.backward.mean.data = nullptr;
       },
       with(&Call::backward, &Backward::zero_centered, true), with(&Call::backward, &Backward::accumulate, true),
       [](Call& c) {
         c.backward.dsum = {c.at(900), DType::f32, kShape, {}};
       },
       [](Call& c) {
         c.dy_strides = {0, 8, 1};
       },
       with(&Call::backward, &Backward::dx, {}),
       [](Call& c) {
         c.normalized = {};
         c.axes = {-2, 2};
       }});
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

  void expect_bits_of_cpp() const {
    for (const Kind kind : contracts::kBothKinds) {
      for (const bool parameters : {false, true}) expect_bits_of_cpp(kind, parameters);
    }
  }
  void expect_bits_of_cpp(Kind kind, bool parameters) const {
    contracts::Operation op = contracts::same_type_backward(kind, dtype, 100);
    if (!parameters) op.weight = op.dgamma = op.dbeta = {};
    if (parameters && kind == Kind::layer) op.bias = dtype;
    if (kind == Kind::rms) op.dbeta.reset();
    contracts::Case c{op};
    c.shape = {65, 100};
    const contracts::Inputs in = contracts::digest_inputs(c);
    const contracts::Array bias = contracts::make_bias(dtype, op.bias ? 100 : 0);
    contracts::Array y = in.x, dx(dtype, 6500), dgamma(dtype, op.dgamma ? 100 : 0), dbeta(dtype, op.dbeta ? 100 : 0);
    const auto storage = [](const contracts::Array& array) {
      return array.empty() ? nullptr : reinterpret_cast<Storage*>(const_cast<std::byte*>(array.data()));
    };
    const Storage *x = storage(in.x), *dy = storage(in.dy), *weight = storage(in.weight);
    if (kind == Kind::layer) {
      ASSERT_EQ(layer(storage(y), storage(y), 65, 100, weight, storage(bias), 1e-5), EVENORM_OK);
      ASSERT_EQ(layer_backward(dy, x, storage(dx), 65, 100, weight, storage(dgamma), storage(dbeta), 1e-5), EVENORM_OK);
    } else {
      ASSERT_EQ(rms(storage(y), storage(y), 65, 100, weight, 1e-5), EVENORM_OK);
      ASSERT_EQ(rms_backward(dy, x, storage(dx), 65, 100, weight, storage(dgamma), 1e-5), EVENORM_OK);
    }
    const auto expected =
        run_operation(contracts::through_c(), op.forward(), {.x = in.x, .weight = in.weight, .bias = bias}).y;
    EXPECT_TRUE(std::ranges::equal(y.bytes(), expected.bytes())) << op.name();
    const auto gradients = run_operation(contracts::through_c(), op, in);
    const auto same = [](const contracts::Array& a, const contracts::Array& b) {
      return std::ranges::equal(a.bytes(), b.bytes());
    };
    EXPECT_TRUE(same(dx, gradients.dx) && same(dgamma, gradients.dgamma) && same(dbeta, gradients.dbeta)) << op.name();
  }
};

TEST(CApi_Bits, EqualCppForThePlainForms) {
  PlainForms<double>{DType::f64, evenorm_layer_norm_f64, evenorm_rms_norm_f64, evenorm_layer_norm_backward_f64,
                     evenorm_rms_norm_backward_f64}
      .expect_bits_of_cpp();
  PlainForms<float>{DType::f32, evenorm_layer_norm_f32, evenorm_rms_norm_f32, evenorm_layer_norm_backward_f32,
                    evenorm_rms_norm_backward_f32}
      .expect_bits_of_cpp();
  PlainForms<std::uint16_t>{DType::bf16, evenorm_layer_norm_bf16, evenorm_rms_norm_bf16,
                            evenorm_layer_norm_backward_bf16, evenorm_rms_norm_backward_bf16}
      .expect_bits_of_cpp();
  PlainForms<std::uint16_t>{DType::f16, evenorm_layer_norm_f16, evenorm_rms_norm_f16, evenorm_layer_norm_backward_f16,
                            evenorm_rms_norm_backward_f16}
      .expect_bits_of_cpp();
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
  EXPECT_EQ(refusal_of(evenorm_plan_run_with(plan, &buffers, nullptr)), "bias is null, but the plan has one");
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
  EXPECT_THAT(refusal_of(evenorm_backward_plan_run(plan, call.scratch.data(), bytes - 1, nullptr)),
              StartsWith("scratch has "));
  EXPECT_EQ(refusal_of(evenorm_backward_plan_run(plan, nullptr, bytes, nullptr)), "scratch is null");
  const auto refusal_with = [&](auto evenorm_backward_buffers::*field, auto value) {
    evenorm_backward_buffers buffers = c_buffers(call.complete());
    buffers.*field = value;
    return refusal_of(evenorm_backward_plan_run_with(plan, &buffers, call.scratch.data(), bytes, nullptr));
  };
  EXPECT_EQ(refusal_with(&evenorm_backward_buffers::dbias, nullptr), "dbias is null, but the plan has one");
  EXPECT_THAT(refusal_with(&evenorm_backward_buffers::struct_size, 3), StartsWith("buffers.struct_size is 3"));
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
  EXPECT_EQ(refusal_of(evenorm_run(nullptr, nullptr)), "forward is null");
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
        const bool refused =
            refusal_of(evenorm_target(&name)).starts_with("EVENORM_TARGET is 'm?x?', but") && name == nullptr;
        std::exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(CApi_C11, Works) { EXPECT_STREQ(evenorm_c11(), nullptr); }

}  // namespace
}  // namespace evenorm::testing
