"""Continuous batching over libkvcache: the only file here that calls the cache.

Every step takes, of each active request, the tokens that the cache does not hold yet: one for a request
that is decoding, a chunk for one whose prompt is still being read. All of them form one ragged batch.
"""
import time
from collections import Counter, deque
from dataclasses import dataclass

import kvcache
import numpy as np

SLIDING, FULL = 0, 1  # the two layer groups of the cache


@dataclass(eq=False)
class Request:
    """One prompt and what was generated for it.

    `tokens` is the prompt, growing by each generated token; `sequence` (0: none yet) holds the first
    `cached` of them. With a `parent`, the sequence starts as its fork: then `cached` is the parent's length.
    Without one, the sequence starts with the `found` tokens that the engine's prefix index held.
    """
    tokens: list
    max_new_tokens: int
    parent: int = 0
    cached: int = 0
    found: int = 0
    sequence: int = 0
    finished: bool = False

    def __post_init__(self):
        self.tokens = list(self.tokens)
        self.prompt_tokens = len(self.tokens)

    @property
    def output(self):
        return self.tokens[self.prompt_tokens:]


class GroupUsage:
    """Pages of one layer group: the library's counts, and each sequence's page ids (-1: freed, because it left the window)."""

    def __init__(self, name, stats, tables):
        self.name, self.tables = name, [[int(page) for page in table] for table in tables]
        self.used, self.free, self.shared = stats.pages_used, stats.pages_free, stats.pages_shared
        self.page_bytes = stats.storage_bytes // max(1, stats.pages_total)

    @property
    def references(self) -> Counter:
        return Counter(page for table in self.tables for page in table if page >= 0)

    @property
    def saved_bytes(self) -> int:
        """What the sequences would hold in addition if each had its own copy of every page."""
        return sum(count - 1 for count in self.references.values()) * self.page_bytes


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def capacity_for(lengths, page_size: int) -> int:
    """Tokens of capacity that always suffice for sequences of these lengths (last pages are partial)."""
    return sum(round_up(length, page_size) for length in lengths) + page_size


