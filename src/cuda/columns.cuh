// How the backward kernels reach elements: TypedColumns for dense rows of one type, AnyColumns for all types and
// layouts, and for row blocks that hold rows which leave the range of f32 on the way. kPlain: neither.
#pragma once

#include "cuda/tensors.cuh"

namespace evenorm::internal::cuda {

// Rows are dense, along one axis and of X, gamma dense and of P.
template <class X, class P>
struct TypedColumns {
  static constexpr bool kPlain = true;
  using Raw = X;  // an element as it is in memory, so that many can be on their way at once

  static __device__ Raw read(const DeviceMatrix<const char>&, const char* row, std::size_t col) {
    return reinterpret_cast<const X*>(row)[col];
  }
  static __device__ float read(const DeviceVector<const char>& vector, std::size_t col) {
    return widened(reinterpret_cast<const P*>(vector.data)[col]);
  }
  static __device__ void write(const DeviceMatrix<char>&, char* row, std::size_t col, float value) {
    reinterpret_cast<X*>(row)[col] = rounded<X>(value);
  }
};

struct AnyColumns {
  static constexpr bool kPlain = false;
  using Raw = float;

  static __device__ Raw read(const DeviceMatrix<const char>& m, const char* row, std::size_t col) {
    return load_as<float>(row + m.cols.offset(col), m.dtype);
  }
  static __device__ float read(const DeviceVector<const char>& vector, std::size_t col) {
    return load_as<float>(vector.at(col), vector.dtype);
  }
  static __device__ void write(const DeviceMatrix<char>& m, char* row, std::size_t col, float value) {
    store_as(value, row + m.cols.offset(col), m.dtype);
  }
};

}  // namespace evenorm::internal::cuda
