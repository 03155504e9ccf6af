#!/usr/bin/env python3
"""Makes the folder of pages that MkDocs reads, and its configuration: pages.py PAGES_FOLDER GO_REFERENCE CONFIG

Pages keep their places in the repository, so links between them work unchanged. A link to another file leads to a page
that shows the file, and a link to a folder to its README or to a page that lists its files. The navigation is that of
docs/README.md, which must name every page of docs/.
"""
import json
import re
import shutil
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent
ROOT = SITE.parents[1]
sys.path.append(str(ROOT / "tests/tidy"))
import links  # noqa: E402
import tidy  # noqa: E402

FENCE = re.compile(r"^ *(```+)(?:[^`]*\n.*?^ *\1)[^\n]*$", re.S | re.M)
PICTURES = {".png", ".svg"}
LANGUAGES = {".c": "c", ".cc": "cpp", ".go": "go", ".h": "c", ".java": "java", ".py": "python", ".rs": "rust",
             ".sh": "sh", ".toml": "toml"}
API = {
    "python": "# Python reference\n\nMade from the sources of the package.\n\n::: kvcache\n\n::: kvcache.inspect\n\n"
              "::: kvcache.compat.flash_attn\n\n::: kvcache.compat.flash_attn_interface\n\n"
              "::: kvcache.compat.flashinfer\n\n::: kvcache.compat.vllm_ops\n",
    "rust": "# Rust reference\n\nThe pages of rustdoc:\n\n- [kvcache](api/kvcache/index.html), the safe crate\n"
            "- [kvcache-sys](api/kvcache_sys/index.html), the C API\n",
    "java": "# Java reference\n\nThe pages of javadoc: the package [dev.kvcache](api/dev/kvcache/package-summary.html),\n"
            "and an [index](api/index-all.html) of its classes and methods.\n",
}  # fmt: skip


class Pages:
    def __init__(self, folder: Path):
        self.folder = folder
        self.made = set()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.made.add(name)

    def markdown(self, name: str, text: str) -> None:
        """A page of the repository."""
        if name == "docs/reference/functions.md":
            text = re.sub(r"^\| `(kvc_\w+)` \|", r"| [`\1`](../../include/kvcache.h.md#\1) |", text, flags=re.M)
        text = tabs(text)
        self.write(name, outside_fences(text, lambda part: links.LINK.sub(lambda link: self.link(name, link), part)))

    def link(self, page: str, link: re.Match) -> str:
        target, _, heading = link[1].partition("#")
        if not target or ":" in target or target.endswith((".md", ".html")):
            return link[0]
        file = (ROOT / page).parent.joinpath(target).resolve()
        name = file.relative_to(ROOT).as_posix()
        if file.suffix in PICTURES:
            self.made.add(name)
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, self.folder / name)
            return link[0]
        to = target.rstrip("/") + self.show(file, name) + ("#" + heading if heading else "")
        return link[0].replace(f"({link[1]})", f"({to})")

    def show(self, file: Path, name: str) -> str:
        """Makes the page of a file or folder. Returns what a link to it ends with."""
        if file.is_file():
            if name + ".md" not in self.made:
                title = f"# {file.name}\n\n`{name}`\n\n"
                parts = header(file.read_text()) if name.startswith("include/") else code(file.suffix, file.read_text())
                self.write(name + ".md", title + parts)
            return ".md"
        if (file / "README.md").exists():
            return "/README.md"
        if name + "/index.md" not in self.made:
            self.made.add(name + "/index.md")
            inside = [path.relative_to(file).as_posix() for path in tidy.files(file)]
            for item in inside:
                self.show(file / item, f"{name}/{item}")
            self.write(name + "/index.md", f"# {name}\n\n" + "".join(f"- [{item}]({item}.md)\n" for item in inside))
        return "/index.md"


def outside_fences(text: str, change) -> str:
    """Changes the text between blocks of code."""
    out, at = "", 0
    for fence in FENCE.finditer(text):
        out += change(text[at : fence.start()]) + fence[0]
        at = fence.end()
    return out + change(text[at:])


def code(suffix: str, text: str) -> str:
    marks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{marks}{LANGUAGES.get(suffix, 'text')}\n{text.rstrip()}\n{marks}\n\n"


