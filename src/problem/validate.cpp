// Validates a forward pass, except its fused forms (validate_fused.cpp) and how its buffers overlap (overlap.cpp).
#include "problem/validate.hpp"

#include <string>

#include "problem/fp_environment.hpp"
#include "problem/shapes.hpp"

namespace evenorm::internal {
namespace {

void check_statistic_dtype(std::string_view argument, DType dtype) {
  check_dtype(argument, dtype);
  if (dtype != DType::f64 && dtype != DType::f32) {
    fail(argument, "has dtype " + std::string(name(dtype)) + ", but statistics should be f64 or f32");
  }
}

}  // namespace

Problem validate(const Forward& f) {
  const FpEnvironment environment;  // scales are rounded here
  check_kind(f.kind);
  check_dtype("x", f.x.dtype);
  if (f.y.dtype != DType::i8) check_dtype("y", f.y.dtype);
  AxisSplit split = split_axes(f.x.shape, f.normalized_shape, f.axes);
  order_rows(split, f.x.shape, {shape_of(f.weight), shape_of(f.bias)});
  Layouts layouts(f.x.shape, split);
  check_shape_is_of_x("y", f.y.shape, f.x.shape);

  Problem p;
  p.kind = f.kind;
  p.cols = count_cols(f.x.shape, split);
  p.rows = count_rows(f.x.shape, p.cols);
  p.sets = count_at(f.x.shape, split.set_axes());
  p.shared = count_shared(f.x.shape, split, {shape_of(f.weight), shape_of(f.bias)});
  p.x = layouts.matrix("x", f.x);
  p.y = layouts.matrix("y", f.y);

  if (f.weight.data != nullptr) check_dtype("weight", f.weight.dtype);
  if (f.bias.data != nullptr) check_dtype("bias", f.bias.dtype);
  p.gamma = layouts.parameter("weight", f.weight);
  p.beta = layouts.parameter("bias", f.bias);
  if (f.zero_centered && f.weight.data == nullptr) {
    throw Error("weight is absent, but zero_centered needs one");
  }
  p.zero_centered = f.zero_centered;

  if (f.kind == Kind::rms && f.mean.data != nullptr) throw Error("mean is given, but RMS norm has none");
  if (f.mean.data != nullptr) check_statistic_dtype("mean", f.mean.dtype);
  if (f.rstd.data != nullptr) check_statistic_dtype("rstd", f.rstd.dtype);
  p.mean = layouts.statistic("mean", f.mean);
  p.rstd = layouts.statistic("rstd", f.rstd);

  check_eps(f.eps);
  p.eps = f.eps;
  add_fused(f, layouts, p);
  return p;
}

Problem validate_plain(const Forward& f) {
  Problem p = validate(f);
  if (p.sets != 1) throw Error("weight or bias varies from row to row, which this pass does not support");
  if (p.shared != 1) throw Error("columns share an element of weight or bias, which this pass does not support");
  return p;
}

}  // namespace evenorm::internal
