// Implements views.hpp.
#include "fuzz/views.hpp"

#include <algorithm>
#include <limits>

#include "contracts/harness.hpp"

namespace evenorm::fuzz {

using contracts::Shape;

namespace {

std::int64_t choose_stride(Choices& choices) {
  constexpr std::int64_t kOdd[] = {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
                                   std::int64_t{1} << 61, -(std::int64_t{1} << 59), std::int64_t{1} << 40};
  if (choices.one_in(40)) return kOdd[choices.below(std::size(kOdd))];
  return static_cast<std::int64_t>(choices.below(choices.one_in(3) ? 41 : 9)) - (choices.one_in(4) ? 4 : 0);
}

// A wrong type has a number that is not in the enumeration.
DType choose_type(Choices& choices) {
  return choices.one_in(40) ? DType(choices.below(256)) : contracts::kAllTypes[choices.below(4)];
}

bool meets_itself(const View& view) {
  std::vector<std::size_t> bytes = view.bytes();
  std::sort(bytes.begin(), bytes.end());
  return std::adjacent_find(bytes.begin(), bytes.end()) != bytes.end();
}

const View* named(const Views& all, std::string_view name) {
  for (const View* view : all) {
    if (view->present && view->name == name) return view;
  }
  return nullptr;
}

}  // namespace

Memory random_memory(std::uint64_t seed) {
  Memory memory(kBytes);
  contracts::Random random(seed);
  for (std::byte& byte : memory) byte = std::byte(random.next() & 255);
  return memory;
}

Shape View::actual_strides() const {
  if (!strides.empty()) return strides;
  Shape contiguous(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) contiguous[i - 1] = contiguous[i] * shape[i];
  return contiguous;
}

std::pair<__int128, __int128> View::range() const {
  __int128 first = static_cast<__int128>(begin), end = first + static_cast<__int128>(element());
  const Shape steps = actual_strides();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const __int128 last = static_cast<__int128>(shape[i] - 1) * steps[i] * static_cast<__int128>(element());
    (last < 0 ? first : end) += last;
  }
  return {first, end};
}

bool View::in_memory() const { return range().first >= 0 && range().second <= kBytes; }

std::vector<std::size_t> View::bytes() const {
  std::vector<std::size_t> places;
  for (const std::ptrdiff_t offset : contracts::element_offsets(shape, actual_strides(), element())) {
    for (std::size_t b = 0; b < element(); ++b) places.push_back(begin + static_cast<std::size_t>(offset) + b);
  }
  return places;
}

bool View::nested() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, size
  const Shape steps = actual_strides();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) axes.emplace_back(std::abs(steps[i]), shape[i]);
  }
  std::sort(axes.begin(), axes.end());
  std::int64_t inside = 1;
  for (const auto& [stride, size] : axes) {
    if (stride < inside) return false;
    inside += (size - 1) * stride;
  }
  return true;
}

contracts::Array View::array(const Memory& memory) const {
  if (!present) return {};
  Memory values;
  for (const std::size_t place : bytes()) values.push_back(memory[place]);
  return array_of(dtype, values);
}

void View::put(const contracts::Array& values, Memory& memory) const {
  const std::vector<std::size_t> places = bytes();
  for (std::size_t i = 0; i < places.size(); ++i) memory[places[i]] = values.data()[i];
}

View choose_view(Choices& choices, std::string_view name, const Shape& shape) {
  View view{name, true, choose_type(choices), shape, {}, 0};
  if (choices.one_in(40)) view.shape.insert(view.shape.begin(), static_cast<std::int64_t>(choices.below(3)));
  if (choices.one_in(40) && !view.shape.empty()) view.shape[choices.below(view.shape.size())] -= 1;
  if (choices.one_in(2)) {
    view.strides.resize(choices.one_in(40) ? choices.below(4) : view.shape.size());
    for (std::int64_t& stride : view.strides) stride = choose_stride(choices);
  }
  const std::size_t unit = size_of(view.dtype) == 0 ? 1 : size_of(view.dtype);
  view.begin = choices.below(choices.one_in(4) ? 256 : kBytes / unit) % (kBytes / unit) * unit;
  return view;
}

