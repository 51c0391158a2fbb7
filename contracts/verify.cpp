// Implements verify.hpp.
#include "contracts/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "contracts/accuracy.hpp"
#include "contracts/backward_accuracy.hpp"
#include "contracts/pieces.hpp"
#include "reference/reference.hpp"

namespace evenorm::contracts {
namespace {

using reference::Real;

// Stores a number of the arithmetic's type, rounded once. A NaN becomes canonical.
void store(Array& to, std::size_t i, double value) {
  if (value != value) value = std::numeric_limits<double>::quiet_NaN();
  if (to.dtype() == DType::f64) {
    std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
  } else if (to.dtype() == DType::f32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(to.data() + i * sizeof narrow, &narrow, sizeof narrow);
  } else {
    to.set(i, value);
  }
}

template <class A>
Array quantised_rows(const std::vector<double>& y, std::size_t cols, double given_scale, Array& scale) {
  Array integers(DType::i8, y.size());
  for (std::size_t first = 0, row = 0; first < y.size(); first += cols, ++row) {
    double largest = 0;
    for (std::size_t i = first; i < first + cols; ++i) {
      largest = std::isfinite(y[i]) && !std::isnan(largest) ? std::max(largest, std::fabs(y[i])) : std::nan("");
    }
    const auto m = static_cast<float>(largest);
    const bool finite = std::isfinite(m);
    float factor = finite && m != 0 ? std::min(127.0f / m, std::numeric_limits<float>::max()) : 0;
    if (given_scale != 0) factor = 1.0f / static_cast<float>(given_scale);
    scale.set(row, static_cast<double>(finite ? m / 127.0f : std::numeric_limits<float>::quiet_NaN()));
    for (std::size_t i = first; i < first + cols; ++i) {
      const A product = static_cast<A>(y[i]) * static_cast<A>(factor);
      const A clamped = std::fmax(std::fmin(std::isnan(product) ? A{0} : product, A{127}), A{-127});
      integers.data()[i] = static_cast<std::byte>(static_cast<int>(std::nearbyint(clamped)));
    }
  }
  return integers;
}

Executor executor_of(const Way& way) {
  return way.tasks != 0 ? reversed_executor(way.tasks) : way.threads == 1 ? Executor{} : pool_executor(way.threads);
}

Runner runner_of(const Way& way, internal::Target target) {
  switch (way.entry) {
    case Entry::scratch:
      return in_scratch(target, way.amount);
    case Entry::pieces:
      return in_pieces(target, way.amount);
    case Entry::c:
      return through_c();
    case Entry::plan:
      return through_plan();
    default:
      return on_target(target);
  }
}

// The operation as the way asks for it.
Operation asked_for(const Case& c) {
  Operation op = c.op;
  const unsigned only = c.way.alone ? kDx : c.way.only != 0 ? c.way.only : ~0U;
  if (!op.is_backward()) return op;
  if ((only & kDx) == 0) op.dx.reset();
  if ((only & kDgamma) == 0) op.dgamma.reset();
  if ((only & kDbeta) == 0) op.dbeta.reset();
  return op;
}

Inputs repeated(Inputs inputs, std::size_t times) {
  const Inputs once = inputs;
  for (std::size_t i = 1; i < times; ++i) {
    inputs.x.append(once.x);
    if (!inputs.residual.empty()) inputs.residual.append(once.residual);
  }
  return inputs;
}

// --- bounds

// NaN exactly where `must_be_nan` says so, unless a finite number overflows; and canonical.
bool is_canonical(const Array& values, const std::function<bool(std::size_t)>& must_be_nan) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = value_at(values, i);
    const bool right = value == value
                           ? !must_be_nan(i)
                           : bits_at(values, i) == reference::round_to(values.dtype(), static_cast<Real>(value));
    if (!right) return false;
  }
  return true;
}

