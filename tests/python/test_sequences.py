"""Sequence calls: integers in and out, lists in and out, capacity questions, statistics."""

import numpy as np
import pytest

import kvcache


@pytest.fixture
def cache():
    with kvcache.Cache([kvcache.Layer(head_dim=16)], page_size=4, capacity_tokens=64, max_sequences=8,
                       max_batch_tokens=48) as cache:  # 16 pages
        yield cache


def grow(cache, sequences, lengths):
    tokens = sum(lengths)
    kv = np.ones((tokens, 1, 16), np.float32)
    with cache.forward(sequences, lengths) as step:
        step.append(0, kv, kv)


def test_integers_and_lists(cache):
    one, several = cache.add(), cache.add(2)
    assert type(one) is int and type(several) is list and len({one, *several}) == 3 and min(one, *several) > 0
    assert cache.add(0) == []
    grow(cache, [one], [6])
    assert cache.length(one) == cache.lengths(one) == 6
    assert cache.lengths([one, several[0]]) == [6, 0]
    assert cache.lengths((one,)) == cache.lengths(np.array([one])) == cache.lengths(iter([one])) == [6]
    assert cache.lengths([]) == []
    child, children = cache.fork(one), cache.fork([one, one], 3)
    assert type(child) is int and cache.lengths([child, *children]) == [6, 3, 3]
    cache.truncate(child, 1)
    cache.truncate(np.array(children, np.uint64), np.array([2, 0], np.int32))
    assert cache.lengths([child, *children]) == [1, 2, 0]
    cache.remove(child)
    cache.remove(children)
    cache.remove([])
    assert cache.stats().num_sequences == 3
    assert np.int64(one) == one and cache.length(np.int64(one)) == 6
    cache.check_invariants()


def test_pages_and_positions(cache):
    a = cache.add()
    pages = cache.pages(a)
    assert pages.dtype == np.int32 and pages.shape == (0,)
    grow(cache, [a], [9])
    pages = cache.pages(a)
    assert pages.dtype == np.int32 and pages.shape == (3,) and len(set(pages.tolist())) == 3
    assert cache.nearest_position(a, 5) == (5, 5)
    assert cache.max_append(a) == 48 and cache.max_append([a]) == [48]


def test_exclusive_pages_are_what_a_removal_frees(cache):
    a = cache.add()
    grow(cache, [a], [9])  # pages of 4 tokens
    b = cache.fork(a)
    assert cache.exclusive_pages(a) == 1 and cache.exclusive_pages([a, b]) == [1, 1] and cache.exclusive_pages([]) == []
    used = cache.stats().pages_used
    cache.remove(a)
    assert cache.stats().pages_used == used - 1 and cache.exclusive_pages(b, group=0) == 3
    with pytest.raises(kvcache.OutOfRange, match="group"):
        cache.exclusive_pages(b, 1)
    with pytest.raises(kvcache.StaleId):
        cache.exclusive_pages([b, a])


def test_pages_behind_a_window_are_gone():
    with kvcache.Cache([kvcache.Layer(head_dim=16)], [kvcache.Sliding(4)], page_size=4, capacity_tokens=256,
                       max_sequences=2, rollback_tokens=0) as cache:
        a = cache.add()
        grow(cache, [a], [23])
        pages = cache.pages(a, 0)
        assert pages.shape == (6,) and (pages[:4] == -1).all() and (pages[-1:] >= 0).all()
        before, after = cache.nearest_position(a, 8)
        assert before == 0 and after is not None and after > 8
        with pytest.raises(kvcache.Evicted):
            cache.fork(a, 8)
        with pytest.raises(kvcache.Evicted):
            cache.truncate(a, 8)
        assert cache.length(cache.fork(a, after)) == after


def test_can_fit_is_what_forward_does(cache):
    a, b = cache.add(2)
    assert cache.can_fit([a, b], [40, 8]) and not cache.can_fit([a], [49])  # max_batch_tokens
    grow(cache, [a], [40])
    assert cache.can_fit([b], [24]) and not cache.can_fit([b], [25])  # pages
    with pytest.raises(kvcache.OutOfPages) as caught:
        cache.check_fit([b], [25])
    assert caught.value.missing == 1
    before = cache.digest()
    with pytest.raises(kvcache.OutOfPages):
        cache.forward([b], [25])
    assert cache.digest() == before
    with pytest.raises(kvcache.StaleId):
        cache.can_fit([12345], [1])
    with pytest.raises(kvcache.Duplicate):
        cache.can_fit([b, b], [1, 1])
    assert cache.can_fit([], [])
    with cache.forward([b], [1]) as step:
        assert not cache.can_fit([b], [1])  # busy
        step.abort()


def test_stats(cache):
    a = cache.add()
    grow(cache, [a], [10])
    b = cache.fork(a)
    whole, group = cache.stats(), cache.stats(0)
    assert whole.num_sequences == 2 and whole.tokens_logical == 20
    assert whole.pages_total == 16 == whole.pages_used + whole.pages_free and group.pages_total == 16
    assert whole.pages_used == 4 and whole.pages_shared == 2  # two whole pages shared, the last one copied
    assert whole.tokens_held == 12 and whole.tokens_shared == 8 and whole.pages_peak >= 4
    assert whole.storage_bytes == 16 * 2 * 4 * 16 * 4
    with pytest.raises(kvcache.OutOfRange):
        cache.stats(1)
    with pytest.raises(AttributeError):
        whole.pages_used = 0
    cache.remove([a, b])
    assert cache.stats().pages_used == 0


def test_digest_follows_the_calls():
    def play():
        with kvcache.Cache([kvcache.Layer(head_dim=16)], page_size=4, capacity_tokens=64) as cache:
            a = cache.add()
            grow(cache, [a], [9])
            cache.fork([a, a])
            return cache.digest(), cache.pages(a).tolist()

    assert play() == play()


def test_clear(cache):
    a = cache.add()
    with cache.forward([a], [1]) as step:
        with pytest.raises(kvcache.Busy):
            cache.clear()
        step.abort()
    cache.clear()
    assert cache.stats().num_sequences == 0
    with pytest.raises(kvcache.StaleId):
        cache.length(a)


def test_sequences_context_manager(cache):
    with cache.sequences(3) as (a, b, c):
        assert cache.lengths([a, b, c]) == [0, 0, 0]
        cache.remove(b)
    assert cache.stats().num_sequences == 0
    with pytest.raises(ZeroDivisionError):
        with cache.sequences() as [a]:
            1 / 0
    assert cache.stats().num_sequences == 0
    with cache.sequences(2):
        cache.close()  # then the sequence needs no removal
