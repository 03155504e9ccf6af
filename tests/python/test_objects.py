"""Objects in tiers without a cache: what was stored is loaded, by this process and by later ones, and never other bytes."""

import ctypes
import os
import re
import select
import threading

import numpy as np
import pytest

import kvcache
from kvcache import TierResult
from kvcache._objects import _Completion, _Error, _Found, _Item, _Stats, _Table

KEYS = [bytes([i]) * 32 for i in range(8)]


def page(seed, size=5000):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def wait(objects, count):
    """The results of so many objects, by job and index."""
    results = {}
    while len(results) < count:
        assert select.select([objects.fileno()], [], [], 30)[0]
        for done in objects.poll():
            results[done.job, done.position] = done.result
    return results


def do(objects, job, count=1):
    return [result for _, result in sorted(wait(objects, count).items())]


def test_a_later_store_loads_what_an_earlier_one_stored(tmp_path):
    pages = [page(i, 1000 * i) for i in range(8)]  # the first one is empty
    with kvcache.ObjectStore.on_disk(tmp_path / "objects", capacity_bytes=1 << 20) as objects:
        assert objects.name == "disk"
        job = objects.store(list(zip(KEYS, pages)))
        assert wait(objects, 8) == {(job, i): TierResult.OK for i in range(8)}
    with kvcache.ObjectStore.on_disk(tmp_path / "objects", capacity_bytes=1 << 20) as objects:
        assert objects.lookup(KEYS) == [(TierResult.HIT, 1000 * i) for i in range(8)]
        loaded = [np.zeros_like(one) for one in pages]
        job = objects.load(list(zip(KEYS, loaded)))
        assert set(wait(objects, 8).values()) == {TierResult.OK}
        for a, b in zip(pages, loaded):
            np.testing.assert_array_equal(a, b)
        assert objects.stats()["loaded_bytes"] == sum(one.nbytes for one in pages)
        assert do(objects, objects.remove(KEYS[:1])) == [TierResult.OK]
        assert do(objects, objects.remove(KEYS[:1])) == [TierResult.MISS]
        assert objects.lookup(KEYS[:2]) == [(TierResult.MISS, 0), (TierResult.HIT, 1000)]


def test_damage_and_another_size_are_misses(tmp_path):
    with kvcache.ObjectStore.on_disk(tmp_path, sync="none") as objects:
        do(objects, objects.store([(KEYS[0], page(1)), (KEYS[1], page(2))]), 2)
        assert do(objects, objects.load([(KEYS[0], bytearray(4999))])) == [TierResult.MISS]
        (file,) = tmp_path.glob(f"01/{KEYS[1].hex()}.*")
        bytes_of_file = bytearray(file.read_bytes())
        bytes_of_file[2000] ^= 1
        file.write_bytes(bytes_of_file)
        memory = bytearray(5000)
        assert do(objects, objects.load([(KEYS[1], memory)])) == [TierResult.MISS]
        assert objects.stats()["damaged"] == 1
        assert objects.lookup([KEYS[1]]) == [(TierResult.MISS, 0)]


def test_memory_stays_alive_while_a_job_uses_it(tmp_path):
    with kvcache.ObjectStore.on_disk(tmp_path) as objects:
        memory = bytearray(page(3).tobytes())
        job = objects.store([(KEYS[0], memory)])
        with pytest.raises(BufferError):  # the job has it
            memory.clear()
        do(objects, job)
        memory.clear()
        for i in range(300):  # nothing but the job refers to these
            assert objects.store([(KEYS[i % 8], page(i % 8, 20000))]) is not None
        assert set(wait(objects, 300).values()) == {TierResult.OK}
        loaded = [np.zeros(20000, np.uint8) for _ in KEYS]
        do(objects, objects.load(list(zip(KEYS, loaded))), 8)
        for i, one in enumerate(loaded):
            np.testing.assert_array_equal(one, page(i, 20000))


def test_full_is_no_error(tmp_path):
    with kvcache.ObjectStore.on_disk(tmp_path, sync="full") as objects:
        most = objects.max_job_objects
        job = objects.store([(KEYS[0], b"x")] * most)
        assert objects.store([(KEYS[1], b"x")] * most) is None
        assert len(wait(objects, most)) == most
        assert job is not None
        assert objects.lookup(KEYS[1:2]) == [(TierResult.MISS, 0)]


