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
#include <type_traits>

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
// These use the bits of eps, so that a subnormal eps raises no floating-point exception. -0 has the bits of 0.
std::int64_t bits_of_eps(double eps);
bool is_eps(double eps);
void check_eps(double eps);

constexpr std::size_t kMaxRank = 64;  // as in NumPy and PyTorch

// The numbers of some of a tensor's axes, in the tensor's order.
struct AxisList {
  std::array<std::uint8_t, kMaxRank> number;
  std::size_t count = 0;

  void add(std::size_t axis) { number[count++] = static_cast<std::uint8_t>(axis); }
  auto* begin() { return number.data(); }
  auto* end() { return number.data() + count; }
  const auto* begin() const { return number.data(); }
  const auto* end() const { return number.data() + count; }
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
// True if a parameter has an element of its own for each index along an axis of x.
bool varies_along(std::size_t axis, Shape parameter, const AxisSplit& split);
// Puts the outer axes along which one of these parameters varies first. See shape_of().
void order_rows(AxisSplit& split, Shape x_shape, std::span<const Shape> parameters);

// The number of elements of a row, at least 1.
std::size_t count_cols(Shape x_shape, const AxisSplit& split);
// The product of the sizes of some axes. It may be 0.
std::size_t count_at(Shape shape, const AxisList& list);
// How many neighbouring columns share an element of each of these parameters; 1 if all are absent. See shape_of().
std::size_t count_shared(Shape x_shape, const AxisSplit& split, std::span<const Shape> parameters);
// Throws Error if the bytes of x might not fit in ptrdiff_t.
std::size_t count_rows(Shape x_shape, std::size_t cols);

// Sets `axes` to the layout of a tensor over some of x's axes. The view has these in x's order, the layout in the
// list's. `expected_name` introduces the expected shape in messages.
void lay_out_vector(std::string_view argument, const ConstTensor& view, Shape x_shape, const AxisList& list,
                    std::string_view expected_name, Axes& axes);

inline ConstTensor as_const(const ConstTensor& view) { return view; }
inline ConstTensor as_const(const Tensor& view) { return {view.data, view.dtype, view.shape, view.strides}; }

// Makes the layouts of the tensors of one pass. Most tensors have the layout of the one before, which is then reused.
class Layouts {
 public:
  Layouts(Shape x_shape, const AxisSplit& split) : x_shape_(x_shape), split_(split) {}

  // Sets `to` to a tensor of x's shape. may_be_i8: its type may be i8, too.
  template <class View>
  void matrix(std::string_view argument, const View& view, Matrix<decltype(View::data)>& to, bool may_be_i8 = false) {
    if (!may_be_i8 || view.dtype != DType::i8) check_dtype(argument, view.dtype);
    check_shape_is_of_x(argument, view.shape, x_shape_);
    const Known& known = layout(Form::matrix, argument, as_const(view));
    to.data = view.data;
    to.dtype = view.dtype;
    to.rows = known.rows;
    to.cols = known.cols;
  }
  // The same for gamma, beta or a gradient of theirs, unless it is absent. A gradient without elements is absent, too.
  template <class View>
  void parameter(std::string_view argument, const View& view, Broadcast<decltype(View::data)>& to) {
    if (view.data == nullptr) return;
    check_dtype(argument, view.dtype);
    if (!has_outer_axes(view.shape, split_)) {
      to.axes = layout(Form::parameter, argument, as_const(view)).cols;
    } else {
      broadcast(argument, as_const(view), to.axes, to.sets, to.shared);
      if (std::is_same_v<View, Tensor> && has_no_elements(view.shape)) return;
    }
    to.data = view.data;
    to.dtype = view.dtype;
  }
  // The same for a tensor over the outer axes (mean, rstd or scale), unless it is absent. It has one of these types;
  // `should` says so in a message.
  template <class View>
  void statistic(std::string_view argument, const View& view, Vector<decltype(View::data)>& to,
                 std::initializer_list<DType> types, const char* should) {
    if (view.data == nullptr) return;
    check_dtype(argument, view.dtype);
    if (std::ranges::find(types, view.dtype) == types.end()) {
      fail(argument, "has dtype " + std::string(name(view.dtype)) + ", but " + should);
    }
    to.data = view.data;
    to.dtype = view.dtype;
    to.axes = layout(Form::statistic, argument, as_const(view)).rows;
  }

 private:
  enum class Form : unsigned char { matrix, parameter, statistic };
  struct Known {
    ConstTensor view;
    Axes rows, cols;
    bool is_known = false;
  };
  const Known& layout(Form form, std::string_view argument, const ConstTensor& view);
  void broadcast(std::string_view argument, const ConstTensor& view, Axes& cols, std::optional<Axes>& sets,
                 std::optional<Axes>& shared);

  Shape x_shape_;
  const AxisSplit& split_;
  std::array<Known, 3> known_;  // the last layout of each form
};

}  // namespace evenorm::internal
