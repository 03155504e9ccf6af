"""The same model by PyTorch: the tokens of numpy's. On the CPU here; --device cuda differs in the device alone, and runs where
PyTorch sees a card. Run only where torch is installed: scripts name this file."""
import json
from pathlib import Path

import generate as program
import numpy as np
import pytest
import torch
from engine import Engine, Request, capacity_for

STEPS = 8
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(),
                                                                reason="PyTorch sees no CUDA card"))]


@pytest.fixture(scope="module")
def prompts(files):
    texts = json.loads(Path(__file__).with_name("prompts.json").read_text())
    return [files.tokenizer.encode(text) for text in texts][:3]


def decoded(model, prompts):
    """Each prompt's tokens, and the logits that each was chosen from."""
    engine = Engine(model, capacity_for([len(ids) + STEPS for ids in prompts], 16), len(prompts), chunk_tokens=192)
    requests = [Request(ids, STEPS) for ids in prompts]
    logits = {request: [] for request in requests}
    engine.run(requests, on_token=lambda request, token, row: logits[request].append(row))
    return [request.output for request in requests], np.stack([row for request in requests for row in logits[request]])


def assert_same(got, wanted):
    assert got[0] == wanted[0]
    np.testing.assert_allclose(got[1], wanted[1], rtol=0, atol=1e-4 * np.abs(wanted[1]).max())


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_tokens(files, model, prompts, device):
    from model import Config
    from model_torch import TorchModel

    other = TorchModel(Config.from_metadata(files.metadata), files.tensors, device)
    assert_same(decoded(other, prompts), decoded(model, prompts))


@pytest.mark.parametrize("device", DEVICES)
def test_random_weights(device):
    """A small model of the same architecture, without the model file."""
    from model import Config, Model
    from model_torch import TorchModel

    rng = np.random.default_rng(5)
    c = Config(layers=6, embedding=96, q_heads=4, kv_heads=1, head_dim=64, window_tokens=40, full_rope_theta=1e6,
               norm_epsilon=1e-6, context_tokens=4096)
    width, inner = (c.q_heads + 2 * c.kv_heads) * c.head_dim, 128
    shapes = {"attn_qkv": (width, c.embedding), "attn_output": (c.embedding, c.q_heads * c.head_dim),
              "ffn_gate_up": (2 * inner, c.embedding), "ffn_down": (c.embedding, inner)}
    norms = {"attn_norm": c.embedding, "post_attention_norm": c.embedding, "ffn_norm": c.embedding,
             "post_ffw_norm": c.embedding, "attn_q_norm": c.head_dim, "attn_k_norm": c.head_dim}
    tensors = {"token_embd.weight": 0.05 * rng.standard_normal((300, c.embedding)), "output_norm.weight": np.ones(c.embedding)}
    for i in range(c.layers):
        tensors |= {f"blk.{i}.{name}.weight": rng.standard_normal(shape) / np.sqrt(shape[1]) for name, shape in shapes.items()}
        tensors |= {f"blk.{i}.{name}.weight": 1 + 0.1 * rng.standard_normal(size) for name, size in norms.items()}
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    prompts = [rng.integers(0, 300, length).tolist() for length in (3, 70, 25, 150)]
    assert_same(decoded(TorchModel(c, tensors, device), prompts), decoded(Model(c, tensors), prompts))


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
