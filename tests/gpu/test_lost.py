"""A device that is lost, for any reason. Every later call of its caches reports it with CUDA's name of the error. The caches
can be closed, and the CPU backend still works. The test runs in a process of its own, because the GPU refuses all its later
work."""

import os
import subprocess
import sys

import numpy as np
import pytest
from devices import MAKERS

import kvcache

pytestmark = pytest.mark.only("emulated", "cuda")


def test_a_lost_device(device):
    child = subprocess.run([sys.executable, __file__, device.name], env={**os.environ, "PYTHONFAULTHANDLER": "1"},
                           capture_output=True, text=True, timeout=50)
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stdout.endswith("the CPU works on\n")


def main(name):
    device = MAKERS[name]()
    cache = kvcache.Cache([kvcache.Layer(head_dim=16)], page_size=16, capacity_tokens=256, context=device.context())
    rows, out = (device.poisoned((3, 1, 16)) for _ in "ro")

    def step():
        with cache.forward(sequence, 3) as step:
            step.attend(0, rows, rows, rows, out=out)

    sequence = cache.add()
    step()
    cache.fork(sequence)
    device.synchronize()
    device.lose()
    said = []
    for call in (lambda: cache.fork(sequence), step, step, lambda: cache.truncate(sequence, 1), lambda: cache.export(sequence, 0)):
        with pytest.raises(kvcache.DeviceFailure) as failure:
            call()
        said.append(str(failure.value))
    assert all("cudaErrorAssert" in text for text in said), said
    assert "failed before" in said[-1] and "destroy what is on it" in said[-1], said
    with pytest.raises(kvcache.DeviceFailure, match="cudaErrorAssert"):
        kvcache.Cache([kvcache.Layer(head_dim=16)], capacity_tokens=64, context=device.context())
    cache.check_invariants()
    cache.close()

    with kvcache.Cache([kvcache.Layer(head_dim=16)], capacity_tokens=64, context=kvcache.Context()) as cache:
        sequence, rows = cache.add(), np.ones((3, 1, 16), np.float32)
        with cache.forward(sequence, 3) as step:
            np.testing.assert_allclose(step.attend(0, rows, rows, rows), rows)
    print("the CPU works on", flush=True)
    os._exit(0)  # ignores what PyTorch reports about its memory at exit


if __name__ == "__main__":
    main(sys.argv[1])
