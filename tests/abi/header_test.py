#!/usr/bin/env python3
"""Each header compiles alone in every standard without a warning; an old DLPack is refused in one line."""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
STANDARDS = {"c": ["c99", "c11", "c17"], "c++": ["c++11", "c++14", "c++17", "c++20"]}
HEADERS = ["kvcache.h", "kvcache_backend.h", "kvcache_tensor.h", "kvcache_tier.h", "kvcache_redis.h", "kvcache_transport.h",
           "kvcache_nixl.h", "kvcache_ucx.h"]
OLD_DLPACK = """#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#include <stdint.h>
#define DLPACK_VERSION 60
typedef struct { void *data; } DLTensor;
#endif
"""
# Every init function is called, so that the inline functions are compiled and not only read.
USE = """
int use(void);
int use(void) {{
  kvc_error error = KVC_ERROR_INIT;
{calls}  return error.code + (int)error.struct_size;
}}
"""


def compile_text(compiler, language, standard, includes, text, directory):
    source = Path(directory) / "source.txt"
    source.write_text(text)
    return subprocess.run([compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror",
                           *[f"-I{path}" for path in includes], "-fsyntax-only", source],
                          capture_output=True, text=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--include", "--dlpack", "--c", "--cxx"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    compilers = {"c": newest(arguments.c), "c++": newest(arguments.cxx)}
    if not all(compilers.values()):
        print(f"skipped: no {arguments.c} or no {arguments.cxx}")
        return SKIPPED

    header = (Path(arguments.include) / "kvcache.h").read_text()
    inits = re.findall(r"static inline void (kvc_\w+_init)\((kvc_\w+) \*", header)
    calls = "".join(f"  {{ {kind} value; {init}(&value); error.code += (int)value.struct_size; }}\n"
                    for init, kind in inits)
    failures = 0
    with tempfile.TemporaryDirectory() as directory:
        for language, standards in STANDARDS.items():
            for standard in standards:
                for name in HEADERS:
                    result = compile_text(compilers[language], language, standard,
                                          [arguments.include, arguments.dlpack],
                                          f'#include "{name}"\n' + USE.format(calls=calls), directory)
                    what = f"{compilers[language]} {standard} {name}"
                    failures += report(result.returncode == 0, what, result.stderr)
        old = Path(directory) / "old/dlpack"
        old.mkdir(parents=True)
        (old / "dlpack.h").write_text(OLD_DLPACK)
        for language, standards in STANDARDS.items():
            for text in ('#include "kvcache.h"\n', '#include <dlpack/dlpack.h>\n#include "kvcache.h"\n'):
                result = compile_text(compilers[language], language, standards[0], [old.parent, arguments.include],
                                      text, directory)
                errors = [line for line in result.stderr.splitlines() if "error:" in line]
                failures += report(result.returncode != 0 and bool(errors) and "DLPack >= 1.1" in errors[0],
                                   f"{compilers[language]} {standards[0]}: an older DLPack is refused in one line",
                                   result.stderr)
    return 1 if failures else 0


def newest(compiler: str):
    """The compiler's path. On Debian its name may end with its version."""
    for suffix in ("", "-19", "-18", "-17", "-16", "-15", "-14"):
        if path := shutil.which(compiler + suffix):
            return path
    return None


def report(good: bool, what: str, output: str) -> int:
    print(f"{'ok' if good else 'FAILED'}: {what}" + ("" if good else f"\n{output}"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
