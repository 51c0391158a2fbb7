// The gradients of two norms of one x in one pass: the bits of a pass for each, in whatever way it is run.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contracts/backward_pair_accuracy.hpp"
#include "dispatch.hpp"
#include "reference.hpp"
#include "support/magnitudes.hpp"
#include "support/names.hpp"
#include "support/pairs.hpp"

namespace evenorm::testing {
namespace {

using contracts::gradients_on_target;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::reversed_executor;
using contracts::runnable_targets;

void expect_composed(const PairOperation& op, const PairTensors& inputs, const PairLayout& layout = {},
                     const Executor& executor = {}) {
  const PairTensors expected = one_by_one(runnable_targets()[0], op, inputs);
  for (const internal::Target target : runnable_targets()) {
    const PairTensors result = run_pair(gradients_on_target(target), op, inputs, layout, executor);
    EXPECT_EQ(difference(result, expected), "") << op.name() << on(target);
  }
}

const Names kFar = {"normal", "mean_1e6", "mean_300", "constant_0.1", "std_1e-30", "zeros", "one_huge"};

class Contract_BackwardPair : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_BackwardPair, HasTheBitsOfAPassForEachNorm) {
  std::size_t turn = 0;
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {1, 2, 31, 32, 128, 129, 513, 768, 1024, 1025, 5000}) {
      for (const std::size_t rows : {1, 3, 4, 5, 64}) {
        if (rows == 64 && cols > 1000) continue;
        PairOperation op = pair_of_type(kind, GetParam(), cols);
        if (++turn % 2 == 0) op.dsum = GetParam();
        if (turn % 3 == 0) op.dbeta.reset();
        if (turn % 5 == 0) op.weight2.reset();
        if (turn % 7 == 0) op.dgamma2 = op.dbeta2 = {};
        op.accumulate = turn % 4 == 0;
        op.zero_centered = op.weight2 && turn % 6 == 0;
        PairTensors inputs = pair_inputs(op, rows, kFar, {"normal", "std_1e4"}, turn);
        if (turn % 3 == 1) add_statistics(op, inputs);
        expect_composed(op, inputs);
      }
    }
  }
}

TEST_P(Contract_BackwardPair, SharedOutOverThreads) {
  for (const auto& [rows, cols] :
       {std::pair<std::size_t, std::size_t>{3, 70000}, {20000, 32}, {300, 300}, {130, 1500}, {9, 5000}}) {
    PairOperation op = pair_of_type(Kind::layer, GetParam(), cols);
    const PairTensors inputs = pair_inputs(op, rows, {"normal", "mean_1e4"});
    const PairTensors expected = one_by_one(internal::active_target(), op, inputs);
    const auto run = gradients_on_target(internal::active_target());
    for (const Executor& executor : {Executor{}, reversed_executor(64), pool_executor(4)}) {
      EXPECT_EQ(difference(run_pair(run, op, inputs, {}, executor), expected), "") << op.name() << ", " << rows;
    }
    op.dgamma = op.dbeta = op.dgamma2 = op.dbeta2 = {};
    PairTensors alone = inputs, of_dx = expected;
    for (PairTensors* tensors : {&alone, &of_dx}) {
      tensors->dgamma = tensors->dbeta = tensors->dgamma2 = tensors->dbeta2 = Array();
    }
    EXPECT_EQ(difference(run_pair(run, op, alone, {}, pool_executor(3)), of_dx), "") << op.name() << ", " << rows;
  }
}

