"""A model test: random calls on a cache and on the dense lists of a scene. Every step and length is compared, and the
invariants are checked."""

import numpy as np
import pytest
from scene import Scene

import kvcache


@pytest.mark.parametrize("setting", [
    {"page": 4, "rope": True}, {"page": 16, "window": 13, "q_dtype": "bf16", "kv_dtype": "bf16"},
    {"page": 1, "q_heads": 4, "kv_heads": 2, "q_dtype": "f16", "kv_dtype": "f16"}, {"page": 8, "chunk": 11},
    {"page": 16, "kv_dtype": "int8"},
])  # fmt: skip
def test_random_calls(device, rng, sampled, setting):
    scene = Scene(device, rng, dim=32, capacity=512, max_sequences=8, rollback_tokens=256, **setting)
    rows, refused = [scene.add()], 0
    has_trees = not {"window", "chunk"} & setting.keys() and setting.get("kv_dtype") != "int8"
    for _ in range(sampled(250)):
        action = rng.integers(11)
        if action < 5:
            batch = [s for s in rows if rng.integers(2)] or rows[:1]
            lengths = [int(rng.integers(1, 9)) for _ in batch]
            try:
                scene.step(batch, lengths)
            except kvcache.OutOfPages:
                refused += 1
                if rows:
                    scene.truncate(max(rows, key=lambda s: len(scene.keys[s])), 0)
        elif action == 5 and len(rows) < 8:
            rows.append(scene.add())
        elif action in (6, 7) and len(rows) < 8:
            parent = rows[int(rng.integers(len(rows)))]
            try:
                rows.append(scene.fork(parent, int(rng.integers(len(scene.keys[parent]) + 1))))
            except (kvcache.OutOfPages, kvcache.Evicted):
                refused += 1
        elif action == 8:
            sequence = rows[int(rng.integers(len(rows)))]
            try:
                scene.truncate(sequence, int(rng.integers(len(scene.keys[sequence]) + 1)))
            except kvcache.Evicted:
                refused += 1
        elif action == 9 and has_trees:
            sequence, nodes = rows[int(rng.integers(len(rows)))], int(rng.integers(1, 9))
            parents = [-1, *(int(rng.integers(-1, node)) for node in range(1, nodes))]
            try:
                scene.step([sequence], [nodes], parents=[parents])
                scene.commit(sequence, parents, int(rng.integers(-1, nodes)))
            except kvcache.OutOfPages:
                refused += 1
        elif len(rows) > 1:
            scene.remove(rows.pop(int(rng.integers(len(rows)))))
        assert scene.cache.lengths(rows) == [len(scene.keys[s]) for s in rows]
    scene.cache.check_invariants()
    device.synchronize()
    scene.close()
