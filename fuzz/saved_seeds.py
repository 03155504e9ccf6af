#!/usr/bin/env python3
"""Writes the seeds of fuzz/corpus/saved: sequences of the cache of saved.cc, by the Python package. saved_seeds.py FOLDER"""
import io
import sys
from pathlib import Path

import numpy as np

import kvcache

KV, PLAIN, REPAIRED = dict(q_heads=1, kv_heads=1, head_dim=2), b"\0", b"\1"


def make() -> kvcache.Cache:
    layers = [kvcache.Layer(group, **KV) for group in range(3)] + [kvcache.RecurrentLayer(3, [kvcache.StateTensor((1,))])]
    groups = [kvcache.Full(), kvcache.Sliding(3), kvcache.Cross(), kvcache.Recurrent()]
    return kvcache.Cache(layers, groups, page_size=2, max_sequences=3, max_checkpoints=2, capacity_tokens=64, rollback_tokens=2,
                         streaming=True)  # fmt: skip


def step(cache: kvcache.Cache, sequence: int, tokens: int) -> None:
    rows = np.arange(2 * tokens, dtype=np.float32).reshape(tokens, 1, 2)
    with cache.forward([sequence], [tokens]) as forward:
        forward.append(0, rows, rows)
        forward.append(1, rows, rows)
        forward.store_state(3, 0, np.ones((1, 1), np.float32))


def main() -> None:
    folder = Path(sys.argv[1])
    with make() as cache:
        sequence, saved = cache.add(), {}

        def save(name: str, **more: object) -> None:
            file = io.BytesIO()
            cache.save(sequence, file, section_bytes=4096, **more)
            saved[name] = file.getvalue()

        save("empty")
        with cache.forward([sequence], [3], encoder_group=2) as forward:
            forward.append(2, np.ones((3, 1, 2), np.float32), np.ones((3, 1, 2), np.float32))
        step(cache, sequence, 2)
        save("short", tokens=[1, 2])
        cache.checkpoint(sequence)
        step(cache, sequence, 7)
        save("window", tokens=range(9))
        cache.checkpoint(sequence)
        cache.set_streaming(sequence, sinks=1, window=4)
        step(cache, sequence, 6)
        save("stream")
    for name, data in saved.items():
        for kind, first in (("plain", PLAIN), ("repaired", REPAIRED)):
            (folder / f"seed-{name}-{kind}").write_bytes(first + data)


if __name__ == "__main__":
    main()
