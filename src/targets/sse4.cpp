// The kernels for sse4.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SSE4 | HWY_SCALAR))
#define EVENORM_TARGET HWY_SSE4
#define EVENORM_TABLE kKernelsSse4
#include "kernels/target-inl.h"
