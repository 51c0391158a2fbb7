// The table of one target's kernels. Each file of src/targets/ includes this with two macros defined: EVENORM_TARGET,
// Highway's name of its target, and EVENORM_TABLE, the name of its table. Highway includes it again for the target, and
// once for the baseline, for which nothing is compiled. All code for the target must be between HWY_BEFORE_NAMESPACE
// and HWY_AFTER_NAMESPACE, in its namespace: docs/architecture.md explains why.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/target-inl.h"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#if HWY_TARGET == EVENORM_TARGET

#include "kernels/backward/gradient_rows-inl.h"
#include "kernels/forward/finish-inl.h"
#include "kernels/forward/second_pass-inl.h"
#include "kernels/forward/short_rows-inl.h"
#include "kernels/lines/lines-inl.h"
#include "kernels/move/add-inl.h"
#include "kernels/move/convert-inl.h"
#include "kernels/move/move-inl.h"
#include "kernels/move/quantise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class T>
constexpr StorageKernels<T> StorageTable() {
  return {
#define EVENORM_BY_STORAGE(name, kernel, ...) .name = &kernel<T>,
#define EVENORM_BY_STORAGE_AND_KIND(name, kernel, ...) .name = {&kernel<T, true>, &kernel<T, false>},
#define EVENORM_BY_ARITHMETIC(name, kernel, ...)
#include "kernels/kernels.inc"
  };
}
template <class A>
constexpr ArithmeticKernels<A> ArithmeticTable() {
  return {
#define EVENORM_BY_STORAGE(name, kernel, ...)
#define EVENORM_BY_STORAGE_AND_KIND(name, kernel, ...)
#define EVENORM_BY_ARITHMETIC(name, kernel, ...) .name = &kernel<A>,
#include "kernels/kernels.inc"
  };
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace evenorm::internal {

extern const Kernels EVENORM_TABLE;
// Defined once: by the unit whose name it has. NOLINTNEXTLINE(misc-definitions-in-headers)
constinit const Kernels EVENORM_TABLE = [] {
  using namespace HWY_NAMESPACE;
  return Kernels{
      .by_storage = {StorageTable<double>(), StorageTable<float>(), StorageTable<bfloat16>(), StorageTable<float16>()},
      .by_arithmetic = {ArithmeticTable<double>(), ArithmeticTable<float>()},
      .convert = {{{&ConvertElements<double, double>, &ConvertElements<double, float>,
                    &ConvertElements<double, bfloat16>, &ConvertElements<double, float16>},
                   {&ConvertElements<float, double>, &ConvertElements<float, float>, &ConvertElements<float, bfloat16>,
                    &ConvertElements<float, float16>},
                   {&ConvertElements<bfloat16, double>, &ConvertElements<bfloat16, float>, nullptr, nullptr},
                   {&ConvertElements<float16, double>, &ConvertElements<float16, float>, nullptr, nullptr}}},
      .transpose = {&MoveTransposed<uint16_t>, &MoveTransposed<uint32_t>, &MoveTransposed<uint64_t>},
      .add_columns = &AddColumns,
      .add_to_columns = &SumColumns,
  };
}();

}  // namespace evenorm::internal

#endif  // of this target
