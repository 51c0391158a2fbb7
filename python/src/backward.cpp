// The backward operations: gradients of x, weight and bias, of one norm or of two of one x.
#include <array>

#include "norms.hpp"
#include "work.hpp"

namespace evenorm::python {
namespace {

bool is_wide(const View& view) { return view.present() && view.dtype() == DType::f64; }

// What is read, but what makes a norm its own.
struct Common {
  Split split;
  View x, mean, rstd, dsum;
  Backward backward;

  Common(bool rms, nb::handle x_object, nb::handle normalized_shape, nb::handle eps, nb::handle axis,
         nb::handle zero_centered, nb::handle accumulate)
      : split(normalized_shape, axis) {
    load_required(x, x_object, "x");
    backward.kind = kind_of_norm(rms);
    backward.x = x.input();
    backward.normalized_shape = split.normalized_shape();
    backward.axes = split.axes();
    backward.eps = eps_of(eps, rms, x.dtype());
    backward.zero_centered = truth_of(zero_centered);
    backward.accumulate = truth_of(accumulate);
  }

  void load(nb::handle mean_object, nb::handle rstd_object, nb::handle dsum_object) {
    mean.load(mean_object, "mean");
    rstd.load(rstd_object, "rstd");
    dsum.load(dsum_object, "dsum", arithmetic_of(x));
    if (mean.present()) backward.mean = mean.input();
    if (rstd.present()) backward.rstd = rstd.input();
    if (dsum.present()) backward.dsum = dsum.input();
  }
};

// One norm's gradient of y and weight, and what becomes of them.
struct Norm {
  View dy, weight, dweight, dbias;

  // weight_name: as dy_name, for messages.
  void load(nb::handle dy_object, const char* dy_name, nb::handle weight_object, const char* weight_name,
            const View& x) {
    load_required(dy, dy_object, dy_name);
    weight.load(weight_object, weight_name, arithmetic_of(x));
  }
  // outputs: dweight and, of layer norm, dbias.
  void load_outputs(std::span<const nb::object> outputs, const char* dweight_name, const char* dbias_name,
                    std::span<const std::int64_t> shape, DType dtype) {
    load_or_allocate(dweight, outputs[0], dweight_name, shape, dtype);
    if (outputs.size() > 1) load_or_allocate(dbias, outputs[1], dbias_name, shape, dtype);
    check_floating(dweight, dweight_name);
    if (dbias.present()) check_floating(dbias, dbias_name);
  }
};

// That of sums over rows: float64 where anything is, else float32, whatever 16 bits the rest has.
DType type_of_sums(nb::handle param_dtype, const View& x, std::initializer_list<const Norm*> norms) {
  if (!param_dtype.is_none()) return dtype_named_by(param_dtype, "param_dtype");
  bool wide = is_wide(x);
  for (const Norm* norm : norms) wide = wide || is_wide(norm->dy) || is_wide(norm->weight);
  return wide ? DType::f64 : DType::f32;
}

void check_accumulate(bool accumulate, std::span<const nb::object> sums, const char* needed) {
  for (const nb::object& sum : sums) {
    if (accumulate && sum.is_none()) fail_value(std::string("accumulate is given, but out has no ") + needed);
  }
}

void load_dx(View& dx, const nb::object& output, const View& x) {
  load_or_allocate(dx, output, "dx", x.shape(), x.dtype(), &x);
  check_floating(dx, "dx");
}

}  // namespace

nb::any norm_backward(bool rms, nb::handle dy, nb::handle x, nb::handle normalized_shape, nb::handle weight,
                      nb::handle eps, nb::handle axis, nb::handle mean, nb::handle rstd, nb::handle dsum,
                      nb::handle zero_centered, nb::handle accumulate, nb::handle param_dtype, nb::handle out) {
  Common c(rms, x, normalized_shape, eps, axis, zero_centered, accumulate);
  Norm norm;
  norm.load(dy, "dy", weight, "weight", c.x);
  c.load(mean, rstd, dsum);
  std::array<nb::object, 3> all;
  const std::span outputs = std::span(all).first(rms ? 2 : 3);
  unpack(out, rms ? "(dx, dweight), where either may be None" : "(dx, dweight, dbias), where any may be None", outputs);
  check_accumulate(c.backward.accumulate, outputs.subspan(1), "dweight and dbias to add to");
  const DType dtype = type_of_sums(param_dtype, c.x, {&norm});
  View dx;
  load_dx(dx, outputs[0], c.x);
  norm.load_outputs(outputs.subspan(1), "dweight", "dbias", c.split.inner(c.x.shape()).span(), dtype);

  c.backward.dy = norm.dy.input();
  if (norm.weight.present()) c.backward.weight = norm.weight.input();
  c.backward.dx = dx.output();
  c.backward.dweight = norm.dweight.output();
  if (!rms) c.backward.dbias = norm.dbias.output();
  run(c.backward, c.x.size());
  if (rms) return tuple_of(dx.result(), norm.dweight.result());
  return tuple_of(dx.result(), norm.dweight.result(), norm.dbias.result());
}

nb::any norm_pair_backward(bool rms, nb::handle dy, nb::handle dy2, nb::handle x, nb::handle normalized_shape,
                           nb::handle weight, nb::handle weight2, nb::handle eps, nb::handle axis, nb::handle mean,
                           nb::handle rstd, nb::handle dsum, nb::handle zero_centered, nb::handle accumulate,
                           nb::handle param_dtype, nb::handle out) {
  Common c(rms, x, normalized_shape, eps, axis, zero_centered, accumulate);
  Norm first, second;
  first.load(dy, "dy", weight, "weight", c.x);
  second.load(dy2, "dy2", weight2, "weight2", c.x);
  c.load(mean, rstd, dsum);
  std::array<nb::object, 5> all;
  const std::size_t each = rms ? 1 : 2;
  const std::span outputs = std::span(all).first(1 + 2 * each);
  unpack(out,
         rms ? "(dx, dweight, dweight2), where any may be None"
             : "(dx, dweight, dbias, dweight2, dbias2), where any may be None",
         outputs);
  check_accumulate(c.backward.accumulate, outputs.subspan(1), "gradients of all parameters to add to");
  const DType dtype = type_of_sums(param_dtype, c.x, {&first, &second});
  const Integers inner = c.split.inner(c.x.shape());
  View dx;
  load_dx(dx, outputs[0], c.x);
  first.load_outputs(outputs.subspan(1, each), "dweight", "dbias", inner.span(), dtype);
  second.load_outputs(outputs.subspan(1 + each), "dweight2", "dbias2", inner.span(), dtype);

  c.backward.dy = first.dy.input();
  c.backward.dy2 = second.dy.input();
  if (first.weight.present()) c.backward.weight = first.weight.input();
  if (second.weight.present()) c.backward.weight2 = second.weight.input();
  c.backward.dx = dx.output();
  c.backward.dweight = first.dweight.output();
  c.backward.dweight2 = second.dweight.output();
  if (rms) {
    run(c.backward, c.x.size());
    return tuple_of(dx.result(), first.dweight.result(), second.dweight.result());
  }
  c.backward.dbias = first.dbias.output();
  c.backward.dbias2 = second.dbias.output();
  run(c.backward, c.x.size());
  return tuple_of(dx.result(), first.dweight.result(), first.dbias.result(), second.dweight.result(),
                  second.dbias.result());
}

}  // namespace evenorm::python
