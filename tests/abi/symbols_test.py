#!/usr/bin/env python3
"""The symbols, dependencies and properties of libkvcache.so, read from the file as it ships."""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FUNCTIONS = HERE.parent.parent / "src/api/functions.txt"
NEEDED = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6"}
NEEDED_PATTERN = r"ld-linux[\w-]*\.so\.\d"
# A library must not print, or have exit handlers or static destructors, in the process of a host. CUDA is a plug-in.
FORBIDDEN = r"(cu[A-Z]\w*|cuda\w*|__cxa_atexit|atexit|on_exit|exit|_exit|printf|puts|putchar|perror|stdout|stderr" \
            r"|signal|sigaction|_ZSt4cout|_ZSt4cerr|_ZSt4clog)"
STRIPPED_LIMIT_BYTES = 3_000_000


def output(*command) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library) -> set:
    """name@node of every defined dynamic symbol. GNU ld also makes an absolute symbol for each node."""
    names = set()
    for line in output("readelf", "--dyn-syms", "--wide", library).splitlines():
        words = line.split()
        if len(words) >= 8 and words[0].rstrip(":").isdigit() and words[6] != "UND":
            names.add(words[7].replace("@@", "@") if words[6] != "ABS" else f"{words[7].split('@')[0]} (node)")
    return names


def undefined(library) -> set:
    return {re.split("@", line.split()[-1])[0]
            for line in output("nm", "--dynamic", "--undefined-only", library).splitlines() if line.strip()}


def wanted() -> set:
    released = [line.split()[:2] for line in FUNCTIONS.read_text().splitlines()] + [["kvc_get_api", "0.1"]]
    return {f"{name}@KVC_{since}" for name, since in released} | {f"KVC_{since} (node)" for _, since in released}


def problems(library) -> list:
    found = []
    symbols = exported(library)
    found += [f"exported, but not in functions.txt: {name}" for name in sorted(symbols - wanted())]
    found += [f"in functions.txt, but not exported: {name}" for name in sorted(wanted() - symbols)]
    found += [f"uses {name}" for name in sorted(undefined(library)) if re.fullmatch(FORBIDDEN, name)]
    dynamic = output("readelf", "--dynamic", "--wide", library)
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if name not in NEEDED and not re.fullmatch(NEEDED_PATTERN, name):
            found.append(f"needs {name}")
    if "[libkvcache.so.0]" not in "".join(re.findall(r"\(SONAME\).*", dynamic)):
        found.append("its SONAME is not libkvcache.so.0")
    if not re.search(r"\(FLAGS_1\).*NODELETE", dynamic):
        found.append("is not linked with -z nodelete")
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        found.append("has an RPATH")
    if "TEXTREL" in dynamic:
        found.append("has text relocations")
    if re.search(r"GNU_STACK.*RWE", output("readelf", "--program-headers", "--wide", library)):
        found.append("has an executable stack")
    with tempfile.TemporaryDirectory() as directory:
        stripped = Path(directory) / "stripped.so"
        shutil.copy(library, stripped)
        subprocess.run(["strip", stripped], check=True)
        size = stripped.stat().st_size
        print(f"stripped: {size} bytes")
        if size >= STRIPPED_LIMIT_BYTES:
            found.append(f"has {size} bytes stripped, limit {STRIPPED_LIMIT_BYTES}")
    return found


def broken_library_is_found(directory) -> bool:
    """A control: a library with every fault must fail every check."""
    source, library = Path(directory) / "broken.cc", Path(directory) / "broken.so"
    source.write_text("#include <iostream>\n#include <string>\nstatic std::string text(100, 'x');\n"
                      "void leak() { std::cout << text; }\n"
                      'extern "C" void cuInit();\nextern "C" void kvc_extra() { cuInit(); }\n')
    subprocess.run(["g++", "-shared", "-fPIC", "-Wl,-rpath,/nowhere", source, "-o", library], check=True)
    text = "\n".join(problems(library))
    expected = ["kvc_extra", "_Z4leak", "kvc_seq_add", "uses cuInit", "uses __cxa_atexit", "uses _ZSt4cout", "nodelete",
                "SONAME", "RPATH"]
    missed = [word for word in expected if word not in text]
    if missed:
        print(f"the control was not caught: {missed}")
    return not missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        control = broken_library_is_found(directory)
    found = problems(arguments.library)
    print("\n".join(found) if found else f"{len(exported(arguments.library))} dynamic symbols as they should be")
    return 0 if control and not found else 1


if __name__ == "__main__":
    sys.exit(main())
