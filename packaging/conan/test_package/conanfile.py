"""Builds examples/c/quickstart.c with the package and has it answer."""

import pathlib
import tempfile

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout

MODEL = pathlib.Path("..", "..", "..", "examples", "models", "blend-qa.gguf")


class LibblendTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if not can_run(self):
            return
        with tempfile.TemporaryDirectory() as store:
            program = pathlib.Path(self.build_folder) / self.cpp.build.bindir / "quickstart"
            self.run(f"{program} {pathlib.Path(self.recipe_folder) / MODEL} {store}", env="conanrun")
            self.run("blend --version", env="conanrun")
