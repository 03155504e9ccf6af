"""The decoder in Go (examples/gemma/go), with a small random model in the format of examples/gemma/README.md. The expected
tokens come from the example's numpy model, with attention from the definition."""
import json
import os
import shutil
import signal
import struct
import subprocess

import numpy as np
import pytest
from conftest import EXAMPLE

LAYERS, EMBEDDING, Q_HEADS, DIM, WIDE, WINDOW, VOCABULARY = 7, 32, 4, 16, 48, 20, 61
SYSTEM, USERS, NEW_TOKENS, STOP = 300, 3, 9, [20, 59]  # the system prompt takes two steps
METADATA = {
    "format": "kvcache-gemma-1", "layers": LAYERS, "embedding": EMBEDDING, "q_heads": Q_HEADS, "kv_heads": 1,
    "head_dim": DIM, "window_tokens": WINDOW, "full_attention_every": 6, "full_rope_theta": 1e6,
    "sliding_rope_theta": 1e4, "norm_epsilon": 1e-6, "attention_scale": 0.25, "embedding_scale": 5.5, "users": USERS,
    "fingerprint": "5e" * 32,
}  # fmt: skip
TYPES = {"float32": "F32", "int32": "I32", "uint8": "U8"}


def make_tensors():
    rng = np.random.default_rng(5)

    def weight(*shape):
        return (rng.standard_normal(shape) / (shape[-1] ** 0.5 if len(shape) > 1 else 1)).astype(np.float32)

    tensors = {"token_embd.weight": weight(VOCABULARY, EMBEDDING), "output_norm.weight": weight(EMBEDDING)}
    for i in range(LAYERS):
        shapes = {"attn_qkv": ((Q_HEADS + 2) * DIM, EMBEDDING), "attn_output": (EMBEDDING, Q_HEADS * DIM),
                  "ffn_gate_up": (2 * WIDE, EMBEDDING), "ffn_down": (EMBEDDING, WIDE), "attn_norm": (EMBEDDING,),
                  "post_attention_norm": (EMBEDDING,), "ffn_norm": (EMBEDDING,), "post_ffw_norm": (EMBEDDING,),
                  "attn_q_norm": (DIM,), "attn_k_norm": (DIM,)}  # fmt: skip
        tensors |= {f"blk.{i}.{name}.weight": weight(*shape) for name, shape in shapes.items()}
        for name in ("attn_q_norm", "attn_k_norm", "post_attention_norm"):  # so that attention matters
            tensors[f"blk.{i}.{name}.weight"] *= 3
    ids = {"prompts.system": rng.integers(VOCABULARY, size=SYSTEM), "stop_ids": STOP}
    ids |= {f"prompts.user.{i}": rng.integers(VOCABULARY, size=4 + 3 * i) for i in range(USERS)}
    tensors |= {name: np.asarray(values, np.int32) for name, values in ids.items()}
    pieces = [f"<{i}>".encode() for i in range(VOCABULARY)]
    tensors["vocabulary.offsets"] = np.cumsum([0] + [len(piece) for piece in pieces]).astype(np.int32)
    tensors["vocabulary.bytes"] = np.frombuffer(b"".join(pieces), np.uint8)
    return tensors


def write(target, tensors, metadata):
    header, start = {"__metadata__": {name: str(value) for name, value in metadata.items()}}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": array.shape,
                        "data_offsets": (start, start + array.nbytes)}  # fmt: skip
        start += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in tensors.values()))


