// Sums over rows of many columns: joined, and rounded at the end. Included once per target.
#pragma once

#include "kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class A>
void AddColumns(double* left, const double* right, size_t count) {
  const DF64 d;
  using W = Wide<A, DF64>;
  constexpr size_t kN = hn::MaxLanes(d);
  const size_t low = std::is_same_v<A, double> ? count : 0;
  size_t i = 0;
  for (; i + kN <= count; i += kN) {
    StoreColumns(Add(d, LoadColumns<W>(left, low, i), LoadColumns<W>(right, low, i)), left, low, i);
  }
  const DScalar d1;
  using W1 = Wide<A, DScalar>;
  for (; i < count; ++i) {
    const auto at = [&](const double* sums) { return W1::From(d1, hn::Set(d1, sums[i]), hn::Set(d1, sums[low + i])); };
    const W1 sum = Add(d1, at(left), at(right));
    left[i] = hn::GetLane(sum.hi);
    if (low != 0) left[low + i] = hn::GetLane(sum.Low(d1));
  }
}

// Rounds n sums over rows, plus what `there` holds unless it is null, to f64. Returns whether all are finite.
template <class A>
bool RoundColumns(const double* sums, size_t low, const double* there, size_t n, double* values) {
  const auto round = [&](auto d, size_t i, auto& finite) HWY_ATTR {
    using W = Wide<A, decltype(d)>;
    W total = W::From(d, hn::LoadU(d, sums + i), hn::LoadU(d, sums + low + i));
    if (there != nullptr) AccumulateSum(d, total, hn::LoadU(d, there + i));
    const auto rest = total.Low(d);  // NaN where TwoSum left the range on its way to a sum that does not
    const auto value = hn::Add(total.hi, hn::IfThenElseZero(hn::Eq(rest, rest), rest));
    hn::StoreU(value, d, values + i);
    finite = hn::MulAdd(value, hn::Zero(d), finite);  // stays 0 while all are finite, else becomes NaN
  };
  const DF64 d;
  constexpr size_t kN = hn::MaxLanes(d);
  auto even = hn::Zero(d), odd = even;
  size_t i = 0;
  for (; i + 2 * kN <= n; i += 2 * kN) round(d, i, even), round(d, i + kN, odd);
  const DScalar d1;
  auto rest = hn::Zero(d1);
  for (; i < n; ++i) round(d1, i, rest);
  return hn::GetLane(rest) == 0 && hn::AllTrue(d, hn::Eq(hn::Add(even, odd), hn::Zero(d)));
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
