"""PagedCache: the cache that a user makes and a model gets."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache, PreTrainedConfig
from transformers.cache_utils import DummyLayer

import kvcache

from .compressed import CompressedLayer
from .geometry import Geometry, geometry
from .layers import PagedLayer, PoolingLayer, PositionsLayer, StateLayer, handover
from .rows import Rows


_FLOATS = ("f32", "f16", "bf16")


class PagedCache(Cache):
    """The keys and values of one batch of sequences, in the pages of a kvcache.Cache.

    Reordering beams, `copy.deepcopy`, `batch_repeat_interleave` and `batch_select_indices` share pages and copy no more than
    a last one; `crop(-n)` gives pages back. The rows leave the pool when the cache is reset or garbage-collected.

    Args:
        config: of the model; of a composite model its text decoder is used.
        capacity_tokens: tokens that the pool holds, over all rows of all caches in it.
        dtype: of stored K and V; None = config.dtype. "int8" and others as in kvcache.Layer.
        attention: "kvcache": the attention implementation of that name reads the pages. "model": the model computes
            attention itself, from copies of what the pages hold. For models that do not use the attention interface of
            transformers, with attn_implementation="eager"; hidden tokens take slots then.
        max_batch_tokens: most tokens of one forward, rows times prompt length; None = capacity_tokens, at most 8192.
            `generate(prefill_chunk_size=...)` cuts a longer prompt.
        options: of kvcache.Cache: page_size (by default 16; with compressed rows a multiple of their tokens), max_sequences
            (rows; for a moment twice as many where beams are reordered or a cache is copied), rollback_tokens (how many
            tokens crop can drop before a sliding window), context, ...

    Raises:
        NotImplementedError: the model has layers that this attention, or the package, cannot serve.
        What kvcache.Cache raises; in a forward kvcache.OutOfPages, BatchTooLarge, TooManySequences: nothing is stored then.

    Thread safety: one thread at a time a cache; caches of one pool in any threads.
    """

    def __init__(self, config: PreTrainedConfig, *, capacity_tokens: int, dtype: Any = None, attention: str = "kvcache",
                 max_batch_tokens: int | None = None, **options: Any) -> None:
        if attention not in ("kvcache", "model"):
            raise ValueError(f'PagedCache: attention must be "kvcache" or "model", not {attention!r}')
        config = config.get_text_config(decoder=True)
        layout = geometry(config, dtype or config.dtype or torch.get_default_dtype(), attends=attention == "kvcache")
        # A page of compressed rows has whole ones.
        options.setdefault("page_size", math.lcm(16, *(place.ratio for places in layout.compressed for place in places.values())))
        pool = kvcache.Cache(layout.layers, layout.groups, capacity_tokens=capacity_tokens,
                             max_batch_tokens=max_batch_tokens or min(capacity_tokens, 8192), **options)
        if attention == "model" and any(isinstance(layer, kvcache.Layer) and pool.layer_pool(index, "k").dtype not in _FLOATS
                                        for index, layer in enumerate(layout.layers)):
            raise ValueError(f'PagedCache: attention="model" needs float pages, not dtype={dtype!r}')
        self._config, self._attends = config, attention == "kvcache"
        self._attach(Rows(pool, layout))

    def _attach(self, rows: Rows) -> None:
        self._rows = rows
        self._states = [None if place is None else StateLayer(rows, place) for place in rows.geometry.states]
        layers = [self._keys(rows, index) or states or DummyLayer() for index, states in enumerate(self._states)]
        super().__init__(layers=layers)  # type: ignore[arg-type]
        weakref.finalize(self, rows.clear).atexit = False

    def _keys(self, rows: Rows, index: int) -> PagedLayer | None:
        geometry = rows.geometry
        place, compressed = geometry.places[index], geometry.compressed[index]
        if place is None or place.shared:
            return None
        if place.same:
            return CompressedLayer(rows, place, compressed, self._config, self._attends)
        if geometry.positions is not None and geometry.positions[0] == index:
            return PositionsLayer(rows, place, geometry.positions[1], self._config)
        kind = PoolingLayer if hasattr(self._config, "index_kpool") else PagedLayer
        return kind(rows, place, self._config, self._attends)

    @property
    def pool(self) -> kvcache.Cache:
        """The pages: stats(), pages(sequence), export(sequence, layer) and so on."""
        self._rows.settle()
        return self._rows.pool

    @property
    def sequences(self) -> tuple[int, ...]:
        """The sequence in the pool of each row of the batch."""
        return tuple(self._rows.sequences)

    @property
    def batch_size(self) -> int:
        """Rows, -1 before the first forward."""
        return len(self._rows.sequences) or -1

    def new(self) -> PagedCache:
        """An empty cache over the same pool."""
        return self._sibling(Rows(self.pool, self._rows.geometry))

    def _sibling(self, rows: Rows) -> PagedCache:
        other = type(self).__new__(type(self))
        other._config, other._attends = self._config, self._attends
        other._attach(rows)
        for ours, theirs in zip(self._states, other._states, strict=True):
            if ours is not None and theirs is not None:
                theirs.dtypes = dict(ours.dtypes)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedCache:
        return self._sibling(self._rows.fork())

    def reset(self) -> None:
        """Empties the cache: its rows leave the pool, and the next forward may have another batch size."""
        self._rows.settle()
        self._rows.clear()

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last -tokens_to_remove tokens of every row; 0 changes nothing.

        Raises:
            ValueError for a positive number; kvcache.Evicted if a sliding window needs tokens that were freed: more than
            `rollback_tokens` were to go.
        """
        if tokens_to_remove > 0:
            raise ValueError(f"crop: tokens_to_remove must be negative or 0, not {tokens_to_remove}")
        self._rows.crop(-tokens_to_remove)

    def draft(self) -> None:
        """Begins drafts: tokens of the next forwards may be dropped, also after recurrent states. Then `crop` ends them.

        `crop(-n)` drops the last n drafts and keeps the others, `crop(0)` keeps all. Over recurrent states it can drop those of
        whole forwards, so give drafts one by one, and make the cache with max_draft_states. Until then rows cannot be copied
        or reordered.

        Raises:
            kvcache.Order if drafts have begun already.
        """
        self._rows.settle()
        if self._rows.drafts_from is not None:
            raise kvcache.Order("PagedCache.draft: drafts have begun; crop ends them", status=201)
        self._rows.abort()
        self._rows.drafts_from = self._rows.length

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Row i becomes what row beam_idx[i] was."""
        self._rows.select(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row becomes `repeats` rows that share its pages."""
        self._rows.select([row for row in range(len(self._rows.sequences)) for _ in range(repeats)])

    def batch_select_indices(self, indices: torch.Tensor | Sequence[int]) -> None:
        """Keeps these rows, in this order; indices, or one boolean a row."""
        if self._rows.length > 0:
            self._rows.select(torch.arange(len(self._rows.sequences))[indices].tolist())

    # Functions that models and `generate` call. Lengths are those of the batch, also if the first layer has no keys.

    def __bool__(self) -> bool:
        """Whether the cache holds tokens. Phi-3 replaces a cache that is true when a prompt is longer than its original length."""
        self._rows.settle()
        return self._rows.length > 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens of each row, hidden ones included."""
        self._rows.settle()
        return self._rows.length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Columns of the mask of a layer, and the token of the first one. The mask function comes next."""
        self._rows.settle()
        handover.masked, self._rows.announced = self._rows if self._attends else None, (None, query_length)
        layer = self.layers[layer_idx]
        return layer.get_mask_sizes(query_length) if isinstance(layer, PagedLayer) else (self._rows.length + query_length, 0)

    @property
    def is_croppable(self) -> bool:
        """Whether tokens can be dropped. Recurrent states are known at the end and at checkpoints only."""
        return not any(self._states)

    @property
    def is_linear(self) -> list[bool]:
        """Of each layer: it has states, and no keys."""
        return [isinstance(layer, StateLayer) for layer in self.layers]

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        """Whether there are states, of all layers."""
        self._rows.settle()
        return self._rows.length > 0

    def is_recording_past(self, layer_idx: int) -> bool:
        """Whether a layer's convolutions get every input by update_conv_state."""
        states = self._states[layer_idx]
        return states is not None and states.record_past

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """The last inputs of a convolution, [rows, channels, kernel]; None before the first forward."""
        return self._state_layer(layer_idx).convolution(state_idx)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """A recurrent state; None before the first forward."""
        return self._state_layer(layer_idx).recurrent(state_idx)

    def update_conv_state(self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> torch.Tensor:
        """Appends inputs of a convolution, and returns them after those before."""
        return self._state_layer(layer_idx).update_convolution(conv_states, state_idx)

    def update_recurrent_state(self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0,
                               **kwargs: Any) -> torch.Tensor:
        """Replaces a recurrent state."""
        return self._state_layer(layer_idx).update_recurrent(recurrent_states, state_idx)

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        """Stores new keys of an indexer, [rows, new tokens, dim], and returns all of them."""
        place = self._rows.geometry.indexers[layer_idx]
        if place is None:
            raise ValueError(f"PagedCache: layer {layer_idx} has no indexer")
        return self._rows.extend(place, indexer_key_states[:, None], None)[0][:, 0]

    def _state_layer(self, layer_idx: int) -> StateLayer:
        states = self._states[layer_idx]
        if states is None:
            raise ValueError(f"PagedCache: layer {layer_idx} has no recurrent states")
        return states

    def __repr__(self) -> str:
        return f"<PagedCache, {len(self._rows.sequences)} rows of {self._rows.length} tokens in {self.pool!r}>"
