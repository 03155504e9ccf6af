"""The parts that keep prefixes, without a server: rows of host memory, their objects, and the names of models."""
import os
import resource
import select
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from kvcache_vllm import identity, store, tier
from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.tiering.base import TransferJob

KEYS = [make_offload_key(bytes([i]) * 32, i % 2) for i in range(6)]
ROW = 8192


def make_spec(**changes):
    parallel = dict.fromkeys(("world_size", "tp_size", "pp_size", "pcp_size", "dcp_size"), 1)
    config = {
        "groups": [SimpleNamespace(tokens_per_block=16, layer_names=("a", "b"))], "kv_cache_layout": "LBHNC",
        "model": SimpleNamespace(dtype="bfloat16"), "cache": SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=1),
        "parallel": SimpleNamespace(**parallel), "replicated_layout": False, "canonical_layout": False, **changes}
    return SimpleNamespace(config=SimpleNamespace(**config), kv_events_config=SimpleNamespace(enable_kv_cache_events=True))


class Scheduler:
    """What vLLM's scheduler does with a tier."""

    def __init__(self, folder, name="model", spec=None, rows=len(KEYS)):
        self.rows = np.random.default_rng(len(name)).integers(0, 256, (rows, ROW), dtype=np.uint8)
        self.tier = tier.KvcacheTier(spec or make_spec(), memoryview(self.rows), "KvcacheTier", identity=name,
                                     directory=str(folder))
        self.jobs = 0

    def do(self, what, keys, rows, request="r"):
        self.jobs += 1
        getattr(self.tier, f"submit_{what}")(TransferJob(
            job_id=self.jobs, keys=keys, chunk_ids=np.array(rows, dtype=np.int32), is_promotion=what == "load",
            req_context=ReqContext(request)))
        self.tier.drain_jobs()
        (result,) = self.tier.get_finished_jobs()
        assert result.job_id == self.jobs
        return result

    def find(self, keys=KEYS, request="r"):
        return [self.tier.lookup(key, ReqContext(request)) for key in keys]


def files_of(folder, scheduler, key):
    name = scheduler.tier.object_key(key).hex()
    return list(folder.glob(f"{name[:2]}/{name}.*"))


def test_a_later_process_loads_rows_into_other_places(tmp_path):
    first = Scheduler(tmp_path)
    assert first.find() == [LookupResult.MISS] * 6
    stored = first.do("store", KEYS, range(6))
    assert stored.success and stored.transfer_bytes == 6 * ROW
    (event,) = first.tier.take_events()
    assert set(event.keys) == set(KEYS) and not event.removed and event.locality == base.Locality.LOCAL
    again = first.do("store", KEYS[:3], range(3))
    assert again.success and again.transfer_bytes == 0, "what is stored is not written again"
    expected = first.rows.copy()
    first.tier.shutdown()

    second = Scheduler(tmp_path)
    second.rows[:] = 0
    assert second.find() == [LookupResult.HIT] * 6
    loaded = second.do("load", KEYS[:4], [5, 1, 3, 0])
    assert loaded.success
    np.testing.assert_array_equal(second.rows[[5, 1, 3, 0]], expected[:4])
    assert not second.rows[[2, 4]].any()
    assert list(second.tier.take_events()) == []
    second.tier.shutdown()


