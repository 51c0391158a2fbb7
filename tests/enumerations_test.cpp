// Numbers that callers cast to an enumeration although it has no such value: refused wherever one comes in.
#include <gtest/gtest.h>

#include <vector>

#include "evenorm/modules.hpp"
#include "evenorm/sharded.hpp"
#include "support/refusal.hpp"

namespace evenorm::testing {
namespace {

constexpr std::int64_t kShape[] = {2, 4}, kCols[] = {4}, kRows[] = {2};

Communicator alone() {
  return {0, 1, nullptr,
          [](void*, const std::byte* mine, std::size_t bytes, std::byte* all) { std::copy_n(mine, bytes, all); }};
}

struct Tensors {
  std::vector<double> x = std::vector<double>(8, 1), y = x, dx = x, y2 = x, sum = x, parameter = x, gradient = x,
                      more = x;
  std::vector<double> mean = x, rstd = x;
  Forward forward{.x = {x.data(), DType::f64, kShape}, .y = {y.data(), DType::f64, kShape}, .normalized_shape = kCols};
  Backward backward{.x = forward.x,
                    .dy = forward.x,
                    .normalized_shape = kCols,
                    .dx = {dx.data(), DType::f64, kShape},
                    .dweight = {gradient.data(), DType::f64, kCols}};
  std::vector<Moments> moments = std::vector<Moments>(2);
  std::vector<std::byte> scratch = std::vector<std::byte>(1024);
};

class Enumerations : public ::testing::TestWithParam<int> {};

TEST_P(Enumerations, AKindThatIsNone) {
  const auto kind = static_cast<Kind>(GetParam());
  Tensors t;
  const std::vector<double> untouched = t.y;
  t.forward.kind = t.backward.kind = kind;
  const auto expect = [&](const char* entry, const std::function<void()>& call) {
    EXPECT_EQ(error_of(call), "kind is " + std::to_string(GetParam()) + ", which is none of layer, rms") << entry;
  };
  const Executor pool = pool_executor(2);
  expect("run(Forward)", [&] { run(t.forward); });
  expect("run(Forward), executor", [&] { run(t.forward, pool); });
  expect("Plan", [&] { const Plan plan(t.forward); });
  expect("run(Backward)", [&] { run(t.backward); });
  expect("run(Backward), executor", [&] { run(t.backward, pool); });
  expect("run(Backward), scratch", [&] { run(t.backward, t.scratch, pool); });
  expect("scratch_bytes", [&] { static_cast<void>(scratch_bytes(t.backward)); });
  expect("BackwardPlan", [&] { const BackwardPlan plan(t.backward); });
  std::vector<double> y = t.y;
  expect("run_rows", [&] {
    detail::RowSpans spans{};
    spans.kind = kind;
    spans.dtype = DType::f64;
    spans.x = t.x.data();
    spans.y = y.data();
    spans.x_size = spans.y_size = spans.cols = 8;
    detail::run_rows(spans);
  });
  expect("run_gradients", [&] {
    detail::GradientSpans spans{};
    spans.kind = kind;
    spans.dtype = DType::f64;
    spans.x = spans.dy = std::as_bytes(std::span(t.x));
    spans.dx = std::as_writable_bytes(std::span(t.dx));
    spans.cols = 8;
    detail::run_gradients(spans);
  });
  struct Module : NormModule {
    explicit Module(Kind kind) : NormModule({4}, {kind, 1e-5, true, true, DType::f32}) {}
  };
  expect("NormModule", [&] { const Module module(kind); });

  for (const std::int64_t own : {4, 0}) {
    const std::int64_t columns[] = {own, 4};
    const Cuts cuts(columns, 0);
    expect("Cuts::numbers", [&] { static_cast<void>(cuts.numbers(Pass::forward, kind, true)); });
    const std::int64_t shape[] = {2, own};
    Forward forward = t.forward;
    forward.x.shape = forward.y.shape = shape;
    forward.normalized_shape = std::span(shape).last(1);
    expect("ShardedNorm", [&] { const ShardedNorm norm(forward, alone()); });
  }
  Forward good = t.forward;
  good.kind = Kind::layer;
  ShardedNorm norm(good, alone());
  expect("ShardedNorm::run(Forward)", [&] { norm.run(t.forward); });
  EXPECT_EQ(error_of([&] { norm.run(t.backward, t.moments); }), "kind is not what the norm was made with");
  EXPECT_EQ(t.y, untouched);
}

TEST_P(Enumerations, ADTypeThatIsNone) {
  const auto dtype = static_cast<DType>(GetParam() == 2 ? 5 : GetParam());
  const std::string value = std::to_string(static_cast<int>(dtype));
  Tensors t;
  const auto expect = [&](const std::string& argument, const std::function<void()>& call) {
    EXPECT_EQ(error_of(call), argument + " has dtype " + value + ", which is none of f64, f32, bf16, f16");
  };
  // All that a forward pass can have; one after the other has another type.
  Forward all = t.forward;
  all.weight = all.bias = all.weight2 = all.bias2 = {t.parameter.data(), DType::f64, kCols};
  all.mean = {t.mean.data(), DType::f64, kRows};
  all.rstd = {t.rstd.data(), DType::f64, kRows};
  all.residual = {t.more.data(), DType::f64, kShape};
  all.sum = {t.sum.data(), DType::f64, kShape};
  all.y2 = {t.y2.data(), DType::f64, kShape};
  EXPECT_EQ(error_of([&] { run(all); }), "no error");
  const auto forward = [&](const char* argument, auto Forward::*tensor) {
    Forward wrong = all;
    (wrong.*tensor).dtype = dtype;
    expect(argument, [&] { run(wrong); });
    expect(argument, [&] { const Plan plan(wrong); });
  };
  forward("x", &Forward::x);
  forward("y", &Forward::y);
  forward("weight", &Forward::weight);
  forward("bias", &Forward::bias);
  forward("mean", &Forward::mean);
  forward("rstd", &Forward::rstd);
  forward("residual", &Forward::residual);
  forward("sum", &Forward::sum);
  forward("weight2", &Forward::weight2);
  forward("bias2", &Forward::bias2);
  forward("y2", &Forward::y2);
  std::vector<std::int8_t> y(8);
  Forward quantised = t.forward;
  quantised.y = {y.data(), DType::i8, kShape};
  quantised.scale = {t.mean.data(), dtype, kRows};
  expect("scale", [&] { run(quantised); });

  Backward gradients = t.backward;
  std::vector<double> dbias(4);
  gradients.weight = all.weight;
  gradients.mean = {t.mean.data(), DType::f64, kRows};
  gradients.rstd = {t.rstd.data(), DType::f64, kRows};
  gradients.dbias = {dbias.data(), DType::f64, kCols};
  gradients.dsum = all.residual;
  EXPECT_EQ(error_of([&] { run(gradients); }), "no error");
  const auto backward = [&](const char* argument, auto Backward::*tensor) {
    Backward wrong = gradients;
    (wrong.*tensor).dtype = dtype;
    expect(argument, [&] { run(wrong); });
    expect(argument, [&] { const BackwardPlan plan(wrong); });
  };
  backward("x", &Backward::x);
  backward("dy", &Backward::dy);
  backward("weight", &Backward::weight);
  backward("mean", &Backward::mean);
  backward("rstd", &Backward::rstd);
  backward("dx", &Backward::dx);
  backward("dweight", &Backward::dweight);
  backward("dbias", &Backward::dbias);
  backward("dsum", &Backward::dsum);

  expect("the module", [&] { const LayerNorm module(4, LayerNormOptions{.dtype = dtype}); });
  LayerNorm module(4, LayerNormOptions{.dtype = DType::f64});
  const NamedConstTensor named[] = {{"weight", {t.parameter.data(), dtype, kCols}}};
  expect("weight", [&] { module.load(named); });
  detail::RowSpans spans{};
  spans.dtype = dtype;
  spans.cols = 1;
  expect("x", [&] { detail::run_rows(spans); });
  detail::GradientSpans gradient_spans{};
  gradient_spans.dtype = dtype;
  gradient_spans.cols = 1;
  expect("x", [&] { detail::run_gradients(gradient_spans); });
  EXPECT_EQ(name(dtype), "");
  EXPECT_EQ(size_of(dtype), 0u);

  // Processes with columns and without; parameters are there by their shape.
  for (const std::int64_t own : {4, 0}) {
    const std::int64_t shape[] = {2, own};
    const auto sharded = [&](const char* argument, auto Forward::*tensor) {
      Forward made = t.forward;
      made.x.shape = made.y.shape = shape;
      made.normalized_shape = std::span(shape).last(1);
      made.weight = made.bias = {nullptr, DType::f64, made.normalized_shape};
      (made.*tensor).dtype = dtype;
      expect(argument, [&] { const ShardedNorm norm(made, alone()); });
    };
    sharded("x", &Forward::x);
    sharded("y", &Forward::y);
    sharded("weight", &Forward::weight);
    sharded("bias", &Forward::bias);
  }
}

TEST_P(Enumerations, APassThatIsNone) {
  const std::int64_t columns[] = {4};
  EXPECT_EQ(
      error_of([&] { static_cast<void>(Cuts(columns, 0).numbers(static_cast<Pass>(GetParam()), Kind::rms, false)); }),
      "pass is " + std::to_string(GetParam()) + ", which is none of forward, backward");
}

INSTANTIATE_TEST_SUITE_P(Values, Enumerations, ::testing::Values(2, 255));

}  // namespace
}  // namespace evenorm::testing
