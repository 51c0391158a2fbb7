// The moments of one block by a group of threads, in the lanes, order and arithmetic of docs/numerics.md. Each of a
// group's 16 / kV threads has kV neighbouring lanes of each line of 16 columns.
#pragma once

#include "cuda/tensors.cuh"
#include "plan/spec.hpp"
#include "rows/join.hpp"

namespace evenorm::internal::cuda {

using plain::kOne;
template <class A>
using Number = plain::Number<A>;

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
  __device__ bool any(bool flag) const { return __any_sync(mask, flag) != 0; }
  // The largest of all threads' values.
  template <class V>
  __device__ V largest(V value) const {
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
template <int kV>
__device__ Number<float> sum_of_lanes(const Group<kV>& group, Number<float> (&lanes)[kV]) {
  double hi[kV];
#pragma unroll
  for (int i = 0; i < kV; ++i) hi[i] = lanes[i].hi;
  return {sum_of_lanes(group, hi)};
}
template <int kV>
__device__ Number<double> sum_of_lanes(const Group<kV>& group, Number<double> (&lanes)[kV]) {
#pragma unroll
  for (int distance = Group<kV>::kThreads / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      const Number<double> other{group.from_other(lanes[i].hi, distance), group.from_other(lanes[i].lo, distance)};
      lanes[i] = plain::Add(kOne, lanes[i], other);
    }
  }
#pragma unroll
  for (int distance = kV / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < distance; ++i) lanes[i] = plain::Add(kOne, lanes[i], lanes[i + distance]);
  }
  return lanes[0];
}
// High and low parts each by themselves.
template <int kV>
__device__ Number<double> sum_of_parts(const Group<kV>& group, Number<double> (&lanes)[kV]) {
  double hi[kV], lo[kV];
#pragma unroll
  for (int i = 0; i < kV; ++i) hi[i] = lanes[i].hi, lo[i] = lanes[i].lo;
  return plain::TwoSum(kOne, sum_of_lanes(group, hi), sum_of_lanes(group, lo));
}

// n columns of a row, at most kBlock, each times `scale` in f64 arithmetic: those from column `col` on of row `row` of
// the warp's part of x.
template <class Form, int kV>
struct Block {
  using A = typename Form::A;
  using W = Number<A>;
  using Sums = plain::WideSums<W>;

  __device__ double widened(A x) const { return static_cast<double>(std::is_same_v<A, double> ? x * scale : x); }
  // Calls add(s, q, x, exists) for the elements of this thread's lanes, those that do not exist being 0.
  template <class Add>
  __device__ __forceinline__ void add_to(W (&s)[kV], W (&q)[kV], const Group<kV>& group, const Add& add) const {
    const int own = group.member * kV, whole = n / static_cast<int>(kLanes) * static_cast<int>(kLanes);
#pragma unroll Form::kUnroll
    for (int c = own; c < whole; c += static_cast<int>(kLanes)) {
      A x[kV];
      form.template get<kV>(row, col + c, x);
#pragma unroll
      for (int i = 0; i < kV; ++i) add(s[i], q[i], widened(x[i]), true);
    }
    if (whole == n) return;
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      const int c = whole + own + i;
      add(s[i], q[i], c < n ? widened(form.at(row, col + c)) : 0, c < n);
    }
  }
  template <class Visit>
  __device__ __forceinline__ void for_each_element(const Group<kV>& group, const Visit& visit) const {
    for (int c = group.member; c < n; c += Group<kV>::kThreads) visit(form.at(row, col + c));
  }

  __device__ __forceinline__ MomentNode moments(const Group<kV>& group, bool centred, const Count& count) const {
    const Sums sums = sums_about_zero(group, centred);
    if (!centred) return {count.n, 0, 0, sums.q.hi, sums.q.Low(kOne)};
    auto moments = plain::MomentsFromSums(kOne, sums, count);
    if (plain::NeedsSecondPass(kOne, moments.m2, sums.q)) moments = second_pass(group, moments.mean);
    return {count.n, moments.mean.hi, moments.mean.Low(kOne), moments.m2.hi, moments.m2.Low(kOne)};
  }

 private:
  __device__ __forceinline__ Sums sums_about_zero(const Group<kV>& group, bool centred) const {
    if constexpr (std::is_same_v<A, double>) {
      if (centred) return anchored_sums(group);
    }
    W s[kV], q[kV];
#pragma unroll
    for (int i = 0; i < kV; ++i) s[i] = q[i] = W::Zero(kOne);
    add_to(s, q, group, [&](W& sum, W& squares, double x, bool) {
      if (std::is_same_v<A, float>) plain::AccumulateSum(kOne, sum, x);
      plain::AccumulateSquare(kOne, squares, x);
    });
    return {sum_of_lanes(group, s), sum_of_lanes(group, q)};
  }
  __device__ __forceinline__ plain::MeanAndM2<W> second_pass(const Group<kV>& group, const W& k) const {
    W s[kV], q[kV];
#pragma unroll
    for (int i = 0; i < kV; ++i) s[i] = q[i] = W::Zero(kOne);
    add_to(s, q, group, [&](W& sum, W& squares, double x, bool exists) {
      plain::AccumulateAbout(kOne, k, exists, x, sum, squares);
    });
    const Sums sums{sum_of_lanes(group, s), sum_of_lanes(group, q)};
    return plain::MomentsFromSumsAbout(kOne, k, sums, static_cast<double>(n));
  }
  // Biased accumulators. If an anchor did not hold, the sum of squares becomes negative, which causes a second pass.
  __device__ __forceinline__ Sums anchored_sums(const Group<kV>& group) const {
    double largest = 0;
    for (int c = group.member; c < n && c < static_cast<int>(kLanes); c += Group<kV>::kThreads) {
      largest = max(largest, std::fabs(widened(form.at(row, col + c))));
    }
    const long long power = __double_as_longlong(group.largest(largest)) & 0x7FF0000000000000LL;
    const double a = __longlong_as_double(power), sum_anchor = a * kSumAnchor, square_anchor = (a * a) * kSquareAnchor;
    W s[kV], q[kV];
#pragma unroll
    for (int i = 0; i < kV; ++i) s[i] = {sum_anchor, 0}, q[i] = {square_anchor, 0};
    add_to(s, q, group, [&](W& sum, W& squares, double x, bool) {
      plain::AccumulateAnchoredSum(kOne, sum, x);
      plain::AccumulateAnchoredSquare(kOne, squares, x);
    });
    bool held = true;
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      held = held && q[i].hi <= square_anchor * kMostOfAnchor;
      s[i].hi -= sum_anchor;
      q[i].hi -= square_anchor;
    }
    const Sums sums{sum_of_parts(group, s), sum_of_parts(group, q)};
    return group.any(!held) ? Sums{sums.s, plain::Negate(kOne, sums.q)} : sums;
  }

 public:
  const Form& form;
  int row, col, n;
  A scale;
};

}  // namespace evenorm::internal::cuda
