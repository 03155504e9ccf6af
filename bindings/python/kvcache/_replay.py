"""`kvcache replay`: hit rates of a prefix index over a trace of requests, beside bounds that are simulated."""

from __future__ import annotations

import csv
import heapq
import html
import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import kvcache

_MOST_BLOCKS = 1 << 20
_LENGTH_NAMES = ("contexttokens", "input_length", "input_tokens", "prompt_tokens", "context_tokens")


class TraceError(kvcache.Error):
    """A trace that cannot be read, with its line."""


@dataclass(frozen=True)
class Trace:
    """Requests as lists of block ids. Equal ids mean equal tokens, and equal tokens before them."""

    requests: list[list[int]]
    has_identities: bool
    """False: the trace has lengths alone, so that no two requests share a block."""

    @property
    def blocks(self) -> int:
        return sum(map(len, self.requests))


def read_trace(path: Path, block_tokens: int = 512) -> Trace:
    """Reads JSON lines with `hash_ids` (Mooncake's format) or `input_length`, or a CSV file with a column of lengths.

    Raises:
        TraceError: with the line that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, 0, str(error)) from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise _wrong(path, 0, "the file has no requests")
    rows = list(_json_rows(path, lines) if lines[0][1].lstrip().startswith(("{", "[")) else _csv_rows(path, lines))
    has_identities = [ids is not None for _, ids, _ in rows]
    if any(has_identities) and not all(has_identities):
        number = rows[has_identities.index(False)][0]
        raise _wrong(path, number, "no hash_ids, which other lines have")
    if all(has_identities):
        return Trace(_numbered(path, [(number, ids or []) for number, ids, _ in rows]), True)
    requests: list[list[int]] = []
    first = 0
    for _, _, length in rows:
        count = -(-length // block_tokens)
        requests.append(list(range(first, first + count)))
        first += count
    return Trace(requests, False)


def _wrong(path: Path, line: int, what: str) -> TraceError:
    return TraceError(f"{path}{f', line {line}' if line else ''}: {what}", status=1)


Row = tuple[int, "list[object] | None", int]


def _length(path: Path, number: int, value: object) -> int:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)) or float(value) != int(float(value)):
            raise ValueError
        length = int(float(value))
    except (ValueError, OverflowError):
        raise _wrong(path, number, f"the length {value!r} is not a whole number") from None
    if not 0 <= length <= 1 << 30:
        raise _wrong(path, number, f"the length {length} is outside 0..{1 << 30}")
    return length


def _json_rows(path: Path, lines: list[tuple[int, str]]) -> Iterator[Row]:
    for number, line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise _wrong(path, number, f"no JSON: {error}") from error
        if not isinstance(row, dict):
            raise _wrong(path, number, "a line must be a JSON object")
        ids = row.get("hash_ids", row.get("block_hashes"))
        if ids is not None and not isinstance(ids, list):
            raise _wrong(path, number, "hash_ids must be a list")
        length = next((row[name] for name in _LENGTH_NAMES if name in row), None)
        if ids is None and length is None:
            raise _wrong(path, number, "neither hash_ids nor input_length")
        yield number, ids, 0 if ids is not None else _length(path, number, length)


def _csv_rows(path: Path, lines: list[tuple[int, str]]) -> Iterator[Row]:
    rows = csv.reader(line for _, line in lines)
    head = [name.strip().lower() for name in next(rows)]
    column = next((head.index(name) for name in _LENGTH_NAMES if name in head), -1)
    if column < 0:
        raise _wrong(path, lines[0][0], f"no column of lengths ({', '.join(_LENGTH_NAMES)}) among {', '.join(head)}")
    for (number, _), row in zip(lines[1:], rows, strict=False):
        if len(row) <= column:
            raise _wrong(path, number, f"{len(row)} columns, and the lengths are in column {column + 1}")
        yield number, None, _length(path, number, row[column].strip())


def _numbered(path: Path, rows: list[tuple[int, list[object]]]) -> list[list[int]]:
    """Numbers ids from 0 on, whatever they are. An id after different blocks is a different block."""
    numbers: dict[tuple[int, object], int] = {}
    requests: list[list[int]] = []
    for line, ids in rows:
        request: list[int] = []
        before = -1
        for block in ids:
            if not isinstance(block, (int, str)):
                raise _wrong(path, line, f"the block id {block!r} is neither a number nor a text")
            before = numbers.setdefault((before, block), len(numbers))
            request.append(before)
        requests.append(request)
    return requests


# ---- Policies ----------------------------------------------------------------------------------------------------------


def in_cache(requests: Iterable[list[int]], blocks: int, policy: str) -> int:
    """Blocks that a real Cache finds. It has `blocks` pages of one token, and a token stands for a block."""
    longest = max(map(len, requests), default=0)
    if not 0 < longest <= blocks:
        raise kvcache.OutOfRange(f"a request has {longest} blocks, and the cache {blocks}", status=2)
    cache = kvcache.Cache([kvcache.Layer(q_heads=1, kv_heads=1, head_dim=1)], page_size=1, capacity_pages=blocks,
                          max_sequences=1, max_batch_tokens=longest, storage=None, prefix_index=True, prefix_policy=policy,
                          context=kvcache.Context(threads=1))  # fmt: skip
    hits = 0
    for request in requests:
        sequence, hit = cache.attach_prefix(request, allow_all=True)
        hits += hit.tokens
        if hit.tokens < len(request):
            with cache.forward([sequence], [len(request) - hit.tokens]):
                pass
        cache.publish_prefix(sequence, request)
        cache.remove(sequence)
    return hits


_HOST_BLOCK_BYTES = 4096  # an object of one token takes one block of a host tier


def with_host_tier(requests: Iterable[list[int]], blocks: int, host_blocks: int) -> tuple[int, int]:
    """The same with the default policy over a host tier that holds `host_blocks` pages: blocks found in the pool or the tier,
    and how many of them were loaded."""
    longest = max(map(len, requests), default=0)
    cache = kvcache.Cache([kvcache.Layer(q_heads=1, kv_heads=1, head_dim=1)], page_size=1, capacity_pages=blocks,
                          max_sequences=2, max_batch_tokens=longest, prefix_index=True, fingerprint=bytes(32),
                          context=kvcache.Context(threads=1))  # fmt: skip
    cache.add_host_tier(host_blocks * _HOST_BLOCK_BYTES)
    rows = np.zeros((longest, 1, 1), np.float32)
    hits = loaded = 0
    for request in requests:
        job, hit = cache.load_prefix(request, allow_all=True, token_ns=math.inf)
        if job is not None:
            job.wait()
        in_pool = hit.tokens
        sequence, hit = cache.attach_prefix(request, allow_all=True)
        hits += hit.tokens
        loaded += hit.tokens - in_pool
        if hit.tokens < len(request):
            count = len(request) - hit.tokens
            with cache.forward([sequence], [count]) as step:
                step.append(0, rows[:count], rows[:count])
        cache.publish_prefix(sequence, request)
        cache.remove(sequence)
        while cache.tier_traffic().pages_waiting > 0:  # so that equal traces give equal rates
            time.sleep(0.0001)
    return hits, loaded


def with_foresight(requests: list[list[int]], blocks: int) -> int:
    """Belady's bound: what is used again last is evicted first, and a block before those that it continues."""
    never = len(requests)
    following: dict[int, int] = {}
    next_use: list[list[int]] = []
    for time in range(len(requests) - 1, -1, -1):
        next_use.append([following.get(block, never) for block in requests[time]])
        following.update(dict.fromkeys(requests[time], time))
    next_use.reverse()
    stored: dict[int, int] = {}
    order: list[tuple[int, int, int]] = []
    hits = 0
    for request, uses in zip(requests, next_use, strict=True):
        hits += _known(request, stored)
        for depth, (block, use) in enumerate(zip(request, uses, strict=True)):
            stored[block] = use
            heapq.heappush(order, (-use, -depth, block))
        while len(stored) > blocks:
            use, _, block = heapq.heappop(order)
            if stored.get(block) == -use:
                del stored[block]
    return hits


