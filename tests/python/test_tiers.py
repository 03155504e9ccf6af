"""Tiers of a Cache: tokens that were evicted, or computed by an earlier process, are loaded and not computed again."""

import math
import os
import resource
import time

import numpy as np
import pytest

import kvcache

LAYERS = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8) for _ in range(2)]


def make(folder, fingerprint=b"m" * 32, **options):
    cache = kvcache.Cache(LAYERS, page_size=4, capacity_tokens=256, prefix_index=True, fingerprint=fingerprint)
    cache.add_disk_tier(folder, **options)
    return cache


def rows(tokens, heads):
    return np.array([[[t * 0.25 + h + d for d in range(8)] for h in range(heads)] for t in tokens], dtype=np.float32)


def serve(cache, prompt):
    """Attaches what is found, computes the rest, and publishes. Returns the outputs of the last token, and the hit."""
    sequence, hit = cache.attach_prefix(prompt)
    rest = prompt[hit.tokens :]
    outputs = []
    with cache.forward([sequence], [len(rest)]) as step:
        for layer in range(len(LAYERS)):
            outputs.append(step.attend(layer, rows(rest, 2), rows(rest, 1), rows(rest, 1))[-1].copy())
    cache.publish_prefix(sequence, prompt)
    cache.remove(sequence)
    return outputs, hit


def store(cache):
    while cache.tier_traffic().pages_waiting > 0:
        time.sleep(0.001)


def test_a_later_process_loads_what_this_one_computed(tmp_path):
    prompt = list(range(30))
    with make(tmp_path / "tier") as cache:
        computed, hit = serve(cache, prompt)
        assert hit.tokens == hit.load_tokens == 0
        store(cache)
        assert cache.tier_traffic() == kvcache.TierTraffic(1, 0, 7, 0, 0, 0, 0, 0, 0)
    with make(tmp_path / "tier") as cache:
        job, hit = cache.load_prefix(prompt)
        assert (hit.tokens, hit.load_tokens, hit.tier_tokens, hit.token_ns) == (0, 28, (28,), 0)
        assert job.wait(30) == job.tokens == job.poll() == 28
        assert "ended with 28 tokens" in repr(job)
        job.cancel()  # the job has ended, so nothing happens
        loaded, hit = serve(cache, prompt)
        assert hit.tokens == 28
        for a, b in zip(computed, loaded):
            np.testing.assert_allclose(a, b, rtol=1e-4)  # a step of 2 tokens rounds in another way than one of 30
        assert cache.load_prefix(prompt)[0] is None
        assert cache.tier_traffic().pages_loaded == 7


def test_a_sequence_is_attached_to_a_load_that_runs(tmp_path):
    prompt = list(range(30))
    with make(tmp_path / "tier") as cache:
        computed, _ = serve(cache, prompt)
        store(cache)
    with make(tmp_path / "tier") as cache:
        job, _ = cache.load_prefix(prompt, token_ns=math.inf)
        sequence, tokens = job.attach(wait=True, timeout=60)
        assert tokens == cache.length(sequence) == 28
        waiting = cache.pending(sequence)  # until a step or a poll has seen the end of the load
        assert isinstance(waiting, kvcache.PendingLoad)
        assert (waiting.tokens, waiting.pages, waiting.failed) == (28, 7, False)
        assert 0 <= waiting.pages_loaded <= 7 and 0 <= waiting.ready_layers <= 2
        with pytest.raises(kvcache.Pending, match=f"sequence {sequence} at index 0 is pending"):
            cache.fork(sequence)
        with cache.forward([sequence], [2]) as step:
            for layer, expected in enumerate(computed):
                x = rows(prompt[28:], 2), rows(prompt[28:], 1), rows(prompt[28:], 1)
                np.testing.assert_allclose(step.attend(layer, *x)[-1], expected, rtol=1e-4)
        assert cache.pending(sequence) is None
        assert job.wait(30) == 28
        with pytest.raises(kvcache.StaleId, match="LoadJob.attach: job"):
            job.attach()
        with pytest.raises(kvcache.OutOfRange, match="LoadJob.attach: timeout -"):
            job.attach(timeout=-1)
        cache.check_invariants()


def test_a_cancelled_load_leaves_a_shorter_sequence(tmp_path):
    prompt = list(range(30))
    with make(tmp_path / "tier") as cache:
        serve(cache, prompt)
        store(cache)
    with make(tmp_path / "tier") as cache:
        job, _ = cache.load_prefix(prompt, token_ns=math.inf)
        sequence, _ = job.attach()
        job.cancel()
        assert cache.length(sequence) == 28
        loaded = job.wait(30)
        assert cache.pending(sequence) is None
        assert cache.length(sequence) == loaded <= 28
        cache.fork(sequence)


