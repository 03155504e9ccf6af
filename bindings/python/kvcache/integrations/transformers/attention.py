"""The attention and mask functions that transformers calls under the name "kvcache"."""

from __future__ import annotations

from typing import Any

import torch

from .compressed import WindowStates
from .geometry import Place
from .layers import ATTENTION, NewStates, PagedLayer, handover


def attention(module: torch.nn.Module, query: torch.Tensor, key: Any, value: Any, attention_mask: torch.Tensor | None,
              scaling: float | None = None, dropout: float = 0.0, softcap: float | None = None,
              sliding_window: int | None = None, s_aux: torch.Tensor | None = None, is_causal: bool | None = None,
              position_bias: torch.Tensor | None = None, **kwargs: Any) -> tuple[torch.Tensor, None]:
    """The attention function of transformers' AttentionInterface: stores the layer's new keys and values, and attends.

    Args:
        query: [rows, q_heads, new tokens, head_dim].
        key, value: what PagedCache.update returned for the layer; of latent attention, what the model made of it.
        attention_mask: what mask() returned.
        scaling, softcap, s_aux: factor of the scores, their soft cap, and attention sinks, [q_heads].

    Returns:
        [rows, new tokens, q_heads, v_head_dim], and None for the weights, which are never made.
    """
    latents, handover.latents = handover.latents, None
    if not isinstance(key, NewStates) and latents is None:
        raise TypeError(_reason(module))
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if not causal or dropout or position_bias is not None:
        raise NotImplementedError(f'attn_implementation="{ATTENTION}": attention that is not causal, dropout, position_bias')
    options: dict[str, Any] = dict(softmax_scale=scaling or 0.0, softcap=softcap or 0.0,
                                   sinks=None if s_aux is None else s_aux.detach().float())
    if isinstance(key, WindowStates):
        return key.layer.attend(module, query, key, attention_mask, options), None
    if attention_mask is not None and attention_mask.ndim == 4 and attention_mask.dtype == torch.bool and (
            attention_mask.shape[1:3] == (1, 1)):
        attention_mask = attention_mask[:, 0, 0]
    if attention_mask is not None and attention_mask.ndim != 2:
        raise NotImplementedError(f'attn_implementation="{ATTENTION}": an attention_mask of shape {list(attention_mask.shape)}; '
                                  "[rows, tokens] is supported")
    if latents is not None:
        layer, latent, rotary = latents
        if query.shape[0] != latent.shape[0] or query.shape[2] != latent.shape[2]:
            raise ValueError(f"PagedCache: queries {list(query.shape)} do not fit the latents {list(latent.shape)} of the layer")
        options |= _projections(module)
        return layer.rows.attend(layer.place, module, attention_mask, query, rotary, latent, **options), None
    place = _place(module, key.layer)
    if place.kind != "chunked" and sliding_window not in (None, place.window):
        raise ValueError(f"PagedCache: made for a window of {place.window}, but the model asks for {sliding_window}")
    k, v = (None, None) if place.shared else (key.new, value.new)
    return key.layer.rows.attend(place, module, attention_mask, query, k, v, **options), None


def _place(module: torch.nn.Module, layer: PagedLayer) -> Place:
    """The place of the layer that attends: it may read the keys of another one."""
    places, index = layer.rows.geometry.places, getattr(module, "layer_idx", None)
    own = places[index] if isinstance(index, int) and 0 <= index < len(places) else None
    return own if own is not None and own.shared else layer.place


def _projections(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The matrices that make keys and values of latents."""
    project: Any = getattr(module, "kv_b_proj", None)
    heads: Any = getattr(module, "num_heads", None)
    nope: Any = getattr(module, "qk_nope_head_dim", None)
    width: Any = getattr(module, "v_head_dim", None)
    if type(project) is not torch.nn.Linear or project.bias is not None or None in (heads, nope, width):
        raise NotImplementedError(f'attn_implementation="{ATTENTION}": latent attention of {type(module).__name__}, whose kv_b_proj '
                                  f"is {type(project).__name__}; a torch.nn.Linear without bias is supported")
    weight = project.weight.detach().view(heads, nope + width, -1)
    return dict(w_uk=weight[:, :nope], w_uv=weight[:, nope:])


def _reason(module: torch.nn.Module) -> str:
    """Why attention got keys that come from no PagedCache."""
    config = getattr(module, "config", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        original = rope.get("original_max_position_embeddings", getattr(config, "original_max_position_embeddings", None))
        return (f'attn_implementation="{ATTENTION}" got keys that are in no PagedCache. If you passed one, the model has dropped it: '
                f"longrope has other factors for more than {original} tokens, so generate computes all keys anew, in a "
                f"cache of its own. Generate up to {original} tokens, call reset() of the cache, and generate on from all "
                "tokens so far")
    return (f'attn_implementation="{ATTENTION}" reads keys from pages: pass past_key_values=PagedCache(model.config, '
            "capacity_tokens=...) to generate or to the model")


def mask(*, attention_mask: torch.Tensor | None = None, allow_is_causal_skip: bool = True, use_vmap: bool = False,
         q_length: int = 0, **kwargs: Any) -> torch.Tensor | None:
    """The mask function of transformers' AttentionMaskInterface: keeps the mask as [rows, tokens].

    A model that shares keys between layers may cut the mask by queries, so its mask is [rows, 1, 1, tokens]. One with compressed
    rows gets a mask of no tokens, [rows, 1, new tokens, 0]. What causal, sliding and chunked masks add to it, the layer's group knows.
    """
    rows, handover.masked, handover.latents = handover.masked, None, None  # latents of a forward that raised
    if use_vmap or not allow_is_causal_skip or "allow_is_bidirectional_skip" in kwargs:
        raise NotImplementedError(f'attn_implementation="{ATTENTION}": a mask that is more than causal, sliding or chunked')
    if rows is not None:
        rows.announced = attention_mask, q_length
        if any(place is not None and place.same for place in rows.geometry.places):
            return torch.zeros(kwargs["batch_size"], 1, q_length, 0)  # the model puts its mask of compressed rows after it
        if attention_mask is not None and any(place is not None and place.shared for place in rows.geometry.places):
            return attention_mask[:, None, None]
    return attention_mask
