"""Hugging Face transformers on libkvcache: `model.generate` of an unmodified model, every key and value in pages.

    from kvcache.integrations.transformers import PagedCache

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="kvcache")
    cache = PagedCache(model.config, capacity_tokens=4096)
    model.generate(**inputs, past_key_values=cache)

Importing this module registers the attention implementation "kvcache". A model that was loaded with another one switches
by `model.set_attn_implementation("kvcache")`. Use both or neither: this attention takes keys from a PagedCache only, and
what a PagedCache returns for keys is no tensor that another attention could read.

Rows and positions. Row b of the batch is one sequence of the pool. The model rotates q and k itself, so the library only
has to know which tokens come before which. A token that attention_mask hides takes no slot: the sequence of a row holds its
visible tokens one after another, and windows count those. Outputs of hidden tokens are 0.

    attention_mask      0 0 1 1 1 | 1        cache.get_seq_length() == 6, as generate counts
    slot in the row         0 1 2 | 3        cache.pool.length(cache.sequences[0]) == 4

A forward is one step of the pool. It opens at the first layer's attention and ends with the last one's: a forward that
raised in between has stored nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import torch
from transformers import AttentionInterface, AttentionMaskInterface, Cache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin, DummyLayer, get_layer_types_and_kwargs

import kvcache

ATTENTION = "kvcache"
"""Name of the attention implementation: attn_implementation=ATTENTION."""


class PagedCache(Cache):
    """The keys and values of one batch of sequences, in the pages of a kvcache.Cache.

    Reordering beams, `copy.deepcopy`, `batch_repeat_interleave` and `batch_select_indices` share pages and copy no more than
    a last one; `crop(-n)` gives pages back. The rows leave the pool when the cache is reset or garbage-collected.

    Args:
        config: of the model; of a composite model its text decoder is used.
        capacity_tokens: tokens that the pool holds, over all rows of all caches in it.
        dtype: of stored K and V; None = config.dtype. "int8" and others as in kvcache.Layer.
        max_batch_tokens: most tokens of one forward, rows times prompt length; None = capacity_tokens, at most 8192.
            `generate(prefill_chunk_size=...)` cuts a longer prompt.
        options: of kvcache.Cache: page_size, max_sequences (rows; for a moment twice as many where beams are reordered or
            a cache is copied), rollback_tokens (how many tokens crop can drop before a sliding window), context, ...

    Raises:
        NotImplementedError: the model has layers that are neither full, sliding nor chunked attention.
        What kvcache.Cache raises; in a forward kvcache.OutOfPages, BatchTooLarge, TooManySequences: nothing is stored then.

    Thread safety: one thread at a time a cache; caches of one pool in any threads.
    """

    def __init__(self, config: PreTrainedConfig, *, capacity_tokens: int, dtype: Any = None,
                 max_batch_tokens: int | None = None, **options: Any) -> None:
        config = config.get_text_config(decoder=True)
        layers, groups, places = _geometry(config, dtype or config.dtype or torch.get_default_dtype())
        pool = kvcache.Cache(layers, groups, capacity_tokens=capacity_tokens,
                             max_batch_tokens=max_batch_tokens or min(capacity_tokens, 8192), **options)
        self._attach(_Rows(pool, len(layers)), places)

    def _attach(self, rows: _Rows, places: Sequence[_Place | None]) -> None:
        self._rows, self._places = rows, places
        super().__init__(layers=[DummyLayer() if place is None else _PagedLayer(rows, place) for place in places])
        weakref.finalize(self, rows.clear).atexit = False

    @property
    def pool(self) -> kvcache.Cache:
        """The pages: stats(), pages(sequence), export(sequence, layer) and so on."""
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
        return self._sibling(_Rows(self.pool, self._rows.num_layers))

    def _sibling(self, rows: _Rows) -> PagedCache:
        other = type(self).__new__(type(self))
        other._attach(rows, self._places)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedCache:
        return self._sibling(self._rows.fork())

    def reset(self) -> None:
        """Empties the cache: its rows leave the pool, and the next forward may have another batch size."""
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

    def __repr__(self) -> str:
        return f"<PagedCache, {len(self._rows.sequences)} rows of {self._rows.length} tokens in {self.pool!r}>"


class _Place:
    """Where a layer of the model is: its layer of the pool, and what it sees."""

    def __init__(self, index: int, kind: str, window: int | None) -> None:
        self.index, self.kind, self.window = index, kind, window


def _geometry(config: PreTrainedConfig,
              dtype: Any) -> tuple[list[kvcache.Layer], list[kvcache.Full | kvcache.Sliding | kvcache.Chunked],
                                   list[_Place | None]]:
    """Layers and groups of the pool, and the place of each layer of the model; None = it has no attention."""
    if getattr(config, "kv_lora_rank", None):
        raise NotImplementedError("PagedCache: latent attention (kv_lora_rank): the model expands keys that it reads back")
    if "reuse" in (getattr(config, "kv_sharing_modes", None) or ()):
        raise NotImplementedError("PagedCache: layers that read the keys of other layers (kv_sharing_modes)")
    makers: dict[str, Callable[[Any], Any]] = {"full_attention": lambda window: kvcache.Full(),
                                               "sliding_attention": kvcache.Sliding, "chunked_attention": kvcache.Chunked}
    layers: list[kvcache.Layer] = []
    groups: dict[tuple[str, int | None], int] = {}
    places: list[_Place | None] = []
    for layer, kind, kwargs in zip(config.per_layer_config, *get_layer_types_and_kwargs(config), strict=False):
        if kind == "dummy":
            places.append(None)
            continue
        if kind not in makers:
            raise NotImplementedError(f"PagedCache: a layer of type {kind!r}; {', '.join(makers)} are supported")
        window = kwargs.get("sliding_window")
        group = groups.setdefault((kind, window), len(groups))
        places.append(_Place(len(layers), kind, window))
        q_heads = layer.num_attention_heads
        layers.append(kvcache.Layer(
            group=group, q_heads=q_heads, kv_heads=getattr(layer, "num_key_value_heads", None) or q_heads,
            head_dim=getattr(layer, "head_dim", None) or layer.hidden_size // q_heads, dtype=dtype))
    return layers, [makers[kind](window) for kind, window in groups], places


class _Rows:
    """The rows of a batch: a sequence each, and which of their tokens are stored.

    Invariants outside a step: `stored` is [rows, length]; sequence b holds the stored[b].sum() tokens that it marks. Without
    tokens there are no sequences, so that the next forward may have any number of rows.
    """

    def __init__(self, pool: kvcache.Cache, num_layers: int) -> None:
        self.pool = pool
        self.num_layers = num_layers
        self.sequences: list[int] = []
        self.stored = torch.ones(0, 0, dtype=torch.bool)
        self.step: kvcache.Step | None = None
        self.visible = self.stored  # [rows, new tokens] of the open step
        self.picked: torch.Tensor | None = None  # the visible ones of its rows * new tokens; None = all
        self.pending: set[int] = set()  # layers that have not run in it

    @property
    def length(self) -> int:
        """Tokens of each row as transformers counts them, hidden ones included."""
        return int(self.stored.shape[1])

    def begin(self, mask: torch.Tensor | None, num_rows: int, num_new: int) -> kvcache.Step:
        """Opens the step of a forward."""
        self.abort()  # of a forward that raised or was interrupted
        if not self.sequences:
            self.sequences = self.pool.add(num_rows)
            self.stored = torch.ones(num_rows, 0, dtype=torch.bool)
        try:
            self._check_mask(mask, num_rows, num_new)
            new = torch.ones(num_rows, num_new, dtype=torch.bool) if mask is None else mask[:, self.length:].bool()
            growing = [(sequence, count) for sequence, count in zip(self.sequences, new.sum(1).tolist(), strict=True) if count]
            if not growing:
                raise ValueError(f"PagedCache: attention_mask hides all {num_new} new tokens of every row")
            self.step = self.pool.forward(*zip(*growing, strict=True))
        except BaseException:
            self.abort()
            raise
        self.visible, self.picked = new, None if new.all() else new.flatten().nonzero().squeeze(1)
        self.pending = set(range(self.num_layers))
        return self.step

    def _check_mask(self, mask: torch.Tensor | None, num_rows: int, num_new: int) -> None:
        if len(self.sequences) != num_rows:
            raise ValueError(f"PagedCache: the forward has {num_rows} rows, the cache {len(self.sequences)}; reset() makes "
                             "it ready for another batch")
        shape = (num_rows, self.length + num_new)
        if mask is not None and tuple(mask.shape) != shape:
            raise ValueError(f"PagedCache: attention_mask is {list(mask.shape)}; {list(shape)} is needed: {num_rows} rows of "
                             f"{self.length} tokens in the cache and {num_new} new ones")
        past = torch.ones_like(self.stored) if mask is None else mask[:, :self.length].bool()
        if not torch.equal(past, self.stored):
            raise ValueError("PagedCache: attention_mask differs from what the cache was filled with: hidden tokens were not "
                             "stored, and stored ones cannot be hidden later")

    def attend(self, place: _Place, module: torch.nn.Module, mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor,
               v: torch.Tensor, **options: Any) -> torch.Tensor:
        """q [rows, q_heads, new, head_dim]; k and v the same with kv_heads. Returns [rows, new, q_heads, v_head_dim]."""
        num_rows, _, num_new, _ = q.shape
        step = self.step
        if step is None or place.index not in self.pending:
            num_layers = getattr(module.config, "num_hidden_layers", self.num_layers)
            if num_layers < self.num_layers:
                raise ValueError(f"PagedCache: made for {self.num_layers} layers, but the model runs {num_layers} (an early "
                                 "exit?)")
            step = self.begin(mask, num_rows, num_new)
        try:
            q, k, v = (self._pack(x) for x in (q, k, v))
            out: torch.Tensor = step.attend(place.index, q, k, v, **options)
        except BaseException:
            self.abort()
            raise
        self.pending.remove(place.index)
        if not self.pending:
            self._end(step)
        if self.picked is not None:
            out = out.new_zeros(num_rows * num_new, *out.shape[1:]).index_copy_(0, self.picked, out)
        return out.view(num_rows, num_new, *out.shape[1:])

    def _pack(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, heads, new, dim] -> [visible tokens, heads, dim]: a view if there is no padding."""
        x = x.transpose(1, 2).flatten(0, 1)
        return x if self.picked is None else x.index_select(0, self.picked)

    def _end(self, step: kvcache.Step) -> None:
        step.end()
        self.step = None
        self.stored = torch.cat([self.stored, self.visible], dim=1)

    def abort(self) -> None:
        """Closes an open step; its tokens are not stored."""
        step, self.step = self.step, None
        if step is not None and not self.pool.closed:
            step.abort()
        if self.length == 0:
            self._remove()

    def clear(self) -> None:
        self.stored = self.stored[:, :0]
        self.abort()

    def _remove(self) -> None:
        sequences, self.sequences = self.sequences, []
        if sequences and not self.pool.closed:
            self.pool.remove(sequences)

    def crop(self, tokens: int) -> None:
        self.abort()
        kept = self.stored[:, :max(0, self.length - tokens)]
        if self.sequences:
            self.pool.truncate(self.sequences, kept.sum(1).tolist())
        self.stored = kept
        self.abort()  # its rows go with their last token

    def fork(self) -> _Rows:
        other = _Rows(self.pool, self.num_layers)
        if self.sequences:
            other.sequences, other.stored = self.pool.fork(self.sequences), self.stored
        return other

    def select(self, rows: Iterable[int]) -> None:
        """Row i becomes what row rows[i] was: its first heir keeps the sequence, others get forks of it."""
        self.abort()
        if not self.sequences:
            return
        rows = list(rows)
        heirs: dict[int, int] = {}
        twins = [i for i, row in enumerate(rows) if heirs.setdefault(row, i) != i]
        forks = dict(zip(twins, self.pool.fork([self.sequences[rows[i]] for i in twins]), strict=True))
        self.pool.remove([sequence for row, sequence in enumerate(self.sequences) if row not in heirs])
        self.sequences = [forks[i] if i in forks else self.sequences[row] for i, row in enumerate(rows)]
        self.stored = self.stored[rows]


