// Validates forward and backward passes, except how their buffers overlap (overlap.cpp).
#include "problem/validate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "problem/fp_environment.hpp"
#include "problem/shapes.hpp"

namespace evenorm::internal {
namespace {

// Adds how the rows form sets and how columns share elements, if a parameter has all of x's axes.
void add_sets(Shape x_shape, std::span<const Shape> parameters, AxisSplit& split, AnyProblem& p) {
  AxisSet varying = 0;
  for (const Shape parameter : parameters) varying |= varying_axes(parameter, x_shape, split);
  split.sets = varying & split.outer;
  p.sets = count_at(x_shape, split.sets);
  const auto up_to_last = static_cast<std::size_t>(std::bit_width(varying & split.normalized));
  p.shared = count_at(x_shape, split.normalized & ~first_axes(up_to_last));
}

// Checks what both passes have, except tensors, and adds it to the problem. Returns x's axes.
template <class Pass>
AxisSplit split_rows(const Pass& pass, std::span<const Shape> parameters, AnyProblem& p) {
  check_kind(pass.kind);
  AxisSplit split = split_axes(pass.x.shape, pass.normalized_shape, pass.axes);
  p.kind = pass.kind;
  p.cols = count_cols(pass.x.shape, split);
  p.rows = count_elements("x", pass.x.shape) / p.cols;
  const auto has_all_axes = [&](Shape parameter) { return parameter.size() == pass.x.shape.size(); };
  if (std::ranges::any_of(parameters, has_all_axes)) add_sets(pass.x.shape, parameters, split, p);
  if (pass.kind == Kind::rms && pass.mean.data != nullptr) fail("mean", "is given, but RMS norm has none");
  if (pass.zero_centered && pass.weight.data == nullptr) fail("weight", "is absent, but zero_centered needs one");
  p.zero_centered = pass.zero_centered;
  check_eps(pass.eps);
  p.eps = pass.eps;
  return split;
}

void check_absent(std::string_view argument, const void* data, const char* needed) {
  if (data != nullptr) fail(argument, "is given, but " + std::string(needed));
}

template <class View>
void check_dense_rows(std::string_view argument, const View& view, const Axes& cols, const char* because) {
  if (cols.is_dense(bytes_of(view.dtype))) return;
  fail(argument, "has strides " + text_of(view.strides) + " for shape " + text_of(view.shape) +
                     ", but the elements of a row should lie side by side " + because);
}

bool is_plain(const Forward& f) {
  return f.residual.data == nullptr && f.sum.data == nullptr && f.residual_scale == 1 && f.y.dtype != DType::i8 &&
         f.scale.data == nullptr && f.given_scale == 0;
}

// Checks that the fields of a fused form that is not used are absent.
void check_unused(const Forward& f) {
  if (f.residual.data == nullptr) {
    check_absent("sum", f.sum.data, "residual is absent");
    if (f.residual_scale != 1) fail("residual_scale", "is " + text_of(f.residual_scale) + ", but residual is absent");
  }
  if (f.y.dtype != DType::i8) {
    check_absent("scale", f.scale.data, "y is not i8");
    if (f.given_scale != 0) fail("given_scale", "is " + text_of(f.given_scale) + ", but y is not i8");
  }
}

void add_residual(const Forward& f, const Layouts& layouts, Problem& p) {
  layouts.matrix("residual", f.residual, p.residual);
  p.residual_scale = f.residual_scale;
  const bool wide = arithmetic_type_of_sum(p) == DType::f64;
  const double rounded = wide ? f.residual_scale : static_cast<double>(static_cast<float>(f.residual_scale));
  if (!std::isfinite(rounded)) {
    fail("residual_scale",
         "is " + text_of(f.residual_scale) + ", but it should be finite in " + (wide ? "f64" : "f32"));
  }
  constexpr const char* kBecause = "where residual is given";
  check_dense_rows("x", f.x, p.x.cols, kBecause);
  check_dense_rows("y", f.y, p.y.cols, kBecause);
  check_dense_rows("residual", f.residual, p.residual.cols, kBecause);
  if (f.sum.data == nullptr) return;
  layouts.matrix("sum", f.sum, p.sum);
  if (f.sum.dtype != f.x.dtype) {
    fail("sum", "has dtype " + std::string(name(f.sum.dtype)) + ", but x has " + std::string(name(f.x.dtype)));
  }
  check_dense_rows("sum", f.sum, p.sum.cols, kBecause);
}

void add_quantisation(const Forward& f, const Layouts& layouts, Problem& p) {
  check_dense_rows("x", f.x, p.x.cols, "where y is i8");
  check_dense_rows("y", f.y, p.y.cols, "where y is i8");
  p.given_scale = static_cast<float>(f.given_scale);
  if (f.given_scale != 0) {
    check_absent("scale", f.scale.data, "so is given_scale");
    // 1 / given_scale would be out of range for a subnormal given_scale.
    if (!(p.given_scale >= std::numeric_limits<float>::min() && p.given_scale <= std::numeric_limits<float>::max())) {
      fail("given_scale", "is " + text_of(f.given_scale) + ", but it should be a normal f32 above 0");
    }
    return;
  }
  if (f.scale.data == nullptr) fail("scale", "is null, but y is i8 and there is no given_scale");
  layouts.statistic("scale", f.scale, p.scale, {DType::f32}, "it should be f32");
}

void add_fused_forms(const Forward& f, const Layouts& layouts, Problem& p) {
  check_unused(f);
  if (f.residual.data != nullptr) add_residual(f, layouts, p);
  if (f.y.dtype == DType::i8) add_quantisation(f, layouts, p);
}

// weight, dweight and dbias have the same sets of rows, and the same columns share their elements.
void check_varies_alike(std::string_view argument, Shape shape, Shape as, Shape x_shape, const AxisSplit& split) {
  if (shape.empty() || varying_axes(shape, x_shape, split) == varying_axes(as, x_shape, split)) return;
  fail(argument, "has shape " + text_of(shape) +
                     ", but weight, dweight and dbias should vary along the same axes; if they do not, run a pass for "
                     "each gradient");
}

}  // namespace

Problem validate(const Forward& f) {
  const FpEnvironment environment;  // scales are rounded here
  const Shape parameters[] = {shape_of(f.weight), shape_of(f.bias)};
  Problem p;
  const AxisSplit split = split_rows(f, parameters, p);
  const Layouts layouts{f.x.shape, split};
  layouts.matrix("x", f.x, p.x);
  layouts.matrix("y", f.y, p.y, true);
  if (f.weight.data != nullptr) layouts.parameter("weight", f.weight, p.gamma);
  if (f.bias.data != nullptr) layouts.parameter("bias", f.bias, p.beta);
  if (f.mean.data != nullptr) layouts.statistic("mean", f.mean, p.mean);
  if (f.rstd.data != nullptr) layouts.statistic("rstd", f.rstd, p.rstd);
  if (!is_plain(f)) add_fused_forms(f, layouts, p);
  return p;
}

GradientProblem validate(const Backward& b) {
  const FpEnvironment environment;
  const Shape parameters[] = {shape_of(b.weight), shape_of(b.dweight), shape_of(b.dbias)};
  GradientProblem p;
  const AxisSplit split = split_rows(b, parameters, p);
  p.whole_cols = p.cols;
  p.accumulate = b.accumulate;
  // Without rows, dx has no elements and may be null.
  if (p.rows != 0 && b.dx.data == nullptr && b.dweight.data == nullptr && b.dbias.data == nullptr) {
    throw Error("dx, dweight and dbias are null, but at least one should be given");
  }
  const Layouts layouts{b.x.shape, split};
  layouts.matrix("x", b.x, p.x);
  layouts.matrix("dy", b.dy, p.dy);
  if (b.dx.data != nullptr) layouts.matrix("dx", b.dx, p.dx);
  if (b.dsum.data != nullptr) {
    if (b.dx.data == nullptr) fail("dsum", "is given, but dx is absent");
    layouts.matrix("dsum", b.dsum, p.dsum);
  }

  if (b.weight.data != nullptr) layouts.parameter("weight", b.weight, p.gamma);
  if (b.dweight.data != nullptr) layouts.parameter("dweight", b.dweight, p.dgamma);
  if (b.dbias.data != nullptr) layouts.parameter("dbias", b.dbias, p.dbeta);
  if (has_no_elements(b.dweight.shape)) p.dgamma.data = nullptr;
  if (has_no_elements(b.dbias.shape)) p.dbeta.data = nullptr;
  if (b.weight.data != nullptr && b.dweight.data != nullptr && !std::ranges::equal(b.dweight.shape, b.weight.shape)) {
    fail("dweight", "has shape " + text_of(b.dweight.shape) + ", but weight has " + text_of(b.weight.shape));
  }
  const auto* const given = std::ranges::find_if(parameters, [](Shape parameter) { return !parameter.empty(); });
  if (given != std::end(parameters)) {
    check_varies_alike("dweight", parameters[1], *given, b.x.shape, split);
    check_varies_alike("dbias", parameters[2], *given, b.x.shape, split);
  }

  if (b.kind == Kind::layer && b.rstd.data == nullptr) check_absent("mean", b.mean.data, "rstd is absent");
  if (b.kind == Kind::layer && b.mean.data == nullptr) check_absent("rstd", b.rstd.data, "mean is absent");
  constexpr auto kNeeds = "the backward pass needs f64";  // f32 would exceed dx's bound
  if (b.mean.data != nullptr) layouts.statistic("mean", b.mean, p.mean, {DType::f64}, kNeeds);
  if (b.rstd.data != nullptr) layouts.statistic("rstd", b.rstd, p.rstd, {DType::f64}, kNeeds);
  return p;
}

Problem validate_plain(const Forward& f) {
  Problem p = validate(f);
  if (p.sets != 1) throw Error("weight or bias varies from row to row, which this pass does not support");
  if (p.shared != 1) throw Error("columns share an element of weight or bias, which this pass does not support");
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
