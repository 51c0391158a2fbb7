// See explain_input.hpp.
#include "explain_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "npy.hpp"
#include "numbers.hpp"
#include "reference.hpp"
#include "text.hpp"

namespace evenorm::cli {
namespace {

constexpr std::size_t kRowsUnlessTold = 2;
constexpr std::int64_t kMostDecimals = 15;

// A tensor as it was given.
struct Given {
  Array array;
  bool typed = false;  // numbers on the command line, held as f64
};

bool names_a_file(const std::string& text) { return text.ends_with(".npy") || text.find('/') != std::string::npos; }

Given read_tensor(const char* argument, const std::string& text) {
  if (names_a_file(text)) return {read_npy(text), false};
  const Numbers numbers = parse_numbers(argument, text);
  Array array(DType::f64, numbers.shape, numbers.values.size() * sizeof(double));
  std::copy(numbers.values.begin(), numbers.values.end(), reinterpret_cast<double*>(array.bytes().data()));
  return {std::move(array), true};
}

std::int64_t integer(const char* option, const std::string& text, std::int64_t least, std::int64_t most) {
  const auto value = parse_integer(text);
  if (value && *value >= least && *value <= most) return *value;
  throw Failure(fmt::format("{} is '{}', but should be a number from {} to {}", option, text, least, most));
}

// An axis by its place, negative ones counted from the end.
std::size_t axis_of(const char* option, std::int64_t axis, const Shape& shape) {
  const auto axes = static_cast<std::int64_t>(shape.size());
  if (axis >= -axes && axis < axes) return static_cast<std::size_t>(axis < 0 ? axis + axes : axis);
  throw Failure(fmt::format("{} has {}, but x has shape {}: its axes are 0 to {}, or -{} to -1", option, axis,
                            shape_text(shape), axes - 1, axes));
}

std::vector<std::int64_t> sizes(const char* option, const std::string& text, const char* like) {
  const auto parsed = parse_sizes(text);
  if (parsed) return *parsed;
  throw Failure(fmt::format("{} is '{}', but should be numbers with commas between, e.g. {}", option, text, like));
}

// The shape of a parameter, where it says what is normalised.
Shape shape_of(const char* parameter, const Array& array, const Shape& x) {
  const Shape& shape = array.shape();
  if (shape.size() <= x.size() && std::equal(shape.rbegin(), shape.rend(), x.rbegin())) return shape;
  throw Failure(fmt::format("{} has shape {}, but x has shape {}, which should end in it", parameter, shape_text(shape),
                            shape_text(x)));
}

Shape normalized_shape(const ExplainOptions& options, const Shape& x, const Array& weight, const Array& bias) {
  if (!options.normalized_shape.empty()) return sizes("--normalized-shape", options.normalized_shape, "3,8");
  if (!options.axes.empty()) return {};
  if (weight.present()) return shape_of("weight", weight, x);
  if (bias.present()) return shape_of("bias", bias, x);
  return {x.back()};
}

// Has everything checked by the one place that does; nothing is run.
void check(const ExplainInput& input, const Array& x, const Array& weight, const Array& bias, const Shape& axes) {
  auto* place = const_cast<std::byte*>(x.bytes().data());  // Plan looks at addresses only
  (void)Plan({.kind = input.kind,
              .x = x.view(),
              .y = {place, x.dtype(), input.x_shape, {}},
              .normalized_shape = input.normalized_shape,
              .axes = axes,
              .weight = weight.view(),
              .bias = bias.view(),
              .eps = input.eps,
              .zero_centered = input.zero_centered});
}

// Splits x's axes into those normalised together and those that number the rows, once Plan has accepted them.
void split_axes(const Shape& named, ExplainInput& input) {
  const std::size_t trailing = input.x_shape.size() - input.normalized_shape.size();
  std::vector<bool> normalized(input.x_shape.size());
  for (const std::int64_t axis : named) normalized[axis_of("--axes", axis, input.x_shape)] = true;
  for (std::size_t axis = 0; axis < normalized.size(); ++axis) {
    if (normalized[axis] || (named.empty() && axis >= trailing)) {
      input.axes.push_back(axis);
      if (!named.empty()) input.normalized_shape.push_back(input.x_shape[axis]);
    } else {
      input.leading_shape.push_back(input.x_shape[axis]);
    }
  }
}

void set_axes(const ExplainOptions& options, ExplainInput& input, const Array& x, const Array& weight,
              const Array& bias) {
  input.x_shape = x.shape();
  if (input.x_shape.empty()) throw Failure("x has shape (), but should have an axis to normalise");
  const Shape axes = options.axes.empty() ? Shape{} : sizes("--axes", options.axes, "1,2");
  input.normalized_shape = normalized_shape(options, input.x_shape, weight, bias);
  check(input, x, weight, bias, axes);
  split_axes(axes, input);
}

std::size_t product(const Shape& shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

std::vector<std::size_t> chosen_rows(const std::string& text, std::size_t total) {
  if (total == 0) throw Failure("x has no rows to explain: one of its leading axes has size 0");
  std::vector<std::size_t> rows;
  if (text.empty() || text == "all") {
    const std::size_t count = text.empty() ? std::min(total, kRowsUnlessTold) : total;
    for (std::size_t row = 0; row < count; ++row) rows.push_back(row);
    return rows;
  }
  for (const std::int64_t row : sizes("--rows", text, "0,17 (or all)")) {
    if (row < 0 || static_cast<std::uint64_t>(row) >= total) {
      throw Failure(fmt::format("--rows has {}, but the rows of x are 0 to {}", row, total - 1));
    }
    rows.push_back(static_cast<std::size_t>(row));
  }
  return rows;
}

// Where the elements of one row are, or where rows begin: every index along `axes`, in C order.
std::vector<std::size_t> offsets(const Shape& shape, const std::vector<std::size_t>& axes) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * static_cast<std::size_t>(shape[i]);
  std::vector<std::size_t> all{0};
  for (const std::size_t axis : axes) {
    std::vector<std::size_t> next;
    for (const std::size_t offset : all) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(shape[axis]); ++i)
        next.push_back(offset + i * strides[axis]);
    }
    all = std::move(next);
  }
  return all;
}

