"""generate.py as a user starts it: the stable interface, the demo, and one clear line for each bad input."""
import json
import re
import shutil
import signal
import subprocess
import sys
from collections import namedtuple

import generate as program  # found by conftest.py
import numpy as np
import pytest
import weights


def generate(*arguments):
    return subprocess.run([sys.executable, program.__file__, *map(str, arguments)],
                          capture_output=True, text=True, timeout=300)


def test_prompts_to_output_and_logits(files, tmp_path):
    text = "The capital of France is"
    (tmp_path / "in.json").write_text(json.dumps([{"text": text}, {"ids": files.tokenizer.encode(text)},
                                                  {"text": text + " not"}]))
    for options in ([], ["--share-prefix", "--page-size", 5, "--batch", 2, "--chunk", 3]):
        done = generate("--prompts", tmp_path / "in.json", "--max-new-tokens", 4, "--ignore-eos",
                        "--output", tmp_path / "out.json", "--logits", tmp_path / "logits.npy", *options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        results = json.loads((tmp_path / "out.json").read_text())
        logits = np.load(tmp_path / "logits.npy", mmap_mode="r")
        assert logits.dtype == np.float32 and logits.shape == (3, 4, 262144)
        assert [list(map(int, row.argmax(-1))) for row in logits] == [result["ids"] for result in results]
        assert results[0] == results[1] != results[2]
        assert all(result["text"] == files.tokenizer.decode(result["ids"]) for result in results)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in.json", "logits.npy", "out.json"]


def test_demo_without_a_terminal():
    done = generate("--max-new-tokens", 2)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tokens/s" in done.stdout and "saved by sharing" in done.stdout and "page table" in done.stdout
    found = [line.split(": ")[1] for line in done.stdout.splitlines() if " tokens found, " in line]
    assert len(found) == 2, done.stdout
    for line in found:  # all but the new question, and one token whose logits are needed
        held, total, computed = (int(number) for number in re.findall(r"\d+", line))
        assert held + computed == total and held >= 536 and 0 < computed < 16, line
    assert not [c for c in done.stdout if ord(c) < 32 and c != "\n"]


def test_a_killed_demo_left_its_prompt_in_the_tier(tmp_path):
    tier = ["--tier", str(tmp_path / "tier")]
    command = [sys.executable, program.__file__, *tier]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while " of them loaded from " not in (line := process.stdout.readline()):
            assert line, "the demo ended before it was killed"
        process.kill()  # SIGKILL
        assert process.wait(60) == -signal.SIGKILL
    assert line.startswith("0 of them loaded") and line.endswith(", 536 computed\n")
    again, without = generate("--plain", "--max-new-tokens", 6, *tier), generate("--plain", "--max-new-tokens", 6)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith("tier: 528 of 536 tokens of the system prompt loaded, 8 computed\n")
    answers = [line for line in without.stdout.splitlines() if line.startswith(("ids ", "text "))]
    assert len(answers) == 16 and set(answers) <= set(again.stdout.splitlines())


BAD_PROMPTS = ["{", "[]", '{"text": "x"}', '[{"ids": []}]', '[{"ids": [1.5]}]', '[{"ids": [true]}]', '[{"text": 1}]',
               '[{"ids": [1], "text": "x"}]', '[{"ids": [262144]}]', '[{"ids": [-1]}]',
               json.dumps([{"ids": [2] * 32768}]), "[" * 100000]


@pytest.mark.parametrize("content", BAD_PROMPTS, ids=lambda content: content[:20])
def test_bad_prompts(main_in_process, tmp_path, content):
    (tmp_path / "in.json").write_text(content)
    message = main_in_process("--prompts", tmp_path / "in.json", "--output", tmp_path / "out.json")
    assert "prompt" in message and not (tmp_path / "out.json").exists()


@pytest.fixture
def main_in_process(capsys, files, monkeypatch):
    """Runs main(), demands exit code 1 and one line on stderr, and returns that line."""
    open_model = weights.load
    monkeypatch.setattr(weights, "load", lambda model, cache, report:
                        open_model(model, cache, report) if model or cache else files)  # loaded already

    def run(*arguments):
        code = program.main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert (code, out) == (1, "") and err.startswith("generate.py: ") and err.count("\n") == 1, err
        return err

    return run


def test_a_tier_that_cannot_be_used(main_in_process, tmp_path):
    (tmp_path / "file").write_text("")
    assert "file/tier" in main_in_process("--plain", "--tier", tmp_path / "file" / "tier")


def test_unknown_files(main_in_process, tmp_path):
    assert "missing.json" in main_in_process("--prompts", tmp_path / "missing.json")
    assert "missing.gguf" in main_in_process("--model", tmp_path / "missing.gguf", "--weights-cache", tmp_path)
    assert "nowhere" in main_in_process("--prompts", tmp_path / "x", "--output", tmp_path / "nowhere" / "out.json")


def test_damaged_model_file(tmp_path):
    for content in (b"", b"GGUF", b"not a model" * 1000):
        (tmp_path / "model.gguf").write_bytes(content)
        done = generate("--model", tmp_path / "model.gguf", "--weights-cache", tmp_path / "cache")
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and "model.gguf is damaged" in done.stderr
        assert list((tmp_path / "cache").iterdir()) == []


def test_no_disk_space_for_the_weights(main_in_process, monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("usage", "total used free")(10, 9, 1))
    assert "no disk space" in main_in_process("--weights-cache", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_weights_cache_that_cannot_be_made(main_in_process, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot keep" in main_in_process("--weights-cache", tmp_path / "file")
