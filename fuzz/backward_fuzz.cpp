// Fuzzes the gradients of one norm: types, options, numbers, any layout over any axes, any subset of the gradients, and
// any way of running it.
#include "fuzz/norms.hpp"

namespace evenorm::fuzz {
namespace {

using contracts::Array;
using contracts::Case;
using contracts::Inputs;
using contracts::Operation;
using contracts::Part;
using contracts::Placed;
using contracts::Shape;

Operation choose_all_gradients(Choices& choices, std::size_t cols) {
  Operation op = choose_operation(choices, cols, false);
  op.dx = choose_type(choices, op.x);
  op.dgamma = choose_type(choices, op.x);
  op.dbeta = choose_type(choices, op.x);
  op.accumulate = choices.one_in(4);
  return op;
}

Inputs choose_inputs(Choices& choices, const Operation& op, std::size_t size, const Magnitudes& magnitudes) {
  Inputs inputs;
  inputs.weight = choose_parameter(choices, op.weight, op.cols, true);
  inputs.dgamma = choose_parameter(choices, op.dgamma, op.cols, false);
  inputs.dbeta = choose_parameter(choices, op.dbeta, op.cols, false);
  inputs.x = Array(op.x, std::size_t{0});
  inputs.dy = Array(op.y, std::size_t{0});
  while (inputs.x.size() < size) {
    inputs.x.append(choose_row(choices, op.x, op.cols));
    inputs.dy.append(choose_row(choices, op.y, op.cols));
  }
  scale_rows(inputs.x, op.cols, magnitudes.x, magnitudes.by_turns);
  scale_rows(inputs.dy, op.cols, magnitudes.dy, magnitudes.by_turns);
  scale(inputs.weight, magnitudes.gamma);
  return inputs;
}

bool dx_decides_the_arithmetic(Operation op) {
  const DType with_dx = op.arithmetic();
  op.dx.reset();
  return op.arithmetic() != with_dx;
}

// dx of a row does not depend on the other rows.
void expect_row_alone(const Case& c, const Inputs& inputs, std::size_t row) {
  Operation op = c.op;
  op.dgamma = op.dbeta = {};
  const contracts::Runner run = contracts::on_target(contracts::runnable_targets()[0]);
  const contracts::Outcome all = run_operation(run, op, inputs);
  expect(run_operation(run, op, inputs.row(op, row)).has_the_bits_of(all.row(op, row)),
         "dx of a separate row has the same bits");
}

}  // namespace

void backward(Input input) {
  Choices choices(input);
  const Magnitudes magnitudes = choose_magnitudes(choices);
  const contracts::Choose choose = [&](std::size_t n) { return choices.below(n); };
  const Shape shape = choose_shape(choices);
  const contracts::Axes axes = contracts::choose_axes(shape, choose);
  const Operation op = choose_all_gradients(choices, contracts::product(axes.normalized));
  Inputs inputs = choose_inputs(choices, op, contracts::product(shape), magnitudes);

  contracts::Call call(op, shape, axes.axes);
  const std::size_t place = choices.below(4);
  if (place == 0 && op.dx == op.x) call.dx_in = Part::x;
  if (place == 1 && op.dx == op.y) call.dx_in = Part::y;
  const auto may_meet = [&](Part part) { return call.dx_in != part && !choices.one_in(2); };
  const bool x_meets = may_meet(Part::x);
  call.place(Part::x, Placed::chosen(op.x, shape, choose, x_meets), &inputs.x);
  const bool dy_meets = may_meet(Part::y);
  call.place(Part::y, Placed::chosen(op.y, shape, choose, dy_meets), &inputs.dy);
  if (op.weight) call.place(Part::weight, Placed::chosen(*op.weight, axes.normalized, choose, true), &inputs.weight);
  Placed dx = Placed::chosen(*op.dx, shape, choose, false);
  if (call.dx_in == Part::dx) call.place(Part::dx, std::move(dx));
  Placed mean = Placed::chosen(DType::f64, axes.outer, choose, false);
  Placed rstd = Placed::chosen(DType::f64, axes.outer, choose, false);
  call.place(Part::dgamma, Placed::chosen(*op.dgamma, axes.normalized, choose, false), &inputs.dgamma);
  call.place(Part::dbeta, Placed::chosen(*op.dbeta, axes.normalized, choose, false), &inputs.dbeta);
  const std::size_t wanted =
      (choices.one_in(2) ? 7 : 1 + choices.below(7)) | (dx_decides_the_arithmetic(op) ? contracts::kDx : 0);
  const bool given = choices.one_in(2);
  Case c{.op = op, .shape = shape, .axes = axes.axes, .way = choose_way(choices, 64)};
  c.way.only = static_cast<unsigned>(wanted);
  c.way.statistics_given = given;
  if (given) {
    Inputs found = inputs;
    contracts::add_statistics(contracts::runnable_targets()[0], op, found);
    Array means(DType::f64, found.mean), rstds(DType::f64, found.rstd);
    if (op.kind == Kind::layer) call.place(Part::mean, std::move(mean), &means);
    call.place(Part::rstd, std::move(rstd), &rstds);
  }
  if ((wanted & contracts::kDx) == 0) call.op.dx.reset();
  if ((wanted & contracts::kDgamma) == 0) call.op.dgamma.reset();
  if ((wanted & contracts::kDbeta) == 0) call.op.dbeta.reset();
  expect_row_alone(c, inputs, choices.below(inputs.x.size() / op.cols));
  expect_promises(c, inputs, call);
}

}  // namespace evenorm::fuzz
