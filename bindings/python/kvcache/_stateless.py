"""Attention over a cache of the caller's own: what takes arrays alone, and no Cache."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from . import _kvcache
from ._config import Context

_CAUSAL, _INTERLEAVED, _WINDOW_LEFT, _WINDOW_RIGHT, _ALIBI_SIGNED = 1, 2, 4, 8, 16
_default_contexts: dict[tuple[int, int], Context] = {}


def _context(context: Context | None, array: Any) -> Context:
    """The caller's, else one of the process for the array's device."""
    if context is not None:
        return context
    # A function of C++, since torch.compile cannot trace __dlpack_device__; here it breaks its graph.
    device = _kvcache.compute_device(array)
    if device not in _default_contexts:
        _default_contexts[device] = Context(device)
    return _default_contexts[device]


def _numbers(values: Any, name: str, like: Any) -> Any:
    """Numbers as an array beside `like`; arrays as they are."""
    if not isinstance(values, float | int | list | tuple):
        return values
    if hasattr(like, "new_tensor"):
        return like.new_tensor(values, dtype=getattr(sys.modules["torch"], name))
    import numpy as np

    return np.asarray(values, name)


def _indexes(values: Any, like: Any) -> Any:
    return _numbers(values, "int32", like)


def _floats(values: Any, like: Any) -> Any:
    return _numbers([values] if isinstance(values, float | int) else values, "float32", like)


def _is_float8(array: Any, dtype: Any) -> bool:
    name = str(getattr(array, "dtype", ""))
    return "float8" in name or (dtype is not None and "uint8" in name)


def _mask(causal: bool, window_size: Sequence[int | None]) -> tuple[int, int, int]:
    left, right = (-1 if bound is None else int(bound) for bound in window_size)
    flags = (_CAUSAL if causal else 0) | (_WINDOW_LEFT if left >= 0 else 0) | (_WINDOW_RIGHT if right >= 0 else 0)
    return flags, max(left, 0), max(right, 0)


def _new_bfloat16(like: Any, dims: int) -> Any:
    """A new output for float8 queries."""
    shape = (*like.shape[:-1], dims)
    if hasattr(like, "new_empty"):
        return like.new_empty(shape, dtype=sys.modules["torch"].bfloat16)
    import ml_dtypes
    import numpy as np

    return np.empty(shape, ml_dtypes.bfloat16)


def flash_attn_with_kvcache(  # noqa: PLR0913 - FlashAttention's own arguments
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, *, qv: Any = None, rotary_cos: Any = None,
    rotary_sin: Any = None, cache_seqlens: Any = None, cache_batch_idx: Any = None, cache_leftpad: Any = None,
    block_table: Any = None, page_table: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k_new: Any = None,
    max_seqlen_q: int | None = None, rotary_seqlens: Any = None, seqused_k: Any = None, q_descale: Any = None,
    k_descale: Any = None, v_descale: Any = None, softmax_scale: float | None = None, causal: bool = False,
    window_size: Sequence[int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    rotary_interleaved: bool = True, alibi_slopes: Any = None, sinks: Any = None, scheduler_metadata: Any = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0, return_softmax_lse: bool = False,
    out: Any = None, dtype: Any = None, alibi_signed: bool = False, indices: Any = None, context: Context | None = None,
    stream: Any = None,
) -> Any:
    """Appends k and v to the caller's cache, if they are given, and computes attention over it.

    As that of FlashAttention 2 and 3. Arrays are numpy's (bfloat16 and float8 by ml_dtypes), PyTorch's or anyone's with
    __dlpack__; none is copied. In a row with L valid keys, the new ones included, query i of n is at L - n + i.

    Args:
        q: [batch, queries, heads, dim], or with cu_seqlens_q [tokens, heads, dim].
        k_cache, v_cache: [batch, capacity, kv heads, dim], or with a table [pages, page size, kv heads, dim]; v_cache
            may have other dims. Written in place if k is given. float8 too.
        k, v: new tokens, stored from cache_seqlens on: [batch, new, kv heads, dim], or with cu_seqlens_k_new
            [tokens, kv heads, dim].
        qv: as q with v_cache's dims: scores are q.k + qv.v (absorbed latent attention).
        rotary_cos, rotary_sin: [positions, rotary dim / 2]: the first dims of q and k are rotated; only with k.
        cache_seqlens: tokens in the cache without the new ones: a number, or [batch] int32 or int64 (as all indexes).
        cache_batch_idx, cache_leftpad: [batch]: each row's row of the cache (or of the table); its first valid key.
        block_table, page_table: [batch, max pages], the same under both names.
        cu_seqlens_q, cu_seqlens_k_new: [batch + 1]: the second is ignored without k.
        rotary_seqlens, seqused_k: [batch]: where rotary positions count from; the other name of cache_seqlens.
        q_descale, k_descale, v_descale: [batch, kv heads] float32: factors of float8; ignored for other types.
        softmax_scale: None = dim ** -0.5 (with qv of both dims together).
        causal, window_size: no later key; (left, right): keys from p - left to p + right, -1 or None = no bound.
        attention_chunk, num_splits: of those, keys of the query's own chunk; parts to cut the keys into. 0 = all, as it pays.
        softcap: scores become softcap * tanh(score / softcap); 0 = none.
        rotary_interleaved: pairs are dims 2i, 2i + 1; else i, i + rotary dim / 2.
        alibi_slopes: [heads] or [batch, heads] float32: subtracts slope * |p_q - p_k| from scores; alibi_signed: p_q - p_k.
        sinks: [heads] float32, float16 or bfloat16: a logit without a value.
        indices: int32 [batch, queries, 1 or kv heads, k], or [tokens, 1 or kv heads, k]: a query attends to these slots
            (page * page size + offset) alone; negative = padding. Without lengths, tables, windows and new tokens.
        max_seqlen_q, scheduler_metadata, pack_gqa, sm_margin: hints for a GPU's kernels; accepted and not needed.
        out: where to write; None = a new array of q's kind and type (bfloat16 for float8 q).
        dtype: the element type that unsigned-integer arrays of its width stand for, "float8_e4m3fn" for uint8.
        context, stream: where to compute; None = a context of the process for q's device; the current stream of q's library.

    Returns:
        out, or (out, softmax_lse): float32 [batch, heads, queries], or with cu_seqlens_q [heads, tokens].

    Raises:
        OutOfRange (a page id, slot, length or position, with .index = the row), BufferTooSmall (no room for the new
        tokens: .required, .available), InvalidArgument (contradictions, overlaps), Shape and so on. Nothing is written.
    """
    del max_seqlen_q, scheduler_metadata, pack_gqa, sm_margin
    if block_table is not None and page_table is not None:
        raise TypeError("flash_attn_with_kvcache: block_table and page_table are two names of one argument")
    float8_cache = _is_float8(k_cache, dtype)
    if out is None and _is_float8(q, dtype):
        out = _new_bfloat16(q, v_cache.shape[-1])
    flags, left, right = _mask(causal, window_size)
    arrays = (
        q, k_cache, v_cache, k, v, qv, out, None, _indexes(cache_seqlens, q), _indexes(seqused_k, q),
        _indexes(cache_batch_idx, q), _indexes(cache_leftpad, q), page_table if block_table is None else block_table,
        _indexes(cu_seqlens_q, q), None if k is None else _indexes(cu_seqlens_k_new, q), rotary_cos, rotary_sin,
        _indexes(rotary_seqlens, q), q_descale if _is_float8(q, dtype) else None, k_descale if float8_cache else None,
        v_descale if float8_cache else None, alibi_slopes, sinks, indices,
    )
    return _kvcache.flash_attn(_context(context, q), arrays, return_softmax_lse,
                               flags | _INTERLEAVED * rotary_interleaved | _ALIBI_SIGNED * alibi_signed,
                               softmax_scale or 0.0, softcap,
                               (left, right, attention_chunk, num_splits), dtype, stream)


def append_slots(
    k: Any, v: Any, k_cache: Any, v_cache: Any, slot_mapping: Any, *, k_scale: Any = None, v_scale: Any = None,
    rotary_cos: Any = None, rotary_sin: Any = None, positions: Any = None, rotary_interleaved: bool = False,
    dtype: Any = None, context: Context | None = None, stream: Any = None,
) -> None:
    """Stores rows of k and v in the caller's own paged cache, at the given slots.

    Args:
        k, v: [tokens, kv heads, dim]. With v_cache None: the rotary parts [tokens, 1, ...] and the latent parts.
        k_cache, v_cache: [pages, page size, kv heads, dim], by any strides; written. v_cache None: k_cache has rows
            [latent | rotary] (MLA).
        slot_mapping: [tokens] int32 or int64: page * page size + offset; negative = not stored.
        k_scale, v_scale: of a float8 cache: x is stored as x / scale. A number, [1] or [kv heads] float32.
        rotary_cos, rotary_sin, positions: the first dims of k (the rotary parts) are rotated by rows `positions` [tokens].
        rotary_interleaved: pairs are dims 2i, 2i + 1; else i, i + rotary dim / 2.
        dtype, context, stream: as flash_attn_with_kvcache.

    Raises:
        OutOfRange (a slot or position, with .index = the token), InvalidArgument, Shape, DType and so on. Nothing is
        stored then.
    """
    arrays = (k, v, k_cache, v_cache, slot_mapping, _floats(k_scale, k), _floats(v_scale, k), rotary_cos, rotary_sin,
              positions)
    _kvcache.append_slots(_context(context, k), arrays, rotary_interleaved, dtype, stream)
