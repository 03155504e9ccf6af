"""Batches of objects: any size, any thread, and a False in the place of every failure."""

import concurrent.futures
import gc
import math
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from redis_server import PROGRAM, RedisServer, SilentServer

import kvcache
from kvcache import ObjectBatches, TierResult, open_objects
from kvcache._objects import ObjectDone, ObjectFound

SIZES = [0, 1, 4096, 5000, 1 << 20, 64 << 20]
WAIT = 300  # seconds: the machine may be busy
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no redis-server is installed")


def key(i):
    return i.to_bytes(32, "big")


def page(seed, size=5000):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def on_disk(folder, **options):
    return ObjectBatches(open_objects(directory=folder), **{"seconds": WAIT, **options})


def on_redis(url, timeout=10.0, **options):
    try:
        return ObjectBatches(open_objects(redis=url, timeout=timeout), **{"seconds": WAIT, **options})
    except kvcache.FileError as why:
        pytest.skip(f"the package has no Redis tier: {why}")


class ManualStore:
    """An ObjectStore whose test decides when objects are done, and what lookups say."""

    max_object_bytes, max_job_objects, name = 10000, 3, "manual"

    def __init__(self, descriptor=-1):
        self.descriptor, self.lock = descriptor, threading.Lock()
        self.calls, self.done, self.found, self.full, self.jobs = [], [], {}, False, 0

    def fileno(self):
        return self.descriptor

    def lookup(self, keys):
        with self.lock:
            return [self.found.get(one, ObjectFound(TierResult.MISS, 0)) for one in keys]

    def _begin(self, what, objects):
        with self.lock:
            if self.full:
                return None
            self.jobs += 1
            self.calls.append((what, self.jobs, len(objects)))
            return self.jobs

    def store(self, objects):
        return self._begin("store", objects)

    def load(self, objects):
        return self._begin("load", objects)

    def remove(self, keys):
        return self._begin("remove", keys)

    def cancel(self, job):
        with self.lock:
            self.calls.append(("cancel", job, 0))

    def end(self, job, *results):
        with self.lock:
            self.done += [ObjectDone(job, i, result, 5 * (result == TierResult.FAILED)) for i, result in enumerate(results)]

    def poll(self):
        with self.lock:
            done, self.done = self.done, []
            return done

    def close(self):
        self.calls.append(("close", 0, 0))


def until(condition):
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_sizes_and_parts_survive_their_process(tmp_path):
    pages = [page(i, size) for i, size in enumerate(SIZES)]
    program = """
import sys, numpy as np, kvcache
pages = [np.random.default_rng(i).integers(0, 256, int(size), dtype=np.uint8) for i, size in enumerate(sys.argv[2:])]
with kvcache.ObjectBatches(kvcache.open_objects(directory=sys.argv[1]), seconds=60) as batches:
    parts = [[page[:7], page[7:len(page) // 2], page[len(page) // 2:]] if len(page) > 14 else page for page in pages]
    assert batches.store([(i.to_bytes(32, "big"), part) for i, part in enumerate(parts)]).result() == [True] * len(pages)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path), *map(str, SIZES)], check=True, timeout=300)
    with on_disk(tmp_path) as batches:
        assert batches.find(map(key, range(len(pages) + 1))).result(WAIT) == [True] * len(pages) + [False]
        loaded = [np.zeros_like(one) for one in pages]
        halves = [[one[:len(one) // 3], one[len(one) // 3:]] for one in loaded]
        assert all(batches.load([(key(i), half) for i, half in enumerate(halves)]).result(WAIT))
        for one, expected in zip(loaded, pages):
            np.testing.assert_array_equal(one, expected)
        assert batches.remove([key(1), key(99)]).result(WAIT) == [True, False]
        assert batches.find([key(1)]).result(WAIT) == [False]
        assert batches.find([]).result() == []


def test_a_batch_may_be_larger_than_a_job(tmp_path):
    with on_disk(tmp_path) as batches:
        count = 2 * batches.objects.max_job_objects + 5
        assert all(batches.store((key(i), page(i, 10)) for i in range(count)).result(WAIT))
        loaded = [np.zeros(10, np.uint8) for _ in range(count)]
        assert batches.load(zip(map(key, range(count)), loaded)).result(WAIT) == [True] * count
        assert all((one == page(i, 10)).all() for i, one in enumerate(loaded))


def test_what_is_stored_is_not_written_again(tmp_path):
    with on_disk(tmp_path) as batches:
        pairs = [(key(i), page(i)) for i in range(4)]
        assert all(batches.store(pairs[:3]).result(WAIT))
        assert all(batches.store(pairs).result(WAIT))
        assert batches.objects.stats()["stores"] == 4
        assert batches.store([(key(0), page(9, 4999))]).result(WAIT) == [True]  # another size is another object
        memory = np.zeros(4999, np.uint8)
        assert batches.load([(key(0), memory)]).result(WAIT) == [True]
        np.testing.assert_array_equal(memory, page(9, 4999))


def test_wrong_and_torn_objects_are_misses(tmp_path):
    with on_disk(tmp_path) as batches:
        assert all(batches.store([(key(i), page(i)) for i in range(4)]).result(WAIT))
        flipped, torn = (next(tmp_path.glob(f"00/{key(i).hex()}.*")) for i in (1, 2))
        content = bytearray(flipped.read_bytes())
        content[3000] ^= 1
        flipped.write_bytes(content)
        os.truncate(torn, 4096)
        memory = [np.zeros(5000 + (i == 3), np.uint8) for i in range(4)]
        assert batches.load(zip(map(key, range(4)), memory)).result(WAIT) == [True, False, False, False]
        np.testing.assert_array_equal(memory[0], page(0))
        assert batches.store([(key(1), page(1))]).result(WAIT) == [True], "a damaged object is stored again"
        assert batches.load([(key(1), memory[1])]).result(WAIT) == [True]


def test_two_processes_at_once(tmp_path):
    program = """
