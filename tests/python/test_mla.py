"""MLA groups: latent rows that are stored once, with q in latent space or with the model's projections, compared with numpy
float64."""

import numpy as np
import pytest
from reference import rope

import kvcache

HEADS, LATENT, ROTARY, NOPE, OUT, SCALE = 6, 32, 8, 12, 10, 0.2
ROW = LATENT + ROTARY
PAST = 21


def make(**options):
    layer = kvcache.Layer(q_heads=HEADS, head_dim=ROW, latent_dim=LATENT, scale=SCALE, rope="on_append", **options)
    return kvcache.Cache([layer], groups=[kvcache.Full(row="latent")], page_size=4, capacity_tokens=256)


def softmax_rows(scores, values, first):
    """Causal: query i is at position first + i. scores [T, H, S], values [S, H, D] or [S, D]."""
    key = np.arange(scores.shape[-1])
    seen = key[None, :] <= np.arange(first, first + len(scores))[:, None]
    weights = np.where(seen[:, None, :], np.exp(scores), 0.0)
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("ths,shd->thd" if values.ndim == 3 else "ths,sd->thd", weights, values)


@pytest.fixture
def rows():
    """The given rows of PAST tokens and 30 more."""
    return np.random.default_rng(3).standard_normal((PAST + 30, 1, ROW), dtype="f4")


def as_stored(rows):
    rotated = np.array(rows, float)
    rotated[..., LATENT:] = rope(rows[..., LATENT:], np.arange(len(rows)))
    return rotated[:, 0]


def filled(cache, rows):
    sequence = cache.add()
    with cache.forward([sequence], [PAST]) as step:
        step.append(0, rows[:PAST])
    return sequence


@pytest.mark.parametrize("tokens", [1, 30])
def test_absorbed_queries(rows, tokens):
    q = np.random.default_rng(4).standard_normal((tokens, HEADS, ROW), dtype="f4")
    with make() as cache:
        sequence = filled(cache, rows)
        with cache.forward([sequence], [tokens]) as step:
            out = step.attend(0, q, rows[PAST : PAST + tokens])
    stored = as_stored(rows[: PAST + tokens])
    rotated = np.array(q, float)
    rotated[..., LATENT:] = rope(q[..., LATENT:], np.arange(PAST, PAST + tokens))
    expected = softmax_rows(SCALE * np.einsum("thd,sd->ths", rotated, stored), stored[:, :LATENT], PAST)
    assert out.shape == (tokens, HEADS, LATENT)
    np.testing.assert_allclose(out, expected, atol=3e-5)


@pytest.mark.parametrize("tokens", [1, 30])
@pytest.mark.parametrize("parts", [False, True])
def test_projections_as_the_checkpoint_has_them(rows, tokens, parts):
    random = np.random.default_rng(5)
    kv_b = random.standard_normal((HEADS * (NOPE + OUT), LATENT), dtype="f4") / LATENT**0.5
    w = kv_b.reshape(HEADS, NOPE + OUT, LATENT)
    q = random.standard_normal((tokens, HEADS, NOPE + ROTARY), dtype="f4")
    new = rows[PAST : PAST + tokens]
    kv = (new[..., LATENT:], new[..., :LATENT]) if parts else (new,)
    with make() as cache:
        sequence = filled(cache, rows)
        with cache.forward([sequence], [tokens]) as step:
            out, lse = step.attend(0, q, *kv, lse=True, w_uk=w[:, :NOPE], w_uv=w[:, NOPE:])
    stored = as_stored(rows[: PAST + tokens])
    latent, rotary = stored[:, :LATENT], stored[:, LATENT:]
    keys = np.einsum("hnl,sl->shn", w[:, :NOPE].astype(float), latent)
    values = np.einsum("hdl,sl->shd", w[:, NOPE:].astype(float), latent)
    q_rotary = rope(q[..., NOPE:], np.arange(PAST, PAST + tokens))
    scores = np.einsum("thn,shn->ths", q[..., :NOPE].astype(float), keys) + np.einsum("thr,sr->ths", q_rotary, rotary)
    assert out.shape == (tokens, HEADS, OUT) and lse.shape == (tokens, HEADS)
    np.testing.assert_allclose(out, softmax_rows(SCALE * scores, values, PAST), atol=3e-5)


