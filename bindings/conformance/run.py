#!/usr/bin/env python3
"""Replays scripts in several languages, and compares what they answer: README.md.

    run.py [--runner NAME ...] [--library PATH] [--random N] [--seed S] [--junit FILE] [--transport PATH] [SCRIPT ...]

With --transport also the scripts of pair/, in two processes: each runner receives what the one before it sends. Without SCRIPT: all of scripts/, and N random ones; then also whether some script calls each function of the C API, by the runner of C.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable
from pathlib import Path

import random_script
from compare import Comparison
from script import Answer, parse_script, parse_transcript

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "conformance"
CALLS = BUILD / "calls.txt"

# What a binding lacks: operations to which its runner may answer `skip`, or scripts in which it need not agree.
MISSING: dict[str, set[str]] = {}

# Functions that are not in every language, so that no script calls them.
IN_FEW_LANGUAGES: set[str] = set()
# Functions that only the scripts of two processes call: they need a transport.
IN_PAIRS: set[str] = {"kvc_cache_set_transport"}


def build_c() -> list[str]:
    dlpack = os.environ.get("DLPACK_INCLUDE_DIR") or subprocess.run(
        [str(Path(sys.executable).parent / "tvm-ffi-config"), "--dlpack-includedir"],
        check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip
    runner, sources = BUILD / "runner_c", sorted((HERE / "runners" / "c").glob("*.c"))
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
                    f"-I{ROOT / 'include'}", f"-I{dlpack}", *map(str, sources), "-ldl", "-o", str(runner)],
                   check=True)  # fmt: skip
    return [str(runner)]


def build_rust() -> list[str]:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "build" / "rust"))
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--package", "kvcache", "--features", "dynamic", "--example",
                    "conformance"], cwd=ROOT / "bindings" / "rust",
                   env={**os.environ, "CARGO_TARGET_DIR": str(target)}, check=True)  # fmt: skip
    return [str(target / "debug" / "examples" / "conformance")]


def build_go() -> list[str]:
    runner = BUILD / "runner_go"
    subprocess.run(["go", "build", "-o", str(runner), "./conformance"], cwd=ROOT / "bindings" / "go", check=True,
                   env={**os.environ, "CGO_ENABLED": "0"})  # fmt: skip
    return [str(runner)]


def build_java() -> list[str]:
    classes = [ROOT / "build" / "java" / folder for folder in ("classes", "test-classes")]
    subprocess.run(["mvn", "-q", "-B", "-ntp", "test-compile"], cwd=ROOT / "bindings" / "java", check=True)
    return ["java", "-cp", ":".join(map(str, classes)), "dev.kvcache.conformance.Runner"]


# How each runner is made: a function that builds it and returns its command. The first that is asked for is what others are
# compared with.
RUNNERS: dict[str, Callable[[], list[str]]] = {
    "c": build_c,
    "python": lambda: [sys.executable, str(HERE / "runners" / "python" / "runner.py")],
    "rust": build_rust,
    "go": build_go,
    "java": build_java,
}


def transcribe(runner: str, command: list[str], scripts: list[Path], first: str) -> str:
    """`first` is the runner whose saved sequences this one loads."""
    files = BUILD / "files"
    (files / runner).mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "KVCACHE_CONFORMANCE_SAVE": str(files / runner),
                   "KVCACHE_CONFORMANCE_LOAD": str(files / first)}  # fmt: skip
    if runner == "c":
        environment["KVCACHE_CONFORMANCE_CALLS"] = str(CALLS)
    process = subprocess.run([*command, *map(str, scripts)], env=environment, capture_output=True, text=True,
                             timeout=600, check=False)  # fmt: skip
    (BUILD / f"{runner}.txt").write_text(process.stdout)
    if process.returncode != 0:
        print(f"{runner}: exit status {process.returncode}\n{process.stderr[-2000:]}")
    return process.stdout


def pair(sender: tuple[str, list[str]], receiver: tuple[str, list[str]], transport: str, options: str) -> list[str]:
    """Errors of a transfer between two processes. The model has all of the sender's; the receiver's contents are compared with them."""
    scripts = {side: HERE / "pair" / f"{side}.kvs" for side in ("sender", "receiver")}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "KVCACHE_CONFORMANCE_TRANSPORT": transport, "KVCACHE_CONFORMANCE_OPTIONS": options,
                       "KVCACHE_CONFORMANCE_SAVE": folder, "KVCACHE_CONFORMANCE_LOAD": folder}  # fmt: skip
        processes = {side: subprocess.Popen([*command, str(scripts[side])], env=environment, stdout=subprocess.PIPE, text=True)
                     for side, (_, command) in (("receiver", receiver), ("sender", sender))}  # fmt: skip
        try:
            texts = {side: process.communicate(timeout=120)[0] for side, process in processes.items()}
        finally:
            for process in processes.values():
                process.kill()
    answers = {side: parse_transcript(text).get(scripts[side].name, {}) for side, text in texts.items()}
    ops = {side: parse_script(path) for side, path in scripts.items()}
    errors = []
    for side, (runner, _) in (("sender", sender), ("receiver", receiver)):
        if processes[side].returncode != 0:
            errors.append(f"{runner} as {side}: exit status {processes[side].returncode}")
        comparison = Comparison(scripts[side].name, ops[side], {runner: answers[side]}, MISSING)
        if side == "sender":
            comparison.run()
        else:  # of what it received the model knows nothing
            for op in ops[side]:
                comparison.check(runner, op, answers[side].get(op.line, Answer("none", {}, "nothing")), {})
        errors += comparison.errors
    if errors:
        return errors
    received, sent = ([answers[side][op.line].results for op in ops[side] if op.name in ("export", "attend")][-4:]
                      for side in ("receiver", "sender"))
    return [] if received == sent else [f"the receiver has {received}, the sender {sent}"]


def run_pairs(commands: dict[str, list[str]], transport: str) -> list[tuple[str, list[str]]]:
    """Around the ring of languages, by shared memory and by TCP."""
    cases = []
    runners = list(commands.items())
    nixl = "nixl" in Path(transport).name  # UCX below NIXL refuses to use shared memory if it must notice errors
    by_nixl = ("engine_config=TLS=sm;ucx_error_handling_mode=none", "engine_config=TLS=tcp,NET_DEVICES=lo")
    for options in by_nixl if nixl else ("sm,self", "tcp/lo"):
        for at, sender in enumerate(runners):
            receiver = runners[(at + 1) % len(runners)]
            errors = pair(sender, receiver, transport, options)
            name = f"{sender[0]} to {receiver[0]} by {options}"
            print(f"{'FAILED' if errors else 'ok':7} {name}\n" + "".join(f"        {error}\n" for error in errors), end="", flush=True)
            cases.append((name, errors))
    return cases


def api_functions() -> list[str]:
    """The members of kvc_api in their order."""
    header = (ROOT / "include" / "kvcache.h").read_text()
    table = header[header.index("typedef struct kvc_api {") : header.index("} kvc_api;")]
    return re.findall(r"\(\*(\w+)\)\(", table)


def uncalled() -> list[str]:
    """Functions that no script called: the runner of C wrote their offsets in kvc_api."""
    called = {int(line) for line in CALLS.read_text().split()}
    first = 8  # after struct_size and abi
    missed = [f"kvc_{name}" for index, name in enumerate(api_functions()) if first + 8 * index not in called]
    return [name for name in missed if name not in IN_FEW_LANGUAGES | IN_PAIRS]


def unlike_files(first: str, others: list[str]) -> list[str]:
    """Saved sequences and objects of tiers that another language wrote with other bytes."""
    files = BUILD / "files"
    written = [path.relative_to(files / first) for path in sorted((files / first).rglob("*")) if path.is_file()]
    return [f"{path}: {other} wrote other bytes than {first}" for other in others for path in written
            if not (files / other / path).exists() or (files / other / path).read_bytes() != (files / first / path).read_bytes()]


def write_junit(path: Path, cases: list[tuple[str, list[str]]]) -> None:
    suite = xml.Element("testsuite", name="conformance")
    for name, errors in cases:
        case = xml.SubElement(suite, "testcase", classname="conformance", name=name)
        if errors:
            xml.SubElement(case, "failure").text = "\n".join(errors)
    xml.ElementTree(suite).write(path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", action="append", choices=sorted(RUNNERS), dest="runners")
    parser.add_argument("--library", default=os.environ.get("KVCACHE_LIBRARY", ROOT / "build/release/src/libkvcache.so"))
    parser.add_argument("--random", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--junit", type=Path)
    parser.add_argument("--transport", type=Path, help="libkvcache_ucx.so or libkvcache_nixl.so")
    parser.add_argument("scripts", nargs="*", type=Path)
    return parser.parse_args()


def main() -> int:
    args = arguments()
    os.environ["KVCACHE_LIBRARY"] = str(Path(args.library).resolve())
    BUILD.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(BUILD / "files", ignore_errors=True)
    CALLS.unlink(missing_ok=True)
    runners = args.runners or ["c", "python"]
    fixed = args.scripts or sorted((HERE / "scripts").glob("*.kvs"))
    made = [] if args.scripts else random_script.write(BUILD / "random", args.random, args.seed)
    transcripts, commands = {}, {}
    for runner in runners:
        commands[runner] = command = RUNNERS[runner]()
        begin = time.monotonic()
        text = transcribe(runner, command, fixed, runners[0])
        if runner == "c":
            missed = uncalled()  # by the fixed scripts alone
        transcripts[runner] = parse_transcript(text + (transcribe(runner, command, made, runners[0]) if made else ""))
        print(f"{runner:8} {time.monotonic() - begin:6.1f} s", flush=True)

    cases = []
    for path in [*fixed, *made]:
        ops = parse_script(path)
        answers = {runner: transcript.get(path.name, {}) for runner, transcript in transcripts.items()}
        comparison = Comparison(path.name, ops, answers, MISSING)
        comparison.run()
        skips = "".join(f", {runner} skips {count}" for runner, count in comparison.skipped.items())
        print(f"{'FAILED' if comparison.errors else 'ok':7} {path.name:24} {len(ops):4} operations, {comparison.written} "
              f"results written, {comparison.predicted} by the model{skips}")  # fmt: skip
        print("".join(f"        {error}\n" for error in comparison.errors[:10]), end="", flush=True)
        cases.append((path.stem, comparison.errors))
    if "c" in runners and not args.scripts:
        print(f"no script calls {', '.join(missed)}" if missed else "every function of the C API is called")
        cases.append(("coverage of the C API", missed))
    unlike = unlike_files(runners[0], runners[1:])
    print("".join(f"        {error}\n" for error in unlike), end="")
    cases.append(("files of saved sequences and tiers", unlike))
    if args.transport:
        cases += run_pairs(commands, str(args.transport.resolve()))
    if args.junit:
        write_junit(args.junit, cases)
    failed = sum(bool(errors) for _, errors in cases)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
