// Passes at every magnitude, on every target: within the bounds of docs/numerics.md, with the bits of the separate
// steps of fused forms, and with equal bits for rows alone and together. x, dy, residual, gamma, beta and eps each take
// all exponents of their types. dx ranges from the end of its range to subnormal numbers. Rows have one magnitude or
// several.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "support/magnitudes.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::BackwardOperation;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::Random;
using contracts::runnable_targets;

std::vector<int> gammas_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {-1070, -664, -301, 0, 99, 101, 600, 1020};
    case DType::f16:
      return {-23, -14, 0, 14};
    default:
      return {-130, -89, -30, 0, 31, 64, 124};
  }
}
std::vector<int> results_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {-1071, -1022, -900, -300, 0, 300, 900, 1021};
    case DType::f16:
      return {-22, -14, -5, 0, 8, 14};
    default:
      return {-146, -126, -119, -60, 0, 60, 106, 125};
  }
}

// eps far below the variance, near it, or far above it.
double gradient_eps(Random& random, int x) {
  constexpr double kUsual[] = {0, 0, 0, 1e-5, 0x1p-1074, 1e-300, 1e300};
  return eps_beside(random, x, kUsual);
}

// dy and the gradients have x's type or the arithmetic's.
BackwardOperation choose_operation(Random& random, DType dtype, std::size_t cols) {
  BackwardOperation op = contracts::same_type_backward(random.next() % 2 == 0 ? Kind::layer : Kind::rms, dtype, cols);
  const DType arithmetic = op.forward.arithmetic();
  if (random.below(3) == 0) op.dx = op.dgamma = op.dbeta = arithmetic;
  if (random.below(4) == 0) op.forward.y = arithmetic;
  op.forward.zero_centered = random.below(8) == 0;
  return op;
}

MagnitudePass choose_pass(std::uint64_t turn, DType dtype, int gamma, std::size_t cols) {
  Random random(turn * 0x9E3779B97F4A7C15);
  constexpr std::size_t kRows[] = {1, 3, 4, 4, 5, 8, 8, 9};
  MagnitudePass pass{choose_operation(random, dtype, cols), {}, gamma, turn};
  if (gamma == 0 && random.next() % 2 == 0) {
    pass.op.forward.weight.reset();
    pass.op.forward.zero_centered = false;
  }
  pass.rows.resize(kRows[random.below(std::size(kRows))]);
  return pass;
}

// Rows of one magnitude, then rows of several.
void try_one_magnitude(MagnitudePass pass, const RowMagnitude& row, Findings& findings) {
  Random random(pass.seed);
  std::fill(pass.rows.begin(), pass.rows.end(), row);
  pass.op.forward.eps = gradient_eps(random, row.x);
  try_gradients(pass, findings);
}
void try_mixed_magnitudes(MagnitudePass pass, const std::vector<int>& xs, const std::vector<int>& results,
                          Findings& findings) {
  Random random(pass.seed);
  for (RowMagnitude& row : pass.rows) row = {xs[random.below(xs.size())], results[random.below(results.size())]};
  pass.op.forward.eps = gradient_eps(random, pass.rows[0].x);
  try_gradients(pass, findings);
}

// `every`: tries one in this many combinations.
void sweep_gradients(DType dtype, int step, std::size_t every, std::size_t (*cols)(std::size_t), Findings& findings) {
  const std::vector<int> xs = exponents_by(dtype, step), results = results_of(dtype);
  std::size_t combination = 0, turn = 0;
  for (const int gamma : gammas_of(dtype)) {
    for (const int x : xs) {
      for (const int result : results) {
        if (combination++ % every != 0) continue;
        try_one_magnitude(choose_pass(turn, dtype, gamma, cols(turn)), {x, result}, findings);
        if (turn % 4 == 0) {
          try_mixed_magnitudes(choose_pass(turn + 1000000, dtype, gamma, cols(turn)), xs, results, findings);
        }
        ++turn;
      }
    }
  }
}

