"""Tensors of PyTorch, CuPy and JAX on a GPU, on their streams: the results are equal, and ready when they are used."""

import numpy as np
import pytest
from dense import attention, seen_by

import kvcache

pytestmark = pytest.mark.only("cuda")
HEADS, DIM, TOKENS = 8, 64, 200


@pytest.fixture
def cache(device):
    layers = [kvcache.Layer(q_heads=HEADS, kv_heads=2, head_dim=DIM)] * 4
    with kvcache.Cache(layers, capacity_tokens=8192, context=device.context()) as cache:
        yield cache
        device.synchronize()


@pytest.fixture
def numbers(rng):
    return [rng.standard_normal((TOKENS, h, DIM)).astype(np.float32) for h in (HEADS, 2, 2)]


def check(out, numbers):
    positions = np.arange(TOKENS)
    wanted, _ = attention(*numbers, seen_by(positions, TOKENS), positions, positions, DIM**-0.5)
    np.testing.assert_allclose(out, wanted, atol=1e-4)


def test_pytorch_on_every_stream(device, cache, numbers):
    """Inputs are in flight on the current stream. The step is on this stream, on another one, or begun under another one."""
    torch = device.torch
    side, third = torch.cuda.Stream(), torch.cuda.Stream()
    for begun_on, called_on in ((None, None), (side, side), (side, None), (None, side), (side, third)):
        device.synchronize()
        with torch.cuda.stream(called_on):
            arrays = [torch.from_numpy(x).cuda() for x in numbers]
            torch.cuda._sleep(20_000_000)
            arrays = [x * 2 / 2 for x in arrays]  # after the sleep
            stream = begun_on if begun_on is not None else torch.cuda.default_stream()
            with cache.forward(cache.add(), TOKENS, (0, 1), stream=stream) as step:
                out, lse = step.attend(0, *arrays, lse=True)
            result = (out * 1).cpu()  # on the current stream, which waits for the step's
        assert out.is_cuda and lse.dtype == torch.float32
        check(result.numpy(), numbers)


def test_exports_are_ready_on_the_consumers_stream(device, cache, numbers):
    torch = device.torch
    a, side = cache.add(), torch.cuda.Stream()
    with cache.forward(a, TOKENS) as step:
        torch.cuda._sleep(20_000_000)
        for i in range(4):
            step.append(i, *(torch.from_numpy(x).cuda() for x in numbers[1:]))
    k, v = cache.export(a, 3)
    with torch.cuda.stream(side):
        taken = torch.from_dlpack(k) * 1, torch.from_dlpack(v) * 1
        with pytest.raises(kvcache.Device, match="cpu|CPU"):
            cache.import_(cache.add(), [torch.zeros(3, 2, DIM)] * 4, [torch.zeros(3, 2, DIM)] * 4)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(taken[0].cpu().numpy(), numbers[1])
    np.testing.assert_array_equal(taken[1].cpu().numpy(), numbers[2])


def test_cupy(device, cache, numbers):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    with cupy.cuda.Stream(non_blocking=True):
        arrays = [cupy.asarray(x) for x in numbers]
        with cache.forward(cache.add(), TOKENS, (0, 1)) as step:
            out, lse = step.attend(0, *arrays, lse=True)
        assert type(out) is cupy.ndarray and type(lse) is cupy.ndarray
        check(cupy.asnumpy(out), numbers)


def test_jax(device, cache, numbers):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    arrays = [jax.numpy.asarray(x) for x in numbers]
    with cache.forward(cache.add(), TOKENS, (0, 1)) as step:
        out, lse = step.attend(0, *arrays, lse=True)
    assert isinstance(out, jax.Array) and lse.shape == (TOKENS, HEADS)
    check(np.asarray(out * 1), numbers)
