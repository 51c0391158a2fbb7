// Fuzzes descriptions of a backward pass, valid or not. All tensors, and sometimes the scratch, are parts of one small
// memory. A refusal throws Error with one line and writes nothing. Accepted overlaps are compared with a test of every
// pair of bytes. An accepted call gives the same bits as separate rows, and writes nothing else.
#include <algorithm>
#include <bit>

#include "fuzz/views.hpp"
#include "problem/validate.hpp"

namespace evenorm::fuzz {
namespace {

using contracts::Array;

struct Description {
  View x, dy, dx, weight, mean, rstd, dweight, dbias;
  Kind kind = Kind::layer;
  Axes axes;
  double eps = 1e-5;
  bool zero_centered = false, accumulate = false;

  Views views() const { return {&x, &dy, &dx, &weight, &mean, &rstd, &dweight, &dbias}; }

  Backward in(Memory& memory) const {
    Backward b;
    b.kind = kind;
    b.x = x.const_in(memory);
    b.dy = dy.const_in(memory);
    b.axes = axes.axes;
    b.normalized_shape = axes.normalized_shape;
    b.weight = weight.const_in(memory);
    b.mean = mean.const_in(memory);
    b.rstd = rstd.const_in(memory);
    b.dx = dx.in(memory);
    b.dweight = dweight.in(memory);
    b.dbias = dbias.in(memory);
    b.eps = eps;
    b.zero_centered = zero_centered;
    b.accumulate = accumulate;
    return b;
  }
};

Description choose_description(Choices& choices) {
  Description d;
  d.kind = choices.one_in(3) ? Kind::rms : Kind::layer;
  d.axes = choose_axes(choices);
  const contracts::Axes& split = d.axes.split;
  d.x = choose_view(choices, "x", d.axes.shape);
  d.dy = choose_view(choices, "dy", d.axes.shape);
  if (!choices.one_in(4)) d.dx = choose_view(choices, "dx", d.axes.shape);
  const std::size_t alike = choices.below(6);  // dx in place of x or dy, or interleaved with one of them
  if (d.dx.present && alike <= 3) {
    const View& source = alike % 2 == 0 ? d.x : d.dy;
    d.dx.dtype = source.dtype;
    d.dx.strides = source.strides;
    d.dx.begin = alike <= 1 ? source.begin : d.dx.begin / d.dx.element() * d.dx.element();
  }
  if (choices.one_in(2)) d.weight = choose_parameter(choices, "weight", d.axes);
  if (choices.one_in(2)) d.dweight = choose_parameter(choices, "dweight", d.axes);
  if (choices.one_in(2)) d.dbias = choose_parameter(choices, "dbias", d.axes);
  const bool statistics = choices.one_in(2), odd = choices.one_in(12);
  if (statistics && (d.kind == Kind::layer) != odd) d.mean = choose_view(choices, "mean", split.outer);
  if (statistics) d.rstd = choose_view(choices, "rstd", split.outer);
  for (View* statistic : {&d.mean, &d.rstd}) {
    if (!choices.one_in(20)) statistic->dtype = DType::f64;
    statistic->begin = statistic->begin / 8 * 8;
  }
  d.zero_centered = choices.one_in(4) && (d.weight.present || choices.one_in(8));
  d.accumulate = choices.one_in(3);
  if (choices.one_in(4)) d.eps = std::bit_cast<double>(choices.word());
  if (choices.one_in(60)) d.x.present = false;
  if (choices.one_in(60)) d.dy.present = false;
  return d;
}

// The memory as it should be after the call, computed from dense rows. Without rows, dweight and dbias are written too.
Memory expected_memory(const Description& d, const Memory& before) {
  const std::vector<std::size_t> order = contracts::places_of_rows(d.x.shape, d.axes.numbers());
  const auto rows_of = [&](const View& view) {
    return order.empty() ? Array(view.dtype, std::size_t{0}) : contracts::permuted(view.array(before), order, false);
  };
  const auto statistic_of = [&](const View& view) {
    const Array values = order.empty() ? Array() : view.array(before);
    std::vector<double> statistic(values.size());
    std::ranges::copy(values.bytes(), std::as_writable_bytes(std::span(statistic)).begin());
    return statistic;
  };
  const contracts::Operation op{.kind = d.kind,
                                .x = d.x.dtype,
                                .y = d.dy.dtype,
                                .weight = d.weight.type(),
                                .zero_centered = d.zero_centered,
                                .eps = d.eps,
                                .cols = d.axes.cols(d.x.shape),
                                .dx = d.dx.type(),
                                .dgamma = d.dweight.type(),
                                .dbeta = d.dbias.type(),
                                .accumulate = d.accumulate};
  const contracts::Inputs inputs{rows_of(d.x),         rows_of(d.dy),        d.weight.array(before),
                                 statistic_of(d.mean), statistic_of(d.rstd), d.dweight.array(before),
                                 d.dbias.array(before)};
  const contracts::Outcome outcome = run_operation(contracts::through_run(), op, inputs);
  Memory after = before;
  if (d.dx.present && !order.empty()) d.dx.put(contracts::permuted(outcome.dx, order, true), after);
  if (d.dweight.present) d.dweight.put(outcome.dgamma, after);
  if (d.dbias.present) d.dbias.put(outcome.dbeta, after);
  return after;
}

void expect_refused(const Description& d, const std::string& why, Memory& memory, const Memory& before) {
  expect_one_line(why);
  expect_reason(d.views(), why);
  const Backward backward = d.in(memory);
  Memory scratch(std::size_t{1} << 16);
  expect(refusal([&] { run(backward); }) == why && refusal([&] { run(backward, scratch, {}); }) == why,
         "every entry point refuses the same calls");
  const auto without_buffers = refusal([&] { scratch_bytes(backward); });
  expect(!without_buffers || without_buffers == why, "scratch_bytes() refuses for the same reason");
  expect(memory == before, "nothing is written before the checks have passed");
}

// Scratch inside the memory is either refused or apart from all tensors.
void try_scratch_in_memory(const Description& d, const Views& touched, const View& scratch, std::size_t bytes,
                           Memory& memory, const Memory& before) {
  const std::span place = std::span(memory).subspan(scratch.begin, bytes);
  const auto why = refusal([&] { run(d.in(memory), place, {}); });
  if (why) {
    Views all = touched;
    all.push_back(&scratch);
    expect_one_line(*why);
    expect(why->starts_with("scratch may overlap "), "only the address of the scratch can be wrong");
    expect_reason(all, *why);
    expect(memory == before, "nothing is written before the checks have passed");
    return;
  }
  for (const View* view : touched) expect(!share_bytes(*view, scratch), "accepted scratch shares no byte");
  Memory expected = expected_memory(d, before);
  for (const std::size_t byte : scratch.bytes()) expected[byte] = memory[byte];
  expect(memory == expected, "the elements equal those of separate rows, and nothing else but the scratch changes");
}

}  // namespace

void backward_arguments(Input input) {
  Choices choices(input);
  const Description d = choose_description(choices);
  Memory memory = random_memory(choices.word());
  const Memory before = memory;
  const Backward backward = d.in(memory);

  const auto why = refusal([&] { internal::validate_buffers(internal::validate(backward)); });
  if (why) return expect_refused(d, *why, memory, before);
  Views touched;  // tensors without elements occupy no memory
  for (const View* view : d.views()) {
    if (view->present && contracts::product(view->shape) != 0) touched.push_back(view);
  }
  // the views lie outside the memory, so the call cannot run
  if (!std::ranges::all_of(touched, &View::in_memory)) return;
  Views outputs;
  std::ranges::copy_if(touched, std::back_inserter(outputs),
                       [&](const View* v) { return v == &d.dx || v == &d.dweight || v == &d.dbias; });
  expect_apart(outputs, touched, [&](const View& output, const View& other) {
    return &output == &d.dx && (&other == &d.x || &other == &d.dy) && same_places(output, other);
  });

  // tests/broadcast_test.cpp has the expected gradients of these
  if (std::ranges::any_of(Views{&d.weight, &d.dweight, &d.dbias},
                          [&](const View* view) { return is_broadcast(*view, d.x.shape, d.axes); })) {
    return expect(!refusal([&] { run(backward); }), "an accepted call runs");
  }

  const std::size_t bytes = scratch_bytes(backward);
  expect((bytes != 0) == (d.dweight.present || d.dbias.present), "only sums over rows need scratch");
  if (bytes != 0 && choices.one_in(4)) {
    Memory less(bytes - 1);
    expect(refusal([&] { run(backward, less, {}); }).has_value(), "too little scratch is refused");
    expect(memory == before, "nothing is written before the checks have passed");
  }
  if (bytes != 0 && bytes <= kBytes / 2 && choices.one_in(2)) {
    const View scratch{
        "scratch", true, DType::bf16, {static_cast<std::int64_t>(bytes / 2)}, {}, choices.below(kBytes - bytes)};
    return try_scratch_in_memory(d, touched, scratch, bytes, memory, before);
  }
  expect(!refusal([&] { run(backward); }), "an accepted call runs");
  expect(memory == expected_memory(d, before), "the elements equal those of separate rows, and nothing else changes");
}

}  // namespace evenorm::fuzz
