// evenorm's version, and the revision of its numerics: versions with the same revision give the same bits.
#pragma once

#define EVENORM_VERSION_MAJOR 0
#define EVENORM_VERSION_MINOR 1
#define EVENORM_VERSION_PATCH 0
#define EVENORM_NUMERICS_REVISION 6
