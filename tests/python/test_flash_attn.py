"""flash_attn_with_kvcache and append_slots over numpy arrays, against the definition in float64."""

import ml_dtypes
import numpy as np
import pytest

import kvcache


def reference(q, k_rows, v_rows, causal=False, window=(-1, -1), softcap=0.0, scale=None):
    """q [Sq, Hq, D] over k_rows [L, Hkv, D]: out [Sq, Hq, Dv] and lse [Hq, Sq]."""
    queries, heads, dim = q.shape
    length, group = len(k_rows), heads // k_rows.shape[1]
    k_rows, v_rows = (np.repeat(x.astype(np.float64), group, axis=1) for x in (k_rows, v_rows))
    scores = np.einsum("ihd,jhd->hij", q.astype(np.float64), k_rows) * (scale or dim**-0.5)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    p, j = np.arange(queries)[:, None] + length - queries, np.arange(length)
    hidden = np.zeros((queries, length), bool)
    if causal:
        hidden |= j > p
    if window[0] >= 0:
        hidden |= j < p - window[0]
    if window[1] >= 0:
        hidden |= j > p + window[1]
    scores[:, hidden] = -np.inf
    with np.errstate(divide="ignore"):
        largest = scores.max(-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
        total = weights.sum(-1)
        lse = np.log(total) + np.where(np.isfinite(largest), largest, 0)[..., 0]
    out = np.einsum("hij,jhd->ihd", weights / np.maximum(total, 1e-300)[..., None], v_rows)
    return out, lse


def arrays(rng, *shapes, dtype=np.float32):
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (9, 3)}, {"causal": True, "softcap": 5.0}])
def test_contiguous(rng, dtype, options):
    q, k_cache, v_cache = arrays(rng, (2, 5, 6, 32), (2, 50, 2, 32), (2, 50, 2, 24), dtype=dtype)
    lengths = np.array([50, 17], np.int32)
    out, lse = kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths, return_softmax_lse=True,
                                               **options)
    assert type(out) is np.ndarray and out.dtype == dtype and out.shape == (2, 5, 6, 24)
    assert lse.dtype == np.float32 and lse.shape == (2, 6, 5)
    names = {"window_size": "window"}
    for row, length in enumerate(lengths):
        expected, expected_lse = reference(q[row], k_cache[row, :length], v_cache[row, :length],
                                           **{names.get(name, name): value for name, value in options.items()})
        np.testing.assert_allclose(out[row].astype(np.float32), expected, atol=2e-5 if dtype == np.float32 else 3e-2)
        np.testing.assert_allclose(lse[row], expected_lse, atol=1e-4)


def test_appends_in_place_and_does_not_advance(rng):
    q, k_cache, v_cache, k, v = arrays(rng, (2, 3, 4, 16), (2, 40, 2, 16), (2, 40, 2, 16), (2, 3, 2, 16), (2, 3, 2, 16))
    lengths = np.array([30, 7], np.int32)
    before = k_cache.copy()
    out = kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)
    assert lengths.tolist() == [30, 7]
    for row, length in enumerate([30, 7]):
        np.testing.assert_array_equal(k_cache[row, length:length + 3], k[row])
        np.testing.assert_array_equal(v_cache[row, length:length + 3], v[row])
        np.testing.assert_array_equal(np.delete(k_cache[row], range(length, length + 3), 0),
                                      np.delete(before[row], range(length, length + 3), 0))
        expected, _ = reference(q[row], k_cache[row, :length + 3], v_cache[row, :length + 3], causal=True)
        np.testing.assert_allclose(out[row], expected, atol=2e-5)


def paged(rng, k_cache, v_cache, page):
    """The same caches, cut into shuffled pages, and their block table."""
    rows, capacity = k_cache.shape[:2]
    columns = capacity // page
    table = rng.permutation(rows * columns).astype(np.int32).reshape(rows, columns)
    pools = []
    for cache in (k_cache, v_cache):
        pool = np.full((rows * columns, page, *cache.shape[2:]), np.nan, cache.dtype)
        pool[table.ravel()] = cache.reshape(rows * columns, page, *cache.shape[2:])
        pools.append(pool)
    return (*pools, table)


@pytest.mark.parametrize("name", ["block_table", "page_table"])
def test_paged_ragged_and_both_names(rng, name):
    q, k_cache, v_cache = arrays(rng, (7, 4, 16), (3, 48, 2, 16), (3, 48, 2, 16))
    lengths, cu = np.array([48, 5, 20], np.int32), np.array([0, 4, 4, 7], np.int32)
    k_pool, v_pool, table = paged(rng, k_cache, v_cache, 8)
    table[1, 1:] = -1
    out, lse = kvcache.flash_attn_with_kvcache(
        q, k_pool, v_pool, cache_seqlens=lengths, cu_seqlens_q=cu, max_seqlen_q=4, causal=True,
        cu_seqlens_k_new=np.array([0, 1, 2, 3], np.int32), return_softmax_lse=True, **{name: table})
    assert out.shape == (7, 4, 16) and lse.shape == (4, 7)
    for row in (0, 2):
        here = slice(cu[row], cu[row + 1])
        expected, expected_lse = reference(q[here], k_cache[row, :lengths[row]], v_cache[row, :lengths[row]], causal=True)
        np.testing.assert_allclose(out[here], expected, atol=2e-5)
        np.testing.assert_allclose(lse[:, here], expected_lse, atol=1e-4)