Axes choose_axes(Choices& choices) {
  Axes a;
  a.shape = Shape(1 + choices.below(4));
  for (std::int64_t& size : a.shape)
    size = choices.one_in(30) ? static_cast<std::int64_t>(choices.below(3)) - 1
                              : 1 + static_cast<std::int64_t>(choices.below(5));
  a.split = contracts::choose_axes(a.shape, [&](std::size_t n) { return choices.below(n); });
  if (choices.one_in(3)) {  // the last axes
    const auto count = static_cast<std::ptrdiff_t>(1 + choices.below(a.shape.size()));
    a.split.normalized.assign(a.shape.end() - count, a.shape.end());
    a.split.outer.assign(a.shape.begin(), a.shape.end() - count);
    a.normalized_shape = a.split.normalized;
  } else {
    a.axes = a.split.axes;
  }
  if (choices.one_in(30))
    (choices.one_in(2) ? a.axes : a.normalized_shape).push_back(static_cast<std::int64_t>(choices.below(12)) - 6);
  return a;
}

View choose_parameter(Choices& choices, std::string_view name, const Axes& axes) {
  if (!choices.one_in(3)) return choose_view(choices, name, axes.split.normalized);
  Shape shape = axes.shape;
  for (std::int64_t& size : shape) size = choices.one_in(2) ? 1 : size;
  return choose_view(choices, name, shape);
}

bool is_broadcast(const View& parameter, const Shape& x, const Axes& axes) {
  const bool has_axes_of_x = parameter.present && parameter.shape.size() == x.size();
  return has_axes_of_x && (axes.numbers().size() < x.size() || parameter.shape != x);
}

Shape Axes::numbers() const {
  Shape all = axes;
  for (std::size_t i = 0; i < normalized_shape.size(); ++i) all.push_back(-1 - static_cast<std::int64_t>(i));
  return all;
}

std::size_t Axes::cols(const Shape& x) const {
  std::size_t product = 1;
  for (const std::int64_t axis : numbers()) {
    product *= static_cast<std::size_t>(x[static_cast<std::size_t>(axis < 0 ? axis + std::ssize(x) : axis)]);
  }
  return product;
}

bool share_bytes(const View& a, const View& b) {
  std::vector<bool> taken(kBytes);
  for (const std::size_t byte : a.bytes()) taken[byte] = true;
  const std::vector<std::size_t> bytes = b.bytes();
  return std::any_of(bytes.begin(), bytes.end(), [&](std::size_t byte) { return taken[byte]; });
}

bool same_places(const View& a, const View& b) { return a.element() == b.element() && a.bytes() == b.bytes(); }

void expect_apart(const Views& outputs, const Views& all,
                  const std::function<bool(const View& output, const View& other)>& in_place) {
  for (const View* output : outputs) {
    if (!output->present) continue;
    expect(!meets_itself(*output), "an output that passes does not meet itself");
    for (const View* other : all) {
      if (other == output || !other->present) continue;
      expect(in_place(*output, *other) || !share_bytes(*output, *other), "an output that passes shares no byte");
    }
  }
}

void expect_reason(const Views& all, std::string_view message) {
  constexpr std::string_view kMiddle = " may overlap ";
  const std::size_t at = message.find(kMiddle);
  if (at == std::string_view::npos) return;
  const View* output = named(all, message.substr(0, at));
  const std::string_view what = message.substr(at + kMiddle.size());
  expect(output != nullptr, "an overlap names an output");
  if (what == "itself") return expect(!output->nested(), "an output whose axes step over what is inside passes");
  const View* other = named(all, what);
  expect(other != nullptr, "an overlap names what it is with");
  const auto a = output->range(), b = other->range();
  expect(a.first < b.second && b.first < a.second, "disjoint ranges pass");
  if (output->in_memory() && other->in_memory() && output->dtype == other->dtype && output->shape == other->shape &&
      output->actual_strides() == other->actual_strides() && output->nested()) {
    expect(share_bytes(*output, *other), "slices interleaved with equal strides are decided exactly");
  }
}

std::optional<std::string> refusal(const std::function<void()>& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace evenorm::fuzz
