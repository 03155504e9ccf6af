#!/usr/bin/env python3
"""Every recipe of packaging/ is for the version in include/kvcache.h. Prints `file: what` for each that is not, and exits with 1.

    version     each place in VERSIONS names the version of the header
    symbols     Debian's symbols file has a line for each node of src/api/kvcache.map, and allows programs no later minor version
    archive     each recipe but Debian's, which has a name of its own for it, names the archive libkvcache-VERSION.tar.gz
    recipe      each folder of packaging/ is checked here, has a README.md, and is in the table of packaging/README.md
"""
import re
import sys
from pathlib import Path

import tidy

# File, a pattern of every place with a version, and how many there are.
VERSIONS = {
    "conan": [("conandata.yml", r'^  "(.*)":$', 1), ("conanfile.py", r'^    version = "(.*)"$', 1)],
    "conda": [("recipe.yaml", r'^  version: "(.*)"$', 1)],
    "debian": [("changelog", r"^libkvcache \((.*)-[0-9]+\) ", 1)],
    "homebrew": [("libkvcache.rb", r'^  url ".*/libkvcache-(.*)\.tar\.gz"$', 1)],
    "vcpkg": [("vcpkg.json", r'^  "version": "(.*)",$', 1)],
}
ARCHIVES = {"conan": "conandata.yml", "conda": "recipe.yaml", "homebrew": "libkvcache.rb", "vcpkg": "portfile.cmake"}


def header_version(root: Path) -> str:
    text = (root / "include/kvcache.h").read_text()
    return ".".join(re.search(rf"^#define KVC_VERSION_{part} (\d+)$", text, re.M)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def versions(root: Path, version: str) -> list:
    found = []
    for recipe, places in VERSIONS.items():
        for name, pattern, count in places:
            path = root / "packaging" / recipe / name
            named = re.findall(pattern, path.read_text(), re.M) if path.exists() else []
            if named[:count] != [version] * count:
                found.append(f"packaging/{recipe}/{name}: version: {', '.join(named) or 'none'}, not {version}")
    return found


def symbols(root: Path, version: str) -> list:
    major, minor, _ = version.split(".")
    lines = (root / "packaging/debian/libkvcache0.symbols").read_text().splitlines()
    nodes = re.findall(r"^(KVC_[\d.]+) \{", (root / "src/api/kvcache.map").read_text(), re.M)
    named = dict(match.groups() for line in lines if (match := re.fullmatch(r" \(symver\)(\S+) (\S+)", line)))
    wanted = {node: f"{node.removeprefix('KVC_')}.0" for node in nodes}
    found = [] if named == wanted else [f"packaging/debian/libkvcache0.symbols: symbols: {named}, not {wanted}"]
    head = f"libkvcache.so.{major} libkvcache{major} #MINVER#"
    if major == "0":
        head += f", libkvcache0 (<< 0.{int(minor) + 1}~)"
    if lines[0] != head:
        found.append(f"packaging/debian/libkvcache0.symbols: symbols: begins with {lines[0]}, not {head}")
    return found


def archives(root: Path, version: str) -> list:
    found = []
    for recipe, name in ARCHIVES.items():
        text = (root / "packaging" / recipe / name).read_text()
        if not re.search(rf"@RELEASES@/libkvcache-({re.escape(version)}|\$\{{VERSION\}}|\$\{{\{{ version \}}\}})\.tar\.gz", text):
            found.append(f"packaging/{recipe}/{name}: archive: it does not name libkvcache-{version}.tar.gz")
    return found


def recipes(root: Path) -> list:
    packaging = root / "packaging"
    table = (packaging / "README.md").read_text()
    found = []
    for folder in sorted(path for path in packaging.iterdir() if path.is_dir() and path.name != "__pycache__"):
        if folder.name not in VERSIONS:
            found.append(f"packaging/{folder.name}: recipe: tests/tidy/recipes.py does not check its version")
        if not (folder / "README.md").exists() or f"({folder.name}/README.md)" not in table:
            found.append(f"packaging/{folder.name}: recipe: no README.md, or none that packaging/README.md links")
    return found


def problems(root: Path) -> list:
    version = header_version(root)
    return versions(root, version) + symbols(root, version) + archives(root, version) + recipes(root)


def main() -> int:
    found = problems(tidy.ROOT)
    print("\n".join(found) if found else f"all recipes are for {header_version(tidy.ROOT)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
