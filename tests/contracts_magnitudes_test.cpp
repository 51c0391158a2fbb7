// Passes at every magnitude, on every target: within the bounds of docs/numerics.md, with the bits of the separate
// steps of fused forms, and with equal bits for rows alone and together. x, dy, residual, gamma, beta and eps each take
// all exponents of their types. dx ranges from the end of its range to subnormal numbers. Rows have one magnitude or
// several.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "contracts/digests.hpp"
#include "reference/reference.hpp"
#include "support/cases.hpp"
#include "support/names.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::Case;
using contracts::Inputs;
using contracts::kAllTypes;
using contracts::Operation;
using contracts::Outcome;
using contracts::Random;
using reference::Real;

// --- numbers

using Exponents = std::vector<int>;

std::pair<int, int> range_of(DType dtype) {
  return {std::ilogb(contracts::smallest_subnormal(dtype)), std::ilogb(contracts::largest_finite(dtype))};
}

// About every `step`-th exponent of the type, and the exponents around which a kernel changes its method: rstd near
// 2^32 and 2^300, squares beyond f64's range or where section 4 of docs/numerics.md scales, and subnormals.
Exponents exponents_by(DType dtype, int step) {
  const auto [least, largest] = range_of(dtype);
  Exponents all = {least + 1, largest - 1};
  for (int e = -step * 200; e <= largest; e += step) {
    if (e >= least) all.push_back(e);
  }
  for (const int e : {0, 31, 33, 63, 65, 100, 126, 299, 301, 449, 451, 479, 481, 511, 1021}) {
    for (const int signed_e : {e, -e}) {
      if (signed_e > least && signed_e < largest) all.push_back(signed_e);
    }
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}
int usual_step(DType dtype) { return dtype == DType::f64 ? 64 : 8; }

// By kind of type: f64, f16, and the two with f32's exponents.
Exponents of_type(DType dtype, const Exponents& f64, const Exponents& f16, const Exponents& others) {
  return dtype == DType::f64 ? f64 : dtype == DType::f16 ? f16 : others;
}
Exponents gammas_of(DType dtype) {
  return of_type(dtype, {-1070, -664, -301, 0, 99, 101, 600, 1020}, {-23, -14, 0, 14},
                 {-130, -89, -30, 0, 31, 64, 124});
}
Exponents results_of(DType dtype) {
  return of_type(dtype, {-1071, -1022, -900, -300, 0, 300, 900, 1021}, {-22, -14, -5, 0, 8, 14},
                 {-146, -126, -119, -60, 0, 60, 106, 125});
}
Exponents factors_of(DType dtype) {
  return of_type(dtype, {-1072, -1000, -301, -30, 0, 99, 600, 1022}, {-23, -14, 0, 13},
                 {-131, -125, -119, -30, 0, 31, 100, 126});
}
int choose(Random& random, const Exponents& exponents) { return exponents[random.below(exponents.size())]; }

// 2^exponent times the values, clamped to the type's range.
Array scaled(DType dtype, const std::vector<double>& values, int exponent) {
  const double largest = contracts::largest_finite(dtype);
  Array array(dtype, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    array.set(i, std::clamp(std::ldexp(values[i], exponent), -largest, largest));
  }
  return array;
}

// Rows alternately have a small mean, a large mean, or an outlier.
Array row_of_magnitude(DType dtype, std::size_t cols, int exponent, std::uint64_t seed) {
  Random random(seed * 977 + cols);
  std::vector<double> values(cols);
  for (double& v : values) v = random.normal();
  if (seed % 4 == 1) {
    for (double& v : values) v = 0.75 + v / 8;
  }
  if (seed % 4 == 3) values[random.below(cols)] *= 0x1p12;
  return scaled(dtype, values, exponent);
}

// Of either sign and without 0.
Array factors_of_magnitude(contracts::Type dtype, std::size_t cols, int exponent, std::uint64_t seed) {
  if (!dtype) return {};
  Random random(seed * 1009 + cols);
  std::vector<double> values(cols);
  for (double& v : values) {
    const double magnitude = 1 + random.uniform();
    v = random.next() % 4 == 0 ? -magnitude : magnitude;
  }
  return scaled(*dtype, values, exponent);
}

// eps near x^2, far above it, or a usual one.
double choose_eps(Random& random, int x, std::span<const double> usual) {
  const std::size_t which = random.below(usual.size() + 2);
  if (which < usual.size()) return usual[which];
  return std::ldexp(1 + random.uniform(), std::clamp(2 * x + (which % 2 == 0 ? 0 : 40), -1070, 1020));
}

// --- passes

// Counts all failures, and reports the first ones.
class Findings {
 public:
  ~Findings() { EXPECT_EQ(count_, 0u) << text_; }
  void add(const std::string& broken, const std::string& what) {
    if (!broken.empty() && ++count_ <= 12) text_ += what + ": " + broken + "\n";
  }

 private:
  std::size_t count_ = 0;
  std::string text_;
};

struct Pass {
  Operation op;
  Exponents x{}, result{};                // of each row; dy is chosen so that dx has the magnitude `result`
  int gamma = 0, beta = 0, residual = 0;  // the last one relative to x
  std::uint64_t seed = 1;

  // One row's dy: normal, or partly parallel to xhat, so that the terms of dx cancel.
  Array dy(const Array& x_row, std::size_t row) const {
    const std::vector<Real> wide = reference::widen(op.x, x_row.data(), x_row.size());
    const reference::Moments moments = reference::moments(op.kind, wide);
    const Real rstd = reference::rstd(moments, op.eps);
    const std::vector<Real> xhat = reference::apply(wide, moments, rstd, {});
    const int of_rstd = rstd == 0 ? 0 : std::ilogb(static_cast<double>(std::min(rstd, Real{0x1p1023})));
    const auto [least, largest] = range_of(op.y);
    Random random(seed * 31 + row);
    std::vector<double> values;
    for (const Real v : xhat) values.push_back(random.normal() + (row % 2 == 0 ? 0 : 0.9) * static_cast<double>(v));
    return scaled(op.y, values, std::clamp(result[row] - (op.weight ? gamma : 0) - of_rstd, least, largest));
  }

  Inputs inputs() const {
    Inputs in{Array(op.x, std::size_t{0})};
    in.weight = factors_of_magnitude(op.weight, op.cols, gamma, seed);
    in.bias = factors_of_magnitude(op.bias, op.cols, beta, seed + 1);
    if (op.residual) in.residual = Array(*op.residual, std::size_t{0});
    if (op.is_backward()) in.dy = Array(op.y, std::size_t{0});
    for (std::size_t r = 0; r < x.size(); ++r) {
      const Array row = row_of_magnitude(op.x, op.cols, x[r], seed + r);
      in.x.append(row);
      if (op.is_backward()) in.dy.append(dy(row, r));
      if (!op.residual) continue;
      const auto [least, largest] = range_of(*op.residual);
      const int exponent = std::clamp(x[r] + residual - std::ilogb(op.residual_scale), least, largest - 4);
      in.residual.append(row_of_magnitude(*op.residual, op.cols, exponent, seed + r + 100));
    }
    return in;
  }
  std::string name() const {
    std::string text = "gamma 2^" + std::to_string(gamma) + ", beta 2^" + std::to_string(beta) + ", residual 2^" +
                       std::to_string(residual) + ", seed " + std::to_string(seed) + ", rows";
    for (std::size_t r = 0; r < x.size(); ++r) {
      text += " 2^" + std::to_string(x[r]) + (result.empty() ? "" : ":2^" + std::to_string(result[r]));
    }
    return text;
  }
  Case plain() const { return case_of(op, x.size()); }
};

// Bounds, and equal bits: together, alone, and in one of the ways without more rows.
void try_pass(const Pass& pass, Findings& findings) {
  const Case c = pass.plain();
  const Inputs inputs = pass.inputs();
  const Outcome plain = contracts::plain_outcome(c, inputs);
  std::vector<std::string> ways = contracts::ways_of(c);
  std::erase_if(ways, [](const std::string& way) { return way.find("repeat") != std::string::npos; });
  findings.add(contracts::beyond_bounds(c, inputs, plain), c.text() + ", " + pass.name());
  for (const std::string& way : {std::string(), std::string("alone"), ways[pass.seed % ways.size()]}) {
    findings.add(contracts::differences(contracts::with_way(c, way), inputs, plain), pass.name());
  }
  if (pass.op.dx != pass.op.arithmetic()) return;
  Case sum = c;  // with a further gradient of dx's magnitude or of another
  sum.op.dsum = sum.op.dx;
  Inputs with_dsum = inputs;
  Random random(pass.seed);
  with_dsum.dsum = Array(*sum.op.dsum, inputs.x.size());
  for (std::size_t i = 0; i < inputs.x.size(); ++i) {
    const double value = contracts::value_at(plain.dx, i),
                 factor = random.normal() * (pass.seed % 3 == 0 ? 0x1p-30 : 1);
    with_dsum.dsum.set(i, std::isfinite(value) ? factor * value : 1);
  }
  findings.add(contracts::differences(sum, with_dsum, contracts::plain_outcome(sum, with_dsum)),
               pass.name() + ", with dsum");
}

std::size_t usual_cols(std::size_t turn) {
  constexpr std::size_t kCols[] = {2, 5, 16, 1, 5, 64, 2};
  return kCols[turn % std::size(kCols)];
}
std::size_t two_blocks(std::size_t) { return 1030; }

// --- gradients

// dy and the gradients have x's type or the arithmetic's.
Pass gradient_pass(std::uint64_t turn, DType dtype, int gamma, std::size_t cols) {
  Random random(turn * 0x9E3779B97F4A7C15);
  constexpr std::size_t kRows[] = {1, 3, 4, 4, 5, 8, 8, 9};
  Pass pass{.op = contracts::same_type_backward(random.next() % 2 == 0 ? Kind::layer : Kind::rms, dtype, cols)};
  const DType arithmetic = pass.op.arithmetic();
  if (random.below(3) == 0) pass.op.dx = pass.op.dgamma = pass.op.dbeta = arithmetic;
  if (random.below(4) == 0) pass.op.y = arithmetic;
  pass.op.zero_centered = random.below(8) == 0;
  if (gamma == 0 && random.next() % 2 == 0) {
    pass.op.weight.reset();
    pass.op.zero_centered = false;
  }
  pass.gamma = gamma;
  pass.seed = turn;
  pass.x.resize(kRows[random.below(std::size(kRows))]);
  pass.result.resize(pass.x.size());
  return pass;
}

// Tries one in `every` combinations, in rows of one magnitude; every fourth pass also in rows of several.
void sweep_gradients(DType dtype, int step, std::size_t every, std::size_t (*cols)(std::size_t), Findings& findings) {
  constexpr double kUsual[] = {0, 0, 0, 1e-5, 0x1p-1074, 1e-300, 1e300};
  const Exponents xs = exponents_by(dtype, step), results = results_of(dtype);
  std::size_t combination = 0, turn = 0;
  for (const int gamma : gammas_of(dtype)) {
    for (const int x : xs) {
      for (const int result : results) {
        if (combination++ % every != 0) continue;
        for (const std::size_t several : {0, 1}) {
          if (several == 1 && turn % 4 != 0) continue;
          Pass pass = gradient_pass(turn + several * 1000000, dtype, gamma, cols(turn));
          Random random(pass.seed);
          for (std::size_t r = 0; r < pass.x.size(); ++r) {
            pass.x[r] = several == 0 ? x : choose(random, xs);
            pass.result[r] = several == 0 ? result : choose(random, results);
          }
          pass.op.eps = choose_eps(random, pass.x[0], kUsual);
          try_pass(pass, findings);
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
  sweep_gradients(GetParam(), usual_step(GetParam()), GetParam() == DType::f16 ? 31 : 197, two_blocks, findings);
}
TEST_P(Contract_Magnitudes, GradientsOfShortRowsKeepTheContracts_Slow) {
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1";
  Findings findings;
  sweep_gradients(GetParam(), usual_step(GetParam()) / 8, 1, usual_cols, findings);
}

void expect_same_for_threads(const Pass& pass) {
  const Case c = pass.plain();
  const Inputs inputs = pass.inputs();
  const Outcome plain = contracts::plain_outcome(c, inputs);
  for (const char* way : {"threads=1", "threads=2"}) {
    EXPECT_EQ(contracts::differences(contracts::with_way(c, way), inputs, plain), "");
  }
}

// Thousands of rows, shared out over threads. Rows of equal magnitude are consecutive, or alternate with others.
TEST_P(Contract_Magnitudes, GradientsKeepTheContractsForAnyThreads) {
  const Exponents xs = exponents_by(GetParam(), usual_step(GetParam())), results = results_of(GetParam());
  for (const std::size_t run : {1, 8}) {
    Pass pass{.op = contracts::same_type_backward(Kind::layer, GetParam(), 16), .seed = run};
    pass.op.eps = 0;
    for (std::size_t r = 0; r < 2200; ++r) {
      const std::size_t magnitude = r / run * 7;
      pass.x.push_back(xs[magnitude % xs.size()]);
      pass.result.push_back(results[magnitude / xs.size() % results.size()]);
    }
    expect_same_for_threads(pass);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_Magnitudes, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// --- the forward pass, plain and fused

enum class Form { plain, residual, int8, given_int8, sharded, residual_int8 };
constexpr Form kForms[] = {Form::plain,      Form::residual, Form::int8,
                           Form::given_int8, Form::sharded,  Form::residual_int8};

Pass forward_pass(std::uint64_t turn, DType dtype, Form form, std::size_t cols) {
  Random random(turn * 0x9E3779B97F4A7C15);
  constexpr std::size_t kRows[] = {1, 3, 4, 5, 8, 9};
  Pass pass{.op = contracts::same_type(random.next() % 2 == 0 ? Kind::layer : Kind::rms, dtype, cols)};
  Operation& op = pass.op;
  const Exponents factors = factors_of(dtype);
  pass.gamma = choose(random, factors);
  pass.beta = choose(random, factors);
  if (random.below(3) == 0) op.bias.reset();
  if (random.below(4) == 0) op.weight.reset();
  op.zero_centered = op.weight && random.below(5) == 0;
  if (random.below(4) == 0) op.y = op.arithmetic();
  if (form == Form::residual || form == Form::residual_int8) {
    op.residual = dtype;
    pass.residual = static_cast<int>(random.below(9)) * 8 - 40;
    op.sum = random.below(4) != 0;
    constexpr double kScales[] = {1, -1, 0.1, 0x1p-60, -0x1.8p60, 0x1p-126};
    op.residual_scale = kScales[random.below(std::size(kScales))];
  }
  if (form == Form::int8 || form == Form::given_int8 || form == Form::residual_int8) op.y = DType::i8;
  if (form == Form::given_int8) {
    const double fraction = 1 + random.uniform();
    op.given_scale = std::ldexp(fraction, static_cast<int>(random.below(252)) - 126);
  }
  pass.seed = turn;
  pass.x.resize(kRows[random.below(std::size(kRows))]);
  return pass;
}

// As one process of a norm over processes. These cannot scale rows of f64.
void try_sharded(const Pass& pass, Findings& findings) {
  if (pass.op.x == DType::f64) return;
  const Inputs inputs = pass.inputs();
  const Outcome plain = contracts::plain_outcome(pass.op, inputs);
  for (const internal::Target target : contracts::runnable_targets()) {
    const contracts::Runner run = sharded_on(target, {static_cast<std::int64_t>(pass.op.cols)});
    const contracts::Layout with_strides{.x = {.gap = 1}, .y = {.gap = 1}};
    findings.add(run_operation(run, pass.op, inputs, with_strides).difference_to(plain), pass.name() + ", sharded");
  }
}

// Tries each exponent of x `times` times in each form, in rows of one magnitude and in as many passes of several.
void sweep_forward(DType dtype, int step, std::size_t times, std::size_t (*cols)(std::size_t), Findings& findings) {
  constexpr double kUsual[] = {0, 0, 1e-5, 0x1p-1074, 1e-300, 0x1p251, 0x1.1p251, 1e300};
  const Exponents xs = exponents_by(dtype, step);
  std::size_t turn = 0;
  for (const Form form : kForms) {
    for (const int x : xs) {
      for (std::size_t i = 0; i < times; ++i, ++turn) {
        Pass pass = forward_pass(turn, dtype, form, cols(turn));
        Random random(turn);
        std::ranges::fill(pass.x, x);
        pass.op.eps = choose_eps(random, x, kUsual);
        form == Form::sharded ? try_sharded(pass, findings) : try_pass(pass, findings);
        for (int& exponent : pass.x) exponent = choose(random, xs);
        form == Form::sharded ? try_sharded(pass, findings) : try_pass(pass, findings);
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
  sweep_forward(GetParam(), 16 * usual_step(GetParam()), 1, two_blocks, findings);
}
TEST_P(Contract_MagnitudesForward, ShortRowsKeepTheContracts_Slow) {
  if (std::getenv("EVENORM_SLOW") == nullptr) GTEST_SKIP() << "set EVENORM_SLOW=1";
  Findings findings;
  sweep_forward(GetParam(), usual_step(GetParam()) / 8, 20, usual_cols, findings);
}

TEST_P(Contract_MagnitudesForward, RowsKeepTheContractsForAnyThreads) {
  const Exponents xs = exponents_by(GetParam(), usual_step(GetParam()));
  for (const Form form : kForms) {
    Pass pass = forward_pass(5, GetParam(), form, 32);
    pass.x.clear();
    for (std::size_t r = 0; r < 2200; ++r) pass.x.push_back(xs[r / 8 * 7 % xs.size()]);
    expect_same_for_threads(pass);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_MagnitudesForward, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

}  // namespace
}  // namespace evenorm::testing
