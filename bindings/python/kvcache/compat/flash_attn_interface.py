"""FlashAttention 3's functions, with its arguments in its order, forward only.

    from kvcache.compat.flash_attn_interface import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

`num_splits`, `pack_gqa`, `deterministic` and `sm_margin` steer a GPU's kernels and change no result: they are accepted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import kvcache
from kvcache.compat._common import attend_packed, forward_only, merge

__all__ = [
    "flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func", "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]  # fmt: skip

Window = tuple[int, int]


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False,
                    qv: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                    v_descale: Tensor | None = None, window_size: Window = (-1, -1), attention_chunk: int = 0,
                    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
                    sm_margin: int = 0, return_attn_probs: bool = False) -> Any:
    """Attention of q [batch, queries, heads, dim] over k and v [batch, keys, kv heads, dim]. The last query sees the last key.

    Returns:
        out, or with return_attn_probs (out, softmax_lse [batch, heads, queries]).
    """
    del num_splits, pack_gqa, deterministic, sm_margin
    q, k, v, qv = forward_only("flash_attn_func", q, k, v, qv)
    return kvcache.flash_attn_with_kvcache(
        q, k, v, qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale, softmax_scale=softmax_scale, causal=causal,
        window_size=window_size, attention_chunk=attention_chunk, softcap=softcap, return_softmax_lse=return_attn_probs)


def flash_attn_qkvpacked_func(qkv: Tensor, softmax_scale: float | None = None, causal: bool = False,
                              q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
                              window_size: Window = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
                              deterministic: bool = False, num_heads_q: int | None = None, sm_margin: int = 0,
                              return_attn_probs: bool = False) -> Any:
    """flash_attn_func with qkv [batch, tokens, 3, heads, dim], or with num_heads_q [batch, tokens, heads + 2 kv heads, dim]."""
    if qkv.dim() == 5:
        q, k, v = qkv.unbind(2)
    else:
        if num_heads_q is None or (qkv.shape[2] - num_heads_q) % 2:
            raise kvcache.Shape(f"flash_attn_qkvpacked_func: qkv has {qkv.shape[2]} heads and num_heads_q is {num_heads_q}",
                                     status=8)
        heads = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, heads, heads], 2)
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk,
                           softcap, 1, None, deterministic, sm_margin, return_attn_probs)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
                           max_seqlen_k: int, seqused_q: Tensor | None = None, seqused_k: Tensor | None = None,
                           softmax_scale: float | None = None, causal: bool = False, qv: Tensor | None = None,
                           q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
                           window_size: Window = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
                           pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
                           return_attn_probs: bool = False) -> Any:
    """Attention of packed sequences, which begin at cu_seqlens_q and cu_seqlens_k, [batch + 1] int32.

    Args:
        q: [queries of all, heads, dim]. k, v: [keys of all, kv heads, dim].
        seqused_q, seqused_k: [batch]: how many tokens of each sequence are used, from its first on. Rows of the result that are
            not used are 0, and their LSE is -inf.

    Returns:
        out, or with return_attn_probs (out, softmax_lse [heads, queries of all]).
    """
    del max_seqlen_q, max_seqlen_k, num_splits, pack_gqa, deterministic, sm_margin
    q, k, v, qv = forward_only("flash_attn_varlen_func", q, k, v, qv)
    used, cu_used = None, cu_seqlens_q
    if seqused_q is not None:
        tokens = torch.arange(q.shape[0], device=q.device)
        rows = torch.bucketize(tokens, cu_seqlens_q[1:], right=True).clamp(max=len(seqused_q) - 1)
        used = (tokens < cu_seqlens_q[rows] + seqused_q[rows]) & (tokens < cu_seqlens_q[-1])
        cu_used = torch.nn.functional.pad(seqused_q.cumsum(0), (1, 0)).to(cu_seqlens_q.dtype)
    begin = cu_seqlens_k[:-1]
    end = cu_seqlens_k[1:] if seqused_k is None else begin + seqused_k
    out, lse = attend_packed(q if used is None else q[used], k, v, cu_used, begin, end,
                             qv=qv if used is None or qv is None else qv[used], q_descale=q_descale, k_descale=k_descale,
                             v_descale=v_descale, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
                             attention_chunk=attention_chunk, softcap=softcap)  # fmt: skip
    if used is not None:
        whole = out.new_zeros((q.shape[0], *out.shape[1:]))
        whole[used] = out
        whole_lse = lse.new_full((lse.shape[0], q.shape[0]), -torch.inf)
        whole_lse[:, used] = lse
        out, lse = whole, whole_lse
    return (out, lse) if return_attn_probs else out


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
                            qv: Tensor | None = None, rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
                            cache_seqlens: Tensor | int | None = None, cache_batch_idx: Tensor | None = None,
                            cache_leftpad: Tensor | None = None, page_table: Tensor | None = None,
                            cu_seqlens_q: Tensor | None = None, cu_seqlens_k_new: Tensor | None = None,
                            max_seqlen_q: int | None = None, rotary_seqlens: Tensor | None = None,
                            q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
                            softmax_scale: float | None = None, causal: bool = False, window_size: Window = (-1, -1),
                            attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True,
                            scheduler_metadata: Tensor | None = None, num_splits: int = 0, pack_gqa: bool | None = None,
                            sm_margin: int = 0, return_softmax_lse: bool = False) -> Any:
    """kvcache.flash_attn_with_kvcache with FlashAttention 3's arguments, which may be positional."""
    q, k, v, qv = forward_only("flash_attn_with_kvcache", q, k, v, qv)
    return kvcache.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, qv=qv, rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_seqlens=cache_seqlens,
        cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad, page_table=page_table, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k_new=cu_seqlens_k_new, max_seqlen_q=max_seqlen_q, rotary_seqlens=rotary_seqlens, q_descale=q_descale,
        k_descale=k_descale, v_descale=v_descale, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        attention_chunk=attention_chunk, softcap=softcap, rotary_interleaved=rotary_interleaved,
        scheduler_metadata=scheduler_metadata, num_splits=num_splits, pack_gqa=pack_gqa, sm_margin=sm_margin,
        return_softmax_lse=return_softmax_lse)


def flash_attn_combine(out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = None,
                       out_dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Merges the results over disjoint keys: out_partial [splits, batch, queries, heads, dim], lse_partial [splits, batch,
    queries, heads].

    Returns:
        out [batch, queries, heads, dim], softmax_lse [batch, queries, heads].
    """
    out_partial, lse_partial = forward_only("flash_attn_combine", out_partial, lse_partial)
    shape = out_partial.shape[1:]
    flat, lse = merge([part.reshape(-1, *shape[-2:]) for part in out_partial],
                      [part.reshape(-1, shape[-2]) for part in lse_partial])
    merged = flat.reshape(shape).to(out_partial.dtype if out_dtype is None else out_dtype)
    if out is not None:
        merged = out.copy_(merged)
    return merged, lse.reshape(shape[:-1])


def get_scheduler_metadata(*arguments: Any, **options: Any) -> None:
    """None: flash_attn_with_kvcache plans by itself, and accepts it as scheduler_metadata."""
    del arguments, options
