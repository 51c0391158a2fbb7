// The kernels for neon.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_NEON | HWY_SCALAR))
#define EVENORM_TARGET HWY_NEON
#define EVENORM_TABLE kKernelsNeon
#include "kernels/target-inl.h"
