"""The library for Conan 2: `conan create .`"""
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, rmdir

required_conan_version = ">=2.0"


class Libkvcache(ConanFile):
    name = "libkvcache"
    version = "0.1.0"
    description = "Paged KV cache and attention for LLM engines"
    license = "Apache-2.0 AND BSD-2-Clause"  # the second of xxHash, whose functions are compiled in
    homepage = "@HOMEPAGE@"
    url = "@HOMEPAGE@"
    topics = ("llm", "attention", "kv-cache", "inference", "dlpack")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("this recipe is for Linux on x86_64 and armv8")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.24]")

    def layout(self):
        cmake_layout(self, src_folder="src")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        CMakeToolchain(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE*", self.source_folder, str(Path(self.package_folder) / "licenses"))
        CMake(self).install()
        for folder in ("lib/cmake", "lib/pkgconfig", "share"):  # Conan writes its own files for CMake and pkg-config
            rmdir(self, str(Path(self.package_folder) / folder))

    def package_info(self):
        self.cpp_info.libs = ["kvcache"]
        self.cpp_info.set_property("cmake_file_name", "kvcache")
        self.cpp_info.set_property("cmake_target_name", "kvcache::kvcache")
        self.cpp_info.set_property("pkg_config_name", "kvcache")
