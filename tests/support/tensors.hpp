// Tensors for tests of modules: their elements, bytes and views.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "contracts/inputs.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::testing {

using contracts::Array;
using Shape = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;

inline std::size_t count(std::span<const std::int64_t> shape) {
  std::size_t elements = 1;
  for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
  return elements;
}

template <class View>
Bytes bytes_of(const View& view) {
  const auto* first = static_cast<const std::byte*>(view.data);
  return first == nullptr ? Bytes{} : Bytes{first, first + count(view.shape) * size_of(view.dtype)};
}

inline Bytes bytes_of(const Array& array) { return {array.bytes().begin(), array.bytes().end()}; }

inline Array normals(DType dtype, std::size_t size, std::uint64_t seed) {
  contracts::Random random(seed);
  Array array(dtype, size);
  for (std::size_t i = 0; i < size; ++i) array.set(i, random.normal());
  return array;
}

inline Bytes filled_bytes(DType dtype, std::size_t size, double value) {
  return bytes_of(Array(dtype, std::vector<double>(size, value)));
}

inline ConstTensor const_view(const Array& array, const Shape& shape) {
  return {array.data(), array.dtype(), shape, {}};
}
inline Tensor view(Array& array, const Shape& shape) { return {array.data(), array.dtype(), shape, {}}; }

// Sets a parameter of a module, if the module has it.
inline void set(const Tensor& parameter, std::uint64_t seed) {
  if (parameter.data == nullptr) return;
  const Bytes bytes = bytes_of(normals(parameter.dtype, count(parameter.shape), seed));
  std::memcpy(parameter.data, bytes.data(), bytes.size());
}

}  // namespace evenorm::testing
