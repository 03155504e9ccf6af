"""`kvcache replay`: a trace is read, or refused with the number of the line. Hit rates are those of simple simulations."""

import json
import os
import random
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import OrderedDict
from pathlib import Path

import pytest

import kvcache
from kvcache import _replay


def chats(seed, turns=400):
    """Chats that grow by a few blocks with each request, and requests that come once."""
    rng = random.Random(seed)
    requests, live, fresh = [], [], iter(range(1, 1 << 30))
    for _ in range(turns):
        if live and rng.random() < 0.6:
            chat = rng.choice(live)
            chat.extend(next(fresh) for _ in range(rng.randint(1, 4)))
        else:
            chat = [0, *(next(fresh) for _ in range(rng.randint(1, 6)))]
            if rng.random() < 0.7:
                live.append(chat)
        if len(live) > 12 or len(chat) > 25:
            live.remove(chat if chat in live else live[0])
        requests.append(list(chat))
    return requests


def scans(seed, count=3000):
    """Prompts that are repeated, between prompts that come once."""
    rng, fresh = random.Random(seed), iter(range(1, 1 << 30))
    popular = [[next(fresh) for _ in range(8)] for _ in range(12)]
    return [rng.choice(popular) if rng.random() < 0.25 else [next(fresh) for _ in range(8)] for _ in range(count)]


def write(path, requests):
    path.write_text("".join(json.dumps({"timestamp": i, "input_length": 512 * len(r), "output_length": 1, "hash_ids": r})
                            + "\n" for i, r in enumerate(requests)))
    return path


def plain_lru(requests, size):
    stored, hits = OrderedDict(), 0
    for request in requests:
        hits += next((i for i, block in enumerate(request) if block not in stored), len(request))
        for block in reversed(request):
            stored.pop(block, None)
            stored[block] = 0
        while len(stored) > size:
            stored.popitem(last=False)
    return hits


@pytest.mark.parametrize("seed", range(5))
def test_the_index_is_a_plain_lru_and_lies_below_the_bounds(seed, tmp_path):
    trace = _replay.read_trace(write(tmp_path / "trace.jsonl", chats(seed)))
    assert trace.has_identities
    for size in (30, 60, 150, 400):
        lru = _replay.in_cache(trace.requests, size, "lru")
        assert lru == plain_lru(trace.requests, size)
        bound, unlimited = _replay.with_foresight(trace.requests, size), _replay.without_limit(trace.requests)
        for policy in ("lru", "reuse"):
            assert _replay.in_cache(trace.requests, size, policy) <= bound <= unlimited
        assert _replay.with_s3_fifo(trace.requests, size) <= bound
    assert _replay.in_cache(trace.requests, trace.blocks, "reuse") == unlimited


def layered_lru(requests, size, host):
    """Blocks found in a pool or in the tier below it. Both are LRU. The tier gets what is published and what it gives."""
    pool, tier, hits = OrderedDict(), OrderedDict(), 0
    for request in requests:
        hits += next((i for i, block in enumerate(request) if block not in pool and block not in tier), len(request))
        for block in reversed(request):
            pool.pop(block, None)
            pool[block] = 0
        for block in request:
            tier.pop(block, None)
            tier[block] = 0
        for stored, limit in ((pool, size), (tier, host)):
            while len(stored) > limit:
                stored.popitem(last=False)
    return hits


@pytest.mark.parametrize("seed", range(3))
def test_a_host_tier_adds_its_blocks(seed, tmp_path):
    requests = _replay.read_trace(write(tmp_path / "trace.jsonl", chats(seed))).requests
    blocks = sum(map(len, requests))
    unlimited = _replay.without_limit(requests)
    hits, loaded = _replay.with_host_tier(requests, 30, blocks)
    assert hits == unlimited and loaded >= unlimited - _replay.with_foresight(requests, 30) > 0
    assert _replay.with_host_tier(requests, blocks, blocks) == (unlimited, 0)
    for host in (40, 100):
        hits, loaded = _replay.with_host_tier(requests, 30, host)
        assert _replay.in_cache(requests, 30, "reuse") < hits <= _replay.with_foresight(requests, 30 + host)
        assert abs(hits - layered_lru(requests, 30, host)) <= 0.1 * unlimited
        assert _replay.with_host_tier(requests, 30, host) == (hits, loaded)


