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

using PerAxis = std::array<std::int64_t, kMaxRank>;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;  // so that an address and an extent have a sum

// A view's strides in elements: those given, or those of C order, which `room` then holds. Throws Error if the elements
// span more than kMostBytes. Strides of axes of size 1 and of tensors without elements are ignored.
Shape strides_of(std::string_view argument, const ConstTensor& view, PerAxis& room) {
  if (view.strides.empty()) {
    std::int64_t stride = 1;
    for (std::size_t i = view.shape.size(); i-- > 0;) {
      room[i] = stride;
      if (__builtin_mul_overflow(stride, view.shape[i], &stride)) stride = 0;  // a tensor without elements
    }
    return {room.data(), view.shape.size()};
  }
  if (view.strides.size() != view.shape.size()) {
    fail(argument, "has strides " + text_of(view.strides) + ", but shape " + text_of(view.shape));
  }
  if (has_no_elements(view.shape)) return view.strides;
  __int128 extent = 0;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    const __int128 stride = view.strides[i];
    extent += (stride < 0 ? -stride : stride) * view.shape[i] * static_cast<std::int64_t>(bytes_of(view.dtype));
    if (extent > kMostBytes) {
      fail(argument, "has strides " + text_of(view.strides) + ", which span more than memory can hold");
    }
  }
  return view.strides;
}

