// Fuzzes the gradients of one norm: types, options, numbers and layout. For dense rows, every target gives the same
// bits. They are within the bound of the reference, and not finite only where docs/numerics.md allows it. The chosen
// layout gives the same bits on every target, for any subset of the gradients, any distribution of the work, scratch of
// exactly the requested size, and any floating-point mode of the caller. Nothing else is written.
#include <algorithm>

#include "contracts/backward_accuracy.hpp"
#include "contracts/backward_harness.hpp"
#include "contracts/fp_mode.hpp"
#include "contracts/through_c.hpp"
#include "fuzz/norms.hpp"
#include "plan/gradient_plan.hpp"
#include "problem/validate.hpp"
#include "rows/passes.hpp"
#include "run/schedule.hpp"

namespace evenorm::fuzz {
namespace {

using contracts::Array;
using contracts::BackwardInputs;
using contracts::BackwardOperation;
using contracts::BackwardOutcome;
using contracts::InPlace;
using contracts::Scattered;
using contracts::Shape;
using internal::GradientProblem;
using internal::Target;

struct Case {
  BackwardOperation op;
  Shape shape;
  contracts::AxisChoice axes;
  std::vector<std::size_t> order;  // of the tensors' elements, row by row
  BackwardInputs inputs;           // x and dy, row by row

  std::size_t rows() const { return inputs.x.size() / op.forward.cols; }
};

DType choose_type(Choices& choices, DType usual) {
  return choices.one_in(2) ? contracts::kAllTypes[choices.below(4)] : usual;
}

// Asks for all gradients.
BackwardOperation choose_operation(Choices& choices, std::size_t cols) {
  BackwardOperation op;
  op.forward.kind = choices.one_in(3) ? Kind::rms : Kind::layer;
  op.forward.x = contracts::kAllTypes[choices.below(4)];
  op.forward.y = choose_type(choices, op.forward.x);
  if (!choices.one_in(3)) op.forward.weight = choose_type(choices, op.forward.x);
  op.forward.zero_centered = op.forward.weight && choices.one_in(4);
  op.forward.eps = choose_eps(choices);
  op.forward.cols = cols;
  op.dx = choose_type(choices, op.forward.x);
  op.dgamma = choose_type(choices, op.forward.x);
  op.dbeta = choose_type(choices, op.forward.x);
  op.accumulate = choices.one_in(4);
  return op;
}

Case choose_case(Choices& choices) {
  const Magnitudes magnitudes = choose_magnitudes(choices);
  Case c;
  c.shape = choose_shape(choices);
  c.axes = contracts::choose_axes(c.shape, [&](std::size_t n) { return choices.below(n); });
  c.op = choose_operation(choices, contracts::product(c.axes.normalized));
  c.order = contracts::places_of_rows(c.shape, c.axes.axes);
  const contracts::Operation& forward = c.op.forward;
  c.inputs.weight = choose_parameter(choices, forward.weight, forward.cols, true);
  c.inputs.dgamma = choose_parameter(choices, c.op.dgamma, forward.cols, false);
  c.inputs.dbeta = choose_parameter(choices, c.op.dbeta, forward.cols, false);
  c.inputs.x = Array(forward.x, std::size_t{0});
  c.inputs.dy = Array(forward.y, std::size_t{0});
  while (c.inputs.x.size() < c.order.size()) {
    c.inputs.x.append(choose_row(choices, forward.x, forward.cols));
    c.inputs.dy.append(choose_row(choices, forward.y, forward.cols));
  }
  scale_rows(c.inputs.x, forward.cols, magnitudes.x, magnitudes.by_turns);
  scale_rows(c.inputs.dy, forward.cols, magnitudes.dy, magnitudes.by_turns);
  scale(c.inputs.weight, magnitudes.gamma);
  return c;
}

// --- dense rows: bounds and values that are not finite -------------------------------------------------------------

// Which parts of x and dy are finite: rows of x, rows of both, columns of dy.
struct Finite {
  std::vector<bool> x_rows, rows, cols;
  bool weight;

  explicit Finite(const Case& c)
      : x_rows(c.rows(), true),
        rows(c.rows(), true),
        cols(c.op.forward.cols, true),
        weight(all_finite(c.inputs.weight, 0, c.inputs.weight.size())) {
    const auto x = reference::widen(c.op.forward.x, c.inputs.x.data(), c.inputs.x.size());
    const auto dy = reference::widen(c.op.forward.y, c.inputs.dy.data(), c.inputs.dy.size());
    const std::size_t n = cols.size();
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!(x[i] - x[i] == 0)) x_rows[i / n] = rows[i / n] = false;
      if (!(dy[i] - dy[i] == 0)) rows[i / n] = cols[i % n] = false;
    }
  }
  bool all_x() const { return std::ranges::find(x_rows, false) == x_rows.end(); }
};

