"""An attention backend of SGLang over libkvcache's stateless calls.

K and V stay in SGLang's pool. A page of the pool is a page of libkvcache's calls, and a request's row of req_to_token gives its
page table.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import kvcache
import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType

__all__ = ["KvcacheAttnBackend", "create"]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass
class _Step:
    """What all layers of a forward have in common."""

    page_table: torch.Tensor  # [requests, pages]
    lengths: torch.Tensor  # [requests]: tokens of each request, the new ones included
    starts: torch.Tensor  # [requests + 1]: of each request's new tokens


@functools.cache
def _cpu_context() -> kvcache.Context:
    """The context of this process. It computes on PyTorch's threads."""
    try:
        return kvcache.Context(pool="openmp")
    except kvcache.Unsupported:  # a PyTorch without OpenMP
        return kvcache.Context(threads=torch.get_num_threads())


class KvcacheAttnBackend(AttentionBackend):
    """Attention of decoders and encoders in float32, float16 and bfloat16. What is not served is refused with a reason."""

    def __init__(self, model_runner: Any) -> None:
        super().__init__()
        pool = model_runner.token_to_kv_pool
        why = _why_not(model_runner, pool)
        if why is not None:
            raise ValueError(f"kvcache-sglang: {why}. Use another --attention-backend")
        self.req_to_token_pool = model_runner.req_to_token_pool
        self.token_to_kv_pool = pool
        self.page_size: int = pool.page_size
        self.context = _cpu_context() if torch.device(model_runner.device).type == "cpu" else None

    def init_forward_metadata(self, forward_batch: Any) -> None:
        mode, lengths = forward_batch.forward_mode, forward_batch.seq_lens
        if mode.is_idle():
            self.forward_metadata = None
            return
        if mode.is_target_verify() or mode.is_draft_extend_v2() or mode.is_dllm_extend():
            raise NotImplementedError(f"kvcache-sglang: forwards of the mode {mode.name} are not served")
        if forward_batch.encoder_lens is not None:
            raise NotImplementedError("kvcache-sglang: models with an encoder are not served")
        if mode.is_decode():
            starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
        else:
            counts = forward_batch.extend_seq_lens
            starts = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
        cpu_lengths = lengths if forward_batch.seq_lens_cpu is None else forward_batch.seq_lens_cpu
        longest = int(cpu_lengths.max()) if len(lengths) else 0
        slots = self.req_to_token_pool.req_to_token[forward_batch.req_pool_indices, :longest:self.page_size]
        self.forward_metadata = _Step((slots // self.page_size).to(torch.int32), lengths, starts)

    def forward_decode(self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **kwargs: Any) -> torch.Tensor:
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def forward_extend(self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **kwargs: Any) -> torch.Tensor:
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def _forward(self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any, forward_batch: Any,
                 save_kv_cache: bool, sinks: torch.Tensor | None = None, **others: Any) -> torch.Tensor:
        _check_layer(layer, others)
        step = self.forward_metadata
        assert isinstance(step, _Step)
        k_cache, v_cache = map(self._paged, self.token_to_kv_pool.get_kv_buffer(layer.layer_id))
        if save_kv_cache and k is not None and v is not None:
            kvcache.append_slots(k.view(-1, layer.tp_k_head_num, layer.qk_head_dim), v.view(-1, layer.tp_v_head_num, layer.v_head_dim),
                                 k_cache, v_cache, forward_batch.out_cache_loc, context=self.context)
        q = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        output = q.new_empty(len(q), layer.tp_q_head_num * layer.v_head_dim)
        causal = layer.attn_type == AttentionType.DECODER
        left = layer.sliding_window_size if layer.sliding_window_size > -1 else None
        kvcache.flash_attn_with_kvcache(
            q, k_cache, v_cache, out=output.view(len(q), layer.tp_q_head_num, layer.v_head_dim), cache_seqlens=step.lengths,
            page_table=step.page_table, cu_seqlens_q=step.starts, softmax_scale=layer.scaling, causal=causal,
            window_size=(left, None), softcap=layer.logit_cap, sinks=sinks, context=self.context)
        return output

    def _paged(self, pool: torch.Tensor) -> torch.Tensor:
        """[slots, heads, dim] as [pages, page size, heads, dim]."""
        return pool.view(-1, self.page_size, *pool.shape[1:])

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def support_triton(self) -> bool:
        return False


def create(model_runner: Any) -> KvcacheAttnBackend:
    return KvcacheAttnBackend(model_runner)


def _why_not(model_runner: Any, pool: Any) -> str | None:
    """What this backend does not serve, as a clause."""
    if getattr(model_runner, "use_mla_backend", False):
        return "MLA models are not served"
    if any(hasattr(pool, name) for name in ("full_kv_pool", "swa_kv_pool", "full_attention_layer_id_mapping")):
        return "pools of hybrid models are not served"
    if pool.dtype not in FLOATS or pool.store_dtype != pool.dtype:
        return f"a KV cache of {pool.dtype} is not served"
    keys = pool.get_key_buffer(pool.start_layer)
    if keys.ndim != 3 or len(keys) % pool.page_size:
        return f"a pool of the shape {tuple(keys.shape)} is not served, only [slots, heads, dim]"
    return None


def _check_layer(layer: Any, arguments: dict[str, Any]) -> None:
    unknown = [name for name, value in arguments.items() if value is not None]
    if layer.is_cross_attention:
        unknown.append("cross attention")
    if layer.attn_type not in (AttentionType.DECODER, AttentionType.ENCODER_ONLY):
        unknown.append(f"attention of the type {layer.attn_type.value}")
    if layer.attn_type == AttentionType.ENCODER_ONLY and layer.sliding_window_size > -1:
        unknown.append("a window in both directions")
    if (layer.logit_cap and layer.logit_capping_method != "tanh") or layer.xai_temperature_len > 0:
        unknown.append(f"scores capped by {layer.logit_capping_method}, or scaled by length")
    if unknown:
        raise NotImplementedError(f"kvcache-sglang: layer {layer.layer_id} needs {', '.join(unknown)}, which is not served")
