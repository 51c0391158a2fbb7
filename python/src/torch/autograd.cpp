// The operators' derivatives: saved tensors, gradients and forward mode. The forward operators save x (or the sum, with
// a residual), or a copy of it, and weight. If nothing lies between autograd and the CPU's kernels, these are called
// directly and the statistics are kept. Otherwise (compilers, functional transforms, modes) the backward pass
// recomputes the statistics, with the same bits, so no operator takes them. The derivatives are nodes of the graph,
// like those of PyTorch's own operators, because torch::autograd::Function costs more and does not support functional
// transforms.
#include <torch/csrc/autograd/FunctionsManual.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "formulas.hpp"
#include "kernels.hpp"
#include "nodes.hpp"
#include "routes.hpp"

namespace evenorm::torch_binding {
namespace {

namespace ad = torch::autograd;

using ad::generated::details::toNonOptFwGrad;  // a tangent, or an undefined tensor
using ad::generated::details::toNonOptPrimal;

OptionalTensor or_absent(Tensor t) { return t.defined() ? OptionalTensor(std::move(t)) : std::nullopt; }

void set_tangent(const Tensor& out, const Tensor& tangent) {
  if (out.defined() && tangent.defined()) out._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
}

// Runs the backward operator of a kind of norm. Gradients that `mask` leaves out are undefined.
Gradients run_backward(Kind kind, const Tensor& dy, const Tensor& x, SymIntArrayRef shape, const OptionalTensor& weight,
                       std::optional<at::ScalarType> bias_dtype, double eps, std::array<bool, 3> mask,
                       const OptionalTensor& dsum, const Tensor& statistics) {
  if (goes_to_cpu_alone(dy, x, weight, dsum)) {
    return cpu_norm_backward(kind, dy, x, shape, weight, bias_dtype, eps, mask, dsum, statistics);
  }
  Gradients result;
  std::tie(result.dx, result.dweight, result.dbias) =
      norm_backward_operator(kind).call(dy, x, shape, weight, bias_dtype, eps, mask, dsum);
  if (!mask[0]) result.dx = Tensor();
  if (!mask[1]) result.dweight = Tensor();
  if (!mask[2]) result.dbias = Tensor();
  return result;
}

// The state that both nodes share, and how compiled autograd collects it.
struct NormNode : ad::TraceableFunction {
  using ad::TraceableFunction::TraceableFunction;

  Kind kind = Kind::layer;
  std::vector<SymInt> shape;
  double eps = 0;
  ad::SavedVariable x, weight, dy;  // dy is saved for the backward operators only

  Norm settings() const { return {kind, shape.size(), eps}; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    x.reset_data();
    weight.reset_data();
    dy.reset_data();
  }

 protected:
  void collect(ad::CompiledNodeArgs& args, bool x_is_output) const {
    args.collect(static_cast<std::uint8_t>(kind));
    args.collect(shape);
    args.collect(eps);
    args.collect(x, x_is_output);
    args.collect(weight, false);
    args.collect(dy, false);
  }
  ad::variable_list apply_with_saved(const ad::variable_list& grads, ad::SwapSavedVariables& saved) override {
    saved.before(shape);
    for (ad::SavedVariable* each : {&x, &weight, &dy}) saved.before(*each);
    ad::variable_list result = apply(ad::variable_list(grads));
    saved.after(shape);
    for (ad::SavedVariable* each : {&x, &weight, &dy}) saved.after(*each);
    return result;
  }
};

// The node of the forward operators. With a residual, x is the sum, which is an output. Edges: x, residual (if any),
// weight, bias. Inputs: dy, and dsum with a residual.
struct NormBackward final : NormNode {
  using NormNode::NormNode;

  bool has_residual = false;
  bool saves_output = false;  // x is the sum, and the sum has a gradient
  std::optional<at::ScalarType> residual_dtype, bias_dtype;
  double residual_scale = 1;
  // May be undefined. Not a saved variable: hooks would see it, and checkpoints need equally many in each mode.
  Tensor statistics;

  // Saves what is normalised, unless only dbias is wanted. PyTorch's RMS norm saves the normalised rows for dweight
  // alone, so that x may change in place or be of inference mode. A copy of x takes as much memory.
  // dx needs the weight. Its type and shape, which are dweight's, are needed if they are not x's and normalized_shape.
  void save(const Tensor& normalised, const OptionalTensor& w, bool wants_dx) {
    if (wants_dx || should_compute_output(has_residual ? 2 : 1)) {
      x = ad::SavedVariable(kind == Kind::rms && !wants_dx ? normalised.clone() : normalised, saves_output);
    }
    const bool differs = is_given(w) && (w->scalar_type() != normalised.scalar_type() || w->sym_sizes() != shape);
    if (wants_dx || differs) weight = ad::SavedVariable(w, /*is_output=*/false);
  }

  std::string name() const override {
    return std::string("Evenorm") + (has_residual ? "Add" : "") + (kind == Kind::layer ? "LayerNorm" : "RmsNorm") +
           "Backward";
  }

