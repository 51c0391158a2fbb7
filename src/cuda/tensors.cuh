// Tensors in a device's memory: addresses, and the loads and stores of elements. An element's address must be a
// multiple of its size.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "problem/problem.hpp"

namespace evenorm::internal::cuda {

// Axes, Matrix and Vector of problem.hpp, as a kernel's arguments.
struct DeviceAxes {
  static constexpr int kMost = static_cast<int>(Axes::kInline);

  // The bytes from the first element to element `index` in C order.
  __device__ std::ptrdiff_t offset(std::size_t index) const {
    return count <= 1 ? static_cast<std::ptrdiff_t>(index) * stride[0] : offset_along_axes(index);
  }
  // The same where there is at most one axis.
  __device__ std::ptrdiff_t even_offset(std::size_t index) const {
    return static_cast<std::ptrdiff_t>(index) * stride[0];
  }
  // Divisions take much code, so they are out of line.
  __device__ __noinline__ std::ptrdiff_t offset_along_axes(std::size_t index) const {
    std::ptrdiff_t bytes = 0;
    for (int i = count - 1; i > 0; --i) {
      bytes += static_cast<std::ptrdiff_t>(index % size[i]) * stride[i];
      index /= size[i];
    }
    return bytes + static_cast<std::ptrdiff_t>(index) * stride[0];
  }

  int count = 0;
  std::size_t size[kMost] = {};
  std::ptrdiff_t stride[kMost] = {};
};

template <class Byte>  // char or const char
struct DeviceMatrix {
  // A row's first element. kEven: rows lie along at most one axis.
  template <bool kEven>
  __device__ Byte* row(std::size_t index) const {
    return data + (kEven ? rows.even_offset(index) : rows.offset(index));
  }

  Byte* data = nullptr;
  DType dtype = DType::f32;
  DeviceAxes rows, cols;
};
template <class Byte>
struct DeviceVector {
  __device__ Byte* at(std::size_t index) const { return data + axes.offset(index); }
  template <bool kEven>
  __device__ Byte* at(std::size_t index) const {
    return data + (kEven ? axes.even_offset(index) : axes.offset(index));
  }

  Byte* data = nullptr;
  DType dtype = DType::f32;
  DeviceAxes axes;
};

template <class T>
inline constexpr T kNanOf = std::numeric_limits<T>::quiet_NaN();

__device__ inline float widened(float v) { return v; }
__device__ inline float widened(bfloat16 v) { return __uint_as_float(static_cast<unsigned>(v.bits) << 16U); }
__device__ inline float widened(float16 v) { return __half2float(__ushort_as_half(v.bits)); }

// Rounds f64 to f32, to odd. A second rounding, to 11 bits or fewer, then gives the result of a single one.
__device__ inline float rounded_to_odd(double v) {
  const float toward_zero = __double2float_rz(v);
  const bool exact = static_cast<double>(toward_zero) == v || v != v;
  return exact ? toward_zero : __uint_as_float(__float_as_uint(toward_zero) | 1U);
}

// Rounds to T, once to nearest even. Every NaN becomes the canonical one: the hardware makes others.
template <class T>
__device__ T rounded(float v) {
  if constexpr (std::is_same_v<T, float>) {
    return v != v ? __uint_as_float(0x7FC00000U) : v;
  } else if constexpr (std::is_same_v<T, double>) {
    return v != v ? __longlong_as_double(0x7FF8000000000000LL) : static_cast<double>(v);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return {v != v ? std::uint16_t{0x7FC0} : __bfloat16_as_ushort(__float2bfloat16_rn(v))};
  } else {
    return {v != v ? std::uint16_t{0x7E00} : __half_as_ushort(__float2half_rn(v))};
  }
}
template <class T>
__device__ T rounded(double v) {
  if constexpr (std::is_same_v<T, double>) {
    return v != v ? __longlong_as_double(0x7FF8000000000000LL) : v;
  } else if constexpr (std::is_same_v<T, float>) {
    return rounded<float>(__double2float_rn(v));
  } else {
    return rounded<T>(rounded_to_odd(v));
  }
}

// One element of any type, as an A that holds it.
template <class A>
__device__ A load_as(const char* from, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return static_cast<A>(*reinterpret_cast<const double*>(from));
    case DType::f32:
      return static_cast<A>(*reinterpret_cast<const float*>(from));
    case DType::bf16:
      return static_cast<A>(widened(*reinterpret_cast<const bfloat16*>(from)));
    default:
      return static_cast<A>(widened(*reinterpret_cast<const float16*>(from)));
  }
}
template <class A>
__device__ void store_as(A value, char* to, DType dtype) {
  switch (dtype) {
    case DType::f64:
      *reinterpret_cast<double*>(to) = rounded<double>(value);
      break;
    case DType::f32:
      *reinterpret_cast<float*>(to) = rounded<float>(value);
      break;
    case DType::bf16:
      *reinterpret_cast<bfloat16*>(to) = rounded<bfloat16>(value);
      break;
    default:
      *reinterpret_cast<float16*>(to) = rounded<float16>(value);
      break;
  }
}

