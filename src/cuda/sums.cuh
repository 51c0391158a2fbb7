// The moments of one block by a group of threads, in the lanes, order and arithmetic of docs/numerics.md. Each of a
// group's 16 / kV threads has kV neighbouring lanes of each line of 16 columns.
#pragma once

#include "cuda/formulas.cuh"
#include "cuda/tensors.cuh"
#include "plan/spec.hpp"

namespace evenorm::internal::cuda {

// The threads of a warp that share a block.
template <int kV>
struct Group {
  static constexpr int kThreads = static_cast<int>(kLanes) / kV;

  __device__ Group() : member(static_cast<int>(threadIdx.x) % kThreads) {
    mask = ((1U << kThreads) - 1U) << (threadIdx.x % 32 / kThreads * kThreads);
  }
  template <class V>
  __device__ V from_other(V value, int distance) const {
    return __shfl_xor_sync(mask, value, distance);
  }
  // The largest of all threads' values.
  __device__ float largest(float value) const {
#pragma unroll
    for (int distance = kThreads / 2; distance > 0; distance /= 2) value = max(value, from_other(value, distance));
    return value;
  }

  int member;
  unsigned mask;
};

// Adds lanes l and l + 8, then l and l + 4, l + 2, l + 1. All threads get the result.
template <int kV>
__device__ double sum_of_lanes(const Group<kV>& group, double (&lanes)[kV]) {
#pragma unroll
  for (int distance = Group<kV>::kThreads / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < kV; ++i) lanes[i] += group.from_other(lanes[i], distance);
  }
#pragma unroll
  for (int distance = kV / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < distance; ++i) lanes[i] += lanes[i + distance];
  }
  return lanes[0];
}

// n columns of a row, at most kBlock: those from column `col` on of row `row` of the warp's part of x.
template <class Form, int kV>
struct Block {
  __device__ __forceinline__ MomentNode moments(const Group<kV>& group, bool centred, const Count& count) const {
    const BlockSums sums = summed(group, [](double& s, double& q, double x, bool) {
      s += x;
      q = std::fma(x, x, q);
    });
    if (!centred) return node_of(count.n, {0, sums.q});
    MeanAndM2 moments = moments_of(sums, count);
    if (needs_second_pass(moments.m2, sums.q)) {
      const double k = moments.mean;
      const BlockSums about_k = summed(group, [k](double& s, double& q, double x, bool exists) {
        const double difference = exists ? x - k : 0;
        s += difference;
        q += difference * difference;
      });
      moments = moments_about(k, about_k, static_cast<double>(n));
    }
    return node_of(count.n, moments);
  }

  // Calls add(s, q, x, exists) for the elements of each lane, those that do not exist being 0, and joins the lanes.
  template <class Add>
  __device__ __forceinline__ BlockSums summed(const Group<kV>& group, const Add& add) const {
    const int own = group.member * kV, whole = n / static_cast<int>(kLanes) * static_cast<int>(kLanes);
    double s[kV] = {}, q[kV] = {};
#pragma unroll Form::kUnroll
    for (int c = own; c < whole; c += static_cast<int>(kLanes)) {
      float x[kV];
      form.template get<kV>(row, col + c, x);
#pragma unroll
      for (int i = 0; i < kV; ++i) add(s[i], q[i], static_cast<double>(x[i]), true);
    }
    if (whole != n) {
#pragma unroll
      for (int i = 0; i < kV; ++i) {
        const int c = whole + own + i;
        add(s[i], q[i], c < n ? static_cast<double>(form.at(row, col + c)) : 0, c < n);
      }
    }
    return {sum_of_lanes(group, s), sum_of_lanes(group, q)};
  }

  const Form& form;
  int row, col, n;
};

}  // namespace evenorm::internal::cuda