def attention(layer, q, k, v):
    """Attention of a whole prompt: RoPE, then softmax over the keys that each query sees, in float64."""
    full = layer % 6 == 5
    position, half = np.arange(len(q)), DIM // 2
    angles = position[:, None] * (1e6 if full else 1e4) ** (-2 * np.arange(half) / DIM)

    def rotated(x):
        a, b = x[..., :half].astype(np.float64), x[..., half:]
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    scores = np.einsum("ihd,jd->hij", rotated(q), rotated(k)[:, 0]) * METADATA["attention_scale"]
    distance = position[:, None] - position
    scores[:, (distance < 0) | ((distance >= WINDOW) & (not full))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jd->ihd", weights / weights.sum(-1, keepdims=True), v[:, 0]).astype(np.float32)


def check_greedy(tensors, user, output):
    """Checks that each token is the most likely one after those before it. The numpy model computes the whole text at
    once."""
    from model import Config, Model
    model = Model(Config(LAYERS, EMBEDDING, Q_HEADS, 1, DIM, WINDOW, 1e6, 1e-6, 4096), tensors)
    model._scale = np.float32(METADATA["embedding_scale"])
    prompt = [*tensors["prompts.system"], *tensors[f"prompts.user.{user}"]]
    hidden = model.hidden(np.array(prompt + output[:-1]), attention)
    assert output == np.argmax(model.logits(hidden[len(prompt) - 1:]), axis=-1).tolist()
    assert len(output) == NEW_TOKENS or output[-1] in STOP
    assert not set(output[:-1]) & set(STOP)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    program = tmp_path_factory.mktemp("go") / "gemma"
    subprocess.run([go, "build", "-o", program, "."], cwd=EXAMPLE / "go", env=os.environ | {"CGO_ENABLED": "0"}, check=True)
    import kvcache
    library = os.environ.get("KVCACHE_LIBRARY") or kvcache.get_library()

    environment = os.environ | {"KVCACHE_LIBRARY": str(library)}

    def run(*arguments, killed_after=None):
        command = [program, *map(str, arguments)]
        if killed_after is None:
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            while killed_after not in (line := process.stdout.readline()):
                assert line, "the decoder ended before it was killed"
            process.kill()  # SIGKILL
            assert process.wait(60) == -signal.SIGKILL
            return line

    return run


def test_tokens_are_those_of_the_definition(decoder, tmp_path):
    tensors = make_tensors()
    write(tmp_path / "small.safetensors", tensors, METADATA)
    result = decoder(tmp_path / "small.safetensors", NEW_TOKENS)
    assert result.returncode == 0, result.stderr
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    answers = [[int(token) for token in lines[f"ids {number}"].split()] for number in range(1, USERS + 1)]
    assert len({*map(tuple, answers)}) == USERS and min(map(len, answers)) < NEW_TOKENS
    for number, answer in enumerate(answers, 1):
        check_greedy(tensors, number - 1, answer)
        assert lines[f"text {number}"] == "".join(f"<{token}>" for token in answer)
        assert lines[f"prompt {number}"] == "".join(f"<{token}>" for token in tensors[f"prompts.user.{number - 1}"])
    # Full group: 18 whole pages of 300 tokens shared by 4; sliding: the pages that the system prompt still has.
    page_bytes = 16 * 2 * DIM * 4
    saved = int(lines["sharing"].split()[0])
    assert saved >= 18 * USERS * page_bytes and saved % page_bytes == 0
    assert f"({USERS} forks of a system prompt of {SYSTEM} tokens)" in lines["sharing"]
    tokens = sum(map(len, answers))
    assert f"({tokens} tokens of {USERS} users in " in lines["speed"] and lines["binding"].startswith("at most ")


def test_a_killed_decoder_left_its_prompt_in_the_tier(decoder, tmp_path):
    many = 1500  # so many that it runs when it is killed
    write(tmp_path / "small", make_tensors() | {"stop_ids": np.array([VOCABULARY], np.int32)}, METADATA)
    without = decoder(tmp_path / "small", many)
    tier = ["--tier", tmp_path / "tier"]
    line = decoder(tmp_path / "small", many, *tier, killed_after="tier: ")
    assert line == f"tier: 0 of {SYSTEM} tokens of the system prompt loaded, {SYSTEM} computed\n"
    again = decoder(tmp_path / "small", many, *tier)
    whole = SYSTEM // 16 * 16
    assert again.stdout.startswith(
        f"tier: {whole} of {SYSTEM} tokens of the system prompt loaded, {SYSTEM - whole} computed\n"), again.stderr
    lines = [line for line in again.stdout.splitlines() if line.startswith(("ids ", "text "))]
    assert len(lines) == 2 * USERS and set(lines) <= set(without.stdout.splitlines())

    (tmp_path / "file").write_text("")
    refused = decoder(tmp_path / "small", 1, "--tier", tmp_path / "file" / "tier")
    assert refused.returncode == 1 and refused.stdout == "" and "file/tier" in refused.stderr
    write(tmp_path / "unnamed", make_tensors(), METADATA | {"fingerprint": "5e"})
    refused = decoder(tmp_path / "unnamed", 1, *tier)
    assert refused.returncode == 1 and "fingerprint" in refused.stderr


def test_bad_input_is_one_line(decoder, tmp_path):
    tensors = make_tensors()

    def refused(words, *arguments):
        result = decoder(*arguments)
        assert result.returncode == 1 and result.stdout == "" and words in result.stderr
        assert result.stderr.startswith("gemma: ") and result.stderr.count("\n") == 1

    def changed(name, metadata=None, **values):
        target = tmp_path / name
        write(target, {key: array for key, array in (tensors | values).items() if array is not None}, metadata or METADATA)
        return target

    good = changed("good")
    refused("usage")
    refused("usage", good, 0)
    refused("usage", good, "many")
    refused("nowhere", tmp_path / "nowhere")
    (tmp_path / "text").write_text("not a model, but long enough")
    refused("no safetensors", tmp_path / "text")
    (tmp_path / "no json").write_bytes(struct.pack("<Q", 8) + b"{" * 8)
    refused("no safetensors", tmp_path / "no json")
    (tmp_path / "cut").write_bytes(good.read_bytes()[:-100])
    refused("vocabulary.bytes", tmp_path / "cut")
    refused("format", changed("format", METADATA | {"format": "other"}))
    refused("head_dim", changed("dim", METADATA | {"head_dim": "many"}))
    refused("blk.3.ffn_down", changed("missing", **{"blk.3.ffn_down.weight": None}))
    refused("blk.0.attn_norm", changed("shape", **{"blk.0.attn_norm.weight": np.ones(31, np.float32)}))
    refused("token 61", changed("token", **{"prompts.user.1": np.array([61], np.int32)}))
