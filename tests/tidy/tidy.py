#!/usr/bin/env python3
"""The rules of the house that a program can check. Prints `file:line: rule: what` and exits with 1 if one is broken.

    include     src: api -> {cache -> {step, save} -> layer, stateless} -> {plan, events -> prefix -> keys, tables, tier -> object, context, rope,
                tensor} -> sequence -> page -> base; of kernels only kernels/common;
                kernels: only kernels/ and kvcache_backend.h; tiers: of src only base and tier; bindings and examples: only include/ and their own files
    pure        events, keys, object, page, sequence, plan, prefix, tables and rope have no threads, clocks, environment, randomness or I/O
    size        a file over 500 lines or a function over 70 is in allowed.txt with its reason; no entry there is unused
    todo        a note about work to do says why it waits, in brackets after the word
    path        no path of one machine and no registry's host name, in any file
    licence     a licence line has nothing beside it (formatters reflow comments)
"""
import ast
import re
import sys
from pathlib import Path

import functions

ROOT = Path(__file__).resolve().parent.parent.parent
SKIPPED_FOLDERS = r"\.(?!ci$).*|build.*|target|dist|__pycache__|.*\.egg-info"
CODE = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inc"}
FILE_LINES, FUNCTION_LINES = 500, 70

MIDDLE = {"base", "page", "sequence"}
MAY_INCLUDE = {
    "base": set(), "system": {"base"}, "keys": {"base"}, "object": {"base", "keys"}, "page": {"base"}, "rope": {"base"}, "sequence": {"base", "page"},
    "plan": MIDDLE, "prefix": MIDDLE | {"keys"}, "events": MIDDLE | {"keys", "prefix"}, "tensor": MIDDLE,
    "tier": {"base", "context", "keys", "object", "system"}, "tables": MIDDLE | {"tensor"}, "context": MIDDLE | {"system", "tensor"},
}
MAY_INCLUDE["stateless"] = set(MAY_INCLUDE)
MAY_INCLUDE["layer"] = set(MAY_INCLUDE) - {"tables", "stateless"}
MAY_INCLUDE["transfer"] = {"base", "context", "keys", "layer", "object", "sequence", "system"}
MAY_INCLUDE["save"] = set(MAY_INCLUDE) - {"tables", "stateless", "transfer"}
MAY_INCLUDE["step"] = set(MAY_INCLUDE) - {"stateless", "save", "transfer"}
MAY_INCLUDE["cache"] = set(MAY_INCLUDE) - {"stateless"}
MAY_INCLUDE["api"] = set(MAY_INCLUDE)
PUBLIC = {"kvcache.h", "kvcache_backend.h", "kvcache_tensor.h", "kvcache_tier.h", "kvcache_redis.h",
          "kvcache_transport.h", "kvcache_nixl.h", "kvcache_ucx.h"}

PURE = {"events", "keys", "object", "page", "sequence", "plan", "prefix", "rope", "tables"}
IMPURE_HEADERS = r"thread|mutex|shared_mutex|condition_variable|future|stop_token|semaphore|latch|barrier|chrono" \
                 r"|c?time(\.h)?|random|fstream|iostream|ostream|istream|filesystem|c?stdio(\.h)?|pthread\.h|unistd\.h|fcntl\.h" \
                 r"|sys/.*"
IMPURE_WORDS = r"\b(getenv|setenv|std::(thread|mutex|chrono|random_device|this_thread)|clock_gettime|gettimeofday" \
               r"|rand|srand|fopen|printf|fprintf|thread_local)\b"
TODO = r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b"
MACHINE_PATH = r"(?<![\w/$}~.*-])/(work|home|root|tmp|Users|mnt|scratch)\b(?!-)"
REGISTRY = r"\b(pypi\.org|pythonhosted\.org|deb\.debian\.org|npmjs\.(com|org)|crates\.io|proxy\.golang\.org" \
           r"|maven\.org)\b"

LICENCE = re.compile(r"SPDX-License-" r"Identifier:")  # in two parts: this line is none
LICENCE_LINE = re.compile(r"\W*" + LICENCE.pattern + r" Apache-2\.0\W*")


def files(root: Path) -> list:
    found = []
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink() and not re.fullmatch(SKIPPED_FOLDERS, path.name):
            found += files(path)
        elif path.is_file() and not path.name.startswith(".git"):
            found.append(path)
    return found


def problems(root: Path) -> list:
    found, large = [], {}
    for path in files(root):
        name = path.relative_to(root).as_posix()
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # a binary file: data of a test
        lines = text.splitlines()
        if not name.startswith("tests/tidy/") and path.name != "Cargo.lock":  # each broken thing on purpose; cargo's words
            found += places(name, lines)
        if path.suffix in CODE:
            found += includes(root, name, lines)
            found += purity(name, functions.without_comments(text).splitlines())
        if path.suffix in CODE | {".py", ".sh"}:
            if len(lines) > FILE_LINES:
                large[name] = f"{name}:1: size: {len(lines)} lines"
            for function, begin, length in lengths(path, text):
                if length > FUNCTION_LINES:
                    large[f"{name}:{function}"] = f"{name}:{begin}: size: {function} has {length} lines"
    return found + sizes(root, large)


