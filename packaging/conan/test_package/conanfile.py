"""Links and runs the consumers of tests/package with a Conan package of evenorm."""

import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain


class EvenormTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        self.folders.build = self.folders.generators = "../../../build/conan"

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # otherwise it writes a file beside CMakeLists.txt
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        for language in "c", "cpp":
            self.run(os.path.join(self.build_folder, f"consumer_{language}"), env="conanrun")