class Contract_Magnitudes : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_Magnitudes, GradientsOfShortRowsKeepTheContracts) {
  Findings findings;
  sweep_gradients(GetParam(), usual_step(GetParam()), GetParam() == DType::f64 ? 3 : 2, usual_cols, findings);
}

TEST_P(Contract_Magnitudes, GradientsOfRowsOfTwoBlocksKeepTheContracts) {
  Findings findings;
  const auto cols = [](std::size_t) { return std::size_t{1030}; };
  sweep_gradients(GetParam(), usual_step(GetParam()), GetParam() == DType::f16 ? 31 : 197, cols, findings);
}

TEST_P(Contract_Magnitudes, GradientsOfShortRowsKeepTheContracts_Slow) {
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1";
  Findings findings;
  sweep_gradients(GetParam(), usual_step(GetParam()) / 8, 1, usual_cols, findings);
}

// Thousands of rows, shared out over threads. Rows of equal magnitude are consecutive, or alternate with others.
TEST_P(Contract_Magnitudes, GradientsKeepTheContractsForAnyThreads) {
  constexpr std::size_t kRows = 2200, kCols = 16;
  const std::vector<int> xs = exponents_by(GetParam(), usual_step(GetParam())), results = results_of(GetParam());
  for (const std::size_t run : {1, 8}) {
    MagnitudePass pass{contracts::same_type_backward(Kind::layer, GetParam(), kCols), {}, 0, run};
    pass.op.forward.eps = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::size_t magnitude = r / run * 7;
      pass.rows.push_back({xs[magnitude % xs.size()], results[magnitude / xs.size() % results.size()]});
    }
    const contracts::BackwardInputs inputs = pass.inputs();
    const auto expected = run_backward(contracts::gradients_on_target(runnable_targets()[0]), pass.op, inputs);
    for (const internal::Target target : runnable_targets()) {
      for (const Executor& executor : {Executor{}, pool_executor(2)}) {
        EXPECT_TRUE(run_backward(contracts::gradients_on_target(target), pass.op, inputs, {}, executor)
                        .has_the_bits_of(expected))
            << internal::name(target) << ", runs of " << run << ", " << executor.threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_Magnitudes, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// --- the forward pass, plain and fused -----------------------------------------------------------------------------

enum class Form { plain, residual, int8, given_int8, sharded, residual_int8 };
constexpr Form kForms[] = {Form::plain,      Form::residual, Form::int8,
                           Form::given_int8, Form::sharded,  Form::residual_int8};

std::vector<int> factors_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {-1072, -1000, -301, -30, 0, 99, 600, 1022};
    case DType::f16:
      return {-23, -14, 0, 13};
    default:
      return {-131, -125, -119, -30, 0, 31, 100, 126};
  }
}

int choose(Random& random, const std::vector<int>& exponents) { return exponents[random.below(exponents.size())]; }

double forward_eps(Random& random, int x) {
  constexpr double kUsual[] = {0, 0, 1e-5, 0x1p-1074, 1e-300, 0x1p251, 0x1.1p251, 1e300};
  return eps_beside(random, x, kUsual);
}

FusedMagnitude plain_pass(Random& random, DType dtype, std::size_t cols) {
  FusedMagnitude pass{
      FusedOperation{contracts::same_type(random.next() % 2 == 0 ? Kind::layer : Kind::rms, dtype, cols)}, {}};
  contracts::Operation& norm = pass.op.norm;
  const std::vector<int> factors = factors_of(dtype);
  pass.gamma = choose(random, factors);
  pass.beta = choose(random, factors);
  if (random.below(3) == 0) norm.bias.reset();
  if (random.below(4) == 0) norm.weight.reset();
  norm.zero_centered = norm.weight && random.below(5) == 0;
  if (random.below(4) == 0) norm.y = norm.arithmetic();
  return pass;
}

void add_form(FusedMagnitude& pass, Form form, Random& random) {
  FusedOperation& op = pass.op;
  const DType dtype = op.norm.x;
  if (form == Form::residual || form == Form::residual_int8) {
    op.residual = dtype;
    pass.residual = static_cast<int>(random.below(9)) * 8 - 40;
    op.sum = random.below(4) != 0;
    constexpr double kScales[] = {1, -1, 0.1, 0x1p-60, -0x1.8p60, 0x1p-126};
    op.residual_scale = kScales[random.below(std::size(kScales))];
  }
  if (form == Form::int8 || form == Form::given_int8 || form == Form::residual_int8) op.norm.y = DType::i8;
  if (form == Form::given_int8) {
    const double fraction = 1 + random.uniform();
    op.given_scale = std::ldexp(fraction, static_cast<int>(random.below(252)) - 126);
  }
  pass.sharded = form == Form::sharded && dtype != DType::f64;  // processes cannot scale rows of f64
}

FusedMagnitude choose_pass(std::uint64_t turn, DType dtype, Form form, std::size_t cols) {
  Random random(turn * 0x9E3779B97F4A7C15);
  constexpr std::size_t kRows[] = {1, 3, 4, 5, 8, 9};
  FusedMagnitude pass = plain_pass(random, dtype, cols);
  add_form(pass, form, random);
  pass.seed = turn;
  pass.x.resize(kRows[random.below(std::size(kRows))]);
  return pass;
}

// Tries each exponent of x `times` times in each form, in rows of one magnitude and in as many passes of several.
void sweep_forward(DType dtype, int step, std::size_t times, std::size_t (*cols)(std::size_t), Findings& findings) {
  std::vector<int> xs = exponents_by(dtype, step);
  std::size_t turn = 0;
  for (const Form form : kForms) {
    for (const int x : xs) {
      for (std::size_t i = 0; i < times; ++i, ++turn) {
        FusedMagnitude pass = choose_pass(turn, dtype, form, cols(turn));
        Random random(turn);
        std::fill(pass.x.begin(), pass.x.end(), x);
        pass.op.norm.eps = forward_eps(random, x);
        try_forward(pass, findings);
        for (int& exponent : pass.x) exponent = choose(random, xs);
        try_forward(pass, findings);
      }
    }
  }
}

class Contract_MagnitudesForward : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_MagnitudesForward, ShortRowsKeepTheContracts) {
  Findings findings;
  sweep_forward(GetParam(), usual_step(GetParam()), 3, usual_cols, findings);
}

