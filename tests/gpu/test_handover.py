"""Arrays and streams that are given to the package, on the emulated device: producers get the call's stream, different
streams wait for each other, arrays of the wrong device are refused, and capsules are released."""

import contextlib
import ctypes
import gc
import subprocess
import sys
import types

import numpy as np
import pytest
from cuda_array import CudaArray, FirstKind, alive, on_host
from dense import attention, seen_by

import kvcache
from kvcache import _streams

pytestmark = pytest.mark.only("emulated")
HEADS, DIM, TOKENS = 4, 16, 5


@pytest.fixture
def cache(device):
    layers = [kvcache.Layer(q_heads=HEADS, kv_heads=2, head_dim=DIM)] * 4
    with kvcache.Cache(layers, page_size=4, capacity_tokens=256, context=device.context()) as cache:
        yield cache
    device.synchronize()


@pytest.fixture
def numbers(rng):
    return [rng.standard_normal((TOKENS, h, DIM)).astype(np.float32) for h in (HEADS, 2, 2)]


def expected_of(numbers):
    positions = np.arange(TOKENS)
    return attention(*numbers, seen_by(positions, TOKENS), positions, positions, DIM**-0.5)[0]


@pytest.fixture
def orders(device, monkeypatch):
    """Records the driver calls of the package, which the emulation runs."""
    calls = []

    class Driver:
        @contextlib.contextmanager
        def device(self, device_id):
            assert device_id == 0
            yield

        def call(self, function, *arguments):
            calls.append((function, *(getattr(a, "value", a) for a in arguments)))
            if function == "cuEventRecord":
                self.recorded = arguments[1]
            if function == "cuStreamWaitEvent":
                device.driver.emulation_order(self.recorded, arguments[0])
            if function == "cuStreamSynchronize":
                device.synchronize()

    monkeypatch.setattr(_streams, "_opened", Driver())
    return calls


def pairs(orders):
    """(first, then) of each wait."""
    records = [c[2] for c in orders if c[0] == "cuEventRecord"]
    waits = [c[1] for c in orders if c[0] == "cuStreamWaitEvent"]
    return list(zip(records, waits))


@pytest.mark.parametrize("kind", [CudaArray, FirstKind])
def test_producers_are_told_the_steps_stream(cache, device, numbers, kind):
    before = len(alive)
    stream = device.stream()
    for given, told in ((None, 1), (stream, stream), (1, 1), (types.SimpleNamespace(cuda_stream=stream), stream),
                        (types.SimpleNamespace(ptr=stream), stream),
                        (types.SimpleNamespace(__cuda_stream__=lambda: (0, stream)), stream)):
        q, k, v = (kind(x) for x in numbers)
        out, lse = kind(np.full((TOKENS, HEADS, DIM), 7, np.float32)), kind(np.full((TOKENS, HEADS), 7, np.float32))
        with cache.forward(cache.add(), TOKENS, (0, 1), stream=given) as step:
            assert step.attend(0, q, k, v, out=out, lse=lse)[0] is out
        for array in (q, k, v, out, lse):
            assert array.streams == [told]
        device.synchronize()
        np.testing.assert_allclose(out.array, expected_of(numbers), atol=1e-5)
        assert (lse.array != 7).all()
    gc.collect()
    assert len(alive) == before  # every capsule was released


def test_a_producer_that_is_late_is_waited_for(cache, device, numbers):
    """The data arrives by a copy on the producer's stream, which __dlpack__ makes the step's stream wait for."""
    own, stream = device.stream(), device.stream()

    class Late(CudaArray):
        def made_ready(self, stream):
            device.order(own, stream)

    arrays = [Late(np.full_like(x, np.nan)) for x in numbers]
    out = CudaArray(np.zeros((TOKENS, HEADS, DIM), np.float32))
    with device.late():
        for array, x in zip(arrays, numbers):
            device.driver.emulation_copy(ctypes.c_void_p(array.array.ctypes.data), ctypes.c_void_p(x.ctypes.data),
                                         ctypes.c_size_t(x.nbytes), ctypes.c_void_p(own))
        with cache.forward(cache.add(), TOKENS, (0, 1), stream=stream) as step:
            step.attend(0, *arrays, out=out)
        assert not out.array.any()  # the call did not wait
    np.testing.assert_allclose(out.array, expected_of(numbers), atol=1e-5)


class TorchLike(CudaArray):
    """A tensor of a class whose module is called torch."""

    requires_grad = False

    def new_zeros(self, shape, dtype=None):
        return TorchLike(np.zeros(shape, dtype or self.array.dtype))


