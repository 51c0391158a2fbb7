# Finds evenorm's dependencies on this system, or fetches them.
#   evenorm_find_or_fetch(hwy)   defines hwy's target, or stops with an error
#   evenorm_libraries            the targets that the library itself depends on
#   evenorm_fetched_libraries    those of them that were fetched; evenorm contains their objects, so that an installed
#                                evenorm does not need them
include_guard()
include(FetchContent)
if(POLICY CMP0135)
  cmake_policy(SET CMP0135 NEW)  # unpacked files have the time of unpacking
endif()

set(EVENORM_FETCH_DEPENDENCIES AUTO CACHE STRING
  "Dependencies to fetch: AUTO those that this system lacks, ON all, OFF none")
set_property(CACHE EVENORM_FETCH_DEPENDENCIES PROPERTY STRINGS AUTO ON OFF)

# package: lowest version | target | Debian's package | archive | hash of the archive
# evenorm is tested with these versions, which are Debian 12's.
set(github https://github.com)
set(dependency_hwy 1.0.3 hwy::hwy libhwy-dev
  ${github}/google/highway/archive/refs/tags/1.0.3.tar.gz
  SHA256=566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e)
set(dependency_fmt 9.1 fmt::fmt libfmt-dev
  ${github}/fmtlib/fmt/archive/refs/tags/9.1.0.tar.gz
  SHA256=5dea48d1fcddc3ec571ce2058e13910a0d4a6bab4cc09a809d8b1dd1c88ae6f2)
set(dependency_nlohmann_json 3.11 nlohmann_json::nlohmann_json nlohmann-json3-dev
  ${github}/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz
  SHA256=d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273)
set(dependency_CLI11 2.1 CLI11::CLI11 libcli11-dev
  ${github}/CLIUtils/CLI11/archive/refs/tags/v2.1.2.tar.gz
  SHA256=26291377e892ba0e5b4972cdfd4a2ab3bf53af8dac1f4ea8fe0d1376b625c8cb)
set(dependency_GTest 1.12 GTest::gmock libgtest-dev
  ${github}/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
  SHA256=81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2)

set(evenorm_libraries hwy::hwy)
set(evenorm_fetched_libraries)

# Fetches and configures one project: static, position-independent, without tests or install rules. FetchContent knows
# it by its repository's name (FETCHCONTENT_SOURCE_DIR_HIGHWAY).
function(evenorm_fetch url hash)
  string(REGEX REPLACE "^${github}/[^/]*/([^/]*)/.*" "\\1" name ${url})
  foreach(policy CMP0077 CMP0126)  # so that the variables below override the options of old projects
    set(CMAKE_POLICY_DEFAULT_${policy} NEW)
  endforeach()
  set(BUILD_SHARED_LIBS OFF)
  set(BUILD_TESTING OFF)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(HWY_ENABLE_CONTRIB OFF)
  set(HWY_ENABLE_EXAMPLES OFF)
  set(HWY_ENABLE_INSTALL OFF)
  set(HWY_ENABLE_TESTS OFF)
  set(INSTALL_GTEST OFF)
  set(JSON_BuildTests OFF)
  FetchContent_Declare(${name} URL ${url} URL_HASH ${hash})
  FetchContent_MakeAvailable(${name})
  FetchContent_GetProperties(${name} SOURCE_DIR directory)
  set_property(DIRECTORY "${directory}" PROPERTY EXCLUDE_FROM_ALL ON)  # for `all` and `install`
endfunction()

# Makes a target's headers system headers, so that they cause no warnings.
function(evenorm_as_system target)
  get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
  if(directories)
    set_target_properties(${target} PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${directories}")
  endif()
endfunction()

# Makes `target` an alias of `plain`, for projects that define only `plain`.
function(evenorm_alias target plain)
  if(TARGET ${plain} AND NOT TARGET ${target})
    add_library(${target} ALIAS ${plain})
  endif()
endfunction()

function(evenorm_find_or_fetch package)
  list(POP_FRONT dependency_${package} version target debian url hash)
  string(REGEX REPLACE ".*::" "" plain ${target})
  evenorm_alias(${target} ${plain})
  if(TARGET ${target})
    return()  # a project that contains this one defines it
  endif()
  if(NOT EVENORM_FETCH_DEPENDENCIES STREQUAL "ON")
    find_package(${package} ${version} QUIET)
    if(TARGET ${target})
      return()
    endif()
    if(NOT EVENORM_FETCH_DEPENDENCIES)
      message(FATAL_ERROR "${package} ${version} was not found, and EVENORM_FETCH_DEPENDENCIES is OFF. "
                          "On Debian: apt-get install ${debian}")
    endif()
  endif()

  message(STATUS "Fetching ${package} from ${url}")
  evenorm_fetch(${url} ${hash})
  evenorm_alias(${target} ${plain})
  foreach(made ${plain} gtest)
    if(TARGET ${made})
      evenorm_as_system(${made})
    endif()
  endforeach()
  if(target IN_LIST evenorm_libraries)
    set(evenorm_fetched_libraries ${evenorm_fetched_libraries} ${target} PARENT_SCOPE)
  endif()
endfunction()
