// Shapes, strides, types and eps. How buffers overlap: overlap.cpp.
#include "validate.hpp"

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

// Strides in elements of a C-contiguous tensor equal those given, axes of size 1 aside.
bool is_contiguous(Shape shape, Shape strides) {
  if (strides.empty()) return true;
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

// Rows of contiguous elements at one distance: the distance, in elements.
std::int64_t row_stride(std::string_view argument, Shape shape, Shape strides, std::size_t leading, std::size_t cols) {
  if (strides.empty()) return static_cast<std::int64_t>(cols);
  if (strides.size() != shape.size()) {
    fail(argument, "has strides " + text_of(strides) + ", but shape " + text_of(shape));
  }
  const auto refuse = [&] {
    fail(argument, "has strides " + text_of(strides) + " for shape " + text_of(shape) +
                       ", but rows should be contiguous and at one distance");
  };
  if (!is_contiguous(shape.subspan(leading), strides.subspan(leading))) refuse();
  bool found = false;
  std::int64_t stride = static_cast<std::int64_t>(cols), expected = 0;
  for (std::size_t i = leading; i-- > 0;) {
    if (shape[i] == 1) continue;
    if (!found) {
      stride = strides[i];
      found = true;
    } else if (strides[i] != expected) {
      refuse();
    }
    if (__builtin_mul_overflow(strides[i], shape[i], &expected)) refuse();
  }
  return stride;
}

template <class Pointer, class View>
Rows<Pointer> rows_of(std::string_view argument, const View& view, std::size_t leading, std::size_t rows,
                      std::size_t cols) {
  Rows<Pointer> result{view.data, view.dtype, 0};
  const std::int64_t stride = row_stride(argument, view.shape, view.strides, leading, cols);
  std::int64_t bytes = 0, extent = 0;
  if (__builtin_mul_overflow(stride, static_cast<std::int64_t>(bytes_of(view.dtype)), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<std::int64_t>(rows), &extent)) {
    fail(argument, "has strides " + text_of(view.strides) + ", which are more than memory can hold");
  }
  result.row_stride = bytes;
  return result;
}

template <class Pointer, class View>
Vector<Pointer> vector_of(std::string_view argument, const View& view, Shape expected, std::string_view expected_name) {
  if (view.data == nullptr) return {};
  if (!equal(view.shape, expected)) {
    fail(argument,
         "has shape " + text_of(view.shape) + ", but " + std::string(expected_name) + " " + text_of(expected));
  }
  if (!is_contiguous(view.shape, view.strides)) {
    fail(argument, "has strides " + text_of(view.strides) + ", but it should be contiguous");
  }
  return {view.data, view.dtype};
}

void check_normalized_shape(Shape shape, Shape normalized) {
  if (normalized.empty()) throw Error("normalized_shape is (), but it should name at least one axis");
  const bool fits = normalized.size() <= shape.size();
  if (!fits || !equal(shape.last(normalized.size()), normalized)) {
    throw Error("x has shape " + text_of(shape) + ", but it should end in normalized_shape " + text_of(normalized));
  }
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
  check_normalized_shape(f.x.shape, f.normalized_shape);
  if (!equal(f.y.shape, f.x.shape)) {
    throw Error("y has shape " + text_of(f.y.shape) + ", but x has " + text_of(f.x.shape));
  }
  const std::size_t leading = f.x.shape.size() - f.normalized_shape.size();
  const Shape outer = f.x.shape.first(leading);

  Problem p;
  p.kind = f.kind;
  p.cols = count_elements("normalized_shape", f.normalized_shape, DType::f64);
  if (p.cols == 0) {
    throw Error("normalized_shape is " + text_of(f.normalized_shape) + ", but it should have at least one element");
  }
  p.rows = count_elements("x", f.x.shape, DType::f64) / p.cols;
  p.x = rows_of<const void*>("x", f.x, leading, p.rows, p.cols);
  p.y = rows_of<void*>("y", f.y, leading, p.rows, p.cols);

  if (f.weight.data != nullptr) check_dtype("weight", f.weight.dtype);
  if (f.bias.data != nullptr) check_dtype("bias", f.bias.dtype);
  p.gamma = vector_of<const void*>("weight", f.weight, f.normalized_shape, "normalized_shape is");
  p.beta = vector_of<const void*>("bias", f.bias, f.normalized_shape, "normalized_shape is");
  if (f.zero_centered && f.weight.data == nullptr) {
    throw Error("weight is absent, but zero_centered needs one");
  }
  p.zero_centered = f.zero_centered;

  if (f.kind == Kind::rms && f.mean.data != nullptr) throw Error("mean is given, but RMS norm has none");
  if (f.mean.data != nullptr) check_dtype("mean", f.mean.dtype, true);
  if (f.rstd.data != nullptr) check_dtype("rstd", f.rstd.dtype, true);
  p.mean = vector_of<void*>("mean", f.mean, outer, "x has rows of shape");
  p.rstd = vector_of<void*>("rstd", f.rstd, outer, "x has rows of shape");

  check_eps(f.eps);
  p.eps = f.eps;
  return p;
}

}  // namespace evenorm::internal
