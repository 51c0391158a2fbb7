// Shapes, axes, strides, types and eps. How buffers overlap: overlap.cpp.
#include "validate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace evenorm::internal {
namespace {

using Shape = std::span<const std::int64_t>;

std::string text_of(Shape shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + ")";
}

[[noreturn]] void fail(std::string_view argument, const std::string& what) {
  throw Error(std::string(argument) + " " + what);
}

bool equal(Shape a, Shape b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

// The number of elements; their bytes fit in ptrdiff_t.
std::size_t count_elements(std::string_view argument, Shape shape, DType dtype) {
  std::int64_t count = 1;
  bool zero = false, overflow = false;
  for (std::int64_t size : shape) {
    if (size < 0) fail(argument, "has shape " + text_of(shape) + ", but sizes should be at least 0");
    zero = zero || size == 0;
    overflow = overflow || __builtin_mul_overflow(count, size, &count);
  }
  std::int64_t bytes = 0;
  overflow = overflow || __builtin_mul_overflow(count, static_cast<std::int64_t>(bytes_of(dtype)), &bytes);
  if (zero) return 0;
  if (overflow) fail(argument, "has shape " + text_of(shape) + ", which is more than memory can hold");
  return static_cast<std::size_t>(count);
}

void check_dtype(std::string_view argument, DType dtype, bool statistic = false) {
  if (index_of(dtype) >= kDTypeCount) {
    fail(argument, "has dtype " + std::to_string(index_of(dtype)) + ", which is none of f64, f32, bf16, f16");
  }
  if (statistic && dtype != DType::f64 && dtype != DType::f32) {
    fail(argument, "has dtype " + std::string(name(dtype)) + ", but statistics should be f64 or f32");
  }
}

constexpr std::size_t kMaxRank = 64;  // NumPy's and PyTorch's

// Some of a tensor's axes, by number, in its order.
struct AxisList {
  std::array<std::uint8_t, kMaxRank> number;
  std::size_t count = 0;

  void add(std::size_t axis) { number[count++] = static_cast<std::uint8_t>(axis); }
};

// x's axes: those normalised together, and those that number the rows.
struct AxisSplit {
  AxisList normalized, outer;
};

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
  for (std::size_t i = 0; i < shape.size(); ++i) (is_normalized[i] ? split.normalized : split.outer).add(i);
  return split;
}

AxisSplit split_axes(const Forward& f) {
  const Shape shape = f.x.shape;
  if (shape.size() > kMaxRank) {
    fail("x",
         "has " + std::to_string(shape.size()) + " axes, but at most " + std::to_string(kMaxRank) + " are supported");
  }
  if (f.axes.empty()) {
    if (f.normalized_shape.empty()) throw Error("normalized_shape is (), but it or axes should name at least one axis");
    return trailing_axes(shape, f.normalized_shape);
  }
  if (!f.normalized_shape.empty()) throw Error("axes and normalized_shape are given, but only one of them should be");
  return named_axes(shape, f.axes);
}

using PerAxis = std::array<std::int64_t, kMaxRank>;

// Those of C order, in elements. Without elements the product of the sizes may be out of range, and does not matter.
Shape contiguous_strides(Shape shape, PerAxis& room) {
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    room[i] = stride;
    if (__builtin_mul_overflow(stride, shape[i], &stride)) stride = 0;
  }
  return {room.data(), shape.size()};
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;  // so that an address and an extent have a sum

// A view's strides in elements, given or of C order. They stay within what an address can be.
Shape strides_of(std::string_view argument, const ConstTensor& view, PerAxis& room) {
  if (view.strides.empty()) return contiguous_strides(view.shape, room);
  if (view.strides.size() != view.shape.size()) {
    fail(argument, "has strides " + text_of(view.strides) + ", but shape " + text_of(view.shape));
  }
  std::int64_t extent = 0;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    const std::int64_t stride = view.strides[i];
    std::int64_t length = 0;
    if (stride == std::numeric_limits<std::int64_t>::min() ||
        __builtin_mul_overflow(stride < 0 ? -stride : stride, view.shape[i], &length) ||
        __builtin_mul_overflow(length, static_cast<std::int64_t>(bytes_of(view.dtype)), &length) ||
        __builtin_add_overflow(extent, length, &extent) || extent > kMostBytes) {
      fail(argument, "has strides " + text_of(view.strides) + ", which are more than memory can hold");
    }
  }
  return view.strides;
}

