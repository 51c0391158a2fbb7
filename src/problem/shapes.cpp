#include "problem/shapes.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "problem/fp_environment.hpp"
#include "problem/printable.hpp"

namespace evenorm::internal {
namespace {

// A loop, because for so few numbers the call of std::equal would take most of the time.
bool equal(Shape a, Shape b) {
  if (a.size() != b.size()) return false;
  std::size_t i = 0;
  while (i < a.size() && a[i] == b[i]) ++i;
  return i == a.size();
}

// The number of elements. Throws Error if their bytes, for the largest type, do not fit in ptrdiff_t.
std::size_t count_elements(std::string_view argument, Shape shape) {
  std::int64_t count = 1;
  bool zero = false, overflow = false;
  for (std::int64_t size : shape) {
    if (size < 0) fail(argument, "has shape " + text_of(shape) + ", but sizes should be at least 0");
    zero = zero || size == 0;
    overflow = overflow || __builtin_mul_overflow(count, size, &count);
  }
  std::int64_t bytes = 0;
  overflow = overflow || __builtin_mul_overflow(count, std::int64_t{8}, &bytes);
  if (zero) return 0;
  if (overflow) fail(argument, "has shape " + text_of(shape) + ", which is more than memory can hold");
  return static_cast<std::size_t>(count);
}

AxisSplit trailing_axes(Shape shape, Shape normalized) {
  const bool fits = normalized.size() <= shape.size();
  if (!fits || !equal(shape.last(normalized.size()), normalized)) {
    throw Error("x has shape " + text_of(shape) + ", but it should end in normalized_shape " + text_of(normalized));
  }
  AxisSplit split;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    (i < shape.size() - normalized.size() ? split.outer : split.normalized).add(i);
  }
  return split;
}

AxisSplit named_axes(Shape shape, Shape axes) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  std::array<bool, kMaxRank> is_normalized{};
  for (const std::int64_t axis : axes) {
    if (axis < -rank || axis >= rank) {
      throw Error("axes is " + text_of(axes) + ", but x has " + std::to_string(rank) + (rank == 1 ? " axis" : " axes"));
    }
    bool& named = is_normalized[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
    if (named) throw Error("axes is " + text_of(axes) + ", which names an axis twice");
    named = true;
  }
  AxisSplit split;
  split.by_number = true;
  for (std::size_t i = 0; i < shape.size(); ++i) (is_normalized[i] ? split.normalized : split.outer).add(i);
  return split;
}

using PerAxis = std::array<std::int64_t, kMaxRank>;

// The strides of C order, in elements. If the tensor has no elements, the product of its sizes may overflow; the
// strides are then unused.
Shape contiguous_strides(Shape shape, PerAxis& room) {
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    room[i] = stride;
    if (__builtin_mul_overflow(stride, shape[i], &stride)) stride = 0;
  }
  return {room.data(), shape.size()};
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;  // so that an address and an extent have a sum

// A view's strides in elements, given or of C order. Throws Error if the elements span more than kMostBytes. Strides of
// axes of size 1 and of tensors without elements are ignored.
Shape strides_of(std::string_view argument, const ConstTensor& view, PerAxis& room) {
  if (view.strides.empty()) return contiguous_strides(view.shape, room);
  if (view.strides.size() != view.shape.size()) {
    fail(argument, "has strides " + text_of(view.strides) + ", but shape " + text_of(view.shape));
  }
  if (has_no_elements(view.shape)) return view.strides;
  std::int64_t extent = 0;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    const std::int64_t stride = view.strides[i];
    std::int64_t length = 0;
    if (stride == std::numeric_limits<std::int64_t>::min() ||
        __builtin_mul_overflow(stride < 0 ? -stride : stride, view.shape[i], &length) ||
        __builtin_mul_overflow(length, static_cast<std::int64_t>(bytes_of(view.dtype)), &length) ||
        __builtin_add_overflow(extent, length, &extent) || extent > kMostBytes) {
      fail(argument, "has strides " + text_of(view.strides) + ", which span more than memory can hold");
    }
  }
  return view.strides;
}