std::string forward_beyond_bounds(const Operation& op, const Inputs& in, const Outcome& plain) {
  const Array rows = op.residual ? sum_of(op, in.x, in.residual) : in.x;
  const bool finite_parameters = is_finite(in.weight) && is_finite(in.bias);
  for (std::size_t r = 0; r < plain.rstd.size(); ++r) {
    const Array row = rows.part(r * op.cols, op.cols), y = plain.y.part(r * op.cols, op.cols);
    const bool finite = is_finite(row);
    const double mean = plain.mean.empty() ? (finite ? 0 : std::nan("")) : plain.mean[r];
    const Array statistics(DType::f64, std::vector<double>{mean, plain.rstd[r]});
    if (!is_canonical(statistics, [&](std::size_t) { return !finite; }))
      return fmt::format("mean or rstd of row {} is not NaN as it should be", r);
    if (op.y == DType::i8) continue;
    if (!is_canonical(y, [&](std::size_t) { return !finite; }))
      return fmt::format("y of row {} is not NaN as it should be", r);
    if (!finite || !finite_parameters) continue;
    const Errors errors = Expected(op, row, in.weight, in.bias).errors_of(y, 0, mean, plain.rstd[r]);
    if (errors.within_limits(op)) continue;
    return fmt::format("row {}: y {} u of {}, rstd {} u of {}, mean {} of what is allowed", r, errors.output,
                       output_limit(op), errors.rstd, rstd_limit(op), errors.mean);
  }
  return {};
}

// Which parts of x and dy are finite: rows of x, rows of both, columns of dy.
struct Finite {
  std::vector<bool> x_rows, rows, cols;
  bool weight, all_x;

  Finite(const Operation& op, const Inputs& in)
      : x_rows(in.x.size() / op.cols, true), rows(x_rows), cols(op.cols, true), weight(is_finite(in.weight)) {
    for (std::size_t i = 0; i < in.x.size(); ++i) {
      const bool x = std::isfinite(value_at(in.x, i)), dy = std::isfinite(value_at(in.dy, i));
      if (!x) x_rows[i / op.cols] = false;
      if (!x || !dy) rows[i / op.cols] = false;
      if (!dy) cols[i % op.cols] = false;
    }
    all_x = std::ranges::find(x_rows, false) == x_rows.end();
  }
};

// The errors of dx in the finite rows.
GradientErrors errors_of_rows(const Operation& op, const Inputs& in, const Finite& finite, const Outcome& plain) {
  const std::size_t n = op.cols;
  Array x(op.x, std::size_t{0}), dy(op.y, std::size_t{0}), dx(*op.dx, std::size_t{0});
  for (std::size_t r = 0; r < finite.rows.size() && finite.weight; ++r) {
    if (!finite.rows[r]) continue;
    x.append(in.x.part(r * n, n));
    dy.append(in.dy.part(r * n, n));
    dx.append(plain.dx.part(r * n, n));
  }
  return ExpectedGradients(op, x, dy, in.weight).errors_of(dx, {}, {});
}

// The errors of dgamma and dbeta in the finite columns. All other values are set to 0 on both sides.
GradientErrors errors_of_columns(const Operation& op, const Inputs& in, const Finite& finite, const Outcome& plain) {
  Array x = in.x, dy = in.dy, dgamma = plain.dgamma, dbeta = plain.dbeta;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!finite.x_rows[i / op.cols]) x.set(i, 0);
    if (!finite.cols[i % op.cols]) dy.set(i, 0);
  }
  for (std::size_t i = 0; i < op.cols; ++i) {
    if (finite.cols[i]) continue;
    if (!dgamma.empty()) dgamma.set(i, 0);
    if (!dbeta.empty()) dbeta.set(i, 0);
  }
  return ExpectedGradients(op, x, dy, in.weight).errors_of({}, finite.all_x ? dgamma : Array(), dbeta);
}

