"""The example and the quick start of docs/guide/transformers.md run unchanged."""

import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_quick_start(capsys):
    page = ROOT / "docs/guide/transformers.md"
    exec(compile(page.read_text().split("```python\n")[1].split("```")[0], str(page), "exec"), {})
    assert capsys.readouterr().out == "(2, 13) [12, 10]\n"


def test_example(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["transformers_generate.py", "--max-new-tokens", "10"])
    runpy.run_path(str(ROOT / "examples" / "transformers_generate.py"), run_name="__main__")
    batch, answers, beams, *chat = capsys.readouterr().out.splitlines()
    assert batch == ("a batch of two, padding takes no slot: (2, 43); [42, 14] tokens stored, 8 of 512 pages, "
                     "0 of them shared")  # 3 and 1 in each of two groups
    # 116 tokens of system prompt and up to 40 more; of the shared pages 7 are of the full group.
    assert re.fullmatch(r"three answers to one system prompt: 3\d of 512 pages, 1[0-4] of them shared", answers)
    assert re.fullmatch(r"four beams a row: \(8, 43\); \d+ of 512 pages, [1-9]\d* of them shared", beams)
    assert chat == [f"chat: {length - 1} tokens stored, {length} in the conversation" for length in (16, 35, 51)]
