#!/usr/bin/env python3
"""The storage backend beside HiCache's own file backend, in one run: samples of each in turn, medians, and theirs / ours.

    build/venv-sglang/bin/python integrations/sglang/benchmark.py [--samples N] [--tokens N] [--pages N] [--folder PATH]

A ratio above 1 means that ours is faster. Stores are of new keys, and both use the calls that SGLang's controller makes for them:
ours moves pages where they lie, and the file backend gets copies. Ours also computes and compares checksums.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "tests"), str(HERE.parents[1] / "tests" / "support")]

import torch
from host import HostPool, Storage, config
from sglang.srt.mem_cache.hicache_storage import HiCacheFile


def store_file(backend: HiCacheFile, pool: HostPool, keys: list[str]) -> bool:
    return backend.batch_set(keys, [pool.get_data_page(i * pool.page_size) for i in range(len(keys))])


def load_file(backend: HiCacheFile, pool: HostPool, keys: list[str]) -> bool:
    pages = backend.batch_get(keys, [pool.get_dummy_flat_data_page() for _ in keys])
    for i, page in enumerate(pages):
        if page is not None:
            pool.set_from_flat_data_page(i * pool.page_size, page)
    return all(page is not None for page in pages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=8192, help="of a page; a token has 384 bytes")
    parser.add_argument("--pages", type=int, default=16)
    parser.add_argument("--folder", help="where the folders are made: a disk, or memory such as /dev/shm")
    options = parser.parse_args()
    pool = HostPool(options.pages, options.tokens, seed=1)
    empty = HostPool(options.pages, options.tokens)
    indices = pool.indices(*range(options.pages))
    times = {work: ([], []) for work in ("store", "find", "load")}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, Storage({"directory": f"{folder}/a", "seconds": 60}, pool) as ours:
        file = HiCacheFile(config({}, v1=False), f"{folder}/b")
        for cycle in range(options.samples + 1):
            keys = [f"{1000 * cycle + i:064x}" for i in range(options.pages)]
            for which in (0, 1) if cycle % 2 else (1, 0):
                empty.kv_buffer.zero_()
                calls = [("store", lambda: all(ours.batch_set_v1(keys, indices)), lambda: store_file(file, pool, keys)),
                         ("find", lambda: ours.batch_exists(keys) == len(keys), lambda: file.batch_exists(keys) == len(keys)),
                         ("load", lambda: all(ours.batch_get_v1(keys, indices)), lambda: load_file(file, empty, keys))]
                for work, *pair in calls:
                    ours.mem_pool_host = empty if work == "load" else pool
                    begin = time.perf_counter()
                    assert pair[which](), f"{work} failed"
                    if cycle > 0:
                        times[work][which].append(time.perf_counter() - begin)
                assert torch.equal(empty.kv_buffer, pool.kv_buffer)
    print(f"{options.pages} pages of {pool.page(0).nbytes} bytes, {options.samples} samples")
    for work, pair in times.items():
        a, b = (1e3 * statistics.median(samples) for samples in pair)
        print(f"{work:6} {a:9.2f} ms  file backend {b:9.2f} ms  ratio {b / a:5.2f}")


if __name__ == "__main__":
    main()
