"""The prefix index on the model. Scripts publish whole pages of full groups, and nothing is evicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model import Cache, Sequence
from script import Op

Expected = dict[str, Any]


Token = tuple[int, str, tuple[int, int, str] | None]  # its id, the adapter, and the media span that has it


def prompt(op: Op) -> list[Token]:
    adapter, hashes = op.words.get("adapter", ""), op.words.get("media_hashes", "")
    places = zip(op.integers("media_begins"), op.integers("media_tokens"))
    spans = [(begin, n, hashes[64 * i : 64 * i + 64]) for i, (begin, n) in enumerate(places)]
    return [(token, adapter, next((s for s in spans if s[0] <= at < s[0] + s[1]), None))
            for at, token in enumerate(op.integers("prompt"))]  # fmt: skip


def common(a: list[Token], b: list[Token]) -> int:
    """How many first elements are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


@dataclass(eq=False)
class Published:
    """What a publish added to the prefix index, held by a sequence that the script does not see."""

    tokens: list[Token]
    salt: int
    session: int
    sequence: Sequence

    def cut(self, length: int) -> None:
        self.sequence.cache.truncate(self.sequence, length)
        self.tokens = self.tokens[:length]


class PrefixReplay:
    """The operations of the prefix index."""

    published: list[Published]
    stored: dict[str, list[Published]]  # by directory: copies of sequences
    directories: dict[int, tuple[str, Op]]  # of caches by ordinal, and how they store there
    bound: dict[int, Sequence]

    def cache(self, op: Op) -> Cache:
        raise NotImplementedError

    def sequence(self, op: Op) -> Sequence:
        raise NotImplementedError

    def clear_prefixes(self, cache: Cache) -> None:
        for entry in self.published:
            if entry.sequence.cache is cache:
                entry.cut(0)

    def op_publish_prefix(self, op: Op) -> Expected:
        tokens, cache = prompt(op), self.cache(op)
        hidden = cache.fork(self.sequence(op), len(tokens))
        cache.sequences.remove(hidden)
        self.published.append(Published(tokens, op.integer("salt"), op.integer("session"), hidden))
        self.store_prefix(op, tokens)
        return {"known": str(len(tokens))}

    def found(self, op: Op) -> tuple[int, Sequence | None]:
        tokens, best = prompt(op), (0, None)
        for entry in self.published:
            if entry.salt == op.integer("salt") and entry.sequence.cache is self.cache(op):
                same = min(common(entry.tokens, tokens), len(tokens) - ("allow_all" not in op.words))
                best = max(best, (same, entry.sequence), key=lambda each: each[0])
        return best

    def op_match_prefix(self, op: Op) -> Expected:
        tokens = self.found(op)[0]
        return {"tokens": str(tokens), "copied": str(tokens % self.cache(op).page_size)}

    def op_attach_prefix(self, op: Op) -> Expected:
        tokens, hidden = self.found(op)
        cache = self.cache(op)
        child = cache.fork(hidden, tokens) if hidden else Sequence(cache)
        if hidden is None:
            cache.sequences.append(child)
        self.bound[op.integers("seqs")[0]] = child
        return {"tokens": str(tokens), "copied": str(tokens % cache.page_size)}

    # ---- tiers: a folder for each cache, which has all whole pages that were published with it ----

    def op_add_tier(self, op: Op) -> None:
        self.directories[op.integer("cache")] = (op.words.get("directory", f"memory of {op.integer('cache')}"), op)

    def store_prefix(self, op: Op, tokens: list[Token]) -> None:
        cache, (directory, tier) = self.cache(op), self.directories.get(op.integer("cache"), ("", op))
        whole = len(tokens) // cache.page_size * cache.page_size
        if not directory or "keep_private" in op.words or "store" in tier.words or len(tokens) < tier.integer("min_tokens"):
            return
        kept = cache.fork(self.sequence(op), whole)
        copy = Published(tokens[:whole], op.integer("salt"), 0, cache.copy(kept))
        self.stored.setdefault(directory, []).append(copy)
        cache.free(kept)

    def op_load_prefix(self, op: Op) -> Expected:
        cache, tokens, found = self.cache(op), prompt(op), self.found(op)[0]
        end, best = 0, None
        for entry in self.stored.get(self.directories[op.integer("cache")][0], []):
            same = common(entry.tokens, tokens) // cache.page_size * cache.page_size
            if entry.salt == op.integer("salt") and same > end:
                end, best = same, entry
        if "cancel" in op.words:
            return {}  # the script looks at none of it
        loaded = max(0, end - found // cache.page_size * cache.page_size)
        if best is not None and loaded > 0:
            hidden = cache.load(best.sequence)
            cache.sequences.remove(hidden)
            cache.truncate(hidden, end)
            self.published.append(Published(tokens[:end], op.integer("salt"), op.integer("session"), hidden))
        return {"tokens": str(found), "loaded": str(loaded)}

    # The model loads at once. Scripts look at nothing that would show the difference.
    def op_attach_pending(self, op: Op) -> Expected:
        self.op_load_prefix(op)
        cache, (tokens, hidden) = self.cache(op), self.found(op)
        whole = tokens // cache.page_size * cache.page_size
        assert hidden is not None
        self.bound[op.integers("seqs")[0]] = cache.fork(hidden, whole)
        return {"tokens": str(whole)}

    def op_wait_job(self, op: Op) -> Expected:
        return {"pending": "0"}

    # A suspended sequence keeps its contents here: scripts look at no pages meanwhile.
    def op_suspend(self, op: Op) -> Expected:
        return {"tokens": str(self.sequence(op).length)}

    op_resume = op_suspend

    def op_drop_prefix(self, op: Op) -> None:
        tokens, size = prompt(op), self.cache(op).page_size
        for entry in self.published:
            if entry.sequence.cache is self.cache(op) and entry.tokens[: len(tokens)] == tokens:
                entry.cut((len(tokens) - 1) // size * size)

    def op_drop_session(self, op: Op) -> None:
        of_cache = [entry for entry in self.published if entry.sequence.cache is self.cache(op)]
        for entry in of_cache:
            others = [common(entry.tokens, other.tokens) for other in of_cache if other.session != entry.session]
            if entry.session == op.integer("session"):
                entry.cut(max(others, default=0) // self.cache(op).page_size * self.cache(op).page_size)
