"""The messages of the mistakes that newcomers make. tests/api/messages_test.cc makes the same ones in C, and
bindings/messages has a file for each language."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import kvcache

FOLDER = Path(__file__).resolve().parents[2] / "bindings/messages"
LANGUAGES = ("c", "python", "rust", "go", "java")


class Mistakes:
    def __init__(self):
        self.lines = []

    def add(self, mistake, call, *args, **options):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the golden file has the type
            call(*args, **options)
        message = re.sub(r"\d{13,}", "ID", str(caught.value))  # ids differ from run to run
        self.lines += [mistake, f"    {type(caught.value).__name__}: {message}"]


def layers(**changes):
    layer = {"q_heads": 4, "kv_heads": 1, "head_dim": 16}
    return [kvcache.Layer(**layer), kvcache.Layer(**layer | changes)]


def tensors(*shapes, dtype=np.float32):
    return [np.ones(shape, dtype) for shape in shapes]


def attend_wrongly(mistakes, step):
    q, k, v = tensors((3, 4, 16), (3, 1, 16), (3, 1, 16))
    mistakes.add("k has the wrong number of heads", step.attend, 1, q, *tensors((3, 2, 16)), v)
    mistakes.add("q has no dimension of heads", step.attend, 1, *tensors((3, 64)), k, v)
    mistakes.add("q has too few tokens", step.attend, 1, *tensors((2, 4, 16)), k, v)
    mistakes.add("q has elements of a wrong type", step.attend, 1, q.astype(np.int32), k, v)
    mistakes.add("out has the wrong head dim", step.attend, 1, q, k, v, out=np.ones((3, 4, 8), np.float32))
    mistakes.add("v is left out", step.attend, 1, q, k)
    mistakes.add("a layer attends before its k and v are stored", step.attend, 1, q)
    mistakes.add("a layer does not exist", step.attend, 7, q, k, v)


def use_steps_wrongly(mistakes, cache, a, b, step):
    rows = tensors((3, 4, 16), (3, 1, 16), (3, 1, 16))
    step.attend(0, *rows)
    mistakes.add("a layer attends twice", step.attend, 0, *rows)
    mistakes.add("a step ends before every layer has its tokens", step.end)
    step.attend(1, *rows)
    step.end()
    mistakes.add("a step is used after its end", step.attend, 0, *rows)
    step = cache.forward([a], [3])
    mistakes.add("a sequence of an open step is truncated", cache.truncate, a, 0)
    second = cache.forward([b], [1])
    third = cache.add()
    mistakes.add("a third step begins", cache.forward, [third], [1])
    second.abort()
    step.cancel()
    mistakes.add("a cancelled step ends", step.end)
    step.abort()
    cache.remove(third)
    mistakes.add("a removed sequence is used", cache.forward, [third], [1])
    mistakes.add("a sequence occurs twice", cache.forward, [a, a], [1, 1])
    mistakes.add("a row has no length", cache.forward, [a, a], [1])
    mistakes.add("a step has no new tokens", cache.forward, [a], [0])
    mistakes.add("a step needs more pages than there are", cache.forward, [a], [40])
    mistakes.add("a step is larger than max_batch_tokens", cache.forward, [a], [65])


def test_messages_of_common_mistakes():
    mistakes = Mistakes()
    cache = kvcache.Cache(layers(), page_size=4, capacity_tokens=32, max_sequences=4, max_batch_tokens=64)
    a, b = cache.add(2)
    step = cache.forward([a], [3])
    attend_wrongly(mistakes, step)
    use_steps_wrongly(mistakes, cache, a, b, step)
    mistakes.add("tokens beyond the end are exported", cache.export, a, 0, 0, 9)
    mistakes.add("a sequence is truncated beyond its end", cache.truncate, a, 9)
    mistakes.add("a group does not exist", cache.stats, 3)
    mistakes.add("a tier is added without a prefix index", cache.add_disk_tier, "tier")
    mistakes.add("a prefix is loaded without a tier", cache.load_prefix, [1])
    mistakes.add("q heads are no multiple of kv heads", kvcache.Cache, layers(kv_heads=3), capacity_tokens=32)
    mistakes.add("a layer's group does not exist", kvcache.Cache, layers(group=2), capacity_tokens=32)
    mistakes.add("a cache has no capacity", kvcache.Cache, layers())
    mistakes.add("kv_layer names a later layer", kvcache.Cache, layers(kv_layer=1), capacity_tokens=32)
    cache.close()
    mistakes.add("a closed cache is used", cache.add)
    text = "\n".join(mistakes.lines) + "\n"
    golden = FOLDER / "python.txt"
    if os.environ.get("KVC_UPDATE_MESSAGES"):
        golden.write_text(text)
    assert text == golden.read_text(), f"KVC_UPDATE_MESSAGES=1 writes {golden}"


def test_languages_make_the_same_mistakes():
    """Mistakes that only some languages allow, with these languages."""
    made = {name: {line for line in (FOLDER / f"{name}.txt").read_text().splitlines() if not line.startswith(" ")}
            for name in LANGUAGES}
    differ = {
        "a slice is shorter than its tensor": {"rust", "go", "java"},
        "a buffer is on the heap": {"java"},
        "a closed cache is used": {"python", "go", "java"},  # in C this is a freed pointer, and in Rust impossible
        "a row has no length": {"python", "rust", "go", "java"},
        "the head dim is forgotten": {"c", "go", "rust", "java"},  # Python requires it
    }
    for mistake in set().union(*made.values()):
        assert {name for name in LANGUAGES if mistake in made[name]} == differ.get(mistake, set(LANGUAGES)), mistake


def test_an_empty_range_of_tokens_is_empty():
    cache = kvcache.Cache(layers(), page_size=4, capacity_tokens=32)
    a, empty = cache.add(2)
    rows = tensors((3, 4, 16), (3, 1, 16), (3, 1, 16))
    with cache.forward([a], [3]) as step:
        for layer in range(2):
            step.attend(layer, *rows)
    for begin, end in ((0, 0), (1, 1), (3, 3)):
        k, v = cache.export(a, 0, begin, end)
        assert np.asarray(k).shape == np.asarray(v).shape == (0, 1, 16)
    assert np.asarray(cache.export(empty, 0, 0, 0)[0]).shape == (0, 1, 16)
    assert np.asarray(cache.export(a, 0)[0]).shape == (3, 1, 16)
