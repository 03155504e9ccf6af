"""vLLM's CPU attention backend, with libkvcache's stateless calls as its kernels.

The classes derive from vLLM's: other code tests for those. A layer that libkvcache does not serve calls the methods of its
base class. Both kinds of layers may be in one model, because a layer's cache is written and read by one kind alone.
"""

from __future__ import annotations

from typing import Any

import kvcache
import torch
from vllm.config import get_current_vllm_config
from vllm.logger import init_logger
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
)

from .context import context

logger = init_logger("vllm.kvcache")

FLOAT8 = {"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
NIXL = ("NixlConnector", "NixlPullConnector", "NixlPushConnector")
ENCODERS = (AttentionType.ENCODER, AttentionType.ENCODER_ONLY)


def pools(kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The pools of K and V, [pages, page size, kv heads, dim], in vLLM's cache [pages, kv heads, page size, K | V]."""
    k, v = kv_cache.transpose(1, 2).chunk(2, dim=-1)
    return k, v


class KvcacheImpl(CPUAttentionBackendImpl):
    """Attention of one layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.float8 = FLOAT8.get(self.kv_cache_dtype)
        self.is_encoder = self.attn_type in ENCODERS
        why = self._why_not()
        self.is_served = why is None
        if why is not None:
            logger.warning_once("kvcache-vllm: vLLM's own attention is used for layers with %s", why)

    def _why_not(self) -> str | None:
        """What libkvcache does not serve. Layers that share K and V must get one answer, so it depends on what they share."""
        config = get_current_vllm_config()
        dtype, transfer = config.model_config.dtype, config.kv_transfer_config
        if dtype not in FLOATS:
            return f"{dtype}"
        if self.is_fp8_kv_cache and self.float8 is None:
            return f"a KV cache of {self.kv_cache_dtype}"
        if self.is_encoder and (self.is_fp8_kv_cache or self.use_zentorch_sdpa):
            return f"attention of the type {self.attn_type} and a KV cache of {self.kv_cache_dtype}"
        if transfer is not None and any(transfer.has_connector(name) for name in NIXL):
            return "a NIXL connector, which packs pages for vLLM's kernels"
        return None

    def do_kv_cache_update(self, layer: torch.nn.Module, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
                           slot_mapping: torch.Tensor) -> None:
        if not self.is_served:
            super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
        elif not self.is_encoder:
            self._store(layer, key, value, kv_cache, slot_mapping)

    def _store(self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
               slot_mapping: torch.Tensor) -> None:
        k_cache, v_cache = pools(kv_cache)
        scales = {"k_scale": layer._k_scale_float, "v_scale": layer._v_scale_float} if self.float8 else {}
        kvcache.append_slots(key, value, k_cache, v_cache, slot_mapping, dtype=self.float8, context=context(), **scales)

    def forward(self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
                attn_metadata: CPUAttentionMetadata | None, output: torch.Tensor, output_scale: torch.Tensor | None = None,
                output_block_scale: torch.Tensor | None = None) -> torch.Tensor:
        if not self.is_served or attn_metadata is None or output_scale is not None or output_block_scale is not None:
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, output_scale,
                                   output_block_scale)
        step = attn_metadata
        tokens = step.num_actual_tokens
        if self.is_encoder:  # its keys live for this call alone, in pages that the step brings along
            kv_cache = step.encoder_cache
            self._store(layer, key, value, kv_cache, step.slot_mapping)
        arguments = (query[:tokens], output[:tokens], step.query_start_loc, step.seq_lens, step.block_table)
        if step.dynamic_causal is None:
            self._attend(layer, kv_cache, *arguments, causal=step.causal)
        else:
            for causal in (False, True):
                self._attend_rows(layer, kv_cache, *arguments, rows=step.dynamic_causal.bool() == causal, causal=causal)
        return output

    def _attend_rows(self, layer: Any, kv_cache: torch.Tensor, query: torch.Tensor, output: torch.Tensor,
                     starts: torch.Tensor, lengths: torch.Tensor, block_table: torch.Tensor, *, rows: torch.Tensor,
                     causal: bool) -> None:
        """Attends for some requests of a step."""
        counts = starts.diff()
        tokens = torch.repeat_interleave(rows, counts).nonzero()[:, 0]
        if tokens.numel() == 0:
            return
        some_starts = torch.nn.functional.pad(counts[rows].cumsum(0, dtype=starts.dtype), (1, 0))
        some_output = torch.empty_like(output[tokens])
        self._attend(layer, kv_cache, query[tokens], some_output, some_starts, lengths[rows], block_table[rows],
                     causal=causal)
        output[tokens] = some_output

    def _attend(self, layer: Any, kv_cache: torch.Tensor, query: torch.Tensor, output: torch.Tensor, starts: torch.Tensor,
                lengths: torch.Tensor, block_table: torch.Tensor, *, causal: bool) -> None:
        k_cache, v_cache = pools(kv_cache)
        window = None if self.sliding_window < 0 else self.sliding_window - 1
        scales = {}
        if self.float8:
            shape = (lengths.numel(), self.num_kv_heads)
            scales = {"k_descale": torch.full(shape, layer._k_scale_float), "v_descale": torch.full(shape, layer._v_scale_float)}
        kvcache.flash_attn_with_kvcache(
            query, k_cache, v_cache, out=output, cache_seqlens=lengths, block_table=block_table, cu_seqlens_q=starts,
            softmax_scale=self.scale, causal=causal, window_size=(window, None if causal else window),
            softcap=self.logits_soft_cap, alibi_slopes=self.alibi_slopes, alibi_signed=not causal,
            sinks=self.sinks, dtype=self.float8,
            context=context(), **scales)


class KvcacheBackend(CPUAttentionBackend):
    """What vLLM loads in the place of its CPU backend. get_name() stays CPU_ATTN: vLLM compares it."""

    @staticmethod
    def get_impl_cls() -> type[KvcacheImpl]:
        return KvcacheImpl
