// See explain_input.hpp.
#include "learn/explain/explain_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cli/common/layout.hpp"
#include "cli/common/norm.hpp"
#include "cli/common/text.hpp"
#include "cli/files/pieces.hpp"
#include "learn/explain/numbers.hpp"
#include "reference/reference.hpp"

namespace evenorm::cli {
namespace {

constexpr std::size_t kRowsUnlessTold = 2;
constexpr std::int64_t kMostDecimals = 15;

// Limits on the numbers in a page's rows: by default, and at most. With a gradient half as many, because it adds
// numbers to each. Rows are limited too, because each has its own sentences, formulas and pictures.
constexpr std::size_t kPageNumbersUnlessTold = 8192, kMostPageNumbers = 131072;
constexpr std::size_t kPageRowsUnlessTold = 64, kMostPageRows = 1024;

Array typed_numbers(const char* argument, const std::string& text) {
  const Numbers numbers = parse_numbers(argument, text);
  Array array(DType::f64, numbers.shape);
  std::copy(numbers.values.begin(), numbers.values.end(), reinterpret_cast<double*>(array.bytes().data()));
  return array;
}

// The input as given: numbers on the command line, held as f64, or a file, of which only the needed rows are read.
class GivenInput {
 public:
  GivenInput(const char* argument, const std::string& text) {
    if (names_a_file(text)) {
      file_.emplace(text);
    } else {
      typed_ = typed_numbers(argument, text);
    }
  }

  bool typed() const { return !file_; }
  void expect_apart(const Outputs& outputs, std::string_view what) const {
    if (file_) outputs.expect_apart(file_->file(), what);
  }
  DType dtype() const { return file_ ? file_->dtype() : typed_.dtype(); }
  const Shape& shape() const { return file_ ? file_->shape() : typed_.shape(); }

  // The distance between neighbours along each axis of the shape in_groups(), in elements.
  std::vector<std::size_t> strides(std::int64_t groups) const {
    const Shape sizes = in_groups(shape(), groups);
    const bool fortran = file_ && file_->fortran_order();
    const Shape strides = dense_strides(sizes, axes_in_file(sizes.size(), fortran, groups != 0));
    return {strides.begin(), strides.end()};
  }

  // Reads the elements at `start` + places. Adjacent elements are read together.
  Array read(std::size_t start, const std::vector<std::size_t>& places) {
    const std::size_t bytes = size_of(dtype());
    Array row(dtype(), {static_cast<std::int64_t>(places.size())});
    for (std::size_t first = 0, end = 0; first < places.size(); first = end) {
      for (end = first + 1; end < places.size() && places[end] == places[end - 1] + 1;) ++end;
      const std::span<std::byte> to = row.bytes().subspan(first * bytes, (end - first) * bytes);
      if (file_) {
        file_->read_elements(static_cast<std::int64_t>(start + places[first]), to);
      } else {
        std::copy_n(typed_.bytes().data() + (start + places[first]) * bytes, to.size(), to.data());
      }
    }
    return row;
  }

 private:
  std::optional<NpyFile> file_;
  Array typed_;
};

// gamma and beta as given, each as numbers or from a file.
class GivenParameters {
 public:
  GivenParameters(const ExplainOptions& options, const Outputs& outputs) : files_(paths(options)) {
    files_.expect_apart(outputs);
    files_.read();
    if (is_typed(options.weight)) typed_weight_ = typed_numbers("weight", options.weight);
    if (is_typed(options.bias)) typed_bias_ = typed_numbers("bias", options.bias);
  }

  const Array& weight() const { return typed_weight_.present() ? typed_weight_ : files_.weight(); }
  const Array& bias() const { return typed_bias_.present() ? typed_bias_ : files_.bias(); }
  bool has_typed(const Array& parameter) const { return &parameter == &typed_weight_ || &parameter == &typed_bias_; }

 private:
  static bool is_typed(const std::string& text) { return !text.empty() && !names_a_file(text); }
  static ParameterPaths paths(const ExplainOptions& options) {
    const bool any_typed = is_typed(options.weight) || is_typed(options.bias);
    if (any_typed && !options.params.empty())
      throw Failure("--params has weight and bias, so neither can be given too");
    return {is_typed(options.weight) ? "" : options.weight, is_typed(options.bias) ? "" : options.bias, options.params,
            options.name};
  }

