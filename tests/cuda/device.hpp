// Memory of a device, and elements of any type, for the tests of the passes on a GPU.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "evenorm/cuda.hpp"

namespace evenorm::cuda_tests {

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}
inline bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}
#define EVENORM_NEEDS_DEVICE() \
  if (!evenorm::cuda_tests::has_device()) GTEST_SKIP() << "no device"

inline void put(DType dtype, std::vector<std::byte>& to, std::size_t index, double value) {
  std::byte* place = to.data() + index * size_of(dtype);
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::f64) {
    std::memcpy(place, &value, sizeof value);
  } else if (dtype == DType::f32) {
    std::memcpy(place, &narrow, sizeof narrow);
  } else if (dtype == DType::bf16) {
    const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(narrow) >> 16U);
    std::memcpy(place, &bits, sizeof bits);
  } else {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(place, &half, sizeof half);
  }
}

inline double get(DType dtype, const std::vector<std::byte>& from, std::size_t index) {
  const std::byte* place = from.data() + index * size_of(dtype);
  if (dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, place, sizeof value);
    return static_cast<double>(value);
  }
  if (dtype == DType::bf16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, place, sizeof bits);
    return static_cast<double>(std::bit_cast<float>(std::uint32_t{bits} << 16U));
  }
  _Float16 half = 0;
  std::memcpy(&half, place, sizeof half);
  return static_cast<double>(half);
}

// Bytes on the host and, while a pass runs on the device, there.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes) : host(bytes, std::byte{0xA5}) {}
  Memory(const Memory& other) : host(other.host) {}
  Memory& operator=(const Memory& other) {  // of the host's bytes
    host = other.host;
    return *this;
  }
  ~Memory() { cudaFree(device_); }

  void send() {
    check(cudaMalloc(&device_, host.size() + 1));
    check(cudaMemcpy(device_, host.data(), host.size(), cudaMemcpyHostToDevice));
  }
  void fetch() { check(cudaMemcpy(host.data(), device_, host.size(), cudaMemcpyDeviceToHost)); }
  std::byte* data() { return device_ != nullptr ? static_cast<std::byte*>(device_) : host.data(); }

  std::vector<std::byte> host;

 private:
  void* device_ = nullptr;
};

// Which rows hard_element() makes: some leave the range of f32 arithmetic; some have a NaN or an infinity; or neither.
enum class Rows { leaving, not_finite, in_range };
inline bool leaves_range(std::size_t row) { return row % 11 == 1 || row % 11 == 2 || row % 11 == 8; }

// Rows that are hard, each for another reason, and among them some that are not. No row of f16 leaves the range.
inline double hard_element(std::mt19937_64& random, DType dtype, Rows rows, std::size_t row, std::size_t col) {
  const double x = std::normal_distribution<double>()(random);
  const bool half = dtype == DType::f16;
  if (leaves_range(row) && !half && rows != Rows::leaving) return x;
  switch (row % 11) {
    case 1:
      return x * (half ? 1e4 : 1e37);
    case 2:
      return x * (half ? 1e-6 : 1e-38);
    case 3:
      return x + (half ? 500 : 1e6);
    case 4:
      return col % 97 == 5 ? x * 1e4 : x;
    case 5:
      return 3.25;
    case 6:
      return 0;
    case 7:
      if (rows != Rows::not_finite || col != (row * 7) % 5) return x;
      return row % 2 == 0 ? HUGE_VAL : std::nan("");
    case 8:
      return x * (half ? 2e-7 : 1e-44);
    default:
      return x;
  }
}

}  // namespace evenorm::cuda_tests