TEST_P(Contract_BackwardPair, InPlaceAndStrided) {
  for (const std::size_t cols : {33, 600, 1300}) {
    PairOperation op = pair_of_type(Kind::layer, GetParam(), cols);
    op.dsum = GetParam();
    const PairTensors inputs = pair_inputs(op, 13, kFar);
    for (const DxAt at : {DxAt::own, DxAt::x, DxAt::dy, DxAt::dy2, DxAt::dsum}) {
      for (const bool columns_first : {false, true}) {
        expect_composed(op, inputs, {at, columns_first, columns_first}, reversed_executor(3));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_BackwardPair, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// Whatever makes the arithmetic f64 does so for both.
TEST(Contract_BackwardPair, MixturesOfTypes) {
  std::size_t turn = 0;
  for (const DType x : kAllTypes) {
    for (const DType dy : kAllTypes) {
      for (const DType dy2 : kAllTypes) {
        for (const DType dx : kAllTypes) {
          PairOperation op{Kind::layer, x, dy, dy2, dx};
          const auto some = [&](std::size_t every) -> std::optional<DType> {
            if (turn % every == 0) return {};
            return kAllTypes[turn / every % 4];
          };
          ++turn;
          op.kind = kBothKinds[turn % 2];
          op.weight = some(2);
          op.weight2 = some(3);
          op.dsum = some(5);
          op.dgamma = op.dgamma2 = DType::f32;
          op.dbeta = some(7);
          op.dbeta2 = some(4);
          op.cols = turn % 7 == 0 ? 1100 : 67;
          const PairTensors inputs = pair_inputs(op, 6, kFar, {"normal"}, turn);
          expect_composed(op, inputs, {DxAt::own, turn % 8 == 0, turn % 5 == 0});
        }
      }
    }
  }
}

// Each has its own arithmetic then.
TEST(Contract_BackwardPair, GradientsOfParametersAlone) {
  using enum DType;
  for (const std::optional<DType> weight2 : {std::optional(f32), std::optional(f64)}) {
    for (int without = 0; without < 3; ++without) {
      PairOperation op = pair_of_type(Kind::layer, f32, 200);
      op.dx = {};
      op.weight2 = weight2;
      if (without == 1) op.dgamma = op.dbeta = {};
      if (without == 2) op.dgamma2 = op.dbeta2 = {};
      expect_composed(op, pair_inputs(op, 130, kFar), {}, reversed_executor(4));
    }
  }
}

TEST(Contract_BackwardPair, RowsAlone) {
  for (const std::size_t cols : {40, 1024, 1025}) {
    PairOperation op = pair_of_type(Kind::layer, DType::f32, cols);
    op.dgamma = op.dbeta = op.dgamma2 = op.dbeta2 = {};
    const PairTensors inputs = pair_inputs(op, 7, kFar);
    const auto run = gradients_on_target(internal::active_target());
    const PairTensors together = run_pair(run, op, inputs);
    for (std::size_t r = 0; r < 7; ++r) {
      PairTensors row = inputs;
      for (Array* of_rows : {&row.x, &row.dy, &row.dy2, &row.dx}) *of_rows = of_rows->part(r * cols, cols);
      EXPECT_EQ(bytes_of(run_pair(run, op, row).dx), bytes_of(together.dx.part(r * cols, cols))) << r;
    }
  }
}

// What is not finite, in either of the norms alone.
TEST(Contract_BackwardPair, WhatIsNotFinite) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kAllTypes) {
    for (const std::size_t cols : {40, 1100}) {
      PairOperation op = pair_of_type(Kind::layer, dtype, cols);
      PairTensors inputs = pair_inputs(op, 9);
      inputs.dy.set(cols + 3, -kNaN);
      inputs.dy2.set(2 * cols + 5, kInfinity);
      expect_composed(op, inputs);
      PairTensors weights = inputs;
      weights.weight2.set(7, kNaN);
      expect_composed(op, weights);
      inputs.x.set(6 * cols, -kInfinity);
      expect_composed(op, inputs);
      op.dsum = dtype;
      inputs.dsum = normals(dtype, inputs.x.size(), 3);
      inputs.dsum.set(8 * cols + 1, kNaN);
      expect_composed(op, inputs);
    }
  }
}

// Second looks, extreme rows and powers of two: dx of f32 that only f64 can hold on the way, scaled rows of f64.
TEST(Contract_BackwardPair, AtEveryMagnitude) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (int exponent = -120; exponent <= 120; exponent += 24) {
      PairOperation op = pair_of_type(exponent % 16 == 0 ? Kind::layer : Kind::rms, dtype, 70);
      op.eps = 0;
      PairTensors inputs = pair_inputs(op, 5, {"normal", "mean_1e2"});
      const auto scale = [&](Array& a, double factor) {
        const auto values = reference::widen(a.dtype(), a.data(), a.size());
        for (std::size_t i = 0; i < a.size(); ++i) a.set(i, static_cast<double>(values[i]) * factor);
      };
      scale(inputs.x, std::ldexp(1.0, exponent));
      scale(inputs.dy, std::ldexp(1.0, -exponent / 2));
      scale(inputs.dy2, std::ldexp(1.0, exponent / 3));
      expect_composed(op, inputs);
    }
  }
}

