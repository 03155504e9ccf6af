"""OpenVINO's PagedAttention over shuffled blocks of 32 tokens."""
import numpy as np
import openvino as ov
from openvino import Dimension, PartialShape, Type, op
from openvino._pyopenvino.op import _PagedAttentionExtension

from common import NotSupported, block_tables, huge, numbers, only

# inference precision, and the type of the cache
PRECISIONS = {"f32": (Type.f32, Type.f32), "bf16": (Type.bf16, Type.bf16)}


def graph(case: dict) -> ov.Model:
    """One attention operator. Its 28 inputs are in order. An empty constant switches a feature off."""
    dim, rows = case["head_dim"], Dimension(-1)
    widths = (case["q_heads"] * dim, case["kv_heads"] * dim, case["kv_heads"] * dim)

    def parameter(name: str, kind: Type, shape: list) -> op.Parameter:
        node = op.Parameter(kind, PartialShape(shape))
        node.output(0).set_names({name})
        return node

    inputs = [parameter(name, Type.f32, [rows, width]) for name, width in zip("qkv", widths)]
    inputs += [parameter(name, Type.dynamic, [-1, -1, -1, -1]) for name in ("key_cache", "value_cache")]
    inputs += [parameter(name, Type.i32, [-1]) for name in ("past_lens", "subsequence_begins", "block_indices",
                                                            "block_indices_begins")]
    largest = parameter("max_context_len", Type.i32, [])

    def constant(value, kind) -> op.Constant:
        return op.Constant(np.array(value, dtype=kind))

    none, no_floats = constant([], np.int32), constant([], np.float32)
    zero = constant(0, np.int32)
    options = [constant(dim ** -0.5, np.float32), zero, no_floats, largest,  # scale, window, slopes
               none,                                                          # score aggregation
               none, constant(np.zeros((0, 0)), np.int32), constant(np.zeros((0, 0)), np.float32),  # rotation
               no_floats, zero, zero,                                         # sparse attention
               constant(np.zeros((0, 0, 0, 0)), np.float32),                  # sinks
               zero, none, none, none,                                        # adaptive eviction
               none, constant([], np.uint8), none]                            # token types, biases
    attention = _PagedAttentionExtension([node.output(0) for node in inputs + options])
    for name, value in (("num_k_heads", case["kv_heads"]), ("k_head_size", dim), ("num_v_heads", case["kv_heads"]),
                        ("v_head_size", dim)):
        attention.get_rt_info()[name] = value
    return ov.Model([attention.output(0)], inputs + [largest], "attention")


class PagedAttention:
    def __init__(self, case: dict, threads: int):
        only(case, ("decode", "prefill", "shared-prefix"), tuple(PRECISIONS))
        inference, stored = PRECISIONS[case["dtype"]]
        compiled = ov.Core().compile_model(graph(case), "CPU", {
            "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": inference,
            "KV_CACHE_PRECISION": stored})
        self.request, self.case = compiled.create_infer_request(), case
        batch, context, new, dim = case["batch"], case["context"], case["new_tokens"], case["head_dim"]
        shape = compiled.input("key_cache").get_partial_shape()
        block = shape[2].get_length()
        if compiled.input("key_cache").get_element_type() != stored:
            raise NotSupported(f"stores {compiled.input('key_cache').get_element_type()}")
        self.tables = block_tables(case, block)
        self.copies, _, each = self.tables.shape
        self.q = numbers((batch * new, case["q_heads"] * dim), 1000)
        fresh = [numbers((batch * new, case["kv_heads"] * dim), seed) for seed in (1001, 1002)]
        self.caches = []
        for seed in (0, 1):
            cache = huge((int(self.tables.max()) + 1, case["kv_heads"], block, dim), "float32" if stored == Type.f32 else "uint16")
            values = numbers(cache.shape, seed)
            cache[...] = values if stored == Type.f32 else values.view(np.uint32) >> 16
            self.caches.append(cache)
        ints = {"past_lens": [context - new] * batch, "subsequence_begins": range(0, batch * new + 1, new),
                "block_indices_begins": range(0, batch * each + 1, each), "max_context_len": context}
        tensors = {name: ov.Tensor(np.array(value, dtype=np.int32)) for name, value in ints.items()}
        tensors |= {name: ov.Tensor(array) for name, array in zip("qkv", (self.q, *fresh))}
        for name, cache in zip(("key_cache", "value_cache"), self.caches):
            tensors[name] = ov.Tensor(cache, shared_memory=True) if stored == Type.f32 else \
                ov.Tensor(cache, cache.shape, stored)  # numpy has no bf16
        for name, tensor in tensors.items():
            self.request.set_tensor(name, tensor)
        self.lists = [ov.Tensor(np.ascontiguousarray(table.ravel())) for table in self.tables]

    def run(self, turn: int) -> None:
        self.request.set_tensor("block_indices", self.lists[turn % self.copies])
        self.request.infer()

    def one_row(self) -> tuple:
        last, dim = self.case["new_tokens"] - 1, self.case["head_dim"]
        out = self.request.get_output_tensor(0).data.reshape(-1, self.case["q_heads"] * dim)
        k, v = (cache[self.tables[0, 0], 0].reshape(-1, dim)[:self.case["context"]] for cache in self.caches)
        if k.dtype == np.uint16:
            k, v = ((x.astype(np.uint32) << 16).view(np.float32) for x in (k, v))
        return out[last, :dim], self.q[last, :dim], k, v
