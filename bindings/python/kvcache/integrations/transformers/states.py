"""Shapes of the recurrent states of a model's layers, from its configuration.

transformers makes states when the first forward hands them over. A pool needs their shapes before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateShapes:
    """The states of one layer for one sequence: transformers tells them apart by state_idx.

    convolutions: [channels, kernel] of each, the last inputs of a causal convolution.
    recurrent: of each, what the recurrence carries on. Without any, the layer is a convolution alone.
    tokens: convolutions that are none: the last token ids, [number].
    """

    convolutions: tuple[tuple[int, ...], ...]
    recurrent: tuple[tuple[int, ...], ...] = ()
    tokens: tuple[int, ...] = ()


def _delta_rule(layer: Any) -> StateShapes:
    keys = layer.linear_num_key_heads * layer.linear_key_head_dim
    values = layer.linear_num_value_heads * layer.linear_value_head_dim
    return StateShapes(((2 * keys + values, layer.linear_conv_kernel_dim),),
                       ((layer.linear_num_value_heads, layer.linear_key_head_dim, layer.linear_value_head_dim),))


def _delta_rule_of_equal_heads(layer: Any) -> StateShapes:
    heads, dim = layer.linear_num_heads, layer.linear_head_dim
    return StateShapes(((3 * heads * dim, layer.linear_conv_kernel_dim),), ((heads, dim, dim),))


def _mamba(channels: int, kernel: int, size: int) -> StateShapes:
    return StateShapes(((channels, kernel),), ((channels, size),))


def _mamba2(heads: int, dim: int, groups: int, size: int, kernel: int, channels: int | None = None) -> StateShapes:
    channels = heads * dim if channels is None else channels
    return StateShapes(((channels + 2 * groups * size, kernel),), ((heads, dim, size),))


def _bamba(layer: Any) -> StateShapes:
    return _mamba2(layer.mamba_n_heads, layer.mamba_d_head, layer.mamba_n_groups, layer.mamba_d_state, layer.mamba_d_conv)


def _zamba(layer: Any) -> StateShapes:
    heads, dim = layer.n_mamba_heads, layer.mamba_expand * layer.hidden_size // layer.n_mamba_heads
    return StateShapes(((heads * dim, layer.mamba_d_conv),), ((heads, dim, layer.mamba_d_state),))


def _convolution(layer: Any) -> StateShapes:
    return StateShapes(((layer.hidden_size, layer.conv_L_cache),))


def _zaya(layer: Any) -> StateShapes:
    heads, kv_heads = layer.num_attention_heads, layer.num_key_value_heads
    return StateShapes((((heads + kv_heads) * layer.head_dim, 2),), ((kv_heads * layer.head_dim // 2,),))


_BY_MODEL: dict[str, Callable[[Any], StateShapes]] = {
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"), _delta_rule),
    **dict.fromkeys(("kimi_linear", "bailing_hybrid", "glm5_next_text"), _delta_rule_of_equal_heads),
    **dict.fromkeys(("bamba", "falcon_h1", "granitemoehybrid"), _bamba),
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), _convolution),
    **dict.fromkeys(("mamba", "falcon_mamba"),
                    lambda layer: _mamba(layer.intermediate_size, layer.conv_kernel, layer.state_size)),
    "jamba": lambda layer: _mamba(layer.mamba_expand * layer.hidden_size, layer.mamba_d_conv, layer.mamba_d_state),
    "mamba2": lambda layer: _mamba2(layer.num_heads, layer.head_dim, layer.n_groups, layer.state_size, layer.conv_kernel),
    "nemotron_h": lambda layer: _mamba2(layer.mamba_num_heads, layer.mamba_head_dim, layer.n_groups, layer.ssm_state_size,
                                        layer.conv_kernel),
    "zamba": _zamba,
    "zamba2": lambda layer: _mamba2(layer.n_mamba_heads, layer.mamba_headdim, layer.mamba_ngroups, layer.mamba_d_state,
                                    layer.mamba_d_conv, int(layer.mamba_expand * layer.hidden_size)),
    "zaya": _zaya,
}


def _inkling(layer: Any, kind: str) -> StateShapes:
    sliding = kind == "sliding"
    keys = (layer.swa_num_key_value_heads * layer.swa_head_dim if sliding else layer.num_key_value_heads * layer.head_dim)
    return StateShapes((*((keys, layer.sconv_kernel_size),) * 2, *((layer.hidden_size, layer.conv_kernel_size),) * 2))


def _qwen4(layer: Any, index: int) -> StateShapes:
    shapes = _delta_rule(layer)
    if index + 1 not in layer.ple_layer_ids:
        return shapes
    embeddings = layer.hc_count * layer.hidden_size, (layer.ple_conv_kernel_size - 1) * layer.ngram_size
    return StateShapes((*shapes.convolutions, embeddings, (layer.ngram_size - 1,)), shapes.recurrent, tokens=(2,))


def state_shapes(model_type: str, layer: Any, index: int, kind: str) -> StateShapes:
    """The states of layer `index`; kind: what its queries see, if it has keys too.

    Raises:
        NotImplementedError: it is not known which states models of this type have.
    """
    if model_type in ("inkling_text", "inkling2_text"):
        return _inkling(layer, kind)
    if model_type == "qwen4_exp_text":
        return _qwen4(layer, index)
    if model_type not in _BY_MODEL:
        raise NotImplementedError(f"PagedCache: the shapes of the recurrent states of model type {model_type!r} are not known")
    return _BY_MODEL[model_type](layer)
