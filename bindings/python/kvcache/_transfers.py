"""Transfers of a Cache: sequences to caches of this process, and of other processes and machines."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from ._errors import InvalidArgument
from ._tiers import Tiers


def _transport_library(name: str) -> str:
    """The library of a transport: the one that the environment names, or that is beside this file, or of the system."""
    named = os.environ.get(f"KVCACHE_{name.upper()}_LIBRARY")
    beside = Path(__file__).parent / f"libkvcache_{name}.so.0"
    return named or (str(beside) if beside.exists() else beside.name)


class Transfer:
    """A sequence on its way. Both sides poll it until it is done."""

    def __init__(self, cache: Transfers, transfer: int) -> None:
        self._cache = cache
        self._transfer = transfer
        self.done = False
        """True once the receiver has everything."""
        self.tokens = 0
        """That all layers have received, or sent, at the last poll()."""
        self.bytes = 0
        """Of rows and states that were received, or sent."""
        self.sequence: int | None = None
        """Of a receiver that is done: the new sequence."""

    def describe(self) -> bytes:
        """What the receiver expects and where to send it: bytes for Cache.send() of the other side. For one sender."""
        return self._cache._describe_transfer(self._transfer)

    def poll(self) -> bool:
        """Moves the transfer on, and returns whether it is done. It waits for nothing.

        Raises:
            FileError (the peer has failed, ended or cancelled, or is silent), Evicted, Order, Corrupt, StaleId, OutOfMemory:
            the transfer has ended. A receiver has freed its pages, and a sender's sequence is as it was.
        """
        if not self.done:
            self.done, self.tokens, self.bytes, sequence = self._cache._poll_transfer(self._transfer)
            self.sequence = sequence or None
        return self.done

    def wait(self, timeout: float | None = None) -> int | None:
        """Polls until the transfer is done, and returns the new sequence, or None of a sender.

        Raises:
            TimeoutError: the transfer runs on, and can be waited for again. And what poll() raises.
        """
        end = None if timeout is None else time.monotonic() + timeout
        idle = 0
        while not self.poll():
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"the transfer has not ended after {timeout} s")
            idle += 1
            if idle > 100:
                time.sleep(0.0002)
        return self.sequence

    def cancel(self) -> None:
        """Ends the transfer. The peer learns of it."""
        if not self.done:
            self._cache._cancel_transfer(self._transfer)

    def __repr__(self) -> str:
        return f"<Transfer {self._transfer}, {'done' if self.done else f'{self.tokens} tokens so far'}>"


class Transfers(Tiers):
    """The calls of Cache on transfers."""

    def use_ucx(self, transports: str = "", devices: str = "") -> None:
        """Makes transfers of this cache use UCX, which reaches other processes and machines. Before the first transfer.

        Args:
            transports: as UCX_TLS, "tcp" or "sm,tcp". Empty: what the environment says, or all.
            devices: as UCX_NET_DEVICES, "lo" or "mlx5_0:1". Empty: likewise.

        Raises:
            FileError (the transport's library is missing, or UCX refuses), Order (the cache has a transport, or had a
            transfer), Unsupported (a GPU, storage="none", encoder groups).
        """
        options = f"{transports}/{devices}" if devices else transports
        self._set_transport("Transfers.use_ucx", _transport_library("ucx"), options)

    def use_nixl(self, options: Mapping[str, str] | None = None) -> None:
        """Makes transfers of this cache use NIXL, which reaches other processes and machines. Before the first transfer.

        Args:
            options: "library" (the file of libnixl_capi.so; else KVCACHE_NIXL_CAPI names it), "agent", "backend", and
                parameters of the backend, such as "engine_config": "TLS=tcp,NET_DEVICES=eth0". No value has a semicolon.

        Raises:
            FileError (the transport's library or NIXL is missing, or NIXL refuses), InvalidArgument (a name or a value that
            the options cannot have), Order (the cache has a transport, or had a transfer), Unsupported (storage="none",
            encoder groups).
        """
        for name, value in (options or {}).items():
            if not name or "=" in name or ";" in name + value:
                raise InvalidArgument(f"Transfers.use_nixl: {name!r} = {value!r} is no option", status=1)
        text = ";".join(f"{name}={value}" for name, value in (options or {}).items())
        self._set_transport("Transfers.use_nixl", _transport_library("nixl"), text)

    def set_transport(self, library: str | os.PathLike[str], options: str = "") -> None:
        """Makes transfers of this cache use another transport: a shared library that fills the table of kvcache_transport.h.

        Args:
            library: its symbol kvc_transport_open is called. It stays loaded.
            options: text that the plug-in defines.

        Raises:
            FileError (the library cannot be loaded), Unsupported (it is no transport, or one of another version), Order (the
            cache has a transport, or had a transfer), and what the plug-in reports.
        """
        self._set_transport("Transfers.set_transport", os.fsdecode(library), options)

    def receive(self, num_tokens: int, *, prefix: int | None = None, timeout: float = 30.0) -> Transfer:
        """Reserves pages for a sequence of num_tokens tokens that another cache sends.

            incoming = cache.receive(len(prompt))
            channel.send(incoming.describe())
            sequence = incoming.wait()

        Args:
            num_tokens: the length of the sequence at the end.
            prefix: a sequence with the first tokens, as attach_prefix() gives it: only the others travel.
            timeout: how many seconds the peer may be silent. Both sides use it.

        Raises:
            OutOfRange, StaleId, Busy, Uncommitted, Suspended, InvalidArgument (prefix), Unsupported (a GPU, storage="none",
            encoder groups), TooManySequences, OutOfPages, OutOfMemory.
        """
        return Transfer(self, self._receive(num_tokens, prefix or 0, max(1, round(timeout * 1000))))

    def send(self, sequence: int, description: bytes) -> Transfer:
        """Starts to send a sequence to the cache that a description is from. poll() it between layers or steps.

        With tensor parallelism, each rank of the sender opens each receiver's description. If the receiver needs no heads of
        this rank, the transfer is done at its first poll.

        Args:
            sequence: it reaches the receiver's num_tokens, and is not extended before the transfer is done.
            description: from describe() of the receiver's Transfer.

        Raises:
            Layout (the caches differ in model, layout or transport), Corrupt (the description is damaged), OutOfRange (the
            sequence is longer), Evicted (a window has freed what the receiver needs), FileError, StaleId, Unsupported.
        """
        return Transfer(self, self._send(sequence, bytes(description)))
