"""`kvcache info`, `kvcache bench`, `kvcache replay` and `kvcache inspect`, also as `python -m kvcache`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kvcache
from kvcache import _replay, inspect

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kvcache", description="Paged KV cache and attention over it, for LLM engines.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="what is installed, and what this machine can do")
    info.add_argument("--json", action="store_true", help="one JSON object")
    bench = commands.add_parser("bench", help="time of a layer's attention here, beside a copy of as many bytes")
    bench.add_argument("--q-heads", type=int, default=32)
    bench.add_argument("--kv-heads", type=int, default=8)
    bench.add_argument("--head-dim", type=int, default=128)
    bench.add_argument("--dtype", choices=_BYTES, default="bfloat16", help="of q, K and V")
    bench.add_argument("--batch", type=int, default=8, help="sequences of a decode step")
    bench.add_argument("--context", type=int, default=4096, help="tokens of each sequence")
    bench.add_argument("--prefill", type=int, default=1024, help="tokens of a prefill step")
    bench.add_argument("--threads", type=int, default=0, help="0: as many as this process may use")
    bench.add_argument("--simd", help="a target's name, as info prints them")
    bench.add_argument("--seconds", type=float, default=1.0, help="of each row")
    replay = commands.add_parser("replay", help="hit rates of a prefix index over a trace of requests")
    replay.add_argument("trace", type=Path, help="JSON lines with hash_ids or input_length, or CSV with a column of lengths")
    replay.add_argument("--blocks", type=_numbers, default=[1000, 5000, 10000, 20000, 50000], help="sizes of the index")
    replay.add_argument("--block-tokens", type=int, default=512, help="tokens of a block, where the trace has lengths alone")
    replay.add_argument("--host-blocks", type=int, default=0, help="also over a host tier of so many blocks")
    replay.add_argument("--json", action="store_true", help="one JSON object")
    replay.add_argument("--plot", type=Path, help="an SVG file to write")
    page = commands.add_parser("inspect", help="a page that shows a trace of kvcache.inspect.Recorder")
    page.add_argument("trace", type=Path, help="JSON lines")
    page.add_argument("--out", type=Path, help="the page to write; default: beside the trace")
    page.add_argument("--serve", type=int, metavar="PORT", help="serve the page on 127.0.0.1 while the trace grows; 0: any port")
    options = parser.parse_args(arguments)
    try:
        if options.command == "info":
            _info(options.json)
        elif options.command == "bench":
            _bench(options)
        elif options.command == "inspect":
            inspect.show(options.trace, options.out, options.serve)
        else:
            _replay.run(options.trace, options.blocks, options.block_tokens, options.host_blocks, options.json, options.plot)
    except kvcache.Error as error:
        print(f"kvcache: {error}", file=sys.stderr)
        return 1
    return 0


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _info(as_json: bool) -> None:
    with_all = {"version": kvcache.__version__, "library": kvcache.get_library(), "include": kvcache.get_include(),
                "build": kvcache.build_info(), "context": kvcache.Context().describe()}
    if as_json:
        print(json.dumps(with_all, indent=2))
        return
    for name, value in with_all.items():
        if not isinstance(value, dict):
            print(f"{name:10} {value}")
            continue
        for key, entry in value.items():
            print(f"{name:10} {key}: {', '.join(map(str, entry)) if isinstance(entry, list) else entry}")


def _median_seconds(run: Callable[[], object], seconds: float) -> float:
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _random(shape: tuple[int, ...], dtype: str) -> Any:
    """Elements in [-1, 1); bfloat16 as its bits in uint16."""
    values = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def _bench(options: argparse.Namespace) -> None:
    heads, dim, dtype = (options.q_heads, options.kv_heads), options.head_dim, options.dtype
    context = kvcache.Context(threads=options.threads, simd=options.simd)
    layer = kvcache.Layer(q_heads=heads[0], kv_heads=heads[1], head_dim=dim, dtype=dtype)
    largest = max(options.prefill, options.batch, 1)
    cache = kvcache.Cache([layer], context=context, max_sequences=options.batch + 1, max_batch_tokens=max(largest, 2048),
                          capacity_tokens=(options.context + 64) * options.batch + options.prefill)
    about = context.describe()
    print(f"kvcache {kvcache.__version__}, {about['simd']}, {about['threads']} threads, heads {heads[0]}/{heads[1]}, "
          f"head dim {dim}, {dtype}")

    def arrays(tokens: int) -> tuple[Any, Any, Any, Any]:
        q, k, v = (_random((tokens, n, dim), dtype) for n in (heads[0], heads[1], heads[1]))
        return q, k, v, np.empty_like(q)

    def attend(sequences: list[int], lengths: list[int], tensors: tuple[Any, Any, Any, Any]) -> None:
        q, k, v, out = tensors
        step = cache.forward(sequences, lengths)
        try:
            step.attend(0, q, k, v, out=out, dtype=dtype)
        finally:
            step.abort()  # so that the next one does the same work

    sequence = cache.add()
    new = arrays(options.prefill)
    seconds = _median_seconds(lambda: attend([sequence], [options.prefill], new), options.seconds)
    operations = 2 * options.prefill * (options.prefill + 1) * heads[0] * dim
    print(f"prefill {options.prefill:6} tokens: {seconds * 1e3:9.3f} ms, {operations / seconds / 1e9:8.1f} GFLOP/s")
    cache.remove(sequence)

    rows = cache.add(options.batch)
    for row in rows:
        for begin in range(0, options.context, 2048):
            count = min(2048, options.context - begin)
            with cache.forward([row], [count]) as step:
                step.append(0, *arrays(count)[1:3], dtype=dtype)
    new = arrays(options.batch)
    seconds = _median_seconds(lambda: attend(rows, [1] * options.batch, new), options.seconds)
    moved = options.batch * options.context * heads[1] * dim * 2 * _BYTES[dtype]
    source = np.ones(moved, np.uint8)
    target = np.empty_like(source)
    copy = _median_seconds(lambda: np.copyto(target, source), options.seconds)
    print(f"decode  {options.batch:6} rows of {options.context} tokens: {seconds * 1e3:9.3f} ms, K and V read at "
          f"{moved / seconds / 1e9:.1f} GB/s; numpy copies as many bytes in {copy * 1e3:.3f} ms")

    def empty_step() -> None:
        cache.forward(rows, [1] * options.batch).abort()

    seconds = _median_seconds(empty_step, options.seconds / 4)
    print(f"begin and abort of a step of {options.batch} rows: {seconds * 1e6:.1f} us")


if __name__ == "__main__":
    sys.exit(main())
