"""The command `kvcache`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kvcache


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "kvcache", *map(str, arguments)], capture_output=True, text=True)


def test_info():
    lines = command("info").stdout.splitlines()
    assert f"version    {kvcache.__version__}" in lines
    assert f"library    {kvcache.get_library()}" in lines
    about = json.loads(command("info", "--json").stdout)
    assert about["version"] == kvcache.__version__
    assert Path(about["library"]).is_file()
    assert (Path(about["include"]) / "kvcache.h").is_file()
    assert about["context"]["simd"] in about["context"]["simd_available"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_bench(dtype):
    done = command("bench", "--dtype", dtype, "--q-heads", 4, "--kv-heads", 2, "--head-dim", 32, "--batch", 2, "--context",
                   100, "--prefill", 40, "--threads", 1, "--simd", "scalar", "--seconds", 0.01)
    assert done.returncode == 0, done.stderr
    first, prefill, decode, begin = done.stdout.splitlines()
    assert first.startswith(f"kvcache {kvcache.__version__}, scalar, 1 threads, heads 4/2, head dim 32, {dtype}")
    figures = [float(number) for line in (prefill, decode, begin) for number in re.findall(r"([\d.]+) (?:ms|GF|us)", line)]
    assert len(figures) == 5 and all(figure >= 0 for figure in figures)


def test_errors_are_a_line_and_a_status():
    done = command("bench", "--simd", "nothing")
    assert done.returncode == 1
    assert done.stderr.startswith("kvcache: ") and '"nothing"' in done.stderr
    assert command("dance").returncode == 2


def test_the_installed_script_is_this_command():
    script = Path(sys.executable).parent / "kvcache"
    if not script.exists():
        pytest.skip("the package was installed without scripts")
    assert subprocess.run([script, "info"], capture_output=True, text=True, check=True).stdout == command("info").stdout
