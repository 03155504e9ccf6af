"""Calls over a server's own arrays, and tables for other kernels."""

import numpy as np
import pytest
from dense import attention, seen_by
from devices import rounded
from scene import LSE_TOLERANCE, TOLERANCE, values_of

import kvcache



@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("page", [1, 16])
def test_flash_attn_with_kvcache(device, rng, dtype, page):
    """Appends to a paged cache of the server and attends. One row is shorter than the other."""
    heads, kv_heads, dim, new = 4, 2, 64, 3
    lengths, pages = np.array([70, 9]), 100 // page + 2
    pool = [values_of(rounded(rng.standard_normal((2 * pages, page, kv_heads, dim)), dtype)) for _ in "kv"]
    table = rng.permutation(2 * pages).reshape(2, pages)
    q, k, v = (values_of(rounded(rng.standard_normal((2, new, h, dim)), dtype)) for h in (heads, kv_heads, kv_heads))
    on_device = [device.array(x, dtype) for x in pool]
    out = device.poisoned((2, new, heads, dim), dtype)
    given = kvcache.flash_attn_with_kvcache(
        device.array(q, dtype), *on_device, device.array(k, dtype), device.array(v, dtype),
        cache_seqlens=device.array(lengths, "i32"), block_table=device.array(table, "i32"), causal=True,
        out=out, return_softmax_lse=device.library is not None, context=device.context())
    for row, length in enumerate(lengths):
        keys, values = (x[table[row]].reshape(-1, kv_heads, dim)[:length] for x in pool)
        keys, values = np.concatenate([keys, k[row]]), np.concatenate([values, v[row]])
        positions = np.arange(length, length + new)
        wanted, lse = attention(q[row], keys, values, seen_by(positions, length + new), positions, np.arange(length + new),
                                dim**-0.5)
        np.testing.assert_allclose(values_of(device.host(out))[row], wanted, atol=TOLERANCE[dtype], rtol=0)
        if device.library is not None:
            np.testing.assert_allclose(values_of(device.host(given[1]))[row].T, lse, atol=LSE_TOLERANCE[dtype], rtol=0)
        stored = values_of(device.host(on_device[0]))[table[row]].reshape(-1, kv_heads, dim)
        np.testing.assert_array_equal(stored[length:length + new], k[row])


def test_append_slots(device, rng):
    pool = [device.poisoned((5, 4, 2, 16)) for _ in "kv"]
    k, v = (rng.standard_normal((6, 2, 16)) for _ in "kv")
    slots = np.array([19, 0, -1, 7, 8, 12])
    kvcache.append_slots(device.array(k), device.array(v), *pool, device.array(slots, "i32"), context=device.context())
    for array, rows in zip(pool, (k, v)):
        stored, kept = values_of(device.host(array)).reshape(20, 2, 16), slots >= 0
        np.testing.assert_array_equal(stored[slots[kept]], values_of(rounded(rows, "f32"))[kept])
        untouched = np.setdiff1d(np.arange(20), slots)
        assert (stored[untouched] == stored[untouched][0, 0, 0]).all()


def test_tables_of_a_step(device):
    with kvcache.Cache([kvcache.Layer(head_dim=16)], page_size=4, capacity_tokens=128, context=device.context()) as cache:
        a, b = cache.add(2)
        with cache.forward([a, b], [10, 3]) as step:
            tables = step.tables()
            lengths, block_table = device.host(tables.cache_seqlens), device.host(tables.block_table)
            slots, positions = device.host(tables.slot_mapping), device.host(tables.positions)
            step.append(0, *(device.array(np.zeros((13, 1, 16))) for _ in "kv"))
        assert lengths.tolist() == [10, 3] and positions.tolist() == [*range(10), *range(3)]
        assert block_table[0].tolist() == cache.pages(a).tolist()
        assert block_table[1].tolist() == [*cache.pages(b), -1, -1]
        assert slots.tolist() == [block_table[0][p // 4] * 4 + p % 4 for p in range(10)] + \
            [block_table[1][0] * 4 + p for p in range(3)]


def test_plans(device):
    plan = kvcache.Plan("decode", page_size=4, context=device.context())
    plan.build(np.array([5, 2], np.int32), block_table=np.array([[7, 3], [1, -1]], np.int32))
    tables = plan.tables()
    assert device.host(tables.block_table).tolist() == [[7, 3], [1, -1]]
    assert device.host(tables.cache_seqlens).tolist() == [6, 3] and device.host(tables.indptr).tolist() == [0, 2, 3]
    assert device.host(tables.slot_mapping).tolist() == [13, 6]
