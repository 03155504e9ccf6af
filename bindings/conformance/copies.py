"""Sequences that are saved and loaded, or that travel to another cache, as the model has them."""

from __future__ import annotations

from model import Cache, Sequence
from script import Op


class CopyReplay:
    """The operations of Replay that copy whole sequences."""

    bound: dict[int, Sequence]
    saved: dict[str, tuple[Sequence, str]]  # by file: a copy, and its token ids
    sent: dict[int, Sequence]  # by the receiver's transfer

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
            self.sent[op.integer("of")] = self.sequence(op)

    def op_poll_transfer(self, op: Op) -> None:
        source = self.sent.get(op.integer("transfer"))
        if "seqs" in op.words and source is not None:
            self.bound[op.integer("seqs")] = self.cache(op).load(source)
