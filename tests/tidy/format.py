#!/usr/bin/env python3
"""clang-format changes no C or C++ file. (include/ is formatted by hand, because its comments are tables.)"""
import shutil
import subprocess
import sys

import tidy

FOLDERS = ("src", "kernels", "tests", "benchmarks", "bindings", "examples")


def main() -> int:
    program = shutil.which("clang-format-19")
    if not program:
        print("skipped: no clang-format-19 (other versions format otherwise)")
        return 77
    bad = subprocess.run([program, "--dry-run", "-Werror"], input="int  x ;\n", capture_output=True, text=True)
    if bad.returncode == 0:
        print("FAILED: the control is not seen")
        return 1
    names = [str(path) for path in tidy.files(tidy.ROOT) if path.suffix in tidy.CODE - {".inc"}
             and path.relative_to(tidy.ROOT).parts[0] in FOLDERS]
    result = subprocess.run([program, "--dry-run", "-Werror", "--ferror-limit=2", *names],
                            capture_output=True, text=True)
    print(result.stderr or f"{len(names)} files")
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
