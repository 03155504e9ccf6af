"""The model of calls over the script's own tensors: flash_attn and append_slots, from the definitions of kvcache.h."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import reference
from reference import Rope, Scores
from script import DTYPES, Op

NAMES = {dtype: name for name, dtype in DTYPES.items()}


class FlashAttn:
    """One call. `array` gives the tensor of a form; tensors that are written are changed in place."""

    def __init__(self, op: Op, array: Callable[[str], np.ndarray]) -> None:
        self.op = op
        self.t: dict[str, np.ndarray] = {
            key: array(form) for key, form in op.words.items() if "[" in form or form.startswith("$")}  # fmt: skip
        q = self.t["q"]
        self.packed = "cu_seqlens_q" in self.t
        self.rows = len(self.t["cu_seqlens_q"]) - 1 if self.packed else len(q)

    def index(self, key: str, row: int, absent: int) -> int:
        return int(np.broadcast_to(self.t[key], (self.rows,))[row]) if key in self.t else absent

    def span(self, key: str, row: int, whole: np.ndarray) -> np.ndarray:
        """Row's part of a tensor: of `key` (cu_seqlens), or of the leading dim."""
        return whole[self.t[key][row] : self.t[key][row + 1]] if key in self.t else whole[row]

    def slots(self, row: int, name: str) -> list[tuple[int, int]]:
        """Where the row's keys lie in a cache tensor, by its first two dims."""
        cache = self.t[name]
        if "indices" in self.t:  # of all pages: the lists name slots
            return [(page, at) for page in range(len(cache)) for at in range(cache.shape[1])]
        own = self.index("cache_batch_idx", row, row)
        if "block_table" not in self.t:
            return [(own, at) for at in range(cache.shape[1])]
        return [(int(page), at) for page in self.t["block_table"][own] for at in range(cache.shape[1])]

    def descale(self, key: str, row: int, heads: int) -> np.ndarray:
        return self.t[key][row].astype(np.float32) if key in self.t else np.ones(heads, np.float32)

    def cached(self, row: int) -> int:
        length = self.index("cache_seqlens", row, -1)
        length = self.index("seqused_k", row, length)
        return len(self.slots(row, "k_cache")) if length < 0 else length

    def turn(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        if "rotary_cos" not in self.t:
            return np.asarray(x, np.float64)
        cos, sin = (self.t[key].astype(np.float64)[positions] for key in ("rotary_cos", "rotary_sin"))
        rope = Rope("", 2 * cos.shape[1], 0, "rotary_interleaved" in self.op.words, 1.0, 1.0, 1.0)
        return rope.rotate(x, cos, sin).astype(x.dtype).astype(np.float64)

    def append(self, row: int) -> int:
        """Stores the row's new tokens; how many."""
        if "k" not in self.t:
            return 0
        first, begin = self.cached(row), self.index("rotary_seqlens", row, self.cached(row))
        count = 0
        for name, new in (("k_cache", "k"), ("v_cache", "v")):
            x = self.span("cu_seqlens_k_new", row, self.t[new])
            count = len(x)
            x = self.turn(x, begin + np.arange(count)) if new == "k" else x
            cache, scales = self.t[name], self.descale(new + "_descale", row, x.shape[1])
            raw = x if x.dtype == cache.dtype else reference.stored(x, NAMES[cache.dtype], scales).raw
            for at, values in zip(self.slots(row, name)[first : first + count], raw):
                cache[at] = values
        return count

    def attend(self, row: int, new: int) -> tuple[np.ndarray, np.ndarray]:
        op, words = self.op, self.op.words
        padding, total = self.index("cache_leftpad", row, 0), self.cached(row) + new
        keys, values = (
            np.stack([self.t[name][at].astype(np.float64) for at in self.slots(row, name)[padding:total]])
            * self.descale(key, row, self.t[name].shape[2])[None, :, None]
            for name, key in (("k_cache", "k_descale"), ("v_cache", "v_descale")))  # fmt: skip
        q = self.span("cu_seqlens_q", row, self.t["q"])
        count, seen_keys = len(q), len(keys)
        at = seen_keys - count + np.arange(count)
        begin = self.index("rotary_seqlens", row, self.cached(row))
        moves = "causal" in words or "window_left" in words or "window_right" in words
        q = self.turn(q, begin + np.arange(count) * moves)
        if "q_descale" in self.t:
            q = q * np.repeat(self.t["q_descale"][row], q.shape[1] // keys.shape[1])[None, :, None]
        scale = op.number("softmax_scale") or (q.shape[-1] + (values.shape[-1] if "qv" in self.t else 0)) ** -0.5
        if "qv" in self.t:
            q = np.concatenate([q, self.span("cu_seqlens_q", row, self.t["qv"]).astype(np.float64)], axis=-1)
            keys = np.concatenate([keys, values], axis=-1)
        seen = self.seen(at, np.arange(seen_keys))
        if "indices" in self.t:
            lists = self.span("cu_seqlens_q", row, self.t["indices"])
            named = (lists[..., None] == np.arange(seen_keys)).any(axis=2)
            seen = np.repeat(named, q.shape[1] // named.shape[1], axis=1)
        slopes = self.t.get("alibi")
        options = Scores(scale, op.number("softcap"), slopes[row] if slopes is not None and slopes.ndim == 2 else slopes,
                         self.t.get("sinks"), "alibi_signed" in words)  # fmt: skip
        distance = at[:, None] - np.arange(seen_keys)[None, :]
        return reference.attention(q[:, None], keys, values, seen, distance, options)

    def seen(self, at: np.ndarray, keys: np.ndarray) -> np.ndarray:
        words, at = self.op.words, at[:, None]
        right = 0 if "causal" in words else int(words["window_right"]) if "window_right" in words else None
        seen = np.ones((len(at), len(keys)), bool)
        if right is not None:
            seen &= keys <= at + right
        if "window_left" in words:
            seen &= keys >= at - int(words["window_left"])
        if "chunk" in words:
            seen &= keys // int(words["chunk"]) == at // int(words["chunk"])
        return seen

    def run(self) -> dict[str, np.ndarray]:
        out = np.array(self.t["out"], np.float64)
        lse = np.array(self.t["lse"], np.float64) if "lse" in self.t else None
        appended = [self.append(row) for row in range(self.rows)]
        for row, new in enumerate(appended):
            row_out, row_lse = self.attend(row, new)
            self.span("cu_seqlens_q", row, out)[...] = row_out
            if lse is None:
                continue
            if self.packed:
                lse[:, self.t["cu_seqlens_q"][row] : self.t["cu_seqlens_q"][row + 1]] = row_lse.T
            else:
                lse[row] = row_lse.T
        return {"out": out} if lse is None else {"out": out, "lse": lse}

    @property
    def tolerance(self) -> float:
        exact = all(self.t[key].dtype == np.float32 for key in ("q", "k_cache", "out"))
        return 1e-4 if exact else 2e-2


def append_slots(op: Op, array: Callable[[str], np.ndarray]) -> None:
    """Stores rows at their slots; rotated ones only nearly."""
    t: dict[str, Any] = {key: array(form) for key, form in op.words.items() if "[" in form or form.startswith("$")}
    k, v, k_cache = t["k"], t["v"], t["k_cache"]
    if "rotary_cos" in t:
        cos, sin = (t[key].astype(np.float64)[t["positions"]] for key in ("rotary_cos", "rotary_sin"))
        k = Rope("", 2 * cos.shape[1], 0, "rotary_interleaved" in op.words, 1, 1.0, 1.0).rotate(k, cos, sin)
    pairs = [(k_cache, k, t.get("k_scale")), (t.get("v_cache"), v, t.get("v_scale"))]
    if "v_cache" not in t:
        pairs = [(k_cache, np.concatenate([v.astype(np.float64), k.astype(np.float64)], axis=-1), t.get("k_scale"))]
    for cache, x, scale in pairs:
        scales = np.broadcast_to(np.ones(1) if scale is None else scale, (x.shape[1],))
        raw = x if x.dtype == cache.dtype else reference.stored(x, NAMES[cache.dtype], scales).raw
        for slot, values in zip(t["slots"], raw):
            if slot >= 0:
                cache[slot // cache.shape[1], slot % cache.shape[1]] = values