def test_a_server_with_many_connections_drains_its_jobs(tmp_path):
    """The descriptor of its tier is above 1023, which select() does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"at most {hard} descriptors may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        scheduler = Scheduler(tmp_path)
        assert scheduler.tier._objects.fileno() > 1023
        assert scheduler.do("store", KEYS, range(6)).success
        scheduler.tier.shutdown()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_damage_is_a_miss_for_the_request_that_met_it(tmp_path):
    scheduler = Scheduler(tmp_path)
    scheduler.do("store", KEYS, range(6))
    (file,) = files_of(tmp_path, scheduler, KEYS[2])
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    file.write_bytes(damaged)
    (file,) = files_of(tmp_path, scheduler, KEYS[3])
    file.unlink()
    result = scheduler.do("load", KEYS, range(6), request="a")
    assert not result.success and set(result.successful_keys) == {KEYS[i] for i in (0, 1, 4, 5)}
    assert scheduler.find(request="a")[2:4] == [LookupResult.MISS] * 2
    assert scheduler.do("store", KEYS[2:3], [2]).success
    assert scheduler.find(KEYS[2:3], "a") == [LookupResult.MISS], "a request does not try again what failed"
    assert scheduler.find(KEYS[2:3], "b") == [LookupResult.HIT]
    scheduler.tier.on_request_finished(ReqContext("a"))
    assert scheduler.find(KEYS[2:3], "a") == [LookupResult.HIT]
    scheduler.tier.shutdown()


def test_more_than_the_tier_takes_at_once(tmp_path, monkeypatch):
    scheduler = Scheduler(tmp_path)
    objects = scheduler.tier._objects
    objects.max_job_objects = 2
    starts, store_now = [], objects.store

    def sometimes(pairs):
        starts.append(len(pairs))
        return store_now(pairs) if len(starts) % 3 == 0 else None

    monkeypatch.setattr(objects, "store", sometimes)
    assert scheduler.do("store", KEYS, range(6)).transfer_bytes == 6 * ROW
    assert starts.count(2) == len(starts) >= 9
    assert scheduler.find() == [LookupResult.HIT] * 6
    scheduler.tier.shutdown()


@pytest.mark.parametrize("change", [
    {"model": SimpleNamespace(dtype="fp8")},
    {"groups": [SimpleNamespace(tokens_per_block=16, layer_names=("a", "c"))]},
    {"parallel": SimpleNamespace(world_size=2, tp_size=2, pp_size=1, pcp_size=1, dcp_size=1)},
    {"kv_cache_layout": "BLHNC"},
])
def test_another_layout_has_other_keys(tmp_path, change):
    scheduler = Scheduler(tmp_path)
    scheduler.do("store", KEYS, range(6))
    other = Scheduler(tmp_path, spec=make_spec(**change))
    assert other.find() == [LookupResult.MISS] * 6
    another = Scheduler(tmp_path, name="model 2")
    assert another.find() == [LookupResult.MISS] * 6
    for each in (scheduler, other, another):
        each.tier.shutdown()


def test_weights_are_told_apart(tmp_path):
    digests = set()
    for value in (0, 1):  # one tensor of many differs
        folder = tmp_path / str(value)
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        weights = np.zeros(8 << 20, np.uint8)
        weights[3 << 20:(3 << 20) + 100_000] = value
        (folder / "model.safetensors").write_bytes(weights.tobytes())
        digests.add(identity.weights_digest(folder))
        assert identity.weights_digest(folder) in digests
    (folder / "config.json").write_text('{"rope_theta": 1}')
    digests.add(identity.weights_digest(folder))
    assert len(digests) == 3
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="has no weights"):
        identity.weights_digest(folder)
    with pytest.raises(ValueError, match="the files of example/missing-model are not found"):
        identity.model_folder("example/missing-model", None)


def test_configuration():
    extra = {"directory": "/d", "capacity_bytes": 5, "redis": "redis://h", "timeout": 2, "offload_prompt_only": False}
    for _ in range(2):  # it may be completed again
        store.complete(extra)
        assert [set(one) - {"type", "module_path"} for one in extra["secondary_tiers"]] == [
            {"directory", "capacity_bytes"}, {"redis", "timeout"}]
        assert extra["spec_name"] == "KvcacheSpec" and extra["cpu_bytes_to_use"] == store.HOST_BYTES
    for wrong in ({}, {"capacity_bytes": 5}, {"redis": "redis://h", "sync": "data"}, {"directory": "/d", "folder": "/e"}):
        with pytest.raises(ValueError, match="kv_connector_extra_config"):
            store.complete(wrong)


@pytest.mark.parametrize("per_chunk", [1, 4])
def test_pages_are_copied_to_their_rows_and_back(per_chunk):
    torch.manual_seed(1)
    blocks, page, sizes = 40, 96, (64, 96)  # the first tensor's pages end with padding
    caches = [torch.randint(0, 100, (blocks, page), dtype=torch.int8) for _ in sizes]
    before = [cache.clone() for cache in caches]
    refs = [[base.CanonicalKVCacheRef(i, size) for i, size in enumerate(sizes)], [base.CanonicalKVCacheRef(1, sizes[1])]]
    kv_caches = base.CanonicalKVCaches([base.CanonicalKVCacheTensor(cache, page) for cache in caches], refs)
    memory = torch.zeros(9, 2 * page * per_chunk, dtype=torch.int8)
    views = iter(memory.split(page * per_chunk, 1))
    region = SimpleNamespace(create_next_worker_view=lambda size: next(views), mmap_path="/dev/shm/none", cleanup=lambda: None)
    copier = store.PageCopier(kv_caches, per_chunk, region)

    counts, first = (7, 5), (2, 0)  # pages of each group, and the place of the first one in its request
    ids = torch.randperm(blocks)[:sum(counts)].tolist()
    chunks = [-(-(count + index % per_chunk) // per_chunk) for count, index in zip(counts, first)]
    rows = torch.randperm(9).tolist() if per_chunk > 1 else [*range(9), *range(3)]
    rows = rows[:sum(chunks)]
    if per_chunk == 1:
        ids, rows, counts = ids[:8], torch.randperm(9).tolist()[:8], (5, 3)
    pages = base.GPULoadStoreSpec(ids, counts, first)
    assert copier.submit_store(1, pages, CPULoadStoreSpec(rows))
    for cache in caches:
        cache[ids] = -1
    assert copier.submit_load(2, CPULoadStoreSpec(rows), pages)
    assert [result.job_id for result in copier.get_finished()] == [1, 2] and copier.get_finished() == []
    for i, (cache, size) in enumerate(zip(caches, sizes)):
        own = ids if i == 1 else ids[:counts[0]]  # the second group has the second tensor alone
        assert torch.equal(cache[own, :size], before[i][own, :size])
        others = [b for b in range(blocks) if b not in ids]
        assert torch.equal(cache[others], before[i][others])
    row, part = divmod(first[0] % per_chunk + 3, per_chunk)  # the fourth page of the first group, by hand
    assert torch.equal(memory[rows[row], part * page:part * page + sizes[0]], before[0][ids[3], :sizes[0]])


def test_a_server_that_is_not_there_is_a_miss():
    rows = np.zeros((2, ROW), np.uint8)
    one = tier.KvcacheTier(make_spec(), memoryview(rows), "KvcacheTier", identity="m", redis="redis://127.0.0.1:1", timeout=0.2)
    assert one.locality == base.Locality.REMOTE
    result = LookupResult.RETRY
    while result == LookupResult.RETRY:
        result = one.lookup(KEYS[0], ReqContext("r"))
        select.select([], [], [], 0.01)
    assert result == LookupResult.MISS
    one.submit_store(TransferJob(1, KEYS[:1], np.array([0]), False, ReqContext("r")))
    one.drain_jobs()
    (done,) = one.get_finished_jobs()
    assert not done.success and done.transfer_bytes == 0 and list(one.take_events()) == []
    one.shutdown()


def test_the_memory_has_no_name_after_the_first_copy(tmp_path):
    path = tmp_path / "region"
    path.touch()
    region = SimpleNamespace(create_next_worker_view=lambda size: torch.zeros(1, size, dtype=torch.int8), mmap_path=str(path),
                             cleanup=lambda: None)
    cache = base.CanonicalKVCacheTensor(torch.zeros(2, 8, dtype=torch.int8), 8)
    copier = store.PageCopier(base.CanonicalKVCaches([cache], [[base.CanonicalKVCacheRef(0, 8)]]), 1, region)
    assert os.path.exists(path)
    copier.submit_store(1, base.GPULoadStoreSpec([1], [1], [0]), CPULoadStoreSpec([0]))
    assert not os.path.exists(path)
