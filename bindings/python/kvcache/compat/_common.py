"""What the modules of kvcache.compat share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

import kvcache
from kvcache._stateless import _context

LN2 = math.log(2.0)
_UNSUPPORTED = 4


def unsupported(what: str) -> kvcache.Unsupported:
    return kvcache.Unsupported(what, status=_UNSUPPORTED)


def forward_only(where: str, *tensors: torch.Tensor | None) -> list[Any]:
    """The tensors without their graph. Raises Unsupported if a gradient is wanted."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise unsupported(f"{where}: a tensor requires a gradient, and only the forward pass exists (use torch.no_grad())")
    return [None if tensor is None else tensor.detach() for tensor in tensors]


def no_dropout(where: str, dropout_p: float) -> None:
    if dropout_p != 0.0:
        raise unsupported(f"{where}: dropout_p is {dropout_p}, and attention has no dropout here")


def attend_packed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_q: torch.Tensor, begin: torch.Tensor,
                  end: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of packed queries over packed K and V: row b has the keys [begin[b], end[b]). Nothing is copied: k is one
    row of a cache, in which each row of the batch has a first and a last valid key.

    Returns:
        out [tokens, heads, dims], LSE [heads, tokens].
    """
    rows = torch.zeros_like(end)
    out, lse = kvcache.flash_attn_with_kvcache(q, k[None], v[None], cache_seqlens=end, cache_leftpad=begin, cache_batch_idx=rows,
                                               cu_seqlens_q=cu_q, return_softmax_lse=True, **options)
    return out, lse


def merge(outputs: Sequence[torch.Tensor], lses: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The attention over all keys, of parts [tokens, heads, dims] and natural-log LSE [tokens, heads]."""
    out, lse = _context(None, outputs[0]).merge_states(list(outputs), [part.contiguous() for part in lses])
    return out, lse