  void release_variables() override {
    NormNode::release_variables();
    const std::lock_guard<std::mutex> lock(mutex_);
    statistics.reset();
  }

  ad::variable_list apply(ad::variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ad::variable_list result(num_outputs());
    const std::size_t first = has_residual ? 2 : 1;
    const bool wants_residual = has_residual && task_should_compute_output(1);
    const std::array<bool, 3> mask = {task_should_compute_output(0) || wants_residual,
                                      task_should_compute_output(first), task_should_compute_output(first + 1)};
    const Tensor& grad = grads[0];
    const OptionalTensor dsum = has_residual ? or_absent(grads[1]) : std::nullopt;
    Tensor dx;
    if (grad.defined()) {
      Tensor saved_x = x.unpack(saves_output ? getptr() : nullptr);
      if (!saved_x.defined()) saved_x = grad;  // dbias needs only its type and shape
      Gradients gradients =
          run_backward(kind, grad, saved_x, shape, or_absent(weight.unpack()), bias_dtype, eps, mask, dsum, statistics);
      dx = std::move(gradients.dx);
      result[first] = std::move(gradients.dweight);
      result[first + 1] = std::move(gradients.dbias);
    } else if (dsum.has_value()) {
      dx = *dsum;
    }
    if (wants_residual && dx.defined()) {
      result[1] = (residual_scale == 1 ? dx : dx * residual_scale).to(*residual_dtype);
    }
    if (task_should_compute_output(0)) result[0] = std::move(dx);
    return result;
  }

  void compiled_args(ad::CompiledNodeArgs& args) const override {
    collect(args, saves_output);
    args.collect(has_residual);
    args.collect(residual_dtype);
    args.collect(bias_dtype);
    args.collect(residual_scale);
  }
};

// The node of the backward operators. Edges: dy, x, weight, dsum. Inputs: the gradients of dx, dweight, dbias.
struct NormBackwardBackward final : NormNode {
  using NormNode::NormNode;

  std::optional<at::ScalarType> dsum_dtype;

  std::string name() const override {
    return std::string("Evenorm") + (kind == Kind::layer ? "LayerNorm" : "RmsNorm") + "BackwardBackward";
  }

  ad::variable_list apply(ad::variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Gradients of = {grads[0], grads[1], grads[2]};
    const SecondGradients second = double_backward(settings(), dy.unpack(), x.unpack(), weight.unpack(), of);
    ad::variable_list result(num_outputs());
    if (task_should_compute_output(0)) result[0] = second.dy;
    if (task_should_compute_output(1)) result[1] = second.x;
    if (task_should_compute_output(2)) result[2] = second.weight;
    if (task_should_compute_output(3) && of.dx.defined()) result[3] = of.dx.to(*dsum_dtype);
    return result;
  }

