"""Objects of bytes in a tier without a cache: for programs that move pages of their own."""

from __future__ import annotations

import ctypes
import enum
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ._errors import Closed, FileError, OutOfRange, Unsupported, _make_error
from ._tiers import _READS, _SYNC, _number_of, _redis_library, _redis_options

KEY_BYTES = 32
_VERSION = 2  # KVC_TIER_VERSION


class TierResult(enum.IntEnum):
    """What a tier answers: KVC_TIER_* of kvcache_tier.h."""

    OK = 0
    HIT = 1
    MISS = 2
    """Not stored, or the bytes were damaged, or have another size."""
    PENDING = 3
    """The tier searches. Look up again."""
    RETRY = 4
    """The tier is full of work."""
    CANCELLED = 5
    FAILED = 6


class ObjectFound(NamedTuple):
    """The answer of a lookup."""

    result: TierResult
    bytes: int
    """Of a HIT: the size of the object."""


class ObjectDone(NamedTuple):
    """The end of one object of a job."""

    job: int
    position: int
    """Of the object in its job."""
    result: TierResult
    os_error: int
    """Of FAILED: an errno, or 0."""


class _Key(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * KEY_BYTES)]


class _Found(ctypes.Structure):
    _fields_ = [("result", ctypes.c_int32), ("reserved", ctypes.c_uint32), ("bytes", ctypes.c_int64)]


class _Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


class _Item(ctypes.Structure):
    _fields_ = [("key", _Key), ("buffers", ctypes.POINTER(_Buffer)), ("num_buffers", ctypes.c_int32), ("flags", ctypes.c_uint32),
                ("bytes", ctypes.c_int64)]  # fmt: skip


class _Completion(ctypes.Structure):
    _fields_ = [("job", ctypes.c_uint64), ("index", ctypes.c_int64), ("result", ctypes.c_int32), ("os_error", ctypes.c_int32)]


class _Error(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("code", ctypes.c_int32), ("index", ctypes.c_int64),
                ("required", ctypes.c_int64), ("available", ctypes.c_int64), ("group", ctypes.c_int64),
                ("message", ctypes.c_char * 472)]  # fmt: skip


_COUNTS = ("objects stored_bytes capacity_bytes open_items lookups hits loads stores removes misses cancelled failed evictions "
           "damaged loaded_bytes written_bytes load_latency_ns store_latency_ns load_bytes_per_second "
           "store_bytes_per_second").split()  # fmt: skip


class _Stats(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("last_os_error", ctypes.c_int32),
                *((name, ctypes.c_int64) for name in _COUNTS)]  # fmt: skip


_Self = ctypes.c_void_p
_Submit = ctypes.CFUNCTYPE(ctypes.c_int32, _Self, ctypes.c_uint64, ctypes.c_int64, ctypes.POINTER(_Item), ctypes.POINTER(_Error))


