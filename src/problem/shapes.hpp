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
// These use the bits of eps, so that a subnormal eps raises no floating-point exception. -0 has the bits of 0.
std::int64_t bits_of_eps(double eps);
bool is_eps(double eps);
void check_eps(double eps);

constexpr std::size_t kMaxRank = 64;  // as in NumPy and PyTorch

// Some of a tensor's axes: bit i stands for axis i.
using AxisSet = std::uint64_t;
constexpr AxisSet first_axes(std::size_t n) { return n == 0 ? 0 : ~AxisSet{0} >> (kMaxRank - n); }

// One number for each axis of x, or for each axis of a set. Left uninitialised beyond them.
using PerAxis = std::array<std::int64_t, kMaxRank>;

// x's axes: the normalised ones, and the outer ones, which number the rows.
struct AxisSplit {
  AxisSet normalized = 0, outer = 0;
  AxisSet sets = 0;        // the outer axes along which a parameter varies; rows are numbered along these first
  bool by_number = false;  // given by axes, not by normalized_shape
};

AxisSplit split_axes(Shape x_shape, Shape normalized_shape, Shape axes);

// The sizes of some axes, which `room` then holds.
Shape sizes_at(Shape shape, AxisSet axes, PerAxis& room);
// The number of elements of a row, at least 1.
std::size_t count_cols(Shape x_shape, const AxisSplit& split);
// The number of elements; it may be 0. Throws Error if their bytes, for the largest type, do not fit in ptrdiff_t.
std::size_t count_elements(std::string_view argument, Shape shape);
// The product of the sizes of some of x's axes. It may be 0.
std::size_t count_at(Shape x_shape, AxisSet axes);

// The shape of a view; empty if it is absent.
Shape shape_of(const auto& view) { return view.data == nullptr ? Shape() : Shape(view.shape); }
inline bool has_no_elements(Shape shape) { return std::ranges::find(shape, 0) != shape.end(); }
// The axes along which a parameter has an element of its own for each of x's indices. See shape_of().
AxisSet varying_axes(Shape parameter, Shape x_shape, const AxisSplit& split);

// Makes the layouts of the tensors of one pass, which are present.
struct Layouts {
  Shape x_shape;
  const AxisSplit& split;

  // Sets `to` to a tensor of x's shape. or_i8: its type may be i8, too.
  template <class View>
  void matrix(std::string_view argument, const View& view, Matrix<decltype(View::data)>& to, bool or_i8 = false) const {
    if (!or_i8 || view.dtype != DType::i8) check_dtype(argument, view.dtype);
    lay_out(argument, view, first_axes(x_shape.size()), "x has", to.rows, to.cols);
    to.data = view.data;
    to.dtype = view.dtype;
  }
  // The same for gamma, beta or a gradient of theirs.
  template <class View>
  void parameter(std::string_view argument, const View& view, Broadcast<decltype(View::data)>& to) const {
    check_dtype(argument, view.dtype);
    to.data = view.data;
    to.dtype = view.dtype;
    if (view.shape.size() == x_shape.size()) return broadcast(argument, view, to.axes, to.sets, to.shared);
    const char* expected = split.by_number ? "the axes normalised have shape" : "normalized_shape is";
    lay_out(argument, view, split.normalized, expected, to.axes, to.axes);
  }
  // The same for a tensor over the outer axes (mean, rstd or scale). It has one of these types; `should` says so in a
  // message.
  template <class View>
  void statistic(std::string_view argument, const View& view, Vector<decltype(View::data)>& to,
                 std::initializer_list<DType> types = {DType::f64, DType::f32},
                 const char* should = "statistics should be f64 or f32") const {
    check_dtype(argument, view.dtype);
    if (std::ranges::find(types, view.dtype) == types.end()) {
      fail(argument, "has dtype " + std::string(name(view.dtype)) + ", but " + should);
    }
    lay_out(argument, view, split.outer, "x has rows of shape", to.axes, to.axes);
    to.data = view.data;
    to.dtype = view.dtype;
  }

  // Adds the layout of a tensor whose axes are x's axes in `own` to `rows` and `cols`. `expected` introduces the
  // expected shape in a message.
  void lay_out(std::string_view argument, const ConstTensor& view, AxisSet own, const char* expected, Axes& rows,
               Axes& cols) const;

 private:
  void broadcast(std::string_view argument, const ConstTensor& view, Axes& cols, Axes& sets,
                 std::optional<Axes>& shared) const;
};

}  // namespace evenorm::internal