// The offset of a row along the axes that are not normalised.
std::size_t row_offset(std::size_t row, const Shape& shape, const std::vector<std::size_t>& axes) {
  std::size_t offset = 0, stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
      offset += row % size * stride;
      row /= size;
    }
    stride *= size;
  }
  return offset;
}

// Elements of a tensor in another type, each rounded once.
contracts::Array converted(const char* argument, const Given& given, const std::vector<std::size_t>& places,
                           std::size_t start, DType dtype, std::optional<double>& inexact) {
  contracts::Array result(dtype, places.size());
  const DType from = given.array.dtype();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::byte* element = given.array.bytes().data() + (start + places[i]) * size_of(from);
    const reference::Real value = reference::widen(from, element, 1)[0];
    reference::store(dtype, result.data(), i, value);
    const reference::Real held = reference::widen(dtype, result.data() + i * size_of(dtype), 1)[0];
    if (held == value || value != value) continue;
    if (!std::isfinite(static_cast<double>(held))) {
      throw Failure(fmt::format("{} has {}, which is beyond {} (--dtype chooses another type)", argument,
                                static_cast<double>(value), name(dtype)));
    }
    if (given.typed && !inexact) inexact = static_cast<double>(value);
  }
  return result;
}

DType parse_dtype(const std::string& text, DType otherwise) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    if (name(dtype) == text) return dtype;
  }
  return otherwise;
}

contracts::Array parameter(const char* argument, const ExplainOptions& options, const Given& given,
                           ExplainInput& input) {
  if (!given.array.present()) return {};
  const DType own = given.typed ? input.dtype : given.array.dtype();
  std::vector<std::size_t> places(given.array.elements());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  return converted(argument, given, places, 0, parse_dtype(options.dtype, own), input.inexact);
}

void set_numbers(const ExplainOptions& options, ExplainInput& input) {
  const auto eps = parse_double(options.eps);
  if (!eps) throw Failure(fmt::format("--eps is '{}', but should be a finite number >= 0", options.eps));
  input.eps = *eps;
  input.decimals = static_cast<int>(integer("--decimals", options.decimals, 0, kMostDecimals));
  if (!options.round.empty()) input.round = static_cast<int>(integer("--round", options.round, 0, kMostDecimals));
}

}  // namespace

ExplainInput read_explain_input(const ExplainOptions& options) {
  ExplainInput input;
  input.kind = options.rms ? Kind::rms : Kind::layer;
  input.zero_centered = options.zero_centered;
  set_numbers(options, input);
  const Given x = read_tensor("x", options.x);
  const Given weight = options.weight.empty() ? Given{} : read_tensor("weight", options.weight);
  const Given bias = options.bias.empty() ? Given{} : read_tensor("bias", options.bias);
  input.dtype = parse_dtype(options.dtype, x.typed ? DType::f32 : x.array.dtype());
  set_axes(options, input, x.array, weight.array, bias.array);
  if (!options.batch_axis.empty()) {
    const auto axis = parse_integer(options.batch_axis);
    if (!axis) throw Failure(fmt::format("--batch-axis is '{}', but should be one axis, e.g. 0", options.batch_axis));
    input.batch_axis = axis_of("--batch-axis", *axis, input.x_shape);
  }
  input.cols = product(input.normalized_shape);
  input.rows_total = product(input.leading_shape);
  input.rows = chosen_rows(options.rows, input.rows_total);
  const std::vector<std::size_t> places = offsets(input.x_shape, input.axes);
  for (const std::size_t row : input.rows) {
    const std::size_t start = row_offset(row, input.x_shape, input.axes);
    input.x.push_back(converted("x", x, places, start, input.dtype, input.inexact));
  }
  input.weight = parameter("weight", options, weight, input);
  input.bias = parameter("bias", options, bias, input);
  return input;
}

}  // namespace evenorm::cli
