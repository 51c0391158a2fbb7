// DLPack's structures, versions 0 and 1, as far as reading CPU tensors needs them.
#pragma once

#include <cstdint>

#include "evenorm/evenorm.hpp"

namespace evenorm::python::dlpack {

constexpr std::int32_t kCpu = 1, kCudaHost = 3;
constexpr std::uint8_t kInt = 0, kFloat = 2, kBfloat = 4;
constexpr std::uint64_t kReadOnly = 1;

struct Tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: C-contiguous
  std::uint64_t byte_offset;
};

// False for a type that evenorm does not have.
inline bool find_dtype(const Tensor& tensor, DType& dtype) {
  const bool is_float = tensor.code == kFloat;
  if (tensor.lanes != 1) return false;
  if (is_float && tensor.bits == 64) {
    dtype = DType::f64;
  } else if (is_float && tensor.bits == 32) {
    dtype = DType::f32;
  } else if (is_float && tensor.bits == 16) {
    dtype = DType::f16;
  } else if (tensor.code == kBfloat && tensor.bits == 16) {
    dtype = DType::bf16;
  } else {
    dtype = DType::i8;
    return tensor.code == kInt && tensor.bits == 8;
  }
  return true;
}

// Held by a capsule named "dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

// Held by a capsule named "dltensor_versioned".
struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

// Held by a capsule named "dlpack_exchange_api", an attribute of the tensor's class.
struct ExchangeApi {
  std::uint32_t major, minor;
  ExchangeApi* previous;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, Tensor* tensor);  // may be null; the tensor's memory is the object's
  void* current_stream;
};

}  // namespace evenorm::python::dlpack
