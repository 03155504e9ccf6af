"""Selection of keys, against numpy over small integers, whose scores are exact; and attention over what was selected."""

import numpy as np
import pytest

import kvcache

RANDOM = np.random.default_rng(7)
HEADS, DIM = 4, 16


def integers(tokens, heads):
    return RANDOM.integers(-2, 3, (tokens, heads, DIM)).astype(np.float32)


def choose(scores, count, forced=()):
    """The highest entries of a 1-D array, the lowest first of equal ones; ascending, with -1 behind."""
    scores = scores.copy()
    scores[list(forced)] = np.inf
    chosen = np.sort(np.argsort(-scores, kind="stable")[:count])
    return np.concatenate([chosen, np.full(count - len(chosen), -1)])


@pytest.fixture
def step():
    keys = kvcache.Layer(q_heads=HEADS, head_dim=DIM, keys_only=True)
    values = kvcache.Layer(q_heads=HEADS, kv_heads=HEADS, head_dim=DIM)
    with kvcache.Cache([keys, values], page_size=4, capacity_tokens=64) as cache:
        k = integers(20, 1)
        step = cache.forward(cache.add(), 20)
        step.append(0, k)
        yield step, k
        if not step.closed:
            step.abort()


def test_weighted_sums(step):
    step, k = step
    q, weights = integers(20, HEADS), RANDOM.integers(-3, 4, (20, HEADS)).astype(np.float32)
    for given in (weights, None):
        lists = step.select(0, q, 6, given)
        assert lists.dtype == np.int32 and lists.shape == (20, 1, 6)
        dots = np.maximum(np.einsum("thd,sd->ths", q, k[:, 0]), 0)
        scores = np.einsum("ths,th->ts", dots, np.ones_like(weights) if given is None else given)
        for t in range(20):
            np.testing.assert_array_equal(lists[t, 0], choose(scores[t, : t + 1], 6))


def test_blocks_of_each_head_and_attention_over_them(step):
    step, k = step
    q, out = integers(20, HEADS), np.full((20, HEADS, 3), 9, np.int32)
    assert step.select(0, q, 3, out=out, each_head=True, index_block=4, first_blocks=1, last_blocks=1) is out
    dots = np.einsum("thd,sd->ths", q, k[:, 0])
    for t in range(20):
        for h in range(HEADS):
            blocks = np.array([dots[t, h, b : min(b + 4, t + 1)].max() for b in range(0, t + 1, 4)])
            np.testing.assert_array_equal(out[t, h], choose(blocks, 3, forced={0, t // 4}))
    keys, values = integers(20, HEADS), integers(20, HEADS)
    listed, lse = step.attend(1, q, keys, values, lse=True, indices=out, index_block=4)
    seen = np.array([[np.isin(np.arange(20) // 4, out[t, h]) & (np.arange(20) <= t) for h in range(HEADS)] for t in range(20)])
    scores = np.where(seen, np.einsum("thd,shd->ths", q, keys) * DIM**-0.5, -np.inf)
    np.testing.assert_allclose(lse, np.log(np.exp(scores).sum(axis=-1)), rtol=1e-5)
    assert np.isfinite(listed).all()


def test_candidates(step):
    step, _ = step
    q = integers(20, HEADS)
    blocks = step.select(0, q, 2, index_block=4, last_blocks=1)
    lists = step.select(0, q, 3, candidates=blocks, candidate_block=4)
    for t in range(20):
        assert set(lists[t, 0][lists[t, 0] >= 0] // 4) <= set(blocks[t, 0])


def test_refusals(step):
    step, k = step
    q = integers(20, HEADS)
    with pytest.raises(kvcache.InvalidArgument, match="layer 0 stores keys only"):
        step.attend(0, q)
    with pytest.raises(kvcache.InvalidArgument, match="layer 1 does not store keys only"):
        step.select(1, q, 3)
    with pytest.raises(kvcache.OutOfRange, match="index_block -1"):
        step.select(0, q, 3, index_block=-1)
    with pytest.raises(kvcache.OutOfRange, match="last_blocks 4 is not in 0..3"):
        step.select(0, q, 3, last_blocks=4)
    with pytest.raises(kvcache.InvalidArgument, match="weights are given"):
        step.select(0, q, 3, np.ones((20, HEADS), np.float32), each_head=True)
    with pytest.raises(kvcache.Shape, match="negative"):
        step.select(0, q, -1)
    with pytest.raises(kvcache.InvalidArgument, match="v_head_dim 8"):
        kvcache.Cache([kvcache.Layer(head_dim=8, v_head_dim=8, keys_only=True)], capacity_tokens=16)