  Parameters files_;
  Array typed_weight_, typed_bias_;
};

std::int64_t integer(const char* option, const std::string& text, std::int64_t least, std::int64_t most) {
  const auto value = parse_integer(text);
  if (value && *value >= least && *value <= most) return *value;
  throw Failure(fmt::format("{} is '{}', but should be a number from {} to {}", option, text, least, most));
}

std::size_t batch_axis(const std::string& text, const Shape& shape) {
  const auto axis = parse_integer(text);
  const auto axes = static_cast<std::int64_t>(shape.size());
  if (!axis) throw Failure(fmt::format("--batch-axis is '{}', but should be one axis, e.g. 0", text));
  if (*axis >= -axes && *axis < axes) return static_cast<std::size_t>(*axis < 0 ? *axis + axes : *axis);
  throw Failure(fmt::format("--batch-axis has {}, but x has shape {}: its axes are 0 to {}, or -{} to -1", *axis,
                            shape_text(shape), axes - 1, axes));
}

std::vector<std::int64_t> sizes(const char* option, const std::string& text, const char* like) {
  const auto parsed = parse_sizes(text);
  if (parsed) return *parsed;
  throw Failure(fmt::format("{} is '{}', but should be numbers with commas between, e.g. {}", option, text, like));
}

void set_axes(const ExplainOptions& options, const Shape& x_shape, const GivenParameters& parameters,
              ExplainInput& input) {
  input.groups = group_count(options.groups, "x", x_shape);
  input.x_shape = in_groups(x_shape, input.groups);
  input.axes = normalized_axes(
      "x", input.x_shape,
      axes_choice(options.axes, options.normalized_shape, options.groups, parameters.weight(), parameters.bias()));
  input.normalized_shape = sizes_at(input.x_shape, input.axes);
  input.leading_shape = sizes_elsewhere(input.x_shape, input.axes);
}

NormParameter parameter_of(const char* name, const Array& given, const Shape& x_shape, const ExplainInput& input) {
  return {&given, parameter_shape(name, given, "x", x_shape, input.groups)};
}

// Has the library validate the arguments; nothing is run.
void check(const ExplainInput& input, const GivenInput& x, const ConstTensor& weight, const ConstTensor& bias) {
  const Shape axes(input.axes.begin(), input.axes.end());
  (void)Plan({.kind = input.kind,
              .x = {nullptr, x.dtype(), input.x_shape, {}},
              .y = {nullptr, x.dtype(), input.x_shape, {}},
              .axes = axes,
              .weight = weight,
              .bias = bias,
              .eps = input.eps,
              .zero_centered = input.zero_centered});
}

// 0, 1, ... count - 1
std::vector<std::size_t> up_to(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<std::size_t> chosen_rows(const std::string& text, std::size_t total, std::size_t unless_told) {
  if (total == 0) throw Failure("x has no rows to explain: one of its leading axes has size 0");
  if (text.empty()) return up_to(std::min(total, unless_told));
  if (text == "all") return up_to(total);
  std::vector<std::size_t> rows;
  for (const std::int64_t row : sizes("--rows", text, "0,17 (or all)")) {
    if (row < 0 || static_cast<std::uint64_t>(row) >= total) {
      throw Failure(fmt::format("--rows has {}, but the rows of x are 0 to {}", row, total - 1));
    }
    rows.push_back(static_cast<std::size_t>(row));
  }
  return rows;
}

std::size_t page_rows_unless_told(std::size_t cols, bool gradient) {
  return std::clamp<std::size_t>(kPageNumbersUnlessTold / (gradient ? 2 : 1) / cols, 1, kPageRowsUnlessTold);
}

// Throws if a page cannot hold the rows.
void expect_room_on_page(const ExplainInput& input, bool gradient) {
  const std::size_t most = kMostPageNumbers / (gradient ? 2 : 1);
  const char* with = gradient ? "a page (--html) with --grad" : "a page (--html)";
  if (input.cols > most) {
    throw Failure(fmt::format("x has rows of {} numbers, but {} can have at most {} on its rows",
                              with_commas(input.cols), with, with_commas(most)));
  }
  if (input.rows.size() > kMostPageRows) {
    throw Failure(fmt::format("--rows has {} rows, but {} can have at most {}", with_commas(input.rows.size()), with,
                              with_commas(kMostPageRows)));
  }
  if (input.rows.size() * input.cols > most) {
    throw Failure(
        fmt::format("--rows has {} rows of {} numbers, but {} can have at most {} numbers on its rows: {} "
                    "such rows",
                    with_commas(input.rows.size()), with_commas(input.cols), with, with_commas(most),
                    with_commas(most / input.cols)));
  }
}

void set_rows(const ExplainOptions& options, ExplainInput& input) {
  const bool gradient = !options.grad.empty();
  input.cols = product(input.normalized_shape);
  input.rows_total = product(input.leading_shape);
  input.rows = chosen_rows(options.rows, input.rows_total,
                           input.pictures ? page_rows_unless_told(input.cols, gradient) : kRowsUnlessTold);
  if (input.pictures) expect_room_on_page(input, gradient);
}

// The offsets of a row's elements from its first.
std::vector<std::size_t> places_in_row(const Shape& shape, const std::vector<std::size_t>& axes,
                                       const std::vector<std::size_t>& strides) {
  std::vector<std::size_t> all{0};
  for (const std::size_t axis : axes) {
    std::vector<std::size_t> next;
    for (const std::size_t place : all) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(shape[axis]); ++i) next.push_back(place + i * strides[axis]);
    }
    all = std::move(next);
  }
  return all;
}

// The offset of a row's first element.
std::size_t row_start(std::size_t row, const Shape& shape, const std::vector<std::size_t>& axes,
                      const std::vector<std::size_t>& strides) {
  std::size_t start = 0;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    const auto size = static_cast<std::size_t>(shape[axis]);
    start += row % size * strides[axis];
    row /= size;
  }
  return start;
}