def test_bad_calls(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="^ObjectStore.on_disk: sync 'some' is not one of data, none, full"):
        kvcache.ObjectStore.on_disk(tmp_path, sync="some")
    with pytest.raises(kvcache.InvalidArgument, match="^ObjectStore.on_disk: capacity_bytes=-1 is no number of bytes"):
        kvcache.ObjectStore.on_disk(tmp_path, capacity_bytes=-1)
    (tmp_path / "file").touch()
    with pytest.raises(kvcache.FileError, match="^ObjectStore.on_disk: "):
        kvcache.ObjectStore.on_disk(tmp_path / "file")
    with pytest.raises(kvcache.FileError, match=r"^ObjectStore: .*cannot open shared object"):
        kvcache.ObjectStore(tmp_path / "none.so")
    with pytest.raises(kvcache.Unsupported, match="^ObjectStore: .*undefined symbol: kvc_tier_open"):
        kvcache.ObjectStore("libm.so.6")
    monkeypatch.setenv("KVCACHE_DISK_LIBRARY", str(tmp_path / "other.so"))
    with pytest.raises(kvcache.FileError, match="other.so"):
        kvcache.ObjectStore.on_disk(tmp_path / "a")
    monkeypatch.delenv("KVCACHE_DISK_LIBRARY")
    with kvcache.ObjectStore.on_disk(tmp_path / "a&b=?") as objects:
        with pytest.raises(ValueError, match="a key has 31 bytes, not 32"):
            objects.lookup([b"k" * 31])
        with pytest.raises(ValueError, match="a key has 33 bytes, not 32"):
            objects.store([(b"k" * 33, b"")])
        with pytest.raises(kvcache.OutOfRange, match=r"^ObjectStore.store: 0 objects, not in 1\.\.1024"):
            objects.store([])
        with pytest.raises(ValueError, match="^ObjectStore.load: the memory is read only"):
            objects.load([(KEYS[0], b"constant")])
        with pytest.raises(ValueError, match="contiguous"):
            objects.store([(KEYS[0], page(1)[::2])])
        with pytest.raises(TypeError):
            objects.store([(KEYS[0], None)])
        assert objects.stats()["open_items"] == 0
        assert objects.poll() == []
    objects.close()
    for call in (lambda: objects.lookup(KEYS), objects.poll, objects.fileno, objects.stats, lambda: objects.store([(KEYS[0], b"")])):
        with pytest.raises(kvcache.Closed):
            call()
    assert (tmp_path / "a&b=?" / "kvcache-tier").exists()


def test_close_may_race_every_call(tmp_path):
    for turn in range(20):
        objects = kvcache.ObjectStore.on_disk(tmp_path, sync="none")
        started = threading.Barrier(4)

        def use(i):
            started.wait()
            try:
                while True:
                    objects.store([(KEYS[i], page(i))])
                    objects.lookup(KEYS)
                    objects.poll()
            except kvcache.Closed:
                pass

        threads = [threading.Thread(target=use, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        objects.close()
        for thread in threads:
            thread.join()


def test_a_child_is_refused(tmp_path):
    with kvcache.ObjectStore.on_disk(tmp_path) as objects:
        do(objects, objects.store([(KEYS[0], b"x")]))
        child = os.fork()
        if child == 0:
            refused = False
            try:
                refused = objects.lookup(KEYS[:1])[0].result == TierResult.MISS
                objects.store([(KEYS[1], b"x")])
                refused = False
            except kvcache.Error:
                pass
            os._exit(0 if refused else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert objects.lookup(KEYS[:1]) == [(TierResult.HIT, 1)]


def test_structs_are_those_of_the_header():
    """Names and order of the fields, and the values of results, from the headers in the package."""
    headers = "".join(open(f"{kvcache.get_include()}/{name}").read() for name in ("kvcache.h", "kvcache_tier.h"))
    headers = re.sub(r"/\*.*?\*/", "", headers, flags=re.S)
    structs = {"kvc_error": _Error, "kvc_tier_found": _Found, "kvc_tier_item": _Item, "kvc_tier_completion": _Completion,
               "kvc_tier_stats": _Stats, "kvc_tier": _Table}
    for name, struct in structs.items():
        body = re.search(rf"struct {name} \{{(.*?)\n\}}", headers, re.S)[1]
        fields = []
        for line in body.split(";"):
            function = re.search(r"\(\*(\w+)\)", line)
            names = re.findall(r"(\w+)(?:\[\d+\])?\s*(?:,|$)", line.strip())
            fields += [function[1]] if function else names
        assert [field[0] for field in struct._fields_] == fields, name
    for result in TierResult:
        assert re.search(rf"KVC_TIER_{result.name} = {result.value}\b", headers)
    assert ctypes.sizeof(_Error) == 40 + 472
