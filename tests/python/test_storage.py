"""The owner of the memory of K and V: the library, the server, or none (tables only)."""

import numpy as np
import pytest

import kvcache

PAGES, PAGE, HEADS, DIM = 24, 4, 2, 8


def layers(n=2, **fields):
    return [kvcache.Layer(q_heads=4, kv_heads=HEADS, head_dim=DIM, **fields) for _ in range(n)]


def make(storage, n=2, **options):
    return kvcache.Cache(layers(n), [kvcache.Full(pages=PAGES)], page_size=PAGE, max_sequences=6, storage=storage,
                         **options)


def run(cache, seed=5):
    """Runs steps, a fork and a truncate. Returns all outputs."""
    rng = np.random.default_rng(seed)
    outputs = []

    def step(sequences, lengths):
        total = sum(lengths)
        with cache.forward(sequences, lengths) as step:
            for layer in range(2):
                q, k, v = (rng.standard_normal((total, heads, DIM)).astype(np.float32) for heads in (4, HEADS, HEADS))
                outputs.append(step.attend(layer, q, k, v))

    a, b = cache.add(2)
    step([a, b], [10, 3])
    child = cache.fork(a, 7)
    step([child, a, b], [1, 1, 2])
    cache.truncate(a, 5)
    step([a, child], [2, 1])
    return outputs


def hnd():
    return np.full((PAGES, 2, HEADS, PAGE, DIM), np.nan, np.float32)


def nhd_pair():  # as [pages, heads, page_size, dim], the memory by tokens
    return tuple(np.full((PAGES, PAGE, HEADS, DIM), np.nan, np.float32).transpose(0, 2, 1, 3) for _ in range(2))


@pytest.mark.parametrize("storage", [
    lambda: [hnd(), hnd()],
    lambda: [nhd_pair(), nhd_pair()],
    lambda: [hnd(), list(nhd_pair())],
    lambda: [None, hnd()],
    lambda: np.zeros((2, PAGES, 2, HEADS, PAGE, DIM), np.float32),  # one array for all layers
    lambda: np.zeros((PAGES, 2, 2, HEADS, PAGE, DIM), np.float32).swapaxes(0, 1),  # the layers of a page side by side
])  # fmt: skip
def test_adopted_pools_give_the_same_bits(storage):
    with make("own") as own, make(storage()) as adopted:
        for a, b in zip(run(own), run(adopted)):
            np.testing.assert_array_equal(a, b)
        assert own.digest() == adopted.digest() and adopted.stats().storage_bytes == own.stats().storage_bytes


def test_adopted_pool_is_what_layer_pool_shows():
    memory = [hnd(), hnd()]
    with make(memory) as cache:
        run(cache)
        assert [cache.layer_pool(i).data_ptr for i in range(2)] == [m.ctypes.data for m in memory]
        assert np.isfinite(memory[1]).any()


def test_adopted_mla_pool():
    rows = np.zeros((PAGES, 1, PAGE, DIM), np.float32)
    layer = kvcache.Layer(q_heads=4, head_dim=DIM, latent_dim=6, scale=0.5)
    with kvcache.Cache([layer], [kvcache.Full(pages=PAGES, row="latent")], page_size=PAGE, storage=[rows]) as cache:
        a = cache.add()
        row = np.random.default_rng(1).standard_normal((3, 1, DIM)).astype(np.float32)
        with cache.forward([a], [3]) as step:
            step.append(0, row)
        np.testing.assert_array_equal(rows[cache.pages(a)[0], 0, :3], row[:, 0])


@pytest.mark.parametrize("storage, error, index", [
    ("pinned", kvcache.InvalidArgument, None),
    ([None], kvcache.InvalidArgument, None),
    ([None, (hnd(), hnd(), hnd())], kvcache.InvalidArgument, 1),
    ([None, hnd()[:, :, :1]], kvcache.Shape, 1),
    ([None, hnd()[:PAGES - 1]], kvcache.Shape, 1),
    ([hnd().astype(np.float16), None], kvcache.DType, 0),
    ([hnd()] * 2, kvcache.Duplicate, 1),
    ([None, 7], TypeError, None),
])  # fmt: skip
def test_refused(storage, error, index):
    with pytest.raises(error) as raised:
        make(storage)
    if index is not None:
        assert raised.value.index == index


