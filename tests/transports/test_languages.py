"""A sender in C, and a receiver in Python. ctest gives the program and the transport: ucx.python and nixl.python."""

import os
import subprocess

import numpy as np
import pytest

import kvcache

LENGTH = 21


@pytest.mark.parametrize("variable, options", [
    pytest.param("KVCACHE_UCX_LIBRARY", "sm,self", id="ucx_shared_memory"),
    pytest.param("KVCACHE_UCX_LIBRARY", "tcp/lo", id="ucx_tcp"),
    pytest.param("KVCACHE_NIXL_LIBRARY", "engine_config=TLS=sm;ucx_error_handling_mode=none", id="nixl_shared_memory"),
    pytest.param("KVCACHE_NIXL_LIBRARY", "engine_config=TLS=tcp,NET_DEVICES=lo", id="nixl_tcp"),
])
def test_a_sender_in_c(variable, options):
    library = os.environ[variable]
    if "NIXL" in variable and "KVCACHE_NIXL_CAPI" not in os.environ:
        pytest.skip("KVCACHE_NIXL_CAPI does not name libnixl_capi.so: bash scripts/setup_nixl.sh installs it")
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8) for _ in range(3)]
    cache = kvcache.Cache(layers, page_size=4, capacity_tokens=256)
    cache.set_transport(library, options)
    incoming = cache.receive(LENGTH, timeout=60)
    with subprocess.Popen([os.environ["KVC_PREFILL"], library, options], stdin=subprocess.PIPE, text=True) as process:
        process.stdin.write(incoming.describe().hex() + "\n")
        process.stdin.flush()
        sequence = incoming.wait(60)
        assert process.wait(60) == 0
    for layer in range(3):
        for is_v, rows in enumerate(cache.export(sequence, layer)[:2]):
            expected = [[[t * 0.25 + layer * 100 + is_v * 50 + d for d in range(8)]] for t in range(LENGTH)]
            np.testing.assert_array_equal(np.asarray(rows), np.array(expected, dtype=np.float32))
