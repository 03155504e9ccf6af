"""HiCache's storage backend over libkvcache's tiers, as SGLang makes and calls it."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from host import HostPool, Storage, config
from redis_server import PROGRAM, RedisServer, SilentServer
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

WAIT = 300  # seconds: the machine may be busy
KEYS = [f"{i:064x}" for i in range(8)]
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no redis-server is installed")
OTHER_PROCESS = """
import json, sys
sys.path[:0] = sys.argv[1].split(":")
from host import *
options, pages, cycles = json.loads(sys.argv[2])
pool, empty = HostPool(seed=1), HostPool()
with Storage(options, pool) as backend:
    keys = [f"{i:064x}" for i in pages]
    for cycle in range(cycles):
        assert all(backend.batch_set_v1(keys, pool.indices(*pages)))
        backend.register_mem_pool_host(empty)
        assert all(backend.batch_get_v1(keys, empty.indices(*pages)))
        assert all(torch.equal(empty.page(i), pool.page(i)) for i in pages)
        backend.register_mem_pool_host(pool)
"""


def start(options, pages, cycles=1):
    here = Path(__file__).parent
    paths = f"{here}:{here.parents[2] / 'tests' / 'support'}"
    return subprocess.Popen([sys.executable, "-c", OTHER_PROCESS, paths, json.dumps([options, pages, cycles])])


@pytest.fixture(params=["disk", pytest.param("redis", marks=needs_redis)])
def tier(request, tmp_path):
    if request.param == "disk":
        yield {"directory": str(tmp_path / "objects"), "seconds": WAIT}
        return
    with RedisServer(tmp_path) as server:
        yield {"redis": server.url, "timeout": 10.0, "seconds": WAIT}


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_pages_are_moved_without_a_copy(tier, layout):
    first, second = HostPool(seed=1, layout=layout), HostPool(layout=layout)
    with Storage(tier, first) as backend:
        assert backend.batch_exists(KEYS) == 0
        assert backend.batch_set_v1(KEYS[:5], first.indices(0, 1, 2, 3, 4)) == [True] * 5
        assert backend.batch_exists(KEYS) == 5
    with Storage(tier, second) as backend:  # another process finds them too: below
        assert backend.batch_get_v1([KEYS[4], KEYS[7], KEYS[0]], second.indices(2, 3, 6)) == [True, False, True]
        assert torch.equal(second.page(2), first.page(4)) and torch.equal(second.page(6), first.page(0))
        assert not second.page(1).any() and not second.page(7).any()
        assert backend.batch_exists(KEYS[3:]) == 2
        assert backend.exists(KEYS[0]) and not backend.exists(KEYS[6])


def test_pages_survive_their_process(tier):
    assert start(tier, [0, 1, 2]).wait(WAIT) == 0
    pool = HostPool()
    with Storage(tier, pool) as backend:
        assert backend.batch_get_v1(KEYS[:3], pool.indices(5, 6, 7)) == [True] * 3
        assert torch.equal(pool.page(6), HostPool(seed=1).page(1))
        assert backend.batch_exists(KEYS[:3]) == 3


def test_two_processes_at_once(tier):
    others = [start(tier, pages, 20) for pages in ([0, 1, 2, 3, 4], [3, 4, 5, 6, 7])]
    assert [other.wait(2 * WAIT) for other in others] == [0, 0]
    pool = HostPool()
    with Storage(tier, pool) as backend:
        assert backend.batch_exists(KEYS) == 8


def test_pages_that_sglang_copies(tier):
    pool = HostPool(seed=2)
    with Storage(tier, pool, v1=False) as backend:
        pages = [pool.page(i) for i in range(4)]
        assert backend.batch_set(KEYS[:3], pages[:3]) and backend.set(KEYS[3], pages[3])
        targets = [pool.get_dummy_flat_data_page() for _ in range(5)]
        loaded = backend.batch_get(KEYS[:5], targets)
        assert [one is None for one in loaded] == [False] * 4 + [True]
        assert all(torch.equal(one, page) for one, page in zip(loaded, pages)) and loaded[0] is targets[0]
        assert torch.equal(backend.get(KEYS[1]).view(torch.bfloat16), pages[1])
        assert backend.get(KEYS[6], targets[0]) is None and backend.get(KEYS[1], torch.zeros(3)) is None
        strided = torch.zeros(2, pages[0].numel(), dtype=torch.bfloat16).T[:, 0]
        assert torch.equal(backend.get(KEYS[2], strided), pages[2]) and torch.equal(strided, pages[2])
        assert backend.set(KEYS[5], None, pages[0]) and backend.exists(KEYS[5])
        assert not backend.set(KEYS[6]) and not backend.batch_set(KEYS, pages)


@pytest.mark.parametrize("page_size", [1, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_types_and_page_sizes(tmp_path, page_size, dtype):
    pool, empty = HostPool(seed=3, page_size=page_size, dtype=dtype), HostPool(page_size=page_size, dtype=dtype)
    with Storage({"directory": str(tmp_path)}, pool) as backend:
        assert all(backend.batch_set_v1(KEYS, pool.indices(*range(8))))
        backend.register_mem_pool_host(empty)
        assert all(backend.batch_get_v1(KEYS, empty.indices(*range(8))))
    assert torch.equal(empty.kv_buffer.view(torch.uint8), pool.kv_buffer.view(torch.uint8))


def test_a_page_of_64_mib(tier):
    page = torch.randint(0, 256, (64 << 20,), dtype=torch.uint8)
    with Storage(tier, HostPool()) as backend:
        assert backend.set(KEYS[0], page)
        target = torch.zeros_like(page)
        assert backend.get(KEYS[0], target) is target and torch.equal(target, page)


@pytest.mark.parametrize("changes", [
    {"model_name": "model/b"}, {"tp_rank": 1, "tp_size": 2}, {"pp_rank": 1, "pp_size": 2}, {"attn_cp_rank": 1, "attn_cp_size": 2},
    {"namespace": "revision 2"}, {"dtype": torch.float16}, {"layout": "layer_first"}, {"v1": False},
])
def test_pages_that_differ_are_not_shared(tmp_path, changes):
    pool = HostPool(seed=1)
    of_pool = {name: changes.pop(name) for name in ("dtype", "layout") if name in changes}
    options = {"directory": str(tmp_path)}
    with Storage(options, pool) as backend:
        assert all(backend.batch_set_v1(KEYS, pool.indices(*range(8))))
    namespace = {"namespace": changes.pop("namespace")} if "namespace" in changes else {}
    with Storage({**options, **namespace}, HostPool(**of_pool), **changes) as backend:
        assert backend.batch_exists(KEYS) == 0
    with Storage(options, HostPool()) as backend:
        assert backend.batch_exists(KEYS) == 8


def test_ranks_share_what_is_replicated(tmp_path):
    options, mla = {"directory": str(tmp_path)}, {"is_mla_model": True, "tp_size": 2}
    pool = HostPool(seed=1)
    with Storage(options, pool, **mla, tp_rank=0) as backend:
        assert all(backend.batch_set_v1(KEYS, pool.indices(*range(8))))
        backend.register_mem_host_pool_v2(pool, PoolName.MAMBA)
        moved = backend.batch_set_v2([PoolTransfer(PoolName.MAMBA, pool.indices(0), keys=KEYS[:1])])
        assert moved == {PoolName.MAMBA: [True]}
    with Storage(options, pool, **mla, tp_rank=1) as backend:
        assert backend.batch_exists(KEYS) == 8
        backend.register_mem_host_pool_v2(pool, PoolName.MAMBA)
        assert backend.batch_get_v2([PoolTransfer(PoolName.MAMBA, pool.indices(0), keys=KEYS[:1])]) == {PoolName.MAMBA: [False]}


def test_models_with_several_pools(tier):
    pool, states, empty = HostPool(seed=1), HostPool(seed=2, page_size=1), HostPool(page_size=1)
    with Storage(tier, pool) as backend:
        backend.register_mem_host_pool_v2(pool, PoolName.KV)
        backend.register_mem_host_pool_v2(states, PoolName.MAMBA)

        def exists(policy, count=1, keys=KEYS):
            return backend.batch_exists_v2(keys, [PoolTransfer(PoolName.MAMBA, keys=KEYS[:count], hit_policy=policy)])

        kv = PoolTransfer(PoolName.KV, pool.indices(*range(6)), keys=KEYS[:6])
        moved = backend.batch_set_v2([kv, PoolTransfer(PoolName.MAMBA, states.indices(0, 1, 3), keys=[KEYS[0], KEYS[1], KEYS[3]])])
        assert moved == {PoolName.KV: [True] * 6, PoolName.MAMBA: [True] * 3}
        assert backend.batch_exists(KEYS) == 6, "the pages of K and V have one key in all interfaces"
        result = exists(PoolHitPolicy.ALL_PAGES)
        assert (result.kv_hit_pages, result.extra_pool_hit_pages) == (2, {PoolName.KV: 6, PoolName.MAMBA: 2})
        assert result.restorable_prefix_pages == [1, 2]
        result = exists(PoolHitPolicy.TRAILING_PAGES)
        assert (result.kv_hit_pages, result.restorable_prefix_pages) == (4, [1, 2, 4])
        assert exists(PoolHitPolicy.TRAILING_PAGES, 2).restorable_prefix_pages == [1, 2]
        result = exists(PoolHitPolicy.BLOCK_GROUPS)
        assert (result.kv_hit_pages, result.extra_pool_hit_pages) == (6, {PoolName.KV: 6})
        assert exists(PoolHitPolicy.ALL_PAGES, keys=KEYS[6:]).kv_hit_pages == 0
        assert backend.batch_exists_v2([], None).kv_hit_pages == 0

        backend.registered_pools[PoolName.MAMBA] = empty
        assert backend.batch_get_v2([PoolTransfer(PoolName.MAMBA, empty.indices(5, 6), keys=[KEYS[3], KEYS[4]])]) == {
            PoolName.MAMBA: [True, False]}
        assert torch.equal(empty.page(5), states.page(3)) and not empty.page(6).any()
        wrong = [PoolTransfer(PoolName.MAMBA, empty.indices(5), keys=KEYS[:2]), PoolTransfer(PoolName.SWA, empty.indices(5), keys=KEYS[:1]),
                 PoolTransfer(PoolName.DRAFT, None, keys=KEYS[:1])]
        assert backend.batch_get_v2(wrong) == {PoolName.MAMBA: [False] * 2, PoolName.SWA: [False], PoolName.DRAFT: [False]}


def test_threads_share_a_backend(tier):
    """SGLang looks up, loads and stores from a thread each."""
    pool, loaded = HostPool(seed=1, pages=40), HostPool(pages=40)
    keys = [f"{i:064x}" for i in range(40)]
    with Storage(tier, pool) as backend, ThreadPoolExecutor(3) as threads:
        assert all(backend.batch_set_v1(keys[:20], pool.indices(*range(20))))

        def load():
            for i in range(20):
                page = backend.get(keys[i], loaded.get_dummy_flat_data_page())
                assert torch.equal(page, pool.page(i))
                assert backend.batch_exists(keys[:20]) == 20

        def store():
            for i in range(20, 40):
                assert backend.batch_set_v1([keys[i], keys[i - 20]], pool.indices(i, i - 20)) == [True] * 2

        for done in [threads.submit(work) for work in (load, load, store)]:
            done.result(WAIT)
        backend.register_mem_pool_host(loaded)
        assert all(backend.batch_get_v1(keys, loaded.indices(*range(40))))
    assert torch.equal(loaded.kv_buffer, pool.kv_buffer)


def test_a_damaged_page_is_a_miss(tmp_path):
    pool = HostPool(seed=1)
    with Storage({"directory": str(tmp_path)}, pool) as backend:
        assert all(backend.batch_set_v1(KEYS[:3], pool.indices(0, 1, 2)))
        damaged = backend._keys(KEYS[1:2])[0].hex()
        (file,) = tmp_path.glob(f"{damaged[:2]}/{damaged}.*")
        content = bytearray(file.read_bytes())
        content[300] ^= 1
        file.write_bytes(content)
        loaded = HostPool()
        backend.register_mem_pool_host(loaded)
        assert backend.batch_get_v1(KEYS[:3], loaded.indices(0, 1, 2)) == [True, False, True]
        backend.register_mem_pool_host(pool)
        assert all(backend.batch_set_v1(KEYS[:3], pool.indices(0, 1, 2)))
        assert all(backend.batch_get_v1(KEYS[:3], pool.indices(0, 1, 2)))


@pytest.mark.parametrize("server", ["none", "silent"])
def test_a_server_that_does_not_answer_is_a_miss(server):
    pool = HostPool(seed=1)
    with SilentServer() as silent:
        url = silent.url if server == "silent" else "redis://127.0.0.1:1"
        with Storage({"redis": url, "timeout": 0.3, "seconds": 2}, pool) as backend:
            assert backend.batch_exists(KEYS) == 0
            assert backend.batch_get_v1(KEYS, pool.indices(*range(8))) == [False] * 8
            assert backend.batch_set_v1(KEYS, pool.indices(*range(8))) == [False] * 8
            assert backend.get(KEYS[0], pool.get_dummy_flat_data_page()) is None


def _loads(backend, loaded, pool):
    backend.register_mem_pool_host(loaded)
    answers = backend.batch_get_v1(KEYS, loaded.indices(*range(8)))
    backend.register_mem_pool_host(pool)
    return all(answers)


@needs_redis
def test_a_server_that_dies_and_returns(tmp_path):
    pool = HostPool(seed=1)
    with RedisServer(tmp_path) as server, Storage({"redis": server.url, "timeout": 10.0}, pool) as backend:
        assert all(backend.batch_set_v1(KEYS, pool.indices(*range(8))))
        server.kill()
        assert backend.batch_get_v1(KEYS, pool.indices(*range(8))) == [False] * 8
        server.start()
        end = time.monotonic() + WAIT
        loaded = HostPool()
        while not all(backend.batch_set_v1(KEYS, pool.indices(*range(8)))) or not _loads(backend, loaded, pool):
            assert time.monotonic() < end
        assert torch.equal(loaded.kv_buffer, pool.kv_buffer)


def test_wrong_configurations_are_refused(tmp_path):
    for options, message in [({}, "one of directory and redis"), ({"directory": str(tmp_path), "folder": "/e"}, "folder")]:
        with pytest.raises(Exception, match=message):
            StorageBackendFactory.create_backend("dynamic", config(options), HostPool())
    with Storage({"directory": str(tmp_path)}, HostPool()) as backend:
        assert backend.clear() is False
        with pytest.raises(ValueError, match="3 keys came with 4 parts"):
            backend.batch_get_v1(KEYS[:3], HostPool().indices(0, 1))