def test_deepseeks_dims():
    """Scenario K with the model's projections: 128 heads, latent 512, rotary 64, v 128. A prompt and a chunk over a past are
    decompressed. Decode and drafts are absorbed. There is a fork, and tokens are truncated."""
    heads, latent, rotary, nope, v_dim, scale = 128, 512, 64, 128, 128, 0.13523
    random = np.random.default_rng(6)
    w = random.standard_normal((heads, nope + v_dim, latent), dtype="f4") / latent**0.5
    layer = kvcache.Layer(q_heads=heads, head_dim=latent + rotary, latent_dim=latent, scale=scale, rope="on_append")
    with kvcache.Cache([layer], groups=[kvcache.Full(row="latent")], capacity_tokens=1024) as cache:
        stored = {cache.add(): np.empty((0, latent + rotary))}

        def step(sequence, tokens):
            first = len(stored[sequence])
            positions = np.arange(first, first + tokens)
            q = random.standard_normal((tokens, heads, nope + rotary), dtype="f4")
            row = random.standard_normal((tokens, 1, latent + rotary), dtype="f4")
            with cache.forward([sequence], [tokens]) as forward:
                out = forward.attend(0, q, row[..., latent:], row[..., :latent], w_uk=w[:, :nope], w_uv=w[:, nope:])
            rotated = np.concatenate([row[:, 0, :latent], rope(row[..., latent:], positions)[:, 0]], axis=-1)
            stored[sequence] = np.concatenate([stored[sequence], rotated])
            keys = stored[sequence]
            for h in (0, 63, 127):
                up = w[h].astype(float)
                q_rotary = rope(q[:, h : h + 1, nope:], positions)[:, 0]
                scores = q[:, h, :nope] @ (keys[:, :latent] @ up[:nope].T).T + q_rotary @ keys[:, latent:].T
                expected = softmax_rows(scale * scores[:, None], keys[:, :latent] @ up[nope:].T, first)
                np.testing.assert_allclose(out[:, h], expected[:, 0], atol=1e-4, err_msg=f"head {h}, {tokens} tokens")

        (sequence,) = stored
        for tokens in (60, 345, 1):
            step(sequence, tokens)
        child = cache.fork(sequence, 100)
        stored[child] = stored[sequence][:100]
        step(child, 1)
        step(sequence, 5)
        cache.truncate(sequence, 407)
        stored[sequence] = stored[sequence][:407]
        step(sequence, 1)


def test_rows_are_stored_and_exported_once(rows):
    with make(dtype="f16") as cache:
        sequence = filled(cache, rows)
        k, v = (x.numpy() for x in cache.export(sequence, 0))
        assert k.shape == (PAST, 1, ROW)
        np.testing.assert_array_equal(v, k[..., :LATENT])
        assert cache.stats().storage_bytes == 256 * ROW * 2
        pools = [cache.layer_pool(0, which).numpy() for which in "kv"]
        assert [pool.shape for pool in pools] == [(64, 1, 4, ROW), (64, 1, 4, LATENT)]
        assert pools[0].__array_interface__["data"][0] == pools[1].__array_interface__["data"][0]
        copy = cache.add()
        cache.import_(copy, [k], as_stored=True)
        np.testing.assert_array_equal(cache.export(copy, 0)[0].numpy(), k)
        fork = cache.fork(sequence, 9)
        np.testing.assert_array_equal(cache.export(fork, 0)[0].numpy(), k[:9])


def test_what_makes_no_sense(rows):
    with pytest.raises(kvcache.InvalidArgument, match="scale 0 of an MLA"):
        kvcache.Cache([kvcache.Layer(head_dim=ROW, latent_dim=LATENT)], groups=[kvcache.Full(row="latent")], capacity_tokens=64)
    with pytest.raises(kvcache.InvalidArgument, match="latent_dim"):
        kvcache.Cache([kvcache.Layer(head_dim=ROW, latent_dim=LATENT, scale=1.0)], capacity_tokens=64)
    w = np.zeros((HEADS, NOPE, LATENT), "f4")
    q = np.zeros((1, HEADS, NOPE + ROTARY), "f4")
    with make() as cache:
        sequence = filled(cache, rows)
        with cache.forward([sequence], [1]) as step:
            with pytest.raises(kvcache.NullArgument, match="w_uv"):
                step.attend(0, q, rows[:1], w_uk=w, out=q)
            with pytest.raises(kvcache.Shape, match="w_uk"):
                step.attend(0, q, rows[:1], w_uk=w[:2], w_uv=w)
            step.attend(0, q, rows[:1], w_uk=w, w_uv=w)
