#!/usr/bin/env python3
"""Writes the Go module as a module proxy serves it: PROXY/<module>/@v/<version>.{info,mod,zip} and list.

    package_go.py PROXY VERSION [--licence NAME=FILE ...] [GOOS_GOARCH=LIBRARY ...]     GOPROXY=file://PROXY then finds it

Each library becomes part of the module, so that `go get` brings it: compressed, with a file in Go that embeds it.
"""
import argparse
import gzip
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "bindings/go"
TIME = (1980, 1, 1, 0, 0, 0)


EMBED = """//go:build !kvcache_external

package kvcache

import _ "embed"

//go:embed {file}
var embedded_{platform} []byte

func init() {{ embedded = embedded_{platform} }}
"""


def files() -> list:
    """(name in the module, path): what git tracks or would, without folders that are modules of their own."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=MODULE,
                            capture_output=True, text=True)
    names = listed.stdout.split("\n")[:-1] if listed.returncode == 0 else [
        str(path.relative_to(MODULE)) for path in MODULE.rglob("*") if path.is_file()]
    nested = {str(path.parent.relative_to(MODULE)) for path in MODULE.rglob("go.mod")} - {"."}
    found = [(name, MODULE / name) for name in sorted(names)
             if (MODULE / name).is_file() and not any(name.startswith(f"{folder}/") for folder in nested)]
    if "LICENSE" not in dict(found):
        found.append(("LICENSE", ROOT / "LICENSE"))  # a module in a subfolder takes the repository's
    return found


def embedded(platform: str, library: Path) -> list:
    """(name in the module, content) for a library. Go compiles the file for its platform alone, because of its name."""
    file = f"libkvcache_{platform}.so.gz"
    return [(file, gzip.compress(library.read_bytes(), mtime=0)),
            (f"embedded_{platform}.go", EMBED.format(file=file, platform=platform).encode())]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("proxy", type=Path)
    parser.add_argument("version")
    parser.add_argument("libraries", nargs="*")
    parser.add_argument("--licence", action="append", default=[])
    given = parser.parse_intermixed_args()
    proxy, version = given.proxy, given.version
    module = (MODULE / "go.mod").read_text().split()[1]
    if module != module.lower():
        raise SystemExit("a proxy's paths write capital letters as !small ones: this script does not")
    place = proxy / module / "@v"
    place.mkdir(parents=True)
    (place / "list").write_text(version + "\n")
    (place / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "1980-01-01T00:00:00Z"}) + "\n")
    shutil.copyfile(MODULE / "go.mod", place / f"{version}.mod")
    with zipfile.ZipFile(place / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        contents = [(name, path.read_bytes()) for name, path in files()]
        for argument in given.libraries:
            platform, library = argument.split("=")
            contents += embedded(platform, Path(library))
        for argument in given.licence:
            name, path = argument.split("=")
            contents.append((name, Path(path).read_bytes()))
        for name, content in contents:
            archive.writestr(zipfile.ZipInfo(f"{module}@{version}/{name}", TIME), content, zipfile.ZIP_DEFLATED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
