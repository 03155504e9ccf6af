"""Transfers: sequences to caches of this process, or of others over a transport."""

from __future__ import annotations

import os
import time
from pathlib import Path

import kvcache
from saves import path_in
from script import Script, operation


def transfer(s: Script) -> kvcache.Transfer:
    return s.transfers[s.integer("transfer")]


@operation
def set_transport(s: Script) -> None:
    s.cache.set_transport(os.environ["KVCACHE_CONFORMANCE_TRANSPORT"], os.environ["KVCACHE_CONFORMANCE_OPTIONS"])


@operation
def receive(s: Script) -> None:
    timeout = s.integer("timeout_ms", 30000) / 1000
    made = s.cache.receive(s.integer("tokens"), prefix=s.sequences("prefix")[0] if s.has("prefix") else None, timeout=timeout)
    s.transfers[s.integer("transfer")] = made


@operation
def describe_transfer(s: Script) -> None:
    description = transfer(s).describe()
    if s.has("file"):
        path = path_in("KVCACHE_CONFORMANCE_SAVE", s)
        part = Path(f"{path}.part")
        part.write_bytes(description)
        part.rename(path)  # the sender finds all of it
    s.descriptions[s.integer("transfer")] = description


@operation
def send(s: Script) -> None:
    if s.has("file"):
        path = path_in("KVCACHE_CONFORMANCE_LOAD", s)
        while not path.exists():
            time.sleep(0.001)
        description = path.read_bytes()
    else:
        description = s.descriptions[s.integer("of")]
    s.transfers[s.integer("transfer")] = s.cache.send(s.sequence(), description[: len(description) - s.integer("cut")])


@operation
def poll_transfer(s: Script) -> dict[str, str]:
    if s.has("until_done"):
        transfer(s).wait()
    done = transfer(s).poll()
    if done and s.has("seqs"):
        s.bind([transfer(s).sequence or 0])
    return {"done": str(int(done)), "tokens": str(transfer(s).tokens), "bytes": str(transfer(s).bytes)}


@operation
def cancel_transfer(s: Script) -> None:
    transfer(s).cancel()
