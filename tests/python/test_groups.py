"""Kinds of layer groups other than full and sliding ones: encoder sequences, recurrent states, layers that share K and V.
Also spans of tokens that see each other."""

import numpy as np
import pytest
from reference import attention

import kvcache

HEADS, KV_HEADS, DIM = 4, 2, 16
LAYER = {"q_heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM}


def test_every_token_sees_the_whole_encoder_sequence(qkv):
    layers = [kvcache.Layer(group=0, **LAYER), kvcache.Layer(group=1, **LAYER)]
    with kvcache.Cache(layers, [kvcache.Full(), kvcache.Cross()], page_size=4, capacity_tokens=256) as cache:
        a, b = cache.add(2)
        _, encoder_k, encoder_v = qkv(11, HEADS, KV_HEADS, DIM)
        with cache.forward([a], [11], encoder_group=1) as step:
            step.append(1, encoder_k, encoder_v)
        assert cache.encoder_lengths([a, b], 1) == [11, 0] and cache.encoder_lengths(a, 1) == 11
        assert cache.lengths([a, b]) == [0, 0]
        child = cache.fork(a)
        q, k, v = qkv(4, HEADS, KV_HEADS, DIM)
        with cache.forward([b, child], [1, 3]) as step:
            step.append(0, k, v)
            out, lse = step.attend(1, q, lse=True)
        expected, _ = attention(q[1:], encoder_k, encoder_v, [10] * 3)
        np.testing.assert_allclose(out[1:], expected, atol=2e-5)
        assert not out[0].any() and np.isneginf(lse[0]).all()  # b has no encoder sequence
        assert cache.length(child) == 3 and cache.encoder_lengths(child, 1) == 11
        with cache.forward(a, 1) as step:
            step.append(0, k[:1], v[:1])
            with pytest.raises(kvcache.InvalidArgument):
                step.append(1, k[:1], v[:1])
        for wrong in (0, 2, -1):
            with pytest.raises((kvcache.InvalidArgument, kvcache.OutOfRange)):
                cache.forward(a, 1, encoder_group=wrong)
        with pytest.raises(kvcache.InvalidArgument):
            cache.encoder_lengths(a, 0)


def run(cache, sequences, values, length=1):
    """A step that stores `values` as states. Returns the states before it."""
    rows = len(sequences)
    before = np.full((rows, 3, 5), -1, np.float32)
    with cache.forward(sequences, [length] * rows) as step:
        assert step.load_state(0, 0, before) is before
        step.store_state(0, 0, np.broadcast_to(np.float32(values)[:, None, None], (rows, 3, 5)).copy())
        step.store_state(0, 1, np.zeros((rows, 2), np.uint16), dtype="bf16")
    return before[:, 2, 4].tolist()


def test_recurrent_states_follow_forks_and_checkpoints():
    layer = kvcache.RecurrentLayer(0, [kvcache.StateTensor((3, 5)), kvcache.StateTensor([2], "bf16")])
    with kvcache.Cache([layer], [kvcache.Recurrent()], max_sequences=4, max_checkpoints=2) as cache:
        a, b = cache.add(2)
        assert run(cache, [a, b], [1, 2], 6) == [0, 0]
        cache.checkpoint([a, b])
        assert run(cache, [a], [10]) == [1]
        child = cache.fork(a, 6)
        assert run(cache, [child, a], [3, 4]) == [1, 10]
        with pytest.raises(kvcache.Evicted):
            cache.truncate(a, 7)
        assert cache.nearest_position(a, 7) == (6, 8)
        cache.truncate(a, 6)
        assert run(cache, [b, a], [5, 6]) == [2, 1]
        step = cache.forward(a, 1)
        with pytest.raises(kvcache.DType):
            step.load_state(0, 0, np.zeros((1, 3, 5), np.float64))
        with pytest.raises(kvcache.OutOfRange):
            step.load_state(0, 2, np.zeros((1, 3, 5), np.float32))
        with pytest.raises(kvcache.Order):
            step.end()
        step.abort()
        assert run(cache, [a], [7]) == [6]
        cache.check_invariants()


def test_full_caches_have_no_checkpoints():
    with kvcache.Cache([kvcache.Layer(**LAYER)], capacity_tokens=64) as cache, pytest.raises(kvcache.Unsupported):
        cache.checkpoint(cache.add())
    with pytest.raises(kvcache.InvalidArgument, match="heads"):
        kvcache.Cache([kvcache.Layer(**LAYER)], [kvcache.Recurrent()])
    with pytest.raises(kvcache.InvalidArgument, match=r"len\(states\)"):
        kvcache.Cache([kvcache.RecurrentLayer(0, [])], [kvcache.Recurrent()])


def test_a_layer_reads_what_another_stores(qkv):
    layers = [kvcache.Layer(**LAYER), kvcache.Layer(**LAYER, kv_layer=0)]
    with kvcache.Cache(layers, page_size=4, capacity_tokens=256) as cache:
        a = cache.add()
        q, k, v = qkv(7, HEADS, KV_HEADS, DIM)
        with cache.forward(a, 7) as step:
            with pytest.raises(kvcache.Order):
                step.attend(1, q)
            first = step.attend(0, q, k, v)
            np.testing.assert_array_equal(step.attend(1, q), first)
            with pytest.raises(kvcache.InvalidArgument):
                step.append(1, k, v)
        assert cache.stats().storage_bytes == 256 * 2 * KV_HEADS * DIM * 4  # one layer's


def test_tokens_of_a_span_see_each_other(qkv):
    with kvcache.Cache([kvcache.Layer(**LAYER)], page_size=4, capacity_tokens=256) as cache:
        a, b = cache.add(2)
        q, k, v = qkv(9, HEADS, KV_HEADS, DIM)
        spans = np.array([0, 7, 7, 7, 0, 2, 2, 3, 3])
        with cache.forward([a, b], [6, 3], spans=spans) as step:
            out = step.attend(0, q, k, v)
        expected, _ = attention(q[:6], k[:6], v[:6], [0, 3, 3, 3, 4, 5])  # the span 2 ends with the row
        np.testing.assert_allclose(out[:6], expected, atol=2e-5)
        expected, _ = attention(q[6:], k[6:], v[6:], [0, 2, 2])
        np.testing.assert_allclose(out[6:], expected, atol=2e-5)
        with pytest.raises(kvcache.InvalidArgument, match="9 tokens and 2 span ids"):
            cache.forward([a, b], [6, 3], spans=[1, 1])
        with pytest.raises(kvcache.InvalidArgument, match="is -1"):
            cache.can_fit(a, 2, spans=[0, -1])
