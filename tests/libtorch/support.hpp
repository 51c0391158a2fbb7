// Shared by the tests of evenorm::torch: tensors of given numbers, and comparisons.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace testing_torch {

inline torch::Tensor random(torch::IntArrayRef shape, torch::ScalarType dtype, std::uint64_t seed = 1) {
  torch::Generator generator = at::detail::createCPUGenerator(seed);
  return torch::randn(shape, generator, torch::kDouble).to(dtype);
}

// Compares type, shape and every bit, so that NaN equals NaN and -0 differs from 0.
inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const torch::Tensor c = a.detach().contiguous(), d = b.detach().contiguous();
  return c.numel() == 0 || std::memcmp(c.const_data_ptr(), d.const_data_ptr(), c.nbytes()) == 0;
}

// The largest |a - b| of any element, in units of the largest |b|.
inline double distance(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor wide = b.detach().to(torch::kDouble);
  const double largest = wide.abs().max().item<double>();
  return (a.detach().to(torch::kDouble) - wide).abs().max().item<double>() / (largest > 0 ? largest : 1);
}

// The error that the call throws, or "".
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

}  // namespace testing_torch
