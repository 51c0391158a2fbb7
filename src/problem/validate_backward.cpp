// Validates a backward pass, except how its buffers overlap (overlap.cpp).
#include <algorithm>
#include <string>

#include "problem/fp_environment.hpp"
#include "problem/shapes.hpp"
#include "problem/validate.hpp"

namespace evenorm::internal {
namespace {

// Statistics rounded to f32 would move dx by more than its error bound.
void check_statistic_dtype(std::string_view argument, DType dtype) {
  check_dtype(argument, dtype);
  if (dtype != DType::f64) {
    fail(argument, "has dtype " + std::string(name(dtype)) + ", but the backward pass needs f64");
  }
}

void check_statistics(const Backward& b) {
  const bool has_mean = b.mean.data != nullptr, has_rstd = b.rstd.data != nullptr;
  if (b.kind == Kind::rms && has_mean) fail("mean", "is given, but RMS norm has none");
  if (b.kind == Kind::layer && has_mean && !has_rstd) fail("mean", "is given, but rstd is absent");
  if (b.kind == Kind::layer && has_rstd && !has_mean) fail("rstd", "is given, but mean is absent");
  if (has_mean) check_statistic_dtype("mean", b.mean.dtype);
  if (has_rstd) check_statistic_dtype("rstd", b.rstd.dtype);
}

void check_dtypes(const Backward& b) {
  check_dtype("x", b.x.dtype);
  check_dtype("dy", b.dy.dtype);
  if (b.dx.data != nullptr) check_dtype("dx", b.dx.dtype);
  if (b.dsum.data != nullptr) check_dtype("dsum", b.dsum.dtype);
  if (b.weight.data != nullptr) check_dtype("weight", b.weight.dtype);
  if (b.dweight.data != nullptr) check_dtype("dweight", b.dweight.dtype);
  if (b.dbias.data != nullptr) check_dtype("dbias", b.dbias.dtype);
}

// weight, dweight and dbias have the same sets of rows, and the same columns share their elements.
void check_varies_alike(std::string_view argument, Shape shape, Shape as, Shape x_shape, const AxisSplit& split) {
  const auto varies = [&](Shape parameter, std::size_t axis) {
    if (has_outer_axes(parameter, split)) return parameter[axis] != 1;
    const auto* const last = split.normalized.number.begin() + split.normalized.count;
    return std::find(split.normalized.number.begin(), last, axis) != last;
  };
  for (std::size_t axis = 0; axis < x_shape.size() && !shape.empty(); ++axis) {
    if (x_shape[axis] == 1 || varies(shape, axis) == varies(as, axis)) continue;
    fail(argument,
         "has shape " + text_of(shape) +
             ", but weight, dweight and dbias should vary along the same axes; if they do not, run a pass for "
             "each gradient");
  }
}

}  // namespace

GradientProblem validate(const Backward& b) {
  const FpEnvironment environment;
  check_kind(b.kind);
  check_dtypes(b);
  const Shape shape = b.x.shape;
  AxisSplit split = split_axes(shape, b.normalized_shape, b.axes);
  order_rows(split, shape, {shape_of(b.weight), shape_of(b.dweight), shape_of(b.dbias)});
  Layouts layouts(shape, split);
  check_shape_is_of_x("dy", b.dy.shape, shape);
  if (b.dx.data != nullptr) check_shape_is_of_x("dx", b.dx.shape, shape);

  GradientProblem p;
  p.kind = b.kind;
  p.cols = p.whole_cols = count_cols(shape, split);
  p.rows = count_rows(shape, p.cols);
  p.sets = count_at(shape, split.set_axes());
  // Without rows, dx has no elements and may be null.
  if (p.rows != 0 && b.dx.data == nullptr && b.dweight.data == nullptr && b.dbias.data == nullptr) {
    throw Error("dx, dweight and dbias are null, but at least one should be given");
  }
  p.x = layouts.matrix("x", b.x);
  p.dy = layouts.matrix("dy", b.dy);
  if (b.dx.data != nullptr) p.dx = layouts.matrix("dx", b.dx);
  if (b.dsum.data != nullptr) {
    if (b.dx.data == nullptr) fail("dsum", "is given, but dx is absent");
    check_shape_is_of_x("dsum", b.dsum.shape, shape);
    p.dsum = layouts.matrix("dsum", b.dsum);
  }

  p.gamma = layouts.parameter("weight", b.weight);
  p.dgamma = layouts.gradient("dweight", b.dweight);
  p.dbeta = layouts.gradient("dbias", b.dbias);
  if (b.weight.data != nullptr && b.dweight.data != nullptr && !std::ranges::equal(b.dweight.shape, b.weight.shape)) {
    fail("dweight", "has shape " + text_of(b.dweight.shape) + ", but weight has " + text_of(b.weight.shape));
  }
  const Shape shapes[] = {shape_of(b.weight), shape_of(b.dweight), shape_of(b.dbias)};
  const auto* const given = std::ranges::find_if(shapes, [](Shape parameter) { return !parameter.empty(); });
  if (given != std::end(shapes)) {
    p.shared = count_shared(shape, split, {shapes[0], shapes[1], shapes[2]});
    check_varies_alike("dweight", shapes[1], *given, shape, split);
    check_varies_alike("dbias", shapes[2], *given, shape, split);
  }
  if (b.zero_centered && b.weight.data == nullptr) fail("weight", "is absent, but zero_centered needs one");
  p.zero_centered = b.zero_centered;
  p.accumulate = b.accumulate;

  check_statistics(b);
  p.mean = layouts.statistic("mean", b.mean);
  p.rstd = layouts.statistic("rstd", b.rstd);

  check_eps(b.eps);
  p.eps = b.eps;
  return p;
}

GradientProblem validate_plain(const Backward& b) {
  GradientProblem p = validate(b);
  if (p.sets != 1) throw Error("weight, dweight or dbias varies from row to row, which this pass does not support");
  if (has_shared_columns(p)) throw Error("dweight or dbias is a sum over columns, which this pass does not support");
  if (p.shared != 1) throw Error("columns share an element of weight, which this pass does not support");
  return p;
}

}  // namespace evenorm::internal
