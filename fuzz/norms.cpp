// Implements norms.hpp.
#include "fuzz/norms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace evenorm::fuzz {

using contracts::Array;
using contracts::Scattered;
using contracts::Shape;

namespace {

// Any bits, or bits of the input itself.
void choose_bits(Choices& choices, std::byte* to, std::size_t bytes) {
  contracts::Random random(choices.word());
  const bool own = choices.one_in(2);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = std::byte(own ? choices.below(256) : random.next() & 255);
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

double choose_eps(Choices& choices) {
  constexpr double kUsual[] = {1e-5, 1e-12, 0, 1e-6, 1, 1e-300, 0x1p-1074, 1e300};
  const std::size_t which = choices.below(std::size(kUsual) + 2);
  if (which < std::size(kUsual)) return kUsual[which];
  const double any = std::fabs(std::bit_cast<double>(choices.word()));
  return std::isfinite(any) ? any : 1e-5;
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

Array choose_parameter(Choices& choices, std::optional<DType> dtype, std::size_t cols, bool weight) {
  if (!dtype) return {};
  if (choices.one_in(3)) return choose_row(choices, *dtype, cols);
  return weight ? contracts::make_weight(*dtype, cols) : contracts::make_bias(*dtype, cols);
}

Scattered place_parameter(Array& values, const Shape& shape, const contracts::Choose& choose) {
  Scattered tensor(values.dtype(), values.empty() ? Shape{} : shape, choose, Scattered::Elements::may_meet);
  if (values.empty()) return tensor;
  tensor.put(values.data());
  values = array_of(values.dtype(), tensor.get());
  return tensor;
}

Scattered place_rows(Array& rows, const Shape& shape, const std::vector<std::size_t>& order,
                     const contracts::Choose& choose, Scattered::Elements elements) {
  const std::size_t bytes = size_of(rows.dtype());
  Scattered tensor(rows.dtype(), shape, choose, elements);
  tensor.put(contracts::permuted(bytes_of(rows), bytes, order, true).data());
  rows = array_of(rows.dtype(), contracts::permuted(tensor.get(), bytes, order, false));
  return tensor;
}

std::vector<std::byte> bytes_of(const Array& array) { return {array.bytes().begin(), array.bytes().end()}; }

bool all_finite(const Array& array, std::size_t first, std::size_t count) {
  const std::size_t bytes = size_of(array.dtype());
  const auto values = reference::widen(array.dtype(), array.data() + first * bytes, count);
  return std::all_of(values.begin(), values.end(), [](reference::Real v) { return v - v == 0; });
}

bool is_canonical(const Array& array, std::size_t i, bool must_be_nan) {
  const std::size_t bytes = size_of(array.dtype());
  const reference::Real value = reference::widen(array.dtype(), array.data() + i * bytes, 1)[0];
  if (value == value) return !must_be_nan;
  const std::uint64_t canonical = reference::round_to(array.dtype(), value);
  return std::memcmp(array.data() + i * bytes, &canonical, bytes) == 0;
}

bool is_canonical(double value, bool must_be_nan) {
  return value == value ? !must_be_nan : std::bit_cast<std::uint64_t>(value) == 0x7FF8000000000000;
}

}  // namespace evenorm::fuzz
