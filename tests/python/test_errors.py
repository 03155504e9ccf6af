"""Failures are exceptions with a status, the row and the missing amount. A failed call changes nothing."""

import pickle

import numpy as np
import pytest

import kvcache


@pytest.fixture
def cache():
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16)] * 2, page_size=4, capacity_tokens=32,
                       max_sequences=4, max_batch_tokens=64, max_open_forwards=1) as cache:
        yield cache


def test_out_of_pages(cache):
    a, b, c = cache.add(3)
    with pytest.raises(kvcache.OutOfPages, match="Cache.forward") as caught:
        cache.forward([a, b, c], [4, 30, 1])
    error = caught.value
    assert isinstance(error, kvcache.Capacity) and not isinstance(error, ValueError)
    assert error.status == 100 and error.status_name == "KVC_ERROR_OUT_OF_PAGES"
    assert error.row == error.index == 1 and error.group == 0
    assert (error.required, error.available, error.missing) == (10, 8, 2)
    assert str(error) == error.message
    assert cache.lengths([a, b, c]) == [0, 0, 0] and cache.stats().pages_used == 0


@pytest.mark.parametrize("call, error, status", [
    (lambda c, a: c.add(100), kvcache.TooManySequences, 102),
    (lambda c, a: c.add(-1), kvcache.InvalidArgument, 1),
    (lambda c, a: c.add(2**40), kvcache.Error, None),
    (lambda c, a: c.remove(999), kvcache.StaleId, 11),
    (lambda c, a: c.remove([a, a]), kvcache.Duplicate, 12),
    (lambda c, a: c.lengths([a, -1]), kvcache.StaleId, 11),
    (lambda c, a: c.lengths([a, 2**80]), kvcache.StaleId, 11),
    (lambda c, a: c.fork(a, 1), kvcache.OutOfRange, 10),
    (lambda c, a: c.fork([a, a], [0]), kvcache.InvalidArgument, 1),
    (lambda c, a: c.truncate(a, 1), kvcache.OutOfRange, 10),
    (lambda c, a: c.truncate(a, -(2**70)), kvcache.OutOfRange, 10),
    (lambda c, a: c.truncate([a], []), kvcache.InvalidArgument, 1),
    (lambda c, a: c.pages(a, 1), kvcache.OutOfRange, 10),
    (lambda c, a: c.pages(0), kvcache.StaleId, 11),
    (lambda c, a: c.nearest_position(a, 1), kvcache.OutOfRange, 10),
    (lambda c, a: c.forward([a, a], [1, 1]), kvcache.Duplicate, 12),
    (lambda c, a: c.forward([a], [0]), kvcache.InvalidArgument, 1),
    (lambda c, a: c.forward([a], [2**40]), kvcache.Error, None),
    (lambda c, a: c.forward([a], [65]), kvcache.BatchTooLarge, 104),
    (lambda c, a: c.forward([a], [1, 2]), kvcache.InvalidArgument, 1),
    (lambda c, a: c.forward([a], [1], layers=(0, 3)), kvcache.OutOfRange, 10),
    (lambda c, a: c.forward([a], [1], layers=(0, 0)), kvcache.OutOfRange, 10),
    (lambda c, a: c.layer_pool(2), kvcache.OutOfRange, 10),
    (lambda c, a: c.layer_pool(2**40), kvcache.OutOfRange, 10),
    (lambda c, a: c.layer_pool(0, "x"), kvcache.InvalidArgument, 1),
    (lambda c, a: c.export(a, 5), kvcache.OutOfRange, 10),
    (lambda c, a: c.export(a, 0, 1, 0), kvcache.OutOfRange, 10),
    (lambda c, a: c.export(a, 5, 0, 0), kvcache.OutOfRange, 10),
    (lambda c, a: c.export(a, 0, 0, 1), kvcache.OutOfRange, 10),
    (lambda c, a: c.import_(a, [np.zeros((1, 1, 16), "f4")], []), kvcache.InvalidArgument, 1),
    (lambda c, a: c.import_(a, [np.zeros((1, 1, 16), "f4")], [np.zeros((1, 1, 16), "f4")]), kvcache.Misuse, None),
    (lambda c, a: c.stats(7), kvcache.OutOfRange, 10),
])  # fmt: skip
def test_misuse_has_its_own_class_and_changes_nothing(cache, call, error, status):
    a = cache.add()
    before = cache.digest()
    with pytest.raises(error) as caught:
        call(cache, a)
    assert status is None or caught.value.status == status
    assert caught.value.message and caught.value.status_name.startswith("KVC_ERROR_")
    assert cache.digest() == before
    cache.check_invariants()


