"""Tiers of a Cache: folders that keep published pages, and the jobs that load from them."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass

from ._prefixes import PrefixHit, Prefixes, TokenIds

_SYNC = {"data": 0, "none": 1, "full": 2}
_STORE = {"published": 0, "reused": 1, "nothing": 2}


@dataclass(frozen=True)
class TierTraffic:
    """Pages that went between the pools and all tiers, since the cache was made."""

    num_tiers: int
    pages_waiting: int
    """Queued for their store, or being stored. 0: the tiers have all that they will get."""
    pages_stored: int
    pages_dropped: int
    """Evicted before they were copied, or too many for the queue."""
    pages_not_stored: int
    """That a tier refused, or failed to store."""
    pages_loading: int
    """Of loads that run."""
    pages_loaded: int
    pages_not_loaded: int
    """That a tier no longer had, or whose bytes were not right."""


class LoadJob:
    """A load that runs. `tokens` is None until poll() or wait() has seen its end."""

    def __init__(self, cache: Tiers, job: int) -> None:
        self._cache = cache
        self._job = job
        self.tokens: int | None = None
        """Tokens that were loaded, once the job has ended. They are findable then."""

    def fileno(self) -> int:
        """A descriptor that is readable when some job of the cache has ended: for select, selectors and asyncio."""
        return self._cache._job_descriptor()

    def poll(self) -> int | None:
        """The number of tokens that were loaded, or None while the job runs. It waits for nothing."""
        if self.tokens is None:
            self.tokens = self._cache._poll_job(self._job)
        return self.tokens

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the job, and returns the number of tokens that were loaded.

        Raises:
            TimeoutError: the job runs on, and can be waited for again.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"the load has not ended after {timeout} s")
            # Another job may have made the descriptor readable, so it is looked at again soon.
            select.select([self.fileno()], [], [], 0.05 if left is None else min(left, 0.05))
        assert self.tokens is not None
        return self.tokens

    def cancel(self) -> None:
        """Ends the job early. Pages that are being read are waited for: poll() or wait() for its end."""
        if self.tokens is None:
            self._cache._cancel_job(self._job)

    def __repr__(self) -> str:
        return f"<LoadJob {self._job}, {'runs' if self.tokens is None else f'loaded {self.tokens} tokens'}>"


class Tiers(Prefixes):
    """The calls of Cache on its tiers."""

    def add_disk_tier(self, directory: str | os.PathLike[str], *, capacity_bytes: int = 0, sync: str = "data",
                      store: str = "published", min_tokens: int = 0) -> None:
        """Adds a folder that keeps published pages, also after the process has ended. It is below the tiers before it.

        Args:
            directory: made if it does not exist. Several processes may share it.
            capacity_bytes: the objects used least recently are removed beyond it; 0 = no limit.
            sync: "data": a page is on the disk before it is visible; "full": its name too, so that it survives a loss of
                power; "none": the system writes it when it likes.
            store: which published pages are stored: "published" (all), "reused" (those that a later request came back to),
                "nothing" (the folder is read only).
            min_tokens: a publish of fewer tokens is not stored.

        Raises:
            Unsupported (no prefix_index, no fingerprint, a GPU, storage="none"), InvalidArgument, OutOfRange, IoError.
        """
        for name, value, values in (("sync", sync, _SYNC), ("store", store, _STORE)):
            if value not in values:
                raise ValueError(f"add_disk_tier: {name} {value!r} is not one of {', '.join(values)}")
        self._add_disk_tier(os.fsdecode(directory), capacity_bytes, _SYNC[sync], _STORE[store], min_tokens)

    def load_prefix(self, tokens: TokenIds, *, salt: int = 0, salt_begin: int = 0, allow_all: bool = False,
                    session: int = 0, priority: int = 0, time_to_live: int = 0,
                    token_ns: int = 0) -> tuple[LoadJob | None, PrefixHit]:
        """Starts to load what the tiers have of a prefix and the pools lack. attach_prefix finds it when the job has ended.

        Args:
            tokens, salt, salt_begin, allow_all: as in match_prefix().
            session, priority, time_to_live: of the pages that are loaded, as in publish_prefix().
            token_ns: what it costs to compute a token, in nanoseconds. Nothing is loaded if that would take longer. 0 = load
                in any case.

        Returns:
            The job, or None if nothing is to be loaded; and what match_prefix() says.

        Raises:
            Unsupported (no tier), TooManySequences, OutOfPages, OutOfRange.
        """
        job, hit = self._load_prefix(tokens, salt, salt_begin, allow_all, session, priority, time_to_live, token_ns)
        return (LoadJob(self, job) if job != 0 else None), PrefixHit(*hit)

    def tier_traffic(self) -> TierTraffic:
        """Counts pages that were stored and loaded. An engine that shuts down waits until pages_waiting is 0."""
        return TierTraffic(*self._tier_traffic())
