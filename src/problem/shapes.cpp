#include "problem/shapes.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
#include <limits>

#include "problem/fp_environment.hpp"
#include "problem/printable.hpp"

namespace evenorm::internal {
namespace {

// std::equal_to makes this a loop. Without it, a call of memcmp would take most of the time for so few numbers.
bool equal(Shape a, Shape b) { return std::ranges::equal(a, b, std::equal_to{}); }

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;  // so that an address and an extent have a sum

// Checks the strides that are given. Those of axes of size 1 and of tensors without elements are ignored.
void check_strides(std::string_view argument, const ConstTensor& view) {
  if (view.strides.size() != view.shape.size()) {
    fail(argument, "has strides " + text_of(view.strides) + ", but shape " + text_of(view.shape));
  }
  if (has_no_elements(view.shape)) return;
  __int128 extent = 0;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    const __int128 stride = view.strides[i];
    extent += (stride < 0 ? -stride : stride) * view.shape[i] * static_cast<std::int64_t>(bytes_of(view.dtype));
    if (extent > kMostBytes) {
      fail(argument, "has strides " + text_of(view.strides) + ", which span more than memory can hold");
    }
  }
}

// How a tensor lies along those of x's axes that it has.
struct AlongX {
  std::string_view argument;
  const ConstTensor& view;
  AxisSet own;      // these axes; none if the tensor has no elements
  PerAxis strides;  // in bytes, for each axis of x; 0 where the tensor has one element

  AlongX(std::string_view its_name, const ConstTensor& tensor, AxisSet axes)
      : argument(its_name), view(tensor), own(has_no_elements(tensor.shape) ? 0 : axes) {
    const Shape shape = view.shape, given = view.strides;
    if (!given.empty()) check_strides(argument, view);
    const auto bytes = static_cast<std::int64_t>(bytes_of(view.dtype));
    std::int64_t dense = bytes;  // the stride in C order
    for (std::size_t axis = std::bit_width(own), i = shape.size(); axis-- > 0;) {
      if ((own >> axis & 1) == 0) continue;
      const std::int64_t size = shape[--i];
      strides[axis] = size == 1 ? 0 : given.empty() ? dense : given[i] * bytes;
      dense *= size;
    }
  }

  // Adds some of x's axes to a layout.
  void append(AxisSet some, Shape sizes, Axes& to) const {
    for (AxisSet rest = some & own; rest != 0; rest &= rest - 1) {
      const auto axis = static_cast<std::size_t>(std::countr_zero(rest));
      if (to.append({static_cast<std::size_t>(sizes[axis]), strides[axis]})) continue;
      fail(argument, "has strides " + text_of(view.strides) + " for shape " + text_of(view.shape) + ", but at most " +
                         std::to_string(Axes::kCapacity) + " axes that cannot be merged are supported");
    }
  }
};

// The axes with these numbers. Negative numbers count from the end.
AxisSet numbered_axes(Shape axes, std::size_t rank) {
  AxisSet numbered = 0;
  for (const std::int64_t axis : axes) {
    const auto end = static_cast<std::int64_t>(rank);
    if (axis < -end || axis >= end) {
      throw Error("axes is " + text_of(axes) + ", but x has " + std::to_string(rank) + (rank == 1 ? " axis" : " axes"));
    }
    const AxisSet one = AxisSet{1} << (axis < 0 ? axis + end : axis);
    if ((numbered & one) != 0) throw Error("axes is " + text_of(axes) + ", which names an axis twice");
    numbered |= one;
  }
  return numbered;
}

}  // namespace

std::string text_of(Shape shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + ")";
}

std::string text_of(double value) {
  // The format of printf's %g, whatever the locale and rounding mode. The environment keeps a subnormal value from
  // trapping or being flushed to 0, since some callers have not set it.
  const FpEnvironment environment;
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr};
}

void fail(std::string_view argument, const std::string& what) { throw Error(printable(argument) + " " + what); }

void check_kind(Kind kind) {
  if (kind == Kind::layer || kind == Kind::rms) return;
  fail("kind", "is " + std::to_string(index_of(kind)) + ", which is none of layer, rms");
}

void check_dtype(std::string_view argument, DType dtype) {
  if (index_of(dtype) < kDTypeCount) return;
  const std::string text = dtype == DType::i8 ? "i8" : std::to_string(index_of(dtype));
  fail(argument, "has dtype " + text + ", which is none of f64, f32, bf16, f16");
}

std::int64_t bits_of_eps(double eps) {
  const auto bits = std::bit_cast<std::int64_t>(eps);
  return bits == std::numeric_limits<std::int64_t>::min() ? 0 : bits;
}

bool is_eps(double eps) {  // the bits of NaN and of negative numbers are above infinity's
  const auto bits = std::bit_cast<std::uint64_t>(eps);
  return bits < std::bit_cast<std::uint64_t>(kInfinity) || bits == std::bit_cast<std::uint64_t>(-0.0);
}