TorchLike.__module__ = "torch"


@pytest.fixture
def torch(device, monkeypatch):
    """The part of PyTorch that the package uses."""
    module = types.ModuleType("torch")
    module.stream = device.stream()
    module.float32 = np.float32
    module.cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        current_stream=lambda device_id: types.SimpleNamespace(cuda_stream=module.stream if device_id == 0 else None))
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_pytorchs_current_stream_is_the_default(cache, device, torch, numbers, orders):
    q, k, v = (TorchLike(x) for x in numbers)
    with cache.forward(cache.add(), TOKENS) as step:
        out, lse = step.attend(0, q, k, v, lse=True)
        assert type(out) is TorchLike and type(lse) is TorchLike
        for i in (1, 2, 3):
            step.append(i, k, v)
    assert set(q.streams + k.streams + v.streams + out.streams) == {torch.stream}
    assert orders == []  # with one stream there is nothing to order
    device.synchronize()
    np.testing.assert_allclose(out.array, expected_of(numbers), atol=1e-5)


def test_a_step_on_another_stream_is_waited_for(cache, device, torch, numbers, orders):
    """A step begins on one stream, and its calls are made under another. The current stream waits for the step's, so the
    result can be used."""
    stream = device.stream()
    q, k, v = (TorchLike(x) for x in numbers)
    result = np.zeros((TOKENS, HEADS, DIM), np.float32)
    with device.late():
        with cache.forward(cache.add(), TOKENS, (0, 1), stream=stream) as step:
            out = step.attend(0, q, k, v)
        device.driver.emulation_copy(ctypes.c_void_p(result.ctypes.data), ctypes.c_void_p(out.array.ctypes.data),
                                     ctypes.c_size_t(result.nbytes), ctypes.c_void_p(torch.stream))
    assert q.streams == [stream] and pairs(orders) == [(stream, torch.stream)]
    assert orders[-1][0] == "cuEventDestroy_v2"
    np.testing.assert_allclose(result, expected_of(numbers), atol=1e-5)


def test_copies_run_on_the_current_stream_and_their_results_wait_for_it(cache, device, torch, numbers, orders):
    a = cache.add()
    with cache.forward(a, TOKENS) as step:
        for i in range(4):
            step.append(i, *(TorchLike(x) for x in numbers[1:]))
    with device.late():
        b = cache.fork(a)  # copies the partial page
        k, v = cache.export(b, 2)
        assert k.device == (2, 0)
        with pytest.raises(BufferError, match="not on the CPU"):
            k.numpy()
        taken = on_host(k, stream=torch.stream), on_host(v, stream=device.stream())
    assert [first for first, _ in pairs(orders)] == [torch.stream] and len(pairs(orders)) == 1
    np.testing.assert_array_equal(taken[0], numbers[1])
    np.testing.assert_array_equal(taken[1], numbers[2])
    on_host(k, stream=-1)  # the consumer orders its own work
    with pytest.raises(ValueError, match="__dlpack__"):
        on_host(k, stream=0)
    cache.import_(cache.add(), [k] * 4, [v] * 4, as_stored=True)
    cache.commit([], [])


def test_pools_lie_in_the_servers_device_memory(device, numbers):
    memory = CudaArray(np.full((6, 2, 2, 4, DIM), np.nan, np.float32))
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=2, head_dim=DIM, kv_storage=memory)
    with kvcache.Cache([layer], [kvcache.Full(pages=6)], page_size=4, context=device.context()) as cache:
        a = cache.add()
        with cache.forward(a, TOKENS) as step:
            step.append(0, *(CudaArray(x) for x in numbers[1:]))
        device.synchronize()
        page = cache.pages(a)[0]
        np.testing.assert_array_equal(memory.array[page, 0, 1], numbers[1][:4, 1])
        pool = cache.layer_pool(0)
        assert pool.device == (2, 0) and on_host(pool).ctypes.data == memory.array.ctypes.data
    with pytest.raises(kvcache.Device, match="kv_storage: the array is on the CPU, and the call computes on cuda:0"):
        kvcache.Cache([kvcache.Layer(q_heads=HEADS, kv_heads=2, head_dim=DIM, kv_storage=memory.array)],
                      [kvcache.Full(pages=6)], page_size=4, context=device.context())


