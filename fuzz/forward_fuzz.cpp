// Fuzzes one norm: types, options, numbers and layout. For dense rows, every target gives the same bits, within the
// bound of the reference. The chosen layout gives the same bits on every target, for any distribution of the work and
// any floating-point mode of the caller. Nothing else is written.
#include <algorithm>
#include <cstring>

#include "contracts/accuracy.hpp"
#include "contracts/fp_mode.hpp"
#include "contracts/scattered.hpp"
#include "contracts/through_c.hpp"
#include "fuzz/norms.hpp"
#include "fuzz/support.hpp"
#include "problem/validate.hpp"
#include "rows/passes.hpp"
#include "run/schedule.hpp"

namespace evenorm::fuzz {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::Operation;
using contracts::Outcome;
using contracts::Scattered;
using contracts::Shape;
using internal::Target;

Operation choose_operation(Choices& choices, std::size_t cols) {
  Operation op;
  op.kind = choices.one_in(3) ? Kind::rms : Kind::layer;
  op.x = kAllTypes[choices.below(4)];
  op.y = choices.one_in(2) ? kAllTypes[choices.below(4)] : op.x;
  if (!choices.one_in(3)) op.weight = choices.one_in(2) ? kAllTypes[choices.below(4)] : op.x;
  if (!choices.one_in(3)) op.bias = choices.one_in(2) ? kAllTypes[choices.below(4)] : op.x;
  op.zero_centered = op.weight && choices.one_in(4);
  op.eps = choose_eps(choices);
  op.cols = cols;
  return op;
}

bool equal_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

struct Case {
  Operation op;
  Shape shape;
  contracts::AxisChoice axes;
  std::vector<std::size_t> order;  // of the tensor's elements, row by row
  Array x, weight, bias;           // x: row by row
};

void expect_within_contract(const Case& c, const Outcome& outcome) {
  const bool parameters = all_finite(c.weight, 0, c.weight.size()) && all_finite(c.bias, 0, c.bias.size());
  const std::size_t cols = c.op.cols, row_bytes = cols * size_of(c.op.x);
  for (std::size_t r = 0; r < outcome.rstd.size(); ++r) {
    const bool finite = all_finite(c.x, r * cols, cols);
    expect(is_canonical(outcome.rstd[r], !finite), "rstd is NaN in rows that are not finite, and only there");
    expect(outcome.mean.empty() || is_canonical(outcome.mean[r], !finite), "so is mean");
    for (std::size_t i = 0; i < cols; ++i) expect(is_canonical(outcome.y, r * cols + i, !finite), "so is y");
    if (!finite || !parameters) continue;
    Array row(c.op.x, cols);
    std::memcpy(row.data(), c.x.data() + r * row_bytes, row_bytes);
    const double mean = outcome.mean.empty() ? 0 : outcome.mean[r];
    const auto errors =
        contracts::Expected(c.op, row, c.weight, c.bias).errors_of(outcome.y, r * cols, mean, outcome.rstd[r]);
    if (errors.within_limits(c.op)) continue;
    throw Violation(c.op.name() + ", eps " + std::to_string(c.op.eps) + ", row " + std::to_string(r) +
                    ": errors of output " + std::to_string(errors.output) + " u, rstd " + std::to_string(errors.rstd) +
                    " u, mean " + std::to_string(errors.mean) + " of what is allowed");
  }
}

// Splits the rows anywhere, and long rows into parts of `part` blocks. schedule.cpp only splits much larger work.
void run_in_pieces(Target target, const Forward& forward, std::size_t piece, std::size_t part) {
  const internal::Problem p = internal::validate(forward);
  internal::validate_buffers(p);
  const bool stream = piece % 3 == 0 && p.x.data != p.y.data, fetch = piece % 2 == 0;
  const internal::ForwardPlan plan = internal::make_plan(p, {stream, false, fetch});
  const internal::Kernels& kernels = internal::kernels_of(target);
  const internal::Partition whole = internal::partition(p);
  const std::size_t unit = whole.runs() == 1 ? internal::kBlock : whole.run;  // columns
  const std::size_t units = (p.cols + unit - 1) / unit, parts = (units + part - 1) / part;
  for (std::size_t row = 0; row < p.rows; row += piece) {
    if (units == 1 || piece != 1) {
      internal::run_forward(kernels, p, plan, row, std::min(piece, p.rows - row));
      continue;
    }
    const auto first_of = [&](std::size_t i) { return i * part * unit; };
    const auto part_of = [&](std::size_t i) {
      const std::size_t n = std::min(part * unit, p.cols - first_of(i));
      return internal::Partition{n, std::min(whole.run, n)};
    };
    std::vector<internal::MomentNode> moments(parts);
    for (std::size_t i = parts; i-- > 0;) {
      moments[i] = internal::part_moments(kernels, p, row, first_of(i), part_of(i));
    }
    const internal::RowScalars scalars = internal::finish_row(p, row, moments.data(), parts);
    if (scalars.out_of_range) {
      internal::run_forward(kernels, p, plan, row, 1);
      continue;
    }
    for (std::size_t i = parts; i-- > 0;) {
      internal::normalise_part(kernels, p, plan, row, scalars, first_of(i), part_of(i));
    }
  }
}

enum class Way : unsigned char { serial, reversed, pieces, c };

void run_in_a_way(Way way, Target target, const Forward& forward, std::size_t amount) {
  if (way == Way::pieces) return run_in_pieces(target, forward, 1 + amount % 8, std::size_t{1} << amount % 3);
  if (way == Way::reversed) return internal::run_on(target, forward, contracts::reversed_executor(2 + amount % 7));
  if (way == Way::c && target == internal::active_target()) return contracts::through_c()(forward, {});
  internal::run_on(target, forward);
}

struct Setting {
  Scattered x, y, gamma, beta, mean, rstd;
  bool in_place;
  Way way;
  std::size_t amount;
  contracts::FpMode mode;
};

void expect_same_bits(const Case& c, Setting s, const Outcome& dense, Target target) {
  Scattered& y = s.in_place ? s.x : s.y;
  const std::vector<std::byte> x_before = s.x.memory;
  Forward forward;
  forward.kind = c.op.kind;
  forward.x = s.x.const_view();
  forward.y = y.view();
  forward.axes = c.axes.axes;
  if (c.op.weight) forward.weight = s.gamma.const_view();
  if (c.op.bias) forward.bias = s.beta.const_view();
  if (c.op.kind == Kind::layer) forward.mean = s.mean.view();
  forward.rstd = s.rstd.view();
  forward.eps = c.op.eps;
  forward.zero_centered = c.op.zero_centered;
  {
    const contracts::FpModeScope scope(s.mode);
    run_in_a_way(s.way, target, forward, s.amount);
    expect(scope.is_as_set(), "the caller's floating-point mode is unchanged");
  }
  expect(contracts::permuted(y.get(), size_of(c.op.y), c.order, false) == bytes_of(dense.y),
         "any layout has the same bits");
  expect(s.rstd.get() == statistic_bytes(s.rstd.dtype, dense.rstd), "rstd has the same bits");
  expect(c.op.kind == Kind::rms || s.mean.get() == statistic_bytes(s.mean.dtype, dense.mean), "mean has the same bits");
  expect(y.only_elements_were_written() && s.rstd.only_elements_were_written() && s.mean.only_elements_were_written(),
         "only elements are written");
  expect(s.in_place || s.x.memory == x_before, "x is unchanged");
}

}  // namespace

