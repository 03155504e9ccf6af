#!/usr/bin/env python3
"""Sizes, offsets and constants of the C ABI against layout.golden, and the rules for structs.

    --update   writes layout.golden
"""
import argparse
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))
import c_header  # noqa: E402

GOLDEN = HERE / "layout.golden"
HEADERS = ["kvcache.h", "kvcache_backend.h"]


def program() -> str:
    """A C program that prints every struct with its fields, and every constant. It is made from the header."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "kvcache_backend.h"', "int main(void) {"]
    for name in HEADERS:
        text = c_header.read(name)
        for struct in c_header.structs(text):
            lines.append(f'  printf("struct {struct.name} %zu align %zu\\n", sizeof({struct.name}), '
                         f"_Alignof({struct.name}));")
            for field in struct.fields:
                lines.append(f'  printf("  {field} %zu +%zu\\n", offsetof({struct.name}, {field}), '
                             f"sizeof((({struct.name} *)0)->{field}));")
        for constant in c_header.constants(text):
            lines.append(f'  printf("constant {constant} %lld\\n", (long long)({constant}));')
    return "\n".join([*lines, "  return 0;", "}", ""])


def measure(compiler: str, includes: list, runner: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        source, binary = Path(directory) / "layout.c", Path(directory) / "layout.exe"
        source.write_text(program())
        subprocess.run([compiler, "-std=c11", *[f"-I{path}" for path in includes], source, "-o", binary], check=True)
        command = [*runner.split(), binary]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def broken_rules(layout: str) -> list:
    """Finds padding, and structs that start with struct_size and whose size is not a multiple of 8."""
    problems, name, size, end, extensible = [], "", 0, 0, False

    def close():
        if name and end != size:
            problems.append(f"{name}: {size - end} bytes of padding at its end")
        if extensible and size % 8:
            problems.append(f"{name}: sizeof {size} is no multiple of 8")

    for line in [*layout.splitlines(), "struct  0 align 0"]:
        words = line.split()
        if line.startswith("struct "):
            close()
            if words[1].isidentifier():
                name, size, end, extensible = words[1], int(words[2]), 0, False
        elif line.startswith("  "):
            offset, width = int(words[1]), int(words[2])
            extensible |= words[0] == "struct_size" and offset == 0
            if offset != end:
                problems.append(f"{name}.{words[0]}: {offset - end} bytes of padding before it")
            end = offset + width
    if "struct kvc_error 512 " not in layout:
        problems.append("kvc_error: sizeof must stay 512")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--include", default=c_header.INCLUDE)
    parser.add_argument("--dlpack", required=True, help="directory that has dlpack/dlpack.h")
    parser.add_argument("--c", default="cc", help="C compiler")
    parser.add_argument("--run", default="", help="program that runs what the compiler made, such as wine")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    layout = measure(arguments.c, [arguments.include, arguments.dlpack], arguments.run)

    padded = "struct kvc_x 12 align 8\n  struct_size 0 +4\n  wide 8 +2\nstruct kvc_error 512 align 8\n  all 0 +512\n"
    if len(broken_rules(padded)) != 3:
        print("the rules do not find what is broken on purpose", broken_rules(padded))
        return 1
    problems = broken_rules(layout)
    print("\n".join(problems))
    if arguments.update:
        GOLDEN.write_text(layout)
    golden = GOLDEN.read_text() if GOLDEN.exists() else ""
    difference = list(difflib.unified_diff(golden.splitlines(), layout.splitlines(), "layout.golden", "kvcache.h",
                                           lineterm=""))
    if difference:
        print("\n".join(difference))
        print("The layout changed. While the version is 0.x it may: docs/reference/abi.md says how. Write the new one with:\n"
              "  python3 tests/abi/layout_test.py --dlpack "
              f"{arguments.dlpack} --update")
    return 1 if problems or difference else 0


if __name__ == "__main__":
    sys.exit(main())