def test_a_layer_has_one_storage():
    with pytest.raises(kvcache.InvalidArgument) as raised:
        kvcache.Cache(layers(1, kv_storage=hnd()), [kvcache.Full(pages=PAGES)], page_size=PAGE, storage=[hnd()])
    assert raised.value.index == 0
    with pytest.raises(kvcache.InvalidArgument):
        kvcache.Cache(layers(1, kv_storage=hnd()), [kvcache.Full(pages=PAGES)], page_size=PAGE, storage=None)


class Engine:
    """Owns K and V of one layer, and follows the tables of a cache without storage."""

    def __init__(self, cache):
        self.cache = cache
        self.slots = np.full((PAGES * PAGE,), np.nan)
        self.copies = 0

    def make_copies(self):
        for group, source, target, count in self.cache.take_copies().tolist():
            assert group == 0 and count >= 1
            self.slots[target:target + count] = self.slots[source:source + count].copy()
            self.copies += 1

    def slots_of(self, sequence):
        pages = np.repeat(self.cache.pages(sequence).astype(np.int64), PAGE) * PAGE
        return (pages + np.arange(len(pages)) % PAGE)[:self.cache.length(sequence)]

    def append(self, sequence, values):
        self.make_copies()
        with self.cache.forward([sequence], [len(values)]):
            self.make_copies()
        self.slots[self.slots_of(sequence)[-len(values):]] = values

    def contents(self, sequence):
        return self.slots[self.slots_of(sequence)].tolist()


@pytest.mark.parametrize("storage", [None, "none"])
def test_tables_only(storage):
    with make(storage) as cache:
        engine = Engine(cache)
        model = {}
        rng = np.random.default_rng(3)
        value = 0
        for _ in range(1200):
            dice = rng.integers(5)
            if not model or (dice == 0 and len(model) < 6):
                model[cache.add()] = []
            elif dice == 1 and len(model) < 6:
                parent = int(rng.choice(list(model)))
                position = int(rng.integers(len(model[parent]) + 1))
                model[cache.fork(parent, position)] = model[parent][:position]
            elif dice == 2:
                sequence = int(rng.choice(list(model)))
                length = int(rng.integers(len(model[sequence]) + 1))
                cache.truncate(sequence, length)
                del model[sequence][length:]
            elif dice == 3 and len(model) > 4:
                sequence = int(rng.choice(list(model)))
                cache.remove(sequence)
                del model[sequence]
            else:
                sequence = int(rng.choice(list(model)))
                n = int(rng.integers(1, 6))
                if len(model[sequence]) < 14:
                    engine.append(sequence, list(range(value, value + n)))
                    model[sequence] += range(value, value + n)
                    value += n
            engine.make_copies()
            for sequence, tokens in model.items():
                assert engine.contents(sequence) == tokens
            cache.check_invariants()
        assert engine.copies > 40
        assert cache.stats().storage_bytes == 0


def test_tables_only_refuses_what_needs_k_and_v(qkv):
    with make(None) as cache:
        a = cache.add()
        q, k, v = qkv(6, 4, HEADS, DIM)
        with cache.forward([a], [6]) as step:
            for call in (lambda: step.attend(0, q, k, v), lambda: step.append(0, k, v)):
                with pytest.raises(kvcache.Unsupported):
                    call()
        for call in (lambda: cache.export(a, 0), lambda: cache.layer_pool(0), lambda: cache.import_(a, [k] * 2, [v] * 2)):
            with pytest.raises(kvcache.Unsupported):
                call()
        b = cache.fork(a)
        assert not cache.can_fit([b], [1])
        with pytest.raises(kvcache.Order, match="take_copies"):
            cache.forward([b], [1])
        copies = cache.take_copies()
        assert copies.dtype == np.int64 and copies.tolist() == [[0, 4 * int(cache.pages(a)[1]), 4 * int(cache.pages(b)[1]), 2]]
        assert cache.take_copies().shape == (0, 4)
        cache.forward([b], [1]).end()
    assert kvcache.estimate(layers(), page_size=PAGE, capacity_pages=9, storage=None).storage_bytes == 0


def test_own_storage_hands_over_nothing():
    with make("own") as cache:
        run(cache)
        assert cache.take_copies().shape == (0, 4)
