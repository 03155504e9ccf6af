"""Layers of 4 bits: pages hold, byte for byte, what a numpy model of the format computes. A numpy reader that has only the
bytes gives the rows that attention uses."""
import numpy as np
import pytest

import kvcache

PAGE, TOKENS, HEADS, DIM, V_DIM = 4, 21, 2, 48, 32


def make(**options):
    layer = kvcache.Layer(**{"q_heads": 4, "kv_heads": HEADS, "head_dim": DIM, "v_head_dim": V_DIM, "dtype": "uint4"} | options)
    return kvcache.Cache(layers=[layer], page_size=PAGE, capacity_tokens=256)


def signs(dims):
    made, x = [], 0x9E3779B9
    for _ in range(dims):
        for shift in (13, -17, 5):
            x ^= (x << shift if shift > 0 else x >> -shift) & 0xFFFFFFFF
        made.append(-1 if x >= 1 << 31 else 1)
    return np.array(made, "f4")


def matrix(block):
    """The Hadamard matrix: the sign of (i, j) is the parity of the bits that i and j share."""
    return np.array([[(-1) ** (i & j).bit_count() for j in range(block)] for i in range(block)], float)


def block_of(dims):
    return dims & -dims


def stored(rows):
    """The model of the quantiser: bytes [..., D / 2] and scales [...] of float32 rows [..., D]."""
    y = rows * signs(rows.shape[-1])
    apart = 1
    while apart < block_of(rows.shape[-1]):
        lower, upper = y.copy(), np.flatnonzero(np.arange(y.shape[-1]) & apart)
        y[..., upper - apart], y[..., upper] = (lower[..., upper - apart] + lower[..., upper],
                                                lower[..., upper - apart] - lower[..., upper])
        apart *= 2
    low, high = y.min(-1, keepdims=True), y.max(-1, keepdims=True)
    scale = np.maximum((high - low) / np.float32(15), np.float32(1e-6))
    zero = np.clip((-low / scale + np.float32(0.5)).astype("i4"), 0, 15)
    level = np.clip((y * (np.float32(1) / scale) + zero.astype("f4") + np.float32(0.5)).astype("i4"), 0, 15).astype("u1")
    bits = scale.view("u4") // 16 * 16 + zero.astype("u4")
    return level[..., ::2] + 16 * level[..., 1::2], bits.view("f4")[..., 0]


def read(data, scale):
    """The reader: float64 rows [..., D] of bytes and scales."""
    bits = scale.view("u4")[..., None]
    dims = 2 * data.shape[-1]
    y = np.empty((*data.shape[:-1], dims))
    y[..., ::2], y[..., 1::2] = data % 16, data // 16
    y = (y - bits % 16) * (bits - bits % 16).view("f4")
    blocks = y.reshape(*y.shape[:-1], -1, block_of(dims)) @ matrix(block_of(dims)) / block_of(dims)
    return blocks.reshape(y.shape) * signs(dims)


@pytest.fixture
def rows():
    random = np.random.default_rng(11)
    q, k = (random.standard_normal((TOKENS, heads, DIM), dtype="f4") for heads in (4, HEADS))
    k[:, :, 5] *= 20  # the outlier that the rotation is for
    return q, k, random.standard_normal((TOKENS, HEADS, V_DIM), dtype="f4")


def attended(cache, rows):
    sequence = cache.add()
    with cache.forward([sequence], [TOKENS]) as step:
        return sequence, step.attend(0, *rows)


def expected_output(q, k, v):
    """Causal attention in float64."""
    out = np.empty((*q.shape[:2], V_DIM))
    for head in range(q.shape[1]):
        scores = q[:, head].astype(float) @ k[:, head // 2].T / DIM**0.5
        scores[np.triu_indices(TOKENS, 1)] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[:, head] = weights / weights.sum(1, keepdims=True) @ v[:, head // 2]
    return out


def test_bytes_and_attention(rows):
    with make() as cache:
        sequence, out = attended(cache, rows)
        k, v, k_scale, v_scale = (x.numpy() for x in cache.export(sequence, 0, scales=True))
    for given, (data, scale) in zip(rows[1:], ((k, k_scale), (v, v_scale)), strict=True):
        wanted, wanted_scale = stored(given)
        assert data.dtype == np.uint8 and data.shape == (TOKENS, HEADS, given.shape[-1] // 2)
        np.testing.assert_array_equal(data, wanted)
        np.testing.assert_array_equal(scale.view("u4"), wanted_scale.view("u4"))
        # 15 steps cover the row's rotated range, so each rotated value is off by half a step, and so is their mean.
        assert np.abs(read(data, scale) - given).max() < 1.2 * scale.max()
    np.testing.assert_allclose(out, expected_output(rows[0], read(k, k_scale), read(v, v_scale)), rtol=0, atol=2e-5)


@pytest.mark.parametrize("rope", ["on_append", "on_read"])
def test_rope(rows, rope):
    """RoPE comes before the rotation of the format. On read it comes after its inverse."""
    q, k, v = rows
    half = DIM // 2
    angles = np.arange(TOKENS)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def rotated(x):
        return np.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)

    with make(rope=rope) as cache:
        sequence, out = attended(cache, rows)
        data, v_data, k_scale, v_scale = (x.numpy() for x in cache.export(sequence, 0, scales=True))
    keys = read(data, k_scale)
    if rope == "on_read":
        np.testing.assert_array_equal(data, stored(k)[0])
        keys = rotated(keys)
    else:
        assert np.abs(keys - rotated(k)).max() < 1.2 * k_scale.max()
    np.testing.assert_allclose(out, expected_output(rotated(q), keys, read(v_data, v_scale)), rtol=0, atol=1e-4)


def test_exported_bytes_are_imported(rows):
    with make() as cache:
        sequence, _ = attended(cache, rows)
        first = cache.export(sequence, 0, scales=True)
        other = cache.add()
        cache.import_(other, [first[0]], [first[1]], k_scales=[first[2]], v_scales=[first[3]], as_stored=True)
        for a, b in zip(first, cache.export(other, 0, scales=True), strict=True):
            np.testing.assert_array_equal(a.numpy().view("u1"), b.numpy().view("u1"))
        fork = cache.fork(other)
        with cache.forward([fork], [1]) as step:
            forked = step.attend(0, *(x[:1] for x in rows))
        with cache.forward([sequence], [1]) as step:
            np.testing.assert_array_equal(forked, step.attend(0, *(x[:1] for x in rows)))


@pytest.mark.parametrize("options", [{"head_dim": 40}, {"v_head_dim": 24}])
def test_dims_are_multiples_of_16(options):
    with pytest.raises(kvcache.Unsupported, match="multiples of 16"):
        make(**options)


def test_a_row_that_is_not_finite_is_nan(rows):
    q, k, v = rows
    k[3, 0, 7] = np.inf
    with make() as cache:
        _, out = attended(cache, (q, k, v))
    assert np.isfinite(out[:3]).all() and np.isfinite(out[:, 2:]).all()
    assert np.isnan(out[3:, :2]).all()
