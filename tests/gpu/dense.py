"""Attention in numpy float64, from the definitions: no pages, no cache, no code of the library."""

import numpy as np

product = np.matmul  # [H, n, k] @ [H, k, m] in float64; devices.Card has a faster one


def seen_by(positions, keys, window=None, chunk=None, causal=True):
    """[T, S]: whether a query at positions[t] sees key j < keys."""
    query, key = np.asarray(positions)[:, None], np.arange(keys)[None, :]
    seen = np.broadcast_to(key <= query if causal else np.ones_like(key, bool), (len(positions), keys)).copy()
    if window is not None:
        seen &= key > query - window
    if chunk is not None:
        seen &= key // chunk == query // chunk
    return seen


def tree_sees(parents, length):
    """[nodes, length + nodes] and depths: a node sees the tokens before the tree, its ancestors and itself."""
    nodes = len(parents)
    seen = np.zeros((nodes, length + nodes), bool)
    seen[:, :length] = True
    depths = np.zeros(nodes, np.int64)
    for node in range(nodes):
        walk = node
        while walk >= 0:
            seen[node, length + walk] = True
            walk = parents[walk]
        depths[node] = depths[parents[node]] + 1 if parents[node] >= 0 else 0
    return seen, depths


def attention(q, k, v, seen, positions, key_positions, scale, softcap=0.0, slopes=None, sinks=None):
    """q [T, Hq, D] over k [S, Hkv, D] and v [S, Hkv, Dv]: out [T, Hq, Dv] and natural-log LSE [T, Hq]."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(1, 0, 2) for x in (q, np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)))
    scores = (product(q, k.transpose(0, 2, 1)) * scale).transpose(1, 0, 2)  # [T, Hq, S]
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if slopes is not None:
        distance = np.abs(np.asarray(positions)[:, None] - np.asarray(key_positions)[None, :])
        scores -= np.asarray(slopes, np.float64)[None, :, None] * distance[:, None, :]
    scores = np.where(seen[:, None, :], scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sinks is not None:
        peak = np.maximum(peak, np.asarray(sinks, np.float64)[None, :, None])
    peak = np.where(np.isfinite(peak), peak, 0.0)
    weights = np.exp(scores - peak)
    total = weights.sum(axis=-1)
    if sinks is not None:
        total = total + np.exp(np.asarray(sinks, np.float64)[None, :] - peak[..., 0])
    out = product(weights.transpose(1, 0, 2), v).transpose(1, 0, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(total[..., None] > 0, out / total[..., None], 0.0)
        lse = np.where(total > 0, np.log(total) + peak[..., 0], -np.inf)
    return out, lse


def rotate(x, positions, theta=1e4):
    """[T, H, D] at `positions`: pairs (i, i + D / 2)."""
    x = np.asarray(x).astype(np.float64)
    half = x.shape[-1] // 2
    angles = np.asarray(positions, np.float64)[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