TEST_P(Contract_MagnitudesForward, RowsOfTwoBlocksKeepTheContracts) {
  Findings findings;
  sweep_forward(
      GetParam(), 16 * usual_step(GetParam()), 1, [](std::size_t) { return std::size_t{1030}; }, findings);
}

TEST_P(Contract_MagnitudesForward, ShortRowsKeepTheContracts_Slow) {
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1";
  Findings findings;
  sweep_forward(GetParam(), usual_step(GetParam()) / 8, 20, usual_cols, findings);
}

TEST_P(Contract_MagnitudesForward, RowsKeepTheContractsForAnyThreads) {
  constexpr std::size_t kRows = 2200, kCols = 32;
  const std::vector<int> xs = exponents_by(GetParam(), usual_step(GetParam()));
  for (const Form form : kForms) {
    FusedMagnitude pass = choose_pass(5, GetParam(), form, kCols);
    for (std::size_t r = 0; r < kRows; ++r) pass.x.push_back(xs[r / 8 * 7 % xs.size()]);
    const FusedInputs inputs = pass.inputs();
    const FusedOutcome expected = run_fused(contracts::on_target(runnable_targets()[0]), pass.op, inputs);
    for (const internal::Target target : runnable_targets()) {
      for (const Executor& executor : {Executor{}, pool_executor(2)}) {
        EXPECT_EQ(run_fused(contracts::on_target(target), pass.op, inputs, {}, executor).difference_to(expected), "")
            << pass.op.name() << " on " << internal::name(target) << ", " << executor.threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_MagnitudesForward, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

}  // namespace
}  // namespace evenorm::testing