class _PagedLayer(CacheLayerMixin):
    """What transformers sees as a layer of the cache."""

    is_croppable = True
    supports_early_init = False

    def __init__(self, rows: _Rows, place: _Place) -> None:
        super().__init__()
        self.rows, self.place = rows, place
        self.is_sliding = place.window is not None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing: pages exist from the start."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any,  # type: ignore[override]
               **kwargs: Any) -> tuple[_States, _States]:
        """Hands the new states to the attention function, which stores them: only it knows the mask."""
        return _States(self, key_states), _States(self, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.rows.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.rows.length

    def get_max_length(self) -> int:
        return -1


class _States:
    """New keys or values of a layer on their way to its pages: not a tensor of all of them, as other caches return."""

    _HELP = ('what a PagedCache returns is read by its own attention only: load the model with attn_implementation="kvcache", '
             'or call model.set_attn_implementation("kvcache")')

    def __init__(self, layer: _PagedLayer, new: torch.Tensor) -> None:
        self.layer, self.new = layer, new
        self.shape, self.dtype, self.device = new.shape, new.dtype, new.device

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise TypeError(f"{getattr(function, '__name__', function)}: {cls._HELP}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: {self._HELP}")

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(self._HELP)


def attention(module: torch.nn.Module, query: torch.Tensor, key: Any, value: Any, attention_mask: torch.Tensor | None,
              scaling: float | None = None, dropout: float = 0.0, softcap: float | None = None,
              sliding_window: int | None = None, s_aux: torch.Tensor | None = None, is_causal: bool | None = None,
              position_bias: torch.Tensor | None = None, **kwargs: Any) -> tuple[torch.Tensor, None]:
    """The attention function of transformers' AttentionInterface: stores the layer's new keys and values, and attends.

    Args:
        query: [rows, q_heads, new tokens, head_dim].
        key, value: what PagedCache.update returned for the layer.
        attention_mask: what mask() returned.
        scaling, softcap, s_aux: factor of the scores, their soft cap, and attention sinks, [q_heads].

    Returns:
        [rows, new tokens, q_heads, v_head_dim], and None for the weights, which are never made.
    """
    if not isinstance(key, _States):
        raise TypeError('attn_implementation="kvcache" reads keys from pages: pass past_key_values=PagedCache(model.config, '
                        "capacity_tokens=...) to generate or to the model")
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if not causal or dropout or position_bias is not None:
        raise NotImplementedError('attn_implementation="kvcache": attention that is not causal, dropout, position_bias')
    if attention_mask is not None and attention_mask.ndim != 2:
        raise NotImplementedError(f'attn_implementation="kvcache": an attention_mask of shape {list(attention_mask.shape)}; '
                                  "[rows, tokens] is supported")
    place = key.layer.place
    if place.kind == "sliding_attention" and sliding_window not in (None, place.window):
        raise ValueError(f"PagedCache: made for a window of {place.window}, but the model asks for {sliding_window}")
    out = key.layer.rows.attend(
        place, module, attention_mask, query, key.new, value.new, softmax_scale=scaling or 0.0, softcap=softcap or 0.0,
        sinks=None if s_aux is None else s_aux.detach().float())
    return out, None


def mask(*, attention_mask: torch.Tensor | None = None, allow_is_causal_skip: bool = True, use_vmap: bool = False,
         **kwargs: Any) -> torch.Tensor | None:
    """The mask function of transformers' AttentionMaskInterface: keeps the mask as [rows, tokens].

    What causal, sliding and chunked masks add to it, the layer's group knows.
    """
    if use_vmap or not allow_is_causal_skip or "allow_is_bidirectional_skip" in kwargs:
        raise NotImplementedError('attn_implementation="kvcache": a mask that is more than causal, sliding or chunked')
    return attention_mask


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, mask)

__all__ = ["ATTENTION", "PagedCache", "attention", "mask"]