// kN consecutive elements as they are in memory, so that registers hold 16-bit elements in pairs.
template <class T, int kN>
struct Packed {
  static constexpr int kWords = kN * static_cast<int>(sizeof(T)) / 4;
  static_assert(kWords * 4 == kN * static_cast<int>(sizeof(T)));

  __device__ T raw(int i) const {
    if constexpr (std::is_same_v<T, float>) {
      return __uint_as_float(words[i]);
    } else {
      return {static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))};
    }
  }
  __device__ float at(int i) const {
    if constexpr (std::is_same_v<T, bfloat16>) {  // one operation, also for odd elements
      return __uint_as_float(i % 2 != 0 ? words[i / 2] & 0xFFFF0000U : words[i / 2] << 16U);
    } else {
      return widened(raw(i));
    }
  }
  // Rounds all elements. One operation rounds two of 16 bits, but makes other NaNs than the canonical ones.
  __device__ void set(const float (&values)[kN]) {
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int i = 0; i < kN; ++i) words[i] = __float_as_uint(rounded<float>(values[i]));
    } else {
      using Pair = std::conditional_t<std::is_same_v<T, bfloat16>, __nv_bfloat162, __half2>;
      Pair pairs[kWords], watch;
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if constexpr (std::is_same_v<T, bfloat16>) {
          pairs[w] = __floats2bfloat162_rn(values[2 * w], values[2 * w + 1]);
        } else {
          pairs[w] = __floats2half2_rn(values[2 * w], values[2 * w + 1]);
        }
        watch = w == 0 ? pairs[0] : __hadd2(watch, pairs[w]);  // a NaN if one of them is
        words[w] = reinterpret_cast<const unsigned&>(pairs[w]);
      }
      if (!__hbeq2(watch, watch)) make_nans_canonical();
    }
  }

  // All elements at once; the address is a multiple of 16 or of their size, whichever is less.
  using Chunk = std::conditional_t<kWords == 1, unsigned, std::conditional_t<kWords == 2, uint2, uint4>>;
  static constexpr int kChunks = kWords * 4 / static_cast<int>(sizeof(Chunk));
  __device__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) reinterpret_cast<Chunk*>(words)[i] = reinterpret_cast<const Chunk*>(from)[i];
  }
  __device__ void store(T* to) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
      __stcs(reinterpret_cast<Chunk*>(to) + i, reinterpret_cast<const Chunk*>(words)[i]);
  }

  // Of 16-bit elements.
  __device__ void make_nans_canonical() {
    constexpr unsigned kCanonical = std::is_same_v<T, bfloat16> ? 0x7FC0U : 0x7E00U;
    constexpr unsigned kInfinity = std::is_same_v<T, bfloat16> ? 0x7F80U : 0x7C00U;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const unsigned low = words[w] & 0xFFFFU, high = words[w] >> 16U;
      words[w] = ((low & 0x7FFFU) > kInfinity ? kCanonical : low) | ((high & 0x7FFFU) > kInfinity ? kCanonical : high)
                                                                        << 16U;
    }
  }

  alignas(16) unsigned words[kWords];
};

}  // namespace evenorm::internal::cuda
