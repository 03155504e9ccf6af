"""The same model in PyTorch gives the tokens of numpy's. This runs on the CPU. --device cuda only changes the device, and
runs if PyTorch sees a GPU. The test needs torch, so only scripts that install it name this file."""
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
    """The tokens of each prompt, and the logits of each choice."""
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


class NoText:
    """A tokenizer without a vocabulary file."""

    @staticmethod
    def decode(ids):
        return " ".join(map(str, ids))


@pytest.fixture(scope="module")
def random_files():
    """A small model of the same architecture, without the model file."""
    from weights import ModelFiles

    rng = np.random.default_rng(5)
    layers, embedding, q_heads, kv_heads, head_dim, inner = 6, 96, 4, 1, 64, 128
    metadata = {"general.architecture": "gemma3"} | {f"gemma3.{name}": value for name, value in {
        "block_count": layers, "embedding_length": embedding, "attention.head_count": q_heads,
        "attention.head_count_kv": kv_heads, "attention.key_length": head_dim, "attention.sliding_window": 40,
        "rope.freq_base": 1e6, "attention.layer_norm_rms_epsilon": 1e-6, "context_length": 4096}.items()}
    width = (q_heads + 2 * kv_heads) * head_dim
    shapes = {"attn_qkv": (width, embedding), "attn_output": (embedding, q_heads * head_dim),
              "ffn_gate_up": (2 * inner, embedding), "ffn_down": (embedding, inner)}
    norms = {"attn_norm": embedding, "post_attention_norm": embedding, "ffn_norm": embedding, "post_ffw_norm": embedding,
             "attn_q_norm": head_dim, "attn_k_norm": head_dim}
    tensors = {"token_embd.weight": 0.05 * rng.standard_normal((300, embedding)), "output_norm.weight": np.ones(embedding)}
    for i in range(layers):
        tensors |= {f"blk.{i}.{name}.weight": rng.standard_normal(shape) / np.sqrt(shape[1]) for name, shape in shapes.items()}
        tensors |= {f"blk.{i}.{name}.weight": 1 + 0.1 * rng.standard_normal(size) for name, size in norms.items()}
    return ModelFiles(metadata, {name: tensor.astype(np.float32) for name, tensor in tensors.items()}, NoText(), eos_id=299)


@pytest.fixture(scope="module")
def random_prompts():
    rng = np.random.default_rng(6)
    return [rng.integers(0, 300, length).tolist() for length in (3, 70, 25, 150)]


@pytest.mark.parametrize("device", DEVICES)
def test_random_weights(random_files, random_prompts, device):
    from model import Config, Model
    from model_torch import TorchModel

    config = Config.from_metadata(random_files.metadata)
    assert_same(decoded(TorchModel(config, random_files.tensors, device), random_prompts),
                decoded(Model(config, random_files.tensors), random_prompts))


@pytest.mark.parametrize("device", DEVICES)
def test_command_line_with_random_weights(random_files, random_prompts, device, tmp_path, capsys, monkeypatch):
    """generate.py --device writes exactly the file that numpy's model gives, also with a shared prefix."""
    import weights

    monkeypatch.setattr(weights, "load", lambda *_: random_files)
    shared = random_prompts[1]
    (tmp_path / "in.json").write_text(json.dumps([{"ids": shared[:30] + ids} for ids in random_prompts]))
    command = ["--prompts", str(tmp_path / "in.json"), "--max-new-tokens", str(STEPS), "--chunk", "64", "--batch", "3"]
    for prefix in ([], ["--share-prefix"]):
        results = []
        for options in (["--arithmetic", "numpy"], ["--device", device, "--arithmetic", "torch"]):
            assert program.main([*command, *prefix, *options]) == 0
            results.append(capsys.readouterr().out)
        assert results[0] == results[1] and len(json.loads(results[0])) == len(random_prompts)


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
