// evenorm's version and the revision of the bits that it promises (docs/numerics.md).
#pragma once

#define EVENORM_VERSION_MAJOR 0
#define EVENORM_VERSION_MINOR 1
#define EVENORM_VERSION_PATCH 0
#define EVENORM_NUMERICS_REVISION 1
