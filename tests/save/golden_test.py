#!/usr/bin/env python3
"""reader.py finds in the files of golden/ what save_golden_test.cc stored there."""
import sys
from pathlib import Path

import numpy as np
import reader

FOLDER = Path(__file__).resolve().parent / "golden"
FULL, SLIDING, CHUNKED, MLA, CROSS, RECURRENT = range(6)


def filled(positions, heads, dims, seed):
    """The values of Chat::fill in save_fixture.h."""
    t, h, d = np.ogrid[positions, :heads, :dims]
    return (((t * 7 + h * 5 + d * 3 + seed) % 23).astype(np.float32) / np.float32(16) - np.float32(0.6))


def same(got, expected, what):
    assert got.shape == expected.shape and np.array_equal(got, expected), what


def check_mixture(data):
    saved = reader.sequence(data)
    assert saved["length"] == 23 and saved["window"] == 0 and saved["checkpoints"] == (19,), saved
    same(saved["tokens"], np.arange(23, dtype=np.int32) * 1000 - 3, "token ids")
    steps = (slice(0, 19), slice(19, 23))  # Chat::talk
    for layer, heads in ((FULL, 2), (SLIDING, 2), (CHUNKED, 2), (MLA, 1)):
        tokens, begin, end = saved["lists"][layer]
        assert tokens == 23
        held = np.r_[0:begin, end:23]
        for name, seed in (("k", 10), ("v", 20)):
            if name == "v" and layer == MLA:
                continue
            expected = np.concatenate([filled(step, heads, 16, layer + seed) for step in steps])
            same(saved["layers"][layer][name], expected[held], f"{name} of layer {layer}")
    assert saved["lists"][FULL] == (23, 0, 0) and saved["lists"][CROSS] == (9, 0, 0)
    assert saved["lists"][SLIDING][2] % 4 == 0 and saved["lists"][CHUNKED][2] % 4 == 0
    same(saved["layers"][CROSS]["k"], filled(slice(3, 12), 2, 16, 1), "k of the encoder")
    same(saved["layers"][CROSS]["v"], filled(slice(5, 14), 2, 16, 2), "v of the encoder")
    for state in (0, 1):
        first = (np.arange(5) + state).astype(np.float32)  # Chat::step, from zeros
        same(saved["layers"][RECURRENT][19][state], first, "the state of the checkpoint")
        same(saved["layers"][RECURRENT][23][state], first / 2 + np.float32(19) + first, "the state")


def check_stream(data):
    saved = reader.sequence(data)
    assert (saved["sinks"], saved["window"], saved["streamed"]) == (2, 9, True), saved
    tokens, begin, end = saved["lists"][0]
    assert tokens == saved["length"] and 2 <= begin < end < tokens, saved["lists"]
    layer = saved["layers"][0]
    assert layer["k"].dtype == np.int8 and layer["k_scale"].shape == (tokens - (end - begin), 2)
    assert np.abs(layer["k"]).max() == 127  # the largest of each row
    assert saved["layers"][1]["k"].dtype == np.float16
    assert saved["tokens"] is None


def main() -> int:
    checks = {"mixture-0.1.kvc": check_mixture, "stream-0.1.kvc": check_stream}
    assert sorted(checks) == sorted(path.name for path in FOLDER.iterdir()), "a file that no test reads"
    for name, check in checks.items():
        data = (FOLDER / name).read_bytes()
        check(data)
        for at in (*range(reader.header(data)["header_bytes"]), len(data) - 1):  # the reader notices damage too
            damaged = bytearray(data)
            damaged[at] ^= 1
            try:
                reader.sequence(bytes(damaged))
            except reader.Bad:
                continue
            raise AssertionError(f"{name}: byte {at} may be damaged")
        print(f"{name}: {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
