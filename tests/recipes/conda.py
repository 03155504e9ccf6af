#!/usr/bin/env python3
"""Builds the recipe for conda with rattler-build, and runs its tests: conda.py RECIPE CHANNEL [CMAKE_OPTION ...]

The recipe names compilers and tools that come from a channel. Here each package only leads to the program of this machine: by a
link or, as real compiler packages do, by CC and CXX. Those packages also set CMAKE_ARGS, so the options reach CMake as there.
"""
import os
import shlex
import shutil
import sys
from pathlib import Path

from rattler_build import ToolConfiguration, VariantConfig
from rattler_build.stage0 import Stage0Recipe

PLATFORM = {"x86_64": "64", "aarch64": "aarch64"}[os.uname().machine]
TOOLS = {f"gcc_linux-{PLATFORM}": "gcc", f"gxx_linux-{PLATFORM}": "g++", "cmake": "cmake", "ninja": "ninja",
         "pkg-config": "pkg-config"}
VERSION = "3.99"  # of all tools; what the recipe requires is older


def activation(name: str, program: str, options: list) -> str:
    """What a compiler package runs when its environment is activated."""
    if name.startswith("gcc"):
        variables = {"CC": program}
    else:
        variables = {"CXX": program, "CMAKE_ARGS": shlex.join(options)}
        variables |= {name: value for name, value in os.environ.items()
                      if name.startswith("CCACHE_") or (name.startswith("CMAKE_") and name.endswith("_LAUNCHER"))}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def make_tool(name: str, program: str, channel: Path, options: list) -> None:
    program = shutil.which(program) or program
    if name.startswith(("gcc", "gxx")):
        folder = "$PREFIX/etc/conda/activate.d"
        lines = [f"mkdir -p {folder}", f"printf %s {shlex.quote(activation(name, program, options))} > {folder}/{name}.sh"]
    else:
        lines = ["mkdir -p $PREFIX/bin", f"ln -s {shlex.quote(program)} $PREFIX/bin"]
    recipe = {"package": {"name": name, "version": VERSION}, "build": {"script": lines}}
    Stage0Recipe.from_dict(recipe).run_build(output_dir=channel, channels=[])


def main() -> int:
    recipe, channel, options = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    for name, program in TOOLS.items():
        make_tool(name, program, channel, options)
    results = Stage0Recipe.from_file(recipe).run_build(
        VariantConfig({"c_compiler": ["gcc"], "cxx_compiler": ["gxx"]}), ToolConfiguration(test_strategy="native"),
        output_dir=channel, channels=[channel.as_uri()])
    for result in results:
        print(result.name, result.version, *result.packages)
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
