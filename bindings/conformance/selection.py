"""Selection of keys by its definition: scores in float64, and of equal ones the lowest entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from script import Op, new_tensor


class Selection:
    """What the replay of a script answers to `select`."""

    def op_select(self: Any, op: Op) -> dict[str, str]:
        step, layer = self.steps[op.integer("step")], self.cache(op).layers[op.integer("layer")]
        q = self.array(op.words["q"]).astype(np.float64)
        if layer.rope.mode:
            positions = [at for row in step.rows for at in row.positions]
            q[: len(positions)] = layer.rope.rotate(q[: len(positions)], *self.turns(op, step, layer, positions))
        dtype, out = new_tensor(op.words["out"]) if op.words["out"][0] != "$" else self.tensors[op.words["out"][1:]]
        for row in step.rows:
            if row.sequence is None or not row.count:
                continue
            tokens, k = slice(row.first, row.first + row.count), self.keys(step, layer, row, "k")
            _, seen = self.visible(op, step, layer, row, len(k))
            keys = np.repeat(k.values, layer.heads // layer.kv_heads, axis=1)
            scores = np.einsum("nhd,shd->nhs", q[tokens], keys)
            if "each_head" not in op.words:
                weights = self.array(op.words["weights"])[tokens] if "weights" in op.words else np.ones(scores.shape[:2])
                scores = np.einsum("nhs,nh->ns", np.maximum(scores, 0), weights)[:, None]
            per_row = self.cache(op).per_row(layer)
            for i, lists in enumerate(scores):
                own = len(k) - row.count + i if per_row == 1 else (row.positions[i] + 1) // per_row - 1
                for head, of_list in enumerate(lists):
                    named = self.candidates(op, row.first + i, head, len(k))
                    out[row.first + i, head] = self.chosen(op, of_list, seen[i] & named, own, out.shape[2])
        if op.words["out"].startswith("$"):
            self.tensors[op.words["out"][1:]] = (dtype, out)
        return {"out": f"{dtype}[{','.join(map(str, out.shape))}]:{out.tobytes().hex()}"}

    def candidates(self: Any, op: Op, token: int, head: int, keys: int) -> np.ndarray:
        """Which keys a list of candidates names."""
        if "candidates" not in op.words:
            return np.ones(keys, bool)
        lists = self.array(op.words["candidates"])[token]
        return np.isin(np.arange(keys) // (op.integer("candidate_block") or 1), lists[min(head, len(lists) - 1)])

    @staticmethod
    def chosen(op: Op, scores: np.ndarray, seen: np.ndarray, own: int, count: int) -> list[int]:
        """The entries with the highest scores, in ascending order, and padding. own: index of the query's key."""
        block, best = op.integer("index_block") or 1, {}
        for key in np.flatnonzero(seen):
            best[key // block] = max(best.get(key // block, -np.inf), scores[key])
        last = own // block
        always = {unit for unit in best if unit < op.integer("first_blocks") or last - op.integer("last_blocks") < unit <= last}
        order = sorted(best, key=lambda unit: (unit not in always, -best[unit], unit))
        return (sorted(order[:count]) + [-1] * count)[:count]
