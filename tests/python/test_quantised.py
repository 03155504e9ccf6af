"""Quantised layers: stored values are those that ml_dtypes and numpy compute from the same numbers, and attention reads
them."""
import numpy as np
import pytest

import kvcache

ml_dtypes = pytest.importorskip("ml_dtypes")

FLOAT8 = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
TOKENS, HEADS, DIM = 21, 2, 16


def make(dtype, **options):
    layer = kvcache.Layer(q_heads=4, kv_heads=HEADS, head_dim=DIM, dtype=dtype, **options)
    return kvcache.Cache(layers=[layer], page_size=4, capacity_tokens=256)


@pytest.fixture
def rows():
    random = np.random.default_rng(7)
    return (random.standard_normal((TOKENS, 4, DIM), dtype="f4"),
            *(random.standard_normal((TOKENS, HEADS, DIM), dtype="f4") for _ in range(2)))


def attended(cache, rows):
    sequence = cache.add()
    with cache.forward([sequence], [TOKENS]) as step:
        return sequence, step.attend(0, *rows)


def expected_output(q, k, v):
    """Causal attention in float64."""
    out = np.empty(q.shape)
    for head in range(q.shape[1]):
        scores = q[:, head].astype(float) @ k[:, head // 2].astype(float).T / DIM**0.5
        scores[np.triu_indices(TOKENS, 1)] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[:, head] = weights / weights.sum(1, keepdims=True) @ v[:, head // 2].astype(float)
    return out


def test_the_largest_and_the_smallest_scale():
    for scale in (1e-20, 1e20):
        make("float8_e5m2", k_scales=scale, v_scales=scale).close()


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("scales", [None, 0.25, (0.25, 0.031)])
def test_float8(rows, name, scales):
    q, k, v = rows
    with make(name, k_scales=scales, v_scales=scales) as cache:
        sequence, out = attended(cache, rows)
        stored_k, stored_v, k_scale, v_scale = (x.numpy() for x in cache.export(sequence, 0, scales=True))
        factor = np.broadcast_to(np.float32(1 if scales is None else scales), HEADS)
        assert stored_k.dtype == FLOAT8[name]
        np.testing.assert_array_equal(k_scale, factor)
        for stored, given in ((stored_k, k), (stored_v, v)):
            wanted = (given / factor[:, None]).astype(FLOAT8[name])
            np.testing.assert_array_equal(stored.view("u1"), wanted.view("u1"))
        read_k, read_v = (x.astype("f4") * s[:, None] for x, s in ((stored_k, k_scale), (stored_v, v_scale)))
        np.testing.assert_allclose(out, expected_output(q, read_k, read_v), atol=1e-5)
        pool = cache.layer_pool(0).numpy()
        assert pool.dtype == FLOAT8[name]
        page = cache.pages(sequence)[1]
        np.testing.assert_array_equal(pool[page, 1, :, 2].view("u1"), stored_v[6].view("u1"))


def test_int8(rows):
    q, k, v = rows
    with make("int8") as cache:
        sequence, out = attended(cache, rows)
        stored_k, stored_v, k_scale, v_scale = (x.numpy() for x in cache.export(sequence, 0, scales=True))
        for stored, scale, given in ((stored_k, k_scale, k), (stored_v, v_scale, v)):
            wanted = np.abs(given).max(2) / np.float32(127)
            np.testing.assert_array_equal(scale, wanted)
            np.testing.assert_array_equal(stored, np.rint(given / wanted[:, :, None]).astype("i1"))
        read_k, read_v = stored_k * k_scale[:, :, None], stored_v * v_scale[:, :, None]
        np.testing.assert_allclose(out, expected_output(q, read_k, read_v), atol=1e-5)
        assert cache.layer_pool(0, "k_scale").shape == (64, HEADS, 4)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int8"])
def test_stored_bytes_come_back_as_they_were(rows, name):
    with make(name) as cache:
        sequence, _ = attended(cache, rows)
        k, v, k_scale, v_scale = cache.export(sequence, 0, scales=True)
        copy = cache.add()
        scales = {"k_scales": [k_scale], "v_scales": [v_scale]} if name == "int8" else {}
        cache.import_(copy, [k], [v.numpy()], as_stored=True, **scales)
        for a, b in zip((k, v, k_scale, v_scale), cache.export(copy, 0, scales=True), strict=True):
            np.testing.assert_array_equal(a.numpy().view("u1"), b.numpy().view("u1"))
        with cache.forward([copy], [1]) as step:
            one = [x.numpy()[:1] for x in (k, v, k_scale, v_scale)]
            step.append(0, *one[:2], as_stored=True, **dict(zip(("k_scale", "v_scale"), one[2:], strict=True))
                        if name == "int8" else {})
        np.testing.assert_array_equal(cache.export(copy, 0, TOKENS)[0].numpy().view("u1"), one[0].view("u1"))


def test_adopted_float8_pool(rows):
    pool = np.full((64, 2, HEADS, 4, DIM), 0xFF, "u1")
    with make("float8_e4m3fn", kv_storage=pool) as cache:
        sequence, _ = attended(cache, rows)
        stored = cache.export(sequence, 0)[1].numpy()
        np.testing.assert_array_equal(pool[cache.pages(sequence)[0], 1, 1, 3], stored[3, 1].view("u1"))


@pytest.mark.parametrize("options, error", [
    ({"dtype": "float8_e4m3fn", "k_scales": 1.0}, kvcache.NullArgument),
    ({"dtype": "float8_e4m3fn", "k_scales": (1, 2), "v_scales": 1}, kvcache.InvalidArgument),
    ({"dtype": "float8_e5m2", "k_scales": 0.0, "v_scales": 1.0}, kvcache.InvalidArgument),
    ({"dtype": "float8_e5m2", "k_scales": (1, 2, 3), "v_scales": (1, 2, 3)}, kvcache.InvalidArgument),
    ({"dtype": "int8", "k_scales": 1.0, "v_scales": 1.0}, kvcache.InvalidArgument),
    ({"dtype": "int8", "kv_storage": np.zeros((64, 2, HEADS, 4, DIM), "i1")}, kvcache.Unsupported),
    ({"dtype": "float8_e4m3fnuz"}, kvcache.DType),
])  # fmt: skip
def test_layers_that_are_refused(options, error):
    with pytest.raises(error):
        make(**options)


def test_scales_of_a_layer_without(rows):
    with make("f32") as cache:
        sequence, _ = attended(cache, rows)
        with pytest.raises(kvcache.Unsupported):
            cache.export(sequence, 0, scales=True)
        with pytest.raises(kvcache.Unsupported):
            cache.layer_pool(0, "v_scale")
        with pytest.raises(kvcache.InvalidArgument):
            cache.layer_pool(0, "scales")
