// The kernels for portable.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_SCALAR))
#define EVENORM_TARGET HWY_SCALAR
#define EVENORM_TABLE kKernelsPortable
#include "kernels/target-inl.h"
