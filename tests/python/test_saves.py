"""Saved sequences: in files and file objects, and from C++ to Python."""

import io
import re
from pathlib import Path

import kvcache
import numpy as np
import pytest

GOLDEN = Path(__file__).resolve().parent.parent / "save" / "golden"


def rows(tokens, heads):
    """A model in which a token's q, k and v follow from its id alone."""
    return np.stack([np.random.default_rng(token).standard_normal((heads, 8)) for token in tokens]).astype(np.float32)


def make(**more):
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8, group=group, rope="on_append") for group in (0, 1)]
    return kvcache.Cache(layers, [kvcache.Full(), kvcache.Sliding(6)], **(dict(page_size=4, capacity_tokens=64) | more))


def compute(cache, sequence, tokens):
    with cache.forward([sequence], [len(tokens)]) as step:
        return [step.attend(i, rows(tokens, 2), rows(tokens, 1), rows(tokens, 1)) for i in range(2)]


@pytest.fixture
def chat():
    with make() as cache:
        sequence = cache.add()
        compute(cache, sequence, range(19))
        yield cache, sequence
        cache.check_invariants()


class Endless(io.BytesIO):
    """Gives at most 7 bytes at a time, as a socket may."""

    def read(self, size=-1):
        return super().read(min(size, 7))


@pytest.mark.parametrize("page_size", [4, 16])
def test_a_loaded_sequence_continues_with_the_same_bits(chat, tmp_path, page_size):
    cache, sequence = chat
    path = tmp_path / "chat.kvc"
    cache.save(sequence, path, range(19))
    with make(page_size=page_size) as other:
        loaded, tokens = other.load(str(path))
        np.testing.assert_array_equal(tokens, np.arange(19, dtype=np.int32))
        for step in ([30], [31, 32], [33]):
            for a, b in zip(compute(cache, sequence, step), compute(other, loaded, step)):
                np.testing.assert_array_equal(a, b)
    assert [file.name for file in tmp_path.iterdir()] == ["chat.kvc"]


def test_file_objects(chat):
    cache, sequence = chat
    file = io.BytesIO()
    cache.save(sequence, file, np.arange(19), section_bytes=4096)
    loaded, tokens = cache.load(Endless(file.getvalue()))
    assert tokens.tolist() == list(range(19))
    again = io.BytesIO()
    cache.save(loaded, again, tokens, section_bytes=4096)
    assert again.getvalue() == file.getvalue()
    without = io.BytesIO()
    cache.save(sequence, without)
    assert cache.load(io.BytesIO(without.getvalue()))[1] is None


def test_exceptions_of_a_file_object_come_out(chat):
    cache, sequence = chat

    class Broken:
        def write(self, data):
            raise ZeroDivisionError("write")

        def read(self, size):
            raise ZeroDivisionError("read")

    with pytest.raises(ZeroDivisionError, match="write"):
        cache.save(sequence, Broken())
    used = cache.stats().pages_used
    with pytest.raises(ZeroDivisionError, match="read"):
        cache.load(Broken())
    with pytest.raises(TypeError):
        cache.load(io.StringIO("text"))
    with pytest.raises(TypeError):
        cache.load(7.5)
    assert cache.stats().pages_used == used


def test_errors(chat, tmp_path):
    cache, sequence = chat
    with pytest.raises(kvcache.FileError, match=r"^Cache.load: cannot open .*: No such file") as raised:
        cache.load(tmp_path / "none.kvc")
    assert isinstance(raised.value, OSError) and raised.value.status_name == "KVC_ERROR_IO"
    with pytest.raises(kvcache.FileError, match="^Cache.save: cannot create"):
        cache.save(sequence, tmp_path / "none" / "chat.kvc")
    with pytest.raises(kvcache.InvalidArgument, match=re.escape("len(tokens) 2 is not the sequence's length 19")):
        cache.save(sequence, tmp_path / "chat.kvc", [1, 2])
    with pytest.raises(kvcache.OutOfRange):
        cache.save(sequence, tmp_path / "chat.kvc", [2**31] * 19)
    file = io.BytesIO()
    cache.save(sequence, file)
    damaged = bytearray(file.getvalue())
    damaged[-20] ^= 1
    with pytest.raises(kvcache.Corrupt, match="section 0"):
        cache.load(io.BytesIO(damaged))
    with pytest.raises(kvcache.Corrupt, match="ends"):
        cache.load(io.BytesIO(file.getvalue()[:-1]))
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8)], capacity_tokens=64) as other:
        with pytest.raises(kvcache.Layout, match='File: "layer 0: .*rope append.*Cache: "layer 0: .*rope none'):
            other.load(io.BytesIO(file.getvalue()))
        assert other.stats().num_sequences == 0
    step = cache.forward([sequence], [1])
    with pytest.raises(kvcache.Busy):
        cache.save(sequence, tmp_path / "chat.kvc")
    step.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_c_plus_plus_wrote():
    layers = [kvcache.Layer(q_heads=4, kv_heads=2, head_dim=8, dtype="int8", group=0),
              kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8, v_head_dim=6, dtype="float16", group=1)]  # fmt: skip
    with kvcache.Cache(layers, [kvcache.Full(), kvcache.Sliding(8)], page_size=4, capacity_tokens=64, rollback_tokens=0,
                       streaming=True) as cache:  # fmt: skip
        loaded, tokens = cache.load(GOLDEN / "stream-0.1.kvc")
        assert tokens is None and cache.length(loaded) == 20 and cache.streaming(loaded) == (2, 9)
        file = io.BytesIO()
        cache.save(loaded, file)
        assert file.getvalue() == (GOLDEN / "stream-0.1.kvc").read_bytes()
