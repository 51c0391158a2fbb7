// Compiles the kernels of the backward pass for every target, in f32 and f64, and lists their tables.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient_functions.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "dispatch.hpp"
#include "kernels/gradient_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

const GradientFunctions& WideFunctions(DType type) {
  return type == DType::f64 ? kFunctionsOf<double> : kFunctionsOf<float>;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace evenorm::internal {

const GradientFunctions& wide_gradient_functions(Target target, DType type) noexcept {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3
    case Target::avx3:
      return N_AVX3::WideFunctions(type);
#endif
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return N_AVX2::WideFunctions(type);
#endif
#if HWY_TARGETS & HWY_SSE4
    case Target::sse4:
      return N_SSE4::WideFunctions(type);
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return N_NEON::WideFunctions(type);
#endif
    default:
      return N_SCALAR::WideFunctions(type);
  }
}

}  // namespace evenorm::internal
#endif
