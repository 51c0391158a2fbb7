// AMD's zentorch: RMS norm of x or of x + residual, through its operators in PyTorch's dispatcher. zentorch has no
// layer norm of its own and no gradients. Its library is loaded from beside PyTorch.
#include "bench/rivals/torch_tensors.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include <memory>
#include <string>

#include "bench/rivals/pass.hpp"

namespace {

using evenorm::bench::Pass;
using evenorm::bench::Tensors;

constexpr const char* kNorm = "zentorch::zentorch_rms_norm";
constexpr const char* kAddNorm = "zentorch::zentorch_add_rms_norm_";

// The library is never unloaded, because its operators are in PyTorch's table.
bool loaded() {
  static const bool done = [] {
    if (dlopen(EVENORM_ZENTORCH_LIBRARY, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) != nullptr) return true;
    std::fprintf(stderr, "zentorch: %s\n", dlerror());
    return false;
  }();
  return done;
}

template <class Signature>
std::optional<c10::TypedOperatorHandle<Signature>> operator_named(const char* name) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  if (!found) return std::nullopt;
  return found->typed<Signature>();
}

std::optional<Pass> rms_forward(const bench_problem& problem) {
  using Signature = at::Tensor(const at::Tensor& x, const at::Tensor& weight, double eps, std::string_view name);
  const auto norm = operator_named<Signature>(kNorm);
  if (!norm) return std::nullopt;
  const auto tensors = std::make_shared<Tensors>(problem);
  const auto result = std::make_shared<at::Tensor>();
  return Pass{[=, eps = problem.eps] {
                const c10::InferenceMode guard;
                result->reset();
                *result = norm->call(tensors->x, tensors->weight, eps, kNorm);
              },
              [=] { tensors->y.copy_(*result); }};
}

// The operator writes y over x and the sum over the residual. It gets copies of both, which change with every run.
struct InPlace {
  explicit InPlace(const bench_problem& problem) : tensors(problem) { begin(); }
  void begin() {
    x = tensors.x.clone();
    residual = tensors.residual.clone();
  }

  Tensors tensors;
  at::Tensor x, residual;
};

std::optional<Pass> rms_residual(const bench_problem& problem) {
  using Signature =
      void(at::Tensor&, const at::Tensor& weight, at::Tensor& residual, double eps, std::string_view name);
  const auto norm = operator_named<Signature>(kAddNorm);
  if (!norm) return std::nullopt;
  const auto state = std::make_shared<InPlace>(problem);
  const auto run = [=, eps = problem.eps] {
    const c10::InferenceMode guard;
    norm->call(state->x, state->tensors.weight, state->residual, eps, kAddNorm);
  };
  return Pass{run, [=] {
                state->begin();
                run();
                state->tensors.y.copy_(state->x);
                state->tensors.sum.copy_(state->residual);
              }};
}

}  // namespace

std::optional<evenorm::bench::Pass> evenorm::bench::make_pass(const bench_problem& problem) {
  if (problem.kind != BENCH_RMS || !has_types(problem) || problem.weight == nullptr || problem.bias != nullptr) {
    return std::nullopt;
  }
  if (problem.dtype == BENCH_F64) return std::nullopt;
  // Without AVX512-FP16, zentorch prints an error and does not write the result.
  if (problem.dtype == BENCH_F16 && !__builtin_cpu_supports("avx512fp16")) return std::nullopt;
  if ((problem.pass != BENCH_FORWARD && problem.pass != BENCH_RESIDUAL) || !loaded()) return std::nullopt;
  at::set_num_threads(problem.threads);
  return problem.pass == BENCH_RESIDUAL ? rms_residual(problem) : rms_forward(problem);
}

extern "C" const char* bench_version() { return "zentorch " EVENORM_ZENTORCH_VERSION; }