std::string gradients_beyond_bounds(const Operation& op, const Inputs& in, const Outcome& plain) {
  const Finite finite(op, in);
  const auto in_row = [&](std::size_t i) { return !(finite.weight && finite.rows[i / op.cols]); };
  const auto in_col = [&](std::size_t i) { return !finite.cols[i]; };
  if (!is_canonical(plain.dx, in_row)) return "dx is not NaN where and only where a row or the weight is not finite";
  if (!is_canonical(plain.dgamma, [&](std::size_t i) { return !finite.all_x || in_col(i); }) ||
      !is_canonical(plain.dbeta, in_col)) {
    return "dgamma or dbeta is not NaN where it should be";
  }
  GradientErrors errors;
  if (op.dx) errors.include(errors_of_rows(op, in, finite, plain));
  if (!op.accumulate) errors.include(errors_of_columns(op, in, finite, plain));
  if (errors.within_limits(op)) return {};
  const GradientLimits limits = gradient_limits(op);
  return fmt::format("dx {} u of {}, dgamma {} u of {}, dbeta {} u of {}", errors.dx, limits.dx, errors.dgamma,
                     limits.dgamma, errors.dbeta, limits.dbeta);
}

}  // namespace

// --- separate steps

Array sum_of(const Operation& op, const Array& x, const Array& residual) {
  const std::vector<double> xs = values_of(x), rs = values_of(residual);
  const bool wide = op.x == DType::f64 || op.residual == DType::f64;
  const auto scale = static_cast<float>(op.residual_scale);
  Array sum(x.dtype(), x.size());
  for (std::size_t i = 0; i < xs.size(); ++i) {
    store(sum, i,
          wide ? std::fma(op.residual_scale, rs[i], xs[i])
               : static_cast<double>(std::fma(scale, static_cast<float>(rs[i]), static_cast<float>(xs[i]))));
  }
  return sum;
}

Quantised quantised(const Array& y, std::size_t cols, double given_scale) {
  Quantised result{{}, Array(DType::f32, y.size() / cols)};
  const std::vector<double> values = values_of(y);
  result.y = y.dtype() == DType::f64 ? quantised_rows<double>(values, cols, given_scale, result.scale)
                                     : quantised_rows<float>(values, cols, given_scale, result.scale);
  if (given_scale != 0) result.scale = Array();
  return result;
}

Outcome plain_outcome(const Case& c, const Inputs& inputs) {
  const Runner run = on_target(runnable_targets()[0]);
  Operation op = c.op;
  Inputs in = inputs;
  if (op.residual) in.x = sum_of(op, inputs.x, inputs.residual);
  op.residual.reset();
  if (op.y == DType::i8) op.y = DType::f32;
  if (op.y != c.op.y) op.y = op.arithmetic();
  op.given_scale = 0;
  const Call call(op, in, {}, c.shape, c.axes, c.parameter);
  call.run(run);
  Outcome outcome = call.outcome();
  if (c.op.has_sum()) outcome.sum = in.x;
  if (c.op.y == DType::i8) {
    const Quantised q = quantised(outcome.y, op.cols, c.op.given_scale);
    outcome.y = q.y;
    outcome.scale = q.scale;
  }
  if (c.op.dsum) {
    // fl(dx + dsum) in the arithmetic's type, then rounded to dx's: the first step has the arithmetic's type.
    Operation first = op;
    first.dsum.reset();
    first.dx = op.arithmetic();
    const std::vector<double> dx = values_of(run_operation(run, first, in).dx), more = values_of(in.dsum);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const double sum =
          *first.dx == DType::f64 ? dx[i] + more[i] : static_cast<double>(static_cast<float>(dx[i] + more[i]));
      store(outcome.dx, i, sum);
    }
  }
  return outcome;
}

Outcome plain_outcome(const Operation& op, const Inputs& inputs) {
  return plain_outcome(case_of(op, inputs.x.size() / op.cols), inputs);
}

// --- ways

bool runs_on(const Case& c, internal::Target target) {
  const bool by_environment = c.way.entry == Entry::c || c.way.entry == Entry::plan;
  const Operation asked = asked_for(c);
  return (!by_environment || target == internal::active_target()) && asked.arithmetic() == c.op.arithmetic() &&
         asked.is_backward() == c.op.is_backward();
}

