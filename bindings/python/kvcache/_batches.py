"""Batches of objects for hosts with several threads: one thread submits, polls and repeats lookups for all of them."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._errors import Closed, Error
from ._objects import ObjectStore, TierResult, _check_writable, _parts

_LOG = logging.getLogger("kvcache")
_PAUSE = 0.001  # seconds between lookups of what a tier still searches, at first
_LONGEST_PAUSE = 0.02  # and between submits to a tier that is full of the work of others
_LONGEST_SLEEP = 3600.0  # epoll refuses times of more than 24 days


def open_objects(directory: str | None = None, redis: str | None = None, **options: Any) -> ObjectStore:
    """The store that the options of a host's configuration name.

    Args:
        directory, redis: one of them: a folder, or the URL of a server.
        options: arguments of ObjectStore.on_disk or on_redis. Unless they say otherwise, a server may be absent at first (lazy),
            and a loss of power may cost objects (sync none). Damaged objects are misses.
    """
    if (directory is None) == (redis is None):
        raise ValueError("open_objects: one of directory and redis is needed")
    if redis is not None:
        return ObjectStore.on_redis(redis, **{"lazy": True, **options})
    assert directory is not None
    return ObjectStore.on_disk(directory, **{"sync": "none", **options})


class ObjectBatch(Future[list[bool]]):
    """One call of ObjectBatches: a future of a bool for each object. It uses the memory of its objects until it is done."""

    def __init__(self, keys: Sequence[bytes], memory: Sequence[list[np.ndarray[Any, Any]]], seconds: float,
                 wake: Callable[[], None]) -> None:  # fmt: skip
        super().__init__()
        self.set_running_or_notify_cancel()  # so that no waiter returns while the memory is in use
        self._keys, self._memory = keys, memory
        self._answers = [False] * len(keys)
        self._left = len(keys)
        self._deadline = time.monotonic() + seconds
        self._given_up = False
        self._jobs: set[int] = set()
        self._wake = wake

    def cancel(self) -> bool:
        """Gives up the objects that have not begun: their answers are False. The batch is done when the others are done.
        Returns False, as every Future that runs, because the caller must still wait."""
        self._deadline = 0.0
        self._wake()
        return False

    def _sizes(self) -> list[int]:
        return [sum(part.nbytes for part in parts) for parts in self._memory]

    def _count(self, position: int, answer: bool) -> None:
        self._answers[position] = answer
        self._left -= 1
        if self._left == 0:
            self._end()

    def _end(self) -> None:
        self._memory = ()
        self.set_result(self._answers)


@dataclass(eq=False)
class _Search:
    """Objects whose lookups have no answer yet. Those that are not stored with their sizes are stored then, or count as absent."""

    batch: ObjectBatch
    positions: list[int]
    sizes: list[int] | None  # None: to find objects of any size, and to store nothing


@dataclass(eq=False)
class _Piece:
    """A job of the store, or one that will be."""

    what: str
    batch: ObjectBatch
    positions: Sequence[int]
    done: int = 0


class ObjectBatches:
    """Calls for batches of any size, by any number of threads, over an ObjectStore, which it owns.

    Each call returns an ObjectBatch at once. Its result is True for each object that was found, loaded, stored or removed. A
    failure is a False and never an exception: a server that is down has no objects. After `seconds`, the objects that
    have not begun are given up, so that a batch is done soon after that, unless a disk hangs.

        batches = kvcache.ObjectBatches(kvcache.open_objects(directory="/var/cache/engine"))
        if all(batches.store(pages).result()): ...
        loaded = batches.load(pages).result()
    """

    def __init__(self, objects: ObjectStore, *, seconds: float = 10.0) -> None:
        self.objects = objects
        self._seconds = seconds
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._new: list[tuple[str, ObjectBatch]] = []
        self._is_closing = False
        self._searches: list[_Search] = []
        self._waiting: deque[_Piece] = deque()
        self._pieces: dict[int, _Piece] = {}
        self._running: set[ObjectBatch] = set()
        self._pause = _PAUSE
        self._warned = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._has_descriptor = objects.fileno() >= 0
        if self._has_descriptor:
            self._selector.register(objects.fileno(), selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="kvcache-objects", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def find(self, keys: Iterable[bytes]) -> ObjectBatch:
        """Whether the objects are stored, as far as the tier can tell without reading them."""
        return self._begin("find", [(key, ()) for key in keys])

    def load(self, objects: Iterable[tuple[bytes, Any]]) -> ObjectBatch:
        """Loads objects into memory: see ObjectStore.load(). After a False, the contents of the object's memory are undefined."""
        pairs = list(objects)
        for _, memory in pairs:
            _check_writable(memory)
        return self._begin("load", pairs)

    def store(self, objects: Iterable[tuple[bytes, Any]]) -> ObjectBatch:
        """Stores objects that are not stored with their sizes yet. What is stored is True without a write: a key must cover all
        on which the bytes depend."""
        return self._begin("store", list(objects))

    def remove(self, keys: Iterable[bytes]) -> ObjectBatch:
        """Removes objects. False: there was none."""
        return self._begin("remove", [(key, ()) for key in keys])

    def close(self) -> None:
        """Finishes what has begun, and closes the store. Batches are done then, and later calls raise Closed. In a child of
        fork(), it does nothing."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._is_closing = True
            self._wake()
        self._thread.join()
        atexit.unregister(self.close)

    def __enter__(self) -> ObjectBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, what: str, pairs: Sequence[tuple[bytes, Any]]) -> ObjectBatch:
        for key, _ in pairs:
            ObjectStore._key(key)
        memory = [_parts(parts) for _, parts in pairs]
        batch = ObjectBatch([bytes(key) for key, _ in pairs], memory, self._seconds, self._wake)
        if not pairs or self._process != os.getpid():  # a child of fork() has no thread
            batch._end()
            return batch
        with self._lock:
            if self._is_closing:
                raise Closed("ObjectBatches: it was closed", status=201)
            self._new.append((what, batch))
            self._wake()
        return batch

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread will wake anyway; closed: it has ended
            self._wake_writer.send(b"\0")

    # The rest runs on the thread.

    def _run(self) -> None:
        try:
            while self._take():
                self._search()
                self._submit()
                self._poll()
                self._expire()  # the last one, so that each object is tried at least once
                self._sleep()
        except Exception:
            _LOG.exception("kvcache: the thread of an ObjectBatches ends")
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_closing = True
            batches = [*self._running, *(batch for _, batch in self._new)]
            self._new.clear()
        self.objects.close()  # no memory is in use after this
        for batch in batches:
            if not batch.done():
                batch._end()
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _take(self) -> bool:
        with self._lock:
            new, self._new = self._new, []
            if self._is_closing:
                self._new = new
                return False
        for what, batch in new:
            self._running.add(batch)
            positions = list(range(len(batch._keys)))
            if what == "find" or what == "store":
                self._searches.append(_Search(batch, positions, batch._sizes() if what == "store" else None))
                self._pause = _PAUSE
            else:
                self._enqueue(what, batch, positions)
        return True

    def _enqueue(self, what: str, batch: ObjectBatch, positions: list[int]) -> None:
        """Cuts what will be one job into as many as the tier wants."""
        sizes, largest, most = batch._sizes(), self.objects.max_object_bytes, self.objects.max_job_objects
        too_large = [i for i in positions if sizes[i] > largest]
        if too_large:
            _LOG.warning("kvcache: an object of %d bytes is too large: the tier takes %d", sizes[too_large[0]], largest)
            positions = [i for i in positions if sizes[i] <= largest]
            self._give_up(batch, too_large)
        for begin in range(0, len(positions), most):
            self._waiting.append(_Piece(what, batch, positions[begin:begin + most]))

    def _expire(self) -> None:
        """Gives up objects that wait, of batches that took too long or were cancelled."""
        now = time.monotonic()
        late = [batch for batch in self._running if not batch._given_up and now >= batch._deadline]
        if not late:
            return
        unfinished: list[_Search | _Piece] = [*self._searches, *self._waiting]
        for batch in late:
            batch._given_up = True
            for job in batch._jobs:
                self.objects.cancel(job)
            for one in unfinished:
                if one.batch is batch:
                    self._give_up(batch, one.positions)
        self._searches = [search for search in self._searches if not search.batch._given_up]
        self._waiting = deque(piece for piece in self._waiting if not piece.batch._given_up)

    def _give_up(self, batch: ObjectBatch, positions: Sequence[int]) -> None:
        for i in positions:
            self._count(batch, i, False)

    def _search(self) -> None:
        for search in list(self._searches):
            batch = search.batch
            found = self.objects.lookup([batch._keys[i] for i in search.positions])
            left, absent = [], []
            for i, answer in zip(search.positions, found, strict=True):
                if answer.result in (TierResult.PENDING, TierResult.RETRY):
                    left.append(i)
                elif answer.result == TierResult.HIT and (search.sizes is None or search.sizes[i] == answer.bytes):
                    self._count(batch, i, True)
                else:
                    absent.append(i)
            search.positions = left
            if not left:
                self._searches.remove(search)
            if search.sizes is None:
                self._give_up(batch, absent)
            elif absent:
                self._enqueue("store", batch, absent)

    def _submit(self) -> None:
        while self._waiting:
            piece = self._waiting[0]
            batch = piece.batch
            keys = [batch._keys[i] for i in piece.positions]
            try:
                if piece.what == "remove":
                    job = self.objects.remove(keys)
                else:
                    objects = [(key, batch._memory[i]) for key, i in zip(keys, piece.positions, strict=True)]
                    job = self.objects.load(objects) if piece.what == "load" else self.objects.store(objects)
            except Error as error:
                _LOG.warning("kvcache: %s", error)
                self._waiting.popleft()
                self._give_up(batch, piece.positions)
                continue
            if job is None:
                return
            self._waiting.popleft()
            self._pieces[job] = piece
            batch._jobs.add(job)

    def _poll(self) -> None:
        while ended := self.objects.poll():
            for done in ended:
                piece = self._pieces[done.job]
                self._warn(done.result, done.os_error)
                self._count(piece.batch, piece.positions[done.position], done.result == TierResult.OK)
                piece.done += 1
                if piece.done == len(piece.positions):
                    del self._pieces[done.job]
                    piece.batch._jobs.discard(done.job)
            self._submit()

    def _count(self, batch: ObjectBatch, position: int, answer: bool) -> None:
        if batch._left == 1:
            self._running.discard(batch)
        batch._count(position, answer)

    def _warn(self, result: TierResult, os_error: int) -> None:
        """The log has one line for each time that a store begins to fail."""
        if result == TierResult.FAILED and not self._warned:
            _LOG.warning("kvcache: the %s tier fails (errno %d). Its objects are misses meanwhile", self.objects.name, os_error)
        if result in (TierResult.FAILED, TierResult.OK):
            self._warned = result == TierResult.FAILED

    def _sleep(self) -> None:
        """Until there is something to do: a call, an object that is done, or a lookup or submit to repeat."""
        seconds = None
        if self._searches or self._waiting or (self._pieces and not self._has_descriptor):
            seconds = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        elif deadlines := [batch._deadline for batch in self._running if not batch._given_up]:
            seconds = max(min(min(deadlines) - time.monotonic(), _LONGEST_SLEEP), 0)
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._wake_reader:
                self._wake_reader.recv(4096)
