// What tests of refusals share: a call's message, and tensors described anew before each call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::testing {

inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The vectors must outlive the tensor.
template <class Tensor>
void describe(Tensor& tensor, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  tensor.shape = shape;
  tensor.strides = strides;
}

}  // namespace evenorm::testing
