"""EventPublisher: sends the events of a cache over ZeroMQ as vLLM's publisher does, and answers requests."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._errors import Closed

if TYPE_CHECKING:
    from ._cache import Cache

_END = (-1).to_bytes(8, "big", signed=True)
_LONGEST_POLL = 0.1  # seconds after which a thread that waits for requests notices close()
_SENT_LATE_MS = 1000  # messages that are in a socket when it is closed are sent for so long


class EventPublisher:
    """Sends the events of a cache on a PUB socket: [topic, number as 8 bytes big-endian, message]. Needs `kvcache[events]`.

    A thread reads new events every `interval` seconds. Numbers of messages follow each other. If the cache's ring overflowed
    between two reads, one number is left out, and the next message clears all blocks and stores what the index holds. So a
    consumer that compares numbers notices, and any other consumer is right again as well.

    A ROUTER socket answers requests for a replay, a snapshot or the epoch: docs/reference/events.md has their frames.

    Args:
        cache: with events_capacity. Close the publisher before the cache.
        endpoint: of the PUB socket, as "tcp://*:5557".
        replay_endpoint: of the ROUTER socket, which is bound; None = none.
        connect: the PUB socket connects to a router's endpoint. By default it is bound.
        topic: first frame of each message.
        data_parallel_rank: in each message; None = nil.
        arrays, short_hashes: as in Events.read_message().
        kept_messages: messages that can be replayed.
        interval: seconds between two reads.
        clock: gives the timestamps of messages. Their numbers begin at its milliseconds times 2**16, so that the numbers of
            a later publisher are higher.

    Raises:
        Unsupported (the cache has no events), ImportError (no pyzmq), zmq.ZMQError (an endpoint).
    """

    def __init__(self, cache: Cache, endpoint: str = "tcp://*:5557", replay_endpoint: str | None = None, *,
                 connect: bool = False, topic: str = "", data_parallel_rank: int | None = None, arrays: bool = False,
                 short_hashes: bool = False, kept_messages: int = 10_000, interval: float = 0.01,
                 clock: Callable[[], float] = time.time) -> None:  # fmt: skip
        import zmq  # an extra of the package

        self._events = cache.events
        self._epoch = self._events.epoch.to_bytes(8, "big")
        self._clock = clock
        self._interval = interval
        self._form: dict[str, Any] = {"data_parallel_rank": data_parallel_rank, "arrays": arrays, "short_hashes": short_hashes}
        self._topic = topic.encode()
        self._next = 0  # event to read
        self._number = int(clock() * 1000) << 16  # of the next message
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=kept_messages)
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        context: Any = zmq.Context.instance()
        self._pub = context.socket(zmq.PUB)
        self._router = context.socket(zmq.ROUTER) if replay_endpoint is not None else None
        try:
            self._pub.set_hwm(100_000)
            self._pub.connect(endpoint) if connect else self._pub.bind(endpoint)
            self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
            """Of the PUB socket, with the port that the system chose."""
            self.replay_endpoint: str | None = None
            """Of the ROUTER socket."""
            if self._router is not None:
                self._router.set_hwm(kept_messages + 1000)
                self._router.bind(replay_endpoint)
                self.replay_endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        except BaseException:
            self._close_sockets()
            raise
        self._thread = threading.Thread(target=self._run, name="kvcache-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sends what has happened until now, and ends the thread. Raises what ended the thread before, if anything did."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> EventPublisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._publish_new()
                self._wait()
            self._publish_new()
        except Closed:
            pass  # the cache has gone, and its events with it
        except BaseException as error:
            self._failure = error
        finally:
            self._close_sockets()

    def _wait(self) -> None:
        """Returns after the interval, after an answer to a request, or soon after close() was called."""
        if self._router is None:
            self._stopped.wait(self._interval)
            return
        end = time.monotonic() + self._interval
        while not self._stopped.is_set():
            left = end - time.monotonic()
            if self._router.poll(math.ceil(1000 * max(min(left, _LONGEST_POLL), 0))):
                return self._answer(self._router.recv_multipart())
            if left <= _LONGEST_POLL:
                return

    def _publish_new(self) -> None:
        while True:
            message = self._events.read_message(self._next, timestamp=self._clock(), **self._form)
            if message.begin != self._next:  # events are lost
                self._number += 1
                message = self._events.snapshot_message(timestamp=self._clock(), **self._form)
            elif message.count == 0:
                return
            self._next = message.end
            self._pub.send_multipart((self._topic, self._number.to_bytes(8, "big"), message.payload))
            self._kept.append((self._number, message.payload))
            self._number += 1

    def _answer(self, frames: list[bytes]) -> None:
        request = frames[2] if len(frames) == 3 and frames[1] == b"" else b""
        if len(request) == 8:
            start = int.from_bytes(request, "big")
            for number, payload in self._kept:
                if number >= start:
                    self._send(frames[0], number.to_bytes(8, "big"), payload)
        elif request in (b"kvcache.snapshot", b"kvcache.epoch"):
            self._publish_new()  # so that the answer is as of the last message
            payload = b""
            if request == b"kvcache.snapshot":
                payload = self._events.snapshot_message(timestamp=self._clock(), **self._form).payload
            return self._send(frames[0], self._number.to_bytes(8, "big"), payload, self._epoch)
        self._send(frames[0], _END, b"", topic=b"")

    def _send(self, peer: bytes, *frames: bytes, topic: bytes | None = None) -> None:
        if self._router is not None:
            self._router.send_multipart((peer, b"", self._topic if topic is None else topic, *frames))

    def _close_sockets(self) -> None:
        for socket in (self._pub, self._router):
            if socket is not None:
                socket.close(linger=_SENT_LATE_MS)
