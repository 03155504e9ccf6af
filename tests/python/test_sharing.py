"""Shared prefixes and the deterministic switch."""

import numpy as np
import pytest

import kvcache

LAYER = kvcache.Layer(q_heads=8, kv_heads=2, head_dim=32)


def decode_forks(qkv, **options):
    """8 forks of a prompt of 1,500 tokens decode together. Returns the outputs and the plan."""
    with kvcache.Cache([LAYER], capacity_tokens=4096, **options) as cache:
        parent = cache.add()
        with cache.forward([parent], [1500]) as step:
            step.attend(0, *qkv(1500, 8, 2, 32))
        forks = cache.fork([parent] * 8)
        with cache.forward(forks, [1] * 8) as step:
            return step.attend(0, *qkv(8, 8, 2, 32)), step.describe()["work"][0]


def test_a_prompt_is_read_once():
    results = {}
    for sharing in ("auto", "never", "always"):
        rng = np.random.default_rng(3)

        def qkv(tokens, q_heads, kv_heads, dim, rng=rng):
            return tuple(rng.standard_normal((tokens, h, dim)).astype(np.float32) for h in (q_heads, kv_heads, kv_heads))

        results[sharing] = decode_forks(qkv, share_prefixes=sharing)
    out, plan = results["never"]
    assert plan["prefix_groups"] == 0
    for sharing in ("auto", "always"):
        np.testing.assert_allclose(results[sharing][0], out, atol=1e-5)
        assert results[sharing][1]["prefix_groups"] == 1
        assert results[sharing][1]["kv_bytes"] < plan["kv_bytes"] / 7


def test_deterministic_bits_do_not_depend_on_the_cut(qkv):
    q, k, v = qkv(1300, 8, 2, 32)

    def run(cuts, threads):
        context = kvcache.Context(threads=threads)
        with kvcache.Cache([LAYER], capacity_tokens=4096, deterministic=True, context=context) as cache:
            sequence, outs = cache.add(), []
            for begin, end in zip([0, *cuts], [*cuts, 1300], strict=True):
                with cache.forward([sequence], [end - begin]) as step:
                    outs.append(step.attend(0, q[begin:end], k[begin:end], v[begin:end]))
            return np.concatenate(outs)

    once = run([], 1)
    assert np.array_equal(once, run([7, 500, 1100, *range(1280, 1300)], 2))


@pytest.mark.parametrize("options", [
    {"share_prefixes": "sometimes"}, {"share_prefixes": "always", "deterministic": True},
])  # fmt: skip
def test_refused(options):
    with pytest.raises(kvcache.InvalidArgument):
        kvcache.Cache([LAYER], capacity_tokens=64, **options)
    with pytest.raises(kvcache.InvalidArgument):
        kvcache.estimate([LAYER], capacity_tokens=64, **options)
