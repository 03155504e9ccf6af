"""What kvcache.h says about numbers: stored rows, rotation, attention. numpy, float64, no code of the library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from script import DTYPES, FLOATS

BYTES = {"e4m3": 448.0, "e5m2": 57344.0}  # the largest finite value of each


@dataclass
class Rows:
    """K or V of some tokens: as read back, and as stored. NaN in `values` stands for an unknown value."""

    values: np.ndarray  # [n, H, D] float64
    raw: np.ndarray  # [n, H, D] of the layer's dtype; of 4 bits and fp8_ds_mla [n, H, bytes of a row] uint8
    scale: np.ndarray  # [n, H] float32: int8's and uint4's; ones of other dtypes

    def __getitem__(self, which: slice | list[int]) -> Rows:
        return Rows(self.values[which], self.raw[which], self.scale[which])

    def __len__(self) -> int:
        return len(self.values)


def joined(parts: list[Rows]) -> Rows:
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "raw", "scale")))


def row_elements(dtype: str, dim: int) -> int:
    """How many elements of DTYPES[dtype] a stored row of `dim` dims has."""
    return {"u4": dim // 2, "e2m1": dim // 2 + dim // 16, "fp8_ds_mla": 656 if dim == 576 else dim + 16}.get(dtype, dim)


def unknown_rows(count: int, heads: int, dim: int, dtype: str) -> Rows:
    raw = np.zeros((count, heads, row_elements(dtype, dim)), DTYPES[dtype])
    return Rows(np.full((count, heads, dim), np.nan), raw, np.ones((count, heads), np.float32))


def rotation_signs(dims: int) -> np.ndarray:
    signs, x = [], 0x9E3779B9
    for _ in range(dims):
        x ^= x << 13 & 0xFFFFFFFF
        x ^= x >> 17
        x ^= x << 5 & 0xFFFFFFFF
        signs.append(-1.0 if x >> 31 else 1.0)
    return np.array(signs)


def by_hadamard(x: np.ndarray, block: int) -> np.ndarray:
    """Each block of the last axis times the Hadamard matrix, neighbours first, in the dtype of x."""
    apart = 1
    while apart < block:
        pairs = x.reshape(*x.shape[:-1], -1, 2, apart)
        x = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2).reshape(x.shape)
        apart *= 2
    return x


def stored_uint4(x: np.ndarray, block: int) -> Rows:
    """x [n, H, D] float32, rotated and quantised with a zero point for each row."""
    y = by_hadamard(x * rotation_signs(x.shape[-1]).astype(np.float32), block)
    least, largest = y.min(axis=-1, keepdims=True), y.max(axis=-1, keepdims=True)
    scale = np.maximum((largest - least) / np.float32(15), np.float32(1e-6))
    zero = np.clip(np.floor(-least / scale + np.float32(0.5)), 0, 15).astype(np.float32)
    levels = np.clip(np.floor(y * (np.float32(1) / scale) + zero + np.float32(0.5)), 0, 15).astype(np.uint8)
    packed = (scale.view(np.uint32) & ~np.uint32(15)) | zero.astype(np.uint32)
    return read_uint4(levels[..., 0::2] | levels[..., 1::2] << 4, packed.view(np.float32)[..., 0], block)


def read_uint4(raw: np.ndarray, scale: np.ndarray, block: int) -> Rows:
    """The rows that stored bytes [n, H, D / 2] and their scales [n, H] hold."""
    raw, bits = np.asarray(raw).view(np.uint8), np.ascontiguousarray(scale, np.float32).view(np.uint32)[..., None]
    levels = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1).astype(np.float64)
    y = (levels - (bits & 15)) * (bits & ~np.uint32(15)).view(np.float32)
    return Rows(by_hadamard(y, block) / block * rotation_signs(y.shape[-1]), raw, np.asarray(scale, np.float32))


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def stored_e2m1(x: np.ndarray, scale: np.ndarray) -> Rows:
    """x [n, H, D] float32 in blocks of 16 dims, each with a scale of its own; `scale` [n, H] of the heads."""
    y = (x / scale[..., None]).reshape(*x.shape[:-1], -1, 16)
    of_block = np.clip(np.abs(y).max(axis=-1) / np.float32(6), np.float32(2**-9), np.float32(448)).astype(DTYPES["e4m3"])
    z = np.minimum(np.abs(y) / of_block.astype(np.float32)[..., None], np.float32(6))
    # The first half of a step belongs to the even one of two neighbours.
    codes = sum((z >= middle if i % 2 else z > middle).astype(np.uint8) for i, middle in enumerate((E2M1[1:] + E2M1[:-1]) / 2))
    codes = (codes + 8 * np.signbit(y).astype(np.uint8)).reshape(x.shape)
    return read_e2m1(np.concatenate([codes[..., 0::2] | codes[..., 1::2] << 4, of_block.view(np.uint8)], axis=-1), scale)


def read_e2m1(raw: np.ndarray, scale: np.ndarray) -> Rows:
    """The rows that stored bytes [n, H, D / 2 + D / 16] and the scales [n, H] of their heads hold."""
    raw = np.asarray(raw).view(np.uint8)
    packed = raw.shape[-1] * 8 // 9
    codes = np.stack([raw[..., :packed] & 15, raw[..., :packed] >> 4], axis=-1).reshape(*raw.shape[:-1], -1)
    of_block = np.repeat((raw[..., packed:] & 127).view(DTYPES["e4m3"]).astype(np.float64), 16, axis=-1)
    values = E2M1[codes & 7] * np.where(codes < 8, 1, -1) * of_block * scale[..., None].astype(np.float64)
    return Rows(values, raw, np.asarray(scale, np.float32))


def stored_ds_mla(x: np.ndarray) -> Rows:
    """x [n, 1, 576] float32: 512 latent dims as float8, with a scale for each 128, and 64 rotary dims as bfloat16."""
    latent = x[..., :512].reshape(*x.shape[:-1], 4, 128)
    wanted = np.maximum(np.abs(latent).max(axis=-1) / np.float32(448), np.float32(1e-4))
    scale = np.exp2(np.ceil(np.log2(wanted.astype(np.float64)))).astype(np.float32)
    elements = np.clip(latent / scale[..., None], -448, 448).astype(DTYPES["e4m3"])
    parts = elements.reshape(*x.shape[:-1], 512), scale, x[..., 512:].astype(DTYPES["bf16"])
    return read_ds_mla(np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts], axis=-1))


def read_ds_mla(raw: np.ndarray) -> Rows:
    """The rows that stored bytes [n, 1, 656] hold; of V, which is their latent part, [n, 1, 528]."""
    raw = np.ascontiguousarray(raw).view(np.uint8)
    elements, scale, rotary = (np.ascontiguousarray(raw[..., begin:end]).view(DTYPES[dtype]).astype(np.float64)
                               for begin, end, dtype in ((0, 512, "e4m3"), (512, 528, "f32"), (528, None, "bf16")))  # fmt: skip
    values = np.concatenate([elements * np.repeat(scale, 128, axis=-1), rotary], axis=-1)
    return Rows(values, raw, np.ones(raw.shape[:2], np.float32))


def stored(x: np.ndarray, dtype: str, scales: np.ndarray | None = None, block: int = 0) -> Rows:
    """x [n, H, D] rounded for storage; `scales` [H] of a float8 or float4 layer, `block` of the rotation of a uint4 layer."""
    x = np.asarray(x, np.float64)
    if dtype == "u4":
        return stored_uint4(x.astype(np.float32), block)
    if dtype == "fp8_ds_mla":
        return stored_ds_mla(x.astype(np.float32))
    ones = np.ones(x.shape[:2], np.float32)
    if dtype in FLOATS:
        raw = x.astype(DTYPES[dtype])
        return Rows(raw.astype(np.float64), raw, ones)
    x32 = x.astype(np.float32)
    if dtype == "i8":
        peak = np.abs(x32).max(axis=-1)
        scale = np.where(peak == 0, np.float32(1), peak / np.float32(127)).astype(np.float32)
        raw = np.clip(np.rint(x32 / scale[..., None]), -127, 127).astype(np.int8)
    else:
        scale = ones * (1 if scales is None else np.asarray(scales, np.float32))
        if dtype == "e2m1":
            return stored_e2m1(x32, scale)
        bound = np.float32(BYTES[dtype])
        raw = np.clip(x32 / scale[..., None], -bound, bound).astype(DTYPES[dtype])
    return Rows(raw.astype(np.float64) * scale[..., None].astype(np.float64), raw, scale)


def stored_bytes(raw: np.ndarray, dtype: str, scale: np.ndarray, block: int = 0) -> Rows:
    """Stored bytes as they were exported, with the scale of each token and head."""
    if dtype == "u4":
        return read_uint4(raw, scale, block)
    if dtype == "e2m1":
        return read_e2m1(raw, scale)
    if dtype == "fp8_ds_mla":
        return read_ds_mla(raw)
    raw = np.asarray(raw).view(DTYPES[dtype])
    return Rows(raw.astype(np.float64) * scale[..., None].astype(np.float64), raw, scale)


@dataclass
class Rope:
    """The rope_* fields of a layer."""

    mode: str | None
    dim: int
    offset: int
    interleaved: bool
    theta: float
    divide: np.ndarray | float  # frequencies are divided by this
    attention_factor: float

    def cos_sin(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        frequencies = self.theta ** (-2.0 * np.arange(self.dim // 2) / self.dim) / self.divide
        angles = np.asarray(positions, np.float64)[:, None] * frequencies
        return np.cos(angles) * self.attention_factor, np.sin(angles) * self.attention_factor

    def rotate(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        """x [n, H, D] by cos and sin [n, dim / 2]."""
        x = np.array(x, np.float64)
        part, half = x[..., self.offset : self.offset + self.dim], self.dim // 2
        first, second = (part[..., 0::2], part[..., 1::2]) if self.interleaved else (part[..., :half], part[..., half:])
        cos, sin = cos[:, None, :], sin[:, None, :]
        pairs = first * cos - second * sin, second * cos + first * sin
        if self.interleaved:
            part[..., 0::2], part[..., 1::2] = pairs
        else:
            part[..., :half], part[..., half:] = pairs
        return x


@dataclass
class Scores:
    """The options of an attend that change scores."""

    scale: float
    softcap: float = 0.0
    slopes: np.ndarray | None = None  # [Hq]
    sinks: np.ndarray | None = None  # [Hq]
    signed: bool = False  # distances of slopes
    added: np.ndarray | None = None  # [n, Hq, S]: relative and key biases


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray, distance: np.ndarray,
              options: Scores) -> tuple[np.ndarray, np.ndarray]:
    """q [n, S or 1, Hq, D] (a query may look unlike to each key), k and v [S, Hkv, D], seen [n, S] or [n, Hq, S],
    distance [n, S]: out [n, Hq, Dv] and lse [n, Hq]."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    heads = q.shape[2] // k.shape[1]
    k, v = np.repeat(k, heads, axis=1), np.repeat(v, heads, axis=1)
    scores = np.einsum("nshd,shd->nhs", np.broadcast_to(q, (q.shape[0], len(k), *q.shape[2:])), k) * options.scale
    if options.softcap:
        scores = options.softcap * np.tanh(scores / options.softcap)
    if options.slopes is not None:
        scores = scores - np.asarray(options.slopes, np.float64)[None, :, None] * (
            distance if options.signed else np.abs(distance))[:, None, :]
    if options.added is not None:
        scores = scores + options.added
    scores = np.where(seen if seen.ndim == 3 else seen[:, None, :], scores, -np.inf)
    if options.sinks is not None:
        sink = np.broadcast_to(np.asarray(options.sinks, np.float64)[None, :, None], (*scores.shape[:2], 1))
        scores = np.concatenate([scores, sink], axis=-1)
        v = np.concatenate([v, np.zeros((1, *v.shape[1:]))])
    if scores.shape[-1] == 0:
        return np.zeros((*scores.shape[:2], v.shape[-1])), np.full(scores.shape[:2], -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    weights = np.exp(scores - peak)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.einsum("nhs,shd->nhd", np.where(total > 0, weights / total, 0.0), v)
        return out, (peak + np.log(total))[..., 0]


def merged(outs: list[np.ndarray], lses: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Attention over disjoint keys, by the sums of exponentials."""
    stacked = np.stack([np.asarray(lse, np.float64) for lse in lses])
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = stacked.max(axis=0)
        weights = np.exp(stacked - np.where(np.isfinite(peak), peak, 0.0))
        total = weights.sum(axis=0)
        out = sum(w[..., None] * np.asarray(o, np.float64) for w, o in zip(weights, outs))
        return np.where(total[..., None] > 0, out / total[..., None], 0.0), peak + np.log(total)


