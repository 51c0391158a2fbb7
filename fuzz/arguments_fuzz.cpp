// A description of a norm that the bytes choose, right or wrong, all of its tensors being views of one small memory.
// What is refused throws Error, says why on one line and writes nothing. Which overlaps pass is compared with looking
// at every pair of bytes; what passes gives the same bits as rows of their own, and writes nothing else.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "contracts/harness.hpp"
#include "contracts/scattered.hpp"
#include "fuzz/support.hpp"
#include "run.hpp"
#include "validate.hpp"

namespace evenorm::fuzz {
namespace {

using contracts::Array;
using contracts::Shape;

constexpr std::size_t kBytes = 1024;

// One tensor: where it begins in the memory, and how it says it lies there.
struct View {
  std::string_view name;
  bool present = false;
  DType dtype = DType::f32;
  Shape shape, strides;
  std::size_t begin = 0;

  std::size_t element() const { return size_of(dtype); }
  Shape actual_strides() const {
    if (!strides.empty()) return strides;
    Shape contiguous(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) contiguous[i - 1] = contiguous[i] * shape[i];
    return contiguous;
  }
  // Bytes of the memory: from the first to past the last.
  std::pair<__int128, __int128> range() const {
    __int128 first = static_cast<__int128>(begin), end = first + static_cast<__int128>(element());
    const Shape steps = actual_strides();
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const __int128 last = static_cast<__int128>(shape[i] - 1) * steps[i] * static_cast<__int128>(element());
      (last < 0 ? first : end) += last;
    }
    return {first, end};
  }
  // The memory's bytes that are the elements', in C order.
  std::vector<std::size_t> bytes() const {
    std::vector<std::size_t> places;
    for (const std::ptrdiff_t offset : contracts::element_offsets(shape, actual_strides(), element())) {
      for (std::size_t b = 0; b < element(); ++b) places.push_back(begin + static_cast<std::size_t>(offset) + b);
    }
    return places;
  }
  // Does each axis, sorted by stride, step over all that is inside it?
  bool nested() const {
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
};

std::int64_t choose_stride(Choices& choices) {
  constexpr std::int64_t kOdd[] = {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
                                   std::int64_t{1} << 61, -(std::int64_t{1} << 59), std::int64_t{1} << 40};
  if (choices.one_in(40)) return kOdd[choices.below(std::size(kOdd))];
  return static_cast<std::int64_t>(choices.below(choices.one_in(3) ? 41 : 9)) - (choices.one_in(4) ? 4 : 0);
}

// A wrong type is a number that is none of the types'.
DType choose_type(Choices& choices) {
  return choices.one_in(40) ? DType(choices.below(256)) : contracts::kAllTypes[choices.below(4)];
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

struct Description {
  View x, y, weight, bias, mean, rstd;
  Kind kind = Kind::layer;
  Shape axes, normalized_shape;
  double eps = 1e-5;
  bool zero_centered = false;

  std::vector<const View*> views() const { return {&x, &y, &weight, &bias, &mean, &rstd}; }

  Forward in(std::byte* memory) const {
    const auto at = [&](const View& v) { return v.present ? memory + v.begin : nullptr; };
    Forward f;
    f.kind = kind;
    f.x = {at(x), x.dtype, x.shape, x.strides};
    f.y = {at(y), y.dtype, y.shape, y.strides};
    f.axes = axes;
    f.normalized_shape = normalized_shape;
    f.weight = {at(weight), weight.dtype, weight.shape, weight.strides};
    f.bias = {at(bias), bias.dtype, bias.shape, bias.strides};
    f.mean = {at(mean), mean.dtype, mean.shape, mean.strides};
    f.rstd = {at(rstd), rstd.dtype, rstd.shape, rstd.strides};
    f.eps = eps;
    f.zero_centered = zero_centered;
    return f;
  }
};

Description choose_description(Choices& choices) {
  Description d;
  d.kind = choices.one_in(3) ? Kind::rms : Kind::layer;
  Shape shape(1 + choices.below(4));
  for (std::int64_t& size : shape)
    size = choices.one_in(30) ? static_cast<std::int64_t>(choices.below(3)) - 1
                              : 1 + static_cast<std::int64_t>(choices.below(5));
  contracts::AxisChoice split = contracts::choose_axes(shape, [&](std::size_t n) { return choices.below(n); });
  if (choices.one_in(3)) {  // the last axes
    const auto count = static_cast<std::ptrdiff_t>(1 + choices.below(shape.size()));
    split.normalized.assign(shape.end() - count, shape.end());
    split.outer.assign(shape.begin(), shape.end() - count);
    d.normalized_shape = split.normalized;
  } else {
    d.axes = split.axes;
  }
  if (choices.one_in(30))
    (choices.one_in(2) ? d.axes : d.normalized_shape).push_back(static_cast<std::int64_t>(choices.below(12)) - 6);
  d.x = choose_view(choices, "x", shape);
  d.y = choose_view(choices, "y", shape);
  const std::size_t alike = choices.below(4);  // y in place, or interleaved with x
  if (alike <= 1) {
    d.y.dtype = d.x.dtype;
    d.y.strides = d.x.strides;
    d.y.begin = alike == 0 ? d.x.begin : d.y.begin / d.y.element() * d.y.element();
  }
  if (choices.one_in(2)) d.weight = choose_view(choices, "weight", split.normalized);
  if (choices.one_in(2)) d.bias = choose_view(choices, "bias", split.normalized);
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

std::vector<bool> covered(const std::vector<std::size_t>& bytes) {
  std::vector<bool> taken(kBytes);
  for (const std::size_t byte : bytes) taken[byte] = true;
  return taken;
}

bool share_bytes(const View& a, const View& b) {
  const std::vector<bool> taken = covered(a.bytes());
  const std::vector<std::size_t> bytes = b.bytes();
  return std::any_of(bytes.begin(), bytes.end(), [&](std::size_t byte) { return taken[byte]; });
}

bool meets_itself(const View& view) {
  std::vector<std::size_t> bytes = view.bytes();
  std::sort(bytes.begin(), bytes.end());
  return std::adjacent_find(bytes.begin(), bytes.end()) != bytes.end();
}

// Elements of several in the same bytes: the same number, at the same places.
bool same_places(const View& a, const View& b) { return a.element() == b.element() && a.bytes() == b.bytes(); }

void expect_apart(const Description& d) {
  const View* outputs[] = {&d.y, &d.mean, &d.rstd};
  for (const View* output : outputs) {
    if (!output->present) continue;
    expect(!meets_itself(*output), "an output that passes does not meet itself");
    for (const View* other : d.views()) {
      if (other == output || !other->present) continue;
      const bool in_place = output == &d.y && other == &d.x && same_places(d.x, d.y);
      expect(in_place || !share_bytes(*output, *other), "an output that passes shares no byte");
    }
  }
}

const View* named(const Description& d, std::string_view name) {
  for (const View* view : d.views()) {
    if (view->present && view->name == name) return view;
  }
  return nullptr;
}

// A refusal as "a may overlap b" must have a reason: the documented ones.
void expect_reason(const Description& d, std::string_view message) {
  constexpr std::string_view kMiddle = " may overlap ";
  const std::size_t at = message.find(kMiddle);
  if (at == std::string_view::npos) return;
  const View* output = named(d, message.substr(0, at));
  const std::string_view what = message.substr(at + kMiddle.size());
  expect(output != nullptr, "an overlap names an output");
  if (what == "itself") return expect(!output->nested(), "an output whose axes step over what is inside passes");
  const View* other = named(d, what);
  expect(other != nullptr, "an overlap names what it is with");
  const auto a = output->range(), b = other->range();
  expect(a.first < b.second && b.first < a.second, "disjoint ranges pass");
  const bool in_memory = a.first >= 0 && b.first >= 0 && a.second <= kBytes && b.second <= kBytes;
  if (in_memory && output->dtype == other->dtype && output->shape == other->shape &&
      output->actual_strides() == other->actual_strides() && output->nested()) {
    expect(share_bytes(*output, *other), "slices interleaved with equal strides are decided exactly");
  }
}

std::vector<std::byte> elements_of(const View& view, const std::vector<std::byte>& memory) {
  std::vector<std::byte> values;
  for (const std::size_t place : view.bytes()) values.push_back(memory[place]);
  return values;
}

Array array_of(const View& view, const std::vector<std::byte>& memory) {
  if (!view.present) return {};
  return fuzz::array_of(view.dtype, elements_of(view, memory));
}

Shape normalized_axes(const Description& d) {
  Shape axes = d.axes;
  for (std::size_t i = 0; i < d.normalized_shape.size(); ++i) axes.push_back(-1 - static_cast<std::int64_t>(i));
  return axes;
}

// The memory as it should be afterwards, from rows of their own.
std::vector<std::byte> expected_memory(const Description& d, const std::vector<std::byte>& before) {
  std::vector<std::byte> after = before;
  const std::vector<std::size_t> order = contracts::places_of_rows(d.x.shape, normalized_axes(d));
  if (order.empty()) return after;
  contracts::Operation op{d.kind, d.x.dtype, d.y.dtype, {}, {}, d.zero_centered, d.eps, 1};
  for (const std::int64_t axis : normalized_axes(d)) {
    op.cols *=
        static_cast<std::size_t>(d.x.shape[static_cast<std::size_t>(axis < 0 ? axis + std::ssize(d.x.shape) : axis)]);
  }
  if (d.weight.present) op.weight = d.weight.dtype;
  if (d.bias.present) op.bias = d.bias.dtype;
  const Array x = fuzz::array_of(d.x.dtype, contracts::permuted(elements_of(d.x, before), d.x.element(), order, false));
  const auto outcome = run_operation(contracts::on_target(internal::active_target()), op, x, array_of(d.weight, before),
                                     array_of(d.bias, before));
  const auto put = [&](const View& view, const std::vector<std::byte>& values) {
    const std::vector<std::size_t> places = view.bytes();
    for (std::size_t i = 0; i < places.size(); ++i) after[places[i]] = values[i];
  };
  const std::vector<std::byte> y(outcome.y.bytes().begin(), outcome.y.bytes().end());
  put(d.y, contracts::permuted(y, d.y.element(), order, true));
  if (d.mean.present) put(d.mean, statistic_bytes(d.mean.dtype, outcome.mean));
  if (d.rstd.present) put(d.rstd, statistic_bytes(d.rstd.dtype, outcome.rstd));
  return after;
}

// Why it is refused, or nothing. Looks at no element.
std::optional<std::string> refusal(const Forward& forward) {
  try {
    internal::validate_buffers(internal::validate(forward));
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

// By running it: for what may be run.
std::optional<std::string> refusal_of_run(const Forward& forward) {
  try {
    run(forward);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

void arguments(Input input) {
  Choices choices(input);
  const Description d = choose_description(choices);
  std::vector<std::byte> memory(kBytes);
  contracts::Random random(choices.word());
  for (std::byte& byte : memory) byte = std::byte(random.next() & 255);
  const std::vector<std::byte> before = memory;
  const Forward forward = d.in(memory.data());

  const auto why = refusal(forward);
  if (why) {
    expect_one_line(*why);
    expect_reason(d, *why);
    expect(refusal_of_run(forward) == why, "what is refused is refused by every way in");
    expect(memory == before, "nothing is written before the checks have passed");
    return;
  }
  const std::vector<const View*> views = d.views();
  const bool empty = std::find(d.x.shape.begin(), d.x.shape.end(), 0) != d.x.shape.end();
  const bool in_memory = std::all_of(views.begin(), views.end(), [](const View* view) {
    return !view->present || (view->range().first >= 0 && view->range().second <= kBytes);
  });
  if (!empty && !in_memory) return;  // no such memory: it cannot be run
  if (!empty) expect_apart(d);
  expect(!refusal_of_run(forward), "what passes runs");
  expect(memory == (empty ? before : expected_memory(d, before)),
         "the elements are those of rows of their own, the rest stays");
}

}  // namespace evenorm::fuzz
