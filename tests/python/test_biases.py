"""Biases and masks of an attend, against the same attention in float64."""

import numpy as np
import pytest

import kvcache

RANDOM = np.random.default_rng(8)
HEADS, KV_HEADS, DIM, PAST, NEW = 4, 2, 16, 20, 5
KEYS = PAST + NEW


def rows(tokens, heads, dim=DIM):
    return RANDOM.standard_normal((tokens, heads, dim), dtype=np.float32)


class Scene:
    """A sequence of PAST tokens and a step of NEW more, over a layer with or without a window."""

    def __init__(self, group=None, spans=None):
        layer = kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
        groups = [group] if group is not None else None
        self.cache = kvcache.Cache([layer], groups, page_size=4, capacity_tokens=64)
        sequence = self.cache.add()
        self.k, self.v, self.q = rows(KEYS, KV_HEADS), rows(KEYS, KV_HEADS), rows(NEW, HEADS)
        with self.cache.forward(sequence, PAST) as first:
            first.append(0, self.k[:PAST], self.v[:PAST])
        self.step = self.cache.forward([sequence], [NEW], spans=spans)

    def attend(self, **options):
        return self.step.attend(0, self.q, self.k[PAST:], self.v[PAST:], **options)

    def dense(self, seen, added=0.0, scale=DIM**-0.5):
        """seen: [NEW, KEYS] or [NEW, heads, KEYS]; added to scores, [NEW, heads, KEYS]."""
        k, v = (np.repeat(x, HEADS // KV_HEADS, axis=1).astype(np.float64) for x in (self.k, self.v))
        scores = np.einsum("nhd,shd->nhs", self.q, k) * scale + added
        scores = np.where(seen if np.ndim(seen) == 3 else seen[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
        total = weights.sum(axis=-1, keepdims=True)
        return np.einsum("nhs,shd->nhd", np.divide(weights, total, out=np.zeros_like(weights), where=total > 0), v)


@pytest.fixture
def scene():
    return Scene()


DISTANCE = (PAST + np.arange(NEW))[:, None] - np.arange(KEYS)[None]
CAUSAL = DISTANCE >= 0


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("of_each_query", [False, True])
def test_relative_bias(scene, zero, of_each_query):
    table = rows(NEW, HEADS, 7) if of_each_query else rows(1, HEADS, 7)[0]
    out = scene.attend(rel_bias=table, rel_bias_zero=zero, softmax_scale=1.0)
    entries = table if of_each_query else np.repeat(table[None], NEW, axis=0)
    near = np.clip(DISTANCE, 0, 6)
    added = np.take_along_axis(entries, np.repeat(near[:, None], HEADS, axis=1), axis=2)
    added = np.where((near != DISTANCE)[:, None] & zero, 0.0, added)
    np.testing.assert_allclose(out, scene.dense(CAUSAL, added, 1.0), atol=2e-5)


@pytest.mark.parametrize("heads", [1, KV_HEADS])
def test_key_bias(scene, heads):
    bias = RANDOM.standard_normal((2, KEYS + 3, heads), dtype=np.float32)
    out = scene.attend(key_bias=bias)
    added = np.repeat(bias[0, :KEYS].T, HEADS // heads, axis=0)[None]
    np.testing.assert_allclose(out, scene.dense(CAUSAL, added), atol=2e-5)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8])
@pytest.mark.parametrize("causal", [True, False])
def test_masks(scene, dtype, causal):
    mask = RANDOM.integers(0, 2, (NEW, KV_HEADS, KEYS + 1)).astype(dtype)
    out = scene.attend(mask=mask, causal=causal)
    seen = np.repeat(mask[..., :KEYS] != 0, HEADS // KV_HEADS, axis=1) & (CAUSAL[:, None] | (not causal))
    np.testing.assert_allclose(out, scene.dense(seen), atol=2e-5)


def test_a_mask_for_all_heads(scene):
    mask = RANDOM.integers(0, 2, (NEW + 2, KEYS)).astype(bool)
    mask[3] = False
    out = scene.attend(mask=mask)
    np.testing.assert_allclose(out, scene.dense(CAUSAL & mask[:NEW]), atol=2e-5)
    assert not out[3].any()


def test_spans_of_a_layer():
    spans = [0, 1, 1, 1, 0]
    out = Scene(spans=spans).attend()
    scene = Scene(spans=spans)
    ignored = scene.attend(spans=False)
    np.testing.assert_allclose(ignored, scene.dense(CAUSAL), atol=2e-5)
    assert np.abs(out[1] - ignored[1]).max() > 1e-3


def test_the_window_of_a_step():
    scene = Scene(kvcache.Sliding(6))
    out = scene.attend(causal=False, step_window=True)
    seen = np.repeat((np.arange(KEYS) > PAST - 6)[None], NEW, axis=0)
    np.testing.assert_allclose(out, scene.dense(seen), atol=2e-5)


def test_refusals(scene):
    with pytest.raises(kvcache.Shape, match=r"rel_bias has shape \[3, 5\], not \[heads, distances\] = \[4, 5\]"):
        scene.attend(rel_bias=np.zeros((3, 5), np.float32))
    with pytest.raises(kvcache.Shape, match="key_bias has 24 keys, and row 0 has 25 tokens") as error:
        scene.attend(key_bias=np.zeros((1, KEYS - 1, 1), np.float32))
    assert error.value.index == 0
    with pytest.raises(kvcache.DType, match="mask has dtype float32, not bool or uint8"):
        scene.attend(mask=np.zeros((NEW, KEYS), np.float32))
    with pytest.raises(kvcache.InvalidArgument, match=r"rel_bias\[0, 1, 2\] is nan"):
        scene.attend(rel_bias=np.where(np.arange(20).reshape(4, 5) == 7, np.nan, 0).astype(np.float32))
    with pytest.raises(kvcache.InvalidArgument, match="rel_bias"):
        scene.attend(rel_bias_zero=True)
    scene.attend()
