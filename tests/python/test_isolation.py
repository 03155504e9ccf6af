"""scripts/run_isolated.py: if a test crashes or hangs, later tests still run. The result of each is recorded."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import ctypes, time
def test_first(): pass
def test_wrong(): assert 1 == 2
def test_crash(): ctypes.string_at(0)
def test_hang(): time.sleep(600)
def test_last(): pass
"""
GOOGLETEST = """#!/usr/bin/env python3
import os, sys
TESTS = ["A.first", "A.crash", "B.wrong", "B.last"]
if "--gtest_list_tests" in sys.argv:
    print("A.\\n  first\\n  crash\\nB.\\n  wrong\\n  last")
    sys.exit(0)
chosen = next(a for a in sys.argv if a.startswith("--gtest_filter=")).split("=")[1].split(":")
for test in TESTS:
    if test in chosen:
        print(f"[ RUN      ] {test}", flush=True)
        if test == "A.crash":
            os.abort()
        print("why", flush=True)
        print("[  FAILED  ] B.wrong (3 ms)" if test == "B.wrong" else f"[       OK ] {test} (0 ms)", flush=True)
sys.exit("B.wrong" in chosen)
"""


def run(folder, each, *command):
    program = [sys.executable, ROOT / "scripts" / "run_isolated.py", "--results", folder / "results.jsonl",
               "--log", folder / "log.txt", "--each", str(each), *command]
    ran = subprocess.run([str(word) for word in program], cwd=folder, capture_output=True, text=True)
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    ends = {line["test"].split("::")[-1]: line for line in lines if line["outcome"] != "started"}
    return ran, {test: line["outcome"] for test, line in ends.items()}, ends


def test_python_tests(tmp_path):
    for name in ("conftest.py", "devices.py", "dense.py", "cuda_array.py"):
        shutil.copy(ROOT / "tests" / "gpu" / name, tmp_path / name)
    (tmp_path / "test_them.py").write_text(TESTS)
    ran, outcomes, ends = run(tmp_path, 6, "pytest", "test_them.py")
    assert outcomes == {"test_first": "passed", "test_wrong": "failed", "test_crash": "crashed", "test_hang": "hung",
                        "test_last": "passed"}, ran.stdout
    assert ran.returncode == 1 and ran.stdout.splitlines()[-1] == "2 passed, 1 failed, 1 crashed, 1 hung"
    assert "assert 1 == 2" in ends["test_wrong"]["text"] and "in test_hang" in ends["test_hang"]["text"]


def test_googletest_programs(tmp_path):
    program = tmp_path / "program"
    program.write_text(GOOGLETEST)
    program.chmod(0o755)
    ran, outcomes, ends = run(tmp_path, 60, program, "--gtest_filter=*")
    assert outcomes == {"A.first": "passed", "A.crash": "crashed", "B.wrong": "failed", "B.last": "passed"}, ran.stdout
    assert ran.returncode == 1 and ran.stdout.splitlines()[-1] == "2 passed, 1 failed, 1 crashed"
    assert "why" in ends["B.wrong"]["text"]
