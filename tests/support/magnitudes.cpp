// Implements magnitudes.hpp.
#include "support/magnitudes.hpp"

#include <algorithm>
#include <cmath>

#include "contracts/climb_rows.hpp"
#include "reference/reference.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::Random;
using reference::Real;

// 2^exponent times the values, clamped to the type's range.
Array scaled(DType dtype, const std::vector<double>& values, int exponent) {
  const double largest = contracts::largest_finite(dtype);
  Array array(dtype, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    array.set(i, std::clamp(std::ldexp(values[i], exponent), -largest, largest));
  }
  return array;
}

bool same_bytes(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.bytes(), b.bytes());
}

}  // namespace

Exponents exponents_of(DType dtype) {
  return {std::ilogb(contracts::smallest_subnormal(dtype)), std::ilogb(contracts::largest_finite(dtype))};
}

std::vector<int> exponents_by(DType dtype, int step) {
  const auto [least, largest] = exponents_of(dtype);
  std::vector<int> all;
  for (int e = -step * 200; e <= largest; e += step) {
    if (e >= least) all.push_back(e);
  }
  // rstd near 2^32 and 2^300, squares beyond f64's range or where section 4 of docs/numerics.md scales, and subnormals.
  for (const int e : {0, 31, 33, 63, 65, 100, 126, 299, 301, 449, 451, 479, 481, 511, 1021}) {
    for (const int signed_e : {e, -e}) {
      if (signed_e > least && signed_e < largest) all.push_back(signed_e);
    }
  }
  all.push_back(least + 1);
  all.push_back(largest - 1);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

int usual_step(DType dtype) { return dtype == DType::f64 ? 64 : 8; }

std::size_t usual_cols(std::size_t turn) {
  constexpr std::size_t kCols[] = {2, 5, 16, 1, 5, 64, 2};
  return kCols[turn % std::size(kCols)];
}

double eps_beside(Random& random, int x, std::span<const double> usual) {
  const std::size_t which = random.below(usual.size() + 2);
  if (which < usual.size()) return usual[which];
  return std::ldexp(1 + random.uniform(), std::clamp(2 * x + (which % 2 == 0 ? 0 : 40), -1070, 1020));
}

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

Array factors_of_magnitude(DType dtype, std::size_t cols, int exponent, std::uint64_t seed) {
  Random random(seed * 1009 + cols);
  std::vector<double> values(cols);
  for (double& v : values) {
    const double magnitude = 1 + random.uniform();
    v = random.next() % 4 == 0 ? -magnitude : magnitude;
  }
  return scaled(dtype, values, exponent);
}

std::string on(internal::Target target) { return " on " + std::string(internal::name(target)); }

void Findings::expect(bool holds, const std::string& what) {
  constexpr std::size_t kTold = 12;
  ++tried_;
  if (holds) return;
  if (++count_ <= kTold) text_ += what + "\n";
}

// --- gradients -----------------------------------------------------------------------------------------------------

namespace {

using contracts::BackwardInputs;
using contracts::BackwardLayout;
using contracts::BackwardOperation;
using contracts::BackwardOutcome;
using contracts::BackwardRunner;
using contracts::gradients_on_target;
using contracts::InPlace;

// dy of one row: normal, or partly parallel to xhat.
Array dy_of(const MagnitudePass& pass, const Array& x, std::size_t row) {
  const contracts::Operation& op = pass.op.forward;
  const std::vector<Real> wide = reference::widen(op.x, x.data(), x.size());
  const reference::Moments moments = reference::moments(op.kind, wide);
  const Real rstd = reference::rstd(moments, op.eps);
  const std::vector<Real> xhat = reference::apply(wide, moments, rstd, {});
  const int of_rstd = rstd == 0 ? 0 : std::ilogb(static_cast<double>(std::min(rstd, Real{0x1p1023})));
  const auto [least, largest] = exponents_of(op.y);
  const int exponent = std::clamp(pass.rows[row].result - (op.weight ? pass.gamma : 0) - of_rstd, least, largest);
  Random random(pass.seed * 31 + row);
  const double share = row % 2 == 0 ? 0 : 0.9;
  std::vector<double> values;
  for (const Real v : xhat) values.push_back(random.normal() + share * static_cast<double>(v));
  return scaled(op.y, values, exponent);
}

BackwardInputs row_alone(const BackwardInputs& all, std::size_t row, std::size_t cols) {
  return {all.x.part(row * cols, cols), all.dy.part(row * cols, cols), all.weight};
}

// fl(dx + dsum) in dx's type, which is also the arithmetic's.
Array plus(const Array& dx, const Array& dsum) {
  const auto left = reference::widen(dx.dtype(), dx.data(), dx.size());
  const auto right = reference::widen(dsum.dtype(), dsum.data(), dsum.size());
  Array sum(dx.dtype(), dx.size());
  for (std::size_t i = 0; i < sum.size(); ++i) reference::store(sum.dtype(), sum.data(), i, left[i] + right[i]);
  return sum;
}

class GradientTrial {
 public:
  GradientTrial(const MagnitudePass& pass, Findings& findings)
      : op_(pass.op), seed_(pass.seed), inputs_(pass.inputs()), what_(pass.name()), findings_(findings) {
    expected_ = run_backward(gradients_on_target(first_), op_, inputs_);
  }

  void within_limits() {
    const contracts::GradientErrors errors =
        contracts::ExpectedGradients(op_.measured(), inputs_.x, inputs_.dy, inputs_.weight)
            .errors_of(expected_.dx, expected_.dgamma, expected_.dbeta);
    findings_.expect(errors.within_limits(op_.measured()), what_ + ": dx " + std::to_string(errors.dx) + " u, dgamma " +
                                                               std::to_string(errors.dgamma) + " u, dbeta " +
                                                               std::to_string(errors.dbeta) + " u");
  }

  void alone(internal::Target target) {
    const std::size_t cols = op_.forward.cols, rows = inputs_.x.size() / cols;
    BackwardOperation op = op_;
    if (seed_ % 2 == 0) op.dgamma = op.dbeta = {};
    for (std::size_t r = 0; r < rows; ++r) {
      const BackwardOutcome one = run_backward(gradients_on_target(target), op, row_alone(inputs_, r, cols));
      findings_.expect(same_bytes(one.dx, expected_.dx.part(r * cols, cols)) && one.kept_inside,
                       what_ + ", row " + std::to_string(r) + " alone" + on(target));
    }
  }

  void together(internal::Target target) {
    same_bits(run_backward(gradients_on_target(target), op_, inputs_), "together" + on(target));
    const BackwardLayout in_place{.in_place = in_place_of()};
    BackwardInputs inputs = inputs_;
    if (seed_ % 3 != 0) contracts::add_statistics(target, op_.forward, inputs);
    same_bits(run_backward(gradients_on_target(target), op_, inputs, in_place, pool_executor(2)),
              "together, in a way" + on(target));
  }

  void with_dsum(internal::Target target) {
    const DType arithmetic = op_.measured().arithmetic();
    if (op_.dx != arithmetic) return;
    const Array dsum = dsum_like(expected_.dx);
    const BackwardRunner adding = [&](Backward backward, const Executor& executor) {
      backward.dsum = {dsum.data(), arithmetic, backward.x.shape, {}};
      gradients_on_target(target)(backward, executor);
    };
    BackwardOutcome sum = expected_;
    sum.dx = plus(expected_.dx, dsum);
    findings_.expect(run_backward(adding, op_, inputs_).has_the_bits_of(sum), what_ + ", with dsum" + on(target));
  }

 private:
  InPlace in_place_of() const {
    if (op_.dx == op_.forward.x && seed_ % 5 < 2) return InPlace::of_x;
    if (op_.dx == op_.forward.y && seed_ % 5 < 4) return InPlace::of_dy;
    return InPlace::none;
  }
  void same_bits(const BackwardOutcome& outcome, const std::string& way) {
    findings_.expect(outcome.has_the_bits_of(expected_) && outcome.kept_inside, what_ + ", " + way);
  }
  // Finite numbers of dx's magnitude or of another.
  Array dsum_like(const Array& dx) const {
    Random random(seed_);
    std::vector<double> values;
    for (const Real v : reference::widen(dx.dtype(), dx.data(), dx.size())) {
      const double factor = random.normal() * (seed_ % 3 == 0 ? 0x1p-30 : 1);
      const auto value = static_cast<double>(v);
      values.push_back(std::isfinite(value) ? factor * value : 1);
    }
    return scaled(dx.dtype(), values, 0);
  }

  const internal::Target first_ = contracts::runnable_targets()[0];
  const BackwardOperation& op_;
  std::uint64_t seed_;
  BackwardInputs inputs_;
  std::string what_;
  Findings& findings_;
  BackwardOutcome expected_;
};

}  // namespace

BackwardInputs MagnitudePass::inputs() const {
  const contracts::Operation& forward = op.forward;
  BackwardInputs inputs{Array(forward.x, std::size_t{0}), Array(forward.y, std::size_t{0})};
  if (forward.weight) inputs.weight = factors_of_magnitude(*forward.weight, forward.cols, gamma, seed);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Array x = row_of_magnitude(forward.x, forward.cols, rows[r].x, seed + r);
    inputs.x.append(x);
    inputs.dy.append(dy_of(*this, x, r));
  }
  return inputs;
}

std::string MagnitudePass::name() const {
  std::string text = op.name() + ", eps " + contracts::hexadecimal(op.forward.eps) + ", gamma 2^" +
                     std::to_string(gamma) + ", seed " + std::to_string(seed) + ", rows of x and dx";
  for (const RowMagnitude& row : rows) text += " 2^" + std::to_string(row.x) + ":2^" + std::to_string(row.result);
  return text;
}

void try_gradients(const MagnitudePass& pass, Findings& findings) {
  GradientTrial trial(pass, findings);
  trial.within_limits();
  const std::vector<internal::Target> targets = contracts::runnable_targets();
  for (const internal::Target target : targets) {
    trial.alone(target);
    trial.together(target);
  }
  trial.with_dsum(targets[pass.seed % targets.size()]);
}

}  // namespace evenorm::testing
