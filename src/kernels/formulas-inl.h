// The formulas of statistics.inc and gradients.inc for vectors. Included once per target.
#pragma once

#include <limits>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

#include "kernels/statistics.inc"

#include "kernels/gradients.inc"

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
