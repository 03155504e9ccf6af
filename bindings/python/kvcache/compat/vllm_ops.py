"""vLLM's operations on its caches (`vllm._custom_ops`), for CPUs and GPUs.

    from kvcache.compat import vllm_ops as ops
    ops.reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, "auto", k_scale, v_scale)

`kv_cache_dtype` "auto" stores values as they are; "fp8", "fp8_e4m3" and "fp8_e5m2" store x / scale, rounded to nearest even and
saturated, in caches of uint8. vLLM's paged_attention_v1 and v2 are missing: their K lies in groups of 16 bytes, which the
library's kernels do not read.
"""

from __future__ import annotations

import torch
from torch import Tensor

import kvcache
from kvcache.compat._common import merge, unsupported

__all__ = ["concat_and_cache_mla", "merge_attn_states", "reshape_and_cache", "reshape_and_cache_flash"]

_FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


def _stored(where: str, cache: Tensor, kv_cache_dtype: str) -> Tensor:
    """The cache with the dtype of what it stores."""
    if kv_cache_dtype == "auto":
        return cache
    if kv_cache_dtype not in _FP8:
        raise unsupported(f"{where}: kv_cache_dtype is {kv_cache_dtype!r}, and must be 'auto', 'fp8', 'fp8_e4m3' or 'fp8_e5m2'")
    return cache.view(_FP8[kv_cache_dtype]) if cache.dtype == torch.uint8 else cache


def _scale(scale: Tensor | float, kv_cache_dtype: str) -> Tensor | float | None:
    if kv_cache_dtype == "auto":
        return None
    return scale.to(torch.float32).reshape(-1) if isinstance(scale, Tensor) else float(scale)


def reshape_and_cache_flash(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor,
                            kv_cache_dtype: str, k_scale: Tensor | float, v_scale: Tensor | float) -> None:
    """Stores rows [tokens, kv heads, dim] in [pages, page size, kv heads, dim], at slots. Negative slots: not stored.

    slot_mapping may be shorter than key: later rows are padding.
    """
    rows = slot_mapping.numel()
    kvcache.append_slots(key[:rows], value[:rows], _stored("reshape_and_cache_flash", key_cache, kv_cache_dtype),
                         _stored("reshape_and_cache_flash", value_cache, kv_cache_dtype), slot_mapping,
                         k_scale=_scale(k_scale, kv_cache_dtype), v_scale=_scale(v_scale, kv_cache_dtype))


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor,
                      kv_cache_dtype: str, k_scale: Tensor | float, v_scale: Tensor | float) -> None:
    """The same in the layouts of paged_attention: key_cache [pages, kv heads, dim / x, page size, x], where x elements are 16
    bytes; value_cache [pages, kv heads, dim, page size]."""
    pages, heads, groups, page_size, x = key_cache.shape
    if (heads, groups * x) != tuple(key.shape[1:]) or tuple(value_cache.shape[1:]) != (heads, value.shape[-1], page_size):
        raise kvcache.Shape(f"reshape_and_cache: key {list(key.shape)} and value {list(value.shape)} do not fit key_cache "
                            f"{list(key_cache.shape)} and value_cache {list(value_cache.shape)}", status=8)
    used = slot_mapping >= 0
    slots = slot_mapping[used].long()
    if slots.numel() and int(slots.max()) >= pages * page_size:
        row = int((slot_mapping >= pages * page_size).nonzero()[0])
        raise kvcache.OutOfRange(f"reshape_and_cache: slot {int(slot_mapping[row])} of token {row} is outside 0 to "
                                 f"{pages * page_size - 1}", status=10, index=row)
    # Rows go through plain pages, so that rounding is the library's, and are then spread over the groups.
    plain_k, plain_v = (torch.empty((1, used.numel(), heads, rows.shape[-1]), dtype=cache.dtype, device=rows.device)
                        for rows, cache in ((key, key_cache), (value, value_cache)))
    reshape_and_cache_flash(key, value, plain_k, plain_v, torch.arange(used.numel(), device=key.device), kv_cache_dtype, k_scale, v_scale)
    page, offset = slots // page_size, slots % page_size
    key_cache[page, :, :, offset, :] = plain_k[0, used].reshape(-1, heads, groups, x)
    value_cache[page, :, :, offset] = plain_v[0, used]


def concat_and_cache_mla(kv_c: Tensor, k_pe: Tensor, kv_cache: Tensor, slot_mapping: Tensor, kv_cache_dtype: str,
                         scale: Tensor | float) -> None:
    """Stores rows [latent | rotary part] in [pages, page size, latent dim + rotary dim], at slots."""
    rows = slot_mapping.numel()
    k_pe = k_pe.reshape(k_pe.shape[0], -1)
    cache = _stored("concat_and_cache_mla", kv_cache, kv_cache_dtype)
    kvcache.append_slots(k_pe[:rows, None], kv_c[:rows, None], cache[:, :, None], None, slot_mapping,
                         k_scale=_scale(scale, kv_cache_dtype))


def merge_attn_states(output: Tensor, prefix_output: Tensor, prefix_lse: Tensor, suffix_output: Tensor, suffix_lse: Tensor,
                      output_lse: Tensor | None = None) -> None:
    """Merges two parts [tokens, heads, dim] by their natural-log LSE [heads, tokens], into output and output_lse.

    As in vLLM, an LSE of +inf says that a part saw no key.
    """
    lses = [torch.where(torch.isposinf(lse), -torch.inf, lse).t() for lse in (prefix_lse, suffix_lse)]
    out, lse = merge([prefix_output, suffix_output], lses)
    output.copy_(out)
    if output_lse is not None:
        output_lse.copy_(lse.t())
