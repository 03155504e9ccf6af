"""Sequences that are saved and loaded, or that travel to another cache, as the model has them."""

from __future__ import annotations

import numpy as np
from model import Cache, Sequence
from reference import Rows
from script import Op


def of_heads(ranks: list[Rows], heads: slice) -> Rows:
    """Some of the heads of the rows of all ranks."""
    return Rows(*(np.concatenate([getattr(rows, name) for rows in ranks], axis=1)[:, heads]
                  for name in ("values", "raw", "scale")))  # fmt: skip


class CopyReplay:
    """The operations of Replay that copy whole sequences."""

    bound: dict[int, Sequence]
    saved: dict[str, tuple[Sequence, str]]  # by file: a copy, and its token ids
    sent: dict[int, dict[int, Sequence]]  # by the receiver's transfer and the rank of the sender

    def cache(self, op: Op) -> Cache:
        raise NotImplementedError

    def sequence(self, op: Op) -> Sequence:
        raise NotImplementedError

    def op_save(self, op: Op) -> None:
        self.saved[op.words["file"]] = (self.cache(op).copy(self.sequence(op)), op.words.get("tokens", ""))

    def op_load(self, op: Op) -> dict[str, object]:
        saved, tokens = self.saved[op.words["file"]]
        self.bound[op.integer("seqs")] = self.cache(op).load(saved)
        return {"tokens": tokens}

    def op_send(self, op: Op) -> None:
        if "of" in op.words:
            self.sent.setdefault(op.integer("of"), {})[self.cache(op).tp_rank] = self.sequence(op)

    def op_poll_transfer(self, op: Op) -> None:
        sources = self.sent.get(op.integer("transfer"))
        if "seqs" in op.words and sources is not None:
            ranks = [sources[rank] for rank in sorted(sources)]
            received = self.bound[op.integer("seqs")] = self.cache(op).load(ranks[0])
            for key, rows in received.rows.items():  # all heads, and of these the receiver's
                own = self.cache(op).layers[key[0]].kv_heads
                first = 0 if own == rows.values.shape[1] * len(ranks) else self.cache(op).tp_rank * own
                received.rows[key] = of_heads([rank.rows[key] for rank in ranks], slice(first, first + own))
