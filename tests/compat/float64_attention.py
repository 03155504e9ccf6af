"""Attention in float64, from the definition."""

import torch


def attend(q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, scale=None, slopes=None, signed=False, sinks=None):
    """q [queries, heads, D], k [keys, kv heads, D], v [keys, kv heads, Dv]: out [queries, heads, Dv], LSE [queries, heads]."""
    q, k, v = q.double(), k.double(), v.double()
    queries, heads, dim = q.shape
    keys = k.shape[0]
    k, v = k.repeat_interleave(heads // k.shape[1], 1), v.repeat_interleave(heads // v.shape[1], 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * (dim ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(keys)[None] - (torch.arange(queries) + keys - queries)[:, None]
    if slopes is not None:
        scores = scores + slopes.double()[:, None, None] * (distance if signed else -distance.abs())
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        seen &= distance <= 0
    if window[0] >= 0:
        seen &= distance >= -window[0]
    if window[1] >= 0:
        seen &= distance <= window[1]
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(heads, queries, 1)], 2)
        v = torch.cat([v, v.new_zeros(1, heads, v.shape[-1])])
    lse = scores.logsumexp(2)
    weights = (scores - lse[..., None]).exp().nan_to_num(0.0)
    return torch.einsum("hqk,khd->qhd", weights, v), lse.t()


def assert_close(got, expected, limit=2e-5):
    got, expected = got.double(), expected.double()
    assert got.shape == expected.shape
    finite = torch.isfinite(expected)
    assert torch.equal(torch.isfinite(got), finite)
    difference = (got[finite] - expected[finite]).abs().max().item() if finite.any() else 0.0
    assert difference <= limit, difference
