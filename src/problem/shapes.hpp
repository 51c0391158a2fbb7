// What every description of work is made of: shapes, which axes are normalised, strides, types, and the messages of
// what is wrong with them. Throws Error. Knows nothing of what the tensors are for, or of how buffers lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "evenorm/evenorm.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

using Shape = std::span<const std::int64_t>;

std::string text_of(Shape shape);   // "(4, 8)"
std::string text_of(double value);  // "1e-05"

// "weight has shape (5), ...": the argument, then `what`. The argument may be a name from a file.
[[noreturn]] void fail(std::string_view argument, const std::string& what);

// Callers can cast any number to an enumeration, so that each is checked where it comes in.
void check_kind(Kind kind);
void check_dtype(std::string_view argument, DType dtype);  // one of those with arithmetic
void check_shape_is_of_x(std::string_view argument, Shape shape, Shape x_shape);
// By bits alone, so that no caller's floating-point exception is raised by a subnormal eps.
bool is_eps(double eps);
bool is_same_eps(double a, double b);
void check_eps(double eps);

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
  bool by_number = false;  // told by axes, not by normalized_shape
};

AxisSplit split_axes(Shape x_shape, Shape normalized_shape, Shape axes);

// The number of elements of a row: at least 1.
std::size_t count_cols(Shape x_shape, const AxisSplit& split);
// The product of the sizes of some axes, of a tensor that may have no elements.
std::size_t count_at(Shape shape, const AxisList& list);
// Fails where the bytes of x, whatever its type, do not fit in ptrdiff_t.
std::size_t count_rows(Shape x_shape, std::size_t cols);

// Where the elements of a tensor of x's shape lie, and of one over some of x's axes; `expected_name` is what has the
// sizes of those.
struct MatrixAxes {
  Axes rows, cols;
};
MatrixAxes matrix_axes(std::string_view argument, const ConstTensor& view, const AxisSplit& split);
Axes vector_axes(std::string_view argument, const ConstTensor& view, Shape x_shape, const AxisList& list,
                 std::string_view expected_name);

inline ConstTensor as_const(const ConstTensor& view) { return view; }
inline ConstTensor as_const(const Tensor& view) { return {view.data, view.dtype, view.shape, view.strides}; }

// The tensors of one pass. Most lie as the one before does, x, weight or rstd, and are laid out with it, once.
class Layouts {
 public:
  Layouts(Shape x_shape, const AxisSplit& split) : x_shape_(x_shape), split_(split) {}

  // Of x's shape, which is checked before.
  template <class View>
  Matrix<decltype(View::data)> matrix(std::string_view argument, const View& view) {
    const MatrixAxes& axes = axes_of_matrix(argument, as_const(view));
    return {view.data, view.dtype, axes.rows, axes.cols};
  }
  // gamma, beta and their gradients: over the normalised axes. Absent where there is no data.
  template <class View>
  Vector<decltype(View::data)> parameter(std::string_view argument, const View& view) {
    if (view.data == nullptr) return {};
    return {view.data, view.dtype, axes_of_parameter(argument, as_const(view))};
  }
  // mean and rstd: over the other axes. Absent likewise.
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
