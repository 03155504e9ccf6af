"""The messages of scripts/demo.sh --all about decoders that differ."""
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "engines.py"
LINES = {
    "prompt 1": "Why?", "ids 1": "5 6 7", "text 1": "Because.", "sharing": "12 bytes saved", "speed": "3 tokens/s",
}


def run(tmp_path, *engines):
    paths = []
    for name, changes in engines:
        if name == "--tier":
            paths.append(name)
            continue
        paths.append(tmp_path / f"{name}.txt")
        paths[-1].write_text("".join(f"{key}: {text}\n" for key, text in (LINES | changes).items() if text is not None))
    return subprocess.run([sys.executable, str(SCRIPT), *paths], capture_output=True, text=True, timeout=60)


def test_the_same_tokens(tmp_path):
    result = run(tmp_path, ("python", {}), ("rust", {"speed": "4 tokens/s"}))
    assert result.returncode == 0 and result.stdout.endswith("the same 3 tokens in python, rust\n")


@pytest.mark.parametrize("changes", [{"ids 1": "5 6 8"}, {"text 1": "So."}, {"prompt 1": "How?"}, {"sharing": "11 bytes saved"},
                                     {"ids 1": None}, {"ids 2": "5"}], ids=str)
def test_a_difference_fails(tmp_path, changes):
    result = run(tmp_path, ("python", {}), ("rust", changes))
    assert result.returncode == 1 and next(iter(changes)) in result.stderr and "rust has" in result.stderr


TIER = {"tier": "528 of 536 tokens of the system prompt loaded, 8 computed"}


@pytest.mark.parametrize("changes", [{}, {"tier": None}, {"tier": "0 of 536 tokens of the system prompt loaded, 536 computed"},
                                     {"tier": "512 of 536 tokens of the system prompt loaded, 24 computed"},
                                     {"ids 1": "5 6 8"}, {"text 1": None}], ids=str)
def test_a_tier_must_have_the_prompt_and_change_nothing(tmp_path, changes):
    result = run(tmp_path, ("--tier", {}), ("rust", {}), ("rust-tier", TIER | {"sharing": "11 bytes saved"} | changes))
    assert result.returncode == (1 if changes else 0), result.stdout
    assert ("rust after SIGKILL" in (result.stderr if changes else result.stdout))


def test_no_tokens_at_all_fail(tmp_path):
    assert run(tmp_path, ("python", {"ids 1": ""}), ("rust", {"ids 1": ""})).returncode == 1
