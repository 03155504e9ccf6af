#!/usr/bin/env python3
"""Every link leads somewhere. Prints `file:line: what` for each that does not, and exits with 1.

    link     a relative link in a Markdown page names a file or folder that exists, and its #heading is in that page
    page     a path below docs/ or benchmarks/results/ that any file names exists
    source   a path in backticks in a Markdown page, such as `src/plan/work_plan.h`, exists (* matches as in a shell)
"""
import re
import sys
from pathlib import Path

import tidy

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PAGE = re.compile(r"(?<![\w./-])((?:docs|benchmarks/results)/[\w./-]*\w\.(?:md|svg))")
SOURCE = re.compile(r"`((?:src|kernels|include|tests|bindings|examples|benchmarks|scripts|cmake|docs)/[\w./*-]+)`")
# These contain paths of pages that do not exist, on purpose.
EXEMPT = {"tests/tidy/tidy_self_test.py", "tests/tidy/prose_self_test.py"}


def headings(path: Path) -> set:
    """The anchors of a page, as common renderers make them."""
    found = set()
    for line in re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL).splitlines():
        if match := re.match(r"#+ (.*)", line):
            found.add(re.sub(r"[^\w\- ]", "", match[1].lower()).strip().replace(" ", "-"))
    return found


def broken_link(root: Path, page: Path, target: str) -> str:
    if re.match(r"[a-z]+:", target):
        return ""  # another site
    path, _, heading = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists() or not file.is_relative_to(root.resolve()):
        return f"link: {target}: no such file"
    if heading and file.suffix == ".md" and heading not in headings(file):
        return f"link: {target}: no such heading"
    return ""


def broken_source(root: Path, page: Path, name: str) -> str:
    """Names are relative to the repository or, in the page of a package, to the page's folder."""
    return "" if any(any(folder.glob(name)) for folder in (root, page.parent)) else f"source: {name}: no such file"


def problems(root: Path) -> list:
    found = []
    for path in tidy.files(root):
        name = path.relative_to(root).as_posix()
        if name in EXEMPT:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            wrong = [f"page: {page}: no such file" for page in PAGE.findall(line) if not (root / page).exists()]
            if path.suffix == ".md":
                wrong += [broken_link(root, path, target) for target in LINK.findall(line)]
                wrong += [broken_source(root, path, source) for source in SOURCE.findall(line)]
            found += [f"{name}:{number}: {words}" for words in wrong if words]
    return found


def main() -> int:
    found = problems(tidy.ROOT)
    print("\n".join(found) if found else "every link leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
