"""The layers and groups of the pool for a model, from its configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import get_layer_types_and_kwargs

import kvcache

from .states import StateShapes, state_shapes


@dataclass(frozen=True)
class Place:
    """Where the keys and values of a layer of the model are.

    index, group: its layer of the pool, and that layer's group. window: of a sliding or chunked layer. latent: it caches [latent | rotary] rows.
    shared: it stores nothing, and reads what an earlier layer stores. same: its keys are its values too.
    """

    index: int
    group: int
    kind: str
    window: int | None = None
    latent: bool = False
    shared: bool = False
    same: bool = False


@dataclass(frozen=True)
class CompressedPlace:
    """Where the compressed rows of a layer of the model are, one for `ratio` tokens, and what they are computed from.

    rows: the rows. tokens: what the model projects of each token, in a window that has the tokens of the next row, and with
    overlaps those of the row before.
    """

    rows: Place
    tokens: Place
    ratio: int
    overlaps: bool


@dataclass(frozen=True)
class StatePlace:
    """Where the recurrent states of a layer of the model are: convolutions first, with a type each."""

    index: int
    shapes: StateShapes
    dtypes: tuple[torch.dtype, ...]


@dataclass
class Geometry:
    """Arguments of the pool, and for each layer of the model the places of what it has; None = it has no such thing.

    places: its keys and values; indexers: the keys of its indexer; compressed: its compressed rows, by the model's names for
    them; states: its recurrent states. positions: a layer of the model that has the positions of the tokens, and where.
    """

    layers: list[kvcache.Layer | kvcache.RecurrentLayer] = field(default_factory=list)
    groups: list[Any] = field(default_factory=list)
    places: list[Place | None] = field(default_factory=list)
    indexers: list[Place | None] = field(default_factory=list)
    compressed: list[dict[str, CompressedPlace]] = field(default_factory=list)
    positions: tuple[int, Place] | None = None
    states: list[StatePlace | None] = field(default_factory=list)
    _groups: dict[Any, int] = field(default_factory=dict)

    def _group(self, key: Any, make: Callable[[], Any]) -> int:
        if key not in self._groups:
            self._groups[key] = len(self.groups)
            self.groups.append(make())
        return self._groups[key]

    def _add_states(self, model_type: str, layer: Any, kind: str, dtype: torch.dtype) -> StatePlace:
        shapes = state_shapes(model_type, layer, len(self.states), kind)
        # Errors of a recurrence add up, so its states are kept in float32.
        dtypes = (*(torch.int64 if index in shapes.tokens else dtype for index in range(len(shapes.convolutions))),
                  *(torch.float32,) * len(shapes.recurrent))
        tensors = [kvcache.StateTensor(shape, dtype)
                   for shape, dtype in zip(shapes.convolutions + shapes.recurrent, dtypes, strict=True)]
        self.layers.append(kvcache.RecurrentLayer(self._group("states", kvcache.Recurrent), tensors))
        return StatePlace(len(self.layers) - 1, shapes, dtypes)

    def _add_keys(self, kind: str, window: int | None, fields: dict[str, Any], source: Place | None,
                  same: bool = False) -> Place:
        latent = "latent_dim" in fields
        row = "latent" if latent else "kv"
        makers: dict[str, Callable[[], Any]] = {
            "full": lambda: kvcache.Full(row=row), "sliding": lambda: kvcache.Sliding(window or 0, row=row),
            "chunked": lambda: kvcache.Chunked(window or 0, row=row)}
        group = self._group((kind, window, row), makers[kind])
        self.layers.append(kvcache.Layer(group=group, kv_layer=None if source is None else source.index, **fields))
        return Place(len(self.layers) - 1, group, kind, window, latent, source is not None, same)

    def _add_indexer(self, dim: int, dtype: Any) -> Place:
        """An indexer has one key a token and no values: a latent row."""
        return self._add_keys("full", None, dict(q_heads=1, head_dim=dim, latent_dim=dim, scale=1.0, dtype=dtype), None)

    def _add_compressed(self, ratio: int, overlaps: bool, q_heads: int, dim: int, dtypes: tuple[Any, Any],
                        keys_only: bool = False) -> CompressedPlace:
        """One row of `dim` for `ratio` tokens; dtypes: of the rows, and of what they are computed from.

        The model projects each token to keys and gates of a row, and with overlaps also to those of the row after.
        """
        group = self._group(("compressed", ratio), lambda: kvcache.Full(row="latent", tokens_per_row=ratio))
        values: dict[str, Any] = dict(keys_only=True) if keys_only else dict(latent_dim=dim, scale=1.0)
        self.layers.append(kvcache.Layer(group=group, q_heads=q_heads, head_dim=dim, dtype=dtypes[0], **values))
        rows = Place(len(self.layers) - 1, group, "compressed", latent=True, same=True)
        heads = 4 if overlaps else 2
        fields = dict(q_heads=heads, kv_heads=heads, head_dim=dim, keys_only=True, dtype=dtypes[1])
        tokens = self._add_keys("sliding", 2 * ratio if overlaps else ratio, fields, None)
        return CompressedPlace(rows, tokens, ratio, overlaps)


# Layer types of transformers, by what their queries see; and whether they have states beside keys and values.
_KINDS = {"full_attention": ("full", False), "sliding_attention": ("sliding", False), "chunked_attention": ("chunked", False),
          "hybrid": ("full", True), "hybrid_sliding": ("sliding", True)}
_STATES_ALONE = ("linear_attention", "conv")
_MISSING = {
    "indexed_attention": "attention over the keys that an indexer selects",
    "minimax_m3_sparse": "attention over the blocks of keys that an indexer selects",
}


# Models that no pool can serve, and models whose attention differs from what their configuration says.
_UNSERVED = {
    "minimax": "its linear attention keeps states in a cache class of its own",
    "recurrent_gemma": "it keeps its states in its modules, not in the cache",
}
_OWN_ATTENTION = {
    "qwen4_exp_text": "its queries see blocks of keys that an indexer selects from the mask",
    "moshi": "its sliding layers see all earlier keys of a forward",
    "inkling_text": "its scores have learned relative logits, which the attention interface does not pass on",
    "inkling2_text": "its scores have learned relative logits, which the attention interface does not pass on",
}


def _heads(model_type: str, layer: Any, kind: str) -> dict[str, Any]:
    """Fields of a kvcache.Layer that say how many heads there are, and how wide."""
    q_heads = getattr(layer, "num_attention_heads", None)
    if not getattr(layer, "is_encoder_decoder", False) and getattr(layer, "decoder_attention_heads", None):
        q_heads = layer.decoder_attention_heads  # a decoder alone, with a configuration whose other names mean the encoder
        return dict(q_heads=q_heads, kv_heads=q_heads, head_dim=layer.hidden_size // q_heads)
    if not q_heads:
        raise NotImplementedError(f"PagedCache: the configuration of model type {model_type!r} has no num_attention_heads: it keeps "
                                  "no keys, or says otherwise how many heads they have")
    if rank := getattr(layer, "kv_lora_rank", None):
        # The scale is an argument of each attend. The pool needs one too.
        return dict(q_heads=q_heads, kv_heads=1, head_dim=rank + layer.qk_rope_head_dim, latent_dim=rank, scale=1.0)
    kv_heads = getattr(layer, "num_key_value_heads", None) or q_heads
    dim = getattr(layer, "head_dim", None) or layer.hidden_size // q_heads
    fields = dict(q_heads=q_heads, kv_heads=kv_heads, head_dim=dim, v_head_dim=getattr(layer, "v_head_dim", None) or 0)
    if special := _SPECIAL_HEADS.get(model_type):
        fields |= special(layer, kind)
    return fields


def _zamba_heads(layer: Any, kind: str) -> dict[str, Any]:
    return dict(head_dim=layer.attention_head_dim)


def _mimo_heads(layer: Any, kind: str) -> dict[str, Any]:
    return dict(kv_heads=layer.num_key_value_heads * 2) if kind == "sliding" else {}


def _inkling_heads(layer: Any, kind: str) -> dict[str, Any]:
    if kind != "sliding":
        return {}
    return dict(q_heads=layer.swa_num_attention_heads, kv_heads=layer.swa_num_key_value_heads, head_dim=layer.swa_head_dim)


def _v4_heads(layer: Any, kind: str) -> dict[str, Any]:
    return dict(latent_dim=layer.head_dim, scale=1.0)  # a key is its value too


def _bigcode_heads(layer: Any, kind: str) -> dict[str, Any]:
    return dict(kv_heads=1 if layer.multi_query else layer.num_attention_heads)


def _falcon_heads(layer: Any, kind: str) -> dict[str, Any]:
    if layer.new_decoder_architecture:
        return dict(kv_heads=layer.num_attention_heads)  # it repeats K and V before it caches them
    return dict(kv_heads=1 if layer.multi_query else layer.num_attention_heads)


# Models whose configuration says it in other words.
_SPECIAL_HEADS: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "mimo_v2_flash": _mimo_heads, "deepseek_v4": _v4_heads, "zamba": _zamba_heads, "zamba2": _zamba_heads, "falcon": _falcon_heads,
    "gpt_bigcode": _bigcode_heads, "inkling_text": _inkling_heads, "inkling2_text": _inkling_heads}


# Layer types with compressed rows; and whether a row overlaps the one before, and an indexer with rows of its own selects rows.
_COMPRESSED = {"compressed_sparse_attention": True, "heavily_compressed_attention": False}


def _compressed(result: Geometry, layer: Any, kind: str, dtypes: tuple[Any, Any]) -> dict[str, CompressedPlace]:
    """The compressed rows of a layer, by the names that its modules have for them."""
    ratio, selects = layer.compress_rates[kind], _COMPRESSED[kind]
    places = {"compressor": result._add_compressed(ratio, selects, layer.num_attention_heads, layer.head_dim, dtypes)}
    if selects:
        own = (dtypes[1], dtypes[1])  # the model reads them
        places["indexer"] = result._add_compressed(ratio, True, layer.index_n_heads, layer.index_head_dim, own, keys_only=True)
    return places


def _indexer_dim(layer: Any) -> int:
    dim: int = getattr(layer, "index_head_dim", None) or layer.indexer_head_dim
    return 2 * dim + 1 if hasattr(layer, "index_kpool") else dim  # pooled: a key, its gate, and whether the token is visible


def _sources(kinds: list[str], modes: list[str | None]) -> list[int | None]:
    """For each layer, the layer of the model whose keys it reads: the last of its type that stores for others."""
    stored: dict[str, int] = {}
    sources: list[int | None] = []
    for index, (kind, mode) in enumerate(zip(kinds, modes, strict=True)):
        sources.append(stored[kind] if mode == "reuse" else None)
        if mode == "store":
            stored[kind] = index
    return sources


def geometry(config: PreTrainedConfig, dtype: Any, attends: bool) -> Geometry:
    """The pool of a model; attends: the library computes attention, so layers that read the keys of others are in the pool too.

    Raises:
        NotImplementedError: it has layers that this package does not serve.
    """
    why = _UNSERVED.get(config.model_type) or (_OWN_ATTENTION.get(config.model_type) if attends else None)
    if why is not None:
        hint = '; make the cache with PagedCache(..., attention="model")' if config.model_type in _OWN_ATTENTION else ""
        raise NotImplementedError(f"PagedCache: model type {config.model_type!r}: {why}{hint}")
    kinds, kwargs = get_layer_types_and_kwargs(config)
    modes = getattr(config, "kv_sharing_modes", None) or [None] * len(kinds)
    sources = _sources(getattr(config, "layer_types", None) or kinds, modes)
    own_dtype = config.dtype or torch.get_default_dtype()
    result = Geometry()
    for layer, kind, own, source in zip(config.per_layer_config, kinds, kwargs, sources, strict=False):
        place = states = indexer = None
        compressed: dict[str, CompressedPlace] = {}
        if source is not None and attends:
            read = result.places[source]
            assert read is not None
            fields = _heads(config.model_type, layer, read.kind) | dict(dtype=dtype)
            place = result._add_keys(read.kind, read.window, fields, read)
        elif kind == "indexed_attention" and source is None and not attends:
            fields = _heads(config.model_type, layer, "full") | dict(dtype=dtype)
            place = result._add_keys("full", None, fields, None)
            types = getattr(config, "indexer_types", None)
            if types is None or types[len(result.places)] != "shared":
                indexer = result._add_indexer(_indexer_dim(layer), dtype)
            if config.model_type == "qwen4_exp_text" and result.positions is None:
                # Three numbers a token, which float32 has exactly up to 2^24.
                fields = dict(head_dim=3, keys_only=True, dtype="f32")
                result.positions = len(result.places), result._add_keys("full", None, fields, None)
        elif kind in _KINDS and source is None:
            visible, has_states = _KINDS[kind]
            if visible == "chunked" and not attends:
                visible = "sliding"  # the model's own mask leaves out what is before the chunk
            states = result._add_states(config.model_type, layer, visible, own_dtype) if has_states else None
            fields = _heads(config.model_type, layer, visible) | dict(dtype=dtype)
            place = result._add_keys(visible, own.get("sliding_window"), fields, None, config.model_type == "deepseek_v4")
        elif kind in _COMPRESSED:
            fields = _heads(config.model_type, layer, "sliding") | dict(dtype=dtype)
            place = result._add_keys("sliding", layer.sliding_window, fields, None, same=True)
            compressed = _compressed(result, layer, kind, (dtype, own_dtype))
        elif kind in _STATES_ALONE:
            states = result._add_states(config.model_type, layer, "", own_dtype)
        elif kind != "dummy" and source is None:
            hint = '; make the cache with PagedCache(..., attention="model")' if kind == "indexed_attention" else ""
            raise NotImplementedError(f"PagedCache: a layer of type {kind!r} needs {_MISSING.get(kind, 'a cache of its own')}, "
                                      f"which this package does not pass on to the library{hint}")
        result.places.append(place)
        result.indexers.append(indexer)
        result.compressed.append(compressed)
        result.states.append(states)
    return result