def test_the_command_prints_a_table_json_and_a_picture(tmp_path):
    path = write(tmp_path / "trace.jsonl", chats(1))
    picture = tmp_path / "rates.svg"
    run = [sys.executable, "-m", "kvcache", "replay", str(path), "--blocks", "20,50,200"]
    done = subprocess.run([*run, "--plot", str(picture)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {line.rsplit(None, 3)[0]: line.split()[-3:] for line in done.stdout.splitlines()[1:6]}
    assert rows["blocks"] == ["20", "50", "200"]
    assert rows["lru"][0] == "-", "a request of more than 20 blocks does not fit"
    assert sum(element.tag.endswith("polyline") for element in xml.parse(picture).iter()) == 4
    table = json.loads(subprocess.run([*run, "--json"], capture_output=True, text=True, check=True).stdout)
    assert table["rates"]["lru"][0] is None
    assert [f"{rate:.2f}" for rate in table["rates"]["belady (bound)"][1:]] == rows["belady (bound)"][1:]


def test_traces_of_lengths_have_no_hits(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.99,1025,109\n")
    trace = _replay.read_trace(path)
    assert [len(request) for request in trace.requests] == [1, 3] and not trace.has_identities
    assert _replay.in_cache(trace.requests, 10, "reuse") == _replay.without_limit(trace.requests) == 0
    path.write_text('{"input_length": 513}\n\n{"input_length": 0}\n')
    assert [len(request) for request in _replay.read_trace(path).requests] == [2, 0]
    assert [len(request) for request in _replay.read_trace(path, 100).requests] == [6, 0]


def test_equal_ids_after_other_blocks_are_other_blocks(tmp_path):
    trace = _replay.read_trace(write(tmp_path / "trace.jsonl", [[1, 2], [3, 2], [1, 2, "x"]]))
    assert _replay.without_limit(trace.requests) == 2
    assert _replay.in_cache(trace.requests, 9, "lru") == 2


@pytest.mark.parametrize(("text", "line", "what"), [
    ("", None, "no requests"),
    ("\n\n", None, "no requests"),
    ('{"hash_ids": [1]}\n{"hash_ids": 5}\n', 2, "must be a list"),
    ('{"hash_ids": [1]}\n{"hash_ids": [1.5]}\n', 2, "neither a number nor a text"),
    ('{"hash_ids": [1]}\n\n{"input_length": 5}\n', 3, "no hash_ids"),
    ('{"hash_ids": [1]}\nhello\n', 2, "no JSON"),
    ("[1, 2]\n", 1, "JSON object"),
    ('{"timestamp": 5}\n', 1, "neither hash_ids nor input_length"),
    ('{"input_length": -1}\n', 1, "outside"),
    ('{"input_length": true}\n', 1, "not a whole number"),
    ('{"input_length": 1e400}\n', 1, "not a whole number"),
    ("a,b\n1,2\n", 1, "no column of lengths"),
    ("a,ContextTokens\n1,2\n1\n", 3, "1 columns"),
    ("ContextTokens\n12\nmany\n", 3, "'many'"),
])  # fmt: skip
def test_a_wrong_trace_is_refused_with_its_line(text, line, what, tmp_path):
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(_replay.TraceError) as raised:
        _replay.read_trace(path)
    assert what in str(raised.value)
    assert (f"line {line}" in str(raised.value)) == (line is not None)


def test_wrong_arguments_are_a_line_and_a_status(tmp_path):
    path = write(tmp_path / "trace.jsonl", [[1]])
    for arguments in (["/nowhere/trace"], [str(path), "--blocks", "0"], [str(path), "--block-tokens", "0"]):
        done = subprocess.run([sys.executable, "-m", "kvcache", "replay", *arguments], capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.startswith("kvcache: "), done.stderr
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(_replay.TraceError):
        _replay.read_trace(tmp_path / "binary")
    with pytest.raises(kvcache.OutOfRange):
        _replay.in_cache([[1, 2, 3]], 2, "lru")


# Figures of Mooncake's conversation trace, if KVCACHE_TRACES names its folder; else those of a synthetic trace.
PUBLISHED = {1000: 4.5, 5000: 11.2, 10000: 21.2, 20000: 28.8, 50000: 35.5}


def test_the_default_policy_finds_more_than_lru(tmp_path):
    given = Path(os.environ.get("KVCACHE_TRACES", tmp_path)) / "conversation_trace.jsonl"
    sizes = list(PUBLISHED) if given.exists() else [100, 200, 300]
    trace = _replay.read_trace(given if given.exists() else write(given, scans(3)))
    for size in sizes:
        lru, reuse = (100 * _replay.in_cache(trace.requests, size, policy) / trace.blocks for policy in ("lru", "reuse"))
        assert reuse > lru, size
        if len(trace.requests) == 12031:
            assert abs(lru - PUBLISHED[size]) <= 0.1, size
