"""Dense attention in numpy float64: no pages, no cache, no code of the library."""

import numpy as np

try:
    import ml_dtypes

    BF16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BF16 = None

NUMPY_DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": BF16}


def rope(x, positions, theta=10000.0, rope_dim=0):
    """Rotates [T, H, D] at `positions`: half-split pairs (i, i + rope_dim / 2)."""
    x = np.array(x, dtype=np.float64)
    dim = rope_dim or x.shape[-1]
    half = dim // 2
    angles = np.asarray(positions, np.float64)[:, None] * theta ** (-2.0 * np.arange(half) / dim)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    first, second = x[..., :half].copy(), x[..., half:dim].copy()
    x[..., :half] = first * cos - second * sin
    x[..., half:dim] = second * cos + first * sin
    return x


def attention(q, k, v, q_positions, window=None, scale=None, chunk=None):
    """q [T, Hq, D] at `q_positions` over keys 0..S-1, k [S, Hkv, D] and v [S, Hkv, Dv]: (out, lse)."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("thd,shd->ths", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    query, key = np.asarray(q_positions)[:, None], np.arange(k.shape[0])[None, :]
    seen = key <= query
    if window is not None:
        seen &= key > query - window
    if chunk is not None:
        seen &= key // chunk == query // chunk
    scores = np.where(seen[:, None, :], scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - peak)
    total = weights.sum(axis=-1, keepdims=True)
    return np.einsum("ths,shd->thd", weights / total, v), (peak + np.log(total))[..., 0]


class DenseLayer:
    """The expected contents of one layer for each sequence, and the expected attention over them."""

    def __init__(self, dtype="f32", window=None, scale=None, theta=None, rope_dim=0, chunk=None):
        self.dtype, self.window, self.scale, self.theta, self.rope_dim = dtype, window, scale, theta, rope_dim
        self.chunk = chunk
        self.keys, self.values = {}, {}  # sequence -> [S, Hkv, D], as stored

    def round(self, x, dtype=None):
        return np.asarray(x).astype(NUMPY_DTYPES[dtype or self.dtype])

    def length(self, sequence):
        return len(self.keys[sequence]) if sequence in self.keys else 0

    def step(self, sequences, lengths, q, k, v, q_dtype="f32"):
        """Appends and attends: the rows of out and lse, in batch order."""
        outs, lses, row = [], [], 0
        for sequence, count in zip(sequences, lengths):
            rows, start = slice(row, row + count), self.length(sequence)
            row += count
            positions = np.arange(start, start + count)
            new_q, new_k = np.asarray(q)[rows], np.asarray(k)[rows]
            if self.theta is not None:
                new_q = self.round(rope(new_q, positions, self.theta, self.rope_dim), q_dtype)
                new_k = rope(new_k, positions, self.theta, self.rope_dim)
            self._extend(self.keys, sequence, self.round(new_k))
            self._extend(self.values, sequence, self.round(np.asarray(v)[rows]))
            out, lse = attention(new_q, self.keys[sequence], self.values[sequence], positions, self.window, self.scale,
                                 self.chunk)
            outs.append(out), lses.append(lse)
        return np.concatenate(outs), np.concatenate(lses)

    def fork(self, parent, child, position=None):
        self.keys[child], self.values[child] = self.keys[parent][:position], self.values[parent][:position]

    def truncate(self, sequence, length):
        self.keys[sequence], self.values[sequence] = self.keys[sequence][:length], self.values[sequence][:length]

    @staticmethod
    def _extend(store, sequence, new):
        store[sequence] = np.concatenate([store[sequence], new]) if sequence in store else new
