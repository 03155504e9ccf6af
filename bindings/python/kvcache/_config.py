"""What a cache is made of: contexts, layers and layer groups."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from . import _kvcache
from ._errors import InvalidArgument
from ._rope import RopeScaling

_DEVICE_TYPES = {"cpu": 1, "cuda": 2}
_LOG_LEVELS = {1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG}
_ROPE_INTERLEAVED = 1
_KEYS_ONLY = 2
_ROPE_MODES = {None: 0, "none": 0, "on_append": 1, "on_read": 2}
_ROW_FORMATS = {None: 0, "fp8_ds_mla": 1}


def _parse_device(device: str | tuple[int, int]) -> tuple[int, int]:
    if isinstance(device, tuple):
        return int(device[0]), int(device[1])
    name, _, ordinal = device.partition(":")
    if name not in _DEVICE_TYPES or (ordinal and not ordinal.isdecimal()):
        raise InvalidArgument(f'Context: device must be "cpu", "cuda" or "cuda:N", not {device!r}', status=1)
    return _DEVICE_TYPES[name], int(ordinal or 0)


def _log_to(logger: logging.Logger) -> Callable[[int, str], None]:
    return lambda level, message: logger.log(_LOG_LEVELS.get(level, logging.DEBUG), "%s", message)


class Context(_kvcache.Context):
    """One device, its threads and its scratch memory. Caches in one context share them and keep it alive.

    Args:
        device: "cpu", "cuda", "cuda:1", or a DLPack pair (device_type, device_id).
        threads: CPU threads that compute, the caller's included; 0 = as many as this process may use.
        simd: None for the best that this CPU has, else a name from describe()["simd_available"], or "reference".
        log: None for silence, a logging.Logger, or a function (level, message) with levels 1 warning, 2 info, 3 debug.
            Called on the thread that called the library.
        backend: path of a backend to compute by. None: the CPU's is built in; of CUDA $KVCACHE_CUDA_BACKEND, else
            libkvcache_cuda.so beside get_library().
        validate: on a GPU, checks the index arrays that only it reads (block tables, lengths, slots), page ids too; what is
            bad is left out, and a later call of that kind, or check(), raises EarlierCall. On the CPU every call checks.
        pool: whose threads compute on the CPU. None: the context's own. "openmp": those of the OpenMP runtime that this process
            has loaded, so that its workers and the context's do not compete for cores; with threads=0 as many as it uses.
            PyTorch loads one.

    Raises:
        InvalidArgument, Unsupported (simd, pool), DeviceUnavailable, OutOfMemory.
    """

    def __init__(self, device: str | tuple[int, int] = "cpu", threads: int = 0, simd: str | None = None,
                 log: logging.Logger | Callable[[int, str], object] | None = None,
                 backend: str | os.PathLike[str] | None = None, validate: bool = False,
                 pool: Literal["openmp"] | None = None) -> None:
        if pool not in (None, "openmp"):
            raise ValueError(f"Context: pool is {pool!r}, not None or \"openmp\"")
        device_type, device_id = _parse_device(device)
        log_function = _log_to(log) if isinstance(log, logging.Logger) else log
        super().__init__(device_type, device_id, threads, simd, log_function, None if backend is None else os.fspath(backend),
                         validate, pool == "openmp")


def _scales(scales: float | Sequence[float] | None) -> list[float]:
    if scales is None:
        return []
    return [float(scale) for scale in scales] if isinstance(scales, Iterable) else [float(scales)]


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of a model: its heads, its element type, its positions and where its pages lie.

    Args:
        group: index of its layer group in Cache(groups=...).
        q_heads: query heads, a multiple of kv_heads; head h reads key/value head h // (q_heads // kv_heads).
        kv_heads: key/value heads.
        head_dim: dimension of q and k, 1..512 (MLA: 1..1152); multiples of 16 are fast.
        v_head_dim: dimension of v, 1..512; 0 = head_dim (MLA: latent_dim).
        dtype: of stored K and V: "f32", "f16", "bf16", or a dtype of numpy, ml_dtypes, torch or jax. Quantised:
            "float8_e4m3fn" and "float8_e5m2" (by k_scales and v_scales), "int8" and "uint4" (a scale for each token and
            head; docs/reference/formats.md).
        rope: None: q and k are taken as they are. "on_append": the library rotates both at their positions and stores
            rotated k. "on_read": k is stored as it is, and rotated, in float32, where attention reads it.
        rope_dim: rotated dimensions, even; 0 = head_dim - rope_offset.
        rope_offset: first rotated dimension; of an MLA layer 0 = latent_dim.
        rope_interleaved: rotated pairs are dimensions 2i, 2i + 1 (GPT-J); else i, i + rope_dim / 2 (GPT-NeoX).
        rope_theta: base of the angles position * theta ** (-2 * i / rope_dim).
        rope_scaling: a RopeScaling, or None.
        scale: factor of the scores; None or 0 = head_dim ** -0.5, which an MLA layer does not have: there it is needed.
        kv_storage: the layer's page pool in memory of the caller, any writable DLPack exporter, adopted by the cache:
            [pages, 2, kv_heads, page_size, head_dim] by any strides with innermost 1; index 0 of dim 1 is K.
        k_storage, v_storage: the same apart: [pages, kv_heads, page_size, head_dim] and [..., v_head_dim].
        k_scales, v_scales: of a float8 layer, both or none: x is stored as x / scale, and read as stored * scale. A
            number for all kv heads, or one for each. MLA: k_scales alone.
        kv_layer: None: K and V of its own. Else the index of an earlier layer of the group whose K and V it reads,
            without storage and scales of its own: attend(layer, q) after that layer's append. What says how K and V are stored is
            equal in both.
        latent_dim: of a layer in a group with row="latent" (MLA): leading dimensions of a row of head_dim that are v too. kv_heads is 1.
        keys_only: the layer stores k and no v, in a group of any row: index keys, which Step.select scores. append(layer, k).
        total_kv_heads: kv heads of the layer in all ranks together (Cache: tp_size); 0 = kv_heads * tp_size, and 1 for MLA. Give it
            if it is less than tp_size: then kv_heads is 1, and tp_size / total_kv_heads consecutive ranks have the same head.
        row_format: of an MLA layer. None: all dims have dtype. "fp8_ds_mla": the packed row of DeepSeek-V3.2, 656 bytes, as vLLM
            and FlashMLA store it. head_dim is 576, latent_dim is 512, and dtype stays at its default. Views, exports and
            k_storage are uint8 (docs/reference/formats.md).
    """

    group: int = 0
    q_heads: int = 1
    kv_heads: int = 1
    head_dim: int = 128
    v_head_dim: int = 0
    dtype: Any = "f32"
    rope: str | None = None
    rope_dim: int = 0
    rope_offset: int = 0
    rope_interleaved: bool = False
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    scale: float | None = None
    kv_storage: Any = None
    k_storage: Any = None
    v_storage: Any = None
    k_scales: float | Sequence[float] | None = None
    v_scales: float | Sequence[float] | None = None
    kv_layer: int | None = None
    latent_dim: int = 0
    keys_only: bool = False
    total_kv_heads: int = 0
    row_format: str | None = None

    def _fields(self) -> tuple[Any, ...]:
        if self.rope not in _ROPE_MODES:
            raise InvalidArgument(f'Layer: rope must be None, "on_append" or "on_read", not {self.rope!r}', status=1)
        if self.row_format not in _ROW_FORMATS:
            raise InvalidArgument(f'Layer: row_format must be None or "fp8_ds_mla", not {self.row_format!r}', status=1)
        return (self.group, self.q_heads, self.kv_heads, self.head_dim, self.v_head_dim, self.dtype,
                _ROPE_MODES[self.rope], self.rope_dim, self.rope_theta, self.scale or 0.0,
                self.kv_storage, self.k_storage, self.v_storage,
                _scales(self.k_scales), _scales(self.v_scales), self.rope_offset,
                _ROPE_INTERLEAVED * self.rope_interleaved | _KEYS_ONLY * self.keys_only,
                None if self.rope_scaling is None else self.rope_scaling._fields(),
                0 if self.kv_layer is None else self.kv_layer + 1, (), self.latent_dim, self.total_kv_heads,
                _ROW_FORMATS[self.row_format])  # fmt: skip


