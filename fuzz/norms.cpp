// Implements norms.hpp.
#include "fuzz/norms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "reference/reference.hpp"

namespace evenorm::fuzz {

using contracts::Array;
using contracts::Shape;

namespace {

// Any bits, or bits of the input itself.
void choose_bits(Choices& choices, std::byte* to, std::size_t bytes) {
  contracts::Random random(choices.word());
  const bool own = choices.one_in(2);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = std::byte(own ? choices.below(256) : random.next() & 255);
}

double choose_eps(Choices& choices) {
  constexpr double kUsual[] = {1e-5, 1e-12, 0, 1e-6, 1, 1e-300, 0x1p-1074, 1e300};
  const std::size_t which = choices.below(std::size(kUsual) + 2);
  if (which < std::size(kUsual)) return kUsual[which];
  const double any = std::fabs(std::bit_cast<double>(choices.word()));
  return std::isfinite(any) ? any : 1e-5;
}

}  // namespace

Shape choose_shape(Choices& choices) {
  constexpr std::int64_t kEdges[] = {15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 130, 255, 257, 1023, 1024, 1025, 2049};
  std::size_t room = choices.one_in(64) ? 70000 : choices.one_in(8) ? 6000 : 1200;
  Shape shape(1 + choices.below(5));
  for (std::int64_t& size : shape) {
    size =
        choices.one_in(3) ? kEdges[choices.below(std::size(kEdges))] : 1 + static_cast<std::int64_t>(choices.below(9));
    size = std::min(size, static_cast<std::int64_t>(room));
    room /= static_cast<std::size_t>(size);
  }
  if (room > 9 && choices.one_in(4))
    shape[choices.below(shape.size())] *= 1 + static_cast<std::int64_t>(choices.below(room));
  return shape;
}

DType choose_type(Choices& choices, DType usual) {
  return choices.one_in(2) ? contracts::kAllTypes[choices.below(4)] : usual;
}

contracts::Operation choose_operation(Choices& choices, std::size_t cols, bool may_have_bias) {
  contracts::Operation op;
  op.kind = choices.one_in(3) ? Kind::rms : Kind::layer;
  op.x = contracts::kAllTypes[choices.below(4)];
  op.y = choose_type(choices, op.x);
  if (!choices.one_in(3)) op.weight = choose_type(choices, op.x);
  if (may_have_bias && !choices.one_in(3)) op.bias = choose_type(choices, op.x);
  op.zero_centered = op.weight && choices.one_in(4);
  op.eps = choose_eps(choices);
  op.cols = cols;
  return op;
}

Array choose_row(Choices& choices, DType dtype, std::size_t cols) {
  const auto names = contracts::input_names(dtype, cols);
  const std::size_t which = choices.below(names.size() + 4);
  Array row(dtype, cols);
  if (which >= names.size()) {
    choose_bits(choices, row.data(), row.bytes().size());
  } else {
    row = contracts::make_input(names[which], dtype, cols, choices.below(256));
  }
  const std::size_t others = choices.one_in(4) ? choices.below(4) : 0, bytes = size_of(dtype);
  for (std::size_t i = 0; i < others; ++i) choose_bits(choices, row.data() + choices.below(cols) * bytes, bytes);
  return row;
}

Magnitudes choose_magnitudes(Choices& choices) {
  if (choices.last() % 4 != 3) return {};
  const auto share = [&] { return static_cast<std::int8_t>(choices.last()) / 128.0; };
  Magnitudes m;
  m.x = share();
  m.dy = share();
  m.gamma = share();
  m.beta = share();
  m.by_turns = choices.last() % 2 == 1;
  return m;
}

void scale_rows(Array& rows, std::size_t cols, double share, bool by_turns) {
  if (share == 0 || rows.empty()) return;
  const double largest = contracts::largest_finite(rows.dtype());
  const int exponents = std::ilogb(largest) - std::ilogb(contracts::smallest_subnormal(rows.dtype()));
  const auto exponent = static_cast<int>(share * exponents);
  const auto values = reference::widen(rows.dtype(), rows.data(), rows.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] - values[i] == 0)) continue;
    const bool inverse = by_turns && i / cols % 2 == 1;
    const double scaled = std::ldexp(static_cast<double>(values[i]), inverse ? -exponent : exponent);
    rows.set(i, std::clamp(scaled, -largest, largest));
  }
}

Array choose_parameter(Choices& choices, contracts::Type dtype, std::size_t cols, bool weight) {
  if (!dtype) return {};
  if (choices.one_in(3)) return choose_row(choices, *dtype, cols);
  return weight ? contracts::make_weight(*dtype, cols) : contracts::make_bias(*dtype, cols);
}

contracts::Way choose_way(Choices& choices, std::size_t amounts) {
  using contracts::Entry;
  constexpr Entry kEntries[] = {Entry::scratch, Entry::scratch, Entry::pieces, Entry::c};
  const std::size_t which = choices.below(4);
  contracts::Way way{.entry = kEntries[which], .amount = choices.below(amounts)};
  if (which == 1) way.tasks = 2 + way.amount % 7;
  way.mode = contracts::FpMode(choices.below(5));
  return way;
}

void expect_promises(const contracts::Case& c, const contracts::Inputs& inputs, contracts::Call& call) {
  const contracts::Outcome plain = contracts::plain_outcome(c.op, inputs), expected = expected_of(c, plain);
  const std::string broken = beyond_bounds(c, inputs, plain);
  if (!broken.empty()) throw Violation(c.text() + ": " + broken);
  for (const internal::Target target : contracts::runnable_targets()) {
    const contracts::Outcome dense = run_operation(contracts::on_target(target), c.op, inputs);
    expect(dense.has_the_bits_of(plain) && dense.kept_inside, "every target has the same bits");
    contracts::Way way = c.way;
    if (way.entry == contracts::Entry::c && target != internal::active_target()) way.entry = contracts::Entry::direct;
    call.reset();
    const contracts::Outcome outcome = run_in_way(call, way, target);
    const std::string difference = outcome.difference_to(expected);
    if (!difference.empty()) throw Violation(c.text() + ": other bits of " + difference);
    expect(outcome.kept_inside, "only elements are written, and the floating-point mode is unchanged");
  }
}

}  // namespace evenorm::fuzz
