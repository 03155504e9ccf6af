"""libkvcache's attention as operators of PyTorch, which torch.compile, torch.export and AOTInductor keep in their graphs.

    import torch, kvcache_torch
    torch.ops.kvcache.append_slots(k, v, k_cache, v_cache, slot_mapping)
    out, lse = torch.ops.kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths, block_table=table, causal=True)

The import loads the operators, and says which results they have, which a program needs to capture a graph. A process that
only runs captured graphs needs no more than `torch.ops.load_library(library)`, or in C++ dlopen of that file.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

__all__ = ["library"]

library = str(Path(__file__).parent / "libkvcache_torch.so")
"""The file that has the operators."""

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)

torch.ops.load_library(library)


def _refuse_mixed_meta(operator: str, *tensors: Tensor | None) -> None:
    """PyTorch computes nothing if one tensor is on the meta device, even if the others are not."""
    devices = {tensor.device.type for tensor in tensors if tensor is not None}
    if "meta" in devices and len(devices) > 1:
        raise RuntimeError(f"kvcache::{operator}: tensors are on the devices {', '.join(sorted(devices))}")


@torch.library.register_fake("kvcache::append_slots")
def _append_slots(k, v, k_cache, v_cache, slot_mapping, **_options):
    _refuse_mixed_meta("append_slots", k, v, k_cache, v_cache, slot_mapping)


@torch.library.register_fake("kvcache::flash_attn_with_kvcache")
def _flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, *, cu_seqlens_q=None, **_options):
    _refuse_mixed_meta("flash_attn_with_kvcache", q, k_cache, v_cache, k, v)
    rank = 4 if cu_seqlens_q is None else 3
    if q.dim() != rank or v_cache.dim() != 4:
        raise RuntimeError(f"kvcache::flash_attn_with_kvcache: q has {q.dim()} dims and v_cache {v_cache.dim()}, not {rank} and 4")
    out = q.new_empty((*q.shape[:-1], v_cache.shape[-1]), dtype=torch.bfloat16 if q.dtype in _FLOAT8 else q.dtype)
    rows = (q.shape[0],) if rank == 4 else ()
    return out, q.new_empty((*rows, q.shape[-2], q.shape[-3]), dtype=torch.float32)


@torch.library.register_fake("kvcache::merge_states")
def _merge_states(outputs: list[Tensor], lses: list[Tensor]):
    _refuse_mixed_meta("merge_states", *outputs, *lses)
    if outputs[0].dim() != 3:
        raise RuntimeError(f"kvcache::merge_states: outputs[0] has {outputs[0].dim()} dims, not the three of [T, H, Dv]")
    out = outputs[0].new_empty(outputs[0].shape, dtype=torch.float32)
    return out, out.new_empty(out.shape[:2])
