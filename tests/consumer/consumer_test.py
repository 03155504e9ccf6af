#!/usr/bin/env python3
"""Installs the library, moves it to another folder, and builds and runs programs that are given this folder alone."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
INSTALLED = """include/dlpack/dlpack.h
include/kvcache.h
include/kvcache_backend.h
include/kvcache_tensor.h
include/kvcache_tier.h
include/kvcache_transport.h
lib/cmake/kvcache/kvcache-config-version.cmake
lib/cmake/kvcache/kvcache-config.cmake
lib/cmake/kvcache/kvcache-targets-BUILDTYPE.cmake
lib/cmake/kvcache/kvcache-targets.cmake
lib/libkvcache.so
lib/libkvcache.so.0
lib/libkvcache.so.VERSION
lib/pkgconfig/kvcache.pc
share/licenses/kvcache/LICENSE
share/licenses/kvcache/LICENSE.dlpack
share/licenses/kvcache/LICENSE.xxhash""".splitlines()


def run(*command, **options) -> str:
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if result.returncode:
        print(f"FAILED: {' '.join(str(word) for word in command)}\n{result.stdout}{result.stderr}")
        raise SystemExit(1)
    return result.stdout


def cached(build: Path, name: str) -> str:
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith((f"{name}:", f"{name}=")):
            return line.partition("=")[2]
    return ""


def installed(build: Path, work: Path) -> Path:
    """The install tree, in another folder than the one it was installed to."""
    run("cmake", "--install", build, "--prefix", work / "first")
    return (work / "first").rename(work / "moved")


def unpacked(tarball: Path, work: Path) -> Path:
    """The one folder that a tarball contains, unpacked."""
    (work / "unpacked").mkdir()
    run("tar", "-xzf", tarball, "--directory", work / "unpacked")
    (folder,) = (work / "unpacked").iterdir()
    return folder.rename(work / "moved")


def install(build: Path, prefix: Path, work: Path) -> None:
    """Checks that there are exactly these files, and that none contains a path of this machine."""
    version = cached(build, "CMAKE_PROJECT_VERSION")
    build_type = cached(build, "CMAKE_BUILD_TYPE").lower()
    libdir = cached(build, "CMAKE_INSTALL_LIBDIR") or "lib"
    wanted = sorted(name.replace("VERSION", version).replace("BUILDTYPE", build_type).replace("lib/", f"{libdir}/", 1)
                    if name.startswith("lib/") else name for name in INSTALLED)
    found = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir())
    if found != wanted:
        extra, missing = sorted(set(found) - set(wanted)), sorted(set(wanted) - set(found))
        raise SystemExit(f"FAILED: installed besides: {extra}, missing: {missing}")
    source = cached(build, "CMAKE_HOME_DIRECTORY")
    for path in prefix.rglob("*"):
        if path.suffix in (".cmake", ".pc", ".h"):
            text = path.read_text()
            for place in (source, str(build), str(work)):
                if place in text:
                    raise SystemExit(f"FAILED: {path.relative_to(prefix)} names {place}")
    for name in ("kvcache.h", "kvcache_backend.h", "kvcache_tensor.h", "kvcache_tier.h", "kvcache_transport.h"):
        if (prefix / "include" / name).read_bytes() != (Path(source) / "include" / name).read_bytes():
            raise SystemExit(f"FAILED: {name} differs")


def find_package(build: Path, prefix: Path, work: Path) -> None:
    generator = ("-G", cached(build, "CMAKE_GENERATOR"))  # the program of the default generator may be missing
    run("cmake", "-S", HERE / "find_package", "-B", work / "build", *generator, f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", work / "build")
    print(run(work / "build/consumer"), end="")
    # A control: another minor release is not accepted while the version is 0.x.
    other = work / "other"
    other.mkdir()
    (other / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.24)\nproject(other LANGUAGES C)\n"
                                          "find_package(kvcache 0.0 REQUIRED)\n")
    refused = subprocess.run(["cmake", "-S", other, "-B", other / "build", *generator, f"-DCMAKE_PREFIX_PATH={prefix}"],
                             capture_output=True, text=True)
    if refused.returncode == 0 or "compatible" not in refused.stderr:
        raise SystemExit("FAILED: find_package(kvcache 0.0) should be refused")


def pkg_config(build: Path, prefix: Path, work: Path) -> None:
    path = next(prefix.rglob("kvcache.pc")).parent
    flags = run("pkg-config", "--cflags", "--libs", "kvcache", env={**os.environ, "PKG_CONFIG_PATH": str(path)}).split()
    run(cached(build, "CMAKE_C_COMPILER"), "-std=c11", "-Wall", "-Wextra", "-Werror", HERE / "linked.c", *flags, "-lm",
        "-o", work / "consumer")
    print(run(work / "consumer", env={**os.environ, "LD_LIBRARY_PATH": str(path.parent)}), end="")


def readme(build: Path, prefix: Path, work: Path) -> None:
    """The first C program of the README, unchanged."""
    text = (Path(cached(build, "CMAKE_HOME_DIRECTORY")) / "README.md").read_text()
    (work / "first.c").write_text(text.split("```c\n")[1].split("```")[0])
    path = next(prefix.rglob("kvcache.pc")).parent
    flags = run("pkg-config", "--cflags", "--libs", "kvcache", env={**os.environ, "PKG_CONFIG_PATH": str(path)}).split()
    run(cached(build, "CMAKE_C_COMPILER"), "-std=c11", "-Wall", "-Werror", work / "first.c", *flags, "-o", work / "first")
    printed = run(work / "first", env={**os.environ, "LD_LIBRARY_PATH": str(path.parent)})
    if printed != "out[0] = 1\n":
        raise SystemExit(f"FAILED: printed {printed!r}")


def dlopen(build: Path, prefix: Path, work: Path) -> None:
    run(cached(build, "CMAKE_C_COMPILER"), "-std=c11", "-Wall", "-Wextra", "-Werror", HERE / "dlopen/loaded.c",
        f"-I{prefix / 'include'}", "-lm", "-ldl", "-o", work / "loaded")
    if "kvc_" in run("nm", "-D", work / "loaded"):
        raise SystemExit("FAILED: the program links the library")
    print(run(work / "loaded", next(prefix.rglob("libkvcache.so.0"))), end="")

def plugin_host(build: Path, prefix: Path, work: Path) -> None:
    """Builds examples/plugin_host by its own CMakeLists.txt. Runs it with libraries of several versions, and without one."""
    source = Path(cached(build, "CMAKE_HOME_DIRECTORY")) / "examples/plugin_host"
    run("cmake", "-S", source, "-B", work / "build", "-G", cached(build, "CMAKE_GENERATOR"),
        f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror")
    run("cmake", "--build", work / "build")
    host, library = work / "build/plugin_host", next(prefix.rglob("libkvcache.so.0"))
    if "kvc_" in run("nm", "-D", host):
        raise SystemExit("FAILED: the program links the library")

    def other(table: int) -> Path:
        made = work / f"other{table}.so"
        run(cached(build, "CMAKE_C_COMPILER"), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
            f"-DTABLE={table}", f'-DREAL="{library}"', f"-I{prefix / 'include'}", HERE / "plugin_host/other_version.c",
            "-ldl", "-o", made)
        return made

    nothing = work / "nothing.so"
    run(cached(build, "CMAKE_C_COMPILER"), "-shared", "-x", "c", os.devnull, "-o", nothing)
    cases = [(library, "attention by libkvcache 0."),
             (other(2), "attention by libkvcache 0.1.0-older, merging states: no"),
             (other(3), "attention by libkvcache 0.1.99, merging states: yes"),
             (work / "absent.so", "no plug-in: " + str(work / "absent.so")),
             (nothing, f"no plug-in: {nothing} is no libkvcache"),
             (other(0), f"no plug-in: {work / 'other0.so'} does not serve ABI 0.1"),
             (other(1), f"no plug-in: {work / 'other1.so'} is too old")]
    threads = set()
    for path, begins in cases:
        lines = run(host, path, 6).splitlines()
        if not lines[0].startswith(begins):
            raise SystemExit(f"FAILED: {path}: said {lines[0]!r}, not {begins!r}")
        threads.add("\n".join(line for line in lines if line.startswith("thread")))
        print(lines[0])
    emulated, refused = next(build.rglob("libkvcache_cuda_emulated_plugin.so")), "no backend: kvc_context_create: "
    for path, backend, says in [(library, emulated, 'backend: {"device": "cuda"'),
                                (library, work / "absent.so", f"{refused}no backend for device type 2 (CUDA): {work / 'absent.so'}"),
                                (library, nothing, f"{refused}{nothing} is no backend"),
                                (other(2), emulated, "backend: ")]:
        lines = run(host, path, 6, backend).splitlines()
        if not lines[1].startswith(says):
            raise SystemExit(f"FAILED: {backend}: said {lines[1]!r}, not {says!r}")
        threads.add("\n".join(line for line in lines if line.startswith("thread")))
        print(lines[1])
    if len(threads) != 1 or next(iter(threads)).count("checksum") != 6:
        raise SystemExit(f"FAILED: threads differ: {threads}")


def subdirectory(build: Path, prefix: Path, work: Path) -> None:
    run("cmake", "-S", HERE / "subdirectory", "-B", work / "build", "-G", cached(build, "CMAKE_GENERATOR"),
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DDLPACK_INCLUDE_DIR={cached(build, 'DLPACK_INCLUDE_DIR')}",
        f"-DCMAKE_CXX_COMPILER_LAUNCHER={cached(build, 'CMAKE_CXX_COMPILER_LAUNCHER')}")
    run("cmake", "--build", work / "build", "--target", "consumer", "--parallel", len(os.sched_getaffinity(0)))
    print(run(work / "build/consumer"), end="")
    run("cmake", "--install", work / "build", "--prefix", work / "nothing")
    if any((work / "nothing").rglob("*kvcache*")):
        raise SystemExit("FAILED: a subproject must not install")


def main() -> int:
    ways = {way.__name__: way for way in (install, find_package, pkg_config, readme, dlopen, plugin_host, subdirectory)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=ways)
    parser.add_argument("--build", type=Path, required=True, help="tells compilers; installed, unless there is a tarball")
    parser.add_argument("--tarball", type=Path, help="of scripts/package.sh, instead of an installation")
    arguments = parser.parse_args()
    if arguments.way in ("pkg_config", "readme") and not shutil.which("pkg-config"):
        print("skipped: no pkg-config")
        return 77
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        prefix = unpacked(arguments.tarball, work) if arguments.tarball else installed(arguments.build, work)
        ways[arguments.way](arguments.build, prefix, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
