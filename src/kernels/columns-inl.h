// Sums over rows of many columns: joined, and completed at the end. Included once per target.
#pragma once

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

inline void AddColumns(double* left, const double* right, size_t count) {
  const DF64 d;
  constexpr size_t kN = hn::MaxLanes(d);
  size_t i = 0;
  for (; i + kN <= count; i += kN) hn::StoreU(hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i)), d, left + i);
  for (; i < count; ++i) left[i] += right[i];
}

inline bool SumColumns(const double* sums, const double* there, size_t n, double* values) {
  const auto sum = [&](auto d, size_t i, auto& finite) HWY_ATTR {
    auto value = hn::LoadU(d, sums + i);
    if (there != nullptr) value = hn::Add(value, hn::LoadU(d, there + i));
    hn::StoreU(value, d, values + i);
    finite = hn::MulAdd(value, hn::Zero(d), finite);  // stays 0 while all are finite, else becomes NaN
  };
  const DF64 d;
  constexpr size_t kN = hn::MaxLanes(d);
  auto even = hn::Zero(d), odd = even;
  size_t i = 0;
  for (; i + 2 * kN <= n; i += 2 * kN) sum(d, i, even), sum(d, i + kN, odd);
  const hn::CappedTag<double, 1> d1;
  auto rest = hn::Zero(d1);
  for (; i < n; ++i) sum(d1, i, rest);
  return hn::GetLane(rest) == 0 && hn::AllTrue(d, hn::Eq(hn::Add(even, odd), hn::Zero(d)));
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
