#!/usr/bin/env python3
"""A simple engine: one static batch of prompts, decoded greedily until every row has ended.

The engine keeps K and V in arrays of its own. The library says where each token lies (a Cache with storage=None), and
computes attention over those arrays (flash_attn_with_kvcache).

    python examples/simple_engine.py
"""
import numpy as np

import kvcache

Q_HEADS, KV_HEADS, DIM, VOCABULARY, END = 4, 2, 32, 101, 0


class Manager:
    """Where the tokens of a batch lie. prompts: [B, S] int, padded with -1 after each row's tokens."""

    def __init__(self, prompts, max_new_tokens, page_size=16):
        lengths = (prompts >= 0).sum(axis=1)
        pages = int(np.ceil((lengths + max_new_tokens) / page_size).sum())
        self.cache = kvcache.Cache(
            [kvcache.Layer(q_heads=Q_HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="float32")], page_size=page_size,
            capacity_pages=pages, max_sequences=len(prompts), max_batch_tokens=int(lengths.sum()), storage=None)
        self.rows = dict(enumerate(self.cache.add(len(prompts))))  # of those that have not ended
        self.k, self.v = (np.zeros((pages, page_size, KV_HEADS, DIM), np.float32) for _ in range(2))

    def step(self, counts):
        """A step that appends counts[i] tokens to the i-th row that has not ended; its tables() say where."""
        return self.cache.forward(list(self.rows.values()), counts)

    def free(self, row):
        self.cache.remove([self.rows.pop(row)])

    def report(self, tables):
        stats = self.cache.stats()
        return (f"pages {tables.block_table.tolist()}, last positions {tables.positions[tables.last_rows].tolist()}, "
                f"filled in the last page {tables.last_page_len.tolist()}, {stats.pages_used} pages hold "
                f"{stats.tokens_held} tokens, {stats.fragmentation_bytes} bytes are unused in them")


def generate(prompts, max_new_tokens, model, page_size=16, say=lambda line: None):
    """Returns each row's new tokens, END included."""
    manager = Manager(prompts, max_new_tokens, page_size)
    new = [row[row >= 0] for row in prompts]
    output = [[] for _ in prompts]
    while manager.rows:
        with manager.step([len(new[row]) for row in manager.rows]) as step:
            tables = step.tables()
            q, k, v = model.project(np.concatenate([new[row] for row in manager.rows]), tables.positions)
            kvcache.append_slots(k, v, manager.k, manager.v, tables.slot_mapping)
            out = kvcache.flash_attn_with_kvcache(
                q, manager.k, manager.v, cache_seqlens=tables.cache_seqlens, block_table=tables.block_table,
                cu_seqlens_q=tables.cu_seqlens_q, max_seqlen_q=tables.max_seqlen_q, causal=True)
            chosen = model.logits(out[tables.last_rows]).argmax(axis=1)
            line = manager.report(tables)
        say(line)
        for row, token in zip(list(manager.rows), chosen.tolist(), strict=True):
            output[row].append(token)
            new[row] = np.array([token])
            if token == END or len(output[row]) == max_new_tokens:
                manager.free(row)
    return output, manager


class Model:
    """Stands for a model: one layer of attention with random weights."""

    def __init__(self, seed=0):
        random = np.random.default_rng(seed)
        self.tokens, self.places = (random.standard_normal((n, 64)).astype(np.float32) for n in (VOCABULARY, 512))
        self.in_q, self.in_k, self.in_v, self.out = (
            random.standard_normal((64, heads * DIM)).astype(np.float32) / 8 for heads in (Q_HEADS, KV_HEADS, KV_HEADS, Q_HEADS))

    def project(self, tokens, positions):
        x = self.tokens[tokens] + self.places[positions]
        return tuple((x @ w).reshape(len(x), -1, DIM) for w in (self.in_q, self.in_k, self.in_v))

    def logits(self, rows):
        return rows.reshape(len(rows), -1) @ self.out.T @ self.tokens.T


def main():
    prompts = np.full((3, 8), -1)
    prompts[0, :5], prompts[1, :8], prompts[2, :1] = range(10, 15), range(20, 28), 7
    output, manager = generate(prompts, 12, Model(), page_size=4, say=print)
    for row, tokens in enumerate(output):
        print(f"row {row}: {tokens}")
    print(f"at the end {manager.cache.stats().pages_used} pages are in use")


if __name__ == "__main__":
    main()
