#!/usr/bin/env python3
"""The header against kvcache.h.baseline, the header of the last release without its comments: what was added, and what
would break a program of that release. It checks in two ways: it compares declarations by the rules of docs/reference/abi.md,
and it runs abidiff on the debug information of both headers. While the version is 0.x a break is only reported; from 1.0 on it
fails.

    --update          writes the baseline: at a release, and before 1.0 after a break
    --report FILE     writes the summary, then the output of abidiff
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))
import c_header  # noqa: E402
import newer_release  # noqa: E402

BASELINE = HERE / "kvcache.h.baseline"
SKIPPED = 77
FROZEN = {"kvc_error", "kvc_copy"}  # kvc_error by its size, kvc_copy by item_size
ABIDIFF_CHANGED, ABIDIFF_INCOMPATIBLE, ABIDIFF_FAILED = 4, 8, 3
MAY_CHANGE = re.compile(r"KVC_VERSION_\w+|KVC_ABI_VERSION")


def bare(header: str) -> str:
    """The header without comments. The release of each function is kept."""
    text = re.sub(r"/\*((?!\*/).)*?Since (\d+\.\d+)((?!\*/).)*?\*/(?=\nKVC_API)", r"@@\2@@", header, flags=re.S)
    text = re.sub(r"[ \t]+\n", "\n", c_header.without_comments(text))
    return re.sub(r"\n{2,}", "\n", re.sub(r"@@([\d.]+)@@", r"/* Since \1. */", text)).lstrip("\n")


def compare(old: str, new: str) -> tuple:
    """(additions, breaks) as sentences."""
    added, broken = [], []

    def each(kind, before, after, changed):
        for name, value in before.items():
            if name not in after:
                broken.append(f"{kind} {name} is gone")
            elif value != after[name]:
                changed(name, value, after[name])
        added.extend(f"{kind} {name}" for name in after if name not in before)

    def differs(name, before, after):
        broken.append(f"{name} was {before}, is {after}")

    def grew(name, before, after):
        if after[:len(before)] == before and name not in FROZEN and before[0][1] == "struct_size":
            added.append(f"fields of {name}: {', '.join(member[1] for member in after[len(before):])}")
        else:
            first = next((i for i, pair in enumerate(zip(before, after)) if pair[0] != pair[1]), len(before))
            broken.append(f"struct {name} is another from member {first} on")

    each("function", *({f.name: (f.result, f.parameters, f.since) for f in c_header.functions(text)} for text in (old, new)),
         differs)
    each("struct", *({s.name: s.members for s in c_header.structs(text)} for text in (old, new)), grew)
    each("constant", *({name: value for name, value in c_header.values(text).items() if not MAY_CHANGE.fullmatch(name)}
                       for text in (old, new)), differs)
    each("type", *({match[1]: " ".join(match[0].split())
                    for match in re.finditer(r"^typedef (?!struct \w+ \{)[^;]*?(\w+)(?:\)\([^;]*)?;", c_header.without_comments(text),
                                             flags=re.M)} for text in (old, new)), differs)
    return added, broken


def abidiff(old: str, new: str, compiler: str, dlpack: str) -> tuple:
    """abidiff's exit status and output for two libraries of empty functions with the types and symbols of the headers."""
    with tempfile.TemporaryDirectory() as directory:
        libraries = []
        for name, header in (("old", old), ("new", new)):
            place = Path(directory) / name
            place.mkdir()
            (place / "kvcache.h").write_text(header)
            bodies = [f"{f.result}{f.name}({', '.join(f.parameters)}) {{ {'' if f.result == 'void ' else 'return 0;'} }}"
                      for f in c_header.functions(header)]
            (place / "empty.c").write_text('#include "kvcache.h"\n' + "\n".join(bodies) + "\n")
            libraries.append(place / "libkvcache.so")
            subprocess.run([compiler, "-g", "-shared", "-fPIC", f"-I{place}", f"-I{dlpack}", place / "empty.c", "-o",
                            libraries[-1]], check=True)
        result = subprocess.run(["abidiff", "--no-show-locs", *libraries], capture_output=True, text=True)
    if result.returncode & ABIDIFF_FAILED:
        raise SystemExit(f"abidiff failed: {result.stdout}{result.stderr}")
    return result.returncode, result.stdout


def controls(header: str, witness) -> list:
    """Changes that the comparison must report or accept, and whether abidiff must report them too."""
    def changed(old, new):
        text = header.replace(old, new, 1)
        assert text != header, old
        return text

    wrong = []
    for what, text, breaks, seen in [
            ("nothing", bare(header), False, False),
            ("a later release by the rules", newer_release.newer_header(header), False, True),
            ("a field in the middle", changed("  int32_t num_threads;", "  int64_t wide;\n  int32_t num_threads;"), True, True),
            ("another type of the last field", changed("const DLTensor *w_uv;", "const float *w_uv;"), True, True),
            ("a larger kvc_error", changed("} kvc_error;", "  int64_t more;\n} kvc_error;"), True, True),
            ("a function that is gone", changed("KVC_API void kvc_context_destroy(kvc_context *context);", ""), True, True),
            ("another parameter", changed("kvc_context_destroy(kvc_context *context)",
                                          "kvc_context_destroy(kvc_context *context, int32_t now)"), True, True),
            ("a callback of another type", changed("(*kvc_log_fn)(void *user, int32_t level", "(*kvc_log_fn)(void *user, int64_t level"),
             True, True),
            ("another number for a constant", changed("KVC_ERROR_DTYPE = 5", "KVC_ERROR_DTYPE = 55"), True, False)]:
        added, broken = compare(header, text)
        if bool(broken) != breaks:
            wrong.append(f"control: {what}: added {added}, broken {broken}")
        if bool(witness(header, text)[0]) != seen:
            wrong.append(f"control: {what}: abidiff {'missed' if seen else 'saw'} it")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dlpack", required=True, help="directory that has dlpack/dlpack.h")
    parser.add_argument("--c", default="cc", help="C compiler")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    header = c_header.read("kvcache.h")
    if arguments.update:
        BASELINE.write_text(bare(header))
    if not shutil.which("abidiff"):
        print("skipped: no abidiff (Debian: abigail-tools)")
        return SKIPPED

    def witness(old, new):
        return abidiff(old, new, arguments.c, arguments.dlpack)

    wrong = controls(header, witness)
    baseline = BASELINE.read_text()
    added, broken = compare(baseline, header)
    status, words = witness(baseline, header)
    if status & ABIDIFF_INCOMPATIBLE and not broken:
        wrong.append("abidiff finds an incompatible change that the comparison does not")
    if bool(status) and not added and not broken:
        wrong.append("abidiff finds a change that the comparison does not")
    title = "ABI against the baseline {}.{}.{}: ".format(*c_header.version(baseline))
    summary = "\n".join([title + f"{len(added)} additions, {len(broken)} breaks", *[f"  added: {line}" for line in added],
                         *[f"  BREAKS: {line}" for line in broken]])
    print("\n".join([summary, words, *wrong]))
    if arguments.report:
        arguments.report.write_text(f"{summary}\n\n{words}")
    frozen = c_header.version(header)[0] >= 1
    return 1 if wrong or (frozen and broken) else 0


if __name__ == "__main__":
    sys.exit(main())
