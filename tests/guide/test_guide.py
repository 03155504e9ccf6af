"""The programs of examples/guide print the same in every language: the lines in examples/guide/output, which the guide shows.

They run with the library in $KVCACHE_LIB_DIR, by default that of the release build. The programs in Python run with the
package that is installed. One language: `pytest tests/guide -k in_rust`.
"""
import functools
import os
import pathlib
import subprocess
import sys

import pytest

import kvcache

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "examples/guide"
BUILD = ROOT / "build/guide"
LIBRARY = pathlib.Path(os.environ.get("KVCACHE_LIB_DIR", ROOT / "build/release/src"))
PROGRAMS = sorted(path.stem for path in (GUIDE / "output").glob("*.txt"))
ENVIRONMENT = os.environ | {"KVCACHE_LIB_DIR": str(LIBRARY), "KVCACHE_LIBRARY": str(LIBRARY / "libkvcache.so")}


def call(*command, cwd=GUIDE, **variables):
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=ENVIRONMENT | variables, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@functools.cache
def build_c():
    folder = BUILD / "c"
    folder.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        call("cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{ROOT / 'include'}",
             f"-I{kvcache.get_include()}", GUIDE / f"c/{program}.c", GUIDE / "c/model.c", "-o", folder / program,
             f"-L{LIBRARY}", "-lkvcache", f"-Wl,-rpath,{LIBRARY}")
    return folder


@functools.cache
def build_rust():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "build/rust"))
    call("cargo", "build", "--release", "--locked", cwd=GUIDE / "rust", CARGO_TARGET_DIR=str(target))
    return target / "release"


@functools.cache
def build_go():
    (BUILD / "go").mkdir(parents=True, exist_ok=True)
    call("go", "vet", "./...", cwd=GUIDE / "go", CGO_ENABLED="0")
    call("go", "build", "-o", f"{BUILD / 'go'}/", "./...", cwd=GUIDE / "go", CGO_ENABLED="0")
    return BUILD / "go"


def check(program, printed):
    assert printed == (GUIDE / f"output/{program}.txt").read_text()


@pytest.mark.parametrize("program", PROGRAMS)
def test_in_python(program):
    check(program, call(sys.executable, f"python/{program}.py"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_in_c(program):
    check(program, call(build_c() / program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_in_rust(program):
    check(program, call(build_rust() / program, LD_LIBRARY_PATH=str(LIBRARY)))


@pytest.mark.parametrize("program", PROGRAMS)
def test_in_go(program):
    check(program, call(build_go() / program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_in_java(program):
    number, name = program.split("_")
    check(program, call("bash", "java/run.sh", name.capitalize() + number))


def test_there_are_four_programs():
    assert PROGRAMS == ["01_hello", "02_fork", "03_batch", "04_engine"]
