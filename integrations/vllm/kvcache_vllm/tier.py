"""A secondary tier of vLLM's KV offloading over a tier of libkvcache: a folder or a Redis server.

It runs in the scheduler's process. vLLM's primary tier is host memory in rows, one for each chunk of tokens. Objects are stored
from these rows, and loaded into them. What cannot be loaded, or not with the bytes that were stored, is a miss for vLLM: it
computes these tokens. No call but drain_jobs() and shutdown() waits for a disk or a server.
"""

from __future__ import annotations

import hashlib
import select
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import kvcache
import numpy as np
from kvcache import TierResult
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .identity import salt

logger = init_logger("vllm.kvcache")

LOOKUPS = {TierResult.HIT: LookupResult.HIT, TierResult.MISS: LookupResult.MISS, TierResult.PENDING: LookupResult.RETRY,
           TierResult.RETRY: LookupResult.RETRY}
DISK = ("directory", "capacity_bytes", "sync")
REDIS = ("redis", "prefix", "time_to_live", "timeout", "threads", "lazy")


@dataclass
class _Transfer:
    """A job of vLLM. Its objects may be in several jobs of the tier."""

    job: TransferJob
    begin: float = field(default_factory=time.monotonic)
    left: int = 0
    moved: list[OffloadKey] = field(default_factory=list)
    lost: list[OffloadKey] = field(default_factory=list)


@dataclass
class _Piece:
    """A job of the tier."""

    transfer: _Transfer
    keys: Sequence[OffloadKey]
    objects: list[tuple[bytes, np.ndarray]]
    done: int = 0


def open_objects(directory: str | None = None, redis: str | None = None, **options: Any) -> kvcache.ObjectStore:
    """The store that options name: those of kvcache.ObjectStore.on_disk or .on_redis."""
    if (directory is None) == (redis is None):
        raise ValueError("kvcache-vllm: one of directory and redis is needed")
    if redis is not None:
        return kvcache.ObjectStore.on_redis(redis, **{"lazy": True, **options})
    # Without sync, a loss of power may cost objects. Damaged ones are seen when they are loaded.
    return kvcache.ObjectStore.on_disk(directory, **{"sync": "none", **options})


class KvcacheTier(SecondaryTierManager):
    """Objects of libkvcache as a secondary tier. It is also usable in vLLM's own TieringOffloadingSpec, by module_path.

    Args:
        identity: names the model, its weights and how it is computed. Other models must have another.
        options: directory or redis, with the options of kvcache.ObjectStore.on_disk or .on_redis.
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str, *, identity: str,
                 backpressure_detector: Any = None, **options: Any) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        is_local = "directory" in options
        self.locality = Locality.LOCAL if is_local else Locality.REMOTE
        self._rows: np.ndarray | None = np.asarray(primary_kv_view).view(np.uint8)
        self._salt = salt(identity, offloading_spec.config, self._rows.shape[1])
        self._objects = open_objects(**options)
        self._waiting: deque[tuple[str, _Piece]] = deque()  # until the tier is less full of work
        self._pieces: dict[int, _Piece] = {}  # by the job of the tier
        self._finished: list[JobResult] = []
        self._lost: dict[str, set[OffloadKey]] = {}  # what a request could not load: it does not try again
        self._events: list[OffloadingEvent] | None = [] if offloading_spec.kv_events_config.enable_kv_cache_events else None
        self._warned = False

    def object_key(self, key: OffloadKey) -> bytes:
        return hashlib.sha256(self._salt + key).digest()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        if key in self._lost.get(req_context.req_id, ()):
            return LookupResult.MISS
        return LOOKUPS[self._objects.lookup([self.object_key(key)])[0].result]

    def submit_store(self, job_metadata: TransferJob) -> None:
        keys = [self.object_key(key) for key in job_metadata.keys]
        stored = [found.result == TierResult.HIT for found in self._objects.lookup(keys)]
        self._submit("store", job_metadata, stored)

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._submit("load", job_metadata, [False] * len(job_metadata.keys))

    def _submit(self, work: str, job: TransferJob, skipped: Sequence[bool]) -> None:
        assert self._rows is not None
        transfer = _Transfer(job)
        chosen = [(key, chunk) for key, chunk, skip in zip(job.keys, job.chunk_ids, skipped, strict=True) if not skip]
        transfer.left = len(chosen)
        most = self._objects.max_job_objects
        for begin in range(0, len(chosen), most):
            part = chosen[begin:begin + most]
            objects = [(self.object_key(key), self._rows[chunk]) for key, chunk in part]
            self._waiting.append((work, _Piece(transfer, [key for key, _ in part], objects)))
        if not chosen:
            self._finish(transfer)
        self._start()

    def _start(self) -> None:
        while self._waiting:
            work, piece = self._waiting[0]
            try:
                job = getattr(self._objects, work)(piece.objects)
            except kvcache.Error as error:
                logger.warning("kvcache-vllm: %s", error)
                self._waiting.popleft()
                self._count(piece.transfer, (), piece.keys)
                continue
            if job is None:
                return
            self._waiting.popleft()
            self._pieces[job] = piece

    def _poll(self) -> None:
        while ended := self._objects.poll():
            for done in ended:
                piece = self._pieces[done.job]
                key = piece.keys[done.position]
                if done.result == TierResult.OK:
                    self._count(piece.transfer, (key,), ())
                else:
                    self._warn(done)
                    self._count(piece.transfer, (), (key,))
                piece.done += 1
                if piece.done == len(piece.keys):
                    del self._pieces[done.job]
        self._start()

    def _warn(self, done: kvcache.ObjectDone) -> None:
        """The log has one line for each time that a store begins to fail."""
        if done.result == TierResult.FAILED and not self._warned:
            logger.warning("kvcache-vllm: the %s tier fails (errno %d). Its objects are misses meanwhile", self._objects.name,
                           done.os_error)
            self._warned = True

    def _count(self, transfer: _Transfer, moved: Sequence[OffloadKey], lost: Sequence[OffloadKey]) -> None:
        transfer.moved += moved
        transfer.lost += lost
        transfer.left -= len(moved) + len(lost)
        if moved:
            self._warned = False
        if transfer.left == 0:
            self._finish(transfer)

    def _finish(self, transfer: _Transfer) -> None:
        job, moved = transfer.job, transfer.moved
        if job.is_promotion and transfer.lost:
            self._lost.setdefault(job.req_context.req_id, set()).update(transfer.lost)
        elif moved and not job.is_promotion and self._events is not None:
            self._events.append(OffloadingEvent(keys=list(moved), medium=self.medium, removed=False, locality=self.locality))
        self._finished.append(JobResult(
            job_id=job.job_id, success=not transfer.lost, successful_keys=tuple(moved) if transfer.lost and moved else None,
            transfer_time=time.monotonic() - transfer.begin, transfer_bytes=len(moved) * self.block_size_bytes))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        self._poll()
        finished, self._finished = self._finished, []
        return finished

    def take_events(self) -> Iterable[OffloadingEvent]:
        if self._events:
            yield from self._events
            self._events.clear()

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._lost.pop(req_context.req_id, None)

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Nothing: a load is a use."""

    def drain_jobs(self) -> None:
        poller = select.poll()  # select.select() takes no descriptor above 1023
        poller.register(self._objects.fileno(), select.POLLIN)
        self._poll()
        while self._pieces or self._waiting:
            poller.poll(100)
            self._poll()

    def shutdown(self) -> None:
        self._objects.close()
        self._waiting.clear()
        self._pieces.clear()
        self._rows = None  # vLLM unmaps the memory now
