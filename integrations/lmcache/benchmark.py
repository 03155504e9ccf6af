#!/usr/bin/env python3
"""The connector beside LMCache's own adapters, in one run: samples of each in turn, medians, and theirs / ours.

    build/venv-lmcache/bin/python integrations/lmcache/benchmark.py [--samples N] [--bytes N] [--objects N] [--folder PATH]

A ratio above 1 means that the connector is faster. Stores are of new keys. Without redis-server, only the folder is measured.
LMCache's adapters store raw bytes, and the connector also computes and compares a checksum.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "tests"), str(HERE.parents[1] / "tests" / "support")]

import conftest  # noqa: F401 - LMCache's settings
from host import Host, content, make, memory, object_key, ours
from redis_server import PROGRAM, RedisServer


def measure(name: str, mine: Host, theirs: Host, options: argparse.Namespace) -> None:
    times = {work: ([], []) for work in ("store", "find", "load")}
    objects = [memory(i, options.bytes) for i in range(options.objects)]
    loaded = [memory(None, options.bytes) for _ in objects]
    everything = list(range(options.objects))
    for cycle in range(options.samples + 1):
        keys = [object_key(1000 * cycle + i) for i in everything]
        hosts = [(0, mine), (1, theirs)]
        for which, host in hosts if cycle % 2 else reversed(hosts):
            for work, call in (("store", lambda: host.store(keys, objects)), ("find", lambda: host.find(keys) == everything),
                               ("load", lambda: host.load(keys, loaded) == everything)):
                begin = time.perf_counter()
                assert call(), f"{work} of {name} failed"
                if cycle > 0:  # the first cycle opens connections
                    times[work][which].append(time.perf_counter() - begin)
            assert all(content(a) == content(b) for a, b in zip(loaded, objects))
    for work, pair in times.items():
        a, b = (1e3 * statistics.median(samples) for samples in pair)
        print(f"{work:6} {name:10} {a:9.2f} ms  theirs {b:9.2f} ms  ratio {b / a:5.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--bytes", type=int, default=4 << 20)
    parser.add_argument("--objects", type=int, default=16)
    parser.add_argument("--folder", help="where the folders are made: a disk, or memory such as /dev/shm")
    options = parser.parse_args()
    print(f"{options.objects} objects of {options.bytes} bytes, {options.samples} samples")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, contextlib.ExitStack() as stack:
        for name in ("fs", "fs_native"):
            mine = stack.enter_context(Host(ours(directory=f"{folder}/ours {name}", seconds=60)))
            measure(name, mine, stack.enter_context(Host(make({"type": name, "base_path": f"{folder}/{name}"}))), options)
        if PROGRAM is not None:
            server = stack.enter_context(RedisServer(Path(folder)))
            mine = stack.enter_context(Host(ours(redis=server.url, timeout=10, seconds=60)))
            measure("resp", mine, stack.enter_context(Host(make({"type": "resp", "host": "127.0.0.1", "port": server.port}))), options)


if __name__ == "__main__":
    main()
