// The formulas of formulas.inc for vectors. Included once per target.
#pragma once

#include <limits>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

#define EVENORM_FORMULA HWY_INLINE
#include "kernels/formulas.inc"

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