// The layout along some axes, in bytes; empty for a tensor without elements.
Axes layout_of(std::string_view argument, const ConstTensor& view, Shape strides, const AxisList& list) {
  if (has_no_elements(view.shape)) return {};
  const auto bytes = static_cast<std::int64_t>(bytes_of(view.dtype));
  Axes axes;
  for (std::size_t i = 0; i < list.count; ++i) {
    const std::size_t axis = list.number[i];
    if (view.shape[axis] == 1) continue;
    if (!axes.append({static_cast<std::size_t>(view.shape[axis]), strides[axis] * bytes})) {
      fail(argument, "has strides " + text_of(view.strides) + " for shape " + text_of(view.shape) + ", but at most " +
                         std::to_string(Axes::kCapacity) + " axes that cannot be merged are supported");
    }
  }
  return axes;
}

// The sizes of some axes, stored in `room`.
Shape sizes_at(Shape shape, const AxisList& list, PerAxis& room) {
  for (std::size_t i = 0; i < list.count; ++i) room[i] = shape[list.number[i]];
  return {room.data(), list.count};
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

void check_shape_is_of_x(std::string_view argument, Shape shape, Shape x_shape) {
  if (!equal(shape, x_shape)) fail(argument, "has shape " + text_of(shape) + ", but x has " + text_of(x_shape));
}

namespace {

// -0 has the bits of 0.
std::uint64_t bits_of_eps(double eps) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63U;
  const auto bits = std::bit_cast<std::uint64_t>(eps);
  return bits == kSign ? 0 : bits;
}

}  // namespace

bool is_eps(double eps) {  // as integers, the bits of negative numbers and NaN are above those of infinity
  return bits_of_eps(eps) < std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
}

bool is_same_eps(double a, double b) { return bits_of_eps(a) == bits_of_eps(b); }

void check_eps(double eps) {
  if (is_eps(eps)) return;
  throw Error("eps is " + text_of(eps) + ", but it should be finite and at least 0");
}

AxisSplit split_axes(Shape x_shape, Shape normalized_shape, Shape axes) {
  if (x_shape.size() > kMaxRank) {
    fail("x",
         "has " + std::to_string(x_shape.size()) + " axes, but at most " + std::to_string(kMaxRank) + " are supported");
  }
  if (axes.empty()) {
    if (normalized_shape.empty()) throw Error("normalized_shape is (), but it or axes should name at least one axis");
    return trailing_axes(x_shape, normalized_shape);
  }
  if (!normalized_shape.empty()) throw Error("axes and normalized_shape are given, but only one of them should be");
  return named_axes(x_shape, axes);
}

void order_rows(AxisSplit& split, Shape x_shape, std::initializer_list<Shape> parameters) {
  const auto any = [&](const auto& holds) { return std::any_of(parameters.begin(), parameters.end(), holds); };
  if (!any([&](Shape parameter) { return has_outer_axes(parameter, split); })) return;
  AxisList varying, shared;
  for (std::size_t i = 0; i < split.outer.count; ++i) {
    const std::size_t axis = split.outer.number[i];
    const bool varies = x_shape[axis] != 1 && any([&](Shape shape) { return varies_along(axis, shape, split); });
    (varies ? varying : shared).add(axis);
  }
  split.sets = varying.count;
  split.outer = varying;
  for (std::size_t i = 0; i < shared.count; ++i) split.outer.add(shared.number[i]);
}

std::size_t count_cols(Shape x_shape, const AxisSplit& split) {
  PerAxis room;
  const Shape shape = sizes_at(x_shape, split.normalized, room);
  const std::size_t cols = count_elements("normalized_shape", shape);
  if (cols == 0) {
    throw Error((split.by_number ? "axes have shape " : "normalized_shape is ") + text_of(shape) +
                ", but it should have at least one element");
  }
  if (cols > kMaxCols) {
    throw Error((split.by_number ? "axes have shape " : "normalized_shape is ") + text_of(shape) +
                ", but at most 2^48 elements can be normalised together");
  }
  return cols;
}

std::size_t count_at(Shape shape, const AxisList& list) {
  PerAxis room;
  return count_elements("x", sizes_at(shape, list, room));
}

std::size_t count_shared(Shape x_shape, const AxisSplit& split, std::initializer_list<Shape> parameters) {
  const auto all = [&](const auto& holds) { return std::all_of(parameters.begin(), parameters.end(), holds); };
  std::size_t shared = 1;
  if (all([](Shape parameter) { return parameter.empty(); })) return shared;
  for (std::size_t i = split.normalized.count; i-- > 0;) {
    const std::size_t axis = split.normalized.number[i];
    if (!all([&](Shape s) { return s.empty() || (has_outer_axes(s, split) && s[axis] == 1); })) break;
    shared *= static_cast<std::size_t>(x_shape[axis]);
  }
  return shared;
}

