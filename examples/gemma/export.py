"""The whole example as one safetensors file, for engines in other languages: weights, configuration, prompts, vocabulary.

README.md says what the file holds, so that a reader needs no tokenizer: prompts come as ids, and a text is the bytes of
its tokens, joined.
"""
import json
import struct

import numpy as np
from model import ARCHITECTURE, Config
from prompts import replacing
from texts import Texts

FORMAT = "kvcache-gemma-1"
ALIGNMENT = 64  # of the first tensor in the file, so that a program can map it and read float32 in place
TYPES = {"float32": "F32", "int32": "I32", "uint8": "U8"}


def write(target, model, files) -> None:
    """Whole or not at all."""
    texts = Texts.read(files)
    ids = {"prompts.system": texts.system, "stop_ids": sorted(texts.stop_ids)}
    ids |= {f"prompts.user.{i}": user for i, user in enumerate(texts.users)}
    offsets, pieces = vocabulary(files.tokenizer, model.vocabulary)
    kinds = np.frombuffer(files.tokenizer.kinds(model.vocabulary), np.uint8)
    tensors = files.tensors | {name: np.array(values, np.int32) for name, values in ids.items()}
    tensors |= {"vocabulary.offsets": offsets, "vocabulary.kinds": kinds,
                                "vocabulary.bytes": pieces}  # bytes last: all others stay aligned

    header, start = {"__metadata__": metadata(model.config, files, len(texts.users))}, 0
    for name, array in tensors.items():
        end = start + array.nbytes
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": array.shape, "data_offsets": (start, end)}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with replacing(target) as temporary, open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).data)


def metadata(config: Config, files, users: int) -> dict:
    """Everything that a decoder must know, as text: safetensors has no other kind."""
    values = {
        "format": FORMAT, "layers": config.layers, "embedding": config.embedding, "q_heads": config.q_heads,
        "kv_heads": config.kv_heads, "head_dim": config.head_dim, "window_tokens": config.window_tokens,
        "full_attention_every": ARCHITECTURE["full_attention_every"], "full_rope_theta": config.full_rope_theta,
        "sliding_rope_theta": ARCHITECTURE["sliding_rope_theta"], "norm_epsilon": config.norm_epsilon,
        "attention_scale": config.attention_scale, "users": users,
        "bos_id": files.metadata["tokenizer.ggml.bos_token_id"], "fingerprint": files.fingerprint().hex(),
        "embedding_scale": float(ARCHITECTURE["embedding_scale"](config.embedding)),
    }
    return {name: str(value) for name, value in values.items()}


def vocabulary(tokenizer, size: int):
    """Token i is bytes[offsets[i]:offsets[i + 1]] of UTF-8; control tokens have none."""
    pieces = [tokenizer.piece(index) for index in range(size)]
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(pieces), np.uint8)