def test_arrays_of_another_device_are_refused(cache, device, numbers):
    q, k, v = (CudaArray(x) for x in numbers)
    out = CudaArray(np.zeros_like(numbers[0]))
    with cache.forward(cache.add(), TOKENS, (0, 1)) as step:
        with pytest.raises(kvcache.Device, match="q: the array is on the CPU, and the call computes on cuda:0"):
            step.attend(0, numbers[0], k, v, out=out)
        with pytest.raises(kvcache.Device, match="out: the array is on the CPU"):
            step.attend(0, q, k, v, out=np.zeros_like(numbers[0]))
        with pytest.raises(kvcache.Device, match="k: the array is on cuda:1, and the call computes on cuda:0"):
            step.attend(0, q, CudaArray(numbers[1], device_id=1), v, out=out)
        with pytest.raises(kvcache.InvalidArgument, match="out and lse are needed: how CudaArray makes new arrays"):
            step.attend(0, q, k, v)
        with pytest.raises(kvcache.InvalidArgument, match="out: the array is read-only"):
            step.attend(0, q, k, v, out=CudaArray(out.array, flags=1))
        with pytest.raises(TypeError, match="stream"):
            cache.fork([], stream="side")
        with pytest.raises(TypeError, match="q: an array with __dlpack__"):
            step.attend(0, [1.0], k, v)
        step.abort()
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=2, head_dim=DIM)
    with kvcache.Cache([layer], capacity_tokens=64) as host, host.forward(host.add(), TOKENS) as step:
        with pytest.raises(kvcache.Device, match="q: the array is on cuda:0, and the call computes on the CPU"):
            step.attend(0, fresh := CudaArray(numbers[0]), *numbers[1:])
        assert fresh.streams == []  # its memory was not even requested
        step.abort()
        with pytest.raises(kvcache.Device, match="the CPU has no streams"):
            host.forward(host.add(), TOKENS, stream=device.stream())


def test_merge(device, numbers):
    outputs = [CudaArray(x) for x in (numbers[0], numbers[0])]
    lses = [CudaArray(np.zeros((TOKENS, HEADS), np.float32)), CudaArray(np.full((TOKENS, HEADS), -np.inf, np.float32))]
    outputs, lses = ([TorchLike(x.array) for x in xs] for xs in (outputs, lses))
    module = types.ModuleType("torch")
    module.float32, stream = np.float32, device.stream()
    module.cuda = types.SimpleNamespace(is_initialized=lambda: True,
                                        current_stream=lambda _: types.SimpleNamespace(cuda_stream=stream))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", module)
        out, lse = device.context().merge_states(outputs, lses)
    assert outputs[0].streams == [stream] and out.streams == [stream]
    device.synchronize()
    np.testing.assert_allclose(out.array, numbers[0], atol=1e-6)
    np.testing.assert_allclose(lse.array, 0, atol=1e-6)


def test_the_driver_is_named_where_there_is_none(monkeypatch):
    monkeypatch.setattr(_streams, "_opened", None)
    monkeypatch.setattr(_streams.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(f"no {name}")))
    with pytest.raises(kvcache.DeviceFailure, match="libcuda.so.1"):
        _streams.order(0, 1, 2)


def test_the_plugin_is_found(device, tmp_path):
    """The plug-in is found by its path, by $KVCACHE_CUDA_BACKEND, or beside the library. Otherwise the message says what is
    missing."""
    import os
    import shutil

    plugin = os.environ["KVC_EMULATED_CUDA"]
    program = "import kvcache; print(kvcache.Context('cuda:0').describe()['device'])"

    def run(folder, **environment):
        return subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(folder), **environment},
                              capture_output=True, text=True)

    package = os.path.dirname(kvcache.__file__)
    assert run(os.path.dirname(package), KVCACHE_CUDA_BACKEND=plugin).stdout == "cuda\n"
    missing = run(os.path.dirname(package), KVCACHE_CUDA_BACKEND="/nowhere/plugin.so")
    assert missing.returncode != 0 and "DeviceUnavailable" in missing.stderr and "/nowhere/plugin.so" in missing.stderr
    copy = tmp_path / "kvcache"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"KVCACHE_CUDA_BACKEND": ""}
    assert "libkvcache_cuda.so" in run(tmp_path, **environment).stderr
    shutil.copy(plugin, copy / "libkvcache_cuda.so")
    assert run(tmp_path, **environment).stdout == "cuda\n"
    with pytest.raises(kvcache.DeviceUnavailable):
        kvcache.Context("cuda", backend=tmp_path / "no.so")
    with pytest.raises(kvcache.DeviceUnavailable, match="there are 1"):
        kvcache.Context("cuda:5", backend=plugin)