// Converts elements to another type, each rounded once.
contracts::Array converted(const char* argument, const Array& given, bool typed, DType dtype,
                           std::optional<double>& inexact) {
  contracts::Array result(dtype, given.elements());
  const std::vector<reference::Real> values = reference::widen(given.dtype(), given.bytes().data(), given.elements());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const reference::Real value = values[i];
    reference::store(dtype, result.data(), i, value);
    const reference::Real held = reference::widen(dtype, result.data() + i * size_of(dtype), 1)[0];
    if (held == value || value != value) continue;
    if (!std::isfinite(static_cast<double>(held))) {
      throw Failure(fmt::format("{} has {}, which is beyond {} (--dtype chooses another type)", argument,
                                static_cast<double>(value), name(dtype)));
    }
    if (typed && !inexact) inexact = static_cast<double>(value);
  }
  return result;
}

// The chosen rows, in the type to compute in.
std::vector<contracts::Array> read_rows(const char* argument, GivenInput& from, DType dtype, ExplainInput& input) {
  const std::vector<std::size_t> strides = from.strides(input.groups);
  const std::vector<std::size_t> places = places_in_row(input.x_shape, input.axes, strides);
  std::vector<contracts::Array> rows;
  for (const std::size_t row : input.rows) {
    const Array elements = from.read(row_start(row, input.x_shape, input.axes, strides), places);
    rows.push_back(converted(argument, elements, from.typed(), dtype, input.inexact));
  }
  return rows;
}

// All of x in the type to compute in, each number rounded once. Numbers out of range become infinity: they are refused
// only in rows that are shown.
std::optional<contracts::Array> read_whole(GivenInput& x, const ExplainInput& input) {
  if (product(input.x_shape) > kMostInPicture) return std::nullopt;
  const std::vector<std::size_t> axes = up_to(input.x_shape.size());
  const Array given = x.read(0, places_in_row(input.x_shape, axes, x.strides(input.groups)));
  const std::vector<reference::Real> values = reference::widen(x.dtype(), given.bytes().data(), given.elements());
  contracts::Array whole(input.dtype, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) reference::store(input.dtype, whole.data(), i, values[i]);
  return whole;
}

std::optional<GivenInput> given_gradient(const std::string& text, const Shape& x_shape, const Outputs& outputs) {
  if (text.empty()) return std::nullopt;
  GivenInput dy("dy", text);
  dy.expect_apart(outputs, "dy");
  if (dy.shape() == x_shape) return dy;
  throw Failure(fmt::format("dy (--grad) has shape {}, but should have that of x, {}", shape_text(dy.shape()),
                            shape_text(x_shape)));
}

