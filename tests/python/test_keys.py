"""Page keys: the vectors of docs/reference/keys.md, and refused arguments."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import kvcache
import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "keys"
spec = importlib.util.spec_from_file_location("vectors", FOLDER / "vectors.py")
assert spec and spec.loader
vectors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(vectors)

MODEL = bytes(32)


def test_vectors() -> None:
    read = vectors.read((FOLDER / "vectors.txt").read_text())
    assert len(read) >= 50
    for v in read:
        for tokens in (v["tokens"], np.array(v["tokens"], np.int32), np.array(v["tokens"], np.int64)):
            keys = kvcache.page_keys(
                tokens, v["page_size"], v["fingerprint"], adapter=v["adapter"], salt=v["salt"], salt_begin=v["salt_begin"],
                parent=v["parent"] or None, begin=v["begin"], media=v["media"])  # fmt: skip
            assert keys == v["keys"], v["name"]


@pytest.mark.parametrize(("error", "wrong"), [
    (kvcache.NullArgument, {"fingerprint": None}),
    (kvcache.InvalidArgument, {"fingerprint": b"short"}),
    (kvcache.InvalidArgument, {"parent": bytes(33)}),
    (kvcache.InvalidArgument, {"begin": 2}),
    (kvcache.InvalidArgument, {"media": [(0, 1, b"")]}),
    (kvcache.NullArgument, {"media": [(0, 1, None)]}),
    (kvcache.OutOfRange, {"media": [(0, 0, MODEL)]}),
    (kvcache.OutOfRange, {"media": [(0, 2, MODEL), (1, 2, MODEL)]}),
    (kvcache.OutOfRange, {"page_size": 0}),
    (kvcache.OutOfRange, {"page_size": 2**70}),
    (kvcache.OutOfRange, {"salt_begin": -1}),
    (kvcache.OutOfRange, {"tokens": [1, 2**31]}),
])  # fmt: skip
def test_refused(error: type[Exception], wrong: dict[str, Any]) -> None:
    call = {"tokens": [1, 2, 3], "page_size": 2, "fingerprint": MODEL} | wrong
    with pytest.raises(error, match="page_keys: "):
        kvcache.page_keys(**call)


def test_other_types() -> None:
    for wrong in ({"tokens": ["a"]}, {"adapter": "text"}, {"salt": None}, {"page_size": 1.5}):
        with pytest.raises(TypeError):
            kvcache.page_keys(**({"tokens": [1, 2], "page_size": 2, "fingerprint": MODEL} | wrong))
