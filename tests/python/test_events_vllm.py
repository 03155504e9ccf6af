"""vLLM's own event classes read our messages. They come from the installed package, or from the file of KVC_VLLM_EVENTS.

Without either, the classes are those of vLLM 0.32 as docs/reference/events.md describes them (test_events.py)."""

import ast
import importlib.util
import os
from pathlib import Path
from typing import Any

import kvcache
import msgspec
import test_events
from test_events import MODEL, PAGE, make, remember

NAMES = ("EventBatch", "KVCacheEvent", "BlockStored", "BlockRemoved", "AllBlocksCleared", "KVEventBatch")


def vllm_source():
    """The file of vLLM's classes. Importing all of vLLM takes PyTorch, so only the classes are run."""
    if "KVC_VLLM_EVENTS" in os.environ:
        return Path(os.environ["KVC_VLLM_EVENTS"])
    package = importlib.util.find_spec("vllm")
    folder = package.submodule_search_locations[0] if package is not None and package.submodule_search_locations else None
    return Path(folder) / "distributed" / "kv_events.py" if folder else None


def classes():
    source = vllm_source()
    if source is None:
        return {"KVEventBatch": test_events.Batch, **{name: getattr(test_events, name) for name in NAMES[2:5]}}
    names = {"msgspec": msgspec, "Any": Any, "ExternalBlockHash": bytes | int}
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name in NAMES:
            exec(compile(ast.Module([node], []), str(source), "exec"), names)
    assert all(name in names for name in NAMES), f"{source} has other classes"
    return names


VLLM = classes()


def test_vllm_reads_maps():
    tokens = list(range(12))
    with make() as cache:
        remember(cache, tokens, session=3)
        remember(cache, tokens, salt=5)
        cache.drop_prefix(tokens[:8])
        keys = kvcache.page_keys(tokens, PAGE, MODEL)
        for short in (False, True):
            payload = cache.events.read_message(0, timestamp=2.5, data_parallel_rank=1, short_hashes=short).payload
            batch = msgspec.msgpack.decode(payload, type=VLLM["KVEventBatch"])
            hashes = [int.from_bytes(key[-8:], "big") for key in keys] if short else keys
            assert (batch.ts, batch.data_parallel_rank) == (2.5, 1)
            stored = batch.events[0]
            assert isinstance(stored, VLLM["BlockStored"])
            assert stored.block_hashes == hashes and stored.parent_block_hash is None and stored.token_ids == tokens
            assert (stored.block_size, stored.medium, stored.group_idx) == (PAGE, "CPU", 0)
            salted = [event for event in batch.events if isinstance(event, VLLM["BlockStored"]) and event.extra_keys]
            assert {event.group_idx for event in salted} == {0, 1}
            assert all(hash not in hashes for event in salted for hash in event.block_hashes)
            removed = [event for event in batch.events if isinstance(event, VLLM["BlockRemoved"])]
            assert [(event.block_hashes, event.group_idx) for event in removed] == [(hashes[:0:-1], 0), (hashes[:0:-1], 1)]
        snapshot = msgspec.msgpack.decode(cache.events.snapshot_message(timestamp=0).payload, type=VLLM["KVEventBatch"])
        assert isinstance(snapshot.events[0], VLLM["AllBlocksCleared"])
        assert all(isinstance(event, VLLM["BlockStored"]) for event in snapshot.events[1:])


def test_vllm_reads_pages_of_tiers():
    tokens = list(range(8))
    layers = [kvcache.Layer(q_heads=1, kv_heads=1, head_dim=8)]
    with kvcache.Cache(layers, page_size=PAGE, capacity_tokens=64, prefix_index=True, fingerprint=MODEL,
                       events_capacity=100, events_tier_pages=100) as cache:  # fmt: skip
        cache.add_host_tier(1 << 20, medium="STORAGE")
        test_events.store(cache, tokens)
        keys = kvcache.page_keys(tokens, PAGE, MODEL)
        for arrays in (False, True):
            payload = cache.events.read_message(0, timestamp=1.0, arrays=arrays).payload
            if arrays:  # older consumers
                events = msgspec.msgpack.decode(payload)[1]
                assert [(event[1], event[6]) for event in events] == [(keys, "CPU"), (keys, "STORAGE")]
                continue
            pool, disk = msgspec.msgpack.decode(payload, type=VLLM["KVEventBatch"]).events
            assert (pool.medium, disk.medium, disk.locality) == ("CPU", "STORAGE", "LOCAL")
            assert (disk.block_hashes, disk.token_ids, disk.parent_block_hash) == (keys, tokens, None)


def test_what_vllm_writes_is_what_we_write():
    """vLLM's encoder and ours agree on every field of an event, so that a consumer of one reads the other."""
    tokens = list(range(8))
    with make() as cache:
        remember(cache, tokens, session=3)
        ours = msgspec.msgpack.decode(cache.events.read_message(0, timestamp=1.0).payload)
    keys = kvcache.page_keys(tokens, PAGE, MODEL)
    theirs = VLLM["BlockStored"](block_hashes=keys, parent_block_hash=None, token_ids=tokens, block_size=PAGE, lora_id=None,
                                 medium="CPU", lora_name=None, group_idx=0, kv_cache_spec_kind="full_attention",
                                 locality="LOCAL", session_id="3")  # fmt: skip
    written = msgspec.msgpack.decode(msgspec.msgpack.encode(theirs))
    assert ours[1][0] == {key: value for key, value in written.items() if value is not None or key in ours[1][0]}
