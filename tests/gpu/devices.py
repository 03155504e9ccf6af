"""Where the tests here compute: the CPU over numpy, the emulated CUDA backend, a CUDA card over PyTorch."""

import contextlib
import ctypes
import os

import dense
import ml_dtypes
import numpy as np
from cuda_array import CudaArray, on_host

import kvcache

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
          "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn), "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
          "int8": np.dtype(np.int8), "i32": np.dtype(np.int32)}
POISON = 7.0e4  # finite in bfloat16 and float32; in float16 infinite


def rounded(values, dtype):
    """What an element type makes of numbers."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(np.float32).astype(DTYPES[dtype])


class Cpu:
    name = "cpu"
    share = 0.3  # of what a card takes of sampled grids
    library = "numpy"

    def __init__(self):
        self._context = kvcache.Context()

    def context(self):
        return self._context

    def array(self, values, dtype="f32"):
        """A new array on the device."""
        return np.ascontiguousarray(rounded(values, dtype) if dtype != "i32" else np.asarray(values, np.int32))

    def host(self, array):
        """Its values; waits for the device."""
        return np.asarray(array)

    def poisoned(self, shape, dtype="f32"):
        return self.array(np.full(shape, POISON), dtype)

    def synchronize(self):
        pass

    @contextlib.contextmanager
    def late(self):
        """While it lasts, nothing of what is put on the device's streams is done yet, as far as that can be had."""
        yield


class Emulated(Cpu):
    """The CUDA backend over an emulation of CUDA on the host (tests/cuda/emulation): a plug-in by its path."""

    name = "emulated"
    share = 0.08
    library = None

    def __init__(self):
        path = os.environ["KVC_EMULATED_CUDA"]
        self._context = kvcache.Context("cuda", backend=path)
        self.driver = ctypes.CDLL(path)
        self.driver.emulation_stream.restype = ctypes.c_void_p
        self._kept = []

    def array(self, values, dtype="f32"):
        array = CudaArray(super().array(values, dtype))
        self._kept.append(array)  # calls that are queued still read it
        return array

    def host(self, array):
        self.synchronize()
        return array.array if isinstance(array, CudaArray) else on_host(array)

    def synchronize(self):
        self.driver.emulation_synchronize()
        self._kept.clear()

    @contextlib.contextmanager
    def late(self):
        self.driver.emulation_defer(1)
        try:
            yield
        finally:
            self.driver.emulation_defer(0)
            self.synchronize()

    def stream(self):
        return self.driver.emulation_stream()

    def on(self, stream):
        return contextlib.nullcontext()

    def order(self, first, then):
        self.driver.emulation_order(ctypes.c_void_p(first), ctypes.c_void_p(then))


class Card(Cpu):
    """A CUDA card, its memory and streams as PyTorch's."""

    name = "cuda"
    share = 1.0
    library = "torch"

    def __init__(self):
        import torch

        self.torch = torch
        torch.cuda.init()
        dense.product = lambda a, b: (self._double(a) @ self._double(b)).cpu().numpy()
        self._context = kvcache.Context("cuda:0", simd=os.environ.get("KVC_GPU_SIMD"))  # kernels that none gets unasked
        self._types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8,
                       "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "i32": torch.int32}

    def _double(self, array):
        return self.torch.from_numpy(np.ascontiguousarray(array)).cuda()

    def array(self, values, dtype="f32"):
        values = np.ascontiguousarray(values, np.int32 if dtype == "i32" else np.float32)
        return self.torch.from_numpy(values).cuda().to(self._types[dtype])

    def host(self, array):
        if isinstance(array, kvcache.Tensor):
            array = self.torch.from_dlpack(array)
        array = array.detach().cpu()
        if array.dtype in (self.torch.bfloat16, self.torch.float8_e4m3fn, self.torch.float8_e5m2):
            array = array.float()
        return array.numpy()

    def poisoned(self, shape, dtype="f32"):
        return self.torch.full(shape, POISON, device="cuda").to(self._types[dtype])

    def synchronize(self):
        self.torch.cuda.synchronize()

    @contextlib.contextmanager
    def late(self):
        self.torch.cuda._sleep(200_000_000)  # clocks: about a tenth of a second
        yield
        self.synchronize()

    def stream(self):
        return self.torch.cuda.Stream()

    def on(self, stream):
        return self.torch.cuda.stream(stream)

    def order(self, first, then):
        then.wait_stream(first)


def why_not(name):
    """Why a device cannot be had here, or None."""
    if name == "emulated" and not os.environ.get("KVC_EMULATED_CUDA"):
        return "KVC_EMULATED_CUDA does not name the emulated plug-in (tests/cuda)"
    if name != "cuda":
        return None
    try:
        import torch
    except ImportError:
        return "a CUDA card's memory is taken from PyTorch, which is not installed"
    return None if torch.cuda.is_available() else "PyTorch sees no CUDA card"


MAKERS = {"cpu": Cpu, "emulated": Emulated, "cuda": Card}
