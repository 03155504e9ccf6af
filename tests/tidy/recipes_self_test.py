#!/usr/bin/env python3
"""The test of recipes finds deliberate faults in a copy of the recipes, and accepts the copy without them."""
import shutil
import sys
import tempfile
from pathlib import Path

import recipes
import tidy

# rule, file, its text before and after; with one text only, the whole file, and with none, the file is missing
BROKEN = [
    ("version", "packaging/conan/conanfile.py", 'version = "', 'version = "9'),
    ("version", "packaging/conan/conandata.yml", '  "0', '  "90'),
    ("version", "packaging/conda/recipe.yaml", 'version: "', 'version: "9'),
    ("version", "packaging/debian/changelog", "libkvcache (", "libkvcache (9"),
    ("version", "packaging/homebrew/libkvcache.rb", "libkvcache-", "libkvcache-9"),
    ("version", "packaging/vcpkg/vcpkg.json", '"version": "', '"version": "9'),
    ("version", "packaging/vcpkg/vcpkg.json",),
    ("version", "include/kvcache.h", "VERSION_PATCH ", "VERSION_PATCH 9"),
    ("archive", "packaging/homebrew/libkvcache.rb", "libkvcache-", "kvcache-"),
    ("archive", "packaging/vcpkg/portfile.cmake", "/libkvcache-${VERSION}", "/libkvcache-0.0.9"),
    ("symbols", "packaging/debian/libkvcache0.symbols", "(symver)KVC_", "(symver)KVC_9"),
    ("symbols", "packaging/debian/libkvcache0.symbols", "(<< 0.", "(<< 9."),
    ("symbols", "src/api/kvcache.map", "KVC_0.1 {", "KVC_0.1 {\n};\nKVC_0.2 {"),
    ("recipe", "packaging/README.md", "(vcpkg/README.md)", ""),
    ("recipe", "packaging/conda/README.md",),
    ("recipe", "packaging/spack/README.md", "Another recipe.\n"),
]


def copy(root: Path) -> None:
    shutil.copytree(tidy.ROOT / "packaging", root / "packaging")
    for name in ("include/kvcache.h", "src/api/kvcache.map"):
        (root / name).parent.mkdir(parents=True)
        shutil.copy(tidy.ROOT / name, root / name)


def change(path: Path, texts: list) -> None:
    if len(texts) == 2:
        assert texts[0] in path.read_text(), f"{path.name} has no {texts[0]!r}"
        path.write_text(path.read_text().replace(*texts))
    elif texts:
        path.parent.mkdir()
        path.write_text(texts[0])
    else:
        path.unlink()


def main() -> int:
    failures = 0
    for rule, name, *texts in [("", ""), *BROKEN]:
        with tempfile.TemporaryDirectory() as directory:
            copy(Path(directory))
            if name:
                change(Path(directory) / name, texts)
            found = recipes.problems(Path(directory))
            if not rule and found or rule and not any(f": {rule}: " in line for line in found):
                print(f"FAILED: {rule or 'no fault'} in {name or 'the recipes'} {texts}: {found}")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
