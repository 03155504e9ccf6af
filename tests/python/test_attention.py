"""Attention through the package equals the dense numpy reference."""

import numpy as np
import pytest

import kvcache
from reference import BF16, NUMPY_DTYPES, DenseLayer

TOLERANCE = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def run(cache, layers, dense, batches, qkv, dims, q_dtype="f32"):
    """Runs batches of (sequence, tokens) through all layers and compares out and LSE of every row."""
    q_heads, kv_heads, head_dim, v_head_dim = dims
    for batch in batches:
        sequences, lengths = zip(*batch)
        with cache.forward(sequences, lengths) as step:
            for i in range(layers):
                q, k, v = qkv(sum(lengths), q_heads, kv_heads, head_dim, v_head_dim, dtype=NUMPY_DTYPES[q_dtype])
                out, lse = step.attend(i, q, k, v, lse=True)
                expected_out, expected_lse = dense[i].step(sequences, lengths, q, k, v, q_dtype)
                tolerance = max(TOLERANCE[q_dtype], TOLERANCE[dense[i].dtype])
                np.testing.assert_allclose(out.astype(np.float64), expected_out, atol=tolerance, rtol=tolerance)
                np.testing.assert_allclose(lse, expected_lse, atol=tolerance, rtol=tolerance)
                assert out.dtype == q.dtype and lse.dtype == np.float32


@pytest.mark.parametrize("q_heads, kv_heads", [(4, 4), (6, 2), (7, 1), (10, 2)])
@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_grouped_queries_and_ragged_batches(q_heads, kv_heads, page_size, qkv):
    layer = kvcache.Layer(q_heads=q_heads, kv_heads=kv_heads, head_dim=32)
    with kvcache.Cache([layer], page_size=page_size, capacity_tokens=512) as cache:
        a, b, c = cache.add(3)
        batches = [[(a, 17)], [(b, 5), (a, 1)], [(c, 33), (b, 2), (a, 1)], [(a, 1), (b, 1), (c, 1)]]
        run(cache, 1, [DenseLayer()], batches, qkv, (q_heads, kv_heads, 32, None))
        assert cache.lengths([a, b, c]) == [20, 8, 34]
        cache.check_invariants()


@pytest.mark.parametrize("window", [1, 5, 16, 100])
def test_sliding_and_full_layers(window, qkv):
    layers = [kvcache.Layer(group=i % 2, q_heads=4, kv_heads=2, head_dim=16) for i in range(4)]
    dense = [DenseLayer(window=window if i % 2 == 0 else None) for i in range(4)]
    groups = [kvcache.Sliding(window), kvcache.Full()]
    with kvcache.Cache(layers, groups, page_size=4, capacity_tokens=256, max_sequences=2, rollback_tokens=0) as cache:
        a, b = cache.add(2)
        batches = [[(a, 3), (b, 20)], [(a, 30)], [(b, 7), (a, 1)]] + [[(a, 1), (b, 1)]] * 3
        run(cache, 4, dense, batches, qkv, (4, 2, 16, None))
        cache.check_invariants()


@pytest.mark.parametrize("chunk", [1, 5, 16, 100])
def test_chunked_and_full_layers(chunk, qkv):
    layers = [kvcache.Layer(group=int(i == 3), q_heads=4, kv_heads=2, head_dim=16) for i in range(4)]
    dense = [DenseLayer(chunk=chunk if i < 3 else None) for i in range(4)]
    groups = [kvcache.Chunked(chunk), kvcache.Full()]
    with kvcache.Cache(layers, groups, page_size=4, capacity_tokens=256, max_sequences=2, rollback_tokens=0) as cache:
        a, b = cache.add(2)
        batches = [[(a, 3), (b, 20)], [(a, 30)], [(b, 7), (a, 1)]] + [[(a, 1), (b, 1)]] * 3
        run(cache, 4, dense, batches, qkv, (4, 2, 16, None))
        freed = 37 // chunk * chunk // 4  # the next query is at 37
        assert [page == -1 for page in cache.pages(a, 0)] == [i < freed for i in range(10)]
        cache.check_invariants()


@pytest.mark.parametrize("rope_dim, theta", [(0, 10000.0), (8, 1e6)])
def test_rope_on_append(rope_dim, theta, qkv):
    layer = kvcache.Layer(q_heads=4, kv_heads=1, head_dim=32, rope="on_append", rope_dim=rope_dim, rope_theta=theta)
    dense = DenseLayer(theta=theta, rope_dim=rope_dim)
    with kvcache.Cache([layer], capacity_tokens=256) as cache:
        a, b = cache.add(2)
        run(cache, 1, [dense], [[(a, 40)], [(b, 3), (a, 1)], [(a, 1), (b, 1)]], qkv, (4, 1, 32, None))
        k, v = cache.export(a, 0)
        np.testing.assert_allclose(np.asarray(k), dense.keys[a], atol=1e-6)
        np.testing.assert_array_equal(np.asarray(v), dense.values[a])