def test_lengths_as_numbers_lists_and_none(rng):
    q, k_cache, v_cache = arrays(rng, (2, 1, 2, 8), (2, 12, 2, 8), (2, 12, 2, 8))
    call = kvcache.flash_attn_with_kvcache
    whole = call(q, k_cache, v_cache)
    np.testing.assert_array_equal(whole, call(q, k_cache, v_cache, cache_seqlens=12))
    np.testing.assert_array_equal(whole, call(q, k_cache, v_cache, seqused_k=[12, 12]))
    swapped = call(q, k_cache, v_cache, cache_batch_idx=[1, 0], cache_seqlens=9)
    np.testing.assert_array_equal(swapped, call(q, k_cache[::-1].copy(), v_cache[::-1].copy(), cache_seqlens=9))


def test_rotary_is_interleaved_by_default(rng):
    q, k_cache, v_cache, k, v = arrays(rng, (1, 1, 1, 8), (1, 6, 1, 8), (1, 6, 1, 8), (1, 1, 1, 8), (1, 1, 1, 8))
    angles = np.outer(np.arange(6), [1.0, 0.3]).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    out = kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, rotary_cos=cos, rotary_sin=sin, cache_seqlens=4,
                                          causal=True)

    def rotated(x):
        x = x[0, 0, 0].copy()
        pairs = x[:4].reshape(2, 2)
        x[:4] = np.stack([pairs[:, 0] * cos[4] - pairs[:, 1] * sin[4],
                          pairs[:, 1] * cos[4] + pairs[:, 0] * sin[4]], 1).ravel()
        return x

    np.testing.assert_allclose(k_cache[0, 4, 0], rotated(k), rtol=1e-6)
    expected, _ = reference(rotated(q)[None, None], k_cache[0, :5], v_cache[0, :5])
    np.testing.assert_allclose(out[0], expected, atol=2e-5)


def test_float8(rng):
    q, k_cache, v_cache = arrays(rng, (2, 1, 4, 16), (2, 20, 2, 16), (2, 20, 2, 16), dtype=ml_dtypes.float8_e4m3fn)
    scale = np.array([[0.5, 2.0]], np.float32)
    out = kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, k_descale=np.broadcast_to(scale, (2, 2)),
                                          v_descale=np.broadcast_to(scale, (2, 2)))
    assert out.dtype == ml_dtypes.bfloat16
    for row in range(2):
        expected, _ = reference(q[row].astype(np.float32), k_cache[row].astype(np.float32) * scale[0][:, None],
                                v_cache[row].astype(np.float32) * scale[0][:, None])
        np.testing.assert_allclose(out[row].astype(np.float32), expected, atol=5e-2)


def test_errors_have_numbers_and_change_nothing(rng):
    q, k_cache, v_cache, k, v = arrays(rng, (2, 1, 2, 8), (4, 4, 2, 8), (4, 4, 2, 8), (2, 1, 2, 8), (2, 1, 2, 8))
    before = k_cache.copy()
    table = np.array([[0, 1], [2, 99]], np.int32)
    with pytest.raises(kvcache.OutOfRange, match="page 99 .* row 1, column 1") as error:
        kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=[3, 5], block_table=table)
    assert error.value.index == 1
    with pytest.raises(kvcache.BufferTooSmall, match="1 new ones are 1 too many"):
        kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=[3, 8], block_table=table % 4)
    with pytest.raises(kvcache.InvalidArgument, match="overlaps"):
        kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, out=q)
    with pytest.raises(TypeError, match="two names"):
        kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, block_table=table, page_table=table)
    k_cache.flags.writeable = False
    with pytest.raises(kvcache.InvalidArgument, match="read-only"):
        kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=1)
    np.testing.assert_array_equal(k_cache, before)


def test_append_slots(rng):
    k, v = arrays(rng, (4, 2, 8), (4, 2, 6))
    k_cache, v_cache = np.zeros((3, 2, 2, 8), np.float32), np.zeros((3, 2, 2, 6), np.float32)
    kvcache.append_slots(k, v, k_cache, v_cache, np.array([5, -1, 0, 3]))
    for token, slot in [(0, 5), (2, 0), (3, 3)]:
        np.testing.assert_array_equal(k_cache[slot // 2, slot % 2], k[token])
        np.testing.assert_array_equal(v_cache[slot // 2, slot % 2], v[token])
    assert not k_cache[0, 1].any() and not k_cache[1, 0].any() and not k_cache[2, 0].any()
    hnd = np.zeros((3, 2, 2, 8), ml_dtypes.float8_e4m3fn)
    kvcache.append_slots(k, k, hnd.transpose(0, 2, 1, 3), np.zeros_like(hnd), np.arange(4), k_scale=0.5, v_scale=[1, 2])
    np.testing.assert_array_equal(hnd[1, :, 1], (k[3] / np.float32(0.5)).astype(ml_dtypes.float8_e4m3fn))
    latent = np.zeros((2, 2, 1, 14), np.float32)
    kvcache.append_slots(k[:, :1], v[:, :1], latent, None, np.array([3, 2, 1, 0], np.int32))
    np.testing.assert_array_equal(latent.reshape(4, 14)[::-1], np.concatenate([v[:, 0], k[:, 0]], 1))
    with pytest.raises(kvcache.OutOfRange, match=r"slot_mapping\[0\] is 6"):
        kvcache.append_slots(k, v, k_cache, v_cache, np.array([6, 0, 1, 2]))
