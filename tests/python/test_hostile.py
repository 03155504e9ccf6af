"""Absurd arguments, and threads that change arguments during a call. The result is an error, and never a crash."""

import contextlib
import threading
import time

import numpy as np
import pytest

import kvcache
from described import Described

ROW = np.ones((64, 16), np.float32)
HUGE = 1 << 52  # rows of 64 * 16 floats have 2**64 bytes, which is 0 in 64 bits


@contextlib.contextmanager
def rewriting(*arrays, garbage=(1 << 30)):
    """Another thread repeatedly writes garbage into index arrays and restores them."""
    good, stop = [array.copy() for array in arrays], threading.Event()

    def write():
        while not stop.is_set():
            for array, values in zip(arrays, good):
                array[...] = garbage
                array[...] = values

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def hammer(call, seconds=0.7):
    """Calls until the time is over. Returns how many calls succeeded, and how many were refused."""
    done = refused = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            call()
            done += 1
        except (kvcache.OutOfRange, kvcache.InvalidArgument, kvcache.BufferTooSmall):
            refused += 1
    return done, refused


@pytest.mark.parametrize("rows", [HUGE, HUGE << 8, -1, -HUGE])
@pytest.mark.parametrize("lse", [False, True])
def test_new_outputs_have_a_size(rows, lse):
    """A broadcast array has many rows and little memory, but a new output needs memory for its rows."""
    q, kv = Described(ROW, (rows, 64, 16), (0, 16, 1)), np.ones((3, 1, 16), np.float32)
    with kvcache.Cache([kvcache.Layer(q_heads=64, head_dim=16)], capacity_tokens=64) as cache:
        with cache.forward([cache.add()], [3]) as step:
            with pytest.raises((kvcache.Shape, MemoryError)):
                step.attend(0, q, kv, kv, lse=lse)
            assert step.attend(0, np.ones((3, 64, 16), np.float32), kv, kv).all()


def test_new_outputs_of_stateless_calls_have_a_size():
    pool, lengths, table = np.ones((4, 16, 1, 16), np.float32), np.array([4], np.int32), np.zeros((1, 1), np.int32)
    with pytest.raises((kvcache.Shape, MemoryError)):
        kvcache.flash_attn_with_kvcache(Described(ROW, (HUGE, 1, 64, 16), (0, 0, 16, 1)), pool, pool, cache_seqlens=lengths,
                                        block_table=table, return_softmax_lse=True)
    with pytest.raises((kvcache.Shape, MemoryError)):
        kvcache.flash_attn_with_kvcache(Described(ROW, (HUGE, 64, 16), (0, 16, 1)), pool, pool, cache_seqlens=lengths,
                                        block_table=table, cu_seqlens_q=np.array([0, 3], np.int32))
    with pytest.raises((kvcache.Shape, MemoryError)):
        kvcache.Context(threads=1).merge_states([Described(ROW, (HUGE, 64, 16), (0, 16, 1))],
                                                [Described(ROW, (HUGE, 64), (0, 1))])


def test_rows_behind_the_batch_are_not_there():
    """2**62 rows at one address. The step uses three of them."""
    kv, out = Described(ROW, (1 << 62, 1, 16), (0, 16, 1)), np.zeros((3, 2, 16), np.float32)
    with kvcache.Cache([kvcache.Layer(q_heads=2, head_dim=16)], capacity_tokens=64) as cache:
        with cache.forward([cache.add()], [3]) as step:
            step.attend(0, Described(ROW, (1 << 62, 2, 16), (0, 16, 1)), kv, kv, out=out)
    np.testing.assert_array_equal(out, 1)


def test_more_dimensions_than_an_array_can_have():
    with kvcache.Cache([kvcache.Layer(q_heads=2, head_dim=16)], capacity_tokens=64) as cache:
        with cache.forward([cache.add()], [3]) as step:
            with pytest.raises(kvcache.Rank, match="q: the array has 12 dimensions"):
                step.attend(0, Described(ROW, (1,) * 9 + (3, 2, 16), (0,) * 11 + (1,)), ROW[:3, None], ROW[:3, None])
            step.abort()