// Sets `axes` to the layout along some axes of a tensor of these sizes and strides, in bytes. It is empty for a view
// without elements.
void lay_out(std::string_view argument, const ConstTensor& view, Shape sizes, Shape strides, const AxisList& list,
             Axes& axes) {
  axes = {};
  if (has_no_elements(view.shape)) return;
  const auto bytes = static_cast<std::int64_t>(bytes_of(view.dtype));
  for (const std::size_t axis : list) {
    if (sizes[axis] == 1) continue;
    if (!axes.append({static_cast<std::size_t>(sizes[axis]), strides[axis] * bytes})) {
      fail(argument, "has strides " + text_of(view.strides) + " for shape " + text_of(view.shape) + ", but at most " +
                         std::to_string(Axes::kCapacity) + " axes that cannot be merged are supported");
    }
  }
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

std::int64_t bits_of_eps(double eps) {
  constexpr auto kMinusZero = std::numeric_limits<std::int64_t>::min();
  const auto bits = std::bit_cast<std::int64_t>(eps);
  return bits == kMinusZero ? 0 : bits;
}

bool is_eps(double eps) {  // the bits of negative numbers are negative, and those of NaN are above infinity's
  return bits_of_eps(eps) >= 0 &&
         bits_of_eps(eps) < std::bit_cast<std::int64_t>(std::numeric_limits<double>::infinity());
}

void check_eps(double eps) {
  if (is_eps(eps)) return;
  throw Error("eps is " + text_of(eps) + ", but it should be finite and at least 0");
}

AxisSplit split_axes(Shape x_shape, Shape normalized_shape, Shape axes) {
  const std::size_t rank = x_shape.size();
  if (rank > kMaxRank) {
    fail("x", "has " + std::to_string(rank) + " axes, but at most " + std::to_string(kMaxRank) + " are supported");
  }
  if (axes.empty() && normalized_shape.empty()) {
    throw Error("normalized_shape is (), but it or axes should name at least one axis");
  }
  if (!axes.empty() && !normalized_shape.empty()) {
    throw Error("axes and normalized_shape are given, but only one of them should be");
  }
  if (normalized_shape.size() > rank || !equal(x_shape.last(normalized_shape.size()), normalized_shape)) {
    throw Error("x has shape " + text_of(x_shape) + ", but it should end in normalized_shape " +
                text_of(normalized_shape));
  }
  std::array<bool, kMaxRank> is_normalized{};
  for (const std::int64_t axis : axes) {
    const auto end = static_cast<std::int64_t>(rank);
    if (axis < -end || axis >= end) {
      throw Error("axes is " + text_of(axes) + ", but x has " + std::to_string(rank) + (rank == 1 ? " axis" : " axes"));
    }
    bool& named = is_normalized[static_cast<std::size_t>(axis < 0 ? axis + end : axis)];
    if (named) throw Error("axes is " + text_of(axes) + ", which names an axis twice");
    named = true;
  }
  AxisSplit split;
  split.by_number = !axes.empty();
  for (std::size_t i = 0; i < rank; ++i) {
    (is_normalized[i] || i >= rank - normalized_shape.size() ? split.normalized : split.outer).add(i);
  }
  return split;
}

bool varies_along(std::size_t axis, Shape parameter, const AxisSplit& split) {
  if (parameter.empty()) return false;
  if (has_outer_axes(parameter, split)) return parameter[axis] != 1;
  return std::ranges::find(split.normalized, axis) != split.normalized.end();
}

void order_rows(AxisSplit& split, Shape x_shape, std::span<const Shape> parameters) {
  if (std::ranges::none_of(parameters, [&](Shape parameter) { return has_outer_axes(parameter, split); })) return;
  AxisList varying, shared;
  for (const std::size_t axis : split.outer) {
    const bool varies = x_shape[axis] != 1 && std::ranges::any_of(parameters, [&](Shape parameter) {
                          return varies_along(axis, parameter, split);
                        });
    (varies ? varying : shared).add(axis);
  }
  split.sets = varying.count;
  split.outer = varying;
  for (const std::size_t axis : shared) split.outer.add(axis);
}

std::size_t count_cols(Shape x_shape, const AxisSplit& split) {
  PerAxis room;
  const Shape shape = sizes_at(x_shape, split.normalized, room);
  const std::size_t cols = count_elements("normalized_shape", shape);
  const auto refuse = [&](const char* why) {
    throw Error((split.by_number ? "axes have shape " : "normalized_shape is ") + text_of(shape) + why);
  };
  if (cols == 0) refuse(", but it should have at least one element");
  if (cols > kMaxCols) refuse(", but at most 2^48 elements can be normalised together");
  return cols;
}

std::size_t count_at(Shape shape, const AxisList& list) {
  PerAxis room;
  return count_elements("x", sizes_at(shape, list, room));
}

std::size_t count_shared(Shape x_shape, const AxisSplit& split, std::span<const Shape> parameters) {
  std::size_t shared = 1;
  if (std::ranges::all_of(parameters, [](Shape parameter) { return parameter.empty(); })) return shared;
  for (std::size_t i = split.normalized.count; i-- > 0;) {
    const std::size_t axis = split.normalized.number[i];
    if (std::ranges::any_of(parameters, [&](Shape parameter) { return varies_along(axis, parameter, split); })) break;
    shared *= static_cast<std::size_t>(x_shape[axis]);
  }
  return shared;
}

std::size_t count_rows(Shape x_shape, std::size_t cols) { return count_elements("x", x_shape) / cols; }

void lay_out_vector(std::string_view argument, const ConstTensor& view, Shape x_shape, const AxisList& list,
                    std::string_view expected_name, Axes& axes) {
  AxisList sorted = list;
  std::sort(sorted.begin(), sorted.end());
  PerAxis sizes, room, along_x;
  const Shape expected = sizes_at(x_shape, sorted, sizes);
  if (!equal(view.shape, expected)) {
    fail(argument,
         "has shape " + text_of(view.shape) + ", but " + std::string(expected_name) + " " + text_of(expected));
  }
  const Shape strides = strides_of(argument, view, room);
  for (std::size_t i = 0; i < sorted.count; ++i) along_x[sorted.number[i]] = strides[i];
  lay_out(argument, view, x_shape, along_x, list, axes);
}

const Layouts::Known& Layouts::layout(Form form, std::string_view argument, const ConstTensor& view) {
  Known& known = known_[static_cast<std::size_t>(form)];
  if (known.is_known && view.dtype == known.view.dtype && equal(view.shape, known.view.shape) &&
      equal(view.strides, known.view.strides)) {
    return known;
  }
  known.is_known = false;
  if (form == Form::matrix) {
    PerAxis room;
    const Shape strides = strides_of(argument, view, room);
    lay_out(argument, view, x_shape_, strides, split_.outer, known.rows);
    lay_out(argument, view, x_shape_, strides, split_.normalized, known.cols);
  } else if (form == Form::parameter) {
    lay_out_vector(argument, view, x_shape_, split_.normalized,
                   split_.by_number ? "the axes normalised have shape" : "normalized_shape is", known.cols);
  } else {
    lay_out_vector(argument, view, x_shape_, split_.outer, "x has rows of shape", known.rows);
  }
  known.view = view;
  known.is_known = true;
  return known;
}

void Layouts::broadcast(std::string_view argument, const ConstTensor& view, Axes& cols, std::optional<Axes>& sets,
                        std::optional<Axes>& shared) {
  PerAxis room, along_x;
  for (std::size_t i = 0; i < x_shape_.size(); ++i) {
    if (view.shape[i] == x_shape_[i] || view.shape[i] == 1) continue;
    fail(argument, "has shape " + text_of(view.shape) + ", but x has " + text_of(x_shape_) +
                       ": each axis should be as long as x's, or 1");
  }
  const Shape strides = strides_of(argument, view, room);
  for (std::size_t i = 0; i < x_shape_.size(); ++i) along_x[i] = view.shape[i] == 1 ? 0 : strides[i];
  Axes elements;
  lay_out(argument, view, x_shape_, along_x, split_.normalized, cols);
  lay_out(argument, view, view.shape, strides, split_.normalized, elements);
  if (elements != cols) shared = elements;
  if (split_.sets != 0) lay_out(argument, view, x_shape_, along_x, split_.set_axes(), sets.emplace());
}

}  // namespace evenorm::internal