class _Table(ctypes.Structure):
    """kvc_tier."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32), ("version", ctypes.c_uint32), ("name", ctypes.c_char_p), ("self", _Self),
        ("max_object_bytes", ctypes.c_int64), ("max_job_items", ctypes.c_int32), ("flags", ctypes.c_uint32),
        ("lookup", ctypes.CFUNCTYPE(None, _Self, ctypes.c_int64, ctypes.POINTER(_Key), ctypes.POINTER(_Found))),
        ("store", _Submit), ("load", _Submit), ("remove", _Submit),
        ("poll", ctypes.CFUNCTYPE(ctypes.c_int64, _Self, ctypes.POINTER(_Completion), ctypes.c_int64)),
        ("descriptor", ctypes.CFUNCTYPE(ctypes.c_int32, _Self)),
        ("cancel", ctypes.CFUNCTYPE(None, _Self, ctypes.c_uint64)),
        ("stats", ctypes.CFUNCTYPE(None, _Self, ctypes.POINTER(_Stats))),
        ("close", ctypes.CFUNCTYPE(None, _Self)),
        ("removed", ctypes.CFUNCTYPE(ctypes.c_int64, _Self, ctypes.POINTER(_Key), ctypes.c_int64)),
    ]  # fmt: skip


def _disk_library() -> str:
    """The plug-in of the disk tier: the one that the environment names, or that is beside this file, or of the system."""
    beside = Path(__file__).parent / "libkvcache_disk.so.0"
    return os.environ.get("KVCACHE_DISK_LIBRARY") or (str(beside) if beside.exists() else beside.name)


def _parts(memory: Any) -> list[np.ndarray[Any, Any]]:
    """The parts of an object as bytes: nothing is copied."""
    parts = memory if isinstance(memory, list | tuple) else [memory]
    return [np.frombuffer(part, np.uint8) if memoryview(part).nbytes else np.empty(0, np.uint8) for part in parts]


def _check_writable(memory: Any) -> None:
    for part in memory if isinstance(memory, list | tuple) else [memory]:
        if memoryview(part).readonly:
            raise ValueError("ObjectStore.load: the memory is read only")


def _raise(error: _Error, status: int, caller: str) -> None:
    message = error.message.decode("ascii", "replace").replace("kvc_tier_open", caller, 1)
    raise _make_error(status, error.index, error.required, error.available, error.group, message)


class ObjectStore:
    """A tier that keeps objects for its caller: bytes under keys of 32 bytes, which the caller chooses.

    store() and load() start jobs and return at once; poll() says which objects are done. No call waits for a disk or a
    server, but the constructors and close(). A load gives the bytes that were stored under the key, or no OK. Any thread may
    make any call.

        with kvcache.ObjectStore.on_disk("/var/cache/engine", capacity_bytes=100 << 30) as objects:
            objects.store([(key, page)])
            ...
            if objects.lookup([key])[0].result == kvcache.TierResult.HIT:
                job = objects.load([(key, page)])
    """

    def __init__(self, library: str | os.PathLike[str], options: str = "", *, _caller: str = "ObjectStore") -> None:
        """Opens the tier of a plug-in: a shared library with the symbol kvc_tier_open. It stays loaded.

        Raises:
            FileError (the library cannot be loaded, or what the plug-in reports), Unsupported (it is no tier, or one of another
            version), and what else the plug-in reports.
        """
        self._table: _Table | None = None
        try:
            function = ctypes.CDLL(os.fspath(library)).kvc_tier_open
        except OSError as why:
            raise FileError(f"{_caller}: {why}", status=400) from None
        except AttributeError as why:
            raise Unsupported(f"{_caller}: {why}", status=4) from None
        function.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.POINTER(_Table), ctypes.POINTER(_Error)]
        table = _Table(struct_size=ctypes.sizeof(_Table), version=_VERSION)
        error = _Error(struct_size=ctypes.sizeof(_Error), index=-1, group=-1)
        status = function(_VERSION, os.fsencode(options), table, error)
        if status != 0:
            _raise(error, status, _caller)
        self._lock = threading.Lock()
        self._jobs: dict[int, tuple[int, Any]] = {}  # objects that are not done, and what must stay alive for them
        self._next_job = 1
        self._table = table
        self.name: str = table.name.decode()
        self.max_object_bytes: int = table.max_object_bytes
        self.max_job_objects: int = table.max_job_items

    @classmethod
    def on_disk(cls, directory: str | os.PathLike[str], *, capacity_bytes: int = 0, sync: str = "data",
                reads: str = "any") -> ObjectStore:
        """Objects in a folder, which several processes may share and which outlives them. Arguments: Cache.add_disk_tier()."""
        _number_of("ObjectStore.on_disk", "sync", sync, _SYNC)
        _number_of("ObjectStore.on_disk", "reads", reads, _READS)
        options = f"capacity_bytes={capacity_bytes}&sync={sync}&reads={reads}&directory={os.fsdecode(directory)}"
        return cls(_disk_library(), options, _caller="ObjectStore.on_disk")

    @classmethod
    def on_redis(cls, url: str = "redis://127.0.0.1:6379", *, prefix: str = "kvcache:", time_to_live: float = 0,
                 timeout: float = 1.0, threads: int = 8, lazy: bool = False) -> ObjectStore:
        """Objects on a Redis or Valkey server, for several machines. Arguments: Cache.add_redis_tier()."""
        options = _redis_options(url, prefix, time_to_live, timeout, threads, lazy)
        return cls(_redis_library(), options, _caller="ObjectStore.on_redis")

    def lookup(self, keys: Sequence[bytes]) -> list[ObjectFound]:
        """What the tier has: HIT, MISS, PENDING or RETRY for each key. A HIT may still miss when it is loaded."""
        found, wanted = (_Found * len(keys))(), (_Key * len(keys))(*(self._key(key) for key in keys))
        with self._lock:
            table = self._open()
            table.lookup(table.self, len(keys), wanted, found)
        return [ObjectFound(TierResult(answer.result), answer.bytes) for answer in found]

    def store(self, objects: Sequence[tuple[bytes, Any]]) -> int | None:
        """Starts to store objects. Returns the job, or None if the tier is full of work and nothing was done.

        Args:
            objects: at most max_job_objects pairs of a key and of contiguous memory: anything with a buffer, such as an array
                of numpy, or a list or tuple of such parts, which the object has in order. The memory must not change until
                poll() has returned the object.

        Raises:
            OutOfRange (too many objects, or one is too large), ValueError (a key has not 32 bytes).
        """
        return self._submit("store", objects)

    def load(self, objects: Sequence[tuple[bytes, Any]]) -> int | None:
        """Starts to load objects into writable memory of exactly their sizes. As store(). Unless the result is OK, the contents
        of the memory are undefined."""
        for _, memory in objects:
            _check_writable(memory)
        return self._submit("load", objects)

    def remove(self, keys: Sequence[bytes]) -> int | None:
        """Starts to forget objects. The result is MISS if there was none."""
        return self._submit("remove", [(key, b"") for key in keys])

    def cancel(self, job: int) -> None:
        """Gives up the objects of a job that have not begun: poll() returns them as CANCELLED. What has begun goes on, so that
        memory is in use until poll() has returned every object. It does nothing to a job that is done."""
        with self._lock:
            table = self._open()
            if job in self._jobs:
                table.cancel(table.self, job)

    def poll(self) -> list[ObjectDone]:
        """The objects that were done since the last call. It waits for nothing."""
        done = (_Completion * 256)()
        with self._lock:
            table = self._open()
            ended = [ObjectDone(one.job, one.index, TierResult(one.result), one.os_error)
                     for one in done[:table.poll(table.self, done, len(done))]]  # fmt: skip
            for one in ended:
                left, kept = self._jobs.pop(one.job)
                if left > 1:
                    self._jobs[one.job] = (left - 1, kept)
        return ended

    def fileno(self) -> int:
        """A descriptor that is readable while objects wait to be polled, for select and selectors. -1: the tier has none."""
        with self._lock:
            table = self._open()
            return int(table.descriptor(table.self))

    def stats(self) -> dict[str, int]:
        """Counts since the store was opened, and what it holds: the fields of kvc_tier_stats."""
        stats = _Stats(struct_size=ctypes.sizeof(_Stats))
        with self._lock:
            table = self._open()
            table.stats(table.self, stats)
        return {name: getattr(stats, name) for name in ("last_os_error", *_COUNTS)}

    def close(self) -> None:
        """Finishes what has begun, cancels what waits, and releases the tier. It may wait for a disk or a server."""
        with self._lock:
            table, self._table = self._table, None
            if table is not None:
                table.close(table.self)
                self._jobs.clear()

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_table", None) is not None:
            self.close()

    def _open(self) -> _Table:
        if self._table is None:
            raise Closed("ObjectStore: it was closed", status=201)
        return self._table

    @staticmethod
    def _key(key: bytes) -> _Key:
        if len(key) != KEY_BYTES:
            raise ValueError(f"ObjectStore: a key has {len(key)} bytes, not {KEY_BYTES}")
        return _Key.from_buffer_copy(key)

    def _submit(self, what: str, objects: Sequence[tuple[bytes, Any]]) -> int | None:
        n = len(objects)
        if not 1 <= n <= self.max_job_objects:
            raise OutOfRange(f"ObjectStore.{what}: {n} objects, not in 1..{self.max_job_objects}", status=10)
        memory = [_parts(parts) for _, parts in objects]
        items, buffers = (_Item * n)(), (_Buffer * sum(map(len, memory)))()
        first = 0
        for i, (key, _) in enumerate(objects):
            size = sum(part.nbytes for part in memory[i])
            if size > self.max_object_bytes:
                raise OutOfRange(f"ObjectStore.{what}: object {i} has {size} bytes, and the tier takes {self.max_object_bytes}",
                                 status=10, index=i)  # fmt: skip
            items[i].key = self._key(key)
            if what != "remove":
                for j, part in enumerate(memory[i], first):
                    buffers[j] = _Buffer(part.ctypes.data, part.nbytes)
                items[i].buffers = ctypes.cast(ctypes.byref(buffers, first * ctypes.sizeof(_Buffer)), ctypes.POINTER(_Buffer))
                items[i].num_buffers, items[i].bytes = len(memory[i]), size
                first += len(memory[i])
        error = _Error(struct_size=ctypes.sizeof(_Error), index=-1, group=-1)
        with self._lock:  # until the job is known, so that a poll of another thread finds it
            table, job = self._open(), self._next_job
            result = getattr(table, what)(table.self, job, n, items, error)
            if result == TierResult.OK:
                self._jobs[job] = (n, (items, buffers, memory))
                self._next_job += 1
        if result == TierResult.FAILED:
            _raise(error, error.code, f"ObjectStore.{what}")
        return job if result == TierResult.OK else None
