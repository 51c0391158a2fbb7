#!/bin/sh
# Installs the missing Debian packages that a task needs. Returns at once if none is missing.
# Usage: tools/setup.sh GROUP...
#   build      library, command line, demo
#   test       also `make test`
#   check      also sanitizers, clang-tidy, package tests
#   test-all   also `make test-all`
#   python     `make python`, which installs other packages with pip
#   page       Chromium and a font, for the tests of the page
#   aarch64    the cross compiler and QEMU (tools/aarch64)
#   dist       the cross compiler and QEMU, and what makes a Debian package and a bare Debian (tools/dist)
#   abi        abidiff
#   mpi        Open MPI, unless there is another MPI
# Without root, prints the command that installs what is missing; the status is then 1.
set -eu

# package | what it provides: a command, a header in an include directory, or a file
build_needs='
g++              c++
gcc              cc
cmake            cmake
ninja-build      ninja
python3          python3
ccache           ccache
libhwy-dev       hwy/highway.h
libcli11-dev     CLI/CLI.hpp
libfmt-dev       fmt/format.h
nlohmann-json3-dev nlohmann/json.hpp
libgtest-dev     gtest/gtest.h
libgmock-dev     gmock/gmock.h
'
test_needs='
clang-format-14  clang-format-14
'
check_needs='
binutils         nm
pkgconf          pkg-config
clang-14         clang++-14
libclang-rt-14-dev /usr/lib/llvm-14/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a
clang-tidy-14    clang-tidy-14
libeigen3-dev    eigen3/Eigen/Dense
libarmadillo-dev /usr/include/armadillo
libopencv-core-dev opencv4/opencv2/core.hpp
'
python_needs='
python3          python3
python3-dev      /usr/include/python3*/Python.h
python3-venv     /usr/lib/python3*/ensurepip/__init__.py
'
page_needs='
python3          python3
python3-venv     /usr/lib/python3*/ensurepip/__init__.py
chromium         chromium
fonts-dejavu-core /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
'
aarch64_needs='
g++-aarch64-linux-gnu aarch64-linux-gnu-g++
qemu-user-static qemu-aarch64-static
'
abi_needs='
abigail-tools    abidiff
'
dist_needs='
pkgconf          pkg-config
dpkg-dev         dpkg-shlibdeps
mmdebstrap       mmdebstrap
'
mpi_needs='
libopenmpi-dev   /usr/include/*/mpi/mpi.h
openmpi-bin      mpirun
'
test_all_needs='
valgrind         valgrind
'

needs=
for group in "$@"; do
  case $group in
    build) needs="$needs$build_needs" ;;
    test) needs="$needs$build_needs$test_needs" ;;
    check) needs="$needs$build_needs$test_needs$check_needs" ;;
    test-all) needs="$needs$build_needs$test_needs$check_needs$test_all_needs" ;;
    python) needs="$needs$build_needs$python_needs" ;;
    page) needs="$needs$page_needs" ;;
    aarch64) needs="$needs$aarch64_needs" ;;
    abi) needs="$needs$abi_needs" ;;
    dist) needs="$needs$build_needs$aarch64_needs$dist_needs" ;;
    mpi) needs="$needs$build_needs$mpi_needs" ;;
    *) echo "tools/setup.sh: there is no group '$group'" >&2; exit 1 ;;
  esac
done

present() {
  case $1 in
    /*)  # a file; its pattern is meant to be expanded
      # shellcheck disable=SC2086
      for file in $1; do
        [ -e "$file" ] && return 0
      done
      return 1 ;;
    */* | *.h)
      for dir in /usr/include /usr/local/include /usr/include/*-linux-gnu; do
        [ -e "$dir/$1" ] && return 0
      done
      return 1 ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

missing=$(echo "$needs" | while read -r package sign; do
  [ -z "$package" ] || present "$sign" || printf ' %s' "$package"
done)
[ -n "$missing" ] || exit 0

# The list of package names is meant to be split.
# shellcheck disable=SC2086
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "Missing:$missing. As root, run:" >&2
  echo "apt-get install --yes --no-install-recommends$missing"
  exit 1
fi

echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
install() {  # waits for another apt-get
  apt-get install --yes --no-install-recommends --quiet -o=Dpkg::Use-Pty=0 -o=DPkg::Lock::Timeout=300 $missing >"$log" 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Only a machine without package lists, or with stale ones, needs an update.
if ! install; then
  apt-get update --quiet >"$log" 2>&1 && install || { cat "$log" >&2; exit 1; }
fi