import sys, numpy as np, kvcache
folder, shift = sys.argv[1], int(sys.argv[2])
page = lambda i: np.random.default_rng(i).integers(0, 256, 20000, dtype=np.uint8)
with kvcache.ObjectBatches(kvcache.open_objects(directory=folder), seconds=60) as batches:
    for cycle in range(20):
        numbers = [(i + shift) % 40 for i in range(cycle, cycle + 20)]
        assert all(batches.store([(i.to_bytes(32, "big"), page(i)) for i in numbers]).result())
        memory = [np.zeros(20000, np.uint8) for _ in numbers]
        loaded = batches.load([(i.to_bytes(32, "big"), one) for i, one in zip(numbers, memory)]).result()
        assert all(loaded), loaded
        assert all((one == page(i)).all() for i, one in zip(numbers, memory))
"""
    others = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(shift)]) for shift in (0, 17)]
    assert [other.wait(300) for other in others] == [0, 0]
    with on_disk(tmp_path) as batches:
        assert all(batches.find(map(key, range(40))).result(WAIT))


def test_threads_share_a_store(tmp_path):
    with on_disk(tmp_path) as batches, concurrent.futures.ThreadPoolExecutor(8) as threads:

        def use(thread):
            for cycle in range(20):
                numbers = [100 * thread + cycle, cycle]  # one of its own, and one that all store
                assert all(batches.store([(key(i), page(i)) for i in numbers]).result(WAIT))
                memory = [np.zeros(5000, np.uint8) for _ in numbers]
                assert all(batches.load(zip(map(key, numbers), memory)).result(WAIT))
                for i, one in zip(numbers, memory):
                    np.testing.assert_array_equal(one, page(i))
            return True

        assert all(threads.map(use, range(8)))


def test_lookups_are_repeated_until_they_are_answered():
    store = ManualStore()
    with ObjectBatches(store, seconds=WAIT) as batches:
        store.found = {key(0): ObjectFound(TierResult.PENDING, 0), key(1): ObjectFound(TierResult.HIT, 5000)}
        found = batches.find([key(0), key(1), key(2)])
        stored = batches.store([(key(0), page(0)), (key(1), page(1)), (key(1), page(1, 4))])
        until(lambda: ("store", 1, 1) in store.calls)  # the last one has another size, and does not wait for the first one
        assert not found.done() and not stored.done()
        store.found[key(0)] = ObjectFound(TierResult.RETRY, 0)
        time.sleep(0.05)
        assert not found.done()
        store.found[key(0)] = ObjectFound(TierResult.MISS, 0)
        assert found.result(WAIT) == [False, True, False]
        until(lambda: ("store", 2, 1) in store.calls)
        store.end(1, TierResult.OK)
        store.end(2, TierResult.FAILED)
        assert stored.result(WAIT) == [False, True, True]


def test_a_full_tier_is_tried_again():
    store = ManualStore()
    with ObjectBatches(store, seconds=WAIT) as batches:
        store.full = True
        loaded = batches.load([(key(i), bytearray(8)) for i in range(5)])
        removed = batches.remove([key(0)])
        time.sleep(0.1)
        assert store.calls == []
        store.full = False
        until(lambda: len(store.calls) == 3)
        assert store.calls == [("load", 1, 3), ("load", 2, 2), ("remove", 3, 1)]
        store.end(2, TierResult.OK, TierResult.MISS)
        store.end(1, TierResult.OK, TierResult.CANCELLED, TierResult.RETRY)
        store.end(3, TierResult.MISS)
        assert loaded.result(WAIT) == [True, False, False, True, False]
        assert removed.result(WAIT) == [False]


@pytest.mark.parametrize("seconds", [1e7, math.inf])
def test_a_batch_may_have_any_time(seconds):
    """Times that are too long for one call of epoll."""
    reader, writer = os.pipe()
    store = ManualStore(reader)
    with ObjectBatches(store, seconds=seconds) as batches:
        loaded = batches.load([(key(0), bytearray(8))])
        with pytest.raises(concurrent.futures.TimeoutError):
            loaded.result(0.1)
        store.end(1, TierResult.OK)
        os.write(writer, b"\0")
        assert loaded.result(WAIT) == [True]
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("by", ["time", "cancel"])
def test_what_has_not_begun_is_given_up(by):
    """And what has begun is waited for, because it uses the memory."""
    store = ManualStore()
    store.found[key(9)] = ObjectFound(TierResult.PENDING, 0)
    with ObjectBatches(store, seconds=0.2 if by == "time" else WAIT) as batches:
        begun = batches.load([(key(0), bytearray(8))])
        until(lambda: len(store.calls) == 1)
        store.full = True
        waits, searches = batches.load([(key(1), bytearray(8))] * 4), batches.find([key(9)])
        stores = batches.store([(key(9), page(0))])
        for batch in (begun, waits, searches, stores):
            if by == "cancel":
                assert batch.cancel() is False
        assert waits.result(WAIT) == [False] * 4
        assert searches.result(WAIT) == [False] and stores.result(WAIT) == [False]
        until(lambda: ("cancel", 1, 0) in store.calls)
        assert not begun.done() and not begun.cancelled()
        store.end(1, TierResult.OK)
        assert begun.result(WAIT) == [True]
        assert [call[0] for call in store.calls] == ["load", "cancel"]


def test_a_cancelled_job_of_the_disk_tier_ends(tmp_path):
    with open_objects(directory=tmp_path) as objects:
        job = objects.store([(key(i), page(i)) for i in range(1000)])
        objects.cancel(job)
        objects.cancel(job + 1)  # there is no such job
        ended = []
        until(lambda: ended.extend(objects.poll()) or len(ended) == 1000)
        assert {done.result for done in ended} <= {TierResult.OK, TierResult.CANCELLED}
        objects.cancel(job)


def test_an_object_that_is_too_large_is_false():
    store = ManualStore()
    with ObjectBatches(store, seconds=WAIT) as batches:
        stored = batches.store([(key(0), page(0, 10001)), (key(1), page(1, 10000))])
        until(lambda: store.calls == [("store", 1, 1)])
        store.end(1, TierResult.OK)
        assert stored.result(WAIT) == [False, True]
        assert batches.load([(key(0), bytearray(10001))]).result(WAIT) == [False]


def test_close_ends_every_batch_and_its_memory_is_free(tmp_path):
    store = ManualStore()
    batches = ObjectBatches(store, seconds=WAIT)
    begun = batches.load([(key(0), bytearray(8))])
    until(lambda: store.calls)
    batches.close()
    assert begun.result(0) == [False] and store.calls[-1] == ("close", 0, 0)
    batches.close()
    with pytest.raises(kvcache.Closed, match="^ObjectBatches: it was closed"):
        batches.find([key(0)])
    for cycle in range(10):
        batches = on_disk(tmp_path)
        memory = bytearray(page(cycle).tobytes())
        ended = [batches.store([(key(i), memory)]) for i in range(30)]
        batches.close()
        assert all(batch.done() for batch in ended)
        gc.collect()
        memory.clear()  # BufferError if a job had it


def test_a_failure_of_the_thread_ends_every_batch(caplog):
    class Broken(ManualStore):
        def poll(self):
            raise RuntimeError("broken")

    batches = ObjectBatches(Broken(), seconds=WAIT)
    try:
        assert batches.load([(key(0), bytearray(8))]).result(WAIT) == [False]
    except kvcache.Closed:  # the thread was faster
        pass
    until(lambda: not batches._thread.is_alive())
    with pytest.raises(kvcache.Closed):
        batches.find([key(0)])
    assert "broken" in caplog.text


def test_bad_calls(tmp_path):
    for options in ({}, {"directory": "/d", "redis": "redis://h"}):
        with pytest.raises(ValueError, match="^open_objects: one of directory and redis is needed"):
            open_objects(**options)
    with pytest.raises(TypeError, match="folder"):
        open_objects(directory=tmp_path, folder="/e")
    with on_disk(tmp_path) as batches:
        with pytest.raises(ValueError, match="a key has 3 bytes, not 32"):
            batches.find([b"key"])
        with pytest.raises(ValueError, match="the memory is read only"):
            batches.load([(key(0), b"constant")])
        with pytest.raises(ValueError, match="the memory is read only"):
            batches.load([(key(0), [bytearray(2), b"constant"])])
        with pytest.raises(ValueError, match="contiguous"):
            batches.store([(key(0), page(1)[::2])])
        with pytest.raises(TypeError):
            batches.store([(key(0), None)])
        assert batches.objects.stats()["open_items"] == 0


def test_a_child_has_no_thread(tmp_path):
    with on_disk(tmp_path) as batches:
        assert all(batches.store([(key(0), b"x")]).result(WAIT))
        child = os.fork()
        if child == 0:
            answers = [batches.find([key(0)]).result(0), batches.load([(key(0), bytearray(1))]).result(0)]
            batches.close()
            os._exit(answers != [[False], [False]])
        assert os.waitpid(child, 0)[1] == 0
        assert batches.find([key(0)]).result(WAIT) == [True]


def test_a_program_may_end_without_close(tmp_path):
    program = f"""
