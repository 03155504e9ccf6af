"""Steps: the context manager, the order of calls, cancel, and the information about rows."""

import gc

import numpy as np
import pytest

import kvcache

KV = np.ones((8, 1, 16), np.float32)


@pytest.fixture
def cache():
    with kvcache.Cache([kvcache.Layer(head_dim=16)] * 2, capacity_tokens=256) as cache:
        yield cache


def run(step):
    for i in range(2):
        step.attend(i, KV, KV, KV)


def test_with_ends_or_aborts(cache):
    a = cache.add()
    with cache.forward([a], [8]) as step:
        run(step)
        assert not step.closed and cache.length(a) == 0
    assert step.closed and cache.length(a) == 8
    with pytest.raises(ZeroDivisionError):
        with cache.forward([a], [8]) as step:
            run(step)
            1 / 0
    assert step.closed and cache.length(a) == 8
    with cache.forward([a], [8]) as step:
        run(step)
        step.abort()
    assert cache.length(a) == 8
    with cache.forward([a], [8]) as step:
        run(step)
        step.end()
    assert cache.length(a) == 16


def test_a_step_that_cannot_end_is_aborted(cache):
    a = cache.add()
    with pytest.raises(kvcache.Order) as caught:
        with cache.forward([a], [8]) as step:
            step.attend(0, KV, KV, KV)
    assert caught.value.index == 1 and step.closed and cache.length(a) == 0
    assert cache.can_fit([a], [8])


def test_order_of_calls(cache):
    a = cache.add()
    step = cache.forward([a], [8])
    with pytest.raises(kvcache.Busy):
        cache.forward([a], [1])
    with pytest.raises(kvcache.Busy):
        cache.truncate(a, 0)
    with pytest.raises(kvcache.Order):
        step.attend(0, KV)
    step.append(0, KV, KV)
    with pytest.raises(kvcache.Order):
        step.append(0, KV, KV)
    with pytest.raises(kvcache.Order):
        step.attend(0, KV, KV, KV)
    step.attend(0, KV)
    with pytest.raises(kvcache.Order):
        step.attend(0, KV)
    with pytest.raises(kvcache.Order):
        step.end()
    assert not step.closed
    step.attend(1, KV, KV, KV)
    step.end()
    for call in (step.end, step.abort, step.cancel, step.describe, lambda: step.attend(0, KV, KV, KV)):
        with pytest.raises(kvcache.StaleId):
            call()
    assert cache.length(a) == 8


def test_a_range_of_layers(cache):
    a = cache.add()
    with cache.forward([a], [8], layers=range(1, 2)) as step:
        with pytest.raises(kvcache.OutOfRange):
            step.attend(0, KV, KV, KV)
        step.attend(1, KV, KV, KV)
    assert cache.length(a) == 8


def test_several_open_steps(cache):
    a, b, c = cache.add(3)
    with cache.forward([a], [8]) as first, cache.forward([b], [8]) as second:
        with pytest.raises(kvcache.TooManyForwards):
            cache.forward([c], [1])
        run(second), run(first)
    assert cache.lengths([a, b]) == [8, 8]


def test_rows(cache):
    a, b = cache.add(2)
    with cache.forward([a, b], [3, 5]) as step:
        run(step)
    with cache.forward([b, a], [2, 1]) as step:
        assert step.positions.dtype == step.last_rows.dtype == np.int32
        assert step.positions.tolist() == [5, 6, 3] and step.last_rows.tolist() == [1, 2]
        described = step.describe()
        assert isinstance(described, dict) and described["tokens"] == 3
        run(step)
    assert step.positions.tolist() == [5, 6, 3]  # these are copies, so they outlive the step
    with cache.forward([], []) as step:
        assert step.positions.shape == (0,)
        run(step)


def test_cancel(cache):
    a = cache.add()
    with pytest.raises(kvcache.Cancelled):
        with cache.forward([a], [8]) as step:
            step.cancel()
            step.attend(0, KV, KV, KV)
    assert step.closed and cache.length(a) == 0
    with pytest.raises(kvcache.Cancelled):
        with cache.forward([a], [8]) as step:
            run(step)
            step.cancel()
    assert step.closed and cache.length(a) == 0 and cache.can_fit([a], [1])


def test_removed_while_open(cache):
    a = cache.add()
    with cache.forward([a], [8]) as step:
        cache.remove(a)
        run(step)
    with pytest.raises(kvcache.StaleId):
        cache.length(a)
    assert cache.stats().pages_used == 0


def test_a_dropped_step_stays_open(cache):
    a = cache.add()
    cache.forward([a], [8])
    gc.collect()
    with pytest.raises(kvcache.Busy):
        cache.forward([a], [8])


def test_a_step_keeps_its_cache_alive():
    step = kvcache.Cache([kvcache.Layer(head_dim=16)] * 2, capacity_tokens=64).forward([0], [8])
    gc.collect()
    run(step)
    step.end()


def test_closed_cache():
    cache = kvcache.Cache([kvcache.Layer(head_dim=16)] * 2, capacity_tokens=64)
    a = cache.add()
    step = cache.forward([a], [8])
    cache.close()
    cache.close()
    assert cache.closed and "closed" in repr(cache)
    for call in (cache.add, cache.stats, cache.digest, lambda: cache.length(a), lambda: cache.forward([a], [1]),
                 step.end, step.abort, step.cancel, lambda: step.positions,
                 lambda: step.attend(0, KV, KV, KV)):  # fmt: skip
        with pytest.raises(kvcache.Closed) as caught:
            call()
        assert isinstance(caught.value, kvcache.Error)
    with pytest.raises(kvcache.Closed):
        with step:
            pass
    with pytest.raises(ZeroDivisionError):
        with step:
            1 / 0


def test_a_range_of_layers_has_no_steps():
    layers = [kvcache.Layer(head_dim=16) for _ in range(3)]
    with kvcache.Cache(layers, capacity_tokens=64) as cache:
        a = cache.add()
        with pytest.raises(kvcache.InvalidArgument):
            cache.forward(a, 1, layers=range(0, 3, 2))
        cache.forward(a, 1, layers=range(0, 2)).abort()


def test_a_step_without_tokens_takes_empty_arrays():
    empty = np.zeros((0, 1, 16), np.float32)
    with kvcache.Cache([kvcache.Layer(head_dim=16)], capacity_tokens=64) as cache:
        with cache.forward([0], [0]) as step:
            assert np.asarray(step.attend(0, empty, empty, empty)).shape == (0, 1, 16)
