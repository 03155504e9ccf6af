"""An L2 adapter of LMCache over libkvcache's tiers: a folder, or a Redis server.

LMCache's adapter "native_plugin" makes a KvcacheConnector and calls it from its own threads. LMCache keeps the locks, the
accounting and its memory; the connector moves bytes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import kvcache

__all__ = ["KvcacheConnector"]

_FORMAT = b"kvcache-lmcache 1"  # change it when other bytes are stored for the same key


class KvcacheConnector:
    """What LMCache calls a native connector.

    Each submit returns a number at once. drain_completions() returns what has ended since its last call: the number, whether the
    call succeeded, a text, and a bool for each object. A store succeeds if all of its objects are stored. Other calls always succeed,
    and their bools say what was found, loaded or deleted. The descriptor event_fd() is readable while something has ended. An object
    that cannot be loaded with the bytes that were stored is a miss.

    Args:
        namespace: names what LMCache's keys do not cover, such as a revision of the weights. Connectors with different names
            never find each other's objects.
        seconds: objects of a call that have not begun after this time are given up.
        options: of kvcache.open_objects: directory or redis, and the options of its tier.
    """

    def __init__(self, *, namespace: str = "", seconds: float = 10.0, **options: Any) -> None:
        self._salt = hashlib.sha256(b"%s\0%s\0" % (_FORMAT, namespace.encode()))
        self._lock = threading.Lock()
        self._next = 0
        self._ended: list[tuple[int, bool, str, list[bool]]] = []
        self._event: int | None = None
        self._batches = kvcache.ObjectBatches(kvcache.open_objects(**options), seconds=seconds)
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def event_fd(self) -> int:
        assert self._event is not None, "KvcacheConnector: it was closed"
        return self._event

    def submit_batch_set(self, keys: Sequence[str], memory: Sequence[memoryview]) -> int:
        return self._follow(self._batches.store(self._pairs(keys, memory)), all)

    def submit_batch_get(self, keys: Sequence[str], memory: Sequence[memoryview]) -> int:
        return self._follow(self._batches.load(self._pairs(keys, memory)))

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        return self._follow(self._batches.find([self.object_key(key) for key in keys]))

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        return self._follow(self._batches.remove([self.object_key(key) for key in keys]))

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool]]]:
        with self._lock:
            if self._event is not None and self._ended:
                os.eventfd_read(self._event)
            ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Ends what has begun. After this, no memory of a call is in use."""
        self._batches.close()
        with self._lock:
            if self._event is not None:
                os.close(self._event)
                self._event = None

    def object_key(self, key: str) -> bytes:
        """The key of the object in the tier."""
        digest = self._salt.copy()
        digest.update(key.encode())
        return digest.digest()

    def _pairs(self, keys: Sequence[str], memory: Sequence[memoryview]) -> list[tuple[bytes, memoryview]]:
        return [(self.object_key(key), part) for key, part in zip(keys, memory, strict=True)]

    def _follow(self, batch: kvcache.ObjectBatch, is_ok: Callable[[list[bool]], bool] = lambda answers: True) -> int:
        with self._lock:
            number = self._next
            self._next += 1
        batch.add_done_callback(lambda done: self._end(number, is_ok(done.result()), done.result()))
        return number

    def _end(self, number: int, ok: bool, answers: list[bool]) -> None:
        with self._lock:
            self._ended.append((number, ok, "", answers))
            if self._event is not None:
                os.eventfd_write(self._event, 1)
