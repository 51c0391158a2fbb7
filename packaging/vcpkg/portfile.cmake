# vcpkg port of this checkout: vcpkg install evenorm --overlay-ports=packaging/vcpkg
# It has been run with stand-ins for vcpkg's functions and Debian's dependencies, but not with vcpkg itself.
vcpkg_cmake_configure(
  SOURCE_PATH "${CURRENT_PORT_DIR}/../.."
  OPTIONS -DEVENORM_FETCH_DEPENDENCIES=OFF -DEVENORM_BUILD_CLI=OFF -DEVENORM_BUILD_TESTS=OFF -DEVENORM_BUILD_EXAMPLES=OFF
          -DEVENORM_BUILD_BENCH=OFF -DEVENORM_CCACHE=)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/evenorm)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${CURRENT_PORT_DIR}/../../LICENSE")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
