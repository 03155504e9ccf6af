#!/usr/bin/env python3
"""Writes fp8_golden.inc: conversions between float8 and float32 by ml_dtypes, which is an independent implementation.

It needs numpy and ml_dtypes. It is run by hand, and its result is in the repository.
"""
from pathlib import Path

import ml_dtypes
import numpy as np

FORMATS = {"kE4m3": ml_dtypes.float8_e4m3fn, "kE5m2": ml_dtypes.float8_e5m2}


def inputs(dtype: type) -> np.ndarray:
    """Every value, every tie between two values and its neighbours, numbers that saturate, and special values."""
    every = np.arange(128, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.unique(every[np.isfinite(every)])
    ties = (finite[:-1] + finite[1:]) / np.float32(2)
    largest = finite[-1]
    beyond = np.array([largest * 1.03, largest * 1.07, largest * 2, 1e30, 3.4028235e38, np.inf], np.float32)
    tiny = np.array([1e-45, 1e-38, 1e-20, finite[1] / 4], np.float32)
    positive = np.concatenate([finite, ties, np.nextafter(ties, np.float32(0)),
                               np.nextafter(ties, np.float32(np.inf)), beyond, tiny]).astype(np.float32)
    return np.concatenate([positive, -positive])


def array(kind: str, name: str, values: list, width: int) -> str:
    lines = [f"constexpr {kind} {name}[] = {{"]
    for i in range(0, len(values), 12):
        lines.append("    " + " ".join(f"0x{value:0{width}x}," for value in values[i:i + 12]))
    return "\n".join([*lines, "};\n"])


def main() -> None:
    text = ["// Written by fp8_golden.py with ml_dtypes. Decoded: float32 bits of all 256 bytes, NaN as 0x7fc00000.\n"
            "// Inputs: float32 bits; Encoded: their bytes, saturated.\n// clang-format off\n"]
    for name, dtype in FORMATS.items():
        decoded = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        bits = decoded.view(np.uint32).copy()
        bits[np.isnan(decoded)] = 0x7FC00000
        values = inputs(dtype)
        largest = float(ml_dtypes.finfo(dtype).max)
        encoded = np.clip(values, -largest, largest).astype(dtype).view(np.uint8)
        text.append(array("uint32_t", f"{name}Decoded", bits.tolist(), 8))
        text.append(array("uint32_t", f"{name}Inputs", values.view(np.uint32).tolist(), 8))
        text.append(array("uint8_t", f"{name}Encoded", encoded.tolist(), 2))
    Path(__file__).with_name("fp8_golden.inc").write_text("".join(text))


if __name__ == "__main__":
    main()
