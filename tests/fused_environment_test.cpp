// The caller's floating-point environment while arguments are checked and kernels run: rounding modes, flushing, and
// unmasked exceptions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "contracts/fp_mode.hpp"
#include "evenorm/modules.hpp"
#include "evenorm/sharded.hpp"
#include "run/schedule.hpp"
#include "support/backward_call.hpp"
#include "support/child.hpp"
#include "support/forward_call.hpp"

namespace evenorm::testing {
namespace {

using Call = ForwardCall;

// Midpoints above the largest f32 and below the smallest normal f32. They are not f32 in any rounding mode of the
// caller.
TEST(Fused_Environment, ChecksScalesAtTheEndsOfF32InEveryMode) {
  struct Case {
    double Forward::*scale;
    double value;
    bool passes;
  };
  const Case cases[] = {{&Forward::given_scale, 0x1.FFFFFFp127, false},
                        {&Forward::given_scale, 0x1.FFFFFEFp127, true},
                        {&Forward::given_scale, 0x1.FFFFFCp-127, false},
                        {&Forward::given_scale, 0x1.FFFFFFp-127, true},
                        {&Forward::given_scale, 0x1p-126, true},
                        {&Forward::residual_scale, 0x1.FFFFFFp127, false},
                        {&Forward::residual_scale, -0x1.FFFFFFp127, false},
                        {&Forward::residual_scale, 0x1.FFFFFEFp127, true}};
  for (const Case& c : cases) {
    Call call = Call::quantising();
    if (c.scale == &Forward::given_scale) call.forward.scale = {};
    call.forward.*c.scale = c.value;
    const Forward& forward = call.complete();
    const std::string plainly = error_of([&] { run(forward); });
    EXPECT_EQ(plainly == "no error", c.passes) << c.value << ": " << plainly;
    for (const contracts::FpMode mode : contracts::unusual_fp_modes()) {
      std::string message;
      {
        const contracts::FpModeScope scope(mode);
        message = error_of([&] { run(forward); });
      }
      EXPECT_EQ(message, plainly) << contracts::name(mode);
    }
  }
}

// Both passes of a norm over one process, the second with `backward_eps`.
void run_sharded(double eps, double backward_eps) {
  const double x[] = {1, 2, 4, 8};
  double y[4], dx[4];
  const Communicator alone{0, 1, nullptr, [](void*, const std::byte* mine, std::size_t bytes, std::byte* all) {
                             std::copy_n(mine, bytes, all);
                           }};
  const Forward forward{
      .x = {x, DType::f64, {1, 4}}, .y = {y, DType::f64, {1, 4}}, .normalized_shape = {4}, .eps = eps};
  ShardedNorm norm(forward, alone);
  std::vector<Moments> moments(1);
  norm.run(forward, moments);
  norm.run(
      {.x = forward.x, .dy = forward.x, .normalized_shape = {4}, .dx = {dx, DType::f64, {1, 4}}, .eps = backward_eps},
      moments);
}

// In any environment of the caller, errors print a subnormal eps correctly. None of these calls has set the environment
// before.
TEST(Fused_Environment, ErrorsPrintASubnormalEpsInEveryMode) {
  struct Case {
    std::function<void()> call;
    std::string message;
  };
  constexpr double kSmallest = 0x1p-1074;
  const Case cases[] = {
      {[] { LayerNorm norm(4, {.eps = -kSmallest}); }, "eps is -4.94066e-324, but it should be finite and at least 0"},
      {[] { run_sharded(-kSmallest, 0); }, "eps is -4.94066e-324, but it should be finite and at least 0"},
      {[] { run_sharded(kSmallest, 1); }, "eps is 1, but 4.94066e-324 when the norm was made"},
      {[] { run_sharded(1, kSmallest); }, "eps is 4.94066e-324, but 1 when the norm was made"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(error_of(c.call), c.message);
    for (const contracts::FpMode mode : contracts::unusual_fp_modes()) {
      std::string message;
      {
        const contracts::FpModeScope scope(mode);
        message = error_of(c.call);
      }
      EXPECT_EQ(message, c.message) << contracts::name(mode);
    }
  }
}

TEST(Fused_Environment, NothingRaisesUnmaskedExceptions) {
#if defined(__x86_64__)
  const auto raises = [](const std::function<void()>& body) {
    return outcome_of_child([&] {
      feenableexcept(FE_ALL_EXCEPT);
      _mm_setcsr(_mm_getcsr() & ~0x100U);  // the denormal-operand exception of x86
      body();
      return 0;
    });
  };
  Call full = Call::fused(), given = Call::quantising(), by_row = Call::quantising();
  full.forward.residual_scale = 0.1;
  given.forward.scale = {};
  given.forward.given_scale = 0.1;
  BackwardCall backward;
  for (const double eps : {1e-5, 0x1p-1074}) {
    for (Call* call : {&full, &given, &by_row}) {
      call->forward.eps = eps;
      const Forward& forward = call->complete();
      EXPECT_EQ(raises([&] { run(forward); }), "");
      EXPECT_EQ(raises([&] { run(forward, pool_executor(2)); }), "");
      EXPECT_EQ(raises([&] { Plan(forward).run(); }), "");
    }
    backward.backward.eps = eps;
    EXPECT_EQ(raises([&] { run(backward.complete()); }), "");
    EXPECT_EQ(raises([&] { run_sharded(eps, eps); }), "");
    EXPECT_EQ(raises([&] { error_of([&] { run_sharded(eps, 1); }); }), "");
    EXPECT_EQ(raises([&] { error_of([&] { LayerNorm norm(4, {.eps = -eps}); }); }), "");
  }
#else
  GTEST_SKIP() << "exceptions trap on x86 only";
#endif
}

}  // namespace
}  // namespace evenorm::testing