import kvcache
batches = kvcache.ObjectBatches(kvcache.open_objects(directory={str(tmp_path)!r}))
for i in range(50):
    batches.store([(i.to_bytes(32, "big"), bytes(100000))])
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


@needs_redis
def test_redis_keeps_dies_and_returns(tmp_path):
    pages = [page(i, size) for i, size in enumerate(SIZES)]
    pairs = [(key(i), one) for i, one in enumerate(pages)]
    with RedisServer(tmp_path) as server, on_redis(server.url) as batches, on_redis(server.url) as other:
        assert all(batches.store(pairs).result(WAIT))
        loaded = [np.zeros_like(one) for one in pages]
        assert all(other.load(zip(map(key, range(len(pages))), loaded)).result(WAIT))
        for one, expected in zip(loaded, pages):
            np.testing.assert_array_equal(one, expected)
        assert other.find([key(2), key(77)]).result(WAIT) == [True, False]
        server.command("SET", b"kvcache:" + key(2).hex().encode(), b"of another program")
        assert other.load([(key(2), loaded[2])]).result(WAIT) == [False]
        server.kill()
        assert batches.load(zip(map(key, range(len(pages))), loaded)).result(WAIT) == [False] * len(pages)
        assert batches.store([(key(50), page(1))]).result(WAIT) == [False]
        server.start()
        until(lambda: batches.store([(key(50), page(1))]).result(WAIT) == [True])
        memory = np.zeros(5000, np.uint8)
        assert other.load([(key(50), memory)]).result(WAIT) in ([True], [False])  # false while it waits to connect again
        until(lambda: other.load([(key(50), memory)]).result(WAIT) == [True])


@pytest.mark.parametrize("server", ["none", "silent"])
def test_a_server_that_does_not_answer_is_a_miss(server):
    with SilentServer() as silent, on_redis("redis://127.0.0.1:1" if server == "none" else silent.url, timeout=0.3, seconds=2) as batches:
        begun = [batches.find(map(key, range(100))), batches.load([(key(i), bytearray(100)) for i in range(100)]),
                 batches.store([(key(i), bytes(100)) for i in range(100)]), batches.remove([key(1)])]
        assert not any(answer for batch in begun for answer in batch.result(WAIT))