  void compiled_args(ad::CompiledNodeArgs& args) const override {
    collect(args, false);
    args.collect(dsum_dtype);
  }
};

// Creates a node of type N if any of the tensors requires a gradient; otherwise returns null.
template <class N, class... Tensors>
NodePointer<N> node_towards(Kind kind, SymIntArrayRef shape, double eps, const Tensors&... tensors) {
  if (!ad::compute_requires_grad(tensors...)) return {};
  auto node = make_node<N>(ad::collect_next_edges(tensors...));
  node->kind = kind;
  node->shape = shape.vec();
  node->eps = eps;
  return node;
}

std::optional<at::ScalarType> dtype_of(const OptionalTensor& t) {
  return is_given(t) ? std::optional(t->scalar_type()) : std::nullopt;
}

// Where to write the statistics, or null if they are not kept. The last edge, to bias, does not need them.
Tensor* place_for_statistics(NormBackward* node, const Tensor& x, SymIntArrayRef shape, const OptionalTensor& weight,
                             const OptionalTensor& bias) {
  bool wanted = false;
  for (std::size_t i = 0; node != nullptr && i + 1 < node->num_outputs(); ++i) {
    wanted = wanted || node->should_compute_output(i);
  }
  return wanted && keeps_statistics(x, shape, weight, bias) ? &node->statistics : nullptr;
}

template <Kind kind>
Tensor norm(c10::DispatchKeySet keys, const Tensor& x, SymIntArrayRef shape, const OptionalTensor& weight,
            const OptionalTensor& bias, double eps) {
  auto node = node_towards<NormBackward>(kind, shape, eps, x, weight, bias);
  if (node) {
    node->save(x, weight, node->should_compute_output(0));
    node->bias_dtype = dtype_of(bias);
  }
  const Tensor y = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    if (goes_to_cpu(keys)) {
      return cpu_norm(kind, x, shape, weight, bias, eps, place_for_statistics(node.get(), x, shape, weight, bias));
    }
    return norm_operator(kind).redispatch(below_autograd(keys), x, shape, weight, bias, eps);
  }();
  if (node) ad::set_history(y, node);
  if (has_tangent(x, weight, bias)) {
    const Norm settings = {kind, shape.size(), eps};
    set_tangent(y, forward_tangent(settings, toNonOptPrimal(x), toNonOptPrimal(weight), toNonOptFwGrad(x),
                                   toNonOptFwGrad(weight), toNonOptFwGrad(bias)));
  }
  return y;
}

// The forward operators with a residual. The sum is x + residual_scale * residual.
template <Kind kind>
TwoTensors add_norm(c10::DispatchKeySet keys, const Tensor& x, const Tensor& residual, SymIntArrayRef shape,
                    const OptionalTensor& weight, const OptionalTensor& bias, double eps, double residual_scale) {
  auto node = node_towards<NormBackward>(kind, shape, eps, x, residual, weight, bias);
  auto [y, sum] = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    if (goes_to_cpu(keys)) {
      return cpu_add_norm(kind, x, residual, shape, weight, bias, eps, residual_scale,
                          place_for_statistics(node.get(), x, shape, weight, bias));
    }
    return add_norm_operator(kind).redispatch(below_autograd(keys), x, residual, shape, weight, bias, eps,
                                              residual_scale);
  }();
  if (node) {
    node->has_residual = true;
    node->residual_dtype = residual.scalar_type();
    node->residual_scale = residual_scale;
    node->bias_dtype = dtype_of(bias);
    node->saves_output = node->should_compute_output(0) || node->should_compute_output(1);
    ad::set_history(y, node);
    ad::set_history(node->saves_output ? sum : Tensor(), node);  // it depends on x and residual only
  }
  if (has_tangent(x, residual, weight, bias)) {
    const Tensor of_x = toNonOptFwGrad(x), of_residual = toNonOptFwGrad(residual);
    // Always a new tensor: changing the sum in place changes its tangent, but must not change x's.
    Tensor of_sum = of_residual.defined() ? (of_residual * residual_scale).to(x.scalar_type()) : Tensor();
    if (of_x.defined()) of_sum = of_sum.defined() ? of_x + of_sum : of_x.clone();
    const Norm settings = {kind, shape.size(), eps};
    // Composed of differentiable operators, so that derivatives of the tangent reach x and residual.
    const Tensor primal = toNonOptPrimal(x).to(at::kDouble) + residual_scale * toNonOptPrimal(residual);
    set_tangent(y, forward_tangent(settings, primal.to(x.scalar_type()), toNonOptPrimal(weight), of_sum,
                                   toNonOptFwGrad(weight), toNonOptFwGrad(bias)));
    set_tangent(sum, of_sum);
  }
  if (node) node->save(sum, weight, node->saves_output);  // last, so that the sum is saved with its tangent
  return {std::move(y), std::move(sum)};
}

template <Kind kind>
ThreeTensors norm_backward(c10::DispatchKeySet keys, const Tensor& dy, const Tensor& x, SymIntArrayRef shape,
                           const OptionalTensor& weight, std::optional<at::ScalarType> bias_dtype, double eps,
                           std::array<bool, 3> mask, const OptionalTensor& dsum) {
  auto node = node_towards<NormBackwardBackward>(kind, shape, eps, dy, x, weight, dsum);
  if (node) {
    node->dy = ad::SavedVariable(dy, /*is_output=*/false);
    node->x = ad::SavedVariable(x, /*is_output=*/false);
    node->weight = ad::SavedVariable(weight, /*is_output=*/false);
    node->dsum_dtype = dtype_of(dsum);
  }
  Gradients result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    std::tie(result.dx, result.dweight, result.dbias) = norm_backward_operator(kind).redispatch(
        below_autograd(keys), dy, x, shape, weight, bias_dtype, eps, mask, dsum);
  }
  if (node) {
    // Gradients that were not requested are empty and stay outside the graph.
    ad::set_history(mask[0] ? result.dx : Tensor(), node);
    ad::set_history(mask[1] ? result.dweight : Tensor(), node);
    ad::set_history(mask[2] ? result.dbias : Tensor(), node);
  }
  if (has_tangent(dy, x, weight, dsum)) {
    const Norm settings = {kind, shape.size(), eps};
    Gradients composed = composed_backward(settings, dy, x, weight.value_or(Tensor()));
    if (is_given(dsum)) composed.dx = composed.dx + dsum->to(composed.dx.scalar_type());
    if (mask[0]) set_tangent(result.dx, toNonOptFwGrad(composed.dx));
    if (mask[1]) set_tangent(result.dweight, toNonOptFwGrad(composed.dweight));
    if (mask[2]) set_tangent(result.dbias, toNonOptFwGrad(composed.dbias.to(result.dbias.scalar_type())));
  }
  return {result.dx, result.dweight, result.dbias};
}

}  // namespace

TORCH_LIBRARY_IMPL(evenorm, Autograd, m) {
  if (!registers_operators()) return;
  m.impl("layer_norm", norm<Kind::layer>);
  m.impl("rms_norm", norm<Kind::rms>);
  m.impl("add_layer_norm", add_norm<Kind::layer>);
  m.impl("add_rms_norm", add_norm<Kind::rms>);
  m.impl("layer_norm_backward", norm_backward<Kind::layer>);
  m.impl("rms_norm_backward", norm_backward<Kind::rms>);
}

}  // namespace evenorm::torch_binding