void expect_nan_where_due(const Finite& finite, const BackwardOutcome& dense) {
  const std::size_t n = finite.cols.size();
  for (std::size_t i = 0; i < dense.dx.size(); ++i) {
    expect(is_canonical(dense.dx, i, !(finite.weight && finite.rows[i / n])),
           "dx is the canonical NaN in rows that are not finite");
  }
  const bool all_x = finite.all_x();
  for (std::size_t i = 0; i < n; ++i) {
    expect(is_canonical(dense.dgamma, i, !(all_x && finite.cols[i])),
           "dgamma is the canonical NaN if dy's column or anything in x is not finite");
    expect(is_canonical(dense.dbeta, i, !finite.cols[i]), "dbeta is the canonical NaN if dy's column is not finite");
  }
}

// The errors of dx in the finite rows.
contracts::GradientErrors errors_of_rows(const Case& c, const Finite& finite, const BackwardOutcome& dense) {
  const std::size_t n = finite.cols.size();
  Array x(c.op.forward.x, std::size_t{0}), dy(c.op.forward.y, std::size_t{0}), dx(*c.op.dx, std::size_t{0});
  for (std::size_t r = 0; r < finite.rows.size() && finite.weight; ++r) {
    if (!finite.rows[r]) continue;
    x.append(c.inputs.x.part(r * n, n));
    dy.append(c.inputs.dy.part(r * n, n));
    dx.append(dense.dx.part(r * n, n));
  }
  return contracts::ExpectedGradients(c.op.measured(), x, dy, c.inputs.weight).errors_of(dx, {}, {});
}

// The errors of dgamma and dbeta in the finite columns. All other values are set to 0 on both sides.
contracts::GradientErrors errors_of_columns(const Case& c, const Finite& finite, const BackwardOutcome& dense) {
  const std::size_t n = finite.cols.size();
  Array x = c.inputs.x, dy = c.inputs.dy, dgamma = dense.dgamma, dbeta = dense.dbeta;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!finite.x_rows[i / n]) x.set(i, 0);
    if (!finite.cols[i % n]) dy.set(i, 0);
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (finite.cols[i]) continue;
    dgamma.set(i, 0);
    dbeta.set(i, 0);
  }
  return contracts::ExpectedGradients(c.op.measured(), x, dy, c.inputs.weight)
      .errors_of({}, finite.all_x() ? dgamma : Array(), dbeta);
}

void expect_within_bound(const Case& c, const BackwardOutcome& dense) {
  const Finite finite(c);
  expect_nan_where_due(finite, dense);
  contracts::GradientErrors errors = errors_of_rows(c, finite, dense);
  if (!c.op.accumulate) errors.include(errors_of_columns(c, finite, dense));
  if (errors.within_limits(c.op.measured())) return;
  throw Violation(std::to_string(c.rows()) + " x " + c.op.name() + ", eps " + std::to_string(c.op.forward.eps) +
                  ": errors of dx " + std::to_string(errors.dx) + " u, dgamma " + std::to_string(errors.dgamma) +
                  " u, dbeta " + std::to_string(errors.dbeta) + " u");
}

// --- any layout and any way of running -----------------------------------------------------------------------------

enum class Way : unsigned char { serial, reversed, pieces, c };

struct Setting {
  Scattered x, dy, dx, gamma, mean, rstd, dgamma, dbeta;
  InPlace in_place;
  bool wants_dx, wants_dgamma, wants_dbeta, statistics_given;
  Way way;
  std::size_t amount;
  contracts::FpMode mode;

  Scattered& result() { return in_place == InPlace::of_x ? x : in_place == InPlace::of_dy ? dy : dx; }
};

