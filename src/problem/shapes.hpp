// Validates shapes, axes, strides and types, and throws Error. Knows nothing of what the tensors are for, or of whether
// buffers overlap.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "evenorm/evenorm.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

using Shape = std::span<const std::int64_t>;

std::string text_of(Shape shape);   // "(4, 8)"
std::string text_of(double value);  // "1e-05"

// Throws Error with "ARGUMENT WHAT", "weight has shape (5), ..." for example. The argument may be a name from a file.
[[noreturn]] void fail(std::string_view argument, const std::string& what);

// Enumerations are checked because a caller can cast any number to one.
void check_kind(Kind kind);
void check_dtype(std::string_view argument, DType dtype);  // refuses i8, too
void check_shape_is_of_x(std::string_view argument, Shape shape, Shape x_shape);
// These compare the bits of eps, so that a subnormal eps raises no floating-point exception.
bool is_eps(double eps);
bool is_same_eps(double a, double b);
void check_eps(double eps);

constexpr std::size_t kMaxRank = 64;  // as in NumPy and PyTorch

// The numbers of some of a tensor's axes, in the tensor's order.
struct AxisList {
  std::array<std::uint8_t, kMaxRank> number;
  std::size_t count = 0;

  void add(std::size_t axis) { number[count++] = static_cast<std::uint8_t>(axis); }
};

// x's axes: the normalised ones, and the outer ones, which number the rows. The first `sets` outer axes are those along
// which a parameter varies.
struct AxisSplit {
  AxisList normalized, outer;
  std::size_t sets = 0;
  bool by_number = false;  // given by axes, not by normalized_shape

  AxisList set_axes() const { return {outer.number, sets}; }
};

AxisSplit split_axes(Shape x_shape, Shape normalized_shape, Shape axes);

// The shape of a view; empty if it is absent.
template <class View>
Shape shape_of(const View& view) {
  return view.data == nullptr ? Shape() : view.shape;
}
inline bool has_no_elements(Shape shape) { return std::ranges::find(shape, 0) != shape.end(); }
// True if a parameter of this shape has all axes of x, not only the normalised ones.
inline bool has_outer_axes(Shape parameter, const AxisSplit& split) {
  return parameter.size() == split.normalized.count + split.outer.count;
}
// True if it has more than one element along an outer axis.
inline bool varies_along(std::size_t axis, Shape parameter, const AxisSplit& split) {
  return has_outer_axes(parameter, split) && parameter[axis] != 1;
}
// Puts the outer axes along which one of these parameters varies first. See shape_of().
void order_rows(AxisSplit& split, Shape x_shape, std::initializer_list<Shape> parameters);

// The number of elements of a row, at least 1.
std::size_t count_cols(Shape x_shape, const AxisSplit& split);
// The product of the sizes of some axes. It may be 0.
std::size_t count_at(Shape shape, const AxisList& list);
// How many neighbouring columns share an element of each of these parameters; 1 if all are absent. See shape_of().
std::size_t count_shared(Shape x_shape, const AxisSplit& split, std::initializer_list<Shape> parameters);
// Throws Error if the bytes of x might not fit in ptrdiff_t.
std::size_t count_rows(Shape x_shape, std::size_t cols);

// matrix_axes() returns the layout of a tensor of x's shape, vector_axes() that of a tensor over some of x's axes.
// `expected_name` introduces the expected shape in messages.
struct MatrixAxes {
  Axes rows, cols;
};
MatrixAxes matrix_axes(std::string_view argument, const ConstTensor& view, const AxisSplit& split);
// The layouts of a SetGradient that has outer axes.
struct BroadcastAxes {
  Axes cols;
  std::optional<Axes> sets, shared;
};
BroadcastAxes broadcast_axes(std::string_view argument, const ConstTensor& view, Shape x_shape, const AxisSplit& split);
// The view has the listed axes in x's order, the layout in the list's.
Axes vector_axes(std::string_view argument, const ConstTensor& view, Shape x_shape, const AxisList& list,
                 std::string_view expected_name);

inline ConstTensor as_const(const ConstTensor& view) { return view; }
inline ConstTensor as_const(const Tensor& view) { return {view.data, view.dtype, view.shape, view.strides}; }

// Makes the layouts of the tensors of one pass. Most tensors have the layout of the one before, which is then reused.
class Layouts {
 public:
  Layouts(Shape x_shape, const AxisSplit& split) : x_shape_(x_shape), split_(split) {}

  // A tensor of x's shape. The caller has checked the shape.
  template <class View>
  Matrix<decltype(View::data)> matrix(std::string_view argument, const View& view) {
    const MatrixAxes& axes = axes_of_matrix(argument, as_const(view));
    return {view.data, view.dtype, axes.rows, axes.cols};
  }
  // gamma, beta or a gradient of theirs. Absent if its data is null.
  SetVector parameter(std::string_view argument, const ConstTensor& view) {
    if (view.data == nullptr) return {};
    if (!has_outer_axes(view.shape, split_)) return {{view.data, view.dtype, axes_of_parameter(argument, view)}, {}};
    const BroadcastAxes axes = broadcast_axes(argument, view, x_shape_, split_);
    return {{view.data, view.dtype, axes.cols}, axes.sets};
  }
  SetGradient gradient(std::string_view argument, const Tensor& view) {
    const ConstTensor given = as_const(view);
    if (view.data == nullptr) return {};
    if (!has_outer_axes(view.shape, split_)) {
      return {{view.data, view.dtype, axes_of_parameter(argument, given)}, {}, {}};
    }
    const BroadcastAxes axes = broadcast_axes(argument, given, x_shape_, split_);
    if (has_no_elements(view.shape)) return {};  // without sets; its columns alone would look like elements
    return {{view.data, view.dtype, axes.cols}, axes.sets, axes.shared};
  }
  // A tensor over the outer axes: mean, rstd or scale. Absent if its data is null.
  template <class View>
  Vector<decltype(View::data)> statistic(std::string_view argument, const View& view) {
    if (view.data == nullptr) return {};
    return {view.data, view.dtype, axes_of_statistic(argument, as_const(view))};
  }

 private:
  template <class Laid>
  struct Known {
    ConstTensor view;
    Laid axes;
    bool is_known = false;
  };

  const MatrixAxes& axes_of_matrix(std::string_view argument, const ConstTensor& view);
  const Axes& axes_of_parameter(std::string_view argument, const ConstTensor& view);
  const Axes& axes_of_statistic(std::string_view argument, const ConstTensor& view);

  Shape x_shape_;
  const AxisSplit& split_;
  Known<MatrixAxes> matrix_;
  Known<Axes> parameter_, statistic_;
};

}  // namespace evenorm::internal