std::size_t count_rows(Shape x_shape, std::size_t cols) { return count_elements("x", x_shape) / cols; }

MatrixAxes matrix_axes(std::string_view argument, const ConstTensor& view, const AxisSplit& split) {
  PerAxis room;
  const Shape strides = strides_of(argument, view, room);
  return {layout_of(argument, view, strides, split.outer), layout_of(argument, view, strides, split.normalized)};
}

namespace {

// The layout along some of x's axes of a parameter that is broadcast to x.
Axes broadcast_layout(std::string_view argument, const ConstTensor& view, Shape strides, Shape x_shape,
                      const AxisList& list) {
  const auto bytes = static_cast<std::int64_t>(bytes_of(view.dtype));
  Axes axes;
  for (std::size_t i = 0; i < list.count; ++i) {
    const std::size_t axis = list.number[i];
    if (!axes.append({static_cast<std::size_t>(x_shape[axis]), view.shape[axis] == 1 ? 0 : strides[axis] * bytes})) {
      fail(argument, "has shape " + text_of(view.shape) + " for x's " + text_of(x_shape) + ", but at most " +
                         std::to_string(Axes::kCapacity) + " axes that cannot be merged are supported");
    }
  }
  return axes;
}

}  // namespace

BroadcastAxes broadcast_axes(std::string_view argument, const ConstTensor& view, Shape x_shape,
                             const AxisSplit& split) {
  for (std::size_t i = 0; i < x_shape.size(); ++i) {
    if (view.shape[i] == x_shape[i] || view.shape[i] == 1) continue;
    fail(argument, "has shape " + text_of(view.shape) + ", but x has " + text_of(x_shape) +
                       ": each axis should be as long as x's, or 1");
  }
  PerAxis room;
  const Shape strides = strides_of(argument, view, room);
  BroadcastAxes axes{broadcast_layout(argument, view, strides, x_shape, split.normalized), {}, {}};
  if (split.sets != 0 && !has_no_elements(view.shape)) {
    axes.sets = broadcast_layout(argument, view, strides, x_shape, split.set_axes());
  }
  const Axes elements = layout_of(argument, view, strides, split.normalized);
  if (elements != axes.cols) axes.shared = elements;
  return axes;
}

Axes vector_axes(std::string_view argument, const ConstTensor& view, Shape x_shape, const AxisList& list,
                 std::string_view expected_name) {
  PerAxis sizes;
  AxisList places;  // of the listed axes, in the view
  for (std::size_t i = 0; i < list.count; ++i) {
    std::size_t place = 0;
    for (std::size_t j = 0; j < list.count; ++j) place += list.number[j] < list.number[i] ? 1 : 0;
    places.add(place);
    sizes[place] = x_shape[list.number[i]];
  }
  const Shape expected{sizes.data(), list.count};
  if (!equal(view.shape, expected)) {
    fail(argument,
         "has shape " + text_of(view.shape) + ", but " + std::string(expected_name) + " " + text_of(expected));
  }
  PerAxis room;
  const Shape strides = strides_of(argument, view, room);
  return layout_of(argument, view, strides, places);
}

namespace {

// Returns the known layout if the view has the same type, shape and strides, else makes a new one.
template <class Known, class LayOut>
const auto& axes_of(Known& known, const ConstTensor& view, const LayOut& lay_out) {
  const bool same = known.is_known && view.dtype == known.view.dtype && equal(view.shape, known.view.shape) &&
                    equal(view.strides, known.view.strides);
  if (!same) known = {view, lay_out(), true};
  return known.axes;
}

}  // namespace

const MatrixAxes& Layouts::axes_of_matrix(std::string_view argument, const ConstTensor& view) {
  return axes_of(matrix_, view, [&] { return matrix_axes(argument, view, split_); });
}

const Axes& Layouts::axes_of_parameter(std::string_view argument, const ConstTensor& view) {
  return axes_of(parameter_, view, [&] {
    return vector_axes(argument, view, x_shape_, split_.normalized,
                       split_.by_number ? "the axes normalised have shape" : "normalized_shape is");
  });
}

const Axes& Layouts::axes_of_statistic(std::string_view argument, const ConstTensor& view) {
  return axes_of(statistic_, view,
                 [&] { return vector_axes(argument, view, x_shape_, split_.outer, "x has rows of shape"); });
}

}  // namespace evenorm::internal
