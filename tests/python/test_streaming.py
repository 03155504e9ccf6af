"""Streaming windows: sinks and a sliding window, at positions as if the kept tokens were contiguous. Also what is freed or
refused."""

import numpy as np
import pytest
from reference import attention, rope

import kvcache

HEADS, KV_HEADS, DIM, PAGE = 4, 2, 16, 4


def make_cache(rope_mode="on_append", **more):
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, rope=rope_mode)
    return kvcache.Cache([layer], page_size=PAGE, capacity_tokens=400, rollback_tokens=0, streaming=True, **more)


def kept(position, sinks, window):
    """Positions that a query at `position` sees."""
    left = max(sinks, position - (window - sinks) + 1)
    return [j for j in range(position + 1) if j < sinks or j >= left]


def closed_up(q, k, v, position, sinks, window):
    """Attention of the query at `position` over the keys that it sees. Every key is rotated at its index among those."""
    seen = kept(position, sinks, window)
    places = np.arange(len(seen))
    out, _ = attention(rope(q[position : position + 1], places[-1:]), rope(k[seen], places), v[seen], places[-1:])
    return out[0]


@pytest.mark.parametrize("mode", ["on_append", "on_read"])
@pytest.mark.parametrize("chunk", [1, 2, 9, 60])
def test_as_if_the_kept_tokens_were_contiguous(qkv, mode, chunk):
    q, k, v = qkv(60, HEADS, KV_HEADS, DIM)
    with make_cache(mode) as cache:
        seq = cache.add()
        cache.set_streaming(seq, sinks=5, window=18)
        assert cache.streaming(seq) == (5, 18)
        for begin in range(0, 60, chunk):
            rows = slice(begin, min(60, begin + chunk))
            with cache.forward([seq], [rows.stop - begin]) as step:
                out = step.attend(0, q[rows], k[rows], v[rows])
            for position in range(begin, rows.stop):
                expected = closed_up(q, k, v, position, 5, 18)
                np.testing.assert_allclose(out[position - begin], expected, atol=2e-5, err_msg=f"position {position}")
        cache.check_invariants()


@pytest.mark.parametrize("prefix", [7, 16])
def test_a_whole_prefix_and_a_window_at_true_positions(qkv, prefix):
    """Retention sliding-window attention: each query sees the prompt and the last tokens, rotated by the caller at their positions."""
    window, tokens = 9, 60
    q, k, v = qkv(tokens, HEADS, KV_HEADS, DIM)
    q, k = (rope(x, np.arange(tokens)).astype(np.float32) for x in (q, k))
    with make_cache("none") as cache:
        seq = cache.add()
        for begin, end in [(0, prefix), (prefix, prefix + 20), *((t, t + 1) for t in range(prefix + 20, tokens))]:
            if begin == prefix:
                cache.set_streaming(seq, sinks=0, window=prefix + window, prefix_is_sink=True)
            with cache.forward([seq], [end - begin]) as step:
                out = step.attend(0, q[begin:end], k[begin:end], v[begin:end])
            for p in range(begin, end):
                seen = [j for j in range(p + 1) if j < prefix or p - j < window]
                expected, _ = attention(q[p : p + 1], k[seen], v[seen], [len(seen) - 1])
                np.testing.assert_allclose(out[p - begin], expected[0], atol=2e-5, err_msg=f"position {p}")
        assert cache.stats().pages_used <= -(-prefix // PAGE) + -(-(window + 1) // PAGE) + 1
        cache.check_invariants()


def append(cache, seq, tokens):
    zeros = np.zeros((tokens, KV_HEADS, DIM), np.float32)
    with cache.forward([seq], [tokens]) as step:
        step.append(0, zeros, zeros)


def test_memory_stays_bounded():
    with make_cache() as cache:
        seq = cache.add()
        cache.set_streaming(seq, sinks=4, window=40)
        for _ in range(500):  # ten times the capacity of the cache
            append(cache, seq, 8)
        assert cache.length(seq) == 4000
        assert cache.stats().pages_used <= 1 + 36 // PAGE + 8 // PAGE + 1
        pages = cache.pages(seq)
        assert pages[0] >= 0 and pages[1] == -1 and pages[-1] >= 0


def test_forks_truncates_and_what_is_gone():
    with make_cache() as cache:
        seq = cache.add()
        append(cache, seq, 50)
        cache.set_streaming([seq], sinks=[6], window=[14])
        # Sinks in pages 0 and 1; the next query sees 43..49, and the page of 43 begins with 40.
        assert cache.nearest_position(seq, 20) == (8, 47)
        with pytest.raises(kvcache.Evicted) as caught:
            cache.truncate(seq, 20)
        assert caught.value.row == 0
        child, other = cache.fork([seq, seq], [7, -1])
        assert cache.streaming([child, other]) == [(6, 14), (6, 14)]
        append(cache, child, 30)
        cache.truncate(seq, 3)
        append(cache, seq, 30)
        assert cache.streaming(seq) == (6, 14)
        with pytest.raises(kvcache.Evicted):
            cache.set_streaming(seq, sinks=0, window=0)
        cache.truncate(seq, 0)
        cache.set_streaming(seq, sinks=0, window=0)
        assert cache.streaming(seq) == (0, 0)
        cache.check_invariants()


def test_the_prefix_as_sinks():
    with make_cache() as cache:
        a, b = cache.add(2)
        append(cache, a, 10)
        cache.set_streaming([a, b], sinks=4, window=16, prefix_is_sink=True)
        assert cache.streaming([a, b]) == [(10, 16), (4, 16)]
        append(cache, a, 6)
        with pytest.raises(kvcache.InvalidArgument, match="window 16.*length 16"):
            cache.set_streaming(a, sinks=4, window=16, prefix_is_sink=True)


def test_refused():
    with make_cache() as cache:
        seq = cache.add()
        for sinks, window in ((4, 4), (0, -1), (-1, 4), (1, 0)):
            with pytest.raises(kvcache.InvalidArgument):
                cache.set_streaming(seq, sinks=sinks, window=window)
        with pytest.raises(kvcache.Duplicate):
            cache.set_streaming([seq, seq], sinks=0, window=4)
        with pytest.raises(kvcache.InvalidArgument):
            cache.set_streaming([seq], sinks=[0, 0], window=4)
        with pytest.raises(kvcache.StaleId):
            cache.set_streaming(seq + 1, sinks=0, window=4)
        with pytest.raises(kvcache.StaleId):
            cache.streaming(0)
        assert cache.streaming([]) == []
        cache.set_streaming([], sinks=[], window=[])
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
    with kvcache.Cache([layer], capacity_tokens=64) as plain:
        seq = plain.add()
        with pytest.raises(kvcache.Unsupported, match="without streaming"):
            plain.set_streaming(seq, sinks=0, window=4)
    with pytest.raises(kvcache.InvalidArgument, match="Full"):
        make_cache(groups=[kvcache.Sliding(8)])
