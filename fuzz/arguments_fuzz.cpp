// Fuzzes descriptions of a forward pass, valid or not. All tensors are views of one small memory. A refusal throws
// Error with one line and writes nothing. Accepted overlaps are compared with a test of every pair of bytes. An
// accepted call gives the same bits as separate rows, and writes nothing else.
#include <algorithm>
#include <bit>

#include "contracts/harness.hpp"
#include "fuzz/views.hpp"
#include "plan/spec.hpp"
#include "problem/validate.hpp"

namespace evenorm::fuzz {
namespace {

using contracts::Array;
using contracts::Shape;

struct Description {
  View x, y, weight, bias, mean, rstd;
  Kind kind = Kind::layer;
  Axes axes;
  double eps = 1e-5;
  bool zero_centered = false;

  Views views() const { return {&x, &y, &weight, &bias, &mean, &rstd}; }

  Forward in(Memory& memory) const {
    Forward f;
    f.kind = kind;
    f.x = x.const_in(memory);
    f.y = y.in(memory);
    f.axes = axes.axes;
    f.normalized_shape = axes.normalized_shape;
    f.weight = weight.const_in(memory);
    f.bias = bias.const_in(memory);
    f.mean = mean.in(memory);
    f.rstd = rstd.in(memory);
    f.eps = eps;
    f.zero_centered = zero_centered;
    return f;
  }
};

Description choose_description(Choices& choices) {
  Description d;
  d.kind = choices.one_in(3) ? Kind::rms : Kind::layer;
  d.axes = choose_axes(choices);
  const contracts::Axes& split = d.axes.split;
  d.x = choose_view(choices, "x", d.axes.shape);
  d.y = choose_view(choices, "y", d.axes.shape);
  const std::size_t alike = choices.below(4);  // y in place, or interleaved with x
  if (alike <= 1) {
    d.y.dtype = d.x.dtype;
    d.y.strides = d.x.strides;
    d.y.begin = alike == 0 ? d.x.begin : d.y.begin / d.y.element() * d.y.element();
  }
  if (choices.one_in(2)) d.weight = choose_parameter(choices, "weight", d.axes);
  if (choices.one_in(2)) d.bias = choose_parameter(choices, "bias", d.axes);
  if (choices.one_in(2) && (d.kind == Kind::layer || choices.one_in(20)))
    d.mean = choose_view(choices, "mean", split.outer);
  if (choices.one_in(2)) d.rstd = choose_view(choices, "rstd", split.outer);
  for (View* statistic : {&d.mean, &d.rstd}) {
    if (!choices.one_in(20)) statistic->dtype = choices.one_in(2) ? DType::f32 : DType::f64;
    statistic->begin = statistic->begin / 8 * 8;
  }
  d.zero_centered = choices.one_in(4) && (d.weight.present || choices.one_in(8));
  if (choices.one_in(4)) d.eps = std::bit_cast<double>(choices.word());
  if (choices.one_in(60)) d.x.present = false;
  if (choices.one_in(60)) d.y.present = false;
  return d;
}

// x's shape. If columns form runs, which fix the order of sums, it is 1 along the axes of a run: the innermost
// normalised axes along which no parameter varies.
Shape shape_of_runs(const Description& d) {
  Shape shape = d.x.shape;
  for (std::size_t i = shape.size(); i-- > 0;) {
    const auto is_i = [&](std::int64_t axis) { return (axis - static_cast<std::int64_t>(i)) % std::ssize(shape) == 0; };
    const auto one = [&](auto* p) { return !p->present || (p->shape.size() == shape.size() && p->shape[i] == 1); };
    if (shape[i] == 1 || std::ranges::none_of(d.axes.numbers(), is_i)) continue;
    if (!std::ranges::all_of(Views{&d.weight, &d.bias}, one)) break;
    shape[i] = 1;
  }
  const std::size_t cols = d.axes.cols(d.x.shape), runs = d.axes.cols(shape);
  return runs != 1 && cols / runs >= internal::kLeastRun ? shape : d.x.shape;
}

// A parameter's elements for the runs of one row after the other, or of one row if all rows have the same.
Array elements_by_row(const View& parameter, const Description& d, const Shape& runs, const Memory& before) {
  if (!is_broadcast(parameter, d.x.shape, d.axes)) return parameter.array(before);
  View expanded = parameter;
  expanded.shape = runs;
  expanded.strides = parameter.actual_strides();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (parameter.shape[i] == 1) expanded.strides[i] = 0;
  }
  return contracts::permuted(expanded.array(before), contracts::places_of_rows(runs, d.axes.numbers()), false);
}

// The memory as it should be after the call, computed from separate rows.
Memory expected_memory(const Description& d, const Memory& before) {
  Memory after = before;
  const std::vector<std::size_t> order = contracts::places_of_rows(d.x.shape, d.axes.numbers());
  if (order.empty()) return after;
  const contracts::Operation op{d.kind,        d.x.dtype,       d.y.dtype, d.weight.type(),
                                d.bias.type(), d.zero_centered, d.eps,     d.axes.cols(d.x.shape)};
  const Array x = contracts::permuted(d.x.array(before), order, false);
  const Shape shape = shape_of_runs(d);
  const Array weight = elements_by_row(d.weight, d, shape, before), bias = elements_by_row(d.bias, d, shape, before);
  const std::size_t runs = d.axes.cols(shape), run = op.cols / runs;
  const Shape of_row{1, static_cast<std::int64_t>(runs), static_cast<std::int64_t>(run)};
  contracts::Outcome all;
  for (std::size_t first = 0; first < order.size(); first += op.cols) {
    const auto row = [&](const Array& a) { return a.size() <= runs ? a : a.part(first / run, runs); };
    const contracts::Inputs in{.x = x.part(first, op.cols), .weight = row(weight), .bias = row(bias)};
    const contracts::Call call(op, in, {}, of_row, {-2, -1}, {1, of_row[1], 1});
    call.run(contracts::through_run());
    all.append(call.outcome());
  }
  d.y.put(contracts::permuted(all.y, order, true), after);
  if (d.mean.present) d.mean.put(Array(d.mean.dtype, all.mean), after);
  if (d.rstd.present) d.rstd.put(Array(d.rstd.dtype, all.rstd), after);
  return after;
}

}  // namespace

void arguments(Input input) {
  Choices choices(input);
  const Description d = choose_description(choices);
  Memory memory = random_memory(choices.word());
  const Memory before = memory;
  const Forward forward = d.in(memory);

  // checks the description alone
  const auto why = refusal([&] { internal::validate_buffers(internal::validate(forward)); });
  if (why) {
    expect_one_line(*why);
    expect_reason(d.views(), *why);
    expect(refusal([&] { run(forward); }) == why, "every entry point refuses the same calls");
    expect(memory == before, "nothing is written before the checks have passed");
    return;
  }
  const Views views = d.views();
  const bool empty = std::find(d.x.shape.begin(), d.x.shape.end(), 0) != d.x.shape.end();
  const bool in_memory = std::ranges::all_of(views, [](const View* v) { return !v->present || v->in_memory(); });
  if (!empty && !in_memory) return;  // the views lie outside the memory, so the call cannot run
  if (!empty) {
    expect_apart({&d.y, &d.mean, &d.rstd}, views, [&](const View& output, const View& other) {
      return &output == &d.y && &other == &d.x && same_places(d.x, d.y);
    });
  }
  expect(!refusal([&] { run(forward); }), "an accepted call runs");
  expect(memory == (empty ? before : expected_memory(d, before)),
         "the elements equal those of separate rows, and nothing else changes");
}

}  // namespace evenorm::fuzz
