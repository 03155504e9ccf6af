"""RoPE settings of a layer against numpy: layouts, scalings, tables, longrope's factor sets."""

import numpy as np
import pytest

import kvcache
from reference import attention

DIM = 32
INVERSE = 10000.0 ** (-2.0 * np.arange(DIM // 2) / DIM)


def turn(x, angles, factor=1.0, interleaved=False, offset=0):
    """x [T, H, D] by angles [T, pairs]."""
    x, half = np.array(x, np.float64), angles.shape[1]
    cos, sin = factor * np.cos(angles)[:, None], factor * np.sin(angles)[:, None]
    first = offset + np.arange(half) * (2 if interleaved else 1)
    second = first + (1 if interleaved else half)
    a, b = x[..., first].copy(), x[..., second].copy()
    x[..., first], x[..., second] = a * cos - b * sin, b * cos + a * sin
    return x


def test_on_read_stores_raw_keys_and_attends_as_on_append():
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((50, 2, DIM), np.float32) for _ in range(3))
    outs = []
    for rope in ("on_append", "on_read"):
        layer = kvcache.Layer(q_heads=2, kv_heads=2, head_dim=DIM, rope=rope)
        with kvcache.Cache([layer], capacity_tokens=256) as cache:
            a = cache.add()
            with cache.forward(a, 50) as step:
                outs.append(step.attend(0, q, k, v))
            if rope == "on_read":
                np.testing.assert_array_equal(np.asarray(cache.export(a, 0)[0]), k)
    np.testing.assert_array_equal(*outs)


def check(layer, angles, rotate_options=None, table=None, prepare=None):
    """One prefill of the layer in a new cache, compared with attention over rows that numpy rotated."""
    random = np.random.default_rng(4)
    count = len(angles)
    q, k, v = (random.standard_normal((count, 2, layer.head_dim), np.float32) for _ in range(3))
    with kvcache.Cache([layer], capacity_tokens=256) as cache:
        a = cache.add()
        if prepare:
            prepare(cache, a)
        with cache.forward(a, count) as step:
            out = step.attend(0, q, k, v, rope_cos_sin=table)
        keys = turn(k, angles, **(rotate_options or {}))
        np.testing.assert_allclose(np.asarray(cache.export(a, 0)[0]), keys, atol=1e-5)
        wanted, _ = attention(turn(q, angles, **(rotate_options or {})), keys, v, np.arange(count))
        np.testing.assert_allclose(out, wanted, atol=3e-5)


def angles_of(inverse, count=30):
    return np.arange(count)[:, None] * inverse


def layer_with(**settings):
    return kvcache.Layer(q_heads=2, kv_heads=2, head_dim=DIM, rope="on_append", **settings)


def test_interleaved_pairs_at_an_offset():
    layer = layer_with(rope_dim=16, rope_offset=8, rope_interleaved=True, rope_theta=100.0)
    inverse = 100.0 ** (-2.0 * np.arange(8) / 16)
    check(layer, angles_of(inverse), {"interleaved": True, "offset": 8})


def test_linear():
    check(layer_with(rope_scaling=kvcache.RopeScaling("linear", factor=8)), angles_of(INVERSE / 8))


def test_llama3():
    scaling = kvcache.RopeScaling("llama3", factor=8, original_max_position=64, low_freq_factor=1, high_freq_factor=4)
    kept = np.clip((64 * INVERSE / (2 * np.pi) - 1) / 3, 0, 1)
    check(layer_with(rope_scaling=scaling), angles_of(INVERSE * (kept + (1 - kept) / 8)))


@pytest.mark.parametrize("truncate", [True, False])
def test_yarn(truncate):
    scaling = kvcache.RopeScaling("yarn", factor=4, original_max_position=64, truncate=truncate)
    low, high = (DIM * np.log(64 / (turns * 2 * np.pi)) / (2 * np.log(10000)) for turns in (32, 1))
    if truncate:
        low, high = np.floor(low), np.ceil(high)
    ramp = np.clip((np.arange(DIM // 2) - max(low, 0)) / (high - max(low, 0)), 0, 1)
    check(layer_with(rope_scaling=scaling), angles_of(INVERSE * (1 - ramp + ramp / 4)),
          {"factor": 0.1 * np.log(4) + 1})


@pytest.mark.parametrize("factors", ["short", "long"])
def test_longrope(factors):
    short, long = np.linspace(1, 2, DIM // 2), np.linspace(3, 60, DIM // 2)
    scaling = kvcache.RopeScaling("longrope", factor=32, original_max_position=4096, short_factors=short,
                                  long_factors=long)
    check(layer_with(rope_scaling=scaling), angles_of(INVERSE / (short if factors == "short" else long)),
          {"factor": np.sqrt(1 + np.log(32) / np.log(4096))},
          prepare=lambda cache, a: cache.set_rope(a, factors))


def longrope(mode, original):
    scaling = kvcache.RopeScaling("longrope", factor=32, original_max_position=original,
                                  short_factors=np.linspace(1, 2, DIM // 2), long_factors=np.linspace(3, 60, DIM // 2))
    return kvcache.Layer(q_heads=2, kv_heads=2, head_dim=DIM, rope=mode, rope_scaling=scaling)


def test_stored_nodes_fix_the_set_too():
    random = np.random.default_rng(5)
    with kvcache.Cache([longrope("on_append", 4096)], capacity_tokens=256) as cache:
        a = cache.add()
        with cache.forward([a], [3], parents=[[-1, 0, 1]]) as step:
            step.attend(0, *(random.standard_normal((3, 2, DIM), np.float32) for _ in range(3)))
        with pytest.raises(kvcache.Order, match="3 tokens"):
            cache.set_rope(a, "long")
        cache.commit(a, -1)
        cache.set_rope(a, "long")


def test_a_wide_tree_is_no_long_sequence():
    random = np.random.default_rng(6)
    rows = [random.standard_normal((18, 2, DIM), np.float32) for _ in range(3)]
    new = [random.standard_normal((5, 2, DIM), np.float32) for _ in range(3)]
    with kvcache.Cache([longrope("on_read", 20)], capacity_tokens=256) as cache:
        a = cache.add()
        with cache.forward(a, 18) as step:
            step.attend(0, *rows)
        b = cache.fork(a)
        with cache.forward([a], [5], parents=[[-1] * 5]) as step:  # five nodes at position 18
            tree = step.attend(0, *new)
        with cache.forward(b, 1) as step:
            plain = step.attend(0, *(x[:1] for x in new))
    np.testing.assert_allclose(tree[:1], plain, atol=1e-6)


def test_three_axes():
    axis = np.array([0] * 8 + [1] * 4 + [2] * 4)
    positions = np.random.default_rng(2).integers(0, 50, (20, 3))
    angles = positions[:, axis] * INVERSE
    table = np.ascontiguousarray(np.stack([np.cos(angles), np.sin(angles)], axis=1), np.float32)
    check(layer_with(), angles, table=table)


def test_refusals():
    with pytest.raises(kvcache.InvalidArgument, match="factor 0.5 of linear") as caught:
        kvcache.Cache([layer_with(rope_scaling=kvcache.RopeScaling("linear", factor=0.5))], capacity_tokens=32)
    assert caught.value.index == 0
    with pytest.raises(kvcache.InvalidArgument, match="ntk"):
        kvcache.Cache([layer_with(rope_scaling=kvcache.RopeScaling("ntk", factor=2))], capacity_tokens=32)
    with pytest.raises(kvcache.InvalidArgument, match=r"len\(short_factors\) 1 of longrope is not 16"):
        scaling = kvcache.RopeScaling("longrope", original_max_position=16, short_factors=[1.0], long_factors=[1.0] * 16)
        kvcache.Cache([layer_with(rope_scaling=scaling)], capacity_tokens=32)
    with pytest.raises(TypeError):
        kvcache.Cache([layer_with(rope_scaling=kvcache.RopeScaling("linear", factor="8"))], capacity_tokens=32)
    with kvcache.Cache([layer_with()], capacity_tokens=32) as cache:
        a = cache.add()
        with pytest.raises(kvcache.Unsupported):
            cache.set_rope(a, "long")
        with pytest.raises(kvcache.InvalidArgument, match='not "medium"'):
            cache.set_rope(a, "medium")
        rows = np.zeros((2, 2, DIM), np.float32)
        with cache.forward(a, 2) as step:
            with pytest.raises(kvcache.Shape, match="rope_cos_sin"):
                step.attend(0, rows, rows, rows, rope_cos_sin=np.zeros((2, 2, DIM), np.float32))
            step.attend(0, rows, rows, rows)
