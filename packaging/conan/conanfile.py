"""Conan 2 recipe of this checkout: conan create packaging/conan --build=missing [-o evenorm/*:shared=True]

The package contains Highway, as the archives of tools/dist do. CMake users get evenorm's own package file. Without
GitHub, name Highway's sources (tools/dist stores them in build/dist/sources):
-c "tools.cmake.cmaketoolchain:extra_variables={'FETCHCONTENT_SOURCE_DIR_HIGHWAY': '/...'}"
"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Evenorm(ConanFile):
    name = "evenorm"
    description = "Accurate layer norm and RMS norm on the CPU, with the same bits on every machine"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": False}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._root, "include", "evenorm", "version.hpp"))
        self.version = ".".join(re.findall(r"EVENORM_VERSION_[A-Z]+ (\d+)", header))

    def export_sources(self):
        for pattern in "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*":
            copy(self, pattern, self._root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in "CLI", "TESTS", "EXAMPLES", "BENCH":
            toolchain.cache_variables[f"EVENORM_BUILD_{part}"] = False
        toolchain.cache_variables["EVENORM_FETCH_DEPENDENCIES"] = "ON"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "evenorm")]
        self.cpp_info.libs = ["evenorm"]  # this and the rest are for users of other build systems
        if not self.options.shared:
            self.cpp_info.defines = ["EVENORM_STATIC"]
            self.cpp_info.system_libs = ["stdc++", "m", "pthread"]
