// The kernels for avx2.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_SCALAR))
#define EVENORM_TARGET HWY_AVX2
#define EVENORM_TABLE kKernelsAvx2
#include "kernels/target-inl.h"
