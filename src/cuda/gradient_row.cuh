// How the backward kernels reach elements, and what they know of a row before its sums.
#pragma once

#include "cuda/backward_kernels.hpp"
#include "cuda/formulas.cuh"
#include "plan/spec.hpp"

namespace evenorm::internal::cuda {

inline constexpr int kBackwardThreads = 256;
inline constexpr int kMostOfCluster = 16;  // thread blocks
inline constexpr int kFour = static_cast<int>(kChainRows);
inline constexpr int kLines = static_cast<int>(kChainSlices);  // a thread's columns
inline constexpr int kChainThreads = static_cast<int>(kLanes);
inline constexpr int kChainColumns = static_cast<int>(kChainSlices * kLanes);
inline constexpr int kWideLanes = static_cast<int>(kLanes) / 2;
inline constexpr int kTileColumns = kBackwardThreads * kLines;

// The columns of a thread: one in each line of a chain, from `first` on.
struct OwnColumns {
  __device__ std::size_t at(int line) const { return first + line * kLanes; }

  std::size_t first;
};

// What is known of a row before its sums, read at once.
struct alignas(16) RowInArithmetic : NormScalars<float> {};

// Row `row` of a row block that ends at row `end`. A row behind it has zeros.
template <bool kEven>
__device__ RowStatistics statistics_of(const BackwardArguments& p, std::size_t row, std::size_t end) {
  RowStatistics s{0, 0};
  if (row >= end) return s;
  if (p.centred) s.mean = *reinterpret_cast<const double*>(p.mean.template at<kEven>(row));
  s.rstd = *reinterpret_cast<const double*>(p.rstd.template at<kEven>(row));
  if (p.centred && p.cols == 1 && s.rstd == s.rstd) s.rstd = 0;
  return s;
}

// Dense rows of X along one axis, and a dense gamma of P. kPlain: no row block holds rows that leave the range.
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

// All types and layouts.
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
