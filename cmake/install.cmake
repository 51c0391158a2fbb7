# Installs the library, its headers, and the files for find_package(evenorm) and `pkg-config evenorm`. All paths are
# relative to the files themselves, so an installed tree may be moved. A shared and a static library can be installed in
# one prefix: only evenorm.pc and evenormConfig.cmake are files of both.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/evenorm")

install(TARGETS evenorm EXPORT evenorm_targets)
install(DIRECTORY include/evenorm DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" PATTERN torch.hpp EXCLUDE)
if(TARGET evenorm_libtorch)
  install(FILES include/evenorm/torch.hpp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/evenorm")
  install(TARGETS evenorm_libtorch EXPORT evenorm_torch_targets)
endif()
if(TARGET evenorm_onnxruntime)  # a file that ONNX Runtime loads; nothing links it
  install(TARGETS evenorm_onnxruntime COMPONENT onnxruntime LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
if(TARGET evenorm_cli)
  install(TARGETS evenorm_cli)
endif()
FetchContent_GetProperties(highway SOURCE_DIR directory)
if(directory)  # the library contains it, so its licence is installed
  install(FILES "${directory}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME LICENSE.highway)
endif()

# Users of a static library link its dependencies, except fetched ones, which the library contains.
set(system_libraries ${evenorm_libraries})
list(REMOVE_ITEM system_libraries ${evenorm_fetched_libraries})

# --- find_package(evenorm) -------------------------------------------------------------------------------------------
set(EVENORM_FIND_DEPENDENCIES)
foreach(library IN LISTS system_libraries)
  string(REGEX REPLACE "::.*" "" package ${library})
  list(APPEND EVENORM_FIND_DEPENDENCIES ${package})
endforeach()
set(kind Static)
if(EVENORM_BUILD_SHARED)
  set(kind Shared)
endif()
install(EXPORT evenorm_targets NAMESPACE evenorm:: FILE evenorm${kind}Targets.cmake DESTINATION "${package_dir}")
if(TARGET evenorm_libtorch)  # a separate component, so that other users need no PyTorch
  install(EXPORT evenorm_torch_targets NAMESPACE evenorm:: FILE evenormTorchTargets.cmake DESTINATION "${package_dir}")
endif()
configure_package_config_file(cmake/evenormConfig.cmake.in evenormConfig.cmake INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(evenormConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/evenormConfig.cmake" "${PROJECT_BINARY_DIR}/evenormConfigVersion.cmake"
        DESTINATION "${package_dir}")

# --- pkg-config evenorm ----------------------------------------------------------------------------------------------
file(RELATIVE_PATH EVENORM_PC_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" EVENORM_PC_PREFIX "${EVENORM_PC_PREFIX}")
cmake_path(APPEND EVENORM_PC_LIBDIR "\${prefix}" "${CMAKE_INSTALL_LIBDIR}")  # an absolute directory stays as it is
cmake_path(APPEND EVENORM_PC_INCLUDEDIR "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}")
set(EVENORM_PC_CFLAGS)
set(EVENORM_PC_REQUIRES_PRIVATE)
set(EVENORM_PC_LIBS_PRIVATE "-pthread -Wl,-z,nodelete")
foreach(library IN LISTS evenorm_runtime)  # for users who link with a C compiler
  string(APPEND EVENORM_PC_LIBS_PRIVATE " -l${library}")
endforeach()
if(NOT EVENORM_BUILD_SHARED)
  set(EVENORM_PC_CFLAGS " -DEVENORM_STATIC")
  if(hwy::hwy IN_LIST system_libraries)
    set(EVENORM_PC_REQUIRES_PRIVATE "libhwy >= 1.0.3")
  endif()
endif()
configure_file(cmake/evenorm.pc.in evenorm.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/evenorm.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# --- a Debian package: cpack -G DEB ----------------------------------------------------------------------------------
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_PACKAGE_CONTACT "The evenorm maintainers")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "layer norm and RMS norm on the CPU: library, headers, command line")
  set(CPACK_PACKAGING_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_STRIP_FILES ON)
  include(CPack)
endif()
