// The same of x, dy and dx of one 16-bit type; apart, since each takes its minutes to compile.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient_functions_16bit.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "dispatch.hpp"
#include "kernels/gradient_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

const GradientFunctions& NarrowFunctions(DType type) {
  return type == DType::bf16 ? kFunctionsOf<bfloat16> : kFunctionsOf<float16>;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace evenorm::internal {

const GradientFunctions& narrow_gradient_functions(Target target, DType type) noexcept {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3
    case Target::avx3:
      return N_AVX3::NarrowFunctions(type);
#endif
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return N_AVX2::NarrowFunctions(type);
#endif
#if HWY_TARGETS & HWY_SSE4
    case Target::sse4:
      return N_SSE4::NarrowFunctions(type);
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return N_NEON::NarrowFunctions(type);
#endif
    default:
      return N_SCALAR::NarrowFunctions(type);
  }
}

}  // namespace evenorm::internal
#endif
