"""Spike probes: one key has all the weight, so the output is exactly its value. A key that is missed, read twice, masked
wrongly or looked up in the wrong page is noticed, wherever it is."""

import numpy as np
import pytest
from dense import seen_by

import kvcache

HEADS, DIM, SHARP = 4, 64, 64.0


def probes(length, page):
    """Positions where kernels cut: pages, tiles of keys, splits; the first and the last key."""
    edges = {0, 1, length - 2, length - 1, page - 1, page, length // page * page, length // page * page - 1}
    for cut in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
        edges |= {cut - 1, cut, cut + 1, length - cut, length - cut - 1}
    return sorted(p for p in edges if 0 <= p < length)


def digits(numbers):
    """Vectors [n, DIM] for the numbers 0..n-1, which are below 2^14: the lower and the upper 7 bits, exact in every type."""
    numbers = np.asarray(numbers)[:, None]
    return np.where(np.arange(DIM) % 2 == 0, numbers % 128, numbers // 128)


# Queries for blocks of few rows and of many rows. f32 uses another kernel than tensor cores.
@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("dtype, queries", [("f32", 1), ("f32", 3), ("bf16", 1), ("bf16", 3), ("bf16", 40), ("f16", 2)])
def test_every_key_is_seen_once(device, page, dtype, queries):
    length = {"cpu": 2100, "emulated": 150, "cuda": 9000}[device.name]
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=2, head_dim=DIM, scale=1.0, dtype=dtype)
    places = probes(length, page)
    with kvcache.Cache([layer], page_size=page, capacity_tokens=2 * length + 16 * page, max_batch_tokens=length,
                       max_sequences=2, context=device.context()) as cache:
        # Key p has the direction of query i only if it is that query's spike. Two kv heads have different spikes.
        keys, values = np.zeros((length, 2, DIM)), np.zeros((length, 2, DIM))
        values[:, 0] = digits(np.arange(length))
        values[:, 1] = -values[:, 0]
        directions = np.eye(DIM)
        sequence = cache.add()
        with cache.forward(sequence, length) as step:
            for number, place in enumerate(places):
                keys[place, 0, number % DIM] = 1.0
                keys[place, 1, (number + 1) % DIM] = 1.0
            step.append(0, device.array(keys, dtype), device.array(values, dtype))
        for number, place in enumerate(places):
            same = [p for n, p in enumerate(places) if n % DIM == number % DIM]
            if same != [place]:
                continue  # two spikes in one direction: not a probe
            q = np.zeros((queries, HEADS, DIM))
            q[:, :2], q[:, 2:] = SHARP * directions[number % DIM], SHARP * directions[(number + 1) % DIM]
            out, lse = device.poisoned((queries, HEADS, DIM), dtype), device.poisoned((queries, HEADS))
            new = np.zeros((queries, 2, DIM))
            with cache.forward(sequence, queries) as step:
                step.attend(0, *(device.array(x, dtype) for x in (q, new, new)), out=out, lse=lse)
                wanted = np.empty((queries, HEADS, DIM))
                wanted[:, :2], wanted[:, 2:] = digits([place]), -digits([place])
                got = device.host(out).astype(np.float64)
                np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6, err_msg=f"spike at {place}")
                np.testing.assert_allclose(device.host(lse), SHARP, atol=1e-4)
            cache.truncate(sequence, length)
        device.synchronize()


# A prompt in one step, then tokens one by one: kernels of many rows and of few.
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("group", [kvcache.Sliding(7), kvcache.Sliding(64), kvcache.Chunked(10), kvcache.Chunked(64)], ids=str)
def test_masks_are_exact_in_every_row(device, group, dtype):
    """A spike at one key: exactly the rows that see it have its value, wherever it is within pages, tiles and chunks."""
    window, chunk = getattr(group, "window", None), getattr(group, "chunk", None)
    prompt, after, page = (window or chunk) + 45, 3, 8
    length = prompt + after
    layer = kvcache.Layer(q_heads=1, head_dim=DIM, scale=1.0, dtype=dtype)
    edges = {0, page - 1, page, chunk or window, (chunk or window) - 1, prompt - 1, prompt, length - 1}
    edges |= {prompt - (chunk or window) + i for i in (-1, 0, 1, 2)}
    with kvcache.Cache([layer], [group], page_size=page, capacity_tokens=512, context=device.context()) as cache:
        for spike in sorted(edges):
            sequence, got = cache.add(), []
            keys, values = np.zeros((length, 1, DIM)), np.zeros((length, 1, DIM))
            keys[spike], values[spike] = 1.0, 5.0
            q = np.full((length, 1, DIM), SHARP / DIM)
            for begin, end in ((0, prompt), *((n, n + 1) for n in range(prompt, length))):
                out = device.poisoned((end - begin, 1, DIM), dtype)
                with cache.forward(sequence, end - begin) as step:
                    step.attend(0, *(device.array(x[begin:end], dtype) for x in (q, keys, values)), out=out)
                got.append(device.host(out).astype(np.float64))
            cache.remove(sequence)
            wanted = 5.0 * seen_by(np.arange(length), length, window, chunk)[:, spike]
            np.testing.assert_allclose(np.concatenate(got)[:, 0], np.repeat(wanted[:, None], DIM, 1), atol=1e-6,
                                       err_msg=f"spike at {spike}")


def test_trees_see_their_ancestors_alone(device):
    parents = [-1, 0, 0, 1, 1, 2, -1, 6]
    layer = kvcache.Layer(q_heads=1, head_dim=16, scale=1.0)
    for spike in range(len(parents)):
        with kvcache.Cache([layer], page_size=4, capacity_tokens=64, context=device.context()) as cache:
            keys, values = np.zeros((len(parents), 1, 16)), np.zeros((len(parents), 1, 16))
            keys[spike], values[spike] = 1.0, 5.0
            out = device.poisoned((len(parents), 1, 16))
            with cache.forward(cache.add(), len(parents), parents=parents) as step:
                step.attend(0, device.array(np.full((len(parents), 1, 16), SHARP / 16)), device.array(keys),
                            device.array(values), out=out)
            got = device.host(out)[:, 0, 0]
            for node in range(len(parents)):
                walk = node
                while walk not in (spike, -1):
                    walk = parents[walk]
                assert abs(got[node] - (5.0 if walk == spike else 0.0)) < 1e-6, (spike, node)