@pytest.mark.parametrize("q_dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_dtypes(dtype, q_dtype, qkv):
    if BF16 is None and "bf16" in (dtype, q_dtype):
        pytest.skip("ml_dtypes is not installed")
    with kvcache.Cache([kvcache.Layer(q_heads=4, kv_heads=2, head_dim=64, dtype=dtype)], capacity_tokens=128) as cache:
        a = cache.add()
        dense = DenseLayer(dtype=dtype)
        run(cache, 1, [dense], [[(a, 21)], [(a, 1)]], qkv, (4, 2, 64, None), q_dtype)
        k, v = cache.export(a, 0)
        assert k.dtype == v.dtype == dtype
        np.testing.assert_array_equal(np.asarray(k).view(np.uint8), dense.keys[a].view(np.uint8))
        np.testing.assert_array_equal(np.asarray(v).view(np.uint8), dense.values[a].view(np.uint8))


def test_v_head_dim_and_scale(qkv):
    layer = kvcache.Layer(q_heads=4, kv_heads=2, head_dim=24, v_head_dim=40, scale=0.11)
    with kvcache.Cache([layer], capacity_tokens=128) as cache:
        a = cache.add()
        run(cache, 1, [DenseLayer(scale=0.11)], [[(a, 9)], [(a, 1)]], qkv, (4, 2, 24, 40))


def test_fork_and_truncate_keep_the_right_tokens(qkv):
    dense = DenseLayer()
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=2, head_dim=16)], page_size=4, capacity_tokens=512) as cache:
        parent = cache.add()
        run(cache, 1, [dense], [[(parent, 22)]], qkv, (2, 2, 16, None))
        end, middle, empty = cache.fork([parent] * 3, [-1, 13, 0])
        dense.fork(parent, end), dense.fork(parent, middle, 13), dense.fork(parent, empty, 0)
        run(cache, 1, [dense], [[(middle, 6), (empty, 1), (end, 1)]], qkv, (2, 2, 16, None))
        cache.truncate([parent, end], [10, 5])
        dense.truncate(parent, 10), dense.truncate(end, 5)
        run(cache, 1, [dense], [[(end, 3), (parent, 9), (middle, 1)]], qkv, (2, 2, 16, None))
        assert cache.lengths([parent, end, middle, empty]) == [19, 8, 20, 1]
        cache.check_invariants()


def test_append_apart_from_attend(qkv):
    layer = kvcache.Layer(q_heads=4, kv_heads=2, head_dim=16, rope="on_append")
    q, k, v = qkv(7, 4, 2, 16)
    with kvcache.Cache([layer] * 2, capacity_tokens=64) as cache:
        a, b = cache.add(2)
        with cache.forward([a], [7]) as step:
            fused = [step.attend(i, q, k, v) for i in range(2)]
        with cache.forward([b], [7]) as step:
            for i in range(2):
                step.append(i, k, v)
            apart = [step.attend(i, q) for i in (1, 0)]
        np.testing.assert_array_equal(fused[0], apart[1])
        np.testing.assert_array_equal(fused[1], apart[0])

        c = cache.add()  # K as another sequence stores it
        stored_k, stored_v = cache.export(a, 0)
        with cache.forward([c], [7]) as step:
            for i in range(2):
                step.append(i, stored_k, stored_v, as_stored=True)
            np.testing.assert_array_equal(step.attend(0, q), fused[0])


def test_inert_rows_and_rows_behind_the_batch(qkv):
    q, k, v = qkv(8, 2, 2, 16)
    dense = DenseLayer()
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=2, head_dim=16)], capacity_tokens=64) as cache:
        a, b = cache.add(2)
        out = np.full((8, 2, 16), 7.0, np.float32)
        with cache.forward([a, 0, b, 0], [2, 2, 1, 0]) as step:
            assert step.positions.tolist() == [0, 1, 0, 0, 0]
            assert step.last_rows.tolist() == [1, 3, 4, -1]
            new = step.attend(0, q, k, v, out=out)
        assert new is out
        rows = [0, 1, 4]
        expected, _ = dense.step([a, b], [2, 1], q[rows], k[rows], v[rows])
        np.testing.assert_allclose(out[rows], expected, atol=2e-5)
        assert (out[[2, 3, 5, 6, 7]] == 7.0).all()
        with cache.forward([a, 0], [1, 2]) as step:  # a new array is zero there
            new = step.attend(0, q, k, v)
        assert new.shape == q.shape and (new[1:] == 0).all() and (new[0] != 0).any()


def test_import_continues_an_exported_sequence(qkv):
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16, v_head_dim=8, rope="on_append")] * 2
    with kvcache.Cache(layers, capacity_tokens=64) as cache, kvcache.Cache(layers, capacity_tokens=64) as other:
        a = cache.add()
        raw = [qkv(11, 2, 1, 16, 8) for _ in layers]
        with cache.forward([a], [11]) as step:
            for i, (q, k, v) in enumerate(raw):
                step.attend(i, q, k, v)
        exported = [cache.export(a, i) for i in range(2)]
        moved, rotated = other.add(2)
        other.import_(moved, [k for k, _ in exported], [v for _, v in exported], as_stored=True)
        other.import_(rotated, [k for _, k, _ in raw], [v for _, _, v in raw])
        q, k, v = qkv(1, 2, 1, 16, 8)
        results = []
        for owner, sequence in ((cache, a), (other, moved), (other, rotated)):
            with owner.forward([sequence], [1]) as step:
                results.append([step.attend(i, q, k, v) for i in range(2)])
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])
        k_part, v_part = cache.export(a, 1, 3, 7)
        assert k_part.shape == (4, 1, 16) and v_part.shape == (4, 1, 8)
        np.testing.assert_array_equal(np.asarray(k_part), np.asarray(exported[1][0])[3:7])
