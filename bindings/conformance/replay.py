"""Replays a script on the model: what each operation should answer, as far as it can be said without the library.

It takes an operation's status from the script: what is refused changes nothing. Pages must be equal where its own are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import biases
import numpy as np
import reference
import stateless
from copies import CopyReplay
from model import Cache, Layer, Page, Pool, Row, Sequence, Step
from prefixes import PrefixReplay, Published
from reference import Rows, Scores
from script import FLOATS, Op, new_tensor
from selection import Selection

Expected = dict[str, Any]


@dataclass
class Floats:
    """A tensor within a tolerance; NaN: not known."""

    values: np.ndarray
    tolerance: float


@dataclass
class Exact:
    """A tensor to the bit."""

    array: np.ndarray


@dataclass
class PageList:
    """Pages of one pool, None where they were freed."""

    pool: Pool
    pages: list[Page | None]


class Replay(PrefixReplay, CopyReplay, Selection):
    def __init__(self) -> None:
        self.caches: dict[int, Cache] = {}
        self.steps: dict[int, Step] = {}
        self.bound: dict[int, Sequence] = {}
        self.tensors: dict[str, Any] = {}  # (dtype, array), or Floats
        self.layers: list[Layer] = []
        self.groups: list[dict[str, str]] = []
        self.published: list[Published] = []
        self.stored: dict[str, list[Published]] = {}
        self.directories: dict[int, tuple[str, Op]] = {}
        self.saved, self.sent = {}, {}
        self.nearly: set[str] = set()  # tensors that are known nearly
        self.adopted: set[str] = set()  # tensors that caches write to, wherever their pages are

    def run(self, op: Op) -> Expected:
        """The results that are known; of an operation that the script expects to fail, none."""
        if op.name == "cache_create":
            layers, groups, self.layers, self.groups = self.layers, self.groups, [], []
            if op.status == "OK":
                self.caches[op.integer("cache")] = Cache(layers, groups, op)
            return {}
        method: Callable[[Op], Expected | None] | None = getattr(self, "op_" + op.name, None)
        return method(op) or {} if method and op.status == "OK" else {}

    def cache(self, op: Op) -> Cache:
        return self.caches[op.integer("cache")]

    def sequences(self, op: Op, key: str = "seqs") -> list[Sequence]:
        return [self.bound[ordinal] for ordinal in op.integers(key)]

    def sequence(self, op: Op) -> Sequence:
        return self.sequences(op, "seq")[0]

    def array(self, form: str) -> np.ndarray:
        if not form.startswith("$"):
            return new_tensor(form)[1]
        kept = self.tensors[form[1:]]
        return kept.values if isinstance(kept, Floats) else kept[1]

    # ---- configuration ----

    def op_group(self, op: Op) -> None:
        self.groups.append(op.words)

    def op_layer(self, op: Op) -> None:
        self.layers.append(Layer(len(self.layers), op.integer("group"), op.words))
        for key in ("kv_storage", "k_storage", "v_storage"):
            self.adopted.add(op.words.get(key, "$")[1:])

    def op_state(self, op: Op) -> None:
        self.layers[-1].states.append((tuple(op.integers("shape")), op.words.get("dtype", "f32"), op.number("fill")))

    # ---- sequences ----

    def op_cache_clear(self, op: Op) -> None:
        self.clear_prefixes(self.cache(op))
        for sequence in list(self.cache(op).sequences):
            self.cache(op).free(sequence)

    def op_stats(self, op: Op) -> Expected:
        cache, group = self.cache(op), op.integer("group", -1)
        pools = cache.pools if group < 0 else [cache.pools[group]]
        alive = [sequence for sequence in cache.sequences if not sequence.removed]
        results = {"num_sequences": str(len(alive))}
        if "recurrent" not in cache.kinds:
            results["pages_used"] = str(sum(pool.used for pool in pools))
            if group >= 0 and cache.kinds[group] != "cross":
                results["tokens_logical"] = str(sum(sequence.length for sequence in alive))
        return results

    def op_add(self, op: Op) -> None:
        for ordinal in op.integers("seqs"):
            self.bound[ordinal] = Sequence(self.cache(op))
            self.cache(op).sequences.append(self.bound[ordinal])

    def op_remove(self, op: Op) -> None:
        for sequence in self.sequences(op):
            sequence.removed = True
            if sequence.step is None:
                self.cache(op).free(sequence)

    def op_fork(self, op: Op) -> None:
        parents = self.sequences(op, "parents")
        positions = op.integers("positions") or [-1] * len(parents)
        children = [self.cache(op).fork(parent, position) for parent, position in zip(parents, positions)]
        self.bound.update(zip(op.integers("seqs"), children))

    def op_truncate(self, op: Op) -> None:
        for sequence, length in zip(self.sequences(op), op.integers("lengths")):
            self.cache(op).truncate(sequence, length)

    def op_commit(self, op: Op) -> None:
        for sequence, leaf in zip(self.sequences(op), op.integers("leaves")):
            self.cache(op).commit(sequence, leaf)

    def op_checkpoint(self, op: Op) -> None:
        for sequence in self.sequences(op):
            if sequence.length == 0:  # works without
                continue
            sequence.checkpoints[sequence.length] = dict(sequence.committed_states)
            while len(sequence.checkpoints) > sequence.cache.max_checkpoints:
                del sequence.checkpoints[min(sequence.checkpoints)]

    def op_set_streaming(self, op: Op) -> None:
        for sequence in self.sequences(op):
            sinks = op.integer("sinks")
            sinks = max(sinks, sequence.length) if "prefix_is_sink" in op.words else sinks
            sequence.stream = (sinks, op.integer("window"))
            self.cache(op).free_behind(sequence)

    def op_set_rope(self, op: Op) -> None:
        for sequence in self.sequences(op):
            sequence.long_rope = op.words["set"] == "long"

    def op_lengths(self, op: Op) -> Expected:
        return {"lengths": ",".join(str(sequence.length) for sequence in self.sequences(op))}

    def op_encoder_lengths(self, op: Op) -> Expected:
        group = op.integer("group")
        return {"lengths": ",".join(str(sequence.encoder.get(group, 0)) for sequence in self.sequences(op))}

    def op_exclusive_pages(self, op: Op) -> Expected:
        group = op.integer("group")
        held = [sequence.pages.get(group, []) for sequence in self.sequences(op)]
        return {"pages": ",".join(str(sum(page is not None and page.owners == 1 for page in pages)) for pages in held)}

    def op_tree_nodes(self, op: Op) -> Expected:
        return {"nodes": ",".join(str(len(sequence.parents)) for sequence in self.sequences(op))}

    def op_streaming(self, op: Op) -> Expected:
        sinks, window = self.sequence(op).stream
        return {"sinks": str(sinks), "window": str(window)}

    def op_pages(self, op: Op) -> Expected:
        cache, sequence, group = self.cache(op), self.sequence(op), op.integer("group")
        if cache.kinds[group] == "recurrent" or sequence.step is not None:
            return {}
        entries = -(-sequence.visible(group) // cache.page_size)
        return {"pages": PageList(cache.pools[group], sequence.pages.get(group, [])[:entries])}

    def op_nearest(self, op: Op) -> Expected:
        cache, sequence, position = self.cache(op), self.sequence(op), op.integer("position")
        before = next(at for at in range(position, -1, -1) if cache.works_at(sequence, at))
        after = (at for at in range(position, sequence.length + 1) if cache.works_at(sequence, at))
        return {"before": str(before), "after": str(next(after, -1))}

    # ---- steps ----

    def op_begin(self, op: Op) -> None:
        cache, rows, first = self.cache(op), self.rows(op), 0
        layers = op.integers("layers")
        encoder_group = op.integer("encoder_group") if "encoder_group" in op.words else None
        step = Step(cache, rows, range(*layers) if layers else range(len(cache.layers)), encoder_group)
        cache.reserve(step)
        for row in rows:
            if row.sequence is not None:
                row.sequence.step = step
        self.steps[op.integer("step")] = step

    def rows(self, op: Op) -> list[Row]:
        rows, first = [], 0
        parents, spans = op.integers("parents"), op.integers("spans")
        for ordinal, count in zip(op.integers("seqs"), op.integers("tokens")):
            sequence = None if ordinal < 0 else self.bound[ordinal]
            tokens = slice(first, first + count)
            own = parents[tokens] if parents and parents[first : first + 1] != [-2] else []
            rows.append(Row(sequence, first, count, [] if sequence is None else own, spans[tokens]))
            rows[-1].positions = self.positions(rows[-1], "encoder_group" in op.words, op.integer("encoder_group"))
            first += count
        return rows

    @staticmethod
    def positions(row: Row, of_encoder: bool, group: int) -> list[int]:
        if row.sequence is None:
            return [0] * row.count
        if of_encoder:
            start = row.sequence.encoder.get(group, 0)
            return list(range(start, start + row.count))
        start = row.sequence.length
        if not row.parents:
            return list(range(start, start + row.count))
        depths = row.sequence.depths(row.sequence.parents + row.parents)
        return [start + depth for depth in depths[len(row.sequence.parents) :]]

    def op_info(self, op: Op) -> Expected:
        rows = self.steps[op.integer("step")].rows
        last = [row.first + row.count - 1 if row.count else -1 for row in rows]
        return {"positions": ",".join(str(at) for row in rows for at in row.positions),
                "last_rows": ",".join(map(str, last))}  # fmt: skip

    def op_end(self, op: Op) -> None:
        step = self.steps.pop(op.integer("step"))
        step.cache.close_step(step, True)

    def op_abort(self, op: Op) -> None:
        step = self.steps.pop(op.integer("step"))
        step.cache.close_step(step, False)

    def op_append(self, op: Op) -> None:
        step, layer = self.steps[op.integer("step")], self.cache(op).layers[op.integer("layer")]
        self.store(step, layer, op, [at for row in step.rows for at in row.positions])

    def turns(self, op: Op, step: Step, layer: Layer, positions: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin of each token."""
        if "rope_cos_sin" in op.words:
            table = self.array(op.words["rope_cos_sin"]).astype(np.float64)[: len(positions)]
            return table[:, 0], table[:, 1]
        if any(row.sequence is not None and row.sequence.long_rope for row in step.rows):
            raise NotImplementedError("a longrope's long set")
        return layer.rope.cos_sin(np.array(positions))

    def store(self, step: Step, layer: Layer, op: Op, positions: list[int]) -> None:
        """K and V of a step's tokens, or of rows that close, in a layer, as it stores them."""
        count, as_stored = step.taken(layer, step.rows[-1]).stop if step.rows else 0, "as_stored" in op.words
        k = self.array(op.words["k"])[:count]
        v = self.array(op.words["v"])[:count] if "v" in op.words else k[..., : layer.v_dim]
        if layer.latent and "v" in op.words:
            k = np.concatenate([v.astype(np.float64), k.astype(np.float64)], axis=-1)
        if as_stored and k.dtype.itemsize == 1:
            v = k[..., : reference.row_elements(layer.dtype, layer.latent)] if layer.latent else v
            scales = [self.array(op.words[key])[:count] if key in op.words else
                      np.broadcast_to(of, (count, layer.kv_heads))
                      for key, of in (("k_scale", layer.k_scales), ("v_scale", layer.v_scales))]  # fmt: skip
            step.new[layer.index, "k"] = reference.stored_bytes(k, layer.dtype, scales[0], layer.rotation("k"))
            step.new[layer.index, "v"] = reference.stored_bytes(v, layer.dtype, scales[1], layer.rotation("v"))
            return
        if layer.rope.mode == "on_append" and not as_stored:
            k = layer.rope.rotate(k, *self.turns(op, step, layer, positions))
        rows = reference.stored(k, layer.dtype, layer.k_scales, layer.rotation("k"))
        step.new[layer.index, "k"] = rows
        stored_latent = reference.row_elements(layer.dtype, layer.latent)
        step.new[layer.index, "v"] = Rows(rows.values[..., : layer.latent], rows.raw[..., :stored_latent], rows.scale) \
            if layer.latent or layer.keys_only else reference.stored(v, layer.dtype, layer.v_scales, layer.rotation("v"))

    def op_import(self, op: Op) -> None:
        sequence, cache = self.sequence(op), self.cache(op)
        words = {key: op.words[key].split(";") for key in ("k", "v", "k_scale", "v_scale") if key in op.words}
        count = next(len(self.array(form)) for form in words["k"] if form != "-")
        row = Row(sequence, 0, count, [], [])
        row.positions = self.positions(row, False, 0)
        step = Step(cache, [row], range(len(cache.layers)), None)
        cache.reserve(step)
        for layer in cache.layers:
            forms = {key: lists[layer.index] for key, lists in words.items() if lists[layer.index] != "-"}
            if "k" in forms:
                flags = {key: op.words[key] for key in ("as_stored",) if key in op.words}
                self.store(step, layer, Op(op.line, "append", {**forms, **flags}), row.positions)
        cache.close_step(step, True)

    def op_attend(self, op: Op) -> Expected:
        step, cache = self.steps[op.integer("step")], self.cache(op)
        layer = cache.layers[op.integer("layer")]
        if "k" in op.words:
            self.store(step, layer, op, [at for row in step.rows for at in row.positions])
        if "w_uk" in op.words or not layer.known:
            return {}
        q = self.array(op.words["q"])
        out_dtype, out = new_tensor(op.words["out"]) if op.words["out"][0] != "$" else self.tensors[op.words["out"][1:]]
        out = np.array(out, np.float64)
        lse = np.array(self.array(op.words["lse"]), np.float64) if "lse" in op.words else None
        for row in step.rows:
            if row.sequence is not None and row.count:
                row_out, row_lse = self.attend_row(op, step, layer, row, q)
                out[row.first : row.first + row.count] = row_out
                if lse is not None:
                    lse[row.first : row.first + row.count] = row_lse
        rounding = {"f32": 0.0, "f16": 2**-10, "bf16": 2**-7}
        results = {"out": Floats(out, layer.tolerance + rounding[out_dtype])}
        if lse is not None:
            results["lse"] = Floats(lse, layer.tolerance)
        for key, made in results.items():
            if op.words[key].startswith("$"):
                self.tensors[op.words[key][1:]] = made
        return results

    def attend_row(self, op: Op, step: Step, layer: Layer, row: Row, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cache, sequence = step.cache, row.sequence
        assert sequence is not None
        tokens = slice(row.first, row.first + row.count)
        cross = cache.kinds[layer.group] == "cross"
        k, v = (self.keys(step, layer, row, part) for part in ("k", "v"))
        positions, seen = self.visible(op, step, layer, row, len(k)) if not cross else (
            np.zeros(len(k), int), np.ones((row.count, len(k)), bool))  # fmt: skip
        at = np.array(row.positions)
        sinks, _, _ = cache.bounds(sequence, layer.group)
        # Of a stream, a query stands closer to the sinks than it is.
        stands = np.repeat(at[:, None], len(k), axis=1)
        if sinks and not cross:
            stands[:, positions < sinks] = np.minimum(at, sequence.stream[1] - 1)[:, None]
        keys, queries = k.values, q[tokens].astype(np.float64)[:, None]
        if layer.rope.mode == "on_read":
            keys = layer.rope.rotate(keys, *layer.rope.cos_sin(positions))
        if layer.rope.mode:
            queries = self.rotate_query(op, step, layer, row, q, stands)
        options = Scores(op.number("softmax_scale") or layer.scale, op.number("softcap"),
                         self.array(op.words["alibi"]) if "alibi" in op.words else None,
                         self.array(op.words["sinks"]) if "sinks" in op.words else None,
                         "alibi_signed" in op.words)  # fmt: skip
        given = {name: self.array(op.words[name]) for name in biases.NAMES if name in op.words}
        options.added = biases.added(given, tokens, step.rows.index(row), stands - positions, layer.heads,
                                     "rel_bias_zero" in op.words)  # fmt: skip
        for hides in (biases.listed(given, tokens, op.integer("index_block") or 1, len(k), layer.heads),
                      biases.unmasked(given, tokens, len(k), layer.heads)):  # fmt: skip
            seen = seen if hides is None else (seen if seen.ndim == 3 else seen[:, None, :]) & hides
        return reference.attention(queries, keys, v.values, seen, stands - positions, options)

    def rotate_query(self, op: Op, step: Step, layer: Layer, row: Row, q: np.ndarray, stands: np.ndarray) -> np.ndarray:
        """Queries rotated at where they stand to each key, [n, S, Hq, D], rounded to q's dtype."""
        own, rope = q[row.first : row.first + row.count], layer.rope
        if "rope_cos_sin" in op.words:
            positions = [at for of in step.rows for at in of.positions]
            cos, sin = (x[row.first : row.first + row.count] for x in self.turns(op, step, layer, positions))
            return rope.rotate(own, cos, sin).astype(q.dtype).astype(np.float64)[:, None]
        rotated = [rope.rotate(np.repeat(own[i : i + 1], len(at), axis=0), *rope.cos_sin(at))
                  for i, at in enumerate(stands)]  # fmt: skip
        return np.stack(rotated).astype(q.dtype).astype(np.float64)

    def keys(self, step: Step, layer: Layer, row: Row, part: str) -> Rows:
        """K or V of a row: committed tokens, uncommitted nodes, this step's."""
        sequence, dim = row.sequence, layer.dim if part == "k" else layer.v_dim
        assert sequence is not None
        key = (layer.source, part)
        old = sequence.rows.get(key, reference.unknown_rows(0, layer.kv_heads, dim, layer.dtype))
        if step.cache.kinds[layer.group] == "cross" or key not in step.new:
            return old
        return reference.joined([old, step.new[key][step.taken(layer, row)]])

    def visible(self, op: Op, step: Step, layer: Layer, row: Row, num_keys: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions [S] of a row's keys, and which of them its queries see, [n, S]."""
        cache, sequence = step.cache, row.sequence
        assert sequence is not None
        length, nodes = sequence.length, len(sequence.parents)
        positions = np.array([*range(length), *(length + d for d in sequence.depths(sequence.parents)), *row.positions])
        per_row = cache.per_row(layer)  # a row of several tokens is seen from its last one on
        positions = positions[per_row - 1 :: per_row][:num_keys].astype(int)
        sinks, window, chunk = cache.bounds(sequence, layer.group)
        seen = np.zeros((row.count, num_keys), bool)
        for i, at in enumerate(row.positions):
            begins_at = row.positions[0] if "step_window" in op.words else at
            begin = np.array([cache.first_seen(sequence, layer.group, begins_at)] * num_keys)
            mine = (positions >= begin) | (positions < sinks)
            if row.parents:
                mine[length:] &= np.isin(np.arange(num_keys - length), self.ancestors(sequence, row, nodes + i))
            elif "non_causal" in op.words:
                mine &= positions < (at // chunk + 1) * chunk if chunk else True
            else:
                mine &= positions <= (at if "no_spans" in op.words else self.last_seen(row, i))
            earlier = np.arange(num_keys) < length + nodes
            mine &= {"past": earlier, "self": ~earlier}.get(op.words.get("part", ""), True)
            seen[i] = mine
        return positions, seen

    @staticmethod
    def last_seen(row: Row, i: int) -> int:
        """Its own position, or the end of the span that token i is in."""
        last = i
        while row.spans and row.spans[i] > 0 and last + 1 < row.count and row.spans[last + 1] == row.spans[i]:
            last += 1
        return row.positions[last]

    @staticmethod
    def ancestors(sequence: Sequence, row: Row, node: int) -> list[int]:
        parents, path = sequence.parents + row.parents, []
        while node >= 0:
            path.append(node)
            node = parents[node]
        return path

    # ---- states, tensors ----

    def op_load_state(self, op: Op) -> Expected:
        step, key = self.steps[op.integer("step")], (op.integer("layer"), op.integer("state"))
        out, token = self.array(op.words["out"]).copy(), max(op.integer("token", -1), 0)
        rows = [(index, row) for index, row in enumerate(step.rows) if row.sequence and token < max(len(row.parents), 1)]
        for index, row in rows:
            parent, known = (row.parents or [-1])[token], len(row.sequence.parents)
            if parent < known:
                out[index] = step.cache.state_of_node(row.sequence, parent).get(key, step.cache.layers[key[0]].states[key[1]][2])
            elif parent < step.cache.max_draft_states:  # a node of this step
                out[index] = step.states[(*key, parent - known)][index]
        return {"out": Exact(out)}

    def op_store_state(self, op: Op) -> None:
        key = op.integer("layer"), op.integer("state"), op.integer("token", -1)
        self.steps[op.integer("step")].states[key] = self.array(op.words["value"])

    def op_tensor(self, op: Op) -> None:
        form = op.words["value"]
        self.tensors[op.words["name"]] = self.tensors[form[1:]] if form.startswith("$") else new_tensor(form)

    def op_merge_states(self, op: Op) -> Expected:
        outs, lses = ([self.array(form) for form in op.words[key].split(";")] for key in ("outs", "lses"))
        out, lse = reference.merged(outs, lses)
        tolerance = 2e-2 if any(form.startswith("$") for form in op.words["outs"].split(";")) else 1e-5
        results: Expected = {"out": Floats(out, tolerance)}
        if "lse" in op.words:
            results["lse"] = Floats(lse, tolerance)
        return results

    def op_export(self, op: Op) -> Expected:
        cache, sequence = self.cache(op), self.sequence(op)
        layer = cache.layers[op.integer("layer")]
        per_row, results = cache.per_row(layer), Expected()
        tokens = slice(op.integer("begin") // per_row, (op.integer("end") or sequence.length) // per_row)
        for part, scales in (("k", layer.k_scales), ("v", layer.v_scales)):
            rows = sequence.rows.get((layer.source, part))
            if rows is None or not layer.known or np.isnan(rows[tokens].values).any():
                return {}
            rows = rows[tokens]
            rotated = part == "k" and layer.rope.mode == "on_append"
            results[part] = Floats(rows.raw.astype(np.float64), 2e-2) if rotated else Exact(rows.raw)
            if "scales" in op.words and layer.dtype not in (*FLOATS, "fp8_ds_mla"):
                of_heads = np.broadcast_to(scales, (layer.kv_heads,)).astype(np.float32)
                results[part + "_scale"] = Exact(rows.scale if layer.dtype in ("i8", "u4") else of_heads)
            for key in (part, part + "_scale"):
                if key in op.words and key in results:
                    kept = results[key]
                    array = kept.array if isinstance(kept, Exact) else rows.raw
                    self.tensors[op.words[key]] = ("", np.ascontiguousarray(array))
        return results

    # ---- without a cache ----

    def op_flash_attn(self, op: Op) -> Expected:
        call = stateless.FlashAttn(op, self.array)
        self.touch(op, "k_cache", "v_cache", "rotary_cos")
        return {key: Floats(values, call.tolerance) for key, values in call.run().items()}

    def op_append_slots(self, op: Op) -> None:
        self.touch(op, "k_cache", "v_cache", "rotary_cos")
        stateless.append_slots(op, self.array)

    def touch(self, op: Op, *keys: str) -> None:
        """Tensors that rotated keys were written to are known nearly, no longer to the bit."""
        if "rotary_cos" in op.words:
            self.nearly.update(op.words[key][1:] for key in keys if op.words.get(key, "").startswith("$"))

    def op_show(self, op: Op) -> Expected:
        kept = self.tensors[op.words["name"]]
        if op.words["name"] in self.adopted:
            return {}
        if isinstance(kept, Floats):
            return {"value": kept}
        near = op.words["name"] in self.nearly
        return {"value": Floats(kept[1].astype(np.float64), 2e-2) if near else Exact(kept[1])}
