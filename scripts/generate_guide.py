#!/usr/bin/env python3
"""Puts the programs of examples/guide, and what they print, into docs/guide/write-an-engine.md. The page says where:

    <!-- BEGIN 01_hello -->
    ...
    <!-- END 01_hello -->

    --check   writes nothing; exit code 1 if the page is out of date
"""
import re
import sys
from pathlib import Path

import generated

PAGE = "docs/guide/write-an-engine.md"
FOLDER = "examples/guide"
# The languages: their name, the name of their code blocks, their file of a program {p}, and what all their programs use.
LANGUAGES = [("Python", "python", "python/{p}.py", ["python/model.py"]),
             ("C", "c", "c/{p}.c", ["c/model.h", "c/model.c"]),
             ("Rust", "rust", "rust/src/bin/{p}.rs", ["rust/src/lib.rs"]),
             ("Go", "go", "go/{p}/main.go", ["go/model/model.go"]),
             ("Java", "java", "java/{java}.java", ["java/Model.java"])]
PROGRAMS = ["01_hello", "02_fork", "03_batch", "04_engine"]


def fold(title: str, blocks: list, is_open: bool) -> list:
    """Code that the reader can unfold. Each block is (language, text)."""
    lines = ["<details open>" if is_open else "<details>", f"<summary>{title}</summary>", ""]
    for language, text in blocks:
        lines += [f"```{language}", text.rstrip("\n"), "```", ""]
    return [*lines, "</details>", ""]


def program(root: Path, name: str) -> list:
    number, word = name.split("_")
    lines = ["It prints:", "", "```", (root / FOLDER / f"output/{name}.txt").read_text().rstrip("\n"), "```", ""]
    for language, code, pattern, _ in LANGUAGES:
        path = pattern.format(p=name, java=word.capitalize() + number)
        lines += fold(f"{language}: {path}", [(code, (root / FOLDER / path).read_text())], language == "Python")
    return lines


def models(root: Path) -> list:
    lines = []
    for language, code, _, paths in LANGUAGES:
        blocks = [(code, (root / FOLDER / path).read_text()) for path in paths]
        lines += fold(f"{language}: {', '.join(paths)}", blocks, False)
    return lines


def files(root: Path, _header: str) -> dict:
    page = (root / PAGE).read_text()
    for name in ["model", *PROGRAMS]:
        begin, end = f"<!-- BEGIN {name} -->\n", f"<!-- END {name} -->\n"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise SystemExit(f"{PAGE} needs one `{begin.strip()}` and one `{end.strip()}`")
        lines = models(root) if name == "model" else program(root, name)
        page = re.sub(re.escape(begin) + ".*" + re.escape(end), lambda _: begin + "\n" + "\n".join(lines) + "\n" + end, page,
                      flags=re.DOTALL)
    return {PAGE: page}


if __name__ == "__main__":
    sys.exit(generated.main("generate_guide.py", __doc__, files))
