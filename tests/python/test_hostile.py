"""Arguments that no sane program passes: errors, never a crash."""

import numpy as np
import pytest

import kvcache
from described import Described

ROW = np.ones((64, 16), np.float32)
HUGE = 1 << 52  # rows of 64 * 16 floats: their bytes are 2**64, which is 0 in 64 bits


@pytest.mark.parametrize("rows", [HUGE, HUGE << 8, -1, -HUGE])
@pytest.mark.parametrize("lse", [False, True])
def test_new_outputs_have_a_size(rows, lse):
    """A broadcast array has as many rows as it says; those of a new output are memory."""
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
    """2**62 rows in one place, of which the step has three."""
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
    """Siblings share the pages of their encoder sequence, and a step that appends to it attends to nothing."""
    layers = [kvcache.Layer(q_heads=2, head_dim=16), kvcache.Layer(q_heads=2, head_dim=16, group=1)]
    with kvcache.Cache(layers, [kvcache.Full(), kvcache.Cross()], capacity_tokens=1024, share_prefixes="always") as cache:
        a = cache.add()
        frames = np.ones((32, 1, 16), np.float32)
        with cache.forward([a], [32], encoder_group=1) as step:
            step.append(1, frames, frames)
        with cache.forward([a, *cache.fork([a, a])], [1, 1, 1], encoder_group=1) as step:
            assert step.describe()["rows"] == 3
            step.abort()
