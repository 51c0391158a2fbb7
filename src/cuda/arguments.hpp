// From the tensors of a Problem to kernels' arguments; CUDA's errors; the current device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cuda/tensors.cuh"

namespace evenorm::internal::cuda {

inline void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // or the next call would report it, too
  throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
}

// Makes a device current for a while.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check(cudaGetDevice(&before_));
    if (device != before_) check(cudaSetDevice(device));
    changed_ = device != before_;
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (changed_ && cudaSetDevice(before_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

inline DeviceAxes device_axes(const char* name, const Axes& axes) {
  if (axes.count() > Axes::kInline) {
    throw Error(std::string(name) + " has " + std::to_string(axes.count()) +
                " axes that cannot be merged; on a GPU at most " + std::to_string(Axes::kInline) + " are supported");
  }
  DeviceAxes to;
  to.count = static_cast<int>(axes.count());
  to.size[0] = 1;
  for (std::size_t i = 0; i < axes.count(); ++i) {
    to.size[i] = axes[i].size;
    to.stride[i] = axes[i].stride;
  }
  return to;
}
inline void check_alignment(const char* name, const void* data, DType dtype) {
  if (reinterpret_cast<std::uintptr_t>(data) % bytes_of(dtype) == 0) return;
  throw Error(std::string(name) + " has an address that is not a multiple of " + std::to_string(bytes_of(dtype)) +
              " bytes, the size of its elements; on a GPU it must be");
}
inline void check_arithmetic(const char* name, DType dtype) {
  if (dtype == DType::f64) throw Error(std::string(name) + " has dtype f64, but a GPU has f32 arithmetic only");
}
template <class Byte, class Pointer>
DeviceMatrix<Byte> device_matrix(const char* name, const Matrix<Pointer>& m) {
  check_arithmetic(name, m.dtype);
  if (m.data == nullptr) return {};
  check_alignment(name, m.data, m.dtype);
  return {static_cast<Byte*>(m.data), m.dtype, device_axes(name, m.rows), device_axes(name, m.cols)};
}
template <class Byte, class Pointer>
DeviceVector<Byte> device_vector(const char* name, const Vector<Pointer>& v) {
  if (v.data == nullptr) return {};
  check_alignment(name, v.data, v.dtype);
  return {static_cast<Byte*>(v.data), v.dtype, device_axes(name, v.axes)};
}

// gamma or beta. Runs of columns that share an element would have blocks of their own.
inline DeviceVector<const char> device_parameter(const char* name, const Vector<const void*>& v) {
  check_arithmetic(name, v.dtype);
  if (v.axes.count() > 1 && v.axes.inner().stride == 0) {
    throw Error(std::string(name) +
                " has runs of columns that share an element; on a GPU each column must have its own");
  }
  return device_vector<const char>(name, v);
}

// True if m is absent, or has dense rows of this type along one axis, as the kernels for one type take them.
template <class Pointer>
bool has_plain_rows(const Matrix<Pointer>& m, DType dtype) {
  return m.data == nullptr || (m.dtype == dtype && has_dense_rows(m) && m.rows.count() <= 1);
}

}  // namespace evenorm::internal::cuda