void forward(Input input) {
  Choices choices(input);
  const Magnitudes magnitudes = choose_magnitudes(choices);
  const contracts::Choose choose = [&](std::size_t n) { return choices.below(n); };
  Case c;
  c.shape = choose_shape(choices);
  c.axes = contracts::choose_axes(c.shape, choose);
  c.op = choose_operation(choices, contracts::product(c.axes.normalized));
  c.order = contracts::places_of_rows(c.shape, c.axes.axes);
  c.weight = choose_parameter(choices, c.op.weight, c.op.cols, true);
  c.bias = choose_parameter(choices, c.op.bias, c.op.cols, false);
  c.x = Array(c.op.x, std::size_t{0});
  while (c.x.size() < c.order.size()) c.x.append(choose_row(choices, c.op.x, c.op.cols));
  scale_rows(c.x, c.op.cols, magnitudes.x, magnitudes.by_turns);
  scale(c.weight, magnitudes.gamma);
  scale(c.bias, magnitudes.beta);

  const bool in_place = c.op.x == c.op.y && choices.one_in(3);
  const DType statistics = choices.one_in(2) ? DType::f32 : DType::f64;
  const auto elements = in_place || choices.one_in(2) ? Scattered::Elements::apart : Scattered::Elements::may_meet;
  Scattered x = place_rows(c.x, c.shape, c.order, choose, elements);
  Scattered gamma = place_parameter(c.weight, c.axes.normalized, choose);
  Scattered beta = place_parameter(c.bias, c.axes.normalized, choose);
  const Setting setting{std::move(x),
                        Scattered(c.op.y, c.shape, choose),
                        std::move(gamma),
                        std::move(beta),
                        Scattered(statistics, c.axes.outer, choose),
                        Scattered(statistics, c.axes.outer, choose),
                        in_place,
                        Way(choices.below(4)),
                        choices.below(256),
                        contracts::FpMode(choices.below(5))};

  const std::vector<Target> targets = contracts::runnable_targets();
  const Outcome dense = run_operation(contracts::on_target(targets[0]), c.op, c.x, c.weight, c.bias);
  expect(dense.kept_inside, "only the dense rows are written");
  expect_within_contract(c, dense);
  for (const Target target : targets) {
    const Outcome other = run_operation(contracts::on_target(target), c.op, c.x, c.weight, c.bias);
    expect(other.kept_inside && std::ranges::equal(other.y.bytes(), dense.y.bytes()) &&
               equal_bits(other.mean, dense.mean) && equal_bits(other.rstd, dense.rstd),
           "every target has the same bits");
    expect_same_bits(c, setting, dense, target);
  }
}

}  // namespace evenorm::fuzz