@dataclass(frozen=True)
class StateTensor:
    """One state tensor of a recurrent layer: what it keeps of one sequence.

    Args:
        shape: 1 to 4 sizes, each >= 1.
        dtype: "f32", "f16", "bf16", "i32", "i64", or a dtype of numpy, ml_dtypes, torch or jax.
        fill: every element of the state of an empty sequence, a value of the dtype; of integers at most 2^53.
    """

    shape: Sequence[int]
    dtype: Any = "f32"
    fill: float = 0.0


@dataclass(frozen=True)
class RecurrentLayer:
    """A layer of a Recurrent group: state tensors of fixed size a sequence, loaded and stored by each step.

    Args:
        group: index of its layer group in Cache(groups=...), a Recurrent().
        states: 1 to 16 StateTensor.
    """

    group: int
    states: Sequence[StateTensor]

    def _fields(self) -> tuple[Any, ...]:
        states = tuple((tuple(state.shape), state.dtype, float(state.fill)) for state in self.states)
        return (self.group, 0, 0, 0, 0, None, 0, 0, 0.0, 0.0, None, None, None, [], [], 0, 0, None, 0, states, 0, 0, 0)


def _with_storage(layers: Sequence[Layer | RecurrentLayer],
                  storage: Any) -> tuple[list[Layer | RecurrentLayer], int]:
    """The layers of Cache(layers, storage=...) with their pools, and KVC_STORAGE_*."""
    if not isinstance(layers, Sequence):
        raise TypeError(f"layers: a sequence of Layer and RecurrentLayer is needed, not {type(layers).__name__}")
    for index, layer in enumerate(layers):
        if not isinstance(layer, (Layer, RecurrentLayer)):
            raise TypeError(f"layers[{index}]: a Layer or RecurrentLayer is needed, not {type(layer).__name__}")
    if storage is None or (isinstance(storage, str) and storage in ("own", "none")):
        return list(layers), 0 if storage == "own" else 1
    if isinstance(storage, str) or len(storage) != len(layers):
        given = repr(storage) if isinstance(storage, str) else f"{len(storage)} items for {len(layers)} layers"
        raise InvalidArgument(f'Cache: storage must be "own", None, or one item a layer, not {given}', status=1)
    return [_with_pools(index, layer, pools) for index, (layer, pools) in enumerate(zip(layers, storage))], 0


