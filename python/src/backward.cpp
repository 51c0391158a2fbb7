// The backward operation of evenorm._core: gradients of x, weight and bias.
#include <array>

#include "norms.hpp"
#include "work.hpp"

namespace evenorm::python {
namespace {

// The default type of dweight and dbias: float64 if any input is float64, else float32, also for 16-bit inputs.
DType type_of_sums(const View& x, const View& dy, const View& weight) {
  const bool wide =
      x.dtype() == DType::f64 || dy.dtype() == DType::f64 || (weight.present() && weight.dtype() == DType::f64);
  return wide ? DType::f64 : DType::f32;
}

nb::any norm_backward(bool rms, nb::handle dy_object, nb::handle x_object, nb::handle normalized_shape,
                      nb::handle weight_object, nb::handle eps, nb::handle axis, nb::handle mean_object,
                      nb::handle rstd_object, nb::handle dsum_object, nb::handle zero_centered, nb::handle accumulate,
                      nb::handle param_dtype, nb::handle out) {
  const Split split(normalized_shape, axis);
  View dy, x, weight, mean, rstd, dsum;
  load_required(dy, dy_object, "dy");
  load_required(x, x_object, "x");
  weight.load(weight_object, "weight", arithmetic_of(x));
  mean.load(mean_object, "mean");
  rstd.load(rstd_object, "rstd");
  dsum.load(dsum_object, "dsum", arithmetic_of(x));

  std::array<nb::object, 3> outputs;
  unpack(out, rms ? "(dx, dweight), where either may be None" : "(dx, dweight, dbias), where any may be None",
         std::span(outputs).first(rms ? 2 : 3));
  const DType dtype = param_dtype.is_none() ? type_of_sums(x, dy, weight) : dtype_named_by(param_dtype, "param_dtype");
  const bool adds = truth_of(accumulate);
  if (adds && (outputs[1].is_none() || (!rms && outputs[2].is_none()))) {
    fail_value("accumulate is given, but out has no dweight and dbias to add to");
  }
  const Integers inner = split.inner(x.shape());
  const bool broadcast = weight.present() && weight.shape().size() == x.shape().size();
  const std::span<const std::int64_t> parameter = broadcast ? weight.shape() : inner.span();
  View dx, dweight, dbias;
  load_or_allocate(dx, outputs[0], "dx", x.shape(), x.dtype(), &x);
  load_or_allocate(dweight, outputs[1], "dweight", parameter, dtype);
  if (!rms) load_or_allocate(dbias, outputs[2], "dbias", parameter, dtype);

  const Backward backward{.kind = kind_of_norm(rms),
                          .x = x.input(),
                          .dy = dy.input(),
                          .normalized_shape = split.normalized_shape(),
                          .axes = split.axes(),
                          .weight = weight.input(),
                          .mean = mean.input(),
                          .rstd = rstd.input(),
                          .dx = dx.output(),
                          .dweight = dweight.output(),
                          .dbias = dbias.output(),
                          .eps = eps_of(eps, rms, x.dtype()),
                          .zero_centered = truth_of(zero_centered),
                          .accumulate = adds,
                          .dsum = dsum.input()};
  for (const auto& [view, name] : {std::pair(&dx, "dx"), std::pair(&dweight, "dweight"), std::pair(&dbias, "dbias")}) {
    if (view->present()) check_floating(*view, name);
  }
  run(backward, x.size());
  if (rms) return tuple_of(dx.result(), dweight.result());
  return tuple_of(dx.result(), dweight.result(), dbias.result());
}

}  // namespace

void add_backward(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("norm_backward", &norm_backward, "rms"_a, any("dy"), any("x"), any("normalized_shape"), any("weight"),
        any("eps"), any("axis"), any("mean"), any("rstd"), any("dsum"), any("zero_centered"), any("accumulate"),
        any("param_dtype"), any("out"));
}

}  // namespace evenorm::python
