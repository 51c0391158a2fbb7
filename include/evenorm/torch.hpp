// evenorm for libtorch, PyTorch in C++: layer norm and RMS norm as torch::nn modules and as functions, with autograd.
// CMake: evenorm::torch.
//
//   evenorm::torch::LayerNorm norm(evenorm::torch::LayerNormOptions({768}).eps(1e-6));    // as torch::nn::LayerNorm
//   torch::Tensor y = norm(x);
//
// What evenorm does not take (other devices than the CPU, integers, wrong arguments, ...) is PyTorch's own function's,
// and so are its errors. Threads are PyTorch's. In here `torch` is evenorm's namespace, `::torch` PyTorch's.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#define EVENORM_TORCH_API __attribute__((visibility("default")))

namespace evenorm::torch {

// --- functions -------------------------------------------------------------------------------------------------------
// x: any shape that ends in normalized_shape, any strides; f32, f64, bf16 or f16. weight, bias: of normalized_shape,
// for layer norm both of x's type, or of f32 beside a 16-bit x; undefined: 1 and 0. Results have x's shape and type.

EVENORM_TORCH_API at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                                        const at::Tensor& weight = {}, const at::Tensor& bias = {}, double eps = 1e-5);

// Without eps: the machine epsilon of x's type, of f32 where it has 16 bits.
EVENORM_TORCH_API at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                                      const at::Tensor& weight = {}, std::optional<double> eps = std::nullopt);

// (the norm of s, s): s = x + residual_scale * residual, rounded to x's type, in one pass. residual: of x's shape.
EVENORM_TORCH_API std::tuple<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                                    at::IntArrayRef normalized_shape,
                                                                    const at::Tensor& weight = {},
                                                                    const at::Tensor& bias = {}, double eps = 1e-5,
                                                                    double residual_scale = 1);
EVENORM_TORCH_API std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                                                  at::IntArrayRef normalized_shape,
                                                                  const at::Tensor& weight = {},
                                                                  std::optional<double> eps = std::nullopt,
                                                                  double residual_scale = 1);

// --- modules ---------------------------------------------------------------------------------------------------------

// torch::nn::LayerNormOptions, which it can be made from, and `bias`, as torch.nn.LayerNorm has it in Python.
struct LayerNormOptions {
  LayerNormOptions(std::vector<std::int64_t> normalized_shape)  // NOLINT(google-explicit-constructor): as PyTorch's
      : normalized_shape_(std::move(normalized_shape)) {}
  LayerNormOptions(const ::torch::nn::LayerNormOptions& options)  // NOLINT(google-explicit-constructor)
      : normalized_shape_(options.normalized_shape()),
        eps_(options.eps()),
        elementwise_affine_(options.elementwise_affine()) {}
  TORCH_ARG(std::vector<std::int64_t>, normalized_shape);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, elementwise_affine) = true;  // false: neither weight nor bias
  TORCH_ARG(bool, bias) = true;                // false: a weight alone
};

struct RMSNormOptions {
  RMSNormOptions(std::vector<std::int64_t> normalized_shape)  // NOLINT(google-explicit-constructor): as PyTorch's
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<std::int64_t>, normalized_shape);
  TORCH_ARG(std::optional<double>, eps) = std::nullopt;  // absent: as in rms_norm
  TORCH_ARG(bool, elementwise_affine) = true;            // false: no weight
};

// Archives of torch::nn::LayerNorm are archives of this, both ways, where `bias` is on.
class EVENORM_TORCH_API LayerNormImpl : public ::torch::nn::Cloneable<LayerNormImpl> {
 public:
  LayerNormImpl(std::vector<std::int64_t> normalized_shape)  // NOLINT(google-explicit-constructor): as PyTorch's
      : LayerNormImpl(LayerNormOptions(std::move(normalized_shape))) {}
  explicit LayerNormImpl(LayerNormOptions options);

  void reset() override;
  void reset_parameters();  // weight 1, bias 0
  void pretty_print(std::ostream& stream) const override;
  at::Tensor forward(const at::Tensor& x);

  LayerNormOptions options;
  at::Tensor weight, bias;  // undefined where there is none
};

class EVENORM_TORCH_API RMSNormImpl : public ::torch::nn::Cloneable<RMSNormImpl> {
 public:
  RMSNormImpl(std::vector<std::int64_t> normalized_shape)  // NOLINT(google-explicit-constructor): as PyTorch's
      : RMSNormImpl(RMSNormOptions(std::move(normalized_shape))) {}
  explicit RMSNormImpl(RMSNormOptions options);

  void reset() override;
  void reset_parameters();  // weight 1
  void pretty_print(std::ostream& stream) const override;
  at::Tensor forward(const at::Tensor& x);

  RMSNormOptions options;
  at::Tensor weight;  // undefined where there is none
};

// The holders, as TORCH_MODULE makes them.
class LayerNorm : public ::torch::nn::ModuleHolder<LayerNormImpl> {
 public:
  using ::torch::nn::ModuleHolder<LayerNormImpl>::ModuleHolder;
  using Impl = LayerNormImpl;
};

class RMSNorm : public ::torch::nn::ModuleHolder<RMSNormImpl> {
 public:
  using ::torch::nn::ModuleHolder<RMSNormImpl>::ModuleHolder;
  using Impl = RMSNormImpl;
};

}  // namespace evenorm::torch
