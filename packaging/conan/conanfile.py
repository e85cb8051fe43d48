"""libblend for Conan 2, built from the source package that `scripts/package python` makes.

    conan create packaging/conan

The third-party libraries are the distribution's, as in the Debian packages.
"""

import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, unzip
from conan.tools.system.package_manager import Apt

TREE = pathlib.Path("..", "..")


class Libblend(ConanFile):
    name = "libblend"
    description = "KV-cache fusion for retrieval-augmented prompts"
    license = "Apache-2.0"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def set_version(self):
        cmake = (pathlib.Path(self.recipe_folder) / TREE / "CMakeLists.txt").read_text()
        self.version = re.search(r"project\(blend VERSION ([0-9.]+)", cmake)[1]

    def export_sources(self):
        found = copy(self, f"libblend-{self.version}.tar.gz", pathlib.Path(self.recipe_folder) / TREE / "dist",
                     self.export_sources_folder)
        if not found:
            raise FileNotFoundError("no source package in dist/: run scripts/package python first")

    def layout(self):
        cmake_layout(self, src_folder="source")

    def source(self):
        tarball = pathlib.Path(self.export_sources_folder) / f"libblend-{self.version}.tar.gz"
        unzip(self, str(tarball), strip_root=True)

    def system_requirements(self):
        Apt(self).install([
            "libcli11-dev", "libboost-dev", "libhwy-dev", "liblmdb-dev", "libpcre2-dev", "libssl-dev",
            "libutf8proc-dev", "liburing-dev", "libxxhash-dev", "libzstd-dev", "nlohmann-json3-dev", "pkg-config"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BINDINGS", "BENCH"):
            toolchain.cache_variables[f"BLEND_BUILD_{part}"] = "OFF"
        toolchain.cache_variables["BLEND_CUDA"] = "OFF"
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder) / "licenses")
        CMake(self).install()

    def package_info(self):
        self.cpp_info.libs = ["blend"]
        self.cpp_info.set_property("cmake_file_name", "blend")
        self.cpp_info.set_property("cmake_target_name", "blend::blend")
        self.cpp_info.set_property("pkg_config_name", "blend")