def test_a_list_that_shrinks_while_it_is_read():
    class Shrinking:
        def __init__(self, of):
            self.of = of

        def __index__(self):
            self.of.clear()
            return 3

    with kvcache.Cache([kvcache.Layer()], capacity_tokens=64) as cache:
        lengths = []
        lengths += [Shrinking(lengths), 1, 1]
        with pytest.raises(kvcache.Misuse):
            cache.forward([cache.add(), cache.add()], lengths)
        lengths += [Shrinking(lengths), 1]
        with cache.forward([cache.add(), cache.add()], lengths) as step:
            assert len(step.positions) == 4
            step.abort()


def test_an_encoder_step_of_forks_is_described():
    """Siblings share the pages of their encoder sequence. A step that appends to it attends to nothing."""
    layers = [kvcache.Layer(q_heads=2, head_dim=16), kvcache.Layer(q_heads=2, head_dim=16, group=1)]
    with kvcache.Cache(layers, [kvcache.Full(), kvcache.Cross()], capacity_tokens=1024, share_prefixes="always") as cache:
        a = cache.add()
        frames = np.ones((32, 1, 16), np.float32)
        with cache.forward([a], [32], encoder_group=1) as step:
            step.append(1, frames, frames)
        with cache.forward([a, *cache.fork([a, a])], [1, 1, 1], encoder_group=1) as step:
            assert step.describe()["rows"] == 3
            step.abort()


def test_padding_alone_with_empty_rotary_tables():
    """No token is stored, so tables of cos and sin without rows are not read."""
    rows, pool = np.ones((3, 1, 16), np.float32), np.zeros((4, 16, 1, 16), np.float32)
    empty = np.zeros((0, 8), np.float32)
    kvcache.append_slots(rows, rows, pool, pool.copy(), np.full(3, -1), rotary_cos=empty, rotary_sin=empty,
                         positions=np.zeros(3, np.int64))
    assert not pool.any()
    with pytest.raises(kvcache.OutOfRange):
        kvcache.append_slots(rows, rows, pool, pool.copy(), np.array([-1, 0, -1]), rotary_cos=empty, rotary_sin=empty,
                             positions=np.zeros(3, np.int64))


def test_block_tables_that_change_during_a_call(rng):
    rows, pages, page_size = 64, 64, 16
    q = rng.standard_normal((rows, 1, 2, 16)).astype(np.float32)
    pool = rng.standard_normal((rows * pages, page_size, 1, 16)).astype(np.float32)
    table = rng.permutation(rows * pages).reshape(rows, pages).astype(np.int32)
    lengths = np.full(rows, pages * page_size, np.int32)
    with rewriting(table, lengths):
        done, refused = hammer(lambda: kvcache.flash_attn_with_kvcache(q, pool, pool, cache_seqlens=lengths, block_table=table))
    assert done + refused > 0


def test_slots_that_change_during_a_call():
    rows, pool = np.ones((4096, 1, 16), np.float32), np.zeros((64, 64, 1, 16), np.float32)
    slots, positions = np.arange(4096), np.arange(4096) % 64
    table, copy = np.ones((64, 8), np.float32), pool.copy()
    with rewriting(slots, positions):
        done, refused = hammer(lambda: kvcache.append_slots(rows, rows, pool, copy, slots, rotary_cos=table, rotary_sin=table,
                                                            positions=positions))
    assert done + refused > 0


def test_tables_that_change_while_a_plan_is_built(rng):
    plan = kvcache.Plan("decode", page_size=16, num_pool_pages=4096)
    table, lengths = rng.permutation(4096).reshape(64, 64).astype(np.int32), np.full(64, 1000)
    with rewriting(table, lengths):
        done, refused = hammer(lambda: plan.build(lengths, block_table=table))
    assert done + refused > 0