def _known(request: list[int], stored: dict[int, int] | OrderedDict[int, int]) -> int:
    for depth, block in enumerate(request):
        if block not in stored:
            return depth
    return len(request)


def without_limit(requests: list[list[int]]) -> int:
    seen: dict[int, int] = {}
    hits = 0
    for request in requests:
        hits += _known(request, seen)
        seen.update(dict.fromkeys(request, 0))
    return hits


class S3Fifo:
    """S3-FIFO as published (Yang et al., SOSP 2023), over blocks: a small queue of a tenth, a main queue, a ghost queue."""

    def __init__(self, blocks: int) -> None:
        self.blocks, self.small_blocks = blocks, max(1, blocks // 10)
        self.small: OrderedDict[int, int] = OrderedDict()
        self.main: OrderedDict[int, int] = OrderedDict()
        self.ghost: OrderedDict[int, int] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self.small or block in self.main

    def use(self, block: int) -> None:
        for queue in (self.small, self.main):
            if block in queue:
                queue[block] = min(queue[block] + 1, 3)
                return
        while len(self.small) + len(self.main) >= self.blocks:
            self._evict()
        (self.main if self.ghost.pop(block, None) is not None else self.small)[block] = 0

    def _evict(self) -> None:
        while len(self.small) >= self.small_blocks or not self.main:
            block, uses = self.small.popitem(last=False)
            if uses > 1:
                self.main[block] = 0
                continue
            self.ghost[block] = 0
            if len(self.ghost) > self.blocks - self.small_blocks:
                self.ghost.popitem(last=False)
            return
        while True:
            block, uses = self.main.popitem(last=False)
            if uses == 0:
                return
            self.main[block] = uses - 1


def with_s3_fifo(requests: list[list[int]], blocks: int) -> int:
    """The last block of a request is inserted first, so that the queues evict it before those that it continues."""
    cache = S3Fifo(blocks)
    hits = 0
    for request in requests:
        depth = 0
        while depth < len(request) and request[depth] in cache:
            depth += 1
        hits += depth
        for block in reversed(request):
            cache.use(block)
    return hits


# ---- The command -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """Hit rates of one policy in percent of all blocks, one for each size of the cache; None: a request does not fit."""

    name: str
    rates: list[float | None]


def replay(trace: Trace, sizes: list[int], host_blocks: int = 0) -> list[Series]:
    """Hit rates of the index's two policies over a real Cache, and of S3-FIFO and Belady's bound, which are simulated. With
    host_blocks also those of a real Cache over a host tier of that size, and Belady's bound for both together.

    A hit is a block that a request finds together with all blocks before it.
    """
    longest = max(map(len, trace.requests), default=0)
    requests = [request for request in trace.requests if request]

    def series(name: str, hits: Callable[[int], int]) -> Series:
        return Series(name, [100 * hits(size) / trace.blocks if longest <= size else None for size in sizes])

    found = [series("lru", lambda size: in_cache(requests, size, "lru")),
             series("reuse (default)", lambda size: in_cache(requests, size, "reuse")),
             series("s3-fifo (simulated)", lambda size: with_s3_fifo(requests, size)),
             series("belady (bound)", lambda size: with_foresight(requests, size))]  # fmt: skip
    if host_blocks > 0:
        found += [series("reuse + host tier", lambda size: with_host_tier(requests, size, host_blocks)[0]),
                  series("belady of both", lambda size: with_foresight(requests, size + host_blocks))]  # fmt: skip
    return found


def run(path: Path, sizes: list[int], block_tokens: int, host_blocks: int, as_json: bool, plot: Path | None) -> None:
    if not sizes or min(sizes) < 1 or max(sizes) > _MOST_BLOCKS:
        raise kvcache.OutOfRange(f"replay: blocks must be 1 to {_MOST_BLOCKS}", status=2)
    if not 1 <= block_tokens <= 1 << 20:
        raise kvcache.OutOfRange(f"replay: block_tokens must be 1 to {1 << 20}", status=2)
    if not 0 <= host_blocks <= _MOST_BLOCKS:
        raise kvcache.OutOfRange(f"replay: host_blocks must be 0 to {_MOST_BLOCKS}", status=2)
    trace = read_trace(path, block_tokens)
    if trace.blocks == 0:
        raise _wrong(path, 0, "no request has a block")
    unlimited = 100 * without_limit(trace.requests) / trace.blocks
    series = replay(trace, sizes, host_blocks)
    if as_json:
        print(json.dumps({"trace": path.name, "requests": len(trace.requests), "blocks": trace.blocks, "sizes": sizes,
                          "host_blocks": host_blocks, "unlimited": unlimited, "rates": {s.name: s.rates for s in series}}, indent=2))  # fmt: skip
    else:
        print(f"{path.name}: {len(trace.requests)} requests, {trace.blocks} blocks; hits in % of all blocks, without a limit "
              f"{unlimited:.2f}")
        if not trace.has_identities:
            print("The trace has lengths alone: no block is known to be equal to another one, so nothing can be found.")
        print(f"{'blocks':20}" + "".join(f"{size:>9}" for size in sizes))
        for s in series:
            print(f"{s.name:20}" + "".join(f"{'-':>9}" if rate is None else f"{rate:9.2f}" for rate in s.rates))
    if plot is not None:
        plot.write_text(picture(path.name, sizes, series, unlimited), encoding="utf-8")
        if not as_json:
            print(f"wrote {plot}")


_COLOURS = ("#1f5fa8", "#c2410c", "#2f8f4e", "#555555", "#7c3aed", "#999999")


def picture(title: str, sizes: list[int], series: list[Series], unlimited: float) -> str:
    """The rates over the size of the cache, which is logarithmic, as SVG."""
    width, height, left, top = 760, 440, 60, 50
    most = max([unlimited, 1.0, *(rate for s in series for rate in s.rates if rate is not None)])
    low, high = math.log(min(sizes)), math.log(max(sizes))

    def x(size: int) -> float:
        return left + (width - left - 190) * ((math.log(size) - low) / (high - low) if high > low else 0.5)

    def y(rate: float) -> float:
        return height - 50 - (height - 50 - top) * rate / most

    def text(at_x: float, at_y: float, words: str, colour: str = "#222222", anchor: str = "start") -> str:
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" fill="{colour}" text-anchor="{anchor}">{html.escape(words)}</text>'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             'font-size="13">', f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
             text(left, 25, f"Hit rate over the size of the prefix index, % of all blocks: {title}")]  # fmt: skip
    for rate in [most * i / 4 for i in range(5)]:
        parts += [f'<path d="M{left} {y(rate):.1f}H{width - 190}" stroke="#dddddd"/>',
                  text(left - 8, y(rate) + 4, f"{rate:.1f}", anchor="end")]  # fmt: skip
    parts += [text(x(size), height - 25, f"{size:,}", anchor="middle") for size in sizes]
    for row, (s, colour) in enumerate(zip(series, _COLOURS, strict=False)):
        points = [(x(size), y(rate)) for size, rate in zip(sizes, s.rates, strict=True) if rate is not None]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                     + " ".join(f"{px:.1f},{py:.1f}" for px, py in points) + '"/>')  # fmt: skip
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
        parts.append(text(width - 175, top + 20 + 22 * row, s.name, colour))
    return "\n".join([*parts, "</svg>"]) + "\n"
