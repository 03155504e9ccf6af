"""What a script has named, and the words of the line that runs. ../../README.md has the format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kvcache
import ml_dtypes
import numpy as np

DTYPES = {
    "f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2), "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
NEVER_BOUND = 1 << 60
OPERATIONS: dict[str, Callable[[Script], dict[str, str] | None]] = {}


def operation(function: Callable[[Script], dict[str, str] | None]) -> Callable[[Script], dict[str, str] | None]:
    OPERATIONS[function.__name__.strip("_")] = function
    return function


def generated_bytes(seed: int, count: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = (np.uint64(seed << 32) + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(56)).astype(np.uint8)


def new_tensor(form: str) -> np.ndarray:
    name, _, rest = form.partition("[")
    dims, _, contents = rest.partition("]")
    shape = tuple(int(dim) for dim in dims.split(",")) if dims else ()
    dtype, count = DTYPES[name], int(np.prod(shape, dtype=np.int64))
    if contents.startswith("@"):
        values = generated_bytes(int(contents[1:]), count)
        floats = dtype.itemsize > 1
        values = ((values.astype(np.float32) - 128) / 128).astype(dtype) if floats else (values & 0xBF).view(dtype)
    elif contents.startswith(":"):
        values = np.array([float(item) for item in contents[1:].split(",") if item]).astype(dtype)
    else:
        values = np.zeros(count, dtype)
    return values.reshape(shape)


def printed(array: Any, as_hash: bool) -> str:
    array = np.asarray(array)
    contents = np.ascontiguousarray(array).tobytes()
    head = f"{NAMES[array.dtype]}[{','.join(map(str, array.shape))}]"
    if not as_hash:
        return f"{head}:{contents.hex()}"
    value = 0xCBF29CE484222325
    for byte in contents:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{head}#{value:016x}"


def integers(values: Any) -> str:
    return ",".join(str(int(value)) for value in np.asarray(values).ravel())


class Script:
    """One script: what it has named, and the words of the line that runs."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.contexts: dict[int, kvcache.Context] = {}
        self.caches: dict[int, kvcache.Cache] = {}
        self.steps: dict[int, kvcache.Step] = {}
        self.graphs: dict[int, int] = {}
        self.plans: dict[int, kvcache.Plan] = {}
        self.bound: dict[int, int] = {}
        self.tensors: dict[str, np.ndarray] = {}
        self.layers: list[dict[str, Any]] = []
        self.groups: list[Any] = []
        self.transfers: dict[int, kvcache.Transfer] = {}
        self.descriptions: dict[int, bytes] = {}
        self.job: kvcache.LoadJob | None = None

    def close(self) -> None:
        for step in self.steps.values():
            if not step.closed:
                step.abort()
        self.plans.clear()
        for cache in self.caches.values():
            cache.close()

    def has(self, key: str) -> bool:
        return key in self.words

    def integer(self, key: str, absent: int = 0) -> int:
        return int(self.words.get(key, absent))

    def number(self, key: str) -> float:
        return float(self.words.get(key, 0))

    def integers(self, key: str) -> list[int] | None:
        return [int(item) for item in self.words[key].split(",") if item] if key in self.words else None

    def media(self) -> list[tuple[int, int, bytes]]:
        begins, lengths = self.integers("media_begins") or [], self.integers("media_tokens") or []
        hashes = bytes.fromhex(self.words.get("media_hashes", ""))
        return [(begins[i], lengths[i], hashes[32 * i : 32 * i + 32]) for i in range(len(begins))]

    def numbers(self, key: str) -> list[float] | None:
        return [float(item) for item in self.words[key].split(",")] if key in self.words else None

    def sequences(self, key: str = "seqs") -> list[int]:
        return [0 if n == -1 else self.bound.get(n, NEVER_BOUND + n) for n in self.integers(key) or []]

    def sequence(self) -> int:
        return self.sequences("seq")[0]

    def bind(self, ids: list[int]) -> None:
        self.bound.update(zip(self.integers("seqs") or [], ids))

    def tensor(self, key: str) -> np.ndarray | None:
        return self.parse(self.words[key]) if key in self.words else None

    def parse(self, form: str) -> np.ndarray | None:
        if form == "-":
            return None
        return self.tensors[form[1:]] if form.startswith("$") else new_tensor(form)

    def parse_all(self, key: str) -> list[np.ndarray | None] | None:
        return [self.parse(form) for form in self.words[key].split(";")] if key in self.words else None

    def given(self, *keys: str, **renamed: str) -> dict[str, Any]:
        """Tensors that are there, by the name of the argument: tensor=, or argument=key."""
        return {to: self.tensor(key) for to, key in [*((key, key) for key in keys), *renamed.items()] if self.has(key)}

    @property
    def context(self) -> kvcache.Context:
        return self.contexts[self.integer("context")]

    @property
    def cache(self) -> kvcache.Cache:
        return self.caches[self.integer("cache")]

    @property
    def step(self) -> kvcache.Step:
        return self.steps[self.integer("step")]

    @property
    def plan(self) -> kvcache.Plan:
        return self.plans[self.integer("plan")]


def outputs(out: Any, lse: Any) -> dict[str, str]:
    return {name: printed(array, False) for name, array in (("out", out), ("lse", lse)) if array is not None}
