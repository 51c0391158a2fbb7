// The computation of one node: its attributes and constant inputs, read once, and a plan for the shapes of the last
// run.
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "evenorm/evenorm.h"
#include "onnxruntime/abi.hpp"

namespace evenorm::onnxruntime {

enum class Form { layer, rms, group };

// What the operators of one name have in common.
// Inputs: X, Residual if has_residual, Weight, Bias. Outputs: Y, Sum if has_residual, Mean unless it is an RMS
// norm, Rstd. X, Residual and Y are required. An input's place is its index among all four; likewise an output's.
struct Definition {
  const char* name;
  Form form;
  bool has_residual;

  std::size_t required_inputs() const { return has_residual ? 2 : 1; }
  std::size_t inputs() const { return required_inputs() + 2; }
  std::size_t outputs() const { return required_inputs() + (form == Form::rms ? 1 : 2); }
  std::size_t input_place(std::size_t i) const { return i + (i == 0 || has_residual ? 0 : 1); }
  std::size_t output_place(std::size_t i) const {
    return input_place(i) + (i + 1 == outputs() && form == Form::rms ? 1 : 0);
  }
};

struct Types {
  ElementType x;  // of X, Residual, Y and Sum
  ElementType parameters;
  ElementType statistics;
};

// The functions of the runtime, and the version of its interface: 31 for "1.31.1".
struct Runtime {
  const Api& api;
  std::uint32_t version;
};

// An error on its way to the runtime.
struct Failure {
  OrtStatus* status;
};

inline void check(OrtStatus* status) {
  if (status != nullptr) throw Failure{status};
}

// Calls `body`, and returns what it throws as a status.
template <class Body>
OrtStatus* status_of(const Api& api, Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Failure& failure) {
    return failure.status;
  } catch (const std::exception& error) {
    return api.CreateStatus(kFail, error.what());
  }
}

// Functions throw Failure or an exception of the standard library.
class Kernel {
 public:
  Kernel(const Definition& definition, const Types& types, const Runtime& runtime, const OrtKernelInfo& info);

  const Api& api() const { return runtime_.api; }
  // Any number of threads may call it at once.
  void compute(OrtKernelContext& context) const;

 private:
  using Sizes = std::vector<std::int64_t>;
  struct Tensor {
    void* data = nullptr;  // null: absent
    std::span<const std::int64_t> shape;
  };
  using Inputs = std::array<Tensor, 4>;  // X, Residual, Weight, Bias
  struct Prepared;

  // The sizes hold the shape, unless the runtime lends it.
  Tensor tensor_of(const OrtValue& value, Sizes& sizes) const;
  // The last plan, or a new one for other shapes.
  std::shared_ptr<const Prepared> prepare(const Inputs& inputs) const;

  const Definition& definition_;
  const Types& types_;
  const Runtime runtime_;
  evenorm_forward forward_;  // the attributes
  Sizes axes_;               // the normalised ones of layer and RMS norm
  std::int64_t groups_ = 0;  // of group norm; 0: it is another norm
  Inputs constants_;
  std::array<Sizes, 4> constant_sizes_;
  std::vector<std::size_t> variables_;                 // the indices of the other inputs
  std::array<std::optional<std::size_t>, 4> outputs_;  // the indices of Y, Sum, Mean and Rstd, if the node has them
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Prepared> prepared_;
};

}  // namespace evenorm::onnxruntime
