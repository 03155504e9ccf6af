"""The devices of these tests: the CPU with numpy, the emulated CUDA backend, and a CUDA GPU with PyTorch."""

import contextlib
import ctypes
import os

import numpy as np
from cuda_array import CudaArray, on_host

import kvcache

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "int8": np.dtype(np.int8), "i32": np.dtype(np.int32)}
with contextlib.suppress(ImportError):  # a GPU does not need it
    import ml_dtypes

    DTYPES |= {"bf16": np.dtype(ml_dtypes.bfloat16), "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
               "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2)}
POISON = 7.0e4  # finite in bfloat16 and float32; in float16 infinite


def rounded(values, dtype):
    """The numbers rounded to an element type: an array of this type, or of float32 if numpy does not have it."""
    with np.errstate(over="ignore"):
        values = np.asarray(values, np.float64).astype(np.float32)
        if dtype in DTYPES:
            return values.astype(DTYPES[dtype])
    import torch

    kind = {"bf16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}[dtype]
    return torch.tensor(values).to(kind).float().numpy()


class Cpu:
    name = "cpu"
    share = 0.3  # of the cases of sampled grids that a GPU runs
    library = "numpy"

    def __init__(self):
        self._context = self.open()

    def open(self, **options):
        """A context of its own."""
        return kvcache.Context(**options)

    def context(self):
        return self._context

    def array(self, values, dtype="f32"):
        """A new array on the device."""
        return np.ascontiguousarray(rounded(values, dtype) if dtype != "i32" else np.asarray(values, np.int32))

    def host(self, array):
        """The values of an array. It waits for the device."""
        return np.asarray(array)

    def poisoned(self, shape, dtype="f32"):
        return self.array(np.full(shape, POISON), dtype)

    def untouched(self, shape, dtype):
        """An uninitialised array. On the host, parts that nothing writes take no memory."""
        return np.zeros(shape, DTYPES[dtype])

    def put(self, array, values, dtype="f32", stream=None):
        """Writes values into the first rows of an array, on a stream."""
        array[: len(values)] = self.array(values, dtype)

    def synchronize(self):
        pass

    @contextlib.contextmanager
    def late(self, *streams):
        """Within it, no work on these streams (none: on the default one) has finished. Gives a function that returns True
        while that holds, and False after the host had to wait. On this device, calls return with their work done."""
        yield lambda: True

    def rounds(self):
        """How to run a test of work in flight: with `late`, after a run that loads and allocates everything."""
        return [self.late]


class Emulated(Cpu):
    """The CUDA backend on an emulation of CUDA on the host (tests/cuda/emulation), a plug-in that is loaded by its path."""

    name = "emulated"
    share = 0.08
    library = None

    def __init__(self):
        self._path = os.environ["KVC_EMULATED_CUDA"]
        self._context = self.open()
        self.driver = ctypes.CDLL(self._path)
        self.driver.emulation_stream.restype = ctypes.c_void_p
        self.driver.emulation_end_capture.restype = ctypes.c_void_p
        self._kept = []

    def open(self, **options):
        return kvcache.Context("cuda", backend=self._path, **options)

    def array(self, values, dtype="f32"):
        array = CudaArray(super().array(values, dtype))
        self._kept.append(array)  # queued calls still read it
        return array

    def untouched(self, shape, dtype):
        return CudaArray(super().untouched(shape, dtype))

    def host(self, array):
        self.synchronize()
        return array.array if isinstance(array, CudaArray) else on_host(array)

    def synchronize(self):
        self.driver.emulation_synchronize()
        self._kept.clear()

    def put(self, array, values, dtype="f32", stream=None):
        source = self.array(values, dtype).array
        assert source.dtype == array.array.dtype and source.nbytes <= array.array.nbytes
        self.driver.emulation_copy(ctypes.c_void_p(array.array.ctypes.data), ctypes.c_void_p(source.ctypes.data),
                                   ctypes.c_size_t(source.nbytes), ctypes.c_void_p(stream))

    @contextlib.contextmanager
    def late(self, *streams):
        self.driver.emulation_defer(1)
        marks = [(np.zeros(1), np.ones(1)) for _ in streams or (None,)]
        for (mark, done), stream in zip(marks, streams or (None,)):
            self.driver.emulation_copy(ctypes.c_void_p(mark.ctypes.data), ctypes.c_void_p(done.ctypes.data),
                                       ctypes.c_size_t(mark.nbytes), ctypes.c_void_p(stream))
        try:
            yield lambda: not any(mark.any() for mark, _ in marks)
        finally:
            self.driver.emulation_defer(0)
            self.synchronize()

    def lose(self):
        """Makes the device refuse all further work of this process."""
        self.driver.emulation_fail(ctypes.c_int64(1), 710)  # cudaErrorAssert

    def stream(self):
        return self.driver.emulation_stream()

    def on(self, stream):
        return contextlib.nullcontext()

    def order(self, first, then):
        self.driver.emulation_order(ctypes.c_void_p(first), ctypes.c_void_p(then))

    @contextlib.contextmanager
    def capture(self, stream):
        """Within it, work on the stream is recorded and does not run. Gives a function that enqueues the recorded work, as
        often as it is called."""
        self.driver.emulation_begin_capture(ctypes.c_void_p(stream))
        graph = []
        try:
            yield lambda: self.driver.emulation_launch(ctypes.c_void_p(graph[0]), ctypes.c_void_p(stream))
        finally:
            graph.append(self.driver.emulation_end_capture(ctypes.c_void_p(stream)))


class Card(Cpu):
    """A CUDA GPU. PyTorch manages its memory and streams."""

    name = "cuda"
    share = 1.0
    library = "torch"

    def __init__(self):
        import torch

        self.torch = torch
        torch.cuda.init()
        self._context = self.open()
        self._uploads, self._kept = torch.cuda.Stream(), []
        self._types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8,
                       "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "i32": torch.int32}

    def open(self, **options):
        options.setdefault("simd", os.environ.get("KVC_GPU_SIMD"))  # for kernels that are not the default
        return kvcache.Context("cuda:0", **options)

    def product(self, a, b):
        """Product of matrices in float64. numpy would take long for the sizes that a GPU can hold."""
        with self.torch.cuda.stream(self._uploads):  # on other streams the copies would wait for work in flight
            a, b = (self.torch.from_numpy(np.ascontiguousarray(x)).cuda() for x in (a, b))
            return (a @ b).cpu().numpy()

    def array(self, values, dtype="f32"):
        # A copy of pageable memory waits for its stream. On a stream of its own it does not wait for work in flight.
        values = np.ascontiguousarray(values, np.int32 if dtype == "i32" else np.float32)
        with self.torch.cuda.stream(self._uploads):
            array = self.torch.from_numpy(values).to(self._types[dtype]).cuda()
        self._uploads.synchronize()
        self._kept.append(array)  # kept, because PyTorch would give its memory to that stream while calls on others read it
        return array

    def host(self, array):
        self.torch.cuda.synchronize()  # for writes on any stream, because a copy only waits for its own
        if isinstance(array, kvcache.Tensor):
            array = self.torch.from_dlpack(array)
        array = array.detach().cpu()
        if array.dtype in (self.torch.bfloat16, self.torch.float8_e4m3fn, self.torch.float8_e5m2):
            array = array.float()
        return array.numpy()

    def untouched(self, shape, dtype):
        return self.torch.empty(shape, device="cuda", dtype=self._types[dtype])

    def poisoned(self, shape, dtype="f32"):
        return self.torch.full(shape, POISON, device="cuda").to(self._types[dtype])

    def put(self, array, values, dtype="f32", stream=None):
        given = self.array(values, dtype)
        with self.on(stream):
            array[: len(given)].copy_(given)

    def synchronize(self):
        self.torch.cuda.synchronize()
        self._kept.clear()

    @contextlib.contextmanager
    def late(self, *streams):
        cuda, ends = self.torch.cuda, []
        self.synchronize()
        for stream in streams or (cuda.current_stream(),):
            with cuda.stream(stream):
                cuda._sleep(1_500_000_000)  # clocks: most of a second; other processes may share the GPU
                ends.append(cuda.Event())
                ends[-1].record()
        yield lambda: not any(end.query() for end in ends)
        self.synchronize()

    def works(self):
        """False after the GPU has begun to refuse all work of this process."""
        try:
            self.synchronize()
        except RuntimeError:
            return False
        return True

    def rounds(self):
        return [Cpu.late.__get__(self), self.late]  # the first use of a kernel loads it, and may wait

    def lose(self):
        with contextlib.suppress(RuntimeError):
            self.torch.zeros(1, device="cuda")[self.array([1 << 20], "i32").long()]  # an assertion in PyTorch's kernel
            self.torch.cuda.synchronize()

    def stream(self):
        return self.torch.cuda.Stream()

    def on(self, stream):
        return self.torch.cuda.stream(stream)

    def order(self, first, then):
        then.wait_stream(first)

    @contextlib.contextmanager
    def capture(self, stream):
        graph = self.torch.cuda.CUDAGraph()

        def replay():
            with self.torch.cuda.stream(stream):
                graph.replay()

        with self.torch.cuda.graph(graph, stream=stream):
            yield replay


def why_not(name):
    """The reason why a device is not available, or None."""
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
