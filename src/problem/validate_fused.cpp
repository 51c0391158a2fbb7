// Validates the fused forms of a forward pass: residual and sum, quantised y.
#include <cmath>
#include <limits>
#include <string>

#include "problem/shapes.hpp"
#include "problem/validate.hpp"

namespace evenorm::internal {
namespace {

void check_absent(std::string_view argument, const void* data, const char* needed) {
  if (data != nullptr) fail(argument, "is given, but " + std::string(needed));
}

template <class View>
void check_dense_rows(std::string_view argument, const View& view, const Axes& cols, const char* because) {
  if (cols.is_dense(bytes_of(view.dtype))) return;
  fail(argument, "has strides " + text_of(view.strides) + " for shape " + text_of(view.shape) +
                     ", but the elements of a row should lie side by side " + because);
}

void add_residual(const Forward& f, Layouts& layouts, Problem& p) {
  if (f.residual.data == nullptr) {
    check_absent("sum", f.sum.data, "residual is absent");
    if (f.residual_scale != 1) fail("residual_scale", "is " + text_of(f.residual_scale) + ", but residual is absent");
    return;
  }
  check_dtype("residual", f.residual.dtype);
  check_shape_is_of_x("residual", f.residual.shape, f.x.shape);
  p.residual = layouts.matrix("residual", f.residual);
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
  check_shape_is_of_x("sum", f.sum.shape, f.x.shape);
  if (f.sum.dtype != f.x.dtype) {
    check_dtype("sum", f.sum.dtype);
    fail("sum", "has dtype " + std::string(name(f.sum.dtype)) + ", but x has " + std::string(name(f.x.dtype)));
  }
  p.sum = layouts.matrix("sum", f.sum);
  check_dense_rows("sum", f.sum, p.sum.cols, kBecause);
}

void add_quantisation(const Forward& f, Layouts& layouts, Problem& p) {
  if (f.y.dtype != DType::i8) {
    check_absent("scale", f.scale.data, "y is not i8");
    if (f.given_scale != 0) fail("given_scale", "is " + text_of(f.given_scale) + ", but y is not i8");
    return;
  }
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
  check_dtype("scale", f.scale.dtype);
  if (f.scale.dtype != DType::f32) {
    fail("scale", "has dtype " + std::string(name(f.scale.dtype)) + ", but it should be f32");
  }
  p.scale = layouts.statistic("scale", f.scale);
}

}  // namespace

void add_fused(const Forward& f, Layouts& layouts, Problem& p) {
  add_residual(f, layouts, p);
  add_quantisation(f, layouts, p);
}

}  // namespace evenorm::internal
