// See formulas.hpp. Names are those of docs/math.md: g = dy * weight, xhat, rstd; `project` is the backward pass's
// projection.
#include "formulas.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace evenorm::torch_binding {
namespace {

using at::Tensor;

Tensor wide(const Tensor& t) { return t.defined() ? t.to(at::kDouble) : t; }
Tensor narrow(const Tensor& t, const Tensor& like) { return t.defined() ? t.to(like.scalar_type()) : t; }

// a + b, where an undefined tensor stands for 0.
Tensor plus(const Tensor& a, const Tensor& b) { return !a.defined() ? b : !b.defined() ? a : a + b; }

// The normalised rows of one input, and operations on whole rows. Rows are scaled to scale * (x - shift), so that their
// squares neither overflow nor underflow; eps becomes eps * scale^2. The norm does not depend on scale and shift, so
// neither has a derivative. Tangents of x are multiplied by scale, and so are gradients.
class Rows {
 public:
  Rows(const Norm& norm, const Tensor& x) : kind_(norm.kind), axes_(norm.axes) {
    std::iota(axes_.begin(), axes_.end(), x.dim() - static_cast<std::int64_t>(norm.axes));
    const Tensor shifted = without_shift(wide(x));
    const Tensor size = shifted.detach().abs().amax(axes_, /*keepdim=*/true).clamp_min(std::sqrt(norm.eps));
    // If a row is constant and eps is 0, xhat, rstd and all derivatives are 0 by definition.
    const Tensor is_zero = size == 0;
    scale = size.masked_fill(is_zero, 1).clamp_min(std::numeric_limits<double>::min()).log2().floor().neg().exp2();
    const Tensor centred_x = centred(shifted * scale);
    const Tensor z = mean(centred_x * centred_x) + norm.eps * scale * scale;
    rstd = z.masked_fill(is_zero, 1).rsqrt().masked_fill(is_zero, 0);
    xhat = centred_x * rstd;
  }

  Tensor mean(const Tensor& t) const { return axes_.empty() ? t : t.mean(axes_, /*keepdim=*/true); }
  Tensor centred(const Tensor& t) const { return kind_ == Kind::layer ? t - mean(t) : t; }
  // Sums over what the weight, or a parameter of one row without it, was broadcast to. Always a new tensor.
  Tensor sum_to_parameter(const Tensor& t, const Tensor& weight) const {
    const c10::SymIntArrayRef sizes = t.sym_sizes();
    const auto shape = weight.defined() ? weight.sym_sizes() : sizes.slice(sizes.size() - axes_.size());
    return at::sum_to(t, shape, /*always_return_non_view=*/true);
  }
  // Maps a tangent of scale * x to that of xhat, and a gradient of xhat to that of scale * x: the matrix is symmetric.
  Tensor project(const Tensor& t) const { return rstd * (centred(t) - xhat * mean(t * xhat)); }

  Tensor scale, rstd, xhat;

 private:
  // Subtracts the value for constant rows, which gives exactly 0, and the midrange for others, which cannot overflow.
  Tensor without_shift(const Tensor& x) const {
    if (kind_ == Kind::rms) return x;
    const Tensor low = x.detach().amin(axes_, /*keepdim=*/true), high = x.detach().amax(axes_, /*keepdim=*/true);
    return x - at::where(low == high, low, low / 2 + high / 2);
  }

  Kind kind_;
  std::vector<std::int64_t> axes_;
};

Tensor weighted(const Tensor& t, const Tensor& weight) { return weight.defined() ? t * wide(weight) : t; }

}  // namespace

Tensor forward_tangent(const Norm& norm, const Tensor& x, const Tensor& weight, const Tensor& x_tangent,
                       const Tensor& weight_tangent, const Tensor& bias_tangent) {
  const Rows rows(norm, x);
  Tensor tangent;
  if (x_tangent.defined()) tangent = weighted(rows.project(wide(x_tangent) * rows.scale), weight);
  if (weight_tangent.defined()) tangent = plus(tangent, rows.xhat * wide(weight_tangent));
  if (bias_tangent.defined()) tangent = wide(bias_tangent) + (tangent.defined() ? tangent : at::zeros_like(rows.xhat));
  return narrow(tangent, x);
}

Gradients composed_backward(const Norm& norm, const Tensor& dy, const Tensor& x, const Tensor& weight) {
  const Rows rows(norm, x);
  const Tensor wide_dy = wide(dy);
  return {narrow(rows.project(weighted(wide_dy, weight)) * rows.scale, x),
          narrow(rows.sum_to_parameter(wide_dy * rows.xhat, weight), weight.defined() ? weight : x),
          rows.sum_to_parameter(wide_dy, weight)};
}

SecondGradients double_backward(const Norm& norm, const Tensor& dy, const Tensor& x, const Tensor& weight,
                                const Gradients& of) {
  const Rows rows(norm, x);
  const Tensor wide_dy = wide(dy), b = wide(of.dweight), c = wide(of.dbias);
  Tensor of_dy, of_xhat, of_x, of_weight;
  if (of.dx.defined()) {
    const Tensor a = wide(of.dx) * rows.scale;
    const Tensor g = weighted(wide_dy, weight), projected = rows.project(a);
    of_dy = weighted(projected, weight);
    if (weight.defined()) of_weight = rows.sum_to_parameter(wide_dy * projected, weight);
    // dx = rstd (g - mean(g) - xhat mean(g xhat)). The derivative of <a, dx> by xhat, then by rstd.
    const Tensor along = rows.mean(g * rows.xhat);
    of_xhat = -rows.rstd * (a * along + g * rows.mean(a * rows.xhat));
    of_x = -rows.rstd * rows.rstd * rows.xhat * rows.mean(a * (rows.centred(g) - rows.xhat * along));
  }
  if (b.defined()) {
    of_dy = plus(of_dy, rows.xhat * b);
    of_xhat = plus(of_xhat, wide_dy * b);
  }
  if (c.defined()) of_dy = plus(of_dy, c.expand_as(wide_dy));
  if (of_xhat.defined()) of_x = plus(of_x, rows.project(of_xhat)) * rows.scale;
  return {narrow(of_dy, dy), narrow(of_x, x), weight.defined() ? narrow(of_weight, weight) : of_weight};
}

}  // namespace evenorm::torch_binding
