"""Tiers of a cache: pages go to host memory and to files, and come back, beside steps and captures of the same cache."""

import time

import numpy as np
import pytest

import kvcache

HEADS, DIM, PAGE = 2, 32, 8


def make(device, folder, host_bytes=1 << 24, pinned=False, **options):
    layers = [kvcache.Layer(q_heads=HEADS, kv_heads=HEADS, head_dim=DIM, dtype="f16") for _ in range(3)]
    layers.append(kvcache.Layer(q_heads=HEADS, kv_heads=1, head_dim=64, dtype="int8"))
    cache = kvcache.Cache(layers, page_size=PAGE, capacity_tokens=512, prefix_index=True, fingerprint=b"m" * 32,
                          context=device.context(), **options)
    if host_bytes:
        cache.add_host_tier(host_bytes, pinned=pinned)
    if folder is not None:
        cache.add_disk_tier(folder)
    return cache


def rows_of(tokens, layer, part):
    """K or V of these tokens: a function of the token and its position."""
    heads, dim = (1, 64) if layer == 3 else (HEADS, DIM)
    positions = np.arange(len(tokens))
    seed = (np.asarray(tokens) * 31 + positions * 7 + layer * 5 + part)[:, None, None]
    return np.sin(seed + np.arange(heads)[None, :, None] * 3 + np.arange(dim)[None, None, :] * 0.1).astype(np.float32)


def compute(device, cache, tokens):
    """Appends a prompt, publishes it, and removes its sequence."""
    sequence = cache.add()
    with cache.forward(sequence, len(tokens)) as step:
        for layer in range(4):
            dtype = "f16" if layer < 3 else "f32"
            step.append(layer, *(device.array(rows_of(tokens, layer, part), dtype) for part in (0, 1)))
    cache.publish_prefix(sequence, list(tokens))
    cache.remove(sequence)


def wait_stored(cache):
    while cache.tier_traffic().pages_waiting > 0:
        time.sleep(0.001)


def exported(device, cache, tokens):
    """What the cache holds of a prompt, layer by layer."""
    sequence, hit = cache.attach_prefix(list(tokens) + [0])
    assert hit.tokens == len(tokens) // PAGE * PAGE
    values = []
    for layer in range(4):
        values += [np.asarray(device.host(part)).copy() for part in cache.export(sequence, layer, scales=layer == 3)]
    cache.remove(sequence)
    return values


def check_equal(before, after):
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_pages_come_back_from_host_memory_and_files(device, tmp_path):
    prompt = list(range(100, 164))
    for folder, host_bytes in ((None, 1 << 24), (tmp_path / "tier", 0)):
        with make(device, folder, host_bytes) as cache:
            compute(device, cache, prompt)
            before = exported(device, cache, prompt)
            wait_stored(cache)
            cache.drop_prefix([])
            compute(device, cache, list(range(7000, 7256)))  # the pages are written again
            job, hit = cache.load_prefix(prompt + [0])
            assert (hit.tokens, hit.load_tokens) == (0, 64)
            assert job.wait(60) == 64
            check_equal(before, exported(device, cache, prompt))
            device.synchronize()


@pytest.mark.parametrize("pinned", [False, True])
def test_pages_pass_through_a_small_host_tier(device, pinned):
    """Prompts that are stored and loaded again and again, in a tier that holds some of them. With pinned memory, the device copies them."""
    if pinned and device.name == "cpu":
        with make(device, None, 0) as cache, pytest.raises(kvcache.Unsupported, match="no pinned memory"):
            cache.add_host_tier(1 << 20, pinned=True)
        return
    prompts = [[100 * i + t for t in range(48)] for i in range(8)]
    expected, loaded = {}, 0
    with make(device, None, 48 * 65536 if pinned else 48 * 8192, pinned) as cache:
        for turn in range(40):
            number = turn * 5 % 8 if turn % 3 else turn % 2
            prompt = prompts[number]
            job, _ = cache.load_prefix(prompt + [0])
            tokens = cache.match_prefix(prompt + [0]).tokens if job is None else job.wait(60)
            if tokens == 48 and number in expected:
                check_equal(expected[number], exported(device, cache, prompt))
                loaded += job is not None
            else:
                cache.drop_prefix([])
                compute(device, cache, prompt)
                expected[number] = exported(device, cache, prompt)
            wait_stored(cache)
            cache.drop_prefix([])
        assert loaded > 3
        device.synchronize()