// Splits the work anywhere. schedule.cpp only splits much larger work.
void run_in_pieces(Target target, const Backward& backward, std::size_t amount) {
  // Caches of no bytes: x and dy are prefetched, dx is streamed.
  const internal::Caches caches{amount % 2 == 0 ? 0 : internal::kPrefetchBytes,
                                amount % 3 == 0 ? 0 : internal::kStreamBytes * internal::kLastToStream};
  internal::GradientPass pass(internal::validate(backward), caches);
  GradientProblem& p = pass.problem;
  const internal::GradientPlan& plan = pass.plan;
  internal::validate_buffers(p);
  const internal::Kernels& kernels = internal::kernels_of(target);
  const std::size_t piece = 1 + amount % 8, blocks = internal::row_blocks(p);
  const auto cut = [](std::size_t units, std::size_t most, const auto& work) {
    for (std::size_t first = (units - 1) / most * most;; first -= most) {  // in reverse order
      work(first, std::min(most, units - first));
      if (first == 0) return;
    }
  };
  if (p.dgamma.data == nullptr && p.dbeta.data == nullptr) {
    return cut(p.rows, piece, [&](std::size_t first, std::size_t count) {
      internal::run_backward(kernels, p, plan, first, count, nullptr);
    });
  }
  if (blocks == 1 && amount % 5 != 0) {
    std::vector<internal::GradientScalars> scalars(p.rows);
    cut(p.rows, piece, [&](std::size_t first, std::size_t count) {
      internal::find_row_scalars(kernels, p, plan, first, count, scalars.data());
    });
    p.scalars = scalars.data();
    return cut(p.cols, internal::kBlock * (1 + amount % 3),
               [&](std::size_t first, std::size_t count) { internal::run_columns(kernels, p, plan, first, count); });
  }
  const std::size_t run = std::size_t{1} << amount % 4,
                    slot = internal::sums_bytes(p.cols, plan.chain_length) / sizeof(double);
  std::vector<double> slots(blocks * slot);
  cut(blocks, run, [&](std::size_t first, std::size_t count) {
    internal::run_row_blocks(kernels, p, plan, first, count, slots.data() + first * slot);
  });
  internal::finish_row_blocks(kernels, p, 0, slots.data(), (blocks + run - 1) / run, run * slot);
}

// Runs in scratch of exactly the requested size, at an offset. A sanitizer guards its end.
void run_in_scratch(Target target, const Backward& backward, const Executor& executor, std::size_t amount) {
  constexpr std::byte kUntouched{0x5A};
  const internal::GradientPass pass(internal::validate(backward));
  const std::size_t bytes = pass.plan.scratch_bytes, before = amount, after = amount % 2 == 0 ? 0 : 64;
  std::vector<std::byte> memory(before + bytes + after, kUntouched);
  const std::span scratch = std::span(memory).subspan(before, bytes);
  internal::validate_buffers(pass.problem, scratch);
  internal::run(pass, internal::kernels_of(target), scratch.data(), executor);
  const auto untouched = [&](std::byte b) { return b == kUntouched; };
  expect(std::ranges::all_of(std::span(memory).first(before), untouched) &&
             std::ranges::all_of(std::span(memory).last(after), untouched),
         "nothing outside the scratch is written");
}

void run_in_a_way(Way way, Target target, const Backward& backward, std::size_t amount) {
  if (way == Way::pieces) return run_in_pieces(target, backward, amount);
  if (way == Way::c && target == internal::active_target()) return contracts::gradients_through_c()(backward, {});
  run_in_scratch(target, backward, way == Way::reversed ? contracts::reversed_executor(2 + amount % 7) : Executor{},
                 amount);
}

Backward describe(const Case& c, Setting& s) {
  Backward backward;
  backward.kind = c.op.forward.kind;
  backward.x = s.x.const_view();
  backward.dy = s.dy.const_view();
  backward.axes = c.axes.axes;
  if (c.op.forward.weight) backward.weight = s.gamma.const_view();
  if (s.statistics_given) {
    if (c.op.forward.kind == Kind::layer) backward.mean = s.mean.const_view();
    backward.rstd = s.rstd.const_view();
  }
  if (s.wants_dx) backward.dx = s.result().view();
  if (s.wants_dgamma) backward.dweight = s.dgamma.view();
  if (s.wants_dbeta) backward.dbias = s.dbeta.view();
  backward.eps = c.op.forward.eps;
  backward.zero_centered = c.op.forward.zero_centered;
  backward.accumulate = c.op.accumulate;
  return backward;
}

void expect_same_bits(const Case& c, const Setting& setting, const BackwardOutcome& dense, Target target) {
  Setting s = setting;
  const Backward backward = describe(c, s);
  {
    const contracts::FpModeScope scope(s.mode);
    run_in_a_way(s.way, target, backward, s.amount);
    expect(scope.is_as_set(), "the caller's floating-point mode is unchanged");
  }
  if (s.wants_dx) {
    expect(contracts::permuted(s.result().get(), size_of(*c.op.dx), c.order, false) == bytes_of(dense.dx),
           "dx has the same bits in any layout");
    expect(s.result().only_elements_were_written(), "only dx's elements are written");
  }
  const auto expect_sums = [&](bool wanted, const Scattered& now, const Scattered& before, const Array& sums) {
    if (!wanted) return expect(now.memory == before.memory, "gradients that were not asked for are not written");
    expect(now.get() == bytes_of(sums), "sums over rows have the same bits in any layout");
    expect(now.only_elements_were_written(), "only the elements of sums over rows are written");
  };
  expect_sums(s.wants_dgamma, s.dgamma, setting.dgamma, dense.dgamma);
  expect_sums(s.wants_dbeta, s.dbeta, setting.dbeta, dense.dbeta);
  for (const auto member : {&Setting::x, &Setting::dy, &Setting::dx, &Setting::gamma, &Setting::mean, &Setting::rstd}) {
    const bool written = s.wants_dx && &(s.*member) == &s.result();
    expect(written || (s.*member).memory == (setting.*member).memory, "inputs are unchanged");
  }
}

