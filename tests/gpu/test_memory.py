"""Memory that must not be read or written: poison in pools and outputs; addresses beyond 2^31."""

import numpy as np
import pytest
from dense import attention, seen_by
from devices import POISON, rounded
from scene import TOLERANCE, Scene, values_of

import kvcache


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_unused_slots_are_never_read_nor_written(device, rng, dtype):
    """Every slot of the pool that holds no token is NaN, before and after."""
    page, pages = 16, 24
    memory = device.array(np.full((pages, 2, 2, page, 64), np.nan), dtype)
    scene = Scene(device, rng, q_heads=4, kv_heads=2, dim=64, q_dtype=dtype, kv_dtype=dtype, page=page, pool=memory,
                  capacity=pages * page)
    a, b = scene.add(), scene.add()
    for lengths in ([21, 5], [1, 1], [3, 17], [1, 1]):
        scene.step([a, b], lengths)
    child = scene.fork(a, 19)
    scene.step([child, b], [2, 1])
    used = np.zeros((pages, page), bool)
    for sequence in (a, b, child):
        for index, number in enumerate(scene.cache.pages(sequence)):
            used[number, : max(0, min(page, len(scene.keys[sequence]) - index * page))] = True
    held = ~np.isnan(values_of(device.host(memory))).any(axis=(1, 2, 4))  # [pages, page]
    # A copied partial page may contain more rows than the child keeps, but no row that was never written.
    assert (held >= used).all() and held.sum() <= used.sum() + page
    scene.close()


@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_nothing_behind_the_last_key_is_read(device, rng, dtype, page):
    """Lengths around the ends of tiles, pages and splits of keys, one token at a time. Every later slot is NaN."""
    memory = device.array(np.full((5 * 64 // page + 1, 2, 2, page, 64), np.nan), dtype)
    scene = Scene(device, rng, q_heads=4, kv_heads=2, dim=64, q_dtype=dtype, kv_dtype=dtype, page=page, pool=memory,
                  capacity=5 * 64)
    a = scene.add()
    for border in (32, 64, 128, 256):
        scene.fill(a, border - 3 - len(scene.keys[a]))
        for count in (1, 1, 1, 1, 2, 1):
            scene.step([a], [count])
    scene.close()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_that_are_not_there_are_left_alone(device, rng, dtype):
    """Inert rows of a batch, and the rows after the batch, in outputs and LSE."""
    layer = kvcache.Layer(q_heads=2, head_dim=32, dtype=dtype)
    with kvcache.Cache([layer], capacity_tokens=256, context=device.context()) as cache:
        a, b = cache.add(2)
        arrays = [device.array(rng.standard_normal((12, heads, 32)), dtype) for heads in (2, 1, 1)]
        out, lse = device.poisoned((12, 2, 32), dtype), device.poisoned((12, 2))
        with cache.forward([a, 0, b], [3, 2, 4]) as step:
            step.attend(0, *arrays, out=out, lse=lse)
        for array, poison in ((device.host(out), rounded(POISON, dtype)), (device.host(lse), np.float32(POISON))):
            assert (array[3:5] == poison).all() and (array[9:] == poison).all()
            assert (array[:3] != poison).all() and (array[5:9] != poison).all()


@pytest.mark.only("cuda")
@pytest.mark.parametrize("dtype, dim", [("bf16", 128), ("float8_e4m3fn", 128)])
def test_offsets_beyond_2_to_the_31(device, rng, dtype, dim):
    """Elements of a pool beyond 2^31 (and 2^32 bytes): the same as at its beginning."""
    if device.torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("needs 12 GiB of the card's memory")
    page, heads = 64, 8
    pages = (1 << 32) // (2 * heads * page * dim) + 64  # elements: more than 2^32
    scale = {"k_scales": 0.05, "v_scales": 0.05} if dtype.startswith("float8") else {}
    layer = kvcache.Layer(q_heads=2 * heads, kv_heads=heads, head_dim=dim, dtype=dtype, **scale)
    with kvcache.Cache([layer], [kvcache.Full(pages=pages)], page_size=page, max_sequences=4, max_batch_tokens=512,
                       context=device.context()) as cache:
        low, far, filler = cache.add(3)
        arrays = [device.array(rng.standard_normal((300, h, dim)), "bf16") for h in (2 * heads, heads, heads)]
        decode = [device.array(rng.standard_normal((1, h, dim)), "bf16") for h in (2 * heads, heads, heads)]

        def run(sequence):
            with cache.forward(sequence, 300) as step:
                first = step.attend(0, *arrays)
            with cache.forward(sequence, 1) as step:
                return device.host(first), device.host(step.attend(0, *decode))

        near = run(low)
        while cache.stats().pages_free > 12:  # takes the rest of the pool; its contents do not matter
            tokens = min(512, (cache.stats().pages_free - 12) * page)
            junk = [device.torch.zeros(tokens, heads, dim, dtype=device.torch.bfloat16, device="cuda") for _ in "kv"]
            with cache.forward(filler, tokens) as step:
                step.append(0, *junk)
        there = run(far)
        assert min(cache.pages(far)) > (1 << 31) // (heads * page * dim)
        for x, y in zip(near, there):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_servers_pages_beyond_2_to_the_31(device, rng, dtype):
    """K and V of a server, of 8 GiB each, and sequences in pages at their end: a prompt, a few tokens, one token. On the
    host, memory that nothing touches does not exist."""
    page, heads, dim = 16, 2, 64
    pages = (1 << 33) // (4 if dtype == "f32" else 2) // (page * heads * dim)
    try:
        pool = [device.untouched((pages, page, heads, dim), dtype) for _ in "kv"]
    except (MemoryError, RuntimeError) as error:
        pytest.skip(f"no room for 2 x 8 GiB: {error}")
    table, length = np.array([[pages - 1, pages // 2 + 5, 3, pages - 30, pages * 3 // 4]]), 0
    keys, values = np.zeros((0, heads, dim)), np.zeros((0, heads, dim))
    for new in (61, 3, 1):
        q, k, v = (values_of(rounded(rng.standard_normal((1, new, h, dim)), dtype)) for h in (4 * heads, heads, heads))
        out = device.poisoned((1, new, 4 * heads, dim), dtype)
        kvcache.flash_attn_with_kvcache(
            device.array(q, dtype), *pool, device.array(k, dtype), device.array(v, dtype),
            cache_seqlens=device.array([length], "i32"), block_table=device.array(table, "i32"), causal=True, out=out,
            context=device.context())
        keys, values, length = np.concatenate([keys, k[0]]), np.concatenate([values, v[0]]), length + new
        positions = np.arange(length - new, length)
        wanted, _ = attention(q[0], keys, values, seen_by(positions, length), positions, np.arange(length), dim**-0.5)
        np.testing.assert_allclose(values_of(device.host(out))[0], wanted, atol=TOLERANCE[dtype], rtol=0)
