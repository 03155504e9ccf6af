#!/usr/bin/env python3
"""Writes the headers of a later release, made by the rules of docs/reference/abi.md: every extensible struct has two more fields
at its end, and there is one more function. tests/abi builds the core from them too, so that the rules are tested before there
is a second release.

    newer_release.py OUT    OUT/include holds the headers, OUT/src/api the generated files and first_sizes.h
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import c_header  # noqa: E402

FROZEN = {"kvc_error", "kvc_api"}  # kvc_api grows by the new function
FIELDS = "  int64_t later_number;\n  const void *later_pointer;\n"
FUNCTION = """/* A function of the later release. Returns: number + 1. Since {since}. */
KVC_API uint32_t kvc_later(uint32_t number);

"""
MARKER = "/* BEGIN GENERATED"


def extensible(header: str) -> list:
    return [struct.name for struct in c_header.structs(header)
            if struct.fields[0] == "struct_size" and struct.name not in FROZEN]


def newer_header(header: str) -> str:
    """The header with longer structs, one more function at the end, and the next patch release's number."""
    for name in extensible(header):
        header, count = re.subn(rf"\n}} {name};", f"\n{FIELDS}}} {name};", header)
        if count != 1:
            raise c_header.HeaderError(f"cannot append to {name}")
    major, minor, patch = c_header.version(header)
    header = header.replace(f"#define KVC_VERSION_PATCH {patch}", f"#define KVC_VERSION_PATCH {patch + 1}")
    at = header.index(MARKER)
    at = header.rindex("\n\n", 0, at) + 2
    return header[:at] + FUNCTION.format(since=f"{major}.{minor + 1}") + header[at:]


def first_sizes(names: list) -> str:
    """The lines that a developer writes who appends fields: the size of each struct without them."""
    lines = [f"template <> inline constexpr uint32_t kvc::api::kFirstSize<{name}> = offsetof({name}, later_number);"
             for name in names]
    return (ROOT / "src/api/first_sizes.h").read_text() + "\n".join(["", *lines, ""])


def main() -> int:
    out = Path(sys.argv[1])
    for directory in ("include", "src/api"):
        (out / directory).mkdir(parents=True, exist_ok=True)
    header = c_header.read("kvcache.h")
    files = {"include/kvcache.h": newer_header(header),
             "include/kvcache_backend.h": c_header.read("kvcache_backend.h"),
             "include/kvcache_tier.h": c_header.read("kvcache_tier.h"),
             "include/kvcache_transport.h": c_header.read("kvcache_transport.h"),
             "src/api/first_sizes.h": first_sizes(extensible(header)),
             "src/api/functions.txt": (ROOT / "src/api/functions.txt").read_text(),
             "src/api/later.cc": '#include "kvcache.h"\n\n'
                                 'extern "C" uint32_t kvc_later(uint32_t number) { return number + 1; }\n'}
    for name, text in files.items():
        (out / name).write_text(text)
    subprocess.run([sys.executable, ROOT / "scripts/generate_api.py", "--root", out], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
