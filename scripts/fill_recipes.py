#!/usr/bin/env python3
"""Copies the recipes of packaging/, and fills in what they say about a source archive and its packager.

    fill_recipes.py ARCHIVE FOLDER --releases URL [--homepage URL] [--maintainer "NAME <ADDRESS>"]

    @RELEASES@              the folder in which the archive is published
    @SHA256@ @SHA512@       hashes of the archive
    @HOMEPAGE@ @MAINTAINER@ of the package
"""
import argparse
import hashlib
import re
import shutil
import sys
from pathlib import Path

RECIPES = Path(__file__).resolve().parent.parent / "packaging"
PLACEHOLDER = re.compile(r"@[A-Z0-9]+@")


def fill(folder: Path, words: dict) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            mode = path.stat().st_mode
            text = PLACEHOLDER.sub(lambda match: words[match[0].strip("@")], path.read_text())
            path.write_text(text)
            path.chmod(mode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--releases", required=True)
    parser.add_argument("--homepage", default="https://kvcache.invalid")
    parser.add_argument("--maintainer", default="libkvcache packagers <packagers@kvcache.invalid>")
    arguments = parser.parse_args()
    archive = arguments.archive.read_bytes()
    shutil.copytree(RECIPES, arguments.folder, ignore=shutil.ignore_patterns("README.md", "__pycache__"))
    fill(arguments.folder, {
        "RELEASES": arguments.releases.rstrip("/"), "HOMEPAGE": arguments.homepage, "MAINTAINER": arguments.maintainer,
        "SHA256": hashlib.sha256(archive).hexdigest(), "SHA512": hashlib.sha512(archive).hexdigest()})
    print(f"recipes for {arguments.archive.name}: {', '.join(sorted(path.name for path in arguments.folder.iterdir()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