class Engine:
    """Greedy decoding of many requests. Not thread-safe; owns its cache.

    With `prefix_index`, a request finds the tokens of all earlier ones, also of those whose sequence was removed. With `tier`, a
    folder, it also finds those of earlier processes with the same `fingerprint`."""

    def __init__(self, model, capacity_tokens: int, max_sequences: int, page_size: int = 16, chunk_tokens: int = 256,
                 prefix_index: bool = False, tier=None, fingerprint: bytes | None = None):
        c = model.config
        self.model, self.page_size = model, page_size
        self.max_sequences = max_sequences
        self.chunk_tokens = max(chunk_tokens, max_sequences)  # each decoding row needs its token
        self.cache = kvcache.Cache(
            layers=[kvcache.Layer(group=FULL if c.is_full(i) else SLIDING, q_heads=c.q_heads, kv_heads=c.kv_heads,
                                  head_dim=c.head_dim, dtype="f32", rope="on_append", rope_theta=c.rope_theta(i),
                                  scale=c.attention_scale) for i in range(c.layers)],
            groups=[kvcache.Sliding(c.window_tokens), kvcache.Full()], page_size=page_size,
            capacity_tokens=capacity_tokens, max_sequences=max_sequences, max_batch_tokens=self.chunk_tokens,
            prefix_index=prefix_index or tier is not None, fingerprint=fingerprint, context=kvcache.Context(model.device))
        if tier is not None:
            self.cache.add_disk_tier(tier)
        self.prefix_index, self.has_tier = prefix_index or tier is not None, tier is not None
        self.found = 0  # tokens of the last prefill that the tier had
        self.recorder = None  # a kvcache.inspect.Recorder of the cache
        self._open_sequences = 0

    def forward(self, sequences, token_lists, wanted_rows=None):
        """Appends token_lists[i] to sequences[i]; logits [n, vocabulary] after the last token of each
        sequence of `wanted_rows` (default: all), in that order."""
        tokens = np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens in token_lists])
        with (self.recorder or self.cache).forward(sequences, [len(tokens) for tokens in token_lists]) as step:
            hidden = self.model.hidden(tokens, step.attend)
            last_rows = np.asarray(step.last_rows)
        rows = last_rows if wanted_rows is None else last_rows[wanted_rows]
        return self.model.logits(hidden[rows.tolist()]) if len(rows) else np.empty((0, self.model.vocabulary), np.float32)

    def prefill(self, tokens, on_progress=lambda done: None) -> int:
        """A new sequence that holds `tokens`, read in chunks; no logits are computed. With a tier, it has them when this returns."""
        sequence, self.found = self._attach(tokens, allow_all=True) if self.has_tier else (self.cache.add(), 0)
        self._open_sequences += 1
        for start in range(self.found, len(tokens), self.chunk_tokens):
            part = tokens[start:start + self.chunk_tokens]
            self.forward([sequence], [part], wanted_rows=[])
            if self.has_tier:  # now: the sliding layers still have its pages
                self.cache.publish_prefix(sequence, tokens[:start + len(part)])
            on_progress(start + len(part))
        self.store()
        return sequence

    def store(self) -> None:
        """Waits until the tier has all that was published."""
        while self.cache.tier_traffic().pages_waiting > 0:
            time.sleep(0.001)

    def _attach(self, tokens, allow_all=False):
        """A sequence with the tokens that the prefix index has, after it has loaded those of the tier; and how many they are."""
        job = self.cache.load_prefix(tokens, allow_all=allow_all)[0] if self.has_tier else None
        if job is not None:
            job.wait()
        sequence, hit = self.cache.attach_prefix(tokens, allow_all=allow_all)
        return sequence, hit.tokens

    def run(self, requests, stop_ids=frozenset(), on_token=lambda request, token, logits: None,
            on_step=lambda: None, keep=False) -> None:
        """Decodes all requests to their end, as many at a time as there are sequences for, in the given order.
        Sequences of finished requests are removed at once, so that waiting ones find room, unless `keep`."""
        waiting, active = deque(requests), []
        while waiting or active:
            room = self.max_sequences - self._open_sequences
            if not active and room == 0:
                raise ValueError("the cache has no sequence left for these requests")
            admitted = [waiting.popleft() for _ in range(min(room, len(waiting)))]
            self._open(admitted)
            active += admitted
            self._step(active, stop_ids, on_token)
            on_step()
            finished = [request for request in active if request.finished]
            self._publish(finished)
            active = [request for request in active if not request.finished]
            if not keep:
                self.remove([request.sequence for request in finished])

    def remove(self, sequences) -> None:
        if sequences:
            self.cache.remove(sequences)
        self._open_sequences -= len(sequences)

    def usage(self, sequences):
        """What the page tables of these sequences look like now, a GroupUsage for each group."""
        return [GroupUsage(name, self.cache.stats(group), [list(self.cache.pages(s, group)) for s in sequences])
                for group, name in ((FULL, "full layers"), (SLIDING, "sliding layers"))]

    def _open(self, requests) -> None:
        """Gives each request its sequence: all forks in one call, which happens wholly or not at all."""
        forked = [request for request in requests if request.parent]
        fresh = [request for request in requests if not request.parent]
        if forked:
            for request, child in zip(forked, self.cache.fork([request.parent for request in forked])):
                request.sequence = child
        for request in fresh:
            if self.prefix_index:
                request.sequence, request.found = self._attach(request.tokens)
                request.cached = request.found
            else:
                request.sequence = self.cache.add()
        self._open_sequences += len(requests)

    def _publish(self, requests) -> None:
        """Makes the tokens of these requests findable. The last generated one is not in the cache."""
        if self.prefix_index:
            for request in requests:
                self.cache.publish_prefix(request.sequence, request.tokens[:request.cached])

    def _step(self, active, stop_ids, on_token) -> None:
        rows, parts = self._plan(active)
        complete = [i for i, (request, part) in enumerate(zip(rows, parts))
                    if request.cached + len(part) == len(request.tokens)]
        logits = self.forward([request.sequence for request in rows], parts, wanted_rows=complete)
        for request, part in zip(rows, parts):
            request.cached += len(part)
        # After each chunk of a prompt, while the sliding layers still have its pages.
        self._publish([request for request in rows if request.cached <= request.prompt_tokens])
        for row, i in enumerate(complete):
            request, token = rows[i], int(np.argmax(logits[row]))
            request.tokens.append(token)
            generated = len(request.tokens) - request.prompt_tokens
            request.finished = generated == request.max_new_tokens or token in stop_ids
            on_token(request, token, logits[row])

    def _plan(self, active):
        """Decoding requests first (one token each), then prompts in order until the chunk is full."""
        rows, parts, budget = [], [], self.chunk_tokens
        for request in sorted(active, key=lambda r: r.prompt_tokens > r.cached):  # stable
            part = request.tokens[request.cached:request.cached + budget]
            if part:
                rows.append(request)
                parts.append(part)
                budget -= len(part)
        return rows, parts