def test_a_job_is_waited_for_by_a_high_descriptor(tmp_path):
    """A program with many connections has descriptors above 1023, which select() does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"at most {hard} descriptors may be open")
    prompt = list(range(16))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        with make(tmp_path) as cache:
            serve(cache, prompt)
            store(cache)
            cache.drop_prefix([])
            job, _ = cache.load_prefix(prompt)
            assert job.fileno() > 1023
            assert job.wait(30) == 16
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nothing_crosses_salts_and_models(tmp_path):
    prompt = list(range(16))
    with make(tmp_path) as cache:
        serve(cache, prompt)
        store(cache)
        cache.drop_prefix([])
        assert cache.load_prefix(prompt, salt=1)[0] is None
        assert cache.load_prefix(prompt)[0].wait(30) == 16
    with make(tmp_path, fingerprint=b"n" * 32) as cache:
        assert cache.load_prefix(prompt)[0] is None


def test_private_prefixes_stay_in_the_pools(tmp_path):
    with make(tmp_path) as cache:
        sequence = cache.add()
        with cache.forward([sequence], [8]) as step:
            for layer in range(len(LAYERS)):
                step.attend(layer, rows(range(8), 2), rows(range(8), 1), rows(range(8), 1))
        cache.publish_prefix(sequence, list(range(8)), keep_private=True)
        store(cache)
        assert cache.tier_traffic().pages_stored == 0


def test_bad_calls(tmp_path):
    with kvcache.Cache(LAYERS, capacity_tokens=64, prefix_index=True) as cache:
        with pytest.raises(kvcache.Unsupported, match="fingerprint"):
            cache.add_disk_tier(tmp_path)
        with pytest.raises(kvcache.Unsupported, match="no tier"):
            cache.load_prefix([1, 2])
    with make(tmp_path) as cache:
        with pytest.raises(ValueError, match="sync 'often' is not one of data, none, full"):
            cache.add_disk_tier(tmp_path, sync="often")
        with pytest.raises(kvcache.OutOfRange, match="capacity_bytes -1"):
            cache.add_disk_tier(tmp_path, capacity_bytes=-1)
        with pytest.raises(kvcache.OutOfRange, match="token_ns -1"):
            cache.load_prefix([1, 2], token_ns=-1)
        file = tmp_path / "file"
        file.write_text("")
        with pytest.raises(kvcache.Error):
            cache.add_disk_tier(file / "tier")


def host_cache(capacity_bytes=1 << 20):
    cache = kvcache.Cache(LAYERS, page_size=4, capacity_tokens=256, prefix_index=True, fingerprint=b"m" * 32)
    cache.add_host_tier(capacity_bytes)
    return cache


def decode(cache, sequence, tokens):
    with cache.forward([sequence], [len(tokens)]) as step:
        return [step.attend(layer, rows(tokens, 2), rows(tokens, 1), rows(tokens, 1)).copy() for layer in range(len(LAYERS))]


def test_a_tier_may_store_what_is_evicted_next(tmp_path):
    with make(tmp_path, store="evicted") as cache:  # a pool of 64 pages
        for first in range(0, 400, 20):
            serve(cache, list(range(first, first + 20)))
            store(cache)
            if first < 180:
                assert cache.tier_traffic().pages_stored == 0
        assert cache.load_prefix(list(range(20)), token_ns=math.inf)[1].load_tokens == 19
        assert cache.load_prefix(list(range(380, 400)))[0] is None


def test_a_hit_has_the_tokens_of_each_tier(tmp_path):
    prompt = list(range(30))
    with host_cache() as cache:
        serve(cache, prompt[:16])
        store(cache)
        cache.add_disk_tier(tmp_path / "tier")
        serve(cache, prompt)
        store(cache)
        cache.drop_prefix([])
        serve(cache, prompt[:8])
        hit = cache.match_prefix(prompt)
        assert (hit.tokens, hit.load_tokens, hit.tier_tokens) == (8, 28, (20, 0))
        assert cache.attach_prefix(prompt)[1].tier_tokens == ()


def test_a_load_that_takes_longer_than_computing():
    prompt = list(range(30))
    with host_cache() as cache:
        serve(cache, prompt)
        store(cache)
        for token_ns in (0, math.inf, 1e9):  # the measured times differ from run to run
            cache.drop_prefix([])
            job, hit = cache.load_prefix(prompt, token_ns=token_ns)
            assert hit.tier_tokens == (28,)
            assert hit.token_ns > 0
            if token_ns == 0:
                assert (job is None) == (hit.load_tokens == 0)
            elif token_ns > 0:
                assert hit.load_tokens == 28
            assert job is None or job.wait(30) == hit.load_tokens
        cache.drop_prefix([])
        job, hit = cache.load_prefix(prompt, token_ns=0.5)  # a nanosecond
        assert job is None
        assert (hit.load_tokens, hit.load_ns, hit.tier_tokens) == (0, 0, (28,))


@pytest.mark.parametrize("reads", ["any", "blocking", "io_uring"])
def test_a_folder_is_read_as_the_caller_chooses(tmp_path, reads):
    prompt = list(range(200))
    try:
        cache = make(tmp_path, reads=reads)
    except kvcache.Unsupported as why:
        assert reads == "io_uring" and "io_uring: " in str(why)
        pytest.skip(str(why))
    with cache:
        by_io_uring = cache.describe()["tiers"]["tiers_by_io_uring"]
        assert by_io_uring == {"blocking": 0, "io_uring": 1}.get(reads, by_io_uring)
        computed, _ = serve(cache, prompt)
        store(cache)
        cache.drop_prefix([])
        assert cache.load_prefix(prompt)[0].wait(30) == 200
        loaded, hit = serve(cache, prompt)
        assert hit.tokens == 199
        for a, b in zip(computed, loaded):
            np.testing.assert_allclose(a, b, rtol=1e-4)
    with pytest.raises(ValueError, match="reads 'aio' is not one of any, blocking, io_uring"):
        make(tmp_path, reads="aio")


def test_a_host_tier_keeps_what_is_evicted():
    prompt = list(range(30))
    with host_cache() as cache:
        computed, _ = serve(cache, prompt)
        store(cache)
        cache.drop_prefix([])
        assert cache.load_prefix(prompt)[0].wait(30) == 28
        loaded, hit = serve(cache, prompt)
        assert hit.tokens == 28
        for a, b in zip(computed, loaded):
            np.testing.assert_allclose(a, b, rtol=1e-4)


def test_a_resumed_sequence_goes_on_as_if_nothing_had_happened():
    with host_cache() as cache:
        a, b = cache.add(2)
        for sequence in (a, b):
            decode(cache, sequence, range(30))
        used = cache.stats().pages_used
        assert cache.suspend(a).wait(30) == 30
        assert cache.stats().pages_used == used - 8 and cache.tier_traffic().sequences_suspended == 1
        for call in (lambda: decode(cache, a, [1]), lambda: cache.fork(a), lambda: cache.suspend(a)):
            with pytest.raises(kvcache.Suspended, match="is suspended"):
                call()
        assert cache.length(a) == 30
        decode(cache, cache.add(), range(100, 140))  # writes into its pages
        job = cache.resume(a)
        assert job.wait(30) == job.poll() == 30
        for x, y in zip(decode(cache, a, range(30, 35)), decode(cache, b, range(30, 35))):
            assert (x == y).all()
        with pytest.raises(kvcache.Order, match="Tiers.resume: sequence .* is not suspended"):
            cache.resume(a)
        cache.remove(a)
        with pytest.raises(kvcache.StaleId):
            cache.suspend(a)


def test_a_failed_suspend_is_an_error_of_its_job():
    with host_cache(4096) as cache:  # one page fits
        sequence = cache.add()
        decode(cache, sequence, range(30))
        with pytest.raises(kvcache.FileError, match="no tier took page"):
            cache.suspend(sequence).wait(30)
        assert cache.tier_traffic().sequences_suspended == 0
        decode(cache, sequence, [1])
        with pytest.raises(kvcache.InvalidArgument, match="Tiers.add_host_tier: capacity_bytes is 10, not in"):
            cache.add_host_tier(10)
        with pytest.raises(kvcache.Unsupported, match='Tiers.add_host_tier: the device "cpu" has no pinned memory'):
            cache.add_host_tier(1 << 20, pinned=True)
    with kvcache.Cache(LAYERS, page_size=4, capacity_tokens=256) as cache:
        with pytest.raises(kvcache.Unsupported, match="Tiers.suspend: the cache has no tier"):
            cache.suspend(cache.add())