bool varies(const Shape& parameter, const ExplainInput& input) {
  return parameter.size() == input.x_shape.size() && !input.leading_shape.empty();
}

// The elements for each row of a parameter that varies.
std::vector<contracts::Array> of_rows(const contracts::Array& whole, const Shape& shape, const ExplainInput& input) {
  std::vector<std::size_t> strides;
  for (const std::int64_t stride : dense_strides(shape)) strides.push_back(static_cast<std::size_t>(stride));
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) strides[axis] = 0;
  }
  const std::vector<std::size_t> places = places_in_row(input.x_shape, input.axes, strides);
  const std::size_t bytes = size_of(whole.dtype());
  std::vector<contracts::Array> rows;
  for (const std::size_t row : input.rows) {
    const std::size_t start = row_start(row, input.x_shape, input.axes, strides);
    std::byte* to = rows.emplace_back(whole.dtype(), places.size()).data();
    for (const std::size_t place : places) to = std::copy_n(whole.data() + (start + place) * bytes, bytes, to);
  }
  return rows;
}

void set_parameter(const char* argument, const ExplainOptions& options, const NormParameter& given, bool typed,
                   ExplainInput& input, contracts::Array& one, std::vector<contracts::Array>& of_each_row) {
  if (!given.present()) return;
  const DType own = typed ? input.dtype : given.array->dtype();
  one = converted(argument, *given.array, typed, dtype_named(options.dtype).value_or(own), input.inexact);
  if (varies(given.shape, input)) of_each_row = of_rows(std::exchange(one, {}), given.shape, input);
}

// The sums over rows and the page are of norms whose rows share one weight. A batch axis is one of x's own shape.
void expect_text_of_forward(const ExplainOptions& options, const ExplainInput& input, bool varying) {
  const bool grouped = input.groups != 0;
  const char* option = !options.grad.empty()                    ? "--grad"
                       : options.pictures                       ? "--html"
                       : grouped && !options.batch_axis.empty() ? "--batch-axis"
                                                                : nullptr;
  if (option == nullptr || !(grouped || varying)) return;
  throw Failure(fmt::format("{} is given, but should not be with {}", option,
                            grouped ? "--groups" : "a weight or bias that has all axes of x"));
}

void set_numbers(const ExplainOptions& options, ExplainInput& input) {
  input.eps = parse_number("--eps", options.eps);
  input.decimals = static_cast<int>(integer("--decimals", options.decimals, 0, kMostDecimals));
  if (!options.round.empty()) input.round = static_cast<int>(integer("--round", options.round, 0, kMostDecimals));
}

}  // namespace

ExplainInput read_explain_input(const ExplainOptions& options, const Outputs& outputs) {
  ExplainInput input;
  input.kind = options.rms ? Kind::rms : Kind::layer;
  input.zero_centered = options.zero_centered;
  input.pictures = options.pictures;
  set_numbers(options, input);
  GivenInput x("x", options.x);
  x.expect_apart(outputs, "x");
  const GivenParameters parameters(options, outputs);
  input.dtype = dtype_named(options.dtype).value_or(x.typed() ? DType::f32 : x.dtype());
  set_axes(options, x.shape(), parameters, input);
  const NormParameter weight = parameter_of("weight", parameters.weight(), x.shape(), input);
  const NormParameter bias = parameter_of("bias", parameters.bias(), x.shape(), input);
  check(input, x, weight.view(), bias.view());
  expect_text_of_forward(options, input, varies(weight.shape, input) || varies(bias.shape, input));
  std::optional<GivenInput> dy = given_gradient(options.grad, input.x_shape, outputs);
  if (!options.batch_axis.empty()) input.batch_axis = batch_axis(options.batch_axis, input.x_shape);
  set_rows(options, input);
  input.x = read_rows("x", x, input.dtype, input);
  if (input.pictures) input.whole = read_whole(x, input);
  if (dy) {
    const DType own = dy->typed() ? input.dtype : dy->dtype();
    input.dy = read_rows("dy", *dy, dtype_named(options.dtype).value_or(own), input);
  }
  set_parameter("weight", options, weight, parameters.has_typed(*weight.array), input, input.weight, input.weights);
  set_parameter("bias", options, bias, parameters.has_typed(*bias.array), input, input.bias, input.biases);
  return input;
}

}  // namespace evenorm::cli
