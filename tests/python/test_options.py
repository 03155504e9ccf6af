"""The options of attend, and merging of parts, against dense attention in numpy float64."""

import numpy as np
import pytest

import kvcache

HQ, HKV, D, DV, PAST = 6, 2, 16, 24, 19


def dense(q, k, v, softcap=0.0, softmax_scale=0.0, alibi_slopes=None, sinks=None, causal=True, part=None):
    """q holds the last rows of k and v. Returns out and LSE; a row that sees nothing has 0 and -inf."""
    new, length = len(q), len(k)
    k, v = (np.repeat(x.astype(np.float64), HQ // HKV, axis=1) for x in (k, v))
    scores = np.einsum("thd,shd->ths", q.astype(np.float64), k) * (softmax_scale or D**-0.5)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    position, key = np.arange(length - new, length)[:, None], np.arange(length)[None, :]
    if alibi_slopes is not None:
        scores -= alibi_slopes[None, :, None] * np.abs(position - key)[:, None, :]
    seen = np.full((new, length), True) if not causal else key <= position
    if part is not None:
        seen = seen & ((key < length - new) == (part == "past"))
    weights = np.where(seen[:, None, :], np.exp(scores), 0.0)
    total = weights.sum(axis=-1) + (0.0 if sinks is None else np.exp(sinks.astype(np.float64)))
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.nan_to_num(np.einsum("ths,shd->thd", weights, v) / total[..., None])
        return out, np.log(total)


@pytest.fixture
def filled(qkv):
    """A cache with PAST tokens, and arrays for a step: (cache, sequence, k so far, v so far, make)."""
    with kvcache.Cache([kvcache.Layer(q_heads=HQ, kv_heads=HKV, head_dim=D, v_head_dim=DV)], page_size=4,
                       capacity_tokens=256) as cache:  # fmt: skip
        sequence = cache.add()
        q, k, v = qkv(PAST, HQ, HKV, D, DV)
        with cache.forward([sequence], [PAST]) as step:
            step.attend(0, q, k, v)
        yield cache, sequence, k, v


SLOPES = (2.0 ** -np.arange(1, HQ + 1)).astype(np.float32)
SINKS = np.linspace(-2, 2, HQ).astype(np.float32)


@pytest.mark.parametrize("tokens", [1, 33])
@pytest.mark.parametrize("options", [
    {"softcap": 1.5}, {"softmax_scale": 0.6}, {"alibi_slopes": SLOPES}, {"sinks": SINKS}, {"causal": False},
    {"part": "past"}, {"part": "self"}, {"part": "self", "causal": False},
    {"softcap": 2, "softmax_scale": 1, "alibi_slopes": SLOPES, "sinks": SINKS, "causal": False},
])  # fmt: skip
def test_each_option(tokens, options, filled, qkv):
    cache, sequence, past_k, past_v = filled
    q, k, v = qkv(tokens, HQ, HKV, D, DV)
    with cache.forward([sequence], [tokens]) as step:
        out, lse = step.attend(0, q, k, v, lse=True, **options)
    expected_out, expected_lse = dense(q, np.concatenate([past_k, k]), np.concatenate([past_v, v]), **options)
    np.testing.assert_allclose(out, expected_out, atol=3e-5)
    np.testing.assert_allclose(lse, expected_lse, atol=3e-5)


def test_parts_merge_to_the_whole(filled, qkv):
    cache, sequence, past_k, past_v = filled
    q, k, v = qkv(5, HQ, HKV, D, DV)
    with cache.forward([sequence], [5]) as step:
        past = step.attend(0, q, lse=True, part="past")
        new = step.attend(0, q, k, v, lse=True, part="self", sinks=SINKS)
    out, lse = kvcache.Context().merge_states([past[0], new[0]], [past[1], new[1]])
    expected_out, expected_lse = dense(q, np.concatenate([past_k, k]), np.concatenate([past_v, v]), sinks=SINKS)
    np.testing.assert_allclose(out, expected_out, atol=3e-5)
    np.testing.assert_allclose(lse, expected_lse, atol=3e-5)
    assert out.dtype == lse.dtype == np.float32


def test_parts_that_saw_nothing():
    context = kvcache.Context()
    nothing, seen = np.full((2, 3, 4), np.nan, np.float32), np.ones((2, 3, 4), np.float32)
    empty, some = np.full((2, 3), -np.inf, np.float32), np.zeros((2, 3), np.float32)
    out, lse = context.merge_states([nothing, seen, nothing], [empty, some, empty])
    assert (out == 1).all() and (lse == 0).all()
    out, lse = context.merge_states([nothing, nothing], [empty, empty])
    assert (out == 0).all() and (lse == -np.inf).all()


def test_refusals(filled, qkv):
    cache, sequence, _, _ = filled
    q, k, v = qkv(2, HQ, HKV, D, DV)
    with cache.forward([sequence], [2]) as step:
        with pytest.raises(kvcache.OutOfRange, match="softcap -1"):
            step.attend(0, q, k, v, softcap=-1)
        with pytest.raises(kvcache.OutOfRange, match="softmax_scale nan"):
            step.attend(0, q, k, v, softmax_scale=float("nan"))
        with pytest.raises(kvcache.Shape, match="alibi_slopes has shape"):
            step.attend(0, q, k, v, alibi_slopes=SLOPES[:-1])
        with pytest.raises(kvcache.DType, match="sinks"):
            step.attend(0, q, k, v, sinks=SINKS.astype(np.float64))
        for part in ("both", 3):
            with pytest.raises(kvcache.InvalidArgument, match=f"part must be .*, not {part!r}"):
                step.attend(0, q, k, v, part=part)
        with pytest.raises(TypeError):
            step.attend(0, q, k, v, sinks="many")
        step.attend(0, q, k, v, part="self")
        with pytest.raises(kvcache.Order):
            step.attend(0, q, part="self")
        with pytest.raises(kvcache.Order):
            step.attend(0, q)
    context = kvcache.Context()
    with pytest.raises(ValueError):
        context.merge_states([], [])
    with pytest.raises(ValueError):
        context.merge_states([q], [])
    with pytest.raises(kvcache.Shape) as raised:
        context.merge_states([q, q[:1]], [np.zeros((2, HQ), np.float32)] * 2)
    assert raised.value.index == 1


@pytest.mark.parametrize("name", ["sinks", "alibi_slopes"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_stays_with_its_head(filled, qkv, name, value):
    """The values of a tensor are not checked, and affect no other head."""
    cache, sequence, _, _ = filled
    for tokens in (1, 30):
        q, k, v = qkv(tokens, HQ, HKV, D, DV)
        good = {"sinks": SINKS, "alibi_slopes": SLOPES}[name]
        bad = good.copy()
        bad[1] = value
        outs = []
        for numbers in (good, bad):
            step = cache.forward([sequence], [tokens])
            outs.append(step.attend(0, q, k, v, lse=True, **{name: numbers}))
            step.abort()
        others = np.arange(HQ) != 1
        for expected, got in zip(*outs):
            np.testing.assert_array_equal(got[:, others], expected[:, others])
        assert not np.array_equal(outs[0][1][:, 1], outs[1][1][:, 1])
