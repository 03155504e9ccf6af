#!/usr/bin/env python3
"""The tests of links and words find what is broken on purpose, and leave alone what looks alike."""
import sys
import tempfile
from pathlib import Path

import links

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


def write(root: Path, contents: dict) -> None:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def failures(check, good: dict, broken: list) -> list:
    """What `check`, a function from a folder to a list of problems, gets wrong."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), good)
        found += [f"refused without cause: {problem}" for problem in check(Path(directory))]
    for name, text, message in broken:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory), {**good, name: text})
            problems = check(Path(directory))
            if not any(message in problem and problem.startswith(name) for problem in problems):
                found.append(f"not seen: {text!r} in {name}: {problems}")
    return found


def main() -> int:
    found = failures(links.problems, PAGES, BROKEN_LINKS)
    print(*found, f"{len(BROKEN_LINKS)} broken snippets, {len(found)} failures", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
