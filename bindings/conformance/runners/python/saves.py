"""Saved sequences, in files of the folders that the driver names."""

from __future__ import annotations

import os
from pathlib import Path

from script import Script, integers, operation


def path_in(variable: str, s: Script, key: str = "file") -> Path:
    return Path(os.environ.get(variable, "."), s.words[key])


@operation
def save(s: Script) -> None:
    s.cache.save(s.sequence(), path_in("KVCACHE_CONFORMANCE_SAVE", s), s.integers("tokens"), s.integer("section_bytes"))


@operation
def load(s: Script) -> dict[str, str]:
    sequence, tokens = s.cache.load(path_in("KVCACHE_CONFORMANCE_LOAD", s))
    s.bind([sequence])
    return {"tokens": integers([] if tokens is None else tokens)}