def _with_pools(index: int, layer: Layer | RecurrentLayer, pools: Any) -> Layer | RecurrentLayer:
    if pools is None:
        return layer
    if isinstance(layer, RecurrentLayer) or any(
            given is not None for given in (layer.kv_storage, layer.k_storage, layer.v_storage)):
        why = "is recurrent" if isinstance(layer, RecurrentLayer) else "has a storage of its own"
        raise InvalidArgument(f"Cache: storage[{index}] is given, and its layer {why}", status=1, index=index)
    if isinstance(pools, (tuple, list)):
        if len(pools) != 2:
            raise InvalidArgument(f"Cache: storage[{index}] has {len(pools)} pools, not K's and V's", status=1,
                                  index=index)  # fmt: skip
        return replace(layer, k_storage=pools[0], v_storage=pools[1])
    return replace(layer, k_storage=pools) if layer.latent_dim or layer.keys_only else replace(layer, kv_storage=pools)


_ROWS = {"kv": 0, "latent": 1, "state": 2}


_GroupFields = tuple[int, int, int, int, int, int]


def _fields_of(row: str, visibility: int, window: int, chunk: int, pages: int, tokens_per_row: int = 1) -> _GroupFields:
    if row not in ("kv", "latent"):
        raise InvalidArgument(f"row {row!r} is neither 'kv' nor 'latent'", status=1)
    return _ROWS[row], visibility, window, chunk, pages, tokens_per_row


