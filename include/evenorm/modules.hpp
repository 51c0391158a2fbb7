// Layer norm and RMS norm as modules, which own weight, bias and their gradients, like the modules of torch.nn.
//
//   evenorm::LayerNorm norm({8, 512}, {.eps = 1e-6});
//   norm.forward(x, y);
//   norm.backward(dy, x, dx);  // adds to norm.weight_grad() and norm.bias_grad()
//   norm.zero_grad();
//
// Const functions may run on several threads at once. A function that throws Error has written nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm {

struct NamedTensor {
  std::string name;
  Tensor tensor{};
};
struct NamedConstTensor {
  std::string name;
  ConstTensor tensor{};
};

// The common base of LayerNorm and RMSNorm. Parameters and gradients are C-contiguous and have normalized_shape(). A
// view of one is null if the module has no such parameter. It stays valid until the module is destroyed or assigned to.
// A module that was moved from can only be destroyed or assigned to.
class EVENORM_API NormModule {
 public:
  Kind kind() const noexcept;
  std::span<const std::int64_t> normalized_shape() const noexcept;
  double eps() const noexcept;
  bool zero_centered() const noexcept;
  DType dtype() const noexcept;                 // of the parameters
  DType grad_dtype() const noexcept;            // f32 for 16-bit parameters, else dtype()
  std::size_t num_parameters() const noexcept;  // elements of weight and bias together

  Tensor weight() noexcept;
  ConstTensor weight() const noexcept;
  Tensor bias() noexcept;
  ConstTensor bias() const noexcept;
  Tensor weight_grad() noexcept;
  ConstTensor weight_grad() const noexcept;
  Tensor bias_grad() noexcept;
  ConstTensor bias_grad() const noexcept;

  // The arguments are those of Forward.
  void forward(const ConstTensor& x, const Tensor& y, const Tensor& mean = {}, const Tensor& rstd = {},
               const Executor& executor = {}) const;
  void forward(const ConstTensor& x, const Tensor& y, const Executor& executor) const {
    forward(x, y, {}, {}, executor);
  }

  // Computes dx and adds to the parameters' gradients. The arguments are those of Backward. dx may be absent if the
  // module has parameters. Allocates scratch, and throws std::bad_alloc before it writes anything.
  void backward(const ConstTensor& dy, const ConstTensor& x, const Tensor& dx, const ConstTensor& mean = {},
                const ConstTensor& rstd = {}, const Executor& executor = {});
  void backward(const ConstTensor& dy, const ConstTensor& x, const Tensor& dx, const Executor& executor) {
    backward(dy, x, dx, {}, {}, executor);
  }
  void zero_grad() noexcept;

  // Returns the module's parameters under PyTorch's names, which follow `prefix`: "encoder.norm." gives
  // "encoder.norm.weight".
  std::vector<NamedTensor> parameters(std::string_view prefix = {});
  std::vector<NamedConstTensor> parameters(std::string_view prefix = {}) const;

  // Copies tensors, of any strides, to the parameters. Gradients do not change. The names that begin with `prefix` must
  // be those that parameters() returns, each once, and each tensor must have its parameter's shape and dtype. Tensors
  // with other names are ignored. Throws Error before it writes anything.
  void load(std::span<const NamedConstTensor> tensors, std::string_view prefix = {});

 protected:
  struct Setting {
    Kind kind;
    double eps;
    bool weight, bias;
    DType dtype;
    bool zero_centered;
  };
  NormModule(std::vector<std::int64_t> normalized_shape, const Setting& setting);
  NormModule(const NormModule& other);
  NormModule& operator=(const NormModule& other);
  NormModule(NormModule&&) noexcept;
  NormModule& operator=(NormModule&&) noexcept;
  ~NormModule();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  // false: neither weight nor bias
  bool bias = true;
  DType dtype = DType::f32;    // of the parameters
  bool zero_centered = false;  // true: gamma is 1 + weight, which starts at 0 and must be present
};

// A new module has weight 1 (zero-centred: 0) and bias 0. Copies have parameters and gradients of their own.
class EVENORM_API LayerNorm : public NormModule {
 public:
  explicit LayerNorm(std::int64_t normalized_shape, const LayerNormOptions& options = {})
      : LayerNorm(std::vector{normalized_shape}, options) {}
  explicit LayerNorm(std::vector<std::int64_t> normalized_shape, const LayerNormOptions& options = {});
};

struct RMSNormOptions {
  double eps = 0x1p-23;            // what PyTorch uses for eps=None and f32
  bool elementwise_affine = true;  // false: no weight
  DType dtype = DType::f32;        // of the weight
  bool zero_centered = false;      // as in LayerNormOptions
};

// A new module has weight 1 (zero-centred: 0), and never a bias. Copies have a parameter and a gradient of their own.
class EVENORM_API RMSNorm : public NormModule {
 public:
  explicit RMSNorm(std::int64_t normalized_shape, const RMSNormOptions& options = {})
      : RMSNorm(std::vector{normalized_shape}, options) {}
  explicit RMSNorm(std::vector<std::int64_t> normalized_shape, const RMSNormOptions& options = {});
};

}  // namespace evenorm
