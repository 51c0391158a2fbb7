// Numbers that callers cast to an enumeration without such a value: every entry point refuses them.
#include <vector>

#include "evenorm/modules.hpp"
#include "support/c_call.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

constexpr std::int64_t kFour[] = {4};

// A process of which `cols` of 4 columns are its own, and an all-gather of one process.
Shard shard_of(std::size_t cols) {
  contracts::Operation op = contracts::same_type_backward(Kind::layer, DType::f64, 4);
  op.bias = DType::f64;
  return {example(op, {"normal"}, {"normal"}, 2), 0, cols};
}
Communicator alone() {
  return {0, 1, nullptr,
          [](void*, const std::byte* mine, std::size_t bytes, std::byte* all) { std::copy_n(mine, bytes, all); }};
}

class Enumerations : public ::testing::TestWithParam<int> {};

TEST_P(Enumerations, RejectsAnInvalidKind) {
  const auto kind = static_cast<Kind>(GetParam());
  const std::string message = "kind is " + std::to_string(GetParam()) + ", which is none of layer, rms";
  const auto expect = [&](const char* entry, const std::function<void()>& call) {
    EXPECT_EQ(error_of(call), message) << entry;
  };
  expect_refused(&ForwardCall::plain, &ForwardCall::error, {{[=](auto& c) { c.forward.kind = kind; }, message}});
  expect_refused(&BackwardCall::plain, &BackwardCall::error_without_buffers,
                 {{[=](auto& c) { c.backward.kind = kind; }, message}});
  std::vector<double> x(8), y(8);
  expect("run_rows", [&] { detail::run_rows<double>(kind, x, y, 4, {}); });
  expect("run_gradients", [&] { detail::run_gradients<double>(kind, x, x, y, 4, {}); });
  struct Module : NormModule {
    explicit Module(Kind kind) : NormModule({4}, {kind, 1e-5, true, true, DType::f32, false}) {}
  };
  expect("NormModule", [&] { const Module module(kind); });

  for (const std::int64_t own : {4, 0}) {
    const std::int64_t columns[] = {own, 4};
    const Cuts cuts(columns, 0);
    expect("Cuts::numbers", [&] { static_cast<void>(cuts.numbers(Pass::forward, kind, true)); });
    Shard shard = shard_of(static_cast<std::size_t>(own));
    shard.forward.kind = kind;
    expect("ShardedNorm", [&] { const ShardedNorm norm(shard.forward, alone()); });
  }
  Shard shard = shard_of(4);
  ShardedNorm norm(shard.forward, alone());
  shard.forward.kind = shard.backward.kind = kind;
  expect("ShardedNorm::run(Forward)", [&] { norm.run(shard.forward); });
  expect("ShardedNorm::run(Backward)", [&] { norm.run(shard.backward, std::vector<Moments>(2)); });
  EXPECT_THAT(shard.y.bytes(), ::testing::Each(std::byte{}));
  EXPECT_THAT(shard.dx.bytes(), ::testing::Each(std::byte{}));
}

TEST_P(Enumerations, RejectsAnInvalidDType) {
  const auto dtype = static_cast<DType>(GetParam() == 2 ? 5 : GetParam());
  const std::string wrong =
      " has dtype " + std::to_string(static_cast<int>(dtype)) + ", which is none of f64, f32, bf16, f16";
  using F = Forward;
  expect_types_refused(&ForwardCall::fused, &ForwardCall::error, &ForwardCall::forward, dtype,
                       {"x", "y", "weight", "bias", "mean", "rstd", "residual", "sum"}, &F::x, &F::y, &F::weight,
                       &F::bias, &F::mean, &F::rstd, &F::residual, &F::sum);
  expect_types_refused(&ForwardCall::quantising, &ForwardCall::error, &ForwardCall::forward, dtype, {"scale"},
                       &F::scale);
  using B = Backward;
  expect_types_refused(&BackwardCall::plain, &BackwardCall::error_without_buffers, &BackwardCall::backward, dtype,
                       {"x", "dy", "dx", "weight", "mean", "rstd", "dweight", "dbias"}, &B::x, &B::dy, &B::dx,
                       &B::weight, &B::mean, &B::rstd, &B::dweight, &B::dbias);

  const std::vector<double> values(4);
  LayerNorm module(4, LayerNormOptions{.dtype = DType::f64});
  const NamedConstTensor named[] = {{"weight", {values.data(), dtype, kFour}}};
  EXPECT_EQ(error_of([&] { module.load(named); }), "weight" + wrong);
  EXPECT_EQ(error_of([&] { const LayerNorm made(4, LayerNormOptions{.dtype = dtype}); }), "the module" + wrong);
  EXPECT_EQ(name(dtype), "");
  EXPECT_EQ(size_of(dtype), 0u);

  for (const std::size_t own : {4, 0}) {
    const auto sharded = [&](const char* name, auto Forward::*tensor) {
      Shard shard = shard_of(own);
      (shard.forward.*tensor).dtype = dtype;
      EXPECT_EQ(error_of([&] { const ShardedNorm norm(shard.forward, alone()); }), name + wrong);
    };
    sharded("x", &Forward::x);
    sharded("y", &Forward::y);
    sharded("weight", &Forward::weight);
    sharded("bias", &Forward::bias);
  }
}

TEST_P(Enumerations, RejectsAnInvalidPass) {
  const Cuts cuts(kFour, 0);
  const auto pass = static_cast<Pass>(GetParam());
  EXPECT_EQ(error_of([&] { static_cast<void>(cuts.numbers(pass, Kind::rms, false)); }),
            "pass is " + std::to_string(GetParam()) + ", which is none of forward, backward");
}

INSTANTIATE_TEST_SUITE_P(Values, Enumerations, ::testing::Values(2, 255));

}  // namespace
}  // namespace evenorm::testing
