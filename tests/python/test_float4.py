"""Layers of 4-bit floats: pages hold, byte for byte, what a numpy model of the format computes. A numpy reader that has only
the bytes gives the rows that attention uses."""
import numpy as np
import pytest

import kvcache

PAGE, TOKENS, HEADS, DIM, V_DIM = 4, 21, 2, 48, 32
SCALES = {"k_scales": [0.5, 0.03], "v_scales": [0.001, 7.0]}
ELEMENTS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def make(**options):
    layer = kvcache.Layer(**{"q_heads": 4, "kv_heads": HEADS, "head_dim": DIM, "v_head_dim": V_DIM, "dtype": "float4_e2m1fn"}
                          | SCALES | options)  # fmt: skip
    return kvcache.Cache(layers=[layer], page_size=PAGE, capacity_tokens=256)


def byte_scales():
    """The value of each byte of a scale: 4 bits of exponent, 3 of mantissa; 127 is NaN."""
    bits = np.arange(128)
    values = np.where(bits < 8, bits * 2.0**-9, (8 + bits % 8) * 2.0 ** (bits // 8 - 10))
    values[127] = np.nan
    return values


def nearest(x, values):
    """The index of the nearest of some ascending values, ties to the even index."""
    distance = np.abs(values - x[..., None])
    tied = distance == distance.min(-1, keepdims=True)
    return np.where(tied & (np.arange(len(values)) % 2 == 0), 2, tied).argmax(-1)


def stored(rows, head_scales):
    """The model of the quantiser: bytes [..., D / 2 + D / 16] of float32 rows [T, H, D]."""
    x = (rows / np.array(head_scales, "f4")[:, None]).reshape(*rows.shape[:-1], -1, 16)
    scale = nearest(np.clip(np.abs(x).max(-1) / np.float32(6), 2.0**-9, 448), byte_scales()[:127])
    magnitude = nearest(np.minimum(np.abs(x) / byte_scales().astype("f4")[scale][..., None], 6), ELEMENTS[:8])
    element = (magnitude + 8 * np.signbit(x)).reshape(rows.shape)
    return np.concatenate([element[..., ::2] + 16 * element[..., 1::2], scale], -1).astype("u1")


def read(data, head_scales):
    """The reader: float64 rows [T, H, D] of bytes and the scales of the heads."""
    dims = data.shape[-1] * 16 // 9
    packed, scale = data[..., : dims // 2], data[..., dims // 2 :]
    x = np.stack([ELEMENTS[packed % 16], ELEMENTS[packed // 16]], -1).reshape(*data.shape[:-1], dims)
    return x * np.repeat(byte_scales()[scale % 128], 16, -1) * np.array(head_scales, "f4").astype(float)[:, None]


@pytest.fixture
def rows():
    random = np.random.default_rng(11)
    q, k = (random.standard_normal((TOKENS, heads, DIM), dtype="f4") for heads in (4, HEADS))
    return q, k, random.standard_normal((TOKENS, HEADS, V_DIM), dtype="f4") * np.array([[0.01], [30]], "f4")


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
    np.testing.assert_array_equal(k_scale, np.array(SCALES["k_scales"], "f4"))
    np.testing.assert_array_equal(v_scale, np.array(SCALES["v_scales"], "f4"))
    for given, data, scale in zip(rows[1:], (k, v), (k_scale, v_scale), strict=True):
        assert data.dtype == np.uint8 and data.shape == (TOKENS, HEADS, given.shape[-1] * 9 // 16)
        np.testing.assert_array_equal(data, stored(given, scale))
        # The largest of 16 elements is 6 of at least 15/16 of the wanted scale. Elements are at most 1 from the next.
        blocks = np.abs(given).reshape(*given.shape[:-1], -1, 16).max(-1)
        assert (np.abs(read(data, scale) - given) <= 0.19 * np.repeat(blocks, 16, -1)).all()
    np.testing.assert_allclose(out, expected_output(rows[0], read(k, k_scale), read(v, v_scale)), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("simd", [None, "scalar"])
@pytest.mark.parametrize("dims", [(128, 128), (80, 80), (64, 16)])
@pytest.mark.parametrize("q_heads", [2, 8])
def test_one_token(simd, dims, q_heads):
    """The kernel for few queries, over the bytes of 75 keys."""
    random, tokens = np.random.default_rng(3), 75
    q, k, v = (random.standard_normal((tokens, heads, dim), dtype="f4")
               for heads, dim in ((q_heads, dims[0]), (HEADS, dims[0]), (HEADS, dims[1])))  # fmt: skip
    context = kvcache.Context(threads=1, simd=simd) if simd else kvcache.Context(threads=1)
    layer = kvcache.Layer(q_heads=q_heads, kv_heads=HEADS, head_dim=dims[0], v_head_dim=dims[1], dtype="float4_e2m1fn", **SCALES)
    with kvcache.Cache(layers=[layer], page_size=16, capacity_tokens=256, context=context) as cache:
        sequence = cache.add()
        with cache.forward([sequence], [tokens - 1]) as step:
            step.append(0, k[:-1], v[:-1])
        with cache.forward([sequence], [1]) as step:
            out = np.asarray(step.attend(0, q[-1:], k[-1:], v[-1:]))
        keys, values, k_scale, v_scale = (x.numpy() for x in cache.export(sequence, 0, scales=True))
    keys, values = read(keys, k_scale), read(values, v_scale)
    for head in range(q_heads):
        of_kv = head * HEADS // q_heads
        weights = np.exp(keys[:, of_kv] @ q[-1, head].astype(float) / dims[0] ** 0.5)
        np.testing.assert_allclose(out[0, head], weights / weights.sum() @ values[:, of_kv], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rope", ["on_append", "on_read"])
def test_rope(rows, rope):
    """RoPE on append comes before the rounding, RoPE on read after it."""
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
        np.testing.assert_array_equal(data, stored(k, k_scale))
        keys = rotated(keys)
    else:
        assert np.abs(keys - rotated(k)).max() < 0.7
    np.testing.assert_allclose(out, expected_output(rotated(q), keys, read(v_data, v_scale)), rtol=1e-4, atol=1e-4)


def test_exported_bytes_are_imported(rows):
    with make() as cache:
        sequence, _ = attended(cache, rows)
        first = cache.export(sequence, 0)
        other = cache.add()
        cache.import_(other, [first[0]], [first[1]], as_stored=True)
        for a, b in zip(first, cache.export(other, 0), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        fork = cache.fork(other)
        with cache.forward([fork], [1]) as step:
            forked = step.attend(0, *(x[:1] for x in rows))
        with cache.forward([sequence], [1]) as step:
            np.testing.assert_array_equal(forked, step.attend(0, *(x[:1] for x in rows)))


@pytest.mark.parametrize("options", [{"head_dim": 40}, {"v_head_dim": 24}])
def test_dims_are_multiples_of_16(options):
    with pytest.raises(kvcache.Unsupported, match="multiples of 16"):
        make(**options)


def test_only_a_block_that_is_not_finite_is_nan(rows):
    q, k, v = rows
    v[3, 0, 17] = np.inf
    with make() as cache:
        _, out = attended(cache, (q, k, v))
    assert np.isfinite(out[:3]).all() and np.isfinite(out[:, 2:]).all() and np.isfinite(out[:, :, :16]).all()
    assert np.isnan(out[3:, :2, 16:]).all()