// dx that cancels in part, beside sums of any magnitude.
double error_of_dx(const PairOperation& op, const PairTensors& inputs) {
  const auto norm = [&](DType dy, const std::optional<DType>& weight) {
    contracts::Operation one{op.kind, op.x, dy, weight, {}, op.zero_centered, op.eps, op.cols};
    if (op.arithmetic() == DType::f64) one.bias = DType::f64;
    return one;
  };
  const PairTensors result = run_pair(gradients_on_target(internal::active_target()), op, inputs);
  return contracts::dx_error_of_pair({norm(op.dy, op.weight), norm(op.dy2, op.weight2), inputs.x, inputs.dy, inputs.dy2,
                                      inputs.weight, inputs.weight2, inputs.dsum},
                                     result.dx);
}

TEST(Contract_BackwardPairAccuracy, DxIsWithinTheBound) {
  double worst = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    contracts::Random random(seed);
    const DType dtype = kAllTypes[random.below(4)];
    PairOperation op = pair_of_type(kBothKinds[random.below(2)], dtype, 1 + random.below(40));
    op.zero_centered = random.below(4) == 0;
    if (random.below(2) == 0) op.dx = DType::f32;
    if (random.below(3) == 0) op.dsum = dtype;
    PairTensors inputs = pair_inputs(op, 3, kFar, {"normal"}, seed);
    if (random.below(2) == 0) {  // d2 is about -d
      for (std::size_t i = 0; i < inputs.dy.size(); ++i) inputs.dy2.set(i, -contracts::value_at(inputs.dy, i));
      inputs.weight2 = inputs.weight;
    }
    const double error = error_of_dx(op, inputs);
    EXPECT_LE(error, 1) << op.name() << ", seed " << seed;
    worst = std::max(worst, error);
  }
  EXPECT_GT(worst, 0.3);  // or what is measured is not what is bounded
}

TEST(Contract_BackwardPair, PastTheCaches) {
  const PairOperation op = pair_of_type(Kind::layer, DType::f32, 1040);
  const PairTensors inputs = pair_inputs(op, 2100);
  const auto run = gradients_on_target(internal::active_target());
  const PairTensors expected = one_by_one(internal::active_target(), op, inputs);
  EXPECT_EQ(difference(run_pair(run, op, inputs, {}, pool_executor(2)), expected), "");
  EXPECT_EQ(difference(run_pair(run, op, inputs, {DxAt::dy2}), expected), "");
}

TEST(Contract_BackwardPair, WithoutRows) {
  PairOperation op = pair_of_type(Kind::layer, DType::f32, 5);
  PairTensors inputs = pair_inputs(op, 0);
  const Shape shape{0, 5}, normalized{5};
  Array* const gradients[] = {&inputs.dgamma, &inputs.dbeta, &inputs.dgamma2, &inputs.dbeta2};
  Backward b;
  b.x = b.dy = {nullptr, DType::f32, shape, {}};
  b.normalized_shape = normalized;
  b.dweight = view(*gradients[0], normalized);
  b.dbias = view(*gradients[1], normalized);
  b.dweight2 = view(*gradients[2], normalized);
  b.dbias2 = view(*gradients[3], normalized);
  for (const bool of_dx : {false, true}) {
    for (Array* gradient : gradients) *gradient = Array(DType::f32, std::vector<double>(5, 7));
    b.dweight.data = gradients[0]->data();
    b.dbias.data = gradients[1]->data();
    b.dweight2.data = gradients[2]->data();
    b.dbias2.data = gradients[3]->data();
    float unused = 0;
    if (of_dx) b.dx = {&unused, DType::f32, shape, {}};
    if (of_dx) b.dy2 = {&unused, DType::f32, shape, {}};
    run(b);
    for (const Array* gradient : gradients) EXPECT_EQ(bytes_of(*gradient), filled(DType::f32, 5, 0));
  }
}

}  // namespace
}  // namespace evenorm::testing
