#!/usr/bin/env python3
"""Writes the Go module as a module proxy serves it: PROXY/<module>/@v/<version>.{info,mod,zip} and list.

    package_go.py PROXY VERSION     GOPROXY=file://PROXY then finds it
"""
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "bindings/go"
TIME = (1980, 1, 1, 0, 0, 0)


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


def main() -> int:
    proxy, version = Path(sys.argv[1]), sys.argv[2]
    module = (MODULE / "go.mod").read_text().split()[1]
    if module != module.lower():
        raise SystemExit("a proxy's paths write capital letters as !small ones: this script does not")
    place = proxy / module / "@v"
    place.mkdir(parents=True)
    (place / "list").write_text(version + "\n")
    (place / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "1980-01-01T00:00:00Z"}) + "\n")
    shutil.copyfile(MODULE / "go.mod", place / f"{version}.mod")
    with zipfile.ZipFile(place / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files():
            archive.writestr(zipfile.ZipInfo(f"{module}@{version}/{name}", TIME), path.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
