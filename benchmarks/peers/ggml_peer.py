"""ggml's flash attention on dense K and V: the shared objects that llama-cpp-python builds, called by ctypes."""
import ctypes
import importlib.util
from pathlib import Path

import numpy as np

from common import copies, huge, numbers, only

# ggml's number of a type, and the dtype that numpy has for it
TYPES = {"f32": (0, np.float32), "f16": (1, np.float16), "bf16": (30, np.uint16)}
F32, F16 = TYPES["f32"], TYPES["f16"]


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def load() -> tuple:
    folder = Path(importlib.util.find_spec("llama_cpp").submodule_search_locations[0]) / "lib"
    base, cpu = (ctypes.CDLL(str(folder / f"libggml-{name}.so"), ctypes.RTLD_GLOBAL) for name in ("base", "cpu"))
    for name in ("ggml_init", "ggml_new_tensor_4d", "ggml_flash_attn_ext", "ggml_new_graph", "ggml_get_data"):
        getattr(base, name).restype = ctypes.c_void_p
    cpu.ggml_cpu_init()
    return base, cpu


class Context:
    """A ggml context in memory on huge pages."""

    def __init__(self, base: ctypes.CDLL, size: int):
        self.base, self.memory = base, huge((size,), np.uint8)
        self.handle = ctypes.c_void_p(base.ggml_init(InitParams(size, self.memory.ctypes.data, False)))

    def tensor(self, kind: tuple, *shape: int) -> tuple:
        """A tensor, and its elements as an array with the last dimension first in memory."""
        number, dtype = kind
        handle = ctypes.c_void_p(self.base.ggml_new_tensor_4d(self.handle, number, *map(ctypes.c_int64, shape)))
        count = int(np.prod(shape))
        data = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(self.base.ggml_get_data(handle))
        return handle, np.frombuffer(data, dtype=dtype).reshape(shape[::-1])


class FlashAttention:
    def __init__(self, case: dict, threads: int):
        only(case, ("decode", "prefill"), tuple(TYPES))
        base, self.cpu = load()
        self.case, self.threads = case, threads
        batch, context, new, dim = case["batch"], case["context"], case["new_tokens"], case["head_dim"]
        rows = new * batch * case["q_heads"] * dim * 4
        self.context = Context(base, case["bytes"] * copies(case) + (2 + copies(case)) * rows + context * new * 2 + (16 << 20))
        self.work = Context(base, 64 << 20)
        q, self.q = self.context.tensor(F32, dim, new, case["q_heads"], batch)
        self.q[...] = numbers(self.q.shape, 1000)
        mask = None
        if case["work"] == "prefill":
            mask, allowed = self.context.tensor(F16, context, new, 1, 1)
            seen = np.arange(context)[None, :] <= np.arange(new)[:, None] + context - new
            allowed[...] = np.where(seen, 0, -np.inf)
        self.kv, self.graphs = [], []
        for c in range(copies(case)):
            pair = [self.context.tensor(TYPES[case["dtype"]], dim, context, case["kv_heads"], batch) for _ in range(2)]
            for seed, (_, array) in enumerate(pair):
                values = numbers(array.shape, 2 * c + seed)
                array[...] = values.view(np.uint32) >> 16 if array.dtype == np.uint16 else values
            self.kv.append([array for _, array in pair])
            out = ctypes.c_void_p(base.ggml_flash_attn_ext(
                self.context.handle, q, pair[0][0], pair[1][0], mask, ctypes.c_float(dim ** -0.5), ctypes.c_float(0),
                ctypes.c_float(0)))
            graph = ctypes.c_void_p(base.ggml_new_graph(self.context.handle))
            base.ggml_build_forward_expand(graph, out)
            self.graphs.append((graph, base.ggml_get_data(out)))

    def run(self, turn: int) -> None:
        self.work.base.ggml_reset(self.work.handle)
        self.cpu.ggml_graph_compute_with_ctx(self.work.handle, self.graphs[turn % len(self.graphs)][0], self.threads)

    def one_row(self) -> tuple:
        dim, heads, last = self.case["head_dim"], self.case["q_heads"], self.case["new_tokens"] - 1
        out = np.frombuffer((ctypes.c_float * (dim * heads * (last + 1))).from_address(self.graphs[0][1]), np.float32)
        k, v = (array[0, 0] for array in self.kv[0])
        if k.dtype == np.uint16:
            k, v = ((x.astype(np.uint32) << 16).view(np.float32) for x in (k, v))
        return out.reshape(last + 1, heads, dim)[last, 0], self.q[0, 0, last], k, v
