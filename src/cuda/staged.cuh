// Copies between global and shared memory by the threads that share a part of x: a warp that has some whole rows, or a
// thread block that has some columns of long rows.
#pragma once

#include <cuda_pipeline.h>

#include "cuda/tensors.cuh"

namespace evenorm::internal::cuda {

inline constexpr std::uintptr_t kChunk = 16;  // bytes that a thread copies at once

// How many elements from `place` on come before a multiple of kChunk bytes, at most `count`.
template <class T>
__device__ int elements_before_chunk(const T* place, int count) {
  const auto rest = static_cast<int>((kChunk - reinterpret_cast<std::uintptr_t>(place) % kChunk) % kChunk / sizeof(T));
  return rest < count ? rest : count;
}
template <class T>
__device__ bool have_same_phase(const T* a, const T* b) {
  return (reinterpret_cast<std::uintptr_t>(a) - reinterpret_cast<std::uintptr_t>(b)) % kChunk == 0;
}

// These threads. kWholeBlock: all of the thread block.
template <bool kWholeBlock>
struct Sharers {
  static __device__ int own() { return static_cast<int>(kWholeBlock ? threadIdx.x : threadIdx.x % 32); }
  static __device__ int count() { return kWholeBlock ? static_cast<int>(blockDim.x) : 32; }
  static __device__ void sync() {
    if constexpr (kWholeBlock) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }
};

// Copies `count` elements by all of them, in chunks as far as both sides have the same alignment. copy(to,
// from) copies a chunk.
template <class By, class T, class Copy>
__device__ void copy_by(T* to, const T* from, int count, const Copy& copy) {
  const int own = By::own(), step = By::count(), elements = static_cast<int>(kChunk / sizeof(T));
  const int head = have_same_phase(to, from) ? elements_before_chunk(from, count) : count;
  const int body = (count - head) / elements;
  for (int i = own; i < head; i += step) to[i] = from[i];
  for (int i = own; i < body; i += step) copy(to + head + i * elements, from + head + i * elements);
  for (int i = head + body * elements + own; i < count; i += step) to[i] = from[i];
}
template <class By, class T>
__device__ void copy_to_shared(T* to, const T* from, int count) {
  copy_by<By>(to, from, count, [](T* a, const T* b) { __pipeline_memcpy_async(a, b, kChunk); });
}
template <class By, class T>
__device__ void copy_from_shared(T* to, const T* from, int count) {
  copy_by<By>(to, from, count,
              [](T* a, const T* b) { *reinterpret_cast<uint4*>(a) = *reinterpret_cast<const uint4*>(b); });
}

}  // namespace evenorm::internal::cuda
