// The arithmetic and the formulas of the statistics for single numbers: the same source text as the kernels'.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/kernels.hpp"
#include "rows/plain_simd.hpp"

namespace evenorm::internal::plain {

#include "kernels/wide.inc"

#include "kernels/statistics.inc"

#include "kernels/gradients.inc"

inline constexpr hn::F64 kOne{};  // the tag of one number
template <class A>
using Number = Wide<A, hn::F64>;

template <class A>
Number<A> from_memory(const WideNumber& w) {
  return Number<A>::From(kOne, w.hi, w.lo);
}
template <class W>
WideNumber to_memory(const W& w) {
  return {w.hi, w.Low(kOne)};
}

}  // namespace evenorm::internal::plain
