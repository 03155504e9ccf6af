"""Scripts and transcripts as values: operations, expectations, tensors. README.md has the format."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {
    "f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2), "i8": np.dtype(np.int8),
    "u4": np.dtype(np.uint8), "e2m1": np.dtype(np.uint8), "u8": np.dtype(np.uint8), "fp8_ds_mla": np.dtype(np.uint8),
    "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
}  # fmt: skip
FLOATS = ("f32", "f16", "bf16")
TENSOR = re.compile(r"(\w+)\[([\d,]*)\]([:#])([0-9a-f]*)")


@dataclass
class Op:
    """An operation of a script, and what its expectation line says."""

    line: int
    name: str
    words: dict[str, str]
    may_skip: bool = False
    status: str = "OK"
    results: dict[str, str] = field(default_factory=dict)

    def integer(self, key: str, absent: int = 0) -> int:
        return int(self.words.get(key, absent))

    def number(self, key: str) -> float:
        return float(self.words.get(key, 0))

    def integers(self, key: str) -> list[int]:
        return [int(item) for item in self.words.get(key, "").split(",") if item]

    def numbers(self, key: str) -> list[float]:
        return [float(item) for item in self.words.get(key, "").split(",") if item]


def words_of(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def parse_line(line: str, number: int = 0) -> Op:
    name, *words = line.split(" ")
    return Op(number, name.removeprefix("?"), words_of(words), name.startswith("?"))


def parse_script(path: Path) -> list[Op]:
    ops: list[Op] = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        if line.startswith("= "):
            status, *words = line[2:].split(" ")
            ops[-1].status, ops[-1].results = status, words_of(words)
        elif line and line[0] != "#":
            ops.append(parse_line(line, number))
    return ops


@dataclass
class Answer:
    """A line of a transcript; status without KVC_ERROR_."""

    status: str
    results: dict[str, str]
    text: str


def parse_transcript(text: str) -> dict[str, dict[int, Answer]]:
    """The answers of each script by line."""
    scripts: dict[str, dict[int, Answer]] = {}
    answers: dict[int, Answer] = {}
    for line in text.splitlines():
        head, _, rest = line.partition(" ")
        if head == "script":
            answers = scripts[rest] = {}
            continue
        status, *words = rest.split(" ")
        status = status.removeprefix("KVC_ERROR_")
        results = words_of([word for word in words if "=" in word]) if status != "FAILED" else {}
        answers[int(head)] = Answer(status, results, rest)
    return scripts


def generated_bytes(seed: int, count: int) -> np.ndarray:
    """The generator of README.md, one element after another."""
    mask, result = (1 << 64) - 1, np.empty(count, np.uint8)
    for i in range(count):
        z = ((seed << 32) + i + 1) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        result[i] = (z ^ z >> 31) >> 56
    return result


def new_tensor(form: str) -> tuple[str, np.ndarray]:
    """Dtype and elements; those of 16-bit dtypes as they are there."""
    name, _, rest = form.partition("[")
    dims, _, contents = rest.partition("]")
    shape = tuple(int(dim) for dim in dims.split(",")) if dims else ()
    dtype, count = DTYPES[name], int(np.prod(shape, dtype=np.int64))
    if contents.startswith("@"):
        values = generated_bytes(int(contents[1:]), count)
        if name in FLOATS:
            return name, ((values.astype(np.float64) - 128) / 128).astype(dtype).reshape(shape)
        return name, (values & 0xBF).view(dtype).reshape(shape)
    if contents.startswith(":"):
        return name, np.array([float(item) for item in contents[1:].split(",") if item]).astype(dtype).reshape(shape)
    return name, np.zeros(shape, dtype)


def fnv(contents: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in contents:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


@dataclass
class Printed:
    """A tensor of a transcript: its contents if they are in hex, else their hash."""

    dtype: str
    shape: tuple[int, ...]
    hash: str
    array: np.ndarray | None


def parse_printed(text: str) -> Printed | None:
    match = TENSOR.fullmatch(text)
    if match is None:
        return None
    dtype, dims, kind, contents = match.groups()
    shape = tuple(int(dim) for dim in dims.split(",")) if dims else ()
    if kind == "#":
        return Printed(dtype, shape, contents, None)
    data = bytes.fromhex(contents)
    return Printed(dtype, shape, fnv(data), np.frombuffer(data, DTYPES[dtype]).reshape(shape))