void check_eps(double eps) {
  if (!is_eps(eps)) throw Error("eps is " + text_of(eps) + ", but it should be finite and at least 0");
}

AxisSplit split_axes(Shape x_shape, Shape normalized_shape, Shape axes) {
  const std::size_t rank = x_shape.size();
  if (rank > kMaxRank) {
    fail("x", "has " + std::to_string(rank) + " axes, but at most " + std::to_string(kMaxRank) + " are supported");
  }
  if (axes.empty() == normalized_shape.empty()) {
    throw Error(axes.empty() ? "normalized_shape is (), but it or axes should name at least one axis"
                             : "axes and normalized_shape are given, but only one of them should be");
  }
  if (normalized_shape.size() > rank || !equal(x_shape.last(normalized_shape.size()), normalized_shape)) {
    throw Error("x has shape " + text_of(x_shape) + ", but it should end in normalized_shape " +
                text_of(normalized_shape));
  }
  const AxisSet all = first_axes(rank);
  const AxisSet outer = axes.empty() ? first_axes(rank - normalized_shape.size()) : all & ~numbered_axes(axes, rank);
  return {.normalized = all & ~outer, .outer = outer, .by_number = !axes.empty()};
}

Shape sizes_at(Shape shape, AxisSet axes, PerAxis& room) {
  std::size_t count = 0;
  for (AxisSet rest = axes; rest != 0; rest &= rest - 1) room[count++] = shape[std::countr_zero(rest)];
  return {room.data(), count};
}

std::size_t count_cols(Shape x_shape, const AxisSplit& split) {
  PerAxis room;
  const Shape shape = sizes_at(x_shape, split.normalized, room);
  const std::size_t cols = count_elements("normalized_shape", shape);
  if (cols != 0 && cols <= kMaxCols) return cols;
  throw Error((split.by_number ? "axes have shape " : "normalized_shape is ") + text_of(shape) +
              (cols == 0 ? ", but it should have at least one element"
                         : ", but at most 2^48 elements can be normalised together"));
}

std::size_t count_elements(std::string_view argument, Shape shape) {
  std::int64_t bytes = 8;
  bool overflow = false;
  for (const std::int64_t size : shape) {
    if (size < 0) fail(argument, "has shape " + text_of(shape) + ", but sizes should be at least 0");
    overflow = __builtin_mul_overflow(bytes, size, &bytes) || overflow;
  }
  if (!overflow || has_no_elements(shape)) return static_cast<std::size_t>(bytes) / 8;  // 0 if a size is 0
  fail(argument, "has shape " + text_of(shape) + ", which is more than memory can hold");
}

std::size_t count_at(Shape x_shape, AxisSet axes) {
  PerAxis room;
  return count_elements("x", sizes_at(x_shape, axes, room));
}

AxisSet varying_axes(Shape parameter, Shape x_shape, const AxisSplit& split) {
  if (parameter.empty()) return 0;
  AxisSet varying = 0;
  for (std::size_t i = 0; i < x_shape.size(); ++i) {
    const AxisSet axis = AxisSet{1} << i;
    const bool varies = parameter.size() == x_shape.size() ? parameter[i] != 1 : (split.normalized & axis) != 0;
    if (varies && x_shape[i] != 1) varying |= axis;
  }
  return varying;
}

void Layouts::lay_out(std::string_view argument, const ConstTensor& view, AxisSet own, const char* expected, Axes& rows,
                      Axes& cols) const {
  PerAxis room;
  const Shape sizes = sizes_at(x_shape, own, room);
  if (!equal(view.shape, sizes)) {
    fail(argument, "has shape " + text_of(view.shape) + ", but " + expected + " " + text_of(sizes));
  }
  const AlongX tensor(argument, view, own);
  tensor.append(split.sets, x_shape, rows);
  tensor.append(split.outer & ~split.sets, x_shape, rows);
  tensor.append(split.normalized, x_shape, cols);
}

void Layouts::broadcast(std::string_view argument, const ConstTensor& view, Axes& cols, Axes& sets,
                        std::optional<Axes>& shared) const {
  for (std::size_t i = 0; i < x_shape.size(); ++i) {
    if (view.shape[i] == x_shape[i] || view.shape[i] == 1) continue;
    fail(argument, "has shape " + text_of(view.shape) + ", but x has " + text_of(x_shape) +
                       ": each axis should be as long as x's, or 1");
  }
  const AlongX tensor(argument, view, first_axes(x_shape.size()));
  Axes elements;
  tensor.append(split.normalized, x_shape, cols);
  tensor.append(split.normalized, view.shape, elements);
  if (elements != cols) shared = elements;
  tensor.append(split.sets, x_shape, sets);
}

}  // namespace evenorm::internal