@dataclass(frozen=True)
class Full:
    """Layers that see every earlier token; their memory grows with the sequence.

    Args:
        pages: pages of the group's pool; 0 = from the cache's capacity.
        row: what the group stores for a token: "kv", or "latent": one row [latent | rotary] for all heads (MLA).
        tokens_per_row: r > 1: the group stores a row for each r tokens, which the caller computes. A step from length L to M
            takes the rows M // r - L // r of each sequence, in the order of the batch. A query at position p sees row w if
            (w + 1) * r <= p + 1. r divides the page size. docs/reference/rows.md has a program.
    """

    pages: int = 0
    row: str = "kv"
    tokens_per_row: int = 1

    def _fields(self) -> _GroupFields:
        return _fields_of(self.row, 0, 0, 0, self.pages, self.tokens_per_row)


@dataclass(frozen=True)
class Sliding:
    """Layers where a query at position p sees keys p - window + 1 .. p; pages that left the window are freed.

    Args:
        window: keys that a query sees, itself included, >= 1.
        pages: pages of the group's pool; 0 = max_sequences times the peak of one sequence, at most the capacity.
        row: what the group stores for a token: "kv", or "latent": one row [latent | rotary] for all heads (MLA).
    """

    window: int
    pages: int = 0
    row: str = "kv"

    def _fields(self) -> _GroupFields:
        return _fields_of(self.row, 1, self.window, 0, self.pages)


@dataclass(frozen=True)
class Chunked:
    """Layers where a query sees the keys of its own chunk up to itself; pages of earlier chunks are freed.

    Args:
        chunk: tokens of a chunk, >= 1; no multiple of the page size needed.
        pages: pages of the group's pool; 0 = max_sequences times the peak of one sequence, at most the capacity.
        row: what the group stores for a token: "kv", or "latent": one row [latent | rotary] for all heads (MLA).
    """

    chunk: int
    pages: int = 0
    row: str = "kv"

    def _fields(self) -> _GroupFields:
        return _fields_of(self.row, 2, 0, self.chunk, self.pages)


@dataclass(frozen=True)
class Cross:
    """Layers that see all of an encoder sequence, which each sequence has beside its tokens: an image, audio, a source text.

    Its tokens are appended in steps of their own, cache.forward(..., encoder_group=group). Forks share it, truncate
    leaves it.

    Args:
        pages: pages of the group's pool; 0 = from the cache's capacity.
        row: what the group stores for a token: "kv", or "latent": one row [latent | rotary] for all heads (MLA).
    """

    pages: int = 0
    row: str = "kv"

    def _fields(self) -> _GroupFields:
        return _fields_of(self.row, 3, 0, 0, self.pages)


@dataclass(frozen=True)
class Recurrent:
    """Layers (RecurrentLayer) with states of fixed size instead of keys.

    Args:
        pages: states that the pool holds: one a sequence, one more for each in an open step, the checkpoints, and
            those of tree nodes; 0 = max_sequences * (2 + max_checkpoints + n), where n is the smaller of
            max_draft_states + 1 and max_tree_nodes - 1, and 0 if max_draft_states is 0.
    """

    pages: int = 0

    def _fields(self) -> _GroupFields:
        return _ROWS["state"], 0, 0, 0, self.pages, 1


Group = Full | Sliding | Chunked | Cross | Recurrent


def _group_fields(groups: Sequence[Group] | None) -> list[_GroupFields]:
    return [group._fields() for group in groups or ()]
