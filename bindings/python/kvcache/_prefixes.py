"""The prefix index of a Cache: what the C++ calls answer, as values with names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex

from . import _kvcache

TokenIds = Iterable[SupportsIndex]
Media = Iterable[tuple[int, int, bytes]]


@dataclass(frozen=True)
class PrefixHit:
    """What the prefix index has of a query."""

    tokens: int
    """The longest prefix that every group can serve."""
    copied_tokens: int
    """Of these, the tokens in a last page that is not full: attach_prefix copies it."""
    known_tokens: int
    """Tokens that were published in this order, whatever is left of their pages."""
    limited_by: int | None
    """The group that makes `tokens` smaller than what is known; None if no group does."""
    load_tokens: int
    """What `tokens` would be after load_prefix(), without tokens that are faster to compute. Without tiers it is `tokens`."""
    load_ns: int
    """How long that load takes, as the tiers measured it; 0 = nothing to load, or not measured."""
    token_ns: int = 0
    """How long it takes to compute one token, as the cache measured it in forwards on the CPU; 0 = not measured."""
    tier_tokens: tuple[int, ...] = ()
    """How many tokens after `tokens` each tier has, in the order in which the tiers were added. Only match_prefix() and
    load_prefix() search tiers."""


@dataclass(frozen=True)
class Published:
    """What publish_prefix did."""

    known_tokens: int
    """Tokens that the index has now. Fewer than all if it is full of pages in use."""
    pages_added: int
    """Pages that the index did not have before, in all groups."""
    pages_freed: int
    """Pages of the sequence that became free, because the index had others with the same tokens."""


class Prefixes(_kvcache.Cache):
    """The calls of Cache on its prefix index. They raise Unsupported unless the cache was made with prefix_index=True."""

    def match_prefix(self, tokens: TokenIds, *, salt: int = 0, salt_begin: int = 0, adapter: bytes = b"", media: Media = (),
                     allow_all: bool = False) -> PrefixHit:
        """Says what attach_prefix would find, and changes nothing.

        Args:
            tokens: token ids of a prompt.
            salt: tokens under different salts never match; 0 = no salt, at most 2**64 - 1.
            salt_begin: the salt holds from the page that contains this token on. Earlier pages have salt 0.
            adapter: the name of a LoRA adapter or the like. Tokens under different adapters never match.
            media: spans of tokens that stand for an image or the like, by position: (position, tokens, 32-byte hash).
                Tokens before the first difference of the media match. Spans may lie beyond the tokens.
            allow_all: all tokens may be found. By default one less at most, because its logits are needed.

        Raises:
            OutOfRange, Unsupported.
        """
        return PrefixHit(*self._match_prefix(tokens, salt, salt_begin, adapter, media, allow_all))

    def attach_prefix(self, tokens: TokenIds, *, salt: int = 0, salt_begin: int = 0, adapter: bytes = b"",
                      media: Media = (), allow_all: bool = False, stream: Any = None) -> tuple[int, PrefixHit]:
        """Makes a sequence that holds the longest prefix of the tokens that was published. If there is none, it is empty.

        Args:
            tokens, salt, salt_begin, adapter, media, allow_all: as in match_prefix().
            stream: of the copy of a partial page, as forward().

        Returns:
            The id of the new sequence, and what was found. The next step appends tokens[hit.tokens:].

        Raises:
            TooManySequences, OutOfPages, OutOfRange, Unsupported; nothing changed then.
        """
        sequence, hit = self._attach_prefix(tokens, salt, salt_begin, adapter, media, allow_all, stream)
        return sequence, PrefixHit(*hit)

    def publish_prefix(self, sequence: SupportsIndex, tokens: TokenIds, *, salt: int = 0, salt_begin: int = 0,
                       adapter: bytes = b"", media: Media = (), session: int = 0, priority: int = 0,
                       time_to_live: int = 0, keep_private: bool = False) -> Published:
        """Makes the first tokens of a sequence findable, also after it is removed. Can be repeated while it grows.

        Args:
            sequence: an id.
            tokens: the token ids that were appended to it, all or the first ones. The library cannot check them.
            salt, salt_begin, adapter, media: as in match_prefix().
            session: 0 = none. Any other number: drop_session() drops what no other session published.
            priority: 0 to 100; lower ones are evicted first.
            time_to_live: 0 = no limit. Else so long after set_time() the tokens are evicted before all others.
            keep_private: no tier stores what this call adds.

        Raises:
            StaleId, Busy, Uncommitted, OutOfRange, Order (a layer lacks tokens), Unsupported (a streaming window, longrope's
            long factors).
        """
        return Published(*self._publish_prefix(sequence, tokens, salt, salt_begin, adapter, media, session, priority,
                                               time_to_live, keep_private))

    def pin_prefix(self, tokens: TokenIds, *, salt: int = 0, salt_begin: int = 0, adapter: bytes = b"",
                   media: Media = ()) -> tuple[int, PrefixHit]:
        """Keeps the pages of a published prefix from being evicted. The arguments are those of match_prefix().

        Returns:
            The pin, for unpin_prefix(), and what is pinned.

        Raises:
            OutOfRange, Unsupported.
        """
        pin, hit = self._pin_prefix(tokens, salt, salt_begin, adapter, media)
        return pin, PrefixHit(*hit)
