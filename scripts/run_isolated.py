#!/usr/bin/env python3
"""Runs tests so that one that crashes, hangs or loses its GPU costs itself alone: the next ones run in a new process.

    run_isolated.py [options] pytest ARGUMENT ...            tests of a folder whose conftest.py knows --progress
    run_isolated.py [options] PROGRAM [--gtest_filter=...]   tests of a GoogleTest program

Results are written as they come, a line of JSON a test: {"test", "outcome", "seconds", "text"}. Outcomes: passed, failed,
skipped; and of tests that took their process with them crashed (it died) or hung (it was ended after --each seconds without
news). The summary goes to stdout. Exit status 0: nothing but passed and skipped ones, and no test is left.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

MOST_LOST = 12  # processes; what goes on like that has one cause
START = 90.0    # seconds to a process's first test


class Tests:
    """What is known so far: the lines of the results file."""

    def __init__(self, path: Path):
        self.path, self.done, self.running = path, {}, None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def add(self, test, outcome, seconds=0.0, text=""):
        with self.path.open("a") as file:
            file.write(json.dumps({"test": test, "outcome": outcome, "seconds": round(seconds, 3), "text": text}) + "\n")
        self.refresh()

    def refresh(self) -> int:
        """Reads the file; how many lines there are."""
        lines = [json.loads(line) for line in self.path.read_text().splitlines() if line.endswith("}")]
        self.running = None
        for line in lines:
            if line["outcome"] == "started":
                self.running = line["test"]
            else:
                self.done[line["test"]] = line
                self.running = None
        return len(lines)


def watch(command, tests, log, each, deadline, on_line=None) -> str:
    """One process, until its end (""), or until it was ended for having no news ("hung") or no time ("no time")."""
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdout=errors if on_line is None else subprocess.PIPE, stderr=errors,
                                   env={**os.environ, "PYTHONFAULTHANDLER": "1"})
        if on_line is not None:
            os.set_blocking(process.stdout.fileno(), False)
        news, known, rest = time.monotonic(), tests.refresh(), b""
        limit = START
        while True:
            ended = process.poll() is not None
            if on_line is not None:
                *lines, rest = (rest + (process.stdout.read() or b"")).split(b"\n")
                for line in lines:
                    errors.write(line + b"\n")
                    on_line(line.decode(errors="replace"))
            count = tests.refresh()
            if count != known:
                known, news, limit = count, time.monotonic(), each
            if ended:
                tests.status = process.returncode
                return ""
            now = time.monotonic()
            if now - news > limit or now > deadline:
                process.send_signal(signal.SIGABRT)  # Python says where it is
                try:
                    process.wait(3)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                tests.status = process.returncode
                return "hung" if now <= deadline else "no time"
            time.sleep(0.05)


def last_words(log) -> str:
    """Of a process: where Python was, or the end of what it printed."""
    text = log.read_text(errors="replace")
    fatal = text.rfind("Fatal Python error")
    return text[fatal:fatal + 1400] if fatal >= 0 else text[-1400:]


def run_pytest(arguments, tests, log, each, deadline) -> str:
    return watch([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--progress",
                  str(tests.path), *arguments], tests, log, each, deadline)


def run_gtest(program, tests, log, each, deadline) -> str:
    listed, suite = [], ""
    for line in subprocess.run([*program, "--gtest_list_tests"], capture_output=True, text=True).stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            listed.append(suite + name.strip())
        else:
            suite = name
    left = [name for name in listed if name not in tests.done]
    if not listed:
        log.write_bytes(log.read_bytes() + b"the program lists no tests\n")
        return "no tests"
    if not left:
        return ""
    output = []

    def on_line(line):
        output.append(line)
        begun = re.fullmatch(r"\[ RUN      \] (\S+)", line)
        ended = re.fullmatch(r"\[  ?(     OK|FAILED |SKIPPED) \] (\S+?)(?:,.*)? \((\d+) ms\)", line)
        if begun:
            output.clear()
            tests.add(begun[1], "started")
        if ended:
            outcome = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[ended[1].strip()]
            tests.add(ended[2], outcome, int(ended[3]) / 1e3, "" if outcome == "passed" else "\n".join(output[-40:]))

    return watch([program[0], f"--gtest_filter={':'.join(left)}"], tests, log, each, deadline, on_line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="the file of results")
    parser.add_argument("--log", type=Path, required=True, help="what the processes print")
    parser.add_argument("--each", type=float, default=60.0, help="seconds that a test may take")
    parser.add_argument("--seconds", type=float, default=1e9, help="for all of them")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    tests, lost = Tests(options.results), 0
    options.log.write_bytes(b"")
    end = "none"
    while lost < MOST_LOST:
        if options.command[0] == "pytest":
            end = run_pytest(options.command[1:], tests, options.log, options.each, deadline)
        else:
            end = run_gtest(options.command, tests, options.log, options.each, deadline)
        # A test that was begun and not ended went with its process; a process that gave its GPU up (70) ended all it began.
        if tests.running is not None:
            tests.add(tests.running, end or "crashed", text=f"exit status {tests.status}\n{last_words(options.log)}")
            lost += 1
        elif end == "" and tests.status == 70:
            lost += 1
        else:
            break
        if end == "no time":
            break
    counts = Counter(line["outcome"] for line in tests.done.values())
    for line in tests.done.values():
        if line["outcome"] != "passed":
            text = line["text"] if line["outcome"] != "skipped" else line["text"].splitlines()[-1] if line["text"] else ""
            print(f"---- {line['outcome'].upper()} {line['test']}\n{text[-1500:]}")
    if not tests.done:
        print(last_words(options.log))
    whole = end == "" and lost < MOST_LOST and tests.status in (0, 1)
    print(", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "crashed", "hung", "no time", "skipped")
                    if counts[name]) + ("" if whole else f"; NOT ALL TESTS RAN ({end or tests.status})"))
    return 0 if whole and not counts.keys() - {"passed", "skipped"} and counts["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
