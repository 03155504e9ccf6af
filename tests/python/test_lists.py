"""Attention over lists of keys, against the same attention with a mask in float64."""

import numpy as np
import pytest

import kvcache

RANDOM = np.random.default_rng(5)
HEADS, KV_HEADS, DIM = 4, 2, 16


def dense(q, k, v, seen):
    """q [n, Hq, D], k and v [S, Hkv, D], seen [n, Hkv, S]: out [n, Hq, D]."""
    k, v, seen = (np.repeat(x, HEADS // KV_HEADS, axis=axis) for x, axis in ((k, 1), (v, 1), (seen, 1)))
    scores = np.where(seen, np.einsum("nhd,shd->nhs", q, k) * DIM**-0.5, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
    total = weights.sum(axis=-1, keepdims=True)
    return np.einsum("nhs,shd->nhd", np.divide(weights, total, out=np.zeros_like(weights), where=total > 0), v)


def rows(tokens, heads):
    return RANDOM.standard_normal((tokens, heads, DIM), dtype=np.float32)


@pytest.fixture
def step():
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
    with kvcache.Cache([layer], page_size=4, capacity_tokens=64) as cache:
        seq = cache.add()
        k, v = rows(20, KV_HEADS), rows(20, KV_HEADS)
        with cache.forward(seq, 20) as first:
            first.append(0, k, v)
        step = cache.forward(seq, 5)
        yield step, k, v
        if not step.closed:
            step.abort()


def test_lists_of_each_head(step):
    step, k, v = step
    q, new_k, new_v = rows(5, HEADS), rows(5, KV_HEADS), rows(5, KV_HEADS)
    indices = RANDOM.integers(-4, 25, (5, KV_HEADS, 9), dtype=np.int32)
    out = step.attend(0, q, new_k, new_v, indices=indices)
    keys = np.arange(25)
    causal = keys[None, :] <= 20 + np.arange(5)[:, None]
    seen = (indices[..., None] == keys).any(axis=2) & causal[:, None]
    np.testing.assert_allclose(out, dense(q, np.concatenate([k, new_k]), np.concatenate([v, new_v]), seen), atol=2e-5)


def test_blocks_for_all_heads(step):
    step, k, v = step
    q, new_k, new_v = rows(5, HEADS), rows(5, KV_HEADS), rows(5, KV_HEADS)
    indices = np.tile(np.array([[[5, -1, 1, 5, 6]]], np.int32), (5, 1, 1))
    out, lse = step.attend(0, q, new_k, new_v, lse=True, indices=indices, index_block=4)
    keys = np.arange(25)
    seen = np.isin(keys // 4, [5, 1, 6])[None, :] & (keys[None, :] <= 20 + np.arange(5)[:, None])
    seen = np.repeat(seen[:, None], KV_HEADS, axis=1)
    np.testing.assert_allclose(out, dense(q, np.concatenate([k, new_k]), np.concatenate([v, new_v]), seen), atol=2e-5)
    assert np.isfinite(lse).all()


def test_refused_lists(step):
    step, _, _ = step
    q, k, v = rows(5, HEADS), rows(5, KV_HEADS), rows(5, KV_HEADS)
    with pytest.raises(kvcache.OutOfRange, match=r"indices\[3, 0, 1\] is 25, for query 3 of row 0") as error:
        step.attend(0, q, k, v, indices=np.tile(np.int32([0, 25]), (5, 1, 1)) * (np.arange(5) == 3)[:, None, None])
    assert error.value.index == 0
    with pytest.raises(kvcache.DType, match="indices has dtype int64"):
        step.attend(0, q, k, v, indices=np.zeros((5, 1, 2), np.int64))
    with pytest.raises(kvcache.InvalidArgument, match="index_block is 4"):
        step.attend(0, q, k, v, index_block=4)
    with pytest.raises(kvcache.OutOfRange, match="index_block"):
        step.attend(0, q, k, v, indices=np.zeros((5, 1, 2), np.int32), index_block=2**40)
    with pytest.raises(TypeError):
        step.attend(0, q, k, v, indices=[[[0]]])
    step.attend(0, q, k, v)


def test_lists_of_slots():
    q, k, v = RANDOM.standard_normal((2, 3, HEADS, DIM)), rows(30, KV_HEADS), rows(30, KV_HEADS)
    q = q.astype(np.float32)
    indices = RANDOM.integers(-5, 30, (2, 3, KV_HEADS, 12), dtype=np.int32)
    out = kvcache.flash_attn_with_kvcache(q, k.reshape(5, 6, KV_HEADS, DIM), v.reshape(5, 6, KV_HEADS, DIM), indices=indices)
    seen = (indices[..., None] == np.arange(30)).any(axis=3).reshape(6, KV_HEADS, 30)
    np.testing.assert_allclose(out.reshape(6, HEADS, DIM), dense(q.reshape(6, HEADS, DIM), k, v, seen), atol=2e-5)
    with pytest.raises(kvcache.InvalidArgument, match="cache_seqlens"):
        kvcache.flash_attn_with_kvcache(q, k.reshape(5, 6, KV_HEADS, DIM), v.reshape(5, 6, KV_HEADS, DIM), indices=indices,
                                        cache_seqlens=3)  # fmt: skip
