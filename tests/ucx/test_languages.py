"""A sender in C, and a receiver in Python. ctest gives the program: ucx.python."""

import os
import subprocess

import numpy as np
import pytest

import kvcache

LENGTH = 21


@pytest.mark.parametrize("transports, devices", [("sm,self", ""), ("tcp", "lo")])
def test_a_sender_in_c(transports, devices):
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8) for _ in range(3)]
    cache = kvcache.Cache(layers, page_size=4, capacity_tokens=256)
    cache.use_ucx(transports, devices)
    incoming = cache.receive(LENGTH, timeout=60)
    with subprocess.Popen([os.environ["KVC_UCX_PREFILL"], transports, devices], stdin=subprocess.PIPE, text=True) as process:
        process.stdin.write(incoming.describe().hex() + "\n")
        process.stdin.flush()
        sequence = incoming.wait(60)
        assert process.wait(60) == 0
    for layer in range(3):
        for is_v, rows in enumerate(cache.export(sequence, layer)[:2]):
            expected = [[[t * 0.25 + layer * 100 + is_v * 50 + d for d in range(8)]] for t in range(LENGTH)]
            np.testing.assert_array_equal(np.asarray(rows), np.array(expected, dtype=np.float32))
