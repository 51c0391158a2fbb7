// Compiles the kernels for every target and lists their tables.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_functions.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "dispatch.hpp"
#include "kernels/long_row-inl.h"
#include "kernels/parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Index order: DType.
const RowFunctions kRowFunctions = {
    .forward = {&Forward<double>, &Forward<float>, &Forward<bfloat16>, &Forward<float16>},
    .block_moments = {&BlockMoments<double>, &BlockMoments<float>, &BlockMoments<bfloat16>, &BlockMoments<float16>},
    .finish_row = {&FinishRow<double>, &FinishRow<float>, &FinishRow<bfloat16>, &FinishRow<float16>},
    .map_blocks = {&MapBlocks<double>, &MapBlocks<float>, &MapBlocks<bfloat16>, &MapBlocks<float16>},
    .parts = {&Parts<double>, &Parts<float>, &Parts<bfloat16>, &Parts<float16>},
    .join_parts = {&JoinParts<double>, &JoinParts<float>},
    .convert = {{{ConverterTo<double>(DType::f64), ConverterFrom<double>(DType::f32),
                  ConverterFrom<double>(DType::bf16), ConverterFrom<double>(DType::f16)},
                 {ConverterTo<double>(DType::f32), ConverterTo<float>(DType::f32), ConverterFrom<float>(DType::bf16),
                  ConverterFrom<float>(DType::f16)},
                 {ConverterTo<double>(DType::bf16), ConverterTo<float>(DType::bf16), nullptr, nullptr},
                 {ConverterTo<double>(DType::f16), ConverterTo<float>(DType::f16), nullptr, nullptr}}},
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace evenorm::internal {

const RowFunctions& row_functions(Target target) noexcept {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3
    case Target::avx3:
      return N_AVX3::kRowFunctions;
#endif
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return N_AVX2::kRowFunctions;
#endif
#if HWY_TARGETS & HWY_SSE4
    case Target::sse4:
      return N_SSE4::kRowFunctions;
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return N_NEON::kRowFunctions;
#endif
    default:
      return N_SCALAR::kRowFunctions;
  }
}

}  // namespace evenorm::internal
#endif
