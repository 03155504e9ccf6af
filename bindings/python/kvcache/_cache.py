"""Cache and estimate: the constructors and what is made of their answers. The calls themselves are in C++."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import _kvcache
from ._config import Context, Group, Layer, RecurrentLayer, _group_fields, _with_storage
from ._errors import InvalidArgument, StaleId
from ._events import Events
from ._transfers import Transfers

_NO_ROLLBACK, _STREAMING, _DETERMINISTIC, _PREFIX_INDEX, _ZERO_ON_FREE = 1, 2, 16, 32, 64  # KVC_CACHE_*
_POLICIES = {"reuse": 0, "lru": 1}  # KVC_PREFIX_POLICY_*
_SHARING = {"auto": 0, "never": 4, "always": 8}  # KVC_CACHE_NO_PREFIX_SHARING, KVC_CACHE_SHARE_ALL_PREFIXES


@dataclass(frozen=True)
class Stats:
    """Counts of one layer group or of the whole cache. Pages of open steps count as used, their tokens not as held."""

    num_sequences: int
    """Sequences that exist."""
    pages_total: int
    pages_used: int
    """Pages with at least one reference."""
    pages_free: int
    pages_shared: int
    """Used pages that belong to two or more sequences."""
    pages_peak: int
    """Most pages ever used at once."""
    tokens_held: int
    """Tokens stored, a shared one counted once (whole cache: the largest group's)."""
    tokens_shared: int
    """Of those, tokens that belong to two or more sequences."""
    tokens_logical: int
    """Sum of the sequences' lengths: what a cache without sharing would hold."""
    fragmentation_bytes: int
    """Bytes of used pages that hold no token."""
    storage_bytes: int
    """Bytes of the pools."""
    pages_published: int
    """Pages that the prefix index holds."""
    pages_idle: int
    """Of those, pages that nothing else holds: they are evicted when pages are short. They count as used."""
    pages_evicted: int
    """Pages evicted since the cache was made."""
    prefix_attaches: int
    """Calls of attach_prefix that succeeded (of the cache, in every group)."""
    prefix_tokens: int
    """Tokens that they found, likewise."""


@dataclass(frozen=True)
class GroupEstimate:
    """What one layer group would take."""

    num_pages: int
    page_bytes: int
    """Bytes of one page in all layers of the group."""
    token_bytes: int
    """Bytes that one token takes in all layers of the group while it is stored."""
    storage_bytes: int


@dataclass(frozen=True)
class Estimate:
    """What a cache would take: whole, and by layer group."""

    num_pages: int
    token_bytes: int
    """Bytes that one token takes in all layers while it is stored."""
    storage_bytes: int
    """Page pools."""
    bookkeeping_bytes: int
    """Host memory for page tables and sequences."""
    scratch_bytes: int
    """Memory for the largest batch."""
    groups: tuple[GroupEstimate, ...]

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.storage_bytes + self.bookkeeping_bytes + self.scratch_bytes


def _sizes(page_size: int, capacity_tokens: int, capacity_pages: int, capacity_bytes: int, max_sequences: int,
           max_batch_tokens: int, max_open_forwards: int, rollback_tokens: int | None, max_tree_nodes: int,
           max_checkpoints: int, streaming: bool, share_prefixes: str, deterministic: bool,
           storage: int, prefix_index: bool, prefix_pages: int, prefix_checkpoints: int, prefix_policy: str,
           zero_on_free: bool, fingerprint: bytes | None, events_capacity: int,
           max_draft_states: int, tp_size: int, tp_rank: int, events_tier_pages: int) -> tuple[Any, ...]:
    if share_prefixes not in _SHARING:
        raise InvalidArgument(f'Cache: share_prefixes must be "auto", "never" or "always", not {share_prefixes!r}',
                              status=1)  # fmt: skip
    if prefix_policy not in _POLICIES:
        raise InvalidArgument(f'Cache: prefix_policy must be "reuse" or "lru", not {prefix_policy!r}', status=1)
    flags = _SHARING[share_prefixes] | (_DETERMINISTIC if deterministic else 0)
    flags |= (_NO_ROLLBACK if rollback_tokens == 0 else 0) | (_STREAMING if streaming else 0)
    flags |= (_PREFIX_INDEX if prefix_index else 0) | (_ZERO_ON_FREE if zero_on_free else 0)
    return (flags, page_size, max_sequences, max_batch_tokens, max_open_forwards, rollback_tokens or 0,
            capacity_tokens, capacity_pages, capacity_bytes, max_tree_nodes, max_checkpoints, storage, prefix_pages,
            prefix_checkpoints, _POLICIES[prefix_policy], fingerprint, events_capacity, max_draft_states,
            tp_size, tp_rank, events_tier_pages)  # fmt: skip


def estimate(layers: Sequence[Layer | RecurrentLayer], groups: Sequence[Group] | None = None, page_size: int = 16,
             capacity_tokens: int = 0, capacity_pages: int = 0, capacity_bytes: int = 0, max_sequences: int = 64,
             max_batch_tokens: int = 2048, max_open_forwards: int = 2, rollback_tokens: int | None = None,
             max_tree_nodes: int = 64, max_checkpoints: int = 0, streaming: bool = False,
             share_prefixes: str = "auto", deterministic: bool = False, context: Context | None = None,
             storage: Any = "own", prefix_index: bool = False, prefix_pages: int = 0,
             prefix_checkpoints: int = 0, prefix_policy: str = "reuse", zero_on_free: bool = False,
             fingerprint: bytes | None = None, events_capacity: int = 0, max_draft_states: int = 0,
             tp_size: int = 1, tp_rank: int = 0, events_tier_pages: int = 0) -> Estimate:
    """What Cache(...) with the same arguments would take, or why it would be refused; allocates no pool.

    Raises:
        What Cache raises, except OutOfMemory for the pools.
    """
    context = Context() if context is None else context
    layers, kind = _with_storage(layers, storage)
    layer_fields, group_fields = [layer._fields() for layer in layers], _group_fields(groups)
    sizes = _sizes(page_size, capacity_tokens, capacity_pages, capacity_bytes, max_sequences, max_batch_tokens,
                   max_open_forwards, rollback_tokens, max_tree_nodes, max_checkpoints, streaming, share_prefixes,
                   deterministic, kind, prefix_index, prefix_pages, prefix_checkpoints, prefix_policy, zero_on_free,
                   fingerprint, events_capacity, max_draft_states, tp_size, tp_rank, events_tier_pages)  # fmt: skip
    pages, _, token_bytes, storage, bookkeeping, scratch = _kvcache.estimate(
        context, layer_fields, group_fields, sizes, -1)
    by_group = (_kvcache.estimate(context, layer_fields, group_fields, sizes, group)
                for group in range(len(group_fields) or 1))
    return Estimate(pages, token_bytes, storage, bookkeeping, scratch,
                    tuple(GroupEstimate(*fields[:4]) for fields in by_group))


class Cache(Transfers):
    """Page pools for every layer of a model, and sequences in them.

    Sequences are integers, and live until they are removed. The cache frees its memory on close(), at the end of a `with`
    block, or when it is garbage-collected.

    Args:
        layers: one Layer for each layer of the model.
        groups: layer groups, Full(), Sliding(window), Chunked(chunk), Cross() and Recurrent(); None = one full
            group.
        page_size: tokens a page.
        capacity_tokens, capacity_pages, capacity_bytes: at most one of the three: tokens or pages that a full group
            holds, or bytes of all pools together. None of them only if every group but recurrent ones has its own `pages`.
        max_sequences: most sequences at once.
        max_batch_tokens: most tokens of one step.
        max_open_forwards: most steps open at once.
        rollback_tokens: tokens kept before every window and chunk, so that up to so many can be dropped (rejected
            drafts). None = the library's default, max_tree_nodes; 0 = none.
        max_tree_nodes: most uncommitted tree nodes of a sequence, at most 1024.
        max_checkpoints: with a Recurrent group: checkpoints that a sequence keeps, at most 1024; 0 = 1.
        max_draft_states: with a Recurrent group: the first nodes of an uncommitted tree whose states are kept, so that
            each of them can be committed; at most 63.
        streaming: sequences may get streaming windows (set_streaming).
        share_prefixes: whether rows of a step that begin with the same pages attend there as one group: "auto" where it
            pays, "never", or "always". Results agree within rounding.
        deterministic: the bits of an output depend on nothing but its sequence: not on the batch, the threads, how tokens
            were cut into steps, page ids or forks. Slower, most of all in decoding; no prefix is shared in a group.
        context: where to compute; None = a new Context().
        storage: "own": page pools of the library, or what layers have as kv_storage. A sequence with an item a layer:
            the server's pools, adopted: an array for K and V together (of an MLA layer: for its rows), a pair (K, V), or
            None for the library's; shapes as in Layer, which has none then. None: page tables only, for engines with
            pools and kernels of their own: take_copies() hands over the copies that the cache would have made, and
            attend, append, exports and imports raise Unsupported.
        prefix_index: published tokens stay findable after their sequence is removed (publish_prefix, attach_prefix).
        prefix_pages: with prefix_index: most pages of tokens that the index holds in each group; 0 = the pages of the
            largest group.
        prefix_checkpoints: with prefix_index and a Recurrent group: most positions whose states the index holds; 0 =
            max_sequences.
        prefix_policy: with prefix_index: what is evicted first. "lru": the least recently used; "reuse": the same, but each
            of the last three uses of a prefix lets it live longer, so that prefixes which were used once go first.
        zero_on_free: pages are cleared before they are given to a sequence, so that none sees bytes of another one.
        fingerprint: 32 bytes that name the model: weights, quantisation, tokenizer. Without it there are no events.
        events_capacity: with prefix_index and a fingerprint: events of the index that the cache keeps for readers; 0 = none.
        tp_size: ranks of tensor parallelism, each with a cache of its own for its share of the kv heads. Ranks store objects
            of their own in tiers, even with one fingerprint. A transfer may go to caches of another tp_size.
        tp_rank: the rank of this cache, 0 to tp_size - 1.
        events_tier_pages: with events_capacity: pages in tiers of which events tell; 0 = events tell only of the pools.

    Raises:
        InvalidArgument, OutOfRange, Unsupported, OutOfMemory; DType, Device, Rank, Shape, Stride for a layer's storage,
        Duplicate for one that overlaps another's (.index = the layer).
    """

    _made = False

    def __init__(self, layers: Sequence[Layer | RecurrentLayer], groups: Sequence[Group] | None = None, page_size: int = 16,
                 capacity_tokens: int = 0, capacity_pages: int = 0, capacity_bytes: int = 0, max_sequences: int = 64,
                 max_batch_tokens: int = 2048, max_open_forwards: int = 2, rollback_tokens: int | None = None,
                 max_tree_nodes: int = 64, max_checkpoints: int = 0, streaming: bool = False,
                 share_prefixes: str = "auto", deterministic: bool = False, context: Context | None = None,
                 storage: Any = "own", prefix_index: bool = False, prefix_pages: int = 0,
                 prefix_checkpoints: int = 0, prefix_policy: str = "reuse", zero_on_free: bool = False,
                 fingerprint: bytes | None = None, events_capacity: int = 0, max_draft_states: int = 0,
                 tp_size: int = 1, tp_rank: int = 0, events_tier_pages: int = 0) -> None:
        layers, kind = _with_storage(layers, storage)
        sizes = _sizes(page_size, capacity_tokens, capacity_pages, capacity_bytes, max_sequences, max_batch_tokens,
                       max_open_forwards, rollback_tokens, max_tree_nodes, max_checkpoints, streaming, share_prefixes,
                       deterministic, kind, prefix_index, prefix_pages, prefix_checkpoints, prefix_policy, zero_on_free,
                       fingerprint, events_capacity, max_draft_states, tp_size, tp_rank, events_tier_pages)  # fmt: skip
        super().__init__(Context() if context is None else context, [layer._fields() for layer in layers],
                         _group_fields(groups), sizes)
        self._made = True

    @property
    def events(self) -> Events:
        """What happens to the prefix index, for routers. Needs events_capacity."""
        return Events(self)

    def stats(self, group: int | None = None) -> Stats:
        """Counts of one layer group, or of the whole cache (None).

        Raises:
            OutOfRange for a group that does not exist.
        """
        return Stats(*self._stats(-1 if group is None else group))

    def describe(self) -> dict[str, Any]:
        """The cache at this moment: its groups with a map of their pages, its sequences and what they share, the prefix
        index, tiers, and open steps. docs/reference/describe.md lists the fields. No tokens. For dashboards: it walks all
        page tables."""
        described: dict[str, Any] = json.loads(self._describe())
        return described

    @contextmanager
    def sequences(self, n: int = 1) -> Iterator[list[int]]:
        """`with cache.sequences(8) as ids:` adds n sequences and removes those that are left when the block ends.

        Raises:
            TooManySequences, InvalidArgument.
        """
        ids: list[int] = self.add(n)
        try:
            yield ids
        finally:
            for sequence in () if self.closed else ids:
                try:
                    self.remove(sequence)
                except StaleId:  # the block removed it
                    pass

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, exception_type: type[BaseException] | None, exception: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._made:  # tracebacks and debuggers show the object of a constructor that raised
            return "<kvcache.Cache, not made>"
        if self.closed:
            return "<kvcache.Cache, closed>"
        stats = self.stats()
        return (f"<kvcache.Cache, {stats.num_sequences} sequences, {stats.pages_used} of {stats.pages_total} pages "
                f"used>")