def test_suspended_sequences_come_back_from_pinned_memory(device):
    if device.name == "cpu":
        pytest.skip("a cache on the CPU has no pinned memory")
    tokens = list(range(61))
    with make(device, None, 1 << 24, True) as cache:
        sequence = cache.add()
        with cache.forward(sequence, len(tokens)) as step:
            for layer in range(4):
                dtype = "f16" if layer < 3 else "f32"
                step.append(layer, *(device.array(rows_of(tokens, layer, part), dtype) for part in (0, 1)))
        for _ in range(3):
            cache.suspend(sequence).wait(60)
            compute(device, cache, list(range(7000, 7400)))
            cache.resume(sequence).wait(60)
            values = [np.asarray(device.host(part)) for layer in range(3) for part in cache.export(sequence, layer)]
            for layer in range(3):
                for part in (0, 1):
                    wanted = rows_of(tokens, layer, part).astype(np.float16)
                    np.testing.assert_array_equal(values[2 * layer + part], wanted)
        device.synchronize()


def test_files_are_those_of_any_device(device, tmp_path):
    """A cache on the CPU finds what this device stored."""
    prompt = list(range(500, 540))
    with make(device, tmp_path / "tier", 0) as cache:
        compute(device, cache, prompt)
        before = exported(device, cache, prompt)
        wait_stored(cache)
        device.synchronize()

    from devices import Cpu

    host = Cpu()
    with make(host, tmp_path / "tier", 0) as cache:
        assert cache.load_prefix(prompt + [0])[0].wait(60) == 40
        check_equal(before, exported(host, cache, prompt))


def test_suspended_sequences_come_back(device, tmp_path):
    tokens = list(range(30))
    with make(device, None) as cache:
        sequence = cache.add()
        with cache.forward(sequence, len(tokens)) as step:
            for layer in range(4):
                dtype = "f16" if layer < 3 else "f32"
                step.append(layer, *(device.array(rows_of(tokens, layer, part), dtype) for part in (0, 1)))
        before = [np.asarray(device.host(part)).copy() for layer in range(3) for part in cache.export(sequence, layer)]
        cache.suspend(sequence).wait(60)
        compute(device, cache, list(range(7000, 7400)))
        cache.resume(sequence).wait(60)
        check_equal(before, [np.asarray(device.host(part)) for layer in range(3) for part in cache.export(sequence, layer)])
        device.synchronize()


def test_stores_beside_steps_in_flight(device):
    """Prompts are published while their steps are queued, and their pages are taken by the next ones, over and over. What is
    loaded is what was stored, whatever the pages held between."""
    prompts = [[1000 * i + t for t in range(128)] for i in range(12)]
    with make(device, None) as cache:
        expected = {}
        for i, prompt in enumerate(prompts):
            compute(device, cache, prompt)
            if i % 3 == 2:
                wait_stored(cache)  # otherwise pages may be evicted before they are stored
        for i, prompt in enumerate(prompts):
            job, _ = cache.load_prefix(prompt + [0])
            tokens = cache.match_prefix(prompt + [0]).tokens if job is None else job.wait(60)
            if tokens < 128:
                continue
            expected[i] = exported(device, cache, prompt)
        assert {2, 5, 8, 11} <= expected.keys()
        for i, values in expected.items():
            for layer in range(3):
                for part in (0, 1):
                    wanted = rows_of(prompts[i], layer, part).astype(np.float16)
                    np.testing.assert_array_equal(values[2 * layer + part], wanted)
        device.synchronize()
