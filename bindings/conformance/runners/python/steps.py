"""Operations on steps and tensors, and calls without a cache."""

from __future__ import annotations

from typing import Any

import kvcache
from script import Script, integers, operation, outputs, printed


# ---- steps ----


def parents_of_rows(s: Script) -> list[list[int] | None] | None:
    flat = s.integers("parents")
    if flat is None:
        return None
    rows, first = [], 0
    for count in s.integers("tokens") or []:
        own = flat[first : first + count]
        rows.append(None if own and all(parent == -2 for parent in own) else own)
        first += count
    return rows


def batch(s: Script) -> dict[str, Any]:
    layers = s.integers("layers")
    return {
        "sequences": s.sequences(), "lengths": s.integers("tokens") or [], "layers": layers and tuple(layers),
        "parents": parents_of_rows(s), "spans": s.integers("spans"),
        "encoder_group": s.integer("encoder_group") if s.has("encoder_group") else None,
        "graph": s.graphs[s.integer("graph")] if s.has("graph") else None,
    }  # fmt: skip


@operation
def graph_create(s: Script) -> None:
    sizes = ("max_sequences", "max_tokens", "max_pages_per_row")
    s.graphs[s.integer("graph")] = s.cache.create_graph(**{size: s.integer(size) for size in sizes})


@operation
def graph_close(s: Script) -> None:
    s.cache.destroy_graph(s.graphs[s.integer("graph")])


@operation
def can_fit(s: Script) -> None:
    s.cache.check_fit(**batch(s))


@operation
def begin(s: Script) -> None:
    s.steps[s.integer("step")] = s.cache.forward(**batch(s))


@operation
def info(s: Script) -> dict[str, str]:
    return {"positions": integers(s.step.positions), "last_rows": integers(s.step.last_rows)}


@operation
def describe(s: Script) -> None:
    s.step.describe()


@operation
def append(s: Script) -> None:
    s.step.append(s.integer("layer"), s.tensor("k"), s.tensor("v"), s.has("as_stored"),
                  **s.given("rope_cos_sin", "k_scale", "v_scale"))  # fmt: skip


@operation
def attend(s: Script) -> dict[str, str]:
    out, lse = s.tensor("out"), s.tensor("lse")
    s.step.attend(s.integer("layer"), s.tensor("q"), s.tensor("k"), s.tensor("v"), out, lse=lse,
                  softcap=s.number("softcap"), softmax_scale=s.number("softmax_scale"),
                  causal=not s.has("non_causal"), alibi_signed=s.has("alibi_signed"), part=s.words.get("part"),
                  index_block=s.integer("index_block", 1), rel_bias_zero=s.has("rel_bias_zero"),
                  spans=not s.has("no_spans"), step_window=s.has("step_window"),
                  **s.given("sinks", "rope_cos_sin", "w_uk", "w_uv", "indices", "rel_bias", "key_bias", "mask",
                            alibi_slopes="alibi"))  # fmt: skip
    return outputs(out, lse)


@operation
def select(s: Script) -> dict[str, str]:
    out = s.tensor("out")
    s.step.select(s.integer("layer"), s.tensor("q"), 0, s.tensor("weights"), out, each_head=s.has("each_head"),
                  index_block=s.integer("index_block", 1), candidate_block=s.integer("candidate_block", 1),
                  first_blocks=s.integer("first_blocks"), last_blocks=s.integer("last_blocks"),
                  **s.given("candidates", "rope_cos_sin"))  # fmt: skip
    return outputs(out, None)


@operation
def load_state(s: Script) -> dict[str, str]:
    out = s.tensor("out")
    s.step.load_state(s.integer("layer"), s.integer("state"), out, token=s.integer("token", -1))
    return outputs(out, None)


@operation
def store_state(s: Script) -> None:
    s.step.store_state(s.integer("layer"), s.integer("state"), s.tensor("value"), token=s.integer("token", -1))


NUMBERS = ("causal", "num_rows", "num_queries", "page_size", "max_seqlen_q", "max_seqlen_k", "max_pages", "num_pages",
           "num_keys")  # fmt: skip
ARRAYS = ("block_table", "cache_seqlens", "cu_seqlens_q", "cu_seqlens_k", "indptr", "indices", "last_page_len",
          "key_starts", "leftpad", "batch_rows", "sink_tokens", "hole_tokens", "slot_mapping", "positions",
          "last_rows")  # fmt: skip


def table_results(made: kvcache.Tables) -> dict[str, str]:
    arrays = {name: getattr(made, name) for name in ARRAYS}
    return {**{name: str(int(getattr(made, name))) for name in NUMBERS},
            **{name: integers(array) for name, array in arrays.items() if array is not None}}  # fmt: skip


def table_options(s: Script) -> dict[str, Any]:
    return {"slots": s.has("slots"), "pad": s.integer("pad") if s.has("pad") else None,
            "arrays": s.words["arrays"].split(",") if s.has("arrays") else None}  # fmt: skip


@operation
def tables(s: Script) -> dict[str, str]:
    part = s.words.get("part", "whole")
    return table_results(s.step.tables(s.integer("group"), part=part, **table_options(s)))


@operation
def cancel(s: Script) -> None:
    s.step.cancel()


@operation
def end(s: Script) -> None:
    s.step.end()


