// The formulas of statistics and gradients for single numbers: the same source text as the kernels'.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/kernels.hpp"
#include "rows/plain_simd.hpp"

namespace evenorm::internal::plain {

#include "kernels/statistics.inc"

#include "kernels/gradients.inc"

inline constexpr hn::F64 kOne{};  // the tag of one number

}  // namespace evenorm::internal::plain
