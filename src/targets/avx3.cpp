// The kernels for avx3.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_SCALAR))
#define EVENORM_TARGET HWY_AVX3
#define EVENORM_TABLE kKernelsAvx3
#include "kernels/target-inl.h"