def places(name: str, lines: list) -> list:
    found = []
    for number, line in enumerate(lines, 1):
        for word in re.finditer(TODO, line):
            if not re.match(r"\([^)]{10,}\)", line[word.end():]):
                found.append(f"{name}:{number}: todo: {word[0]} without a reason: {word[0]}(why it waits)")
        if LICENCE.search(line) and not LICENCE_LINE.fullmatch(line):
            found.append(f"{name}:{number}: licence: more than the licence on its line")
        for pattern in (MACHINE_PATH, REGISTRY):
            if match := re.search(pattern, line):
                found.append(f"{name}:{number}: path: {match[0]}")
    return found


def includes(root: Path, name: str, lines: list) -> list:
    found = []
    area, folder = (name.split("/") + [""])[:2]
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', line)
        if not match:
            continue
        target = match[1] or match[2]
        reason = ""
        if area == "src":
            reason = src_include(root, name, folder, target, quoted=bool(match[1]))
        elif area == "kernels" and match[1]:
            own = [root / target, root / "kernels" / target, (root / name).parent / target]
            inside = any(path.is_file() and path.resolve().is_relative_to((root / "kernels").resolve()) for path in own)
            if target != "kvcache_backend.h" and not inside:
                reason = "kernels see only kernels/ and kvcache_backend.h"
        elif area == "tiers" and match[1] and target not in PUBLIC:
            shared = re.match(r"(base|tier)/", target) and (root / "src" / target).is_file()
            if not shared and not ((root / name).parent / target).is_file():
                reason = "tiers see only include/, base and tier of src, and their own files"
        elif area in ("bindings", "examples") and re.match(r"(\.\./)*(src|kernels)/", target):
            reason = f"{area} see only include/"
        elif area in ("bindings", "examples") and match[1] and target not in PUBLIC | {"dlpack/dlpack.h"}:
            if not ((root / name).parent / target).resolve().is_relative_to((root / area).resolve()):
                reason = f"{area} see only include/ and their own files"
        if reason:
            found.append(f"{name}:{number}: include: {target}: {reason}")
    return found


def src_include(root: Path, name: str, folder: str, target: str, quoted: bool) -> str:
    if folder not in MAY_INCLUDE:
        return f"src/{folder} is not a folder that the rules know"
    if target in PUBLIC:
        return ""
    head = target.split("/")[0]
    if target.startswith("kernels/common/") and (root / target).is_file():
        return ""  # rules of both planes
    if head == "kernels" or "../" in target:
        return "src never includes kernels but for kernels/common, and names files from src/ on"
    if quoted and head not in MAY_INCLUDE and not ((root / name).parent / target).is_file():
        return "no such file in src/, include/ or beside it"
    if head in MAY_INCLUDE and "/" in target and head != folder and head not in MAY_INCLUDE[folder]:
        return f"{folder} must not know {head}"
    return ""


def purity(name: str, lines: list) -> list:
    area, folder = (name.split("/") + [""])[:2]
    if area != "src" or folder not in PURE:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        header = re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line)
        if header and (re.fullmatch(IMPURE_HEADERS, header[1]) or header[1] == "base/mutex.h"):
            found.append(f"{name}:{number}: pure: {header[1]}")
        elif match := re.search(IMPURE_WORDS, line):
            found.append(f"{name}:{number}: pure: {match[0]}")
    return found


def lengths(path: Path, text: str) -> list:
    """(name, first line, number of lines) of each function."""
    if path.suffix in CODE:
        return functions.lengths(text)
    if path.suffix == ".py":
        return [(node.name, node.lineno, node.end_lineno - node.lineno + 1) for node in ast.walk(ast.parse(text))
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return []


def sizes(root: Path, large: dict) -> list:
    """Files and functions that are too large, and entries of allowed.txt that are not needed."""
    allowed, found = set(), []
    list_path = root / "tests/tidy/allowed.txt"
    for number, line in enumerate(list_path.read_text().splitlines() if list_path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        entry, _, reason = line.partition(" ")
        allowed.add(entry)
        if len(reason.split()) < 3:
            found.append(f"tests/tidy/allowed.txt:{number}: size: {entry} has no reason")
        if entry not in large:
            found.append(f"tests/tidy/allowed.txt:{number}: size: {entry} is not large (any more)")
    return found + [f"{text}; split it, or say why not in tests/tidy/allowed.txt: `{entry} reason`"
                    for entry, text in large.items() if entry not in allowed]


def main() -> int:
    found = problems(ROOT)
    print("\n".join(found) if found else f"{len(files(ROOT))} files are tidy")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
