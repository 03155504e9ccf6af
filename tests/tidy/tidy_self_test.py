#!/usr/bin/env python3
"""Every rule of tidy.py finds deliberate faults, and accepts what only looks like one."""
import sys
import tempfile
from pathlib import Path

import functions
import tidy

LONG = "\n".join("  x += 1;" for _ in range(tidy.FUNCTION_LINES))
GOOD = {
    "src/base/status.h": "#include <string>\n",
    "src/page/pool.h": '#include "base/status.h"\n#include "kvcache.h"\n// no std::thread here, nor getenv\n',
    "src/sequence/store.h": '#include "page/pool.h"\n',
    "src/api/a.cc": '#include "cache/cache.h"\n#include "base/status.h"\n#include "page/pool.h"\n',
    "src/cache/cache.h": '#include "sequence/store.h"\n#include <mutex>\n',
    "kernels/cpu/attend.cc": '#include "kernels/common/params.h"\n#include "kvcache_backend.h"\n',
    "kernels/common/params.h": "// SPDX-License" "-Identifier: Apache-2.0\n",
    "bindings/python/module.cc": '#include "kvcache.h"\n#include "part.h"\n#include <nanobind/nanobind.h>\n',
    "bindings/rust/Cargo.lock": 'source = "registry+https://github.com/rust-lang/crates.io-index"\n',
    "scripts/run.sh": "place=$(mktemp -d)  # not ${place}/tmp/x, ~/work or include/root/\n"
                      "# TODO(waits for CMake 4): shorter\n",
    "src/base/id.h": "void ok() {\n" + "\n".join("  x += 1;" for _ in range(tidy.FUNCTION_LINES - 2)) + "\n}\n",
}
# rule, file, its text, a part of the message
BROKEN = [
    ("include", "src/page/a.h", '#include "sequence/store.h"\n', "page must not know sequence"),
    ("include", "src/base/a.h", '#include "page/pool.h"\n', "base must not know page"),
    ("include", "src/cache/a.h", '#include "api/a.h"\n', "cache must not know api"),
    ("include", "src/step/a.h", '#include "cache/a.h"\n', "step must not know cache"),
    ("include", "src/layer/a.h", '#include "step/a.h"\n', "layer must not know step"),
    ("include", "src/stateless/a.h", '#include "layer/a.h"\n', "stateless must not know layer"),
    ("include", "src/plan/a.h", '#include "context/device.h"\n', "plan must not know context"),
    ("include", "src/context/a.cc", '#include "kernels/cpu/attend.h"\n', "never includes kernels"),
    ("include", "src/context/a.cc", '#include "../kernels/cpu/attend.h"\n', "never includes kernels"),
    ("include", "src/helpers/a.cc", '#include "base/status.h"\n', "not a folder"),
    ("include", "src/base/a.cc", '#include "nowhere.h"\n', "no such file"),
    ("include", "kernels/cpu/a.cc", '#include "base/status.h"\n', "kernels see only"),
    ("include", "kernels/cpu/a.cc", '#include "kvcache.h"\n', "kernels see only"),
    ("include", "bindings/python/a.cc", '#include "../../src/base/status.h"\n', "bindings see only"),
    ("include", "examples/c/a.c", "#include <src/base/status.h>\n", "examples see only"),
    ("pure", "src/page/a.h", "#include <thread>\n", "thread"),
    ("pure", "src/tables/a.h", "#include <sys/stat.h>\n", "sys/stat.h"),
    ("pure", "src/sequence/a.h", '#include "base/mutex.h"\n', "base/mutex.h"),
    ("pure", "src/plan/a.cc", 'auto x = getenv("X");\n', "getenv"),
    ("size", "src/base/a.cc", "\n" * (tidy.FILE_LINES + 1), "501 lines"),
    ("size", "src/base/a.cc", "namespace n {\nclass C {\n C() : a_{1}, b_(2) {\n" + LONG + "\n}\n};\n}\n", "C has 72"),
    ("size", "src/base/a.cc", "int f(int a)\n{\n" + LONG + "\n}\n", "f has 73"),
    ("size", "scripts/a.py", "def f(x):\n" + LONG.replace(";", "") + "\n", "f has 71"),
    ("size", "tests/tidy/allowed.txt", "src/base/id.h it was large once\n", "not large"),
    ("size", "tests/tidy/allowed.txt", "src/base/id.h\n", "no reason"),
    ("todo", "src/base/a.cc", "// TO" "DO: later\n", "without a reason"),
    ("licence", "src/base/a.cc", "// What this is. SPDX-License" "-Identifier: Apache-2.0\n", "more than"),
    ("path", "scripts/a.sh", "cd /wo" "rk/main\n", "/wo" "rk"),
    ("path", "docs/a.md", "see /ro" "ot/notes\n", "/ro" "ot"),
    ("path", "scripts/a.sh", "out=/t" "mp/x\n", "/t" "mp"),
    ("path", "scripts/a.sh", "pip install -i https://pypi" ".org/simple\n", "pypi"),
]


def write(root: Path, contents: dict) -> None:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def main() -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), GOOD)
        if found := tidy.problems(Path(directory)):
            print("FAILED: good files are refused", *found, sep="\n")
            failures += 1
    for rule, name, text, message in BROKEN:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory), {**GOOD, name: text})
            found = tidy.problems(Path(directory))
            if not any(f": {rule}: " in line and message in line and line.startswith(name) for line in found):
                print(f"FAILED: {rule} does not see {text[:60]!r} in {name}: {found}")
                failures += 1
    counted = functions.lengths('extern "C" {\nstatic const int a[] = {1, 2};\nint f(void) {\n  if (a) {\n  }\n}\n}\n'
                                "struct S {\n  int g() const noexcept { return '{'; }\n};\nTEST(A, B) {\n}\n")
    if counted != [("f", 3, 4), ("g", 9, 1), ("A.B", 11, 2)]:
        print(f"FAILED: functions: {counted}")
        failures += 1
    print(f"{len(BROKEN)} broken snippets, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
