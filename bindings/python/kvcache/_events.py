"""Events of a Cache's prefix index and tiers: what a router follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from . import _kvcache
from ._errors import BufferTooSmall

_KINDS: dict[int, Literal["stored", "removed", "cleared"]] = {1: "stored", 2: "removed", 3: "cleared"}
_ARRAYS, _SHORT_HASHES = 1, 2


@dataclass(frozen=True)
class Event:
    """A page became findable or stopped being so, or all pages did."""

    number: int
    """In the epoch, from 0. In a snapshot 0."""
    kind: Literal["stored", "removed", "cleared"]
    group: int
    """Layer group; -1 = all."""
    key: bytes | None
    """The page's key (page_keys()); None if all pages are cleared."""
    parent: bytes | None
    """Stored: the key of the page before it; None for the first page of a sequence."""
    position: int
    """Stored: of the page's first token in its sequence."""
    tokens: list[int]
    """Stored: the ids of the page's tokens."""
    session: int
    """Stored: the session that alone published it; 0 = none, or several."""
    salted: bool
    """Stored: whether its salt is not 0."""
    tier: int = 0
    """Where the page is: 0 = in the pools; i = in the tier that was added i-th, counted from 1."""


@dataclass(frozen=True)
class EventRange:
    """What read() and snapshot() found."""

    epoch: int
    """Of the cache: random, never 0."""
    begin: int
    """Number of the first event. Above what was asked for: the ones between are lost, and a snapshot is needed."""
    end: int
    """Number of the event after the last one: the next to read."""
    newest: int
    """Number that the next event will get."""
    events: list[Event]


@dataclass(frozen=True)
class EventMessage:
    """The same as one message in the form that vLLM's consumers read."""

    epoch: int
    begin: int
    end: int
    newest: int
    count: int
    """Events, or pages of a snapshot."""
    payload: bytes
    """MessagePack. Empty if there is no event."""


class Events:
    """The events of a cache: `cache.events`. The cache needs events_capacity; calls raise Unsupported without."""

    def __init__(self, cache: _kvcache.Cache) -> None:
        self._cache = cache

    @property
    def epoch(self) -> int:
        """Drawn at random when the cache was created. A child of fork() has its parent's."""
        return self.read(most=0, next=0).epoch

    def read(self, next: int, most: int = 1024) -> EventRange:
        """The events from number `next` on, at most so many.

        Raises:
            OutOfRange (next is above the number of the next event), Unsupported.
        """
        return _range(self._cache._read_events(False, next, most))

    def snapshot(self) -> EventRange:
        """An event "stored" for each page that the index holds, parents first, and then for those of tiers. Read on from its `end`.

        Raises:
            Unsupported.
        """
        pages, _ = self._cache._event_snapshot_size(0)
        while True:
            try:
                return _range(self._cache._read_events(True, 0, pages))
            except BufferTooSmall as error:  # the index has grown
                pages = error.required + error.required // 8

    def read_message(self, next: int, *, timestamp: float, data_parallel_rank: int | None = None, arrays: bool = False,
                     short_hashes: bool = False, most_bytes: int = 1 << 20) -> EventMessage:  # fmt: skip
        """One message with the events from number `next` on: at most 4096, and as many as fit.

        Args:
            next: the number of the first event.
            timestamp: of the message, in seconds.
            data_parallel_rank: of the engine; None = nil.
            arrays: events as arrays, as older consumers read them. The default is maps.
            short_hashes: keys as integers of 64 bits. The default is 32 bytes.
            most_bytes: of the message.

        Raises:
            BufferTooSmall (not even one event fits), OutOfRange, Unsupported.
        """
        flags = _flags(arrays, short_hashes)
        rank = -1 if data_parallel_rank is None else data_parallel_rank
        return EventMessage(*self._cache._read_event_message(False, next, most_bytes, flags, timestamp, rank))

    def snapshot_message(self, *, timestamp: float, data_parallel_rank: int | None = None, arrays: bool = False,
                         short_hashes: bool = False) -> EventMessage:  # fmt: skip
        """One message that clears all blocks, and then stores each page of snapshot().

        Raises:
            Unsupported.
        """
        flags = _flags(arrays, short_hashes)
        rank = -1 if data_parallel_rank is None else data_parallel_rank
        _, size = self._cache._event_snapshot_size(flags)
        while True:
            try:
                return EventMessage(*self._cache._read_event_message(True, 0, size + 16, flags, timestamp, rank))
            except BufferTooSmall as error:  # the index has grown
                size = error.required + error.required // 8


def _flags(arrays: bool, short_hashes: bool) -> int:
    return (_ARRAYS if arrays else 0) | (_SHORT_HASHES if short_hashes else 0)


def _range(found: tuple[int, int, int, int, list[tuple[Any, ...]]]) -> EventRange:
    epoch, begin, end, newest, events = found
    made = [Event(number, _KINDS[kind], *rest) for number, kind, *rest in events]
    return EventRange(epoch, begin, end, newest, made)
