// Layer norm and RMS norm for libtorch, as torch::nn modules and as functions, with autograd. Link evenorm::torch
// (CMake).
//
//   evenorm::torch::LayerNorm norm(evenorm::torch::LayerNormOptions({768}).eps(1e-6));    // as torch::nn::LayerNorm
//   torch::Tensor y = norm(x);
//
// Calls that evenorm does not support (other devices than the CPU, integers, wrong arguments) go to PyTorch's own
// function, which also reports the errors. Work runs on PyTorch's threads. In this header `torch` is evenorm's
// namespace, and `::torch` is PyTorch's.
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
// x is f32, f64, bf16 or f16, and has any strides. Its shape ends in normalized_shape. weight and bias have
// normalized_shape, or both one shape with x's axes, each as long as x's or 1; undefined means 1 and 0. In layer norm,
// weight and bias have x's type; if x has 16 bits, both may be f32 instead. Results have x's shape and type. If
// zero_centered, gamma is 1 + weight, rounded to f32 (f64 if a tensor is f64). weight must be defined then.

EVENORM_TORCH_API at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                                        const at::Tensor& weight = {}, const at::Tensor& bias = {}, double eps = 1e-5,
                                        bool zero_centered = false);

// If eps is absent, it is the machine epsilon of x's type, or of f32 if x has 16 bits.
EVENORM_TORCH_API at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                                      const at::Tensor& weight = {}, std::optional<double> eps = std::nullopt,
                                      bool zero_centered = false);

// Returns the norm of s, and s, computed in one pass: s = x + residual_scale * residual, rounded to x's type. residual
// has x's shape.
EVENORM_TORCH_API std::tuple<at::Tensor, at::Tensor> add_layer_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape, const at::Tensor& weight = {},
    const at::Tensor& bias = {}, double eps = 1e-5, double residual_scale = 1, bool zero_centered = false);
EVENORM_TORCH_API std::tuple<at::Tensor, at::Tensor> add_rms_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape, const at::Tensor& weight = {},
    std::optional<double> eps = std::nullopt, double residual_scale = 1, bool zero_centered = false);

// --- modules ---------------------------------------------------------------------------------------------------------

// torch::nn::LayerNormOptions with Python's option `bias`. torch::nn::LayerNormOptions convert to it.
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
  TORCH_ARG(bool, bias) = true;                // false: no bias
  TORCH_ARG(bool, zero_centered) = false;      // true: gamma is 1 + weight, which starts at 0
};

struct RMSNormOptions {
  RMSNormOptions(std::vector<std::int64_t> normalized_shape)  // NOLINT(google-explicit-constructor): as PyTorch's
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<std::int64_t>, normalized_shape);
  TORCH_ARG(std::optional<double>, eps) = std::nullopt;  // absent: as in rms_norm
  TORCH_ARG(bool, elementwise_affine) = true;            // false: no weight
  TORCH_ARG(bool, zero_centered) = false;                // true: gamma is 1 + weight, which starts at 0
};

// If it has a bias, it reads and writes the same archives as torch::nn::LayerNorm.
class EVENORM_TORCH_API LayerNormImpl : public ::torch::nn::Cloneable<LayerNormImpl> {
 public:
  LayerNormImpl(std::vector<std::int64_t> normalized_shape)  // NOLINT(google-explicit-constructor): as PyTorch's
      : LayerNormImpl(LayerNormOptions(std::move(normalized_shape))) {}
  explicit LayerNormImpl(LayerNormOptions options);

  void reset() override;
  void reset_parameters();  // weight 1 (zero-centred: 0), bias 0
  void pretty_print(std::ostream& stream) const override;
  at::Tensor forward(const at::Tensor& x);

  LayerNormOptions options;
  at::Tensor weight, bias;  // undefined if the options exclude them
};

class EVENORM_TORCH_API RMSNormImpl : public ::torch::nn::Cloneable<RMSNormImpl> {
 public:
  RMSNormImpl(std::vector<std::int64_t> normalized_shape)  // NOLINT(google-explicit-constructor): as PyTorch's
      : RMSNormImpl(RMSNormOptions(std::move(normalized_shape))) {}
  explicit RMSNormImpl(RMSNormOptions options);

  void reset() override;
  void reset_parameters();  // weight 1 (zero-centred: 0)
  void pretty_print(std::ostream& stream) const override;
  at::Tensor forward(const at::Tensor& x);

  RMSNormOptions options;
  at::Tensor weight;  // undefined if the options exclude it
};

// Written out because TORCH_MODULE would look for torch::nn in evenorm::torch.
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
