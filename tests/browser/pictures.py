#!/usr/bin/env python3
"""Writes the pictures of docs/guide/inspect.md: .venv/bin/python tests/browser/pictures.py"""

import sys
import tempfile
from pathlib import Path

from chromium import Browser

from kvcache import inspect

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/support"))


def main() -> None:
    from inspect_scene import Scene

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Scene(folder) as scene, inspect.Recorder(scene.cache, folder / "t", state_ms=0, plans=True) as recorder:
            for _ in scene.play(recorder, rounds=120):
                pass
        inspect.show(folder / "t", folder / "t.html", None)
        browser = Browser()
        browser.size(1280, 900)
        browser.open((folder / "t.html").as_uri())
        write(browser, "desktop")
        browser.dark()
        browser.size(390, 844, mobile=True)
        write(browser, "phone")
        browser.close()


def write(browser: Browser, name: str) -> None:
    (ROOT / f"docs/guide/inspect-{name}.png").write_bytes(browser.picture())


main()