@operation
def abort(s: Script) -> None:
    s.step.abort()


# ---- tensors ----


@operation
def tensor(s: Script) -> None:
    s.tensors[s.words["name"]] = s.parse(s.words["value"])


@operation
def show(s: Script) -> dict[str, str]:
    return {"value": printed(s.tensors[s.words["name"]], s.has("hash"))}


@operation
def merge_states(s: Script) -> dict[str, str]:
    out, lse = s.context.merge_states(s.parse_all("outs") or [], s.parse_all("lses") or [])
    return outputs(out, lse if s.has("lse") else None)


@operation
def export(s: Script) -> dict[str, str]:
    scales = s.has("scales")
    end = s.integer("end") or None
    parts = s.cache.export(s.sequence(), s.integer("layer"), s.integer("begin"), end, scales=scales)
    results = {}
    for name, part in zip(("k", "v", "k_scale", "v_scale"), parts):
        if part is None:
            continue
        results[name] = printed(part.numpy(), not s.has("hex"))
        if s.has(name):
            s.tensors[s.words[name]] = part.numpy().copy()
    return results


@operation
def import_(s: Script) -> None:
    s.cache.import_(s.sequence(), s.parse_all("k") or [], s.parse_all("v"), s.has("as_stored"),
                    k_scales=s.parse_all("k_scale"), v_scales=s.parse_all("v_scale"))  # fmt: skip


@operation
def export_pool(s: Script) -> dict[str, str]:
    pool = s.cache.layer_pool(s.integer("layer"), s.words["pool"], s.has("writable"))  # type: ignore[arg-type]
    return {"pool": printed(pool.numpy(), True), "readonly": str(int(pool.readonly))}


@operation
def take_copies(s: Script) -> dict[str, str]:
    return {"copies": integers(s.cache.take_copies())}


# ---- without a cache ----


@operation
def flash_attn(s: Script) -> dict[str, str]:
    out = s.tensor("out")
    window = tuple(s.integer(key) if s.has(key) else -1 for key in ("window_left", "window_right"))
    arrays = s.given("q", "k_cache", "v_cache", "k", "v", "qv", "cache_seqlens", "seqused_k", "cache_batch_idx",
                     "cache_leftpad", "block_table", "cu_seqlens_q", "cu_seqlens_k_new", "rotary_cos", "rotary_sin",
                     "rotary_seqlens", "q_descale", "k_descale", "v_descale", "sinks", "indices", alibi_slopes="alibi")  # fmt: skip
    made = kvcache.flash_attn_with_kvcache(
        **arrays, out=out, softmax_scale=s.number("softmax_scale"), softcap=s.number("softcap"),
        causal=s.has("causal"), window_size=window, attention_chunk=s.integer("chunk"),
        num_splits=s.integer("num_splits"), rotary_interleaved=s.has("rotary_interleaved"),
        alibi_signed=s.has("alibi_signed"), return_softmax_lse=s.has("lse"), context=s.context)  # fmt: skip
    return outputs(out, made[1] if s.has("lse") else None)


@operation
def append_slots(s: Script) -> None:
    arrays = s.given("k", "v", "k_cache", "k_scale", "v_scale", "rotary_cos", "rotary_sin", "positions",
                     slot_mapping="slots")  # fmt: skip
    kvcache.append_slots(**arrays, v_cache=s.tensor("v_cache"), rotary_interleaved=s.has("rotary_interleaved"),
                         context=s.context)  # fmt: skip


@operation
def page_keys(s: Script) -> dict[str, str]:
    word = {key: bytes.fromhex(s.words[key]) for key in ("adapter", "salt", "parent") if s.has(key)}
    number = {key: s.integer(key) for key in ("salt_begin", "begin")}
    fingerprint = bytes.fromhex(s.words["fingerprint"]) if s.has("fingerprint") else None
    keys = kvcache.page_keys(s.integers("tokens") or [], s.integer("page_size"), fingerprint, media=s.media(), **word, **number)
    return {"keys": b"".join(keys).hex()}


@operation
def plan_create(s: Script) -> None:
    sizes = ("num_draft_tokens", "num_steps", "top_k", "max_rows", "max_tokens", "max_pages_per_row", "num_pool_pages",
             "window", "chunk")  # fmt: skip
    s.plans[s.integer("plan")] = kvcache.Plan(
        s.words["mode"], page_size=s.integer("page_size"), context=s.context, graph=s.has("graph"),
        lengths_with_new=s.has("lengths_with_new"), **table_options(s),
        **{size: s.integer(size) for size in sizes if s.has(size)})  # fmt: skip


@operation
def plan_build(s: Script) -> dict[str, str]:
    arrays = s.given("append_lengths", "rows", "block_table", "req_to_token", "encoder_lens", "tree_parents")
    return {"generation": str(s.plan.build(s.tensor("seq_lens"), rows_grew=s.has("rows_grew"), **arrays))}


@operation
def plan_tables(s: Script) -> dict[str, str]:
    made = s.plan.tables(s.integer("step"), s.words.get("part", "whole"))
    return {**table_results(made), "generation": str(made.generation)}


@operation
def plan_check(s: Script) -> None:
    s.plan.check(s.integer("generation"))


@operation
def plan_close(s: Script) -> None:
    del s.plans[s.integer("plan")]
