"""The runner of Python: makes the calls of scripts through the kvcache package. README.md has the format.

    python3 python_runner.py SCRIPT...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import kvcache
import ml_dtypes
import numpy as np

DTYPES = {
    "f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2), "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LAYER_DTYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "i8": "int8"}
NEVER_BOUND = 1 << 60
OPERATIONS: dict[str, Callable[[Script], dict[str, str] | None]] = {}


def operation(function: Callable[[Script], dict[str, str] | None]) -> Callable[[Script], dict[str, str] | None]:
    OPERATIONS[function.__name__.strip("_")] = function
    return function


def generated_bytes(seed: int, count: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = (np.uint64(seed << 32) + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(56)).astype(np.uint8)


def new_tensor(form: str) -> np.ndarray:
    name, _, rest = form.partition("[")
    dims, _, contents = rest.partition("]")
    shape = tuple(int(dim) for dim in dims.split(",")) if dims else ()
    dtype, count = DTYPES[name], int(np.prod(shape, dtype=np.int64))
    if contents.startswith("@"):
        values = generated_bytes(int(contents[1:]), count)
        floats = dtype.itemsize > 1
        values = ((values.astype(np.float32) - 128) / 128).astype(dtype) if floats else (values & 0xBF).view(dtype)
    elif contents.startswith(":"):
        values = np.array([float(item) for item in contents[1:].split(",") if item]).astype(dtype)
    else:
        values = np.zeros(count, dtype)
    return values.reshape(shape)


def printed(array: Any, as_hash: bool) -> str:
    array = np.asarray(array)
    contents = np.ascontiguousarray(array).tobytes()
    head = f"{NAMES[array.dtype]}[{','.join(map(str, array.shape))}]"
    if not as_hash:
        return f"{head}:{contents.hex()}"
    value = 0xCBF29CE484222325
    for byte in contents:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{head}#{value:016x}"


def integers(values: Any) -> str:
    return ",".join(str(int(value)) for value in np.asarray(values).ravel())


class Script:
    """One script: what it has named, and the words of the line that runs."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.contexts: dict[int, kvcache.Context] = {}
        self.caches: dict[int, kvcache.Cache] = {}
        self.steps: dict[int, kvcache.Step] = {}
        self.plans: dict[int, kvcache.Plan] = {}
        self.bound: dict[int, int] = {}
        self.tensors: dict[str, np.ndarray] = {}
        self.layers: list[dict[str, Any]] = []
        self.groups: list[Any] = []

    def close(self) -> None:
        for step in self.steps.values():
            if not step.closed:
                step.abort()
        self.plans.clear()
        for cache in self.caches.values():
            cache.close()

    def has(self, key: str) -> bool:
        return key in self.words

    def integer(self, key: str, absent: int = 0) -> int:
        return int(self.words.get(key, absent))

    def number(self, key: str) -> float:
        return float(self.words.get(key, 0))

    def integers(self, key: str) -> list[int] | None:
        return [int(item) for item in self.words[key].split(",") if item] if key in self.words else None

    def numbers(self, key: str) -> list[float] | None:
        return [float(item) for item in self.words[key].split(",")] if key in self.words else None

    def sequences(self, key: str = "seqs") -> list[int]:
        return [0 if n == -1 else self.bound.get(n, NEVER_BOUND + n) for n in self.integers(key) or []]

    def sequence(self) -> int:
        return self.sequences("seq")[0]

    def bind(self, ids: list[int]) -> None:
        self.bound.update(zip(self.integers("seqs") or [], ids))

    def tensor(self, key: str) -> np.ndarray | None:
        return self.parse(self.words[key]) if key in self.words else None

    def parse(self, form: str) -> np.ndarray | None:
        if form == "-":
            return None
        return self.tensors[form[1:]] if form.startswith("$") else new_tensor(form)

    def parse_all(self, key: str) -> list[np.ndarray | None] | None:
        return [self.parse(form) for form in self.words[key].split(";")] if key in self.words else None

    def given(self, *keys: str, **renamed: str) -> dict[str, Any]:
        """Tensors that are there, by the name of the argument: tensor=, or argument=key."""
        return {to: self.tensor(key) for to, key in [*((key, key) for key in keys), *renamed.items()] if self.has(key)}

    @property
    def context(self) -> kvcache.Context:
        return self.contexts[self.integer("context")]

    @property
    def cache(self) -> kvcache.Cache:
        return self.caches[self.integer("cache")]

    @property
    def step(self) -> kvcache.Step:
        return self.steps[self.integer("step")]

    @property
    def plan(self) -> kvcache.Plan:
        return self.plans[self.integer("plan")]


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
def context_close(s: Script) -> None:
    del s.contexts[s.integer("context")]


@operation
def group(s: Script) -> None:
    pages = s.integer("pages")
    kinds = {
        "full": lambda: kvcache.Full(pages), "sliding": lambda: kvcache.Sliding(s.integer("window"), pages),
        "chunked": lambda: kvcache.Chunked(s.integer("chunk"), pages), "mla": lambda: kvcache.MLA(pages),
        "cross": lambda: kvcache.Cross(pages), "recurrent": lambda: kvcache.Recurrent(pages),
    }  # fmt: skip
    s.groups.append(kinds[s.words["kind"]]())


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
        "k_scales": s.numbers("k_scales"), "v_scales": s.numbers("v_scales"), "latent_dim": s.integer("latent_dim"),
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
    s.layers[-1]["states"].append(kvcache.StateTensor(s.integers("shape") or [], s.words.get("dtype", "f32")))


