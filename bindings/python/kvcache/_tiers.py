"""Tiers of a Cache: memory and folders that keep published pages and suspended sequences, and the jobs that move them."""

from __future__ import annotations

import math
import os
import select
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from ._prefixes import Media, PrefixHit, Prefixes, TokenIds

_SYNC = {"data": 0, "none": 1, "full": 2}
_STORE = {"published": 0, "reused": 1, "nothing": 2, "evicted": 3}
_READS = {"any": 0, "blocking": 4, "io_uring": 8}


def _number_of(function: str, name: str, value: str, values: dict[str, int]) -> int:
    if value not in values:
        raise ValueError(f"{function}: {name} {value!r} is not one of {', '.join(values)}")
    return values[value]


def _redis_library() -> str:
    """The library of the Redis tier: the one that the environment names, or that is beside this file, or of the system."""
    named = os.environ.get("KVCACHE_REDIS_LIBRARY")
    beside = Path(__file__).parent / "libkvcache_redis.so.0"
    return named or (str(beside) if beside.exists() else beside.name)


def _redis_options(url: str, prefix: str, time_to_live: float, timeout: float, threads: int, lazy: bool) -> str:
    """The URL with its parameters, as the plug-in reads it."""
    parameters = {"prefix": prefix, "ttl_ms": round(time_to_live * 1000), "timeout_ms": round(timeout * 1000),
                  "threads": threads, "lazy": int(lazy)}
    return url + ("&" if "?" in url else "?") + urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)


