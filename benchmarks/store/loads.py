#!/usr/bin/env python3
"""Loading a prefix from each tier beside computing it: Gemma 3 270M in float32 on the CPU, 512 to 16,384 tokens.

usage: loads.py [--lengths N,N,...] [--tiers NAME,...] [--folder FOLDER]
For each length, one engine computes the prompt and stores it in every tier. Then, for each tier, an engine with empty pools gets
the prefix back: the same one from its host tier, and new ones from the others. Printed are the seconds of both (the best of three loads), the bytes that were read, their bandwidth,
and the library's own estimate (PrefixHit.load_ns). The token after the prefix must
be the same in every case. Then a load is asked for whose token_ns says that computing is quicker, and must load nothing.
A load reads what the system has in its page cache. benchmark.sh disk measures the disk itself.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import math
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "gemma"))

import weights  # noqa: E402
from engine import Engine, capacity_for  # noqa: E402
from model import Config, Model  # noqa: E402

PORT = 16390


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192,16384")
    parser.add_argument("--tiers", default="host,disk,redis")
    parser.add_argument("--folder", type=Path, help="on the disk to use; default: a temporary folder")
    return parser.parse_args()


class Redis:
    """A server on loopback, without a file of its own."""

    def __init__(self, folder: Path):
        self.process = subprocess.Popen(["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--dir",
                                         str(folder)], stdout=subprocess.DEVNULL)
        for _ in range(200):
            if subprocess.run(["redis-cli", "-p", str(PORT), "ping"], capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError("redis-server does not answer")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def add_tier(engine: Engine, name: str, folder: Path) -> None:
    if name == "host":
        engine.cache.add_host_tier(2 << 30)
    elif name == "disk":
        engine.cache.add_disk_tier(folder / "disk")
    elif name == "redis":
        engine.cache.add_redis_tier(f"redis://127.0.0.1:{PORT}")
    else:
        raise SystemExit(f"no tier is called {name}")
    engine.has_tier = True


def empty_engine(model, fingerprint: bytes, length: int) -> Engine:
    return Engine(model, capacity_for([length + 1], 16), 2, prefix_index=True, fingerprint=fingerprint)


def next_token(engine: Engine, sequence: int, token: int) -> int:
    """What follows the prefix and `token`."""
    return int(np.argmax(engine.forward([sequence], [[token]])[0]))


def compute(model, fingerprint: bytes, tokens: list, last: int, tiers: list, folder: Path) -> tuple:
    """The engine, seconds of the steps alone, and the token that follows. Afterwards, every tier has the prefix."""
    engine = empty_engine(model, fingerprint, len(tokens))
    for name in tiers:
        add_tier(engine, name, folder)
    sequence, seconds = engine.cache.add(), 0.0
    for start in range(0, len(tokens), engine.chunk_tokens):
        part = tokens[start:start + engine.chunk_tokens]
        begin = time.perf_counter()
        engine.forward([sequence], [part], wanted_rows=[])
        seconds += time.perf_counter() - begin
        engine.cache.publish_prefix(sequence, tokens[:start + len(part)])  # while the sliding layers still have its pages
        engine.store()  # so that the stores do not slow the steps
    following = next_token(engine, sequence, last)
    engine.cache.remove([sequence])
    engine.cache.drop_prefix([])  # from the pools alone
    return engine, seconds, following


def load(engine: Engine, tokens: list, last: int, tier: str) -> tuple:
    """Three loads into empty pools. The least seconds from the request to a sequence that has the prefix, its bytes, the
    library's estimate in seconds before the last load, the tokens that follow, and whether a load was refused that takes
    longer than computing."""
    cache, times, following = engine.cache, [], []
    for _ in range(3):
        begin = time.perf_counter()
        job, hit = cache.load_prefix(tokens, allow_all=True, token_ns=math.inf)
        if job is None or job.wait() != len(tokens):
            raise RuntimeError(f"{tier}: {hit}")
        sequence, found = cache.attach_prefix(tokens, allow_all=True)
        times.append(time.perf_counter() - begin)
        if found.tokens != len(tokens):
            raise RuntimeError(f"{tier}: attached {found.tokens} of {len(tokens)} tokens")
        groups = [cache.stats(group) for group in (0, 1)]
        size = sum(stats.pages_used * stats.storage_bytes // stats.pages_total for stats in groups)
        following.append(next_token(engine, sequence, last))
        cache.remove([sequence])
        cache.drop_prefix([])
    job, left = cache.load_prefix(tokens, allow_all=True, token_ns=1)
    if sum(left.tier_tokens) != len(tokens) or left.load_tokens != 0:
        raise RuntimeError(f"{tier}: {left}")
    return min(times), size, hit.load_ns / 1e9, following, job is None


def main() -> int:
    arguments = parse()
    tiers = arguments.tiers.split(",")
    files = weights.load()
    model, fingerprint = Model(Config.from_metadata(files.metadata), files.tensors), files.fingerprint()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    failed = 0
    server = Redis(folder) if "redis" in tiers else None
    try:
        print(f"{'tokens':>7} {'tier':<6} {'compute':>9} {'load':>9} {'ratio':>7} {'MB':>7} {'GB/s':>6} {'estimate':>9}")
        for length in map(int, arguments.lengths.split(",")):
            tokens = np.random.default_rng(length).integers(3, 100_000, length + 1).tolist()
            tokens, last = tokens[:-1], tokens[-1]
            computing, seconds, expected = compute(model, fingerprint, tokens, last, tiers, folder)
            for tier in tiers:
                if tier == "host":
                    engine = computing
                else:
                    engine = empty_engine(model, fingerprint, length)
                    add_tier(engine, tier, folder)
                best, size, estimate, following, held = load(engine, tokens, last, tier)
                same = set(following) == {expected}
                failed += not same or not held or best >= seconds
                print(f"{length:>7} {tier:<6} {seconds:>8.2f}s {best * 1e3:>7.1f}ms {seconds / best:>7.1f} {size / 1e6:>7.1f} "
                      f"{size / best / 1e9:>6.2f} {estimate * 1e3:>7.1f}ms"
                      f"{'' if same else '  OTHER TOKEN'}{'' if held else '  LOADED ALTHOUGH COMPUTING IS QUICKER'}", flush=True)
    finally:
        if server:
            server.close()
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
