"""LMCache's L2 adapter over libkvcache's tiers, as LMCache makes and calls it."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from host import WAIT, Host, content, memory, object_key, ours
from kvcache_lmcache import KvcacheConnector
from redis_server import PROGRAM, RedisServer, SilentServer

SIZES = [4096, 5000, 1 << 20, 64 << 20]
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no redis-server is installed")
OTHER_PROCESS = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from host import *
parameters = json.loads(sys.argv[2])
numbers, size, cycles = json.loads(sys.argv[3])
with Host(ours(**parameters)) as host:
    for cycle in range(cycles):
        assert host.store([object_key(i) for i in numbers], [memory(i, size) for i in numbers])
        loaded = [memory(None, size) for _ in numbers]
        assert host.load([object_key(i) for i in numbers], loaded) == list(range(len(numbers)))
        assert all(content(one) == content(memory(i, size)) for i, one in zip(numbers, loaded))
"""


def start(parameters, numbers, size=20000, cycles=1):
    paths = ":".join([str(Path(__file__).parent), str(Path(__file__).parents[3] / "tests" / "support")])
    import json
    return subprocess.Popen([sys.executable, "-c", OTHER_PROCESS, paths, json.dumps(parameters), json.dumps([numbers, size, cycles])])


@pytest.fixture(params=["disk", pytest.param("redis", marks=needs_redis)])
def tier(request, tmp_path):
    if request.param == "disk":
        yield {"directory": str(tmp_path / "objects"), "seconds": WAIT}
        return
    with RedisServer(tmp_path) as server:
        yield {"redis": server.url, "timeout": 10.0, "seconds": WAIT}


def test_objects_survive_their_process(tier):
    assert start(tier, [1, 2, 3]).wait(300) == 0
    with Host(ours(**tier)) as host:
        keys = [object_key(i) for i in (3, 4, 1, 2)]
        assert host.find(keys) == [0, 2, 3]
        loaded = [memory(None, 20000) for _ in keys]
        assert host.load(keys, loaded) == [0, 2, 3]
        for one, i in zip(loaded, (3, None, 1, 2)):
            assert content(one) == content(memory(i, 20000))
        host.adapter.submit_unlock(keys)


def test_sizes(tier):
    with Host(ours(**tier)) as host:
        keys = [object_key(i) for i, _ in enumerate(SIZES)]
        assert host.store(keys, [memory(i, size) for i, size in enumerate(SIZES)])
        loaded = [memory(None, size) for size in SIZES]
        assert host.load(keys, loaded) == list(range(len(SIZES)))
        assert all(content(one) == content(memory(i, size)) for i, (one, size) in enumerate(zip(loaded, SIZES)))
        assert host.load(keys[:1], [memory(None, 4095)]) == []


def test_two_processes_at_once(tier):
    others = [start(tier, list(range(first, first + 20)), cycles=5) for first in (0, 10)]
    assert [other.wait(300) for other in others] == [0, 0]
    with Host(ours(**tier)) as host:
        assert host.find([object_key(i) for i in range(30)]) == list(range(30))


def test_keys_that_differ_have_other_objects(tier):
    others = [object_key(1, model="model/b"), object_key(1, cache_salt="user"), object_key(1, object_group_id=1)]
    with Host(ours(**tier)) as host, Host(ours(namespace="revision 2", **tier)) as revised:
        assert host.store([object_key(1)], [memory(1, 5000)])
        assert host.find([object_key(1), *others]) == [0]
        assert revised.find([object_key(1)]) == []


def test_threads_share_an_adapter(tier):
    """The store controller and the prefetch controller, each with work in flight."""
    with Host(ours(**tier)) as host, ThreadPoolExecutor(2) as threads:
        assert host.store([object_key(i) for i in range(50)], [memory(i, 9000) for i in range(50)])

        def prefetch():
            for i in range(40):
                keys = [object_key(j) for j in range(i, i + 10)]
                assert host.find(keys) == list(range(10))
                loaded = [memory(None, 9000) for _ in keys]
                assert host.load(keys, loaded) == list(range(10))
                assert all(content(one) == content(memory(i + j, 9000)) for j, one in enumerate(loaded))

        def store():
            for i in range(100, 140):
                assert host.store([object_key(i + j) for j in range(5)], [memory(i + j, 9000) for j in range(5)])

        for done in [threads.submit(prefetch), threads.submit(store)]:
            done.result(5 * WAIT)


