"""examples/simple_engine.py: its tables are compared with arithmetic on lengths, and its tokens with a computation without a
cache."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import simple_engine  # noqa: E402

PAGE = 4
BYTES_A_TOKEN = 2 * simple_engine.KV_HEADS * simple_engine.DIM * 4


def batch(*lengths, seed=3):
    random = np.random.default_rng(seed)
    prompts = np.full((len(lengths), max(lengths)), -1)
    for row, length in enumerate(lengths):
        prompts[row, :length] = random.integers(1, simple_engine.VOCABULARY, length)
    return prompts


def recompute(model, tokens):
    """Logits of the last token by plain attention over all of them, in float64."""
    q, k, v = (x.astype(np.float64) for x in model.project(np.array(tokens), np.arange(len(tokens))))
    k, v = (np.repeat(x, simple_engine.Q_HEADS // simple_engine.KV_HEADS, axis=1) for x in (k, v))
    scores = np.einsum("hd,jhd->hj", q[-1], k) / np.sqrt(simple_engine.DIM)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    out = np.einsum("hj,jhd->hd", weights / weights.sum(axis=1, keepdims=True), v)
    return model.logits(out[None])[0]


def test_tokens_are_those_of_a_recompute_without_a_cache():
    model, prompts = simple_engine.Model(), batch(5, 8, 1, 16, 7)
    output, manager = simple_engine.generate(prompts, 20, model, PAGE)
    for prompt, new in zip(prompts, output, strict=True):
        tokens = prompt[prompt >= 0].tolist()
        for token in new:
            logits = recompute(model, tokens)
            assert logits[token] >= logits.max() - 1e-4 * np.abs(logits).max()
            tokens.append(token)
    assert manager.cache.stats().pages_used == 0


# Two common bugs: if the length of a prompt is a multiple of the block, positions are 0 and the last one is wrong;
# and one block of a row is never freed.
@pytest.mark.parametrize("lengths", [(PAGE,), (2 * PAGE, PAGE), (3, PAGE, 5), (1, 2 * PAGE - 1)])
def test_tables_say_what_lengths_say_and_every_page_comes_back(lengths):
    manager = simple_engine.Manager(batch(*lengths), 6, PAGE)
    stored = dict.fromkeys(range(len(lengths)), 0)
    for ending in (None, None, 0, None, *range(1, len(lengths))):
        if ending is not None:
            before = manager.cache.stats().pages_used
            manager.free(ending)
            assert manager.cache.stats().pages_used == before - -(-stored.pop(ending) // PAGE)
        if not stored:
            break
        counts = [1 if tokens else lengths[row] for row, tokens in stored.items()]
        stored = {row: tokens + count for (row, tokens), count in zip(stored.items(), counts, strict=True)}
        tokens, pages = list(stored.values()), [-(-tokens // PAGE) for tokens in stored.values()]
        with manager.step(counts) as step:
            check(step.tables(), tokens, pages)
        stats = manager.cache.stats()
        assert (stats.pages_used, stats.tokens_held) == (sum(pages), sum(tokens))
        assert stats.fragmentation_bytes == (sum(pages) * PAGE - sum(tokens)) * BYTES_A_TOKEN
    for row in list(manager.rows):
        manager.free(row)
    assert manager.cache.stats().pages_used == 0


def check(tables, tokens, pages):
    assert tables.cache_seqlens.tolist() == tokens
    assert tables.last_page_len.tolist() == [(n - 1) % PAGE + 1 for n in tokens]
    assert tables.positions[tables.last_rows].tolist() == [n - 1 for n in tokens]
    assert tables.block_table.shape == (len(tokens), max(pages))
    for row, used in zip(tables.block_table, pages, strict=True):
        assert (row[:used] >= 0).all() and (row[used:] == -1).all()
    taken = [page for row in tables.block_table.tolist() for page in row if page >= 0]
    assert len(set(taken)) == sum(pages)


def test_the_example_runs():
    printed = subprocess.run([sys.executable, EXAMPLES / "simple_engine.py"], capture_output=True, text=True, check=True)
    lines = printed.stdout.splitlines()
    assert lines[0].startswith("pages [[0, 1], [2, 3], [4, -1]], last positions [4, 7, 0], filled in the last page [1, 4, 1]")
    assert lines[-1] == "at the end 0 pages are in use"