@pytest.mark.parametrize("call", [
    lambda c, a: c.lengths(["x"]), lambda c, a: c.lengths(None), lambda c, a: c.lengths([1.5]),
    lambda c, a: c.length(1.5),
    lambda c, a: c.add("x"), lambda c, a: c.forward([a], ["1"]), lambda c, a: c.pages([a]), lambda c, a: c.fork([[a]]),
    lambda c, a: c.forward([a], [1], layers=5), lambda c, a: c.import_(a, 5, 5),
])  # fmt: skip
def test_wrong_python_types(cache, call):
    a = cache.add()
    with pytest.raises(TypeError):
        call(cache, a)


@pytest.mark.parametrize("change, error", [
    ({"q_heads": 3, "kv_heads": 2}, kvcache.InvalidArgument),
    ({"head_dim": 0}, kvcache.Error),
    ({"head_dim": 2**40}, kvcache.Error),
    ({"group": 1}, kvcache.Error),
    ({"dtype": "u8"}, kvcache.Misuse),
    ({"dtype": "f128"}, kvcache.DType),
    ({"dtype": object()}, kvcache.DType),
    ({"rope": "on_write"}, kvcache.InvalidArgument),
])  # fmt: skip
def test_bad_layers(change, error):
    layer = kvcache.Layer(**{"q_heads": 2, "kv_heads": 1, "head_dim": 16, **change})
    for make in (kvcache.Cache, kvcache.estimate):
        with pytest.raises(error):
            make([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16), layer], capacity_tokens=32)


def test_a_failing_layer_is_named():
    good, bad = kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16), kvcache.Layer(q_heads=2, kv_heads=1, head_dim=999)
    with pytest.raises(kvcache.Error) as caught:
        kvcache.Cache([good, good, bad], capacity_tokens=32)
    assert caught.value.index == 2


@pytest.mark.parametrize("arguments", [
    {"layers": []}, {"capacity_tokens": 0}, {"capacity_tokens": 32, "capacity_pages": 2}, {"page_size": -1},
    {"max_sequences": 2**33}, {"rollback_tokens": -1}, {"groups": [kvcache.Sliding(0)]},
])  # fmt: skip
def test_bad_caches(arguments):
    with pytest.raises(kvcache.Misuse):
        kvcache.Cache(**{"layers": [kvcache.Layer(head_dim=16)], "capacity_tokens": 32, **arguments})


def test_classes_of_bands_and_unknown_codes():
    from kvcache import _errors

    assert issubclass(kvcache.InvalidArgument, ValueError) and issubclass(kvcache.OutOfRange, IndexError)
    assert issubclass(kvcache.OutOfMemory, MemoryError) and issubclass(kvcache.Closed, kvcache.State)
    bands = {77: kvcache.Misuse, 177: kvcache.Capacity, 277: kvcache.State, 377: kvcache.DeviceFailure,
             477: kvcache.Data, 977: kvcache.Internal}  # fmt: skip
    for status, cls in bands.items():
        error = _errors._make_error(status, -1, 0, 0, -1, "text")
        assert type(error) is cls and error.index is None and error.group is None and error.status == status


def test_errors_can_be_pickled(cache):
    with pytest.raises(kvcache.OutOfPages) as caught:
        cache.forward([cache.add()], [33])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is kvcache.OutOfPages and vars(copy) == vars(caught.value) and copy.missing == 1


def test_what_is_no_layer_is_named():
    layer = kvcache.Layer(head_dim=16)
    with pytest.raises(TypeError, match="layers: a sequence of Layer and RecurrentLayer is needed, not Layer"):
        kvcache.Cache(layer, capacity_tokens=64)
    with pytest.raises(TypeError, match=r"layers\[1\]: a Layer or RecurrentLayer is needed, not int"):
        kvcache.estimate([layer, 3], capacity_tokens=64)


def test_element_types_are_named():
    with kvcache.Cache([kvcache.Layer(head_dim=16)], capacity_tokens=64) as cache:
        step = cache.forward(cache.add(), 1)
        with pytest.raises(kvcache.DType, match="q has dtype float64, not float32, float16 or bfloat16"):
            step.attend(0, *(np.zeros((1, 1, 16), np.float64) for _ in "qkv"))


def test_tracebacks_show_a_cache_that_was_not_made():
    with pytest.raises(kvcache.Error) as caught:
        kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16)], capacity_tokens=32, page_size=-1)
    never_made = [entry.frame.f_locals["self"] for entry in caught.traceback if "self" in entry.frame.f_locals]
    assert [repr(cache) for cache in never_made] == ["<kvcache.Cache, not made>"]