def test_a_damaged_object_is_a_miss(tmp_path):
    with Host(ours(directory=str(tmp_path))) as host:
        keys = [object_key(i) for i in range(3)]
        assert host.store(keys, [memory(i, 50000) for i in range(3)])
        damaged = host.adapter._client.object_key(f"model/a@02000200@0@{keys[1].chunk_hash.hex()}").hex()
        (file,) = tmp_path.glob(f"{damaged[:2]}/{damaged}.*")
        content_of_file = bytearray(file.read_bytes())
        content_of_file[30000] ^= 1
        file.write_bytes(content_of_file)
        assert host.load(keys, [memory(None, 50000) for _ in keys]) == [0, 2]
        assert host.store(keys, [memory(i, 50000) for i in range(3)])
        assert host.load(keys, [memory(None, 50000) for _ in keys]) == [0, 1, 2]


def test_delete_and_usage(tier):
    deleted = []

    class Listener:
        def on_l2_keys_stored(self, keys, sizes):
            pass

        def on_l2_keys_accessed(self, keys):
            pass

        def on_l2_keys_deleted(self, keys):
            deleted.extend(keys)

    with Host(ours(eviction={}, **tier)) as host:
        host.adapter.register_listener(Listener())
        keys = [object_key(i) for i in range(4)]
        assert host.store(keys, [memory(i, 5000) for i in range(4)])
        assert host.adapter.get_usage().total_bytes_used == 20000
        host.adapter.delete([keys[1], object_key(77)])
        assert deleted == [keys[1]] and host.adapter.get_usage().total_bytes_used == 15000
        assert host.load(keys, [memory(None, 5000) for _ in keys]) == [0, 2, 3]


@pytest.mark.parametrize("server", ["none", "silent"])
def test_a_server_that_does_not_answer_is_a_miss(server):
    keys = [object_key(i) for i in range(20)]
    with SilentServer() as silent:
        url = silent.url if server == "silent" else "redis://127.0.0.1:1"
        with Host(ours(redis=url, timeout=0.3, seconds=2)) as host:
            assert host.find(keys) == []
            assert host.load(keys, [memory(None, 5000) for _ in keys]) == []
            assert not host.store(keys, [memory(i, 5000) for i in range(20)])
            host.adapter.delete(keys)


@needs_redis
def test_a_server_that_dies_and_returns(tmp_path):
    keys = [object_key(i) for i in range(5)]
    objects = [memory(i, 5000) for i in range(5)]
    with RedisServer(tmp_path) as server, Host(ours(redis=server.url, timeout=10.0)) as host:
        assert host.store(keys, objects) and host.find(keys) == list(range(5))
        server.kill()
        assert host.load(keys, [memory(None, 5000) for _ in keys]) == []
        server.start()
        end = time.monotonic() + WAIT
        loaded = [memory(None, 5000) for _ in keys]
        while not host.store(keys, objects) or host.load(keys, loaded) != list(range(5)):  # an earlier HIT counts for a second
            assert time.monotonic() < end
        assert all(content(a) == content(b) for a, b in zip(loaded, objects))


def test_close_waits_for_memory(tmp_path):
    connector = KvcacheConnector(directory=str(tmp_path))
    numbers = {connector.submit_batch_set([f"key {i}"], [memoryview(bytearray(1 << 20))]) for i in range(50)}
    assert len(numbers) == 50
    connector.close()
    ended = connector.drain_completions()
    assert {number for number, *_ in ended} == numbers
    connector.close()


def test_the_descriptor_is_readable_while_something_waits(tmp_path):
    import select
    connector = KvcacheConnector(directory=str(tmp_path))
    try:
        poller = select.poll()
        poller.register(connector.event_fd(), select.POLLIN)
        assert poller.poll(0) == [] and connector.drain_completions() == []
        number = connector.submit_batch_exists(["a", "b"])
        assert poller.poll(1000 * WAIT)
        assert connector.drain_completions() == [(number, True, "", [False, False])]
        assert poller.poll(0) == []
        empty = connector.submit_batch_get([], [])
        assert poller.poll(1000 * WAIT) and connector.drain_completions() == [(empty, True, "", [])]
    finally:
        connector.close()


@pytest.mark.parametrize("parameters, message", [
    ({}, "one of directory and redis"), ({"directory": "/d", "redis": "redis://h"}, "one of directory and redis"),
    ({"directory": "/d", "folder": "/e"}, "folder"), ({"directory": "/d", "sync": "some"}, "sync 'some'"),
    ({"redis": "http://h"}, "http"),
])
def test_wrong_options_are_refused(parameters, message):
    threads = threading.active_count()
    with pytest.raises(Exception, match=message):
        ours(**parameters)
    assert threading.active_count() == threads