bool has_no_elements(Shape shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

// What has no elements has no layout.
Axes layout_of(std::string_view argument, const ConstTensor& view, Shape strides, const AxisList& list) {
  if (has_no_elements(view.shape)) return {};
  const auto bytes = static_cast<std::int64_t>(bytes_of(view.dtype));
  Axes axes;
  for (std::size_t i = 0; i < list.count; ++i) {
    const std::size_t axis = list.number[i];
    if (!axes.append({static_cast<std::size_t>(view.shape[axis]), strides[axis] * bytes})) {
      fail(argument, "has strides " + text_of(view.strides) + " for shape " + text_of(view.shape) +
                         ", more axes of more than one element than memory can hold");
    }
  }
  return axes;
}

ConstTensor as_const(const ConstTensor& view) { return view; }
ConstTensor as_const(const Tensor& view) { return {view.data, view.dtype, view.shape, view.strides}; }

template <class Pointer, class View>
Matrix<Pointer> matrix_of(std::string_view argument, const View& view, const AxisSplit& split) {
  PerAxis room;
  const Shape strides = strides_of(argument, as_const(view), room);
  return {view.data, view.dtype, layout_of(argument, as_const(view), strides, split.outer),
          layout_of(argument, as_const(view), strides, split.normalized)};
}

// The sizes of some axes; they lie in `room`.
Shape sizes_at(Shape shape, const AxisList& list, PerAxis& room) {
  for (std::size_t i = 0; i < list.count; ++i) room[i] = shape[list.number[i]];
  return {room.data(), list.count};
}

// A tensor over some of x's axes; `expected_name` is what has their sizes.
template <class Pointer, class View>
Vector<Pointer> vector_of(std::string_view argument, const View& view, Shape x_shape, const AxisList& list,
                          std::string_view expected_name) {
  if (view.data == nullptr) return {};
  PerAxis expected_room;
  const Shape expected = sizes_at(x_shape, list, expected_room);
  if (!equal(view.shape, expected)) {
    fail(argument,
         "has shape " + text_of(view.shape) + ", but " + std::string(expected_name) + " " + text_of(expected));
  }
  PerAxis room;
  const Shape strides = strides_of(argument, as_const(view), room);
  AxisList all;
  for (std::size_t i = 0; i < list.count; ++i) all.add(i);
  return {view.data, view.dtype, layout_of(argument, as_const(view), strides, all)};
}

std::size_t count_cols(const Forward& f, const AxisList& normalized) {
  PerAxis room;
  const Shape shape = sizes_at(f.x.shape, normalized, room);
  const std::size_t cols = count_elements("normalized_shape", shape, DType::f64);
  if (cols == 0) {
    throw Error((f.axes.empty() ? "normalized_shape is " : "axes have shape ") + text_of(shape) +
                ", but it should have at least one element");
  }
  return cols;
}

void check_eps(double eps) {
  if (std::isfinite(eps) && eps >= 0) return;
  char text[32];
  std::snprintf(text, sizeof text, "%g", eps);
  throw Error("eps is " + std::string(text) + ", but it should be finite and at least 0");
}

}  // namespace

Problem validate(const Forward& f) {
  check_dtype("x", f.x.dtype);
  check_dtype("y", f.y.dtype);
  const AxisSplit split = split_axes(f);
  if (!equal(f.y.shape, f.x.shape)) {
    throw Error("y has shape " + text_of(f.y.shape) + ", but x has " + text_of(f.x.shape));
  }

  Problem p;
  p.kind = f.kind;
  p.cols = count_cols(f, split.normalized);
  p.rows = count_elements("x", f.x.shape, DType::f64) / p.cols;
  p.x = matrix_of<const void*>("x", f.x, split);
  p.y = matrix_of<void*>("y", f.y, split);

  if (f.weight.data != nullptr) check_dtype("weight", f.weight.dtype);
  if (f.bias.data != nullptr) check_dtype("bias", f.bias.dtype);
  const char* parameters = f.axes.empty() ? "normalized_shape is" : "the axes normalised have shape";
  p.gamma = vector_of<const void*>("weight", f.weight, f.x.shape, split.normalized, parameters);
  p.beta = vector_of<const void*>("bias", f.bias, f.x.shape, split.normalized, parameters);
  if (f.zero_centered && f.weight.data == nullptr) {
    throw Error("weight is absent, but zero_centered needs one");
  }
  p.zero_centered = f.zero_centered;

  if (f.kind == Kind::rms && f.mean.data != nullptr) throw Error("mean is given, but RMS norm has none");
  if (f.mean.data != nullptr) check_dtype("mean", f.mean.dtype, true);
  if (f.rstd.data != nullptr) check_dtype("rstd", f.rstd.dtype, true);
  p.mean = vector_of<void*>("mean", f.mean, f.x.shape, split.outer, "x has rows of shape");
  p.rstd = vector_of<void*>("rstd", f.rstd, f.x.shape, split.outer, "x has rows of shape");

  check_eps(f.eps);
  p.eps = f.eps;
  return p;
}

}  // namespace evenorm::internal
