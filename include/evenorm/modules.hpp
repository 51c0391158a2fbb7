// evenorm: layer norm and RMS norm as modules, which own weight, bias and their gradients, as torch.nn's do.
//
//   evenorm::LayerNorm norm({8, 512}, {.eps = 1e-6});
//   norm.forward(x, y);  norm.backward(dy, x, dx);  // adds to the gradients, until norm.zero_grad()
//
// Functions that are const may run on several threads at once. All throw Error as run() does, and write nothing then.
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

// What both modules are. Views of parameters and gradients are C-contiguous, of normalized_shape(), null where the
// module has no such parameter; they stay valid until it is destroyed or assigned to. A module that was moved from can
// only be destroyed or assigned to.
class EVENORM_API NormModule {
 public:
  Kind kind() const noexcept;
  std::span<const std::int64_t> normalized_shape() const noexcept;
  double eps() const noexcept;
  DType dtype() const noexcept;                 // of the parameters
  DType grad_dtype() const noexcept;            // that of the parameters, but f32 where they have 16 bits
  std::size_t num_parameters() const noexcept;  // elements of weight and bias together

  Tensor weight() noexcept;
  ConstTensor weight() const noexcept;
  Tensor bias() noexcept;
  ConstTensor bias() const noexcept;
  Tensor weight_grad() noexcept;
  ConstTensor weight_grad() const noexcept;
  Tensor bias_grad() noexcept;
  ConstTensor bias_grad() const noexcept;

  // x, y, mean, rstd: as in Forward.
  void forward(const ConstTensor& x, const Tensor& y, const Tensor& mean = {}, const Tensor& rstd = {},
               const Executor& executor = {}) const;
  void forward(const ConstTensor& x, const Tensor& y, const Executor& executor) const;

  // dy, x, dx, mean, rstd: as in Backward; dx may be absent where the module has parameters. Adds to the gradients.
  // Allocates scratch (std::bad_alloc, before anything is written).
  void backward(const ConstTensor& dy, const ConstTensor& x, const Tensor& dx, const ConstTensor& mean = {},
                const ConstTensor& rstd = {}, const Executor& executor = {});
  void backward(const ConstTensor& dy, const ConstTensor& x, const Tensor& dx, const Executor& executor);
  void zero_grad() noexcept;

  // The parameters there are, by PyTorch's names after `prefix`: "encoder.norm." makes "encoder.norm.weight".
  std::vector<NamedTensor> parameters(std::string_view prefix = {});
  std::vector<NamedConstTensor> parameters(std::string_view prefix = {}) const;

  // Sets the parameters to the elements of those tensors, any strides; gradients stay. Of the names that begin with
  // `prefix`, every parameter's should be there once and no other, each of its shape and dtype; others do not matter.
  // All is checked first; types are not converted.
  void load(std::span<const NamedConstTensor> tensors, std::string_view prefix = {});

 protected:
  struct Setting {
    Kind kind;
    double eps;
    bool weight, bias;
    DType dtype;
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
  DType dtype = DType::f32;  // of the parameters
};

// weight is 1 and bias 0 at first. Copies have parameters and gradients of their own.
class EVENORM_API LayerNorm : public NormModule {
 public:
  explicit LayerNorm(std::int64_t normalized_shape, const LayerNormOptions& options = {});
  explicit LayerNorm(std::vector<std::int64_t> normalized_shape, const LayerNormOptions& options = {});
};

struct RMSNormOptions {
  double eps = 0x1p-23;            // PyTorch's for eps=None and f32
  bool elementwise_affine = true;  // false: no weight
  DType dtype = DType::f32;        // of the weight
};

// weight is 1 at first; there is no bias. Copies have a parameter and a gradient of their own.
class EVENORM_API RMSNorm : public NormModule {
 public:
  explicit RMSNorm(std::int64_t normalized_shape, const RMSNormOptions& options = {});
  explicit RMSNorm(std::vector<std::int64_t> normalized_shape, const RMSNormOptions& options = {});
};

}  // namespace evenorm
