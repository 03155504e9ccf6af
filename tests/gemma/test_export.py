"""The file for decoders in other languages. The test parses it as README.md describes it."""
import json
import struct
import subprocess
import sys

import numpy as np
from conftest import EXAMPLE

TYPES = {"F32": np.float32, "I32": np.int32, "U8": np.uint8}


def read(target):
    raw = np.memmap(target, np.uint8, "r")
    length = struct.unpack("<Q", raw[:8].tobytes())[0]
    header, data = json.loads(raw[8:8 + length].tobytes()), raw[8 + length:]
    metadata = header.pop("__metadata__")
    assert (8 + length) % 64 == 0
    spans = sorted(entry["data_offsets"] for entry in header.values())
    assert spans[0][0] == 0 and spans[-1][1] == len(data)
    assert all(left[1] == right[0] for left, right in zip(spans, spans[1:]))  # safetensors: no holes
    return metadata, {name: data[slice(*entry["data_offsets"])].view(TYPES[entry["dtype"]]).reshape(entry["shape"])
                      for name, entry in header.items()}


def test_export_holds_the_model_and_the_demo(exported, model, files):
    from texts import Texts
    metadata, tensors = read(exported)
    texts, config = Texts.read(files), model.config
    assert all(np.array_equal(tensors[name], array) for name, array in files.tensors.items())
    assert tensors["prompts.system"].tolist() == texts.system and set(tensors["stop_ids"]) == texts.stop_ids
    assert [tensors[f"prompts.user.{i}"].tolist() for i in range(int(metadata["users"]))] == texts.users
    for name in ("layers", "embedding", "q_heads", "kv_heads", "head_dim", "window_tokens", "full_rope_theta", "norm_epsilon"):
        assert float(metadata[name]) == getattr(config, name), name
    every = int(metadata["full_attention_every"])
    assert [i % every == every - 1 for i in range(config.layers)] == [config.is_full(i) for i in range(config.layers)]


def test_pieces_join_to_the_tokenizers_text(exported, files):
    _, tensors = read(exported)
    offsets, text = tensors["vocabulary.offsets"], tensors["vocabulary.bytes"].tobytes()
    join = lambda ids: b"".join(text[offsets[i]:offsets[i + 1]] for i in ids).decode()
    for sample in ("The heart is a pump.\n\n", "  two  spaces\tand a tab", "na\u00efve \u65e5\u672c\u8a9e \U0001f9e0 \u1e9e", "a<b>&\"\\"):
        ids = files.tokenizer.encode(sample)
        assert join(ids) == files.tokenizer.decode(ids) == sample


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    command = [sys.executable, str(EXAMPLE / "generate.py"), "--export", str(tmp_path / "none" / "file")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and result.stderr.count("\n") == 1 and "cannot write" in result.stderr
