"""What the scripts that generate files from include/kvcache.h have in common: their options, and the comparison with the
files that are there."""
import argparse
import re
import sys
from pathlib import Path

import c_header


def main(script: str, doc: str, files) -> int:
    """files(root, header): what each path, below the root, is to hold. Returns the exit code."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=c_header.ROOT)
    arguments = parser.parse_args()
    root = arguments.root
    try:
        wanted = files(root, (root / "include/kvcache.h").read_text())
    except c_header.HeaderError as error:
        print(f"{script}: {error}", file=sys.stderr)
        return 1
    changed = [name for name, text in wanted.items() if not (root / name).exists() or (root / name).read_text() != text]
    for name in changed:
        if arguments.check:
            print(f"{name} is out of date: run scripts/{script}", file=sys.stderr)
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(wanted[name])
            print(f"wrote {name}")
    return 1 if arguments.check and changed else 0


def table_functions(header: str) -> dict:
    """The functions of kvc_api by their members' names, in its order."""
    members = re.findall(r"\(\*(\w+)\)\(", header.split("typedef struct kvc_api {")[1].split("} kvc_api;")[0])
    prototypes = {function.name.removeprefix("kvc_"): function for function in c_header.functions(header)}
    return {name: prototypes[name] for name in members}
