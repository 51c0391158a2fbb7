// DLPack's structures, versions 0 and 1, as far as reading CPU tensors needs them.
#pragma once

#include <cstdint>

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

}  // namespace evenorm::python::dlpack
