"""Selection of keys, against numpy over small integers, whose scores are exact; and attention over what was selected."""

import numpy as np
import pytest

import kvcache

RANDOM = np.random.default_rng(7)
HEADS, DIM = 4, 16


def integers(tokens, heads):
    return RANDOM.integers(-2, 3, (tokens, heads, DIM)).astype(np.float32)


def choose(scores, count, forced=()):
    """The highest entries of a 1-D array, the lowest first of equal ones; ascending, with -1 after them."""
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


@pytest.mark.parametrize("dtype", ["f32", "bf16", "float8_e4m3fn", "float8_e5m2", "int8"])
def test_index_keys_go_wherever_tokens_go(dtype, tmp_path):
    """Forks, exports and imports, saved sequences and the prefix index keep the keys, beside those of an MLA layer."""
    rows = kvcache.Layer(head_dim=24, latent_dim=16, scale=0.2, dtype=dtype)
    keys = kvcache.Layer(q_heads=HEADS, kv_heads=2, head_dim=DIM, keys_only=True, dtype=dtype)
    q, new, count = integers(1, HEADS), integers(23, 2), 7
    with kvcache.Cache([rows, keys], [kvcache.Full(row="latent")], page_size=4, capacity_tokens=200, prefix_index=True,
                       zero_on_free=True) as cache:
        def select(sequence):
            with cache.forward(sequence, 1) as step:
                step.append(0, np.ones((1, 1, 24), np.float32))
                step.append(1, np.zeros((1, 2, DIM), np.float32))
                lists = step.select(1, q, count, each_head=True)
            cache.truncate(sequence, 23)
            return lists

        first = cache.add()
        with cache.forward(first, 23) as step:
            step.append(0, RANDOM.standard_normal((23, 1, 24), dtype=np.float32))
            step.append(1, new)
        expected = select(first)
        assert len(np.unique(expected)) > count
        forked = cache.fork(first)
        np.testing.assert_array_equal(select(forked), expected)
        cache.save(first, tmp_path / "saved")
        exported = [cache.export(first, layer, scales=dtype == "int8") for layer in (0, 1)]
        assert exported[1][1] is None
        assert cache.layer_pool(1, "k").shape == (50, 2, 4, DIM)
        with pytest.raises(kvcache.Unsupported, match="keys only"):
            cache.layer_pool(1, "v")
        imported = cache.add()
        scales = {"k_scales": [parts[2] for parts in exported]} if dtype == "int8" else {}
        cache.import_(imported, [parts[0] for parts in exported], [None, None], as_stored=True, **scales)
        np.testing.assert_array_equal(select(imported), expected)
        tokens = np.arange(23, dtype=np.int32)
        cache.publish_prefix(first, tokens)
        cache.remove([first, forked, imported])
        attached, hit = cache.attach_prefix(tokens, allow_all=True)
        assert hit.tokens == 23
        np.testing.assert_array_equal(select(attached), expected)
        cache.clear()
        np.testing.assert_array_equal(select(cache.load(tmp_path / "saved")[0]), expected)
        cache.check_invariants()


def test_estimate():
    config = dict(page_size=4, capacity_tokens=64)
    one, two = kvcache.Layer(head_dim=DIM), kvcache.Layer(q_heads=HEADS, head_dim=DIM, keys_only=True)
    without, with_keys = kvcache.estimate([one], **config), kvcache.estimate([one, two], **config)
    assert with_keys.token_bytes - without.token_bytes == DIM * 4
