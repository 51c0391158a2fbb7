// The forward operations of evenorm._core: they make views of the arguments, allocate missing outputs and run one pass.
#include <array>

#include "norms.hpp"
#include "work.hpp"

namespace evenorm::python {
namespace {

// The arguments that all forward operations share.
struct Common {
  View x, weight, bias;
  Split split;
  Forward forward;

  Common(bool rms, nb::handle x_object, nb::handle normalized_shape, nb::handle weight_object, nb::handle bias_object,
         nb::handle eps, nb::handle axis, nb::handle zero_centered)
      : split(normalized_shape, axis) {
    load_required(x, x_object, "x");
    weight.load(weight_object, "weight", arithmetic_of(x));
    bias.load(bias_object, "bias", arithmetic_of(x));
    forward.kind = kind_of_norm(rms);
    forward.x = x.input();
    forward.normalized_shape = split.normalized_shape();
    forward.axes = split.axes();
    forward.weight = weight.input();
    forward.bias = bias.input();
    forward.eps = eps_of(eps, rms, x.dtype());
    forward.zero_centered = truth_of(zero_centered);
  }

  // An output of x's shape: the caller's object, or a new array of x's type.
  Tensor output(View& view, nb::handle object, const char* name) {
    load_or_allocate(view, object, name, x.shape(), x.dtype(), &x);
    check_floating(view, name);
    return view.output();
  }
};

nb::any norm(bool rms, nb::handle x, nb::handle normalized_shape, nb::handle weight, nb::handle bias, nb::handle eps,
             nb::handle axis, nb::handle zero_centered, nb::handle out, nb::handle return_stats) {
  Common c(rms, x, normalized_shape, weight, bias, eps, axis, zero_centered);
  View y, mean, rstd;
  c.forward.y = c.output(y, out, "out");
  const bool stats = truth_of(return_stats);
  if (stats) {
    const Integers outer = c.split.outer(c.x.shape());
    rstd.allocate(outer.span(), DType::f64);
    c.forward.rstd = rstd.output();
    if (!rms) {
      mean.allocate(outer.span(), DType::f64);
      c.forward.mean = mean.output();
    }
  }
  run(c.forward, c.x.size(), true);
  if (!stats) return as_any(y.result());
  if (rms) return tuple_of(y.result(), rstd.result());
  return tuple_of(y.result(), mean.result(), rstd.result());
}

nb::any add_norm(bool rms, nb::handle x, nb::handle residual, nb::handle normalized_shape, nb::handle weight,
                 nb::handle bias, nb::handle eps, nb::handle axis, nb::handle residual_scale, nb::handle zero_centered,
                 nb::handle out) {
  Common c(rms, x, normalized_shape, weight, bias, eps, axis, zero_centered);
  View r, y, sum;
  std::array<nb::object, 2> outputs;
  unpack(out, "(y, sum), where either may be None", outputs);
  load_required(r, residual, "residual");
  c.forward.residual = r.input();
  c.forward.residual_scale = number_of(residual_scale, "residual_scale");
  c.forward.y = c.output(y, outputs[0], "y");
  c.forward.sum = c.output(sum, outputs[1], "sum");
  run(c.forward, c.x.size(), false);
  return tuple_of(y.result(), sum.result());
}

nb::any norm_int8(bool rms, nb::handle x, nb::handle normalized_shape, nb::handle weight, nb::handle bias,
                  nb::handle eps, nb::handle axis, nb::handle scale, nb::handle zero_centered, nb::handle out) {
  Common c(rms, x, normalized_shape, weight, bias, eps, axis, zero_centered);
  View q, scales;
  load_or_allocate(q, out, "out", c.x.shape(), DType::i8, &c.x);
  if (q.dtype() != DType::i8)
    fail_type("out has dtype " + std::string(numpy_name(q.dtype())) + ", but it should have int8");
  c.forward.y = q.output();
  if (scale.is_none()) {
    scales.allocate(c.split.outer(c.x.shape()).span(), DType::f32);
    c.forward.scale = scales.output();
  } else {
    c.forward.given_scale = number_of(scale, "scale");
    if (c.forward.given_scale == 0) fail_value("scale is 0, but it should be a normal f32 above 0");
    scales.allocate({}, DType::f32);
    *static_cast<float*>(scales.output().data) = static_cast<float>(c.forward.given_scale);
  }
  run(c.forward, c.x.size(), true);
  return tuple_of(q.result(), scales.result());
}

// Checks the arguments of a forward pass that runs later. x, weight and bias have the types and shapes of its tensors;
// their elements are not read, and they have the shape of the normalised axes. dtype is y's type. Returns the
// normalised axes, as negative numbers, and eps.
nb::any check_norm(bool rms, nb::handle x, nb::handle normalized_shape, nb::handle weight, nb::handle bias,
                   nb::handle eps, nb::handle axis, nb::handle zero_centered, nb::handle dtype) {
  Common c(rms, x, normalized_shape, weight, bias, eps, axis, zero_centered);
  c.forward.y = {nullptr, dtype_named_by(dtype, "dtype"), c.x.shape()};
  run_steps([&](const Executor&) { const Plan plan(c.forward); }, 0);
  for (const View* parameter : {&c.weight, &c.bias}) {
    if (parameter->present() && parameter->shape().size() > c.split.inner(c.x.shape()).count) {
      fail_value("weight or bias has an axis that is not normalised, which is supported for NumPy arrays only");
    }
  }
  nb::list axes;
  const auto rank = static_cast<std::int64_t>(c.x.shape().size());
  const auto count = static_cast<std::int64_t>(c.forward.normalized_shape.size());
  for (std::int64_t i = -count; i < 0; ++i) axes.append(i);
  for (const std::int64_t i : c.forward.axes) axes.append(i < 0 ? i : i - rank);
  return tuple_of(nb::tuple(axes), c.forward.eps);
}

}  // namespace

void add_forward(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("norm", &norm, "rms"_a, any("x"), any("normalized_shape"), any("weight"), any("bias"), any("eps"), any("axis"),
        any("zero_centered"), any("out"), any("return_stats"));
  m.def("add_norm", &add_norm, "rms"_a, any("x"), any("residual"), any("normalized_shape"), any("weight"), any("bias"),
        any("eps"), any("axis"), any("residual_scale"), any("zero_centered"), any("out"));
  m.def("norm_int8", &norm_int8, "rms"_a, any("x"), any("normalized_shape"), any("weight"), any("bias"), any("eps"),
        any("axis"), any("scale"), any("zero_centered"), any("out"));
  m.def("check_norm", &check_norm, "rms"_a, any("x"), any("normalized_shape"), any("weight"), any("bias"), any("eps"),
        any("axis"), any("zero_centered"), any("dtype"));
}

}  // namespace evenorm::python