// Chooses the tensors' layouts, which may change the values of x, dy and weight.
Setting choose_setting(Choices& choices, Case& c) {
  const contracts::Choose choose = [&](std::size_t n) { return choices.below(n); };
  const std::size_t place = choices.below(4);
  const InPlace in_place = place == 0 && c.op.dx == c.op.forward.x   ? InPlace::of_x
                           : place == 1 && c.op.dx == c.op.forward.y ? InPlace::of_dy
                                                                     : InPlace::none;
  const auto elements = [&](InPlace mine) {
    return in_place == mine || choices.one_in(2) ? Scattered::Elements::apart : Scattered::Elements::may_meet;
  };
  Scattered x = place_rows(c.inputs.x, c.shape, c.order, choose, elements(InPlace::of_x));
  Scattered dy = place_rows(c.inputs.dy, c.shape, c.order, choose, elements(InPlace::of_dy));
  Scattered gamma = place_parameter(c.inputs.weight, c.axes.normalized, choose);
  const auto place_sums = [&](const Array& before) {
    Scattered tensor(before.dtype(), c.axes.normalized, choose);
    tensor.put(before.data());
    return tensor;
  };
  Scattered dx(*c.op.dx, c.shape, choose), mean(DType::f64, c.axes.outer, choose),
      rstd(DType::f64, c.axes.outer, choose);
  Scattered dgamma = place_sums(c.inputs.dgamma), dbeta = place_sums(c.inputs.dbeta);
  const bool needs_dx = c.op.measured().arithmetic() != c.op.forward.arithmetic();  // dx's type decides the arithmetic
  const std::size_t wanted = (choices.one_in(2) ? 7 : 1 + choices.below(7)) | (needs_dx ? 1 : 0);
  return {std::move(x),      std::move(dy),         std::move(dx),     std::move(gamma),
          std::move(mean),   std::move(rstd),       std::move(dgamma), std::move(dbeta),
          in_place,          (wanted & 1) != 0,     (wanted & 2) != 0, (wanted & 4) != 0,
          choices.one_in(2), Way(choices.below(4)), choices.below(64), contracts::FpMode(choices.below(5))};
}

void put_statistics(const Case& c, Setting& setting) {
  BackwardInputs inputs = c.inputs;
  contracts::add_statistics(contracts::runnable_targets()[0], c.op.forward, inputs);
  setting.rstd.put(statistic_bytes(DType::f64, inputs.rstd).data());
  if (c.op.forward.kind == Kind::layer) setting.mean.put(statistic_bytes(DType::f64, inputs.mean).data());
}

// dx of a row does not depend on the other rows.
void expect_row_alone(const Case& c, std::size_t row, const BackwardOutcome& dense, Target target) {
  const std::size_t n = c.op.forward.cols;
  BackwardOperation op = c.op;
  op.dgamma = op.dbeta = {};
  const BackwardInputs inputs{c.inputs.x.part(row * n, n), c.inputs.dy.part(row * n, n), c.inputs.weight};
  expect(bytes_of(run_backward(contracts::gradients_on_target(target), op, inputs).dx) ==
             bytes_of(dense.dx.part(row * n, n)),
         "dx of a separate row has the same bits");
}

}  // namespace

void backward(Input input) {
  Choices choices(input);
  Case c = choose_case(choices);
  Setting setting = choose_setting(choices, c);
  put_statistics(c, setting);

  const std::vector<Target> targets = contracts::runnable_targets();
  const BackwardOutcome dense = run_backward(contracts::gradients_on_target(targets[0]), c.op, c.inputs);
  expect(dense.kept_inside, "only the dense rows are written");
  expect_within_bound(c, dense);
  expect_row_alone(c, choices.below(c.rows()), dense, targets[0]);
  for (const Target target : targets) {
    const BackwardOutcome other = run_backward(contracts::gradients_on_target(target), c.op, c.inputs);
    expect(other.kept_inside && other.has_the_bits_of(dense), "every target has the same bits");
    expect_same_bits(c, setting, dense, target);
  }
}

}  // namespace evenorm::fuzz
