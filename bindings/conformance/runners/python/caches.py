"""Operations on contexts, configurations, caches and sequences."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import kvcache
from script import Script, integers, operation

LAYER_DTYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "i8": "int8", "u4": "uint4", "e2m1": "float4_e2m1fn"}


# ---- library, context, configuration ----


@operation
def version(s: Script) -> dict[str, str]:
    assert kvcache.build_info()["version"] == kvcache.version()
    return {"version": kvcache.version()}


@operation
def context_create(s: Script) -> None:
    made = kvcache.Context(threads=s.integer("threads"), simd=s.words.get("simd"))
    s.contexts[s.integer("context")] = made


@operation
def context_describe(s: Script) -> None:
    s.context.describe()


@operation
def context_check(s: Script) -> None:
    s.context.check()


@operation
def context_close(s: Script) -> None:
    del s.contexts[s.integer("context")]


@operation
def group(s: Script) -> None:
    pages, row = s.integer("pages"), s.words.get("row", "kv")
    if row == "state":
        s.groups.append(kvcache.Recurrent(pages))
        return
    visibilities = {
        "all": lambda: kvcache.Full(pages, row, s.integer("tokens_per_row")),
        "window": lambda: kvcache.Sliding(s.integer("window"), pages, row),
        "chunk": lambda: kvcache.Chunked(s.integer("chunk"), pages, row), "encoder": lambda: kvcache.Cross(pages, row),
    }  # fmt: skip
    s.groups.append(visibilities[s.words.get("visibility", "all")]())


@operation
def layer(s: Script) -> None:
    if s.has("recurrent"):
        s.layers.append({"group": s.integer("group"), "states": []})
        return
    dtype = s.words.get("dtype", "f32")
    fields: dict[str, Any] = {
        "group": s.integer("group"), "q_heads": s.integer("q_heads", 1), "kv_heads": s.integer("kv_heads", 1),
        "head_dim": s.integer("head_dim"), "v_head_dim": s.integer("v_head_dim"),
        "dtype": LAYER_DTYPES.get(dtype, dtype), "rope": s.words.get("rope"), "rope_dim": s.integer("rope_dim"),
        "rope_offset": s.integer("rope_offset"), "rope_interleaved": s.has("rope_interleaved"),
        "rope_theta": s.number("rope_theta"), "scale": s.number("softmax_scale") or None,
        "k_scales": s.numbers("k_scales"), "v_scales": s.numbers("v_scales"), "latent_dim": s.integer("latent_dim"), "total_kv_heads": s.integer("total_kv_heads"),
        "keys_only": s.has("keys_only"), "row_format": s.words.get("row_format"),
        "kv_layer": s.integer("kv_layer") if s.has("kv_layer") else None,
        **s.given("kv_storage", "k_storage", "v_storage"),
    }  # fmt: skip
    if s.has("scaling"):
        fields["rope_scaling"] = kvcache.RopeScaling(
            s.words["scaling"], factor=s.number("factor"), original_max_position=s.integer("original"),
            low_freq_factor=s.number("low_freq"), high_freq_factor=s.number("high_freq"),
            beta_fast=s.number("beta_fast"), beta_slow=s.number("beta_slow"),
            attention_factor=s.number("attention_factor"), short_factors=s.numbers("short") or (),
            long_factors=s.numbers("long") or ())  # fmt: skip
    s.layers.append(fields)


@operation
def state(s: Script) -> None:
    s.layers[-1]["states"].append(kvcache.StateTensor(s.integers("shape") or [], s.words.get("dtype", "f32"),
                                                      s.number("fill")))


def config(s: Script) -> dict[str, Any]:
    sizes = ("page_size", "capacity_tokens", "capacity_pages", "capacity_bytes", "max_sequences", "max_batch_tokens",
             "max_open_forwards", "max_tree_nodes", "max_checkpoints", "max_draft_states", "tp_size", "tp_rank", "rollback_tokens", "prefix_pages", "prefix_checkpoints", "events_capacity", "events_tier_pages")  # fmt: skip
    return {
        "layers": [kvcache.RecurrentLayer(**f) if "states" in f else kvcache.Layer(**f) for f in s.layers],
        "groups": s.groups or None, "context": s.context, "streaming": s.has("streaming"),
        "deterministic": s.has("deterministic"), "prefix_index": s.has("prefix_index"),
        "prefix_policy": s.words.get("prefix_policy", "reuse"), "zero_on_free": s.has("zero_on_free"), "share_prefixes": s.words.get("sharing", "auto"),
        "fingerprint": bytes.fromhex(s.words["fingerprint"]) if s.has("fingerprint") else None,
        "storage": s.words.get("storage", "own"), **{size: s.integer(size) for size in sizes if s.has(size)},
    }  # fmt: skip


@operation
def estimate(s: Script) -> dict[str, str]:
    whole = kvcache.estimate(**config(s))
    index = s.integer("group", -1)
    of = whole if index < 0 else whole.groups[index]
    fields = ("num_pages", "page_bytes", "token_bytes", "storage_bytes")
    return {field: str(getattr(of, field, 0)) for field in fields}


@operation
def cache_create(s: Script) -> None:
    try:
        s.caches[s.integer("cache")] = kvcache.Cache(**config(s))
    finally:
        s.layers, s.groups = [], []


# ---- cache and sequences ----

PREFIX_COUNTS = ("pages_published", "pages_idle", "pages_evicted", "prefix_attaches", "prefix_tokens")


@operation
def cache_close(s: Script) -> None:
    s.cache.close()


@operation
def stats(s: Script) -> dict[str, str]:
    return counts(s, of_prefixes=False)


@operation
def prefix_stats(s: Script) -> dict[str, str]:
    return counts(s, of_prefixes=True)


def counts(s: Script, of_prefixes: bool) -> dict[str, str]:
    fields = asdict(s.cache.stats(s.integer("group", -1))).items()
    return {key: str(value) for key, value in fields if (key in PREFIX_COUNTS) == of_prefixes}


@operation
def cache_describe(s: Script) -> None:
    s.cache.describe()


@operation
def digest(s: Script) -> dict[str, str]:
    return {"digest": f"{s.cache.digest():016x}"}


@operation
def add(s: Script) -> None:
    s.bind(s.cache.add(len(s.integers("seqs") or [])))


@operation
def fork(s: Script) -> None:
    s.bind(s.cache.fork(s.sequences("parents"), s.integers("positions")))


@operation
def pages(s: Script) -> dict[str, str]:
    return {"pages": integers(s.cache.pages(s.sequence(), s.integer("group")))}


@operation
def nearest(s: Script) -> dict[str, str]:
    before, after = s.cache.nearest_position(s.sequence(), s.integer("position"))
    return {"before": str(before), "after": str(-1 if after is None else after)}


@operation
def set_streaming(s: Script) -> None:
    s.cache.set_streaming(s.sequences(), sinks=s.integer("sinks"), window=s.integer("window"),
                          prefix_is_sink=s.has("prefix_is_sink"))  # fmt: skip


@operation
def streaming(s: Script) -> dict[str, str]:
    sinks, window = s.cache.streaming(s.sequence())
    return {"sinks": str(sinks), "window": str(window)}


@operation
def set_rope(s: Script) -> None:
    s.cache.set_rope(s.sequences(), s.words["set"])  # type: ignore[arg-type]


@operation
def commit(s: Script) -> None:
    s.cache.commit(s.sequences(), s.integers("leaves") or [])
