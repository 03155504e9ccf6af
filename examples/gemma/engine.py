"""Continuous batching over libkvcache: the only file here that calls the cache.

Every step takes, of each active request, the tokens that the cache does not hold yet: one for a request
that is decoding, a chunk for one whose prompt is still being read. All of them form one ragged batch.
"""
from collections import deque
from dataclasses import dataclass, field

import kvcache
import numpy as np

from errors import ExampleError

SLIDING, FULL = 0, 1  # the two layer groups of the cache


@dataclass(eq=False)
class Request:
    """One prompt and what was generated for it. `cached` of its tokens are held by `sequence`."""
    prompt: list
    max_new_tokens: int
    sequence: int = 0
    cached: int = 0
    output: list = field(default_factory=list)
    finished: bool = False

    @property
    def tokens(self):
        return self.prompt + self.output


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def capacity_for(lengths, page_size: int) -> int:
    """Tokens of capacity that always suffice for sequences of these lengths (last pages are partial)."""
    return sum(round_up(length, page_size) for length in lengths) + page_size


class Engine:
    """Greedy decoding of many requests. Not thread-safe; owns its cache."""

    def __init__(self, model, capacity_tokens: int, max_sequences: int, page_size: int = 16, chunk_tokens: int = 256):
        c = model.config
        self.model, self.page_size = model, page_size
        self.max_sequences = max_sequences
        self.chunk_tokens = max(chunk_tokens, max_sequences)  # each decoding row needs its token
        self.cache = kvcache.Cache(
            layers=[kvcache.Layer(group=FULL if c.is_full(i) else SLIDING, q_heads=c.q_heads, kv_heads=c.kv_heads,
                                  head_dim=c.head_dim, dtype="f32", rope="on_append", rope_theta=c.rope_theta(i),
                                  scale=c.attention_scale) for i in range(c.layers)],
            groups=[kvcache.Sliding(c.window_tokens), kvcache.Full()], page_size=page_size,
            capacity_tokens=capacity_tokens, max_sequences=max_sequences, max_batch_tokens=self.chunk_tokens)
        self.steps = 0

    def forward(self, sequences, token_lists, wanted_rows=None):
        """Appends token_lists[i] to sequences[i]; logits [n, vocabulary] after the last token of each
        sequence of `wanted_rows` (default: all), in that order."""
        tokens = np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens in token_lists])
        with self.cache.forward(sequences, [len(tokens) for tokens in token_lists]) as step:
            hidden = self.model.hidden(tokens, step.attend)
            last_rows = np.asarray(step.last_rows)
        self.steps += 1
        rows = last_rows if wanted_rows is None else last_rows[wanted_rows]
        return self.model.logits(hidden[rows]) if len(rows) else np.empty((0, self.model.vocabulary), np.float32)

    def prefill(self, tokens, on_progress=lambda done: None) -> int:
        """A new sequence that holds `tokens`, read in chunks; no logits are computed."""
        sequence = self.cache.add()
        for start in range(0, len(tokens), self.chunk_tokens):
            part = tokens[start:start + self.chunk_tokens]
            self.forward([sequence], [part], wanted_rows=[])
            on_progress(start + len(part))
        return sequence

    def fork(self, sequence: int, held_tokens: int, prompts, max_new_tokens: int):
        """A request for each prompt, whose first `held_tokens` tokens `sequence` already holds."""
        children = self.cache.fork([sequence] * len(prompts))
        return [Request(list(prompt), max_new_tokens, sequence=child, cached=held_tokens)
                for prompt, child in zip(prompts, children)]

    def run(self, requests, eos_id=None, on_token=lambda request, token, logits: None,
            on_step=lambda: None, keep=False) -> None:
        """Decodes all requests to their end; at most max_sequences at a time, in the given order.
        Sequences of finished requests are removed at once, so that waiting ones find room, unless `keep`."""
        waiting = deque(request for request in requests if not request.sequence)
        active = [request for request in requests if request.sequence]
        room = self.max_sequences - self._open_sequences(requests)
        if waiting and not active and room < 1:
            raise ExampleError("no sequence is left for the prompts")
        while waiting or active:
            while waiting and room > 0:
                request = waiting.popleft()
                request.sequence = self.cache.add()
                active.append(request)
                room -= 1
            self._step(active, eos_id, on_token)
            on_step()
            for request in [r for r in active if r.finished]:
                active.remove(request)
                if not keep:
                    self.cache.remove([request.sequence])
                    request.sequence = 0
                    room += 1

    def _open_sequences(self, requests) -> int:
        return self.cache.stats()["sequences"]

    def _step(self, active, eos_id, on_token) -> None:
        rows, parts = self._plan(active)
        complete = [i for i, (request, part) in enumerate(zip(rows, parts))
                    if request.cached + len(part) == len(request.tokens)]
        logits = self.forward([request.sequence for request in rows], parts, wanted_rows=complete)
        for request, part in zip(rows, parts):
            request.cached += len(part)
        for row, i in enumerate(complete):
            request, token = rows[i], int(np.argmax(logits[row]))
            request.output.append(token)
            request.finished = len(request.output) == request.max_new_tokens or token == eos_id
            on_token(request, token, logits[row])

    def _plan(self, active):
        """Decoding requests first (one token each), then prompts in order until the chunk is full."""
        rows, parts, budget = [], [], self.chunk_tokens
        for request in sorted(active, key=lambda r: len(r.prompt) > r.cached):  # stable
            part = request.tokens[request.cached:][:budget]
            if part:
                rows.append(request)
                parts.append(part)
                budget -= len(part)
        return rows, parts
