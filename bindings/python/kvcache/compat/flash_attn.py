"""FlashAttention 2's functions, with its arguments in its order, forward only.

    from kvcache.compat.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

`deterministic` is accepted: it concerns the backward pass. Any head dim up to 1024 works, on CPUs and GPUs.
"""

from __future__ import annotations

from typing import Any

import torch

import kvcache
from kvcache.compat._common import attend_packed, forward_only, no_dropout

__all__ = [
    "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache",
]  # fmt: skip

Window = tuple[int, int]
Result = Any  # out, or (out, softmax_lse, None)


def _result(out: torch.Tensor, lse: torch.Tensor, return_attn_probs: bool) -> Result:
    """The third value is the pattern of dropout, which exists with dropout only."""
    return (out, lse, None) if return_attn_probs else out


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                    causal: bool = False, window_size: Window = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Result:
    """Attention of q [batch, queries, heads, dim] over k and v [batch, keys, kv heads, dim]. The last query sees the last key.

    Returns:
        out, or with return_attn_probs (out, softmax_lse [batch, heads, queries], None).
    """
    del deterministic
    no_dropout("flash_attn_func", dropout_p)
    q, k, v = forward_only("flash_attn_func", q, k, v)
    out, lse = kvcache.flash_attn_with_kvcache(q, k, v, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
                                               softcap=softcap, alibi_slopes=alibi_slopes, return_softmax_lse=True)
    return _result(out, lse, return_attn_probs)


def flash_attn_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                             causal: bool = False, window_size: Window = (-1, -1), softcap: float = 0.0,
                             alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                             return_attn_probs: bool = False) -> Result:
    """flash_attn_func with kv [batch, keys, 2, kv heads, dim]."""
    k, v = kv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs)


def flash_attn_qkvpacked_func(qkv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                              window_size: Window = (-1, -1), softcap: float = 0.0, alibi_slopes: torch.Tensor | None = None,
                              deterministic: bool = False, return_attn_probs: bool = False) -> Result:
    """flash_attn_func with qkv [batch, tokens, 3, heads, dim]."""
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs)


def flash_attn_varlen_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor,
                           cu_seqlens_k: torch.Tensor, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                           softmax_scale: float | None = None, causal: bool = False, window_size: Window = (-1, -1),
                           softcap: float = 0.0, alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: torch.Tensor | None = None) -> Result:
    """Attention of packed sequences. Those of q begin at cu_seqlens_q, those of k and v at cu_seqlens_k, [batch + 1] int32.

    Args:
        q: [queries of all, heads, dim].
        k, v: [keys of all, kv heads, dim], or with block_table [pages, page size, kv heads, dim].
        max_seqlen_q, max_seqlen_k: not needed.

    Returns:
        out, or with return_attn_probs (out, softmax_lse [heads, queries of all], None).
    """
    del max_seqlen_q, max_seqlen_k, deterministic
    no_dropout("flash_attn_varlen_func", dropout_p)
    q, k, v = forward_only("flash_attn_varlen_func", q, k, v)
    options: dict[str, Any] = {"softmax_scale": softmax_scale, "causal": causal, "window_size": window_size, "softcap": softcap,
                               "alibi_slopes": alibi_slopes}  # fmt: skip
    if block_table is None:
        out, lse = attend_packed(q, k, v, cu_seqlens_q, cu_seqlens_k[:-1], cu_seqlens_k[1:], **options)
    else:
        out, lse = kvcache.flash_attn_with_kvcache(q, k, v, cache_seqlens=cu_seqlens_k[1:] - cu_seqlens_k[:-1],
                                                   block_table=block_table, cu_seqlens_q=cu_seqlens_q, return_softmax_lse=True,
                                                   **options)
    return _result(out, lse, return_attn_probs)


def flash_attn_varlen_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
                                    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                                    softmax_scale: float | None = None, causal: bool = False, window_size: Window = (-1, -1),
                                    softcap: float = 0.0, alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                                    return_attn_probs: bool = False) -> Result:
    """flash_attn_varlen_func with kv [keys of all, 2, kv heads, dim]."""
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
                                  causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_qkvpacked_func(qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, dropout_p: float = 0.0,
                                     softmax_scale: float | None = None, causal: bool = False, window_size: Window = (-1, -1),
                                     softcap: float = 0.0, alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                                     return_attn_probs: bool = False) -> Result:
    """flash_attn_varlen_func with qkv [tokens of all, 3, heads, dim]."""
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
                                  window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_with_kvcache(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor | None = None,
                            v: torch.Tensor | None = None, rotary_cos: torch.Tensor | None = None,
                            rotary_sin: torch.Tensor | None = None, cache_seqlens: torch.Tensor | int | None = None,
                            cache_batch_idx: torch.Tensor | None = None, cache_leftpad: torch.Tensor | None = None,
                            block_table: torch.Tensor | None = None, softmax_scale: float | None = None, causal: bool = False,
                            window_size: Window = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
                            alibi_slopes: torch.Tensor | None = None, num_splits: int = 0,
                            return_softmax_lse: bool = False) -> Any:
    """kvcache.flash_attn_with_kvcache with FlashAttention 2's arguments, which may be positional."""
    q, k, v = forward_only("flash_attn_with_kvcache", q, k, v)
    return kvcache.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_seqlens=cache_seqlens,
        cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad, block_table=block_table, softmax_scale=softmax_scale,
        causal=causal, window_size=window_size, softcap=softcap, rotary_interleaved=rotary_interleaved,
        alibi_slopes=alibi_slopes, num_splits=num_splits, return_softmax_lse=return_softmax_lse)