def config(s: Script) -> dict[str, Any]:
    sizes = ("page_size", "capacity_tokens", "capacity_pages", "capacity_bytes", "max_sequences", "max_batch_tokens",
             "max_open_forwards", "max_tree_nodes", "max_checkpoints", "rollback_tokens")  # fmt: skip
    return {
        "layers": [kvcache.RecurrentLayer(**f) if "states" in f else kvcache.Layer(**f) for f in s.layers],
        "groups": s.groups or None, "context": s.context, "streaming": s.has("streaming"),
        "deterministic": s.has("deterministic"), "share_prefixes": s.words.get("sharing", "auto"),
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


@operation
def cache_clear(s: Script) -> None:
    s.cache.clear()


@operation
def cache_close(s: Script) -> None:
    s.cache.close()


@operation
def check_invariants(s: Script) -> None:
    s.cache.check_invariants()


@operation
def stats(s: Script) -> dict[str, str]:
    return {key: str(value) for key, value in asdict(s.cache.stats(s.integer("group", -1))).items()}


@operation
def digest(s: Script) -> dict[str, str]:
    return {"digest": f"{s.cache.digest():016x}"}


@operation
def add(s: Script) -> None:
    s.bind(s.cache.add(len(s.integers("seqs") or [])))


@operation
def remove(s: Script) -> None:
    s.cache.remove(s.sequences())


@operation
def fork(s: Script) -> None:
    s.bind(s.cache.fork(s.sequences("parents"), s.integers("positions")))


@operation
def truncate(s: Script) -> None:
    s.cache.truncate(s.sequences(), s.integers("lengths") or [])


@operation
def lengths(s: Script) -> dict[str, str]:
    return {"lengths": integers(s.cache.lengths(s.sequences()))}


@operation
def pages(s: Script) -> dict[str, str]:
    return {"pages": integers(s.cache.pages(s.sequence(), s.integer("group")))}


@operation
def nearest(s: Script) -> dict[str, str]:
    before, after = s.cache.nearest_position(s.sequence(), s.integer("position"))
    return {"before": str(before), "after": str(-1 if after is None else after)}


@operation
def max_append(s: Script) -> dict[str, str]:
    return {"tokens": integers(s.cache.max_append(s.sequences()))}


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
def checkpoint(s: Script) -> None:
    s.cache.checkpoint(s.sequences())


@operation
def encoder_lengths(s: Script) -> dict[str, str]:
    return {"lengths": integers(s.cache.encoder_lengths(s.sequences(), s.integer("group")))}


@operation
def commit(s: Script) -> None:
    s.cache.commit(s.sequences(), s.integers("leaves") or [])


@operation
def tree_nodes(s: Script) -> dict[str, str]:
    return {"nodes": integers(s.cache.tree_nodes(s.sequences()))}


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
    }  # fmt: skip


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
                  causal=not s.has("non_causal"), part=s.words.get("part"),
                  **s.given("sinks", "rope_cos_sin", "w_uk", "w_uv", alibi_slopes="alibi"))  # fmt: skip
    return outputs(out, lse)


def outputs(out: Any, lse: Any) -> dict[str, str]:
    return {name: printed(array, False) for name, array in (("out", out), ("lse", lse)) if array is not None}


@operation
def load_state(s: Script) -> dict[str, str]:
    out = s.tensor("out")
    s.step.load_state(s.integer("layer"), s.integer("state"), out)
    return outputs(out, None)


@operation
def store_state(s: Script) -> None:
    s.step.store_state(s.integer("layer"), s.integer("state"), s.tensor("value"))


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
                     "rotary_seqlens", "q_descale", "k_descale", "v_descale", "sinks", alibi_slopes="alibi")  # fmt: skip
    made = kvcache.flash_attn_with_kvcache(
        **arrays, out=out, softmax_scale=s.number("softmax_scale"), softcap=s.number("softcap"),
        causal=s.has("causal"), window_size=window, attention_chunk=s.integer("chunk"),
        num_splits=s.integer("num_splits"), rotary_interleaved=s.has("rotary_interleaved"),
        return_softmax_lse=s.has("lse"), context=s.context)  # fmt: skip
    return outputs(out, made[1] if s.has("lse") else None)


@operation
def append_slots(s: Script) -> None:
    arrays = s.given("k", "v", "k_cache", "k_scale", "v_scale", "rotary_cos", "rotary_sin", "positions",
                     slot_mapping="slots")  # fmt: skip
    kvcache.append_slots(**arrays, v_cache=s.tensor("v_cache"), rotary_interleaved=s.has("rotary_interleaved"),
                         context=s.context)  # fmt: skip


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


# ---- scripts ----


def run_line(script: Script, line: str) -> str:
    name, *words = line.split(" ")
    script.words = dict(word.split("=", 1) for word in words)
    run = OPERATIONS.get(name.removeprefix("?"))
    if run is None:
        return f"FAILED unknown operation {name}"
    try:
        results = run(script)
    except kvcache.Error as error:
        index, at_group = (-1 if number is None else number for number in (error.index, error.group))
        return (f"{error.status_name} index={index} required={error.required} available={error.available} "
                f"group={at_group}")  # fmt: skip
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver is told
        return f"FAILED {type(error).__name__}: {error}".replace("\n", " ")
    return " ".join(["OK", *(f"{key}={value}" for key, value in (results or {}).items())])


def main() -> None:
    for path in sys.argv[1:]:
        print("script", os.path.basename(path))
        script = Script()
        with open(path, encoding="ascii") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\r\n")
                if line and line[0] not in "#=":
                    print(number, run_line(script, line), flush=True)
        script.close()


if __name__ == "__main__":
    main()
