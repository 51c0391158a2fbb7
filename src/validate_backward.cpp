// What a backward pass should have, of one norm or of two. Shapes, axes and strides themselves: shapes.cpp. How buffers
// overlap: overlap.cpp.
#include <string>

#include "rows/fp_environment.hpp"
#include "scratch_plan.hpp"
#include "shapes.hpp"
#include "validate.hpp"

namespace evenorm::internal {
namespace {

// Rounded statistics would move dx by more than its bound.
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
  if (b.dy2.data != nullptr) check_dtype("dy2", b.dy2.dtype);
  if (b.weight2.data != nullptr) check_dtype("weight2", b.weight2.dtype);
  if (b.dweight2.data != nullptr) check_dtype("dweight2", b.dweight2.dtype);
  if (b.dbias2.data != nullptr) check_dtype("dbias2", b.dbias2.dtype);
}

// Without elements dy2 may well be null.
bool has_second(const Backward& b, std::size_t rows) {
  if (b.dy2.data != nullptr) return true;
  if (rows == 0) return b.weight2.data != nullptr || b.dweight2.data != nullptr || b.dbias2.data != nullptr;
  const auto check_absent = [](std::string_view argument, const void* data) {
    if (data != nullptr) fail(argument, "is given, but dy2 is absent");
  };
  check_absent("weight2", b.weight2.data);
  check_absent("dweight2", b.dweight2.data);
  check_absent("dbias2", b.dbias2.data);
  return false;
}

// A dx without elements may well be null.
void check_has_outputs(const Backward& b, std::size_t rows) {
  for (const Tensor* output : {&b.dx, &b.dweight, &b.dbias, &b.dweight2, &b.dbias2}) {
    if (rows == 0 || output->data != nullptr) return;
  }
  throw Error(b.dy2.data == nullptr ? "dx, dweight and dbias are null, but at least one should be given"
                                    : "dx and all gradients of parameters are null, but at least one should be given");
}

// What two norms of one x share, and where their dx meet.
GradientProblem second_of(const GradientProblem& first, const Backward& b, Layouts& layouts) {
  GradientProblem p;
  p.kind = first.kind;
  p.rows = first.rows;
  p.cols = p.whole_cols = first.cols;
  p.x = first.x;
  p.mean = first.mean;
  p.rstd = first.rstd;
  p.eps = first.eps;
  p.zero_centered = first.zero_centered;
  p.accumulate = first.accumulate;
  if (b.dy2.data != nullptr) {
    check_shape_is_of_x("dy2", b.dy2.shape, b.x.shape);
    p.dy = layouts.matrix("dy2", b.dy2);
  }
  p.gamma = layouts.parameter("weight2", b.weight2);
  p.dgamma = layouts.parameter("dweight2", b.dweight2);
  p.dbeta = layouts.parameter("dbias2", b.dbias2);
  if (b.zero_centered && b.weight2.data == nullptr) fail("weight2", "is absent, but zero_centered needs one");
  return p;
}

void join(GradientPass& pass) {
  static std::byte nowhere;
  GradientProblem &first = pass.first, &second = *pass.second;
  if (first.dx.data == nullptr) return;
  std::swap(first.dsum, second.dsum);
  const bool wide = arithmetic_type(first) == DType::f64 || arithmetic_type(second) == DType::f64;
  const DType dtype = wide ? DType::f64 : DType::f32;
  second.dx = dense_rows<void*>(&nowhere, dtype, first.rows, first.cols * bytes_of(dtype));
  first.dsum = dense_rows<const void*>(&nowhere, dtype, first.rows, first.cols * bytes_of(dtype));
}

}  // namespace

GradientPass validate(const Backward& b) {
  const FpEnvironment environment;
  check_kind(b.kind);
  check_dtypes(b);
  const Shape shape = b.x.shape;
  const AxisSplit split = split_axes(shape, b.normalized_shape, b.axes);
  Layouts layouts(shape, split);
  check_shape_is_of_x("dy", b.dy.shape, shape);
  if (b.dx.data != nullptr) check_shape_is_of_x("dx", b.dx.shape, shape);

  GradientPass pass;
  GradientProblem& p = pass.first;
  p.kind = b.kind;
  p.cols = p.whole_cols = count_cols(shape, split);
  p.rows = count_rows(shape, p.cols);
  check_has_outputs(b, p.rows);
  p.x = layouts.matrix("x", b.x);
  p.dy = layouts.matrix("dy", b.dy);
  if (b.dx.data != nullptr) p.dx = layouts.matrix("dx", b.dx);
  if (b.dsum.data != nullptr) {
    if (b.dx.data == nullptr) fail("dsum", "is given, but dx is absent");
    check_shape_is_of_x("dsum", b.dsum.shape, shape);
    p.dsum = layouts.matrix("dsum", b.dsum);
  }

  p.gamma = layouts.parameter("weight", b.weight);
  p.dgamma = layouts.parameter("dweight", b.dweight);
  p.dbeta = layouts.parameter("dbias", b.dbias);
  if (b.zero_centered && b.weight.data == nullptr) fail("weight", "is absent, but zero_centered needs one");
  p.zero_centered = b.zero_centered;
  p.accumulate = b.accumulate;

  check_statistics(b);
  p.mean = layouts.statistic("mean", b.mean);
  p.rstd = layouts.statistic("rstd", b.rstd);

  check_eps(b.eps);
  p.eps = b.eps;
  if (has_second(b, p.rows)) {
    pass.second = second_of(p, b, layouts);
    join(pass);
  }
  if (!fits_scratch(pass)) throw Error(kTooLarge);
  return pass;
}

}  // namespace evenorm::internal