Outcome expected_of(const Case& c, const Outcome& plain) {
  Outcome expected = plain;
  const Operation op = asked_for(c);
  if (!op.dx) expected.dx = {};
  if (!op.dgamma) expected.dgamma = {};
  if (!op.dbeta) expected.dbeta = {};
  if (op.is_backward()) return expected;
  const Type& statistics = c.way.layout.statistics;
  for (std::vector<double>* statistic : {&expected.mean, &expected.rstd}) {
    if (!statistics) statistic->clear();
    for (double& value : *statistic)
      value = statistics == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value;
  }
  const Outcome once = expected;
  for (std::size_t i = 1; i < c.way.repeat; ++i) expected.append(once);
  return expected;
}

Outcome run_in_way(const Call& call, const Way& way, internal::Target target) {
  const Runner run = runner_of(way, target);
  const Executor executor = executor_of(way);
  bool kept_mode = false;
  {
    const FpModeScope scope(way.mode);
    call.run(run, executor);
    kept_mode = scope.is_as_set();
  }
  Outcome outcome = call.outcome();
  outcome.kept_inside = outcome.kept_inside && kept_mode;
  return outcome;
}

Outcome outcome_by(const Case& c, internal::Target target, const Inputs& given) {
  const Operation op = asked_for(c);
  const Way& way = c.way;
  const auto outcome_of = [&](const Inputs& inputs, const Shape& shape) {
    return run_in_way(Call(op, inputs, way.layout, shape, c.axes, c.parameter), way, target);
  };
  Inputs inputs = repeated(given, way.repeat);
  if (way.statistics_given && op.is_backward()) add_statistics(runnable_targets()[0], op, inputs);
  if (!way.alone) {
    Shape shape = c.shape;
    shape[0] *= static_cast<std::int64_t>(way.repeat);
    return outcome_of(inputs, shape);
  }
  Outcome all;
  for (std::size_t r = 0; r < inputs.x.size() / op.cols; ++r) {
    all.append(outcome_of(inputs.row(op, r), {1, static_cast<std::int64_t>(op.cols)}));
  }
  return all;
}

std::string difference_by(const Case& c, internal::Target target, const Inputs& inputs, const Outcome& plain) {
  try {
    const Outcome outcome = outcome_by(c, target, inputs);
    std::string difference = outcome.difference_to(expected_of(c, plain));
    if (!difference.empty()) return difference;
    return outcome.kept_inside ? "" : "memory beside the outputs, or the floating-point mode";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string beyond_bounds(const Case& c, const Inputs& inputs, const Outcome& plain) {
  if (!c.parameter.empty() || c.op.dsum) return {};
  return c.op.is_backward() ? gradients_beyond_bounds(c.op, inputs, plain) : forward_beyond_bounds(c.op, inputs, plain);
}

std::string differences(const Case& c, const Inputs& inputs, const Outcome& plain) {
  std::string broken;
  for (const internal::Target target : runnable_targets()) {
    if (!runs_on(c, target)) continue;
    const std::string difference = difference_by(c, target, inputs, plain);
    if (!difference.empty()) broken += fmt::format("{} on {}: {}\n", c.text(), internal::name(target), difference);
  }
  return broken;
}

std::string differences(const Case& c) {
  const Inputs inputs = inputs_of(c);
  return differences(c, inputs, plain_outcome(c, inputs));
}

std::string verify(const Case& c, const Inputs& inputs) {
  const Outcome plain = plain_outcome(c, inputs);
  const std::string beyond = beyond_bounds(c, inputs, plain);
  return (beyond.empty() ? "" : c.text() + ": " + beyond + "\n") + differences(c, inputs, plain);
}

std::string verify(const Case& c) { return verify(c, inputs_of(c)); }

}  // namespace evenorm::contracts