def _is_readable(descriptor: int, seconds: float) -> bool:
    """Waits until a descriptor is readable, at most for so long. select.select() takes no descriptor above 1023."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(math.ceil(seconds * 1000)))


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
    sequences_suspended: int
    """Sequences that are suspended now."""


@dataclass(frozen=True)
class PendingLoad:
    """What a sequence of LoadJob.attach() still waits for."""

    ready_layers: int
    """The layers before this one are ready."""
    tokens: int
    """Tokens of the sequence whose pages the job loads."""
    pages: int
    """Pages of all groups that the job loads."""
    pages_loaded: int
    failed: bool
    """The load cannot complete, so the sequence will become shorter."""


class LoadJob:
    """A load, suspend or resume that runs. `tokens` is None until poll() or wait() has seen its end."""

    def __init__(self, cache: Tiers, job: int) -> None:
        self._cache = cache
        self._job = job
        self.tokens: int | None = None
        """Once the job has ended: tokens that were loaded and are findable, or the length of the sequence."""

    def fileno(self) -> int:
        """A descriptor that is readable when some job of the cache has ended: for select, selectors and asyncio."""
        return self._cache._job_descriptor()

    def poll(self) -> int | None:
        """The number of tokens that were loaded, or None while the job runs. It waits for nothing.

        Raises:
            FileError (no tier took a page of the sequence, or a tier has lost one), Cancelled, StaleId (the sequence was
            removed): a suspend or resume has failed and ended. The sequence is as it was.
        """
        if self.tokens is None:
            self.tokens = self._cache._poll_job(self._job)
        return self.tokens

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the job, and returns the number of tokens that were loaded.

        Raises:
            TimeoutError: the job runs on, and can be waited for again. And what poll() raises.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"the job has not ended after {timeout} s")
            most = 0.05 if left is None else min(left, 0.05)
            if _is_readable(self.fileno(), most) and self.poll() is None:
                time.sleep(min(most, 0.001))  # readable because of another job, which its owner has not polled yet
        assert self.tokens is not None
        return self.tokens

    def attach(self, *, wait: bool = False, timeout: float = 0) -> tuple[int, int]:
        """A new sequence with the prefix that the job loads, before it is loaded. The job must still be polled to its end.

        Its steps can attend to each layer as soon as that is loaded. Until the job has ended, the sequence is pending: it can
        only be used in steps, and removed.

        Args:
            wait: calls of a step wait until their layer is ready, instead of raising Pending.
            timeout: seconds after which the job is cancelled; 0 = no limit.

        Returns:
            The sequence and its length: whole pages. If a page cannot be loaded, calls of a step raise FileError or Cancelled.
            After the step was aborted and the job has ended, the sequence has the length of what was loaded.

        Raises:
            Pending (a tier still searches: poll() the job, and try again), StaleId (the job has ended), Evicted,
            TooManySequences, OutOfRange.
        """
        return self._cache._attach_pending(self._job, wait, math.ceil(timeout * 1e9))

    def cancel(self) -> None:
        """Ends the job early. Pages that are being moved are waited for: poll() or wait() for its end."""
        if self.tokens is None:
            self._cache._cancel_job(self._job)

    def __repr__(self) -> str:
        return f"<LoadJob {self._job}, {'runs' if self.tokens is None else f'ended with {self.tokens} tokens'}>"


class Tiers(Prefixes):
    """The calls of Cache on its tiers."""

    def add_host_tier(self, capacity_bytes: int, *, store: str = "published", min_tokens: int = 0,
                      medium: str | None = None, pinned: bool = False) -> None:
        """Adds memory of this process that keeps published pages after they were evicted. It is below the tiers before it.

        Args:
            capacity_bytes: the objects used least recently are removed beyond it. At least 4096. Memory is taken when objects
                fill it.
            store, min_tokens, medium: as in add_disk_tier().
            pinned: for a cache on a GPU, which then copies pages to and from this memory directly. capacity_bytes is at least
                65536, and all of it is allocated and locked now, which can take seconds.

        Raises:
            Unsupported (no prefix_index, no fingerprint, storage="none", pinned on the CPU), InvalidArgument, OutOfRange,
            OutOfMemory.
        """
        self._add_host_tier(capacity_bytes, _number_of("add_host_tier", "store", store, _STORE), min_tokens, medium or "",
                            pinned)

    def add_disk_tier(self, directory: str | os.PathLike[str], *, capacity_bytes: int = 0, sync: str = "data",
                      store: str = "published", min_tokens: int = 0, medium: str | None = None,
                      reads: str = "any") -> None:
        """Adds a folder that keeps published pages, also after the process has ended. It is below the tiers before it.

        Args:
            directory: made if it does not exist. Several processes may share it.
            capacity_bytes: the objects used least recently are removed beyond it; 0 = no limit.
            sync: "data": a page is on the disk before it is visible; "full": its name too, so that it survives a loss of
                power; "none": the system writes it when it likes.
            store: which published pages are stored: "published" (all), "reused" (those that a later request came back to),
                "evicted" (those that the pools will evict next), "nothing" (the folder is read only).
            min_tokens: a publish of fewer tokens is not stored.
            medium: the name of the tier in messages of events, which no other tier has. None = "STORAGE"; of a host tier "CPU"
                if the cache is on a GPU, else "HOST"; with a number if that is taken.
            reads: "blocking": each thread of the tier reads one file at a time; "io_uring": several small ones at once, by
                io_uring; "any": by io_uring where the kernel allows it.

        Raises:
            Unsupported (no prefix_index, no fingerprint, storage="none", "io_uring" where the kernel forbids it),
            InvalidArgument, OutOfRange, FileError.
        """
        self._add_disk_tier(os.fsdecode(directory), capacity_bytes, _number_of("add_disk_tier", "sync", sync, _SYNC),
                            _number_of("add_disk_tier", "store", store, _STORE), min_tokens, medium or "",
                            _number_of("add_disk_tier", "reads", reads, _READS))

    def add_redis_tier(self, url: str = "redis://127.0.0.1:6379", *, prefix: str = "kvcache:", time_to_live: float = 0,
                       timeout: float = 1.0, threads: int = 8, lazy: bool = False, store: str = "published",
                       min_tokens: int = 0, medium: str | None = None) -> None:
        """Adds a Redis or Valkey server that keeps published pages, for all machines that use it. It is below the tiers before it.

        Args:
            url: "redis://[[user]:password@]host[:port][/database]", or "unix://[[user]:password@]/path/of/socket". Several
                hosts, with commas between them: the first one that answers. A node of a cluster stands for all of it.
                "rediss://..." has TLS, and its parameters, as in "rediss://host?tls_ca_file=/etc/ca.pem", choose certificates
                (docs/reference/tiers.md, section TLS).
            prefix: of every key on the server.
            time_to_live: seconds after which the server removes an object; 0 = it keeps them as its own policy says.
            timeout: seconds that a call to the server may take, without the transfer of its bytes.
            threads: each has a connection of its own.
            lazy: do not connect now. The tier misses while no server answers, and works as soon as one does.
            store, min_tokens, medium: as in add_disk_tier().

        Raises:
            FileError (the tier's library is missing, no server answers, or it refuses), Unsupported, InvalidArgument, OutOfRange.
        """
        options = _redis_options(url, prefix, time_to_live, timeout, threads, lazy)
        self._add_plugin_tier("Tiers.add_redis_tier", _redis_library(), options,
                              _number_of("add_redis_tier", "store", store, _STORE), min_tokens, medium or "")

    def add_plugin_tier(self, library: str | os.PathLike[str], options: str = "", *, store: str = "published",
                        min_tokens: int = 0, medium: str | None = None) -> None:
        """Adds a tier of another program: a shared library that fills the table of kvcache_tier.h. It is below the tiers before it.

        Args:
            library: its symbol kvc_tier_open is called. It stays loaded.
            options: text that the plug-in defines.
            store, min_tokens, medium: as in add_disk_tier().

        Raises:
            FileError (the library cannot be loaded), Unsupported (it is no tier, or one of another version), and what the
            plug-in reports.
        """
        self._add_plugin_tier("Tiers.add_plugin_tier", os.fsdecode(library), options,
                              _number_of("add_plugin_tier", "store", store, _STORE), min_tokens, medium or "")

    def load_prefix(self, tokens: TokenIds, *, salt: int = 0, salt_begin: int = 0, adapter: bytes = b"",
                    media: Media = (), allow_all: bool = False, session: int = 0, priority: int = 0, time_to_live: int = 0,
                    token_ns: float = 0) -> tuple[LoadJob | None, PrefixHit]:
        """Starts to load what the tiers have of a prefix and the pools lack. attach_prefix finds it when the job has ended.

        Args:
            tokens, salt, salt_begin, adapter, media, allow_all: as in match_prefix().
            session, priority, time_to_live: of the pages that are loaded, as in publish_prefix().
            token_ns: what it costs to compute a token, in nanoseconds. The load ends where computing is faster. 0 = as the
                cache has measured it. math.inf = load in any case.

        Returns:
            The job, or None if nothing is to be loaded; and what match_prefix() says.

        Raises:
            Unsupported (no tier), TooManySequences, OutOfPages, OutOfRange.
        """
        job, hit = self._load_prefix(tokens, salt, salt_begin, adapter, media, allow_all, session, priority, time_to_live,
                                     2**63 - 1 if token_ns == math.inf else math.ceil(token_ns))
        return (LoadJob(self, job) if job != 0 else None), PrefixHit(*hit)

    def pending(self, sequence: int) -> PendingLoad | None:
        """What a sequence of LoadJob.attach() still waits for; None: nothing. Raises StaleId."""
        info = self._pending(sequence)
        return None if info is None else PendingLoad(*info)

    def suspend(self, sequence: int) -> LoadJob:
        """Starts to move the pages that only this sequence uses to a tier, and frees them at the end of the job.

        Pages that a fork uses too stay. Each page goes to the first tier that takes it. The sequence is busy until poll() or
        wait() of the job has seen its end, and suspended then: it keeps its id, its length and its settings. A host tier never
        evicts its pages.

        Raises:
            StaleId, Busy, Uncommitted, Suspended, Unsupported (no tier that stores).
        """
        return LoadJob(self, self._suspend(sequence))

    def resume(self, sequence: int) -> LoadJob:
        """Starts to bring back a suspended sequence. It takes all pages at once.

        Raises:
            OutOfPages (nothing changed: try again when others have ended), StaleId, Busy (it is being resumed), Order (it is
            not suspended), Unsupported (no tier).
        """
        return LoadJob(self, self._resume(sequence))

    def tier_traffic(self) -> TierTraffic:
        """Counts pages that were stored and loaded. An engine that shuts down waits until pages_waiting is 0."""
        return TierTraffic(*self._tier_traffic())
