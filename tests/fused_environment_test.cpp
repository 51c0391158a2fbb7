// The caller's floating-point environment while arguments are checked: rounding modes, flushing, unmasked exceptions.
#include <gtest/gtest.h>

#include <cfenv>

#include "contracts/fp_mode.hpp"
#include "support/backward_call.hpp"
#include "support/child.hpp"
#include "support/fused_call.hpp"

namespace evenorm::testing {
namespace {

using Call = FusedCall;

// Halfway between the largest f32 and the next one there would be, and between the smallest normal one and the one
// below: those are no f32, whichever way the caller rounds.
TEST(Fused_Environment, ScalesAtTheEndsOfF32InEveryMode) {
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

// A caller may have unmasked floating-point exceptions: neither checks nor kernels may raise one.
TEST(Fused_Environment, WithExceptionsUnmasked) {
#if defined(__x86_64__)
  const auto raises = [](const std::function<void()>& body) {
    return outcome_of_child([&] {
      feenableexcept(FE_ALL_EXCEPT);
      body();
      return 0;
    });
  };
  Call full, given = Call::quantising(), by_row = Call::quantising();
  full.forward.residual_scale = 0.1;
  given.forward.scale = {};
  given.forward.given_scale = 0.1;
  for (Call* call : {&full, &given, &by_row}) {
    const Forward& forward = call->complete();
    EXPECT_EQ(raises([&] { run(forward); }), "");
    EXPECT_EQ(raises([&] { run(forward, pool_executor(2)); }), "");
    EXPECT_EQ(raises([&] { Plan(forward).run(); }), "");
  }
  BackwardCall backward;
  EXPECT_EQ(raises([&] { run(backward.complete()); }), "");
  const std::vector<Moments> parts = {{3, 0.1, 0, 0.3, 0, 0}, {3, 0.7, 0, 1e-300, 0, 0}};
  EXPECT_EQ(raises([&] { join(Kind::layer, parts, true); }), "");
#else
  GTEST_SKIP() << "exceptions trap on x86 only";
#endif
}

}  // namespace
}  // namespace evenorm::testing
