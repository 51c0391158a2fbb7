# Toolchain for AArch64 Linux with Debian's g++-aarch64-linux-gnu. tools/aarch64 runs the programs, and unpacks
# evenorm's dependencies for AArch64 to EVENORM_SYSROOT.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(EVENORM_SYSROOT "" CACHE PATH "The folder of evenorm's dependencies for AArch64")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES EVENORM_SYSROOT)
set(CMAKE_CROSSCOMPILING_EMULATOR "${CMAKE_CURRENT_LIST_DIR}/../tools/aarch64" run)

set(CMAKE_FIND_ROOT_PATH "${EVENORM_SYSROOT}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(what LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${what} ONLY)
endforeach()
