"""The same model by PyTorch: the tokens of numpy's. On the CPU here; --device cuda differs in the device alone, and runs where
PyTorch sees a card. Run only where torch is installed: scripts name this file."""
import json
from pathlib import Path

import generate as program
import pytest
import torch
from engine import Engine, Request, capacity_for

STEPS = 8


@pytest.fixture(scope="module")
def prompts(files):
    texts = json.loads(Path(__file__).with_name("prompts.json").read_text())
    return [files.tokenizer.encode(text) for text in texts][:3]


def tokens_of(model, prompts):
    engine = Engine(model, capacity_for([len(ids) + STEPS for ids in prompts], 16), len(prompts), chunk_tokens=192)
    requests = [Request(ids, STEPS) for ids in prompts]
    engine.run(requests)
    return [request.output for request in requests]


@pytest.mark.parametrize("device", [
    "cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA card"))])
def test_the_same_tokens(files, model, prompts, device):
    from model import Config
    from model_torch import TorchModel

    other = TorchModel(Config.from_metadata(files.metadata), files.tensors, device)
    assert tokens_of(other, prompts) == tokens_of(model, prompts)


def test_command_line(files, tmp_path, capsys, monkeypatch):
    import weights

    monkeypatch.setattr(weights, "load", lambda *_: files)
    (tmp_path / "in.json").write_text(json.dumps([{"text": "The capital of France is"}]))
    results = []
    for options in ([], ["--arithmetic", "torch"]):
        assert program.main(["--prompts", str(tmp_path / "in.json"), "--max-new-tokens", "4", *options]) == 0
        results.append(capsys.readouterr().out)
    assert results[0] == results[1] and "ids" in results[0]
    with pytest.raises(SystemExit):
        program.main(["--device", "cuda", "--arithmetic", "numpy"])
    assert "--arithmetic numpy computes on the CPU alone" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert program.main(["--device", "cuda"]) == 1
        assert "PyTorch sees no CUDA device" in capsys.readouterr().err
