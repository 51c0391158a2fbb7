// The stack that a call uses in total: on the calling thread, which validates, shares out work and computes, and on a
// worker thread.
#include <gtest/gtest.h>

#include "problem/validate.hpp"
#include "rows/passes.hpp"
#include "run/schedule.hpp"
#include "sharded/steps.hpp"
#include "support/cases.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/stack.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::runnable_targets;
using internal::run_on;

#if defined(EVENORM_UNOPTIMIZED)  // as tools/mutants builds the kernels, which then keep every vector on the stack
constexpr std::size_t kPromised = 65536 + 8192;
#else
constexpr std::size_t kPromised = 65536;
#endif

std::size_t stack_of(const std::function<void()>& call) {
  static const std::size_t nothing = stack_used_by([] {});
  return stack_used_by(call) - nothing;
}

// Alone, and as one of two threads, where the caller takes a share of the work; directly and by a plan.
void expect_promise_kept(const std::string& pattern, DType dtype) {
  for (const std::string& text : expanded(pattern, name(dtype))) {
    const contracts::Case c = contracts::parse_case(text);
    const contracts::Call call(c.op, contracts::inputs_of(c), c.way.layout, c.shape, c.axes, c.parameter);
    const auto expect_kept = [&](const std::string& where, const std::function<void()>& body) {
      const std::size_t used = stack_of(body);
      EXPECT_LE(used, kPromised) << text << where;
      EXPECT_GT(used, 4096u) << text << where;
    };
    const auto measure = [&](const auto& pass) {
      for (const Executor& executor : {Executor{}, contracts::reversed_executor(2)}) {
        for (const internal::Target target : runnable_targets()) {
          expect_kept(" on " + std::string(internal::name(target)), [&] { run_on(target, pass, executor); });
        }
        if constexpr (std::is_same_v<decltype(pass), const Forward&>) {
          expect_kept(" by a plan", [&] { Plan(pass).run(executor); });
        }
      }
    };
    c.op.is_backward() ? measure(call.backward()) : measure(call.forward());
  }
}

struct CallerStack : ::testing::TestWithParam<DType> {
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers add space between the objects on a stack";
  }
};

TEST_P(CallerStack, ForwardTakesAtMost64KiB) {
  expect_promise_kept("layer $->bf16 weight=f32 {3x40,384x40,5000x40,300000x1} axes=0 x:mean_1e4", GetParam());
}

TEST_P(CallerStack, FusedFormsTakeAtMost64KiB) {
  const std::string other = GetParam() == DType::f16 ? "bf16" : "f16";
  for (const std::string& parameter : {other, std::string("f64")}) {
    expect_promise_kept("layer $->{f64,f32,bf16,i8} weight=" + parameter + "+1 bias=" + parameter + " residual=" +
                            other + " {20x700,20x2048,20x5000,1x14100,1x70000} vectors=apart" + kEveryRow,
                        GetParam());
  }
}

// Sums that leave the range of the arithmetic are found anew.
TEST_P(CallerStack, GradientsTakeAtMost64KiB) {
  expect_promise_kept(
      "layer $ weight=$ dx={f64,f32,bf16,f16} dgamma=$ dbeta=$ {20x3,20x700,20x5000,2x100000} "
      "x:normal,mean_1e6 dy:{normal,constant_max}",
      GetParam());
}

// Groups of channels, whose lines lie along or across vectors; both passes, with statistics found anew.
TEST_P(CallerStack, GroupsTakeAtMost64KiB) {
  expect_promise_kept(
      "layer $ weight=f16 2x16x10x5000 axes=2,3 parameter=1x16x10x1 x:mean_1e4 "
      "{x=last y=last,dx=$ dgamma=f32,x=last y=last dx=$ dx=last dgamma=f32}",
      GetParam());
}

// A copy of the problem describes each set.
TEST_P(CallerStack, GradientsOfSetsTakeAtMost64KiB) {
  for (const char* cols : {"700", "5000"}) {
    expect_promise_kept(std::string(cols) + "x8x5 axes=0 parameter=" + cols +
                            "x8x1 layer $ weight=f16 dgamma=f32 dbeta=f32 "
                            "dx={f64,f32,bf16,f16}",
                        GetParam());
  }
}

// Out-of-range rows that are gathered take the longest path.
TEST_P(CallerStack, OutOfRangeRowsTakeAtMost64KiB) {
  expect_promise_kept(
      "layer $->{f64,f32,bf16,f16} weight=f16 bias=f16 4x{700,1509,4169} x:{zeros,huge} x=first y=first", GetParam());
}

TEST_P(CallerStack, RowsOfShardsTakeAtMost64KiB) {
  for (const std::int64_t cols : {3, 1024, 5000}) {
    const Array x = contracts::make_input("huge", GetParam(), 40 * static_cast<std::size_t>(cols));
    const Dims shape = {cols, 40};
    const Cuts cuts(Columns{cols}, 0);
    for (const internal::Target target : runnable_targets()) {
      for (const Kind kind : contracts::kBothKinds) {
        for (const DType y_type : {GetParam(), DType::f64}) {
          Array y(y_type, x.size());
          internal::Problem p = internal::validate(
              Forward{.kind = kind, .x = {x.data(), GetParam(), shape}, .y = {y.data(), y_type, shape}, .axes = {0}});
          const bool wide = internal::arithmetic_type(p) == DType::f64;
          const internal::Kernels& kernels = internal::kernels_of(target);
          const std::size_t numbers = cuts.numbers(Pass::forward, kind, wide);
          std::vector<double> message(p.rows * numbers);
          std::vector<Moments> moments(p.rows);
          const internal::Messages all{message.data(), message.size()};
          const auto expect_kept = [&](const std::function<void()>& body) {
            EXPECT_LE(stack_of(body), kPromised) << name(GetParam()) << " " << cols << " on " << internal::name(target);
          };
          expect_kept([&] { internal::find_moments_on(target, cuts, p, message); });
          expect_kept([&] { internal::join_shards(cuts, kind, wide, all, moments); });
          p.moments = moments.data();
          const internal::ForwardPlan plan = internal::make_plan(p, {});
          expect_kept([&] { internal::run_forward(kernels, p, plan, 0, p.rows); });
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CallerStack, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return std::string(name(test.param)); });

// --- workers: every mixture of types and layouts fits their stack --------------------------------------------------

// The case with the most scratch: x and y are strided and differ in type from the arithmetic, and parameters are
// gathered and converted.
TEST(Forward_Scratch, HoldsEveryMixtureOfTypes) {
  for (const DType x : kAllTypes) {
    expect_same_bits(
        "layer $->{f64,f32,bf16,f16} weight=f64+1 bias=f32 4x{5,700,1024,5000} x=apart y=first vectors=apart", name(x));
  }
}

TEST(Forward_Scratch, HoldsTheJoinTreesOfLongRows_Slow) {
  expect_same_bits(
      "layer {f32->f64,f32->bf16,bf16->f64,f64->f32} weight=f64+1 bias=f32 4x8388607 x=apart y=first vectors=apart");
}

}  // namespace
}  // namespace evenorm::testing
