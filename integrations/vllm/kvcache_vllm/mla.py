"""Decoding of MLA models (DeepSeek-V2 and V3) on CPUs without AMX, over vLLM's cache of latent rows.

vLLM computes the prefill of these models itself, without the cache. It disables prefix caching and chunked prefill for them.
"""

from __future__ import annotations

from typing import Any

import kvcache
import torch
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend, CPUMLAImpl

from .context import context


class KvcacheMlaImpl(CPUMLAImpl):
    """Attention of one MLA layer. The rows of its cache are [latent | rotary], [pages, page size, dims]."""

    def do_kv_cache_update(self, kv_c_normed: torch.Tensor, k_pe: torch.Tensor, kv_cache: torch.Tensor,
                           slot_mapping: torch.Tensor, kv_cache_dtype: str, k_scale: torch.Tensor) -> None:
        if kv_cache.numel() > 0:
            slots = slot_mapping.flatten()
            kvcache.append_slots(k_pe.view(len(k_pe), 1, -1)[:len(slots)], kv_c_normed[:len(slots), None],
                                 kv_cache.unsqueeze(2), None, slots, context=context())

    def forward_mqa(self, q: torch.Tensor | tuple[torch.Tensor, torch.Tensor], kv_c_and_k_pe_cache: torch.Tensor,
                    attn_metadata: Any, layer: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        sizes = [self.kv_lora_rank, kv_c_and_k_pe_cache.shape[-1] - self.kv_lora_rank]
        q_latent, q_rotary = q if isinstance(q, tuple) else q.split(sizes, -1)
        latent, rotary = kv_c_and_k_pe_cache.unsqueeze(2).split(sizes, -1)
        step = attn_metadata.decode
        out = kvcache.flash_attn_with_kvcache(
            q_rotary[:, None], rotary, latent, qv=q_latent[:, None], cache_seqlens=step.seq_lens, block_table=step.block_table,
            softmax_scale=self.scale, context=context())
        return out[:, 0], None


class KvcacheMlaBackend(CPUMLABackend):
    """What vLLM loads in the place of its CPU backend for MLA. Its name stays CPU_MLA."""

    @staticmethod
    def get_impl_cls() -> type[KvcacheMlaImpl]:
        return KvcacheMlaImpl
