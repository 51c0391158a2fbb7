// Fuzzes one norm: types, options, numbers, any layout over any axes, and any way of running it.
#include "fuzz/norms.hpp"

namespace evenorm::fuzz {

using contracts::Array;
using contracts::Operation;
using contracts::Part;
using contracts::Placed;

void forward(Input input) {
  Choices choices(input);
  const Magnitudes magnitudes = choose_magnitudes(choices);
  const contracts::Choose choose = [&](std::size_t n) { return choices.below(n); };
  const contracts::Shape shape = choose_shape(choices);
  const contracts::Axes axes = contracts::choose_axes(shape, choose);
  const Operation op = choose_operation(choices, contracts::product(axes.normalized), true);
  contracts::Inputs inputs;
  inputs.weight = choose_parameter(choices, op.weight, op.cols, true);
  inputs.bias = choose_parameter(choices, op.bias, op.cols, false);
  inputs.x = Array(op.x, std::size_t{0});
  while (inputs.x.size() < contracts::product(shape)) inputs.x.append(choose_row(choices, op.x, op.cols));
  scale_rows(inputs.x, op.cols, magnitudes.x, magnitudes.by_turns);
  scale(inputs.weight, magnitudes.gamma);
  scale(inputs.bias, magnitudes.beta);

  contracts::Call call(op, shape, axes.axes);
  const bool in_place = op.x == op.y && choices.one_in(3);
  const DType statistics = choices.one_in(2) ? DType::f32 : DType::f64;
  const bool may_meet = !in_place && !choices.one_in(2);
  call.place(Part::x, Placed::chosen(op.x, shape, choose, may_meet), &inputs.x);
  if (op.weight) call.place(Part::weight, Placed::chosen(*op.weight, axes.normalized, choose, true), &inputs.weight);
  if (op.bias) call.place(Part::bias, Placed::chosen(*op.bias, axes.normalized, choose, true), &inputs.bias);
  Placed y = Placed::chosen(op.y, shape, choose, false);
  if (in_place) call.y_in = Part::x;
  if (!in_place) call.place(Part::y, std::move(y));
  Placed mean = Placed::chosen(statistics, axes.outer, choose, false);
  if (op.kind == Kind::layer) call.place(Part::mean, std::move(mean));
  call.place(Part::rstd, Placed::chosen(statistics, axes.outer, choose, false));
  contracts::Case c{.op = op, .shape = shape, .axes = axes.axes, .way = choose_way(choices, 256)};
  c.way.layout.statistics = statistics;
  expect_promises(c, inputs, call);
}

}  // namespace evenorm::fuzz
