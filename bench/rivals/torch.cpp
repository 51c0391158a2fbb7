// PyTorch's CPU kernels, called in the fastest way. Layer norm's kernels are called through their exported dispatch
// stubs, so they write to the problem's buffers and allocate no results. Other operators are called from C++. RMS
// norm's gradients come from autograd, on a graph that is kept.
#include "bench/rivals/torch_tensors.hpp"

#include <ATen/Parallel.h>
#include <ATen/native/layer_norm.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <vector>

#include "bench/rivals/pass.hpp"

namespace {

using evenorm::bench::Pass;
using evenorm::bench::tensor_at;
using evenorm::bench::Tensors;
using evenorm::bench::type_of;

void layer_norm_to(at::Tensor& y, const at::Tensor& x, const Tensors& tensors, double eps) {
  at::native::LayerNormKernel(at::kCPU, x, tensors.weight, tensors.bias, x.numel() / tensors.cols, tensors.cols, eps,
                              &y, static_cast<at::Tensor*>(nullptr), static_cast<at::Tensor*>(nullptr));
}

Pass layer_forward(const bench_problem& problem) {
  return {
      [tensors = Tensors(problem), eps = problem.eps]() mutable { layer_norm_to(tensors.y, tensors.x, tensors, eps); }};
}

Pass layer_residual(const bench_problem& problem) {
  return {[tensors = Tensors(problem), eps = problem.eps]() mutable {
    const c10::InferenceMode guard;
    at::add_out(tensors.sum, tensors.x, tensors.residual);
    layer_norm_to(tensors.y, tensors.sum, tensors, eps);
  }};
}

Pass layer_backward(const bench_problem& problem) {
  // PyTorch's statistics have the parameters' type.
  const auto statistic = [&](const double* values) {
    return tensor_at(values, problem.rows, at::kDouble).to(type_of(problem.parameter_dtype), false, /*copy=*/true);
  };
  return {[tensors = Tensors(problem), mean = statistic(problem.mean), rstd = statistic(problem.rstd)]() mutable {
    const c10::InferenceMode guard;  // the kernel creates tensors for its sums
    at::native::LayerNormBackwardKernel(at::kCPU, tensors.dy, tensors.x, mean, rstd, tensors.weight, tensors.x.size(0),
                                        tensors.cols, &tensors.dx, &tensors.dweight, &tensors.dbias);
  }};
}

// RMS norm allocates its result. The previous result is freed first, as in a network. at::rms_norm() calls the same
// function.
struct Rms {
  explicit Rms(const bench_problem& problem) : tensors(problem), eps(problem.eps) {}

  void run(const at::Tensor& x) {
    result.reset();
    result = std::get<0>(at::_fused_rms_norm(x, tensors.cols, tensors.weight, eps));
  }

  Tensors tensors;
  double eps;
  at::Tensor result;
};

Pass rms_forward(const bench_problem& problem) {
  const auto rms = std::make_shared<Rms>(problem);
  return {[rms] {
            const c10::InferenceMode guard;
            rms->run(rms->tensors.x);
          },
          [rms] { rms->tensors.y.copy_(rms->result); }};
}

Pass rms_residual(const bench_problem& problem) {
  const auto rms = std::make_shared<Rms>(problem);
  return {[rms] {
            const c10::InferenceMode guard;
            at::add_out(rms->tensors.sum, rms->tensors.x, rms->tensors.residual);
            rms->run(rms->tensors.sum);
          },
          [rms] { rms->tensors.y.copy_(rms->result); }};
}

Pass rms_backward(const bench_problem& problem) {
  struct Graph {
    explicit Graph(const bench_problem& of) : tensors(of) {
      const at::AutoGradMode with_graph(true);
      y = at::rms_norm(tensors.x.requires_grad_(), tensors.cols, tensors.weight.requires_grad_(), of.eps);
    }
    Tensors tensors;
    at::Tensor y;
    std::vector<at::Tensor> gradients;
  };
  const auto graph = std::make_shared<Graph>(problem);
  return {[graph] {
            graph->gradients.clear();
            graph->gradients = torch::autograd::grad({graph->y}, {graph->tensors.x, graph->tensors.weight},
                                                     {graph->tensors.dy}, /*retain_graph=*/true);
          },
          [graph] {
            graph->tensors.dx.copy_(graph->gradients[0]);
            graph->tensors.dweight.copy_(graph->gradients[1]);
          }};
}

// As users write it: permute, normalise (which copies a tensor that is not contiguous), permute back, make contiguous.
Pass channels_first(const bench_problem& problem) {
  return {[tensors = Tensors(problem), eps = problem.eps, rms = problem.kind == BENCH_RMS] {
    const c10::InferenceMode guard;
    const at::Tensor last = tensors.x.permute({0, 2, 1});
    const at::Tensor result = rms ? at::rms_norm(last, tensors.cols, tensors.weight, eps)
                                  : at::layer_norm(last, tensors.cols, tensors.weight, tensors.bias, eps);
    tensors.y.copy_(result.permute({0, 2, 1}));
  }};
}

}  // namespace

std::optional<evenorm::bench::Pass> evenorm::bench::make_pass(const bench_problem& problem) {
  const bool rms = problem.kind == BENCH_RMS;
  if (!has_types(problem) || (rms && problem.bias != nullptr)) return std::nullopt;
  at::set_num_threads(problem.threads);
  switch (problem.pass) {
    case BENCH_FORWARD:
      return rms ? rms_forward(problem) : layer_forward(problem);
    case BENCH_RESIDUAL:
      return rms ? rms_residual(problem) : layer_residual(problem);
    case BENCH_CHANNELS_FIRST:
      return channels_first(problem);
    case BENCH_BACKWARD:
      if (problem.weight == nullptr || problem.dweight == nullptr) return std::nullopt;
      return rms ? rms_backward(problem) : layer_backward(problem);
    default:
      return std::nullopt;
  }
}

extern "C" const char* bench_version() { return "PyTorch " TORCH_VERSION; }
