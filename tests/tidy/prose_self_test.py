#!/usr/bin/env python3
"""The tests of links and words find deliberate faults, and accept what only looks like one."""
import sys
import tempfile
from pathlib import Path

import links
import words

PAGES = {
    "README.md": "[guide](docs/guide/a.md), [its end](docs/guide/a.md#the-end), [site](https://example.org/x), `src/a.h`, `src/*.h`\n",
    "docs/guide/a.md": "# A page\n\n## The end\n[up](../../README.md), [here](#the-end), `src/a.h`, `build/x.md`\n",
    "src/a.h": "// docs/guide/a.md has the whole table.\n",
    "bindings/go/README.md": "`scripts/run.sh` lies beside this page.\n",
    "bindings/go/scripts/run.sh": "",
}
# file, its text, a part of the message
BROKEN_LINKS = [
    ("README.md", "[guide](docs/a.md)\n", "docs/a.md: no such file"),
    ("docs/guide/b.md", "[guide](../a.md)\n", "../a.md: no such file"),
    ("docs/guide/b.md", "![picture](a.svg)\n", "a.svg: no such file"),
    ("docs/guide/b.md", "[guide](a.md#the-start)\n", "no such heading"),
    ("docs/guide/b.md", "[outside](../../../other/a.md)\n", "no such file"),
    ("src/b.h", "// docs/a.md has the table.\n", "page: docs/a.md"),
    ("scripts/b.sh", "draw docs/plot.svg\n", "page: docs/plot.svg"),
    ("docs/guide/b.md", "`src/b.h`\n", "source: src/b.h"),
    ("docs/guide/b.md", "`src/b*.h`\n", "source: src/b*.h"),
]

PROSE = {
    "docs/a.md": "Threads take it in turn. `turn(x)`, floor(x) and returns are fine.\n```c\n// nobody looks here\n```\n",
    "src/a.cc": 'int turn(int widened);  // rotates, in turn\nconst char *text = "nobody", *other = "a//b";\n',
    "scripts/a.py": '"""Who calls this must wait."""\nturn = "nobody"  # a name is no prose\n',
    "scripts/a.sh": "turn=1 # what is left has no words\n",
}
BROKEN_WORDS = [
    ("docs/b.md", "The key turns by its angle.\n", "docs/b.md:1: turns"),
    ("docs/b.md", "Line one.\nIt comes behind the step.\n", "docs/b.md:2: behind"),
    ("docs/b.md", "The floor is the read rate.\n", "lower bound"),
    ("docs/b.md", "A device that\nis late is slow.\n", "that is late"),
    ("src/b.h", "// Whoever\n// comes next.\n", "src/b.h:1: Whoever"),
    ("src/b.cc", "int a; /* the copy\n          engine */\n", "copy engine"),
    ("src/b.cc", "/// The kernel knows the page.\n", "kernel knows"),
    ("src/b.cc", 'fail("row %d turns", row);\n', "src/b.cc:1: turns"),
    ("src/b.cc", 'def("f", R"(Calls f.\nIts twin "g" waits.)");\n', "src/b.cc:2: twin"),
    ("scripts/b.py", 'print(f"{n} rows\\tbehind the batch")\n', "scripts/b.py:1: behind"),
    ("bindings/rust/b.rs", "//! what a step\n//! has not stored\n", "what a step has not"),
    ("scripts/b.py", 'def f():\n    """Widens it."""\n', "scripts/b.py:2: Widens"),
    ("scripts/b.py", "x = 1  # its twin\n", "scripts/b.py:1: twin"),
    ("scripts/b.sh", "run # nobody waits\n", "scripts/b.sh:1: nobody"),
    ("cmake/CMakeLists.txt", "# rows with V in K\n", "latent row"),
]


def write(root: Path, contents: dict) -> None:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def failures(check, good: dict, broken: list) -> list:
    """The mistakes of `check`, which is a function from a folder to a list of problems."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), good)
        found += [f"refused without cause: {problem}" for problem in check(Path(directory))]
    for name, text, message in broken:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory), {**good, name: text})
            problems = check(Path(directory))
            if not any(message in problem and name in problem for problem in problems):
                found.append(f"not seen: {text!r} in {name}: {problems}")
    return found


def main() -> int:
    found = failures(links.problems, PAGES, BROKEN_LINKS)
    found += failures(words.problems, PROSE, BROKEN_WORDS)
    print(*found, f"{len(BROKEN_LINKS) + len(BROKEN_WORDS)} broken snippets, {len(found)} failures", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