def tabs(text: str) -> str:
    """Neighbouring folded programs, one a language, become tabs."""
    one = re.compile(r"<details>\n<summary>(\w+): (.*?)</summary>\n(.*?)</details>\n\n?", re.S)

    def tab(match: re.Match) -> str:
        body = f"`{match[2]}`\n{match[3]}"
        lines = ("    " + line if line else "" for line in body.splitlines())
        return f'=== "{match[1]}"\n\n' + "\n".join(lines) + "\n\n"

    return one.sub(tab, text)


def header(text: str) -> str:
    """The page of a C header: a heading for each section and each function, and all of its text."""
    banner = re.compile(r"^(?:/\* =+\n \* (?P<long>\d+  .*)\n \* =+(?: \*/)?$|/\* -{4} (?P<short>.*?) -+ \*/$)", re.M)
    block = re.compile(r"^/\*(?:(?!\*/).)*\*/\n(?:KVC_API|static inline)[^;{]*?\b(?P<name>kvc_\w+)\(", re.S | re.M)
    starts = [(m.start(), "## " + " ".join((m["long"] or m["short"]).split())) for m in banner.finditer(text)]
    starts += [(m.start(), "### " + m["name"]) for m in block.finditer(text)]
    out, at = "", 0
    for start, title in [*sorted(starts), (len(text), "")]:
        if part := text[at:start].strip("\n"):
            out += code(".h", part)
        out += title + "\n\n"
        at = start
    return out


def title_of(name: str) -> str:
    return next(line[2:] for line in (ROOT / name).read_text().splitlines() if line.startswith("# "))


def section(index: str, heading: str) -> list:
    """The pages that a table of docs/README.md names, in its order."""
    part = re.search(rf"^## {heading}.*?(?=^## |\Z)", index, re.S | re.M)[0]
    rows = re.findall(r"^\| \[.*?\]\((.*?)\)", part, re.M)
    return [(ROOT / "docs" / row).resolve().relative_to(ROOT).as_posix() for row in rows]


def navigation() -> list:
    index = (ROOT / "docs/README.md").read_text()
    shelves = {name: section(index, name) for name in ("Guide", "Reference", "Internals")}
    missing = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"docs/README.md"}
    missing -= set(sum(shelves.values(), []))
    if missing:
        sys.exit(f"docs/README.md does not list {', '.join(sorted(missing))}")
    entries = {name: [{title_of(page): page} for page in pages if page.endswith(".md")]
               for name, pages in shelves.items()}
    headers = [{path.name: f"include/{path.name}.md"} for path in sorted((ROOT / "include").glob("*.h"))]
    languages = [{"C": [*headers, {"All functions": "docs/reference/functions.md"}]}]
    for name in ("python", "rust", "go", "java"):
        languages.append({name.title(): [{"The package": f"bindings/{name}/README.md"},
                                         {"Reference": f"bindings/{name}/reference.md"}]})
    languages.append({"Examples": ["examples/guide/README.md", "examples/gemma/README.md"]})
    return [
        {"Start": "README.md"},
        {"Guide": entries["Guide"] + [{"Integrations": ["integrations/vllm/README.md", "integrations/candle/README.md"]}]},
        {"Languages": languages},
        {"Reference": [{"All pages": "docs/README.md"}, *entries["Reference"]]},
        {"Internals": entries["Internals"]},
        {"Measured": ["benchmarks/results/README.md",
                      *(path.relative_to(ROOT).as_posix()
                        for path in sorted((ROOT / "benchmarks/results").glob("[a-z]*.md")))]},
        {"Project": ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bindings/conformance/README.md"]},
    ]  # fmt: skip


def main() -> None:
    folder, go, config = (Path(name).resolve() for name in sys.argv[1:])
    pages = Pages(folder)
    for path in tidy.files(ROOT):
        if path.suffix == ".md":
            pages.markdown(path.relative_to(ROOT).as_posix(), path.read_text())
    for path in sorted((ROOT / "include").glob("*.h")):
        pages.show(path, f"include/{path.name}")
    for name, text in API.items():
        pages.write(f"bindings/{name}/reference.md", text)
    pages.write("bindings/go/reference.md", go.read_text())
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(SITE / name, folder)
    nav = {"INHERIT": str(SITE / "mkdocs.yml"), "docs_dir": str(folder), "nav": navigation()}
    config.write_text(json.dumps(nav, indent=1))  # JSON is YAML


if __name__ == "__main__":
    main()
