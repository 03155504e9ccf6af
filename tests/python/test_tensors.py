"""Views of page pools, adopted storage and exports: who owns the memory, and how long it lives."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import kvcache
from reference import BF16


def fill(cache, sequence, tokens, rng, heads=1, dim=16):
    kv = [rng.standard_normal((tokens, heads, dim)).astype(np.float32) for _ in range(2)]
    with cache.forward([sequence], [tokens]) as step:
        step.append(0, *kv)
    return kv


def test_layer_pool_shows_the_pages(rng):
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=2, head_dim=16)], page_size=4, capacity_pages=5) as cache:
        a = cache.add()
        k, v = fill(cache, a, 7, rng, heads=2)
        pool = cache.layer_pool(0)
        assert pool.shape == (5, 2, 2, 4, 16) and pool.dtype == "f32" and pool.readonly and pool.device == (1, 0)
        assert pool.nbytes == 5 * 2 * 2 * 4 * 16 * 4 and len(pool) == 5 and "Tensor" in repr(pool)
        pages = cache.pages(a)
        array = np.asarray(pool)
        assert array.ctypes.data == pool.data_ptr and not array.flags.writeable
        for position in range(7):
            page = array[pages[position // 4]]
            np.testing.assert_array_equal(page[0, :, position % 4], k[position])
            np.testing.assert_array_equal(page[1, :, position % 4], v[position])
        np.testing.assert_array_equal(np.asarray(cache.layer_pool(0, "k")), array[:, 0])
        np.testing.assert_array_equal(np.asarray(cache.layer_pool(0, "v")), array[:, 1])


def test_writable_pool(rng, qkv):
    with kvcache.Cache([kvcache.Layer(head_dim=16)], page_size=4, capacity_pages=4) as cache:
        a = cache.add()
        fill(cache, a, 4, rng)
        pool = cache.layer_pool(0, writable=True)
        array = np.from_dlpack(pool)
        assert array.ctypes.data == pool.data_ptr and not pool.readonly
        pool.numpy()[cache.pages(a)[0], 1] = 5.0  # all of V
        with cache.forward([a], [1]) as step:
            q, k, _ = qkv(1, 1, 1, 16)
            np.testing.assert_allclose(step.attend(0, q, k, np.full((1, 1, 16), 5.0, np.float32)), 5.0, rtol=1e-6)


def test_pools_stored_apart():
    with kvcache.Cache([kvcache.Layer(head_dim=16, v_head_dim=8)], page_size=4, capacity_pages=4) as cache:
        assert cache.layer_pool(0, "k").shape == (4, 1, 4, 16) and cache.layer_pool(0, "v").shape == (4, 1, 4, 8)
        with pytest.raises(kvcache.Unsupported):
            cache.layer_pool(0)


def test_dlpack_protocol():
    with kvcache.Cache([kvcache.Layer(head_dim=16)], capacity_pages=2) as cache:
        frozen, free = cache.layer_pool(0), cache.layer_pool(0, writable=True)
        assert frozen.__dlpack_device__() == (1, 0)
        assert "dltensor_versioned" in repr(frozen.__dlpack__(max_version=(1, 0)))
        assert '"dltensor"' in repr(free.__dlpack__()) and '"dltensor"' in repr(free.__dlpack__(max_version=(0, 8)))
        for arguments in ({}, {"copy": True}, {"max_version": (1, 0), "dl_device": (2, 0)}):
            with pytest.raises(BufferError):
                frozen.__dlpack__(**arguments)
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # it supports DLPack 1.0, so the array is read-only
            assert not np.from_dlpack(frozen).flags.writeable
        with pytest.raises(kvcache.InvalidArgument, match="read-only"):  # a read-only pool cannot be an output
            with cache.forward([0], [1]) as step:
                one = np.zeros((1, 1, 16), np.float32)
                step.attend(0, one, one, one, out=frozen)
        assert np.asarray(frozen, dtype=np.float64).dtype == np.float64


@pytest.mark.skipif(BF16 is None, reason="ml_dtypes is not installed")
def test_bfloat16_pool():
    with kvcache.Cache([kvcache.Layer(head_dim=16, dtype="bf16")], capacity_pages=2) as cache:
        pool = cache.layer_pool(0)
        assert pool.dtype == "bf16" and np.asarray(pool).dtype == BF16 and pool.numpy().ctypes.data == pool.data_ptr


@pytest.mark.parametrize("dtype", [np.float32, np.float16, "bf16 as ml_dtypes", "bf16 as integers"])
def test_adopted_storage(rng, dtype):
    name = "bf16" if isinstance(dtype, str) else np.dtype(dtype).name
    if dtype == "bf16 as ml_dtypes" and BF16 is None:
        pytest.skip("ml_dtypes is not installed")
    dtype = {"bf16 as ml_dtypes": BF16, "bf16 as integers": np.dtype(np.uint16)}.get(dtype, dtype)
    memory = np.zeros((6, 2, 1, 4, 16), dtype)  # [pages, 2, Hkv, page_size, D]
    layer = kvcache.Layer(head_dim=16, dtype=name, kv_storage=memory)
    cache = kvcache.Cache([layer], [kvcache.Full(pages=6)], page_size=4)
    assert cache.layer_pool(0).data_ptr == memory.ctypes.data
    a = cache.add()
    _, v = fill(cache, a, 5, rng)
    stored = memory[cache.pages(a)[0], 1, 0]
    expected = np.asarray(cache.export(a, 0)[1])[:4, 0]
    assert stored.any()
    np.testing.assert_array_equal(stored.view(np.uint8), expected.view(np.uint8))
    alive = weakref.ref(memory.base if memory.base is not None else memory)
    del memory, layer, stored
    gc.collect()
    assert alive() is not None  # the cache owns it now
    fill(cache, a, 2, rng)
    cache.close()
    gc.collect()
    assert alive() is None


def test_adopted_storage_token_major_and_apart(rng):
    nhd = np.zeros((6, 4, 2, 3, 16), np.float32)  # [pages, page_size, 2, Hkv, D] seen as [pages, 2, Hkv, page_size, D]
    layer = kvcache.Layer(q_heads=3, kv_heads=3, head_dim=16, kv_storage=nhd.transpose(0, 2, 3, 1, 4))
    with kvcache.Cache([layer], [kvcache.Full(pages=6)], page_size=4) as cache:
        a = cache.add()
        k, v = fill(cache, a, 4, rng, heads=3)
        page = nhd[cache.pages(a)[0]]
        np.testing.assert_array_equal(page[:, 0], k)
        np.testing.assert_array_equal(page[:, 1], v)
    keys, values = np.zeros((6, 1, 4, 16), np.float32), np.zeros((6, 1, 4, 16), np.float32)
    with kvcache.Cache([kvcache.Layer(head_dim=16, k_storage=keys, v_storage=values)], [kvcache.Full(pages=6)],
                       page_size=4) as cache:
        a = cache.add()
        k, v = fill(cache, a, 4, rng)
        np.testing.assert_array_equal(keys[cache.pages(a)[0], 0], k[:, 0])
        np.testing.assert_array_equal(values[cache.pages(a)[0], 0], v[:, 0])


@pytest.mark.parametrize("memory, error", [
    (np.zeros((6, 2, 1, 4, 16), np.float16), kvcache.DType),
    (np.zeros((6, 2, 1, 4), np.float32), kvcache.Rank),
    (np.zeros((6, 2, 1, 5, 16), np.float32), kvcache.Shape),
    (np.zeros((6, 2, 1, 4, 32), np.float32)[..., ::2], kvcache.Stride),
    (np.broadcast_to(np.float32(0), (6, 2, 1, 4, 16)), (kvcache.InvalidArgument, BufferError)),  # read-only
    ([1, 2], TypeError),
])  # fmt: skip
def test_refused_storage_stays_the_callers(memory, error):
    good = np.zeros((6, 2, 1, 4, 16), np.float32)
    references = sys.getrefcount(good)
    with pytest.raises(error):
        kvcache.Cache([kvcache.Layer(head_dim=16, kv_storage=good), kvcache.Layer(head_dim=16, kv_storage=memory)],
                      [kvcache.Full(pages=6)], page_size=4)
    gc.collect()
    assert sys.getrefcount(good) == references
    kvcache.estimate([kvcache.Layer(head_dim=16, kv_storage=good)], [kvcache.Full(pages=6)], page_size=4)
    gc.collect()
    assert sys.getrefcount(good) == references


def test_views_outlive_the_cache(rng):
    cache = kvcache.Cache([kvcache.Layer(head_dim=16)], page_size=4, capacity_pages=4)
    a = cache.add()
    k, _ = fill(cache, a, 4, rng)
    page, array = cache.pages(a)[0], np.asarray(cache.layer_pool(0))
    capsule, exported = cache.layer_pool(0).__dlpack__(max_version=(1, 1)), cache.export(a, 0)
    cache.close()
    del cache
    gc.collect()
    np.testing.assert_array_equal(array[page, 0], k.transpose(1, 0, 2))
    np.testing.assert_array_equal(np.asarray(exported[0]), k)
    del array, exported
    gc.collect()
    del capsule  # never consumed


LEAK = """
import gc, numpy as np, kvcache
cache = kvcache.Cache([kvcache.Layer(head_dim=16)], capacity_pages=4)
s = cache.add()
one = np.ones((1, 1, 16), np.float32)
with cache.forward([s], [1]) as step:
    step.attend(0, one, one, one)
view = np.asarray(cache.layer_pool(0)); capsule = cache.layer_pool(0).__dlpack__(max_version=(1, 0))
kvcache.leaked = [view, capsule, step, cache.forward([s], [1])]
class Late:
    def __init__(self, view): self.view, self.loop = view, self
    def __del__(self): assert float(self.view[cache_page, 0, 0, 0, 0]) == 1.0
cache_page = int(cache.pages(s)[0])
late = Late(view)
if CLOSE: cache.close()
gc.collect()
assert float(view[cache_page, 0, 0, 0, 0]) == 1.0
print("ok")
"""


@pytest.mark.parametrize("close", [True, False])
def test_leaks_at_the_end_of_the_interpreter(close):
    done = subprocess.run([sys.executable, "-c", LEAK.replace("CLOSE", str(close))], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
