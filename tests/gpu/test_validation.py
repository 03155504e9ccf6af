"""A context that validates, and calls of a server with bad index arrays. On the CPU the call itself reports them. On a GPU
the row or token is left out, and a later call reports it."""

import numpy as np
import pytest
from devices import POISON
from scene import values_of

import kvcache

PAGES, PAGE, DIM = 6, 4, 16


@pytest.fixture
def context(device):
    return device.open(validate=True)


class Calls:
    """One row of 9 tokens in pages 3, 1, 4, and a good row after it."""

    def __init__(self, device, context, rng):
        self.device, self.context = device, context
        self.table, self.lengths = np.array([[3, 1, 4], [0, 2, 5]]), np.array([9, 6])
        self.slots, self.positions = np.array([3, 0, -1]), np.array([7, 0, 1])
        self.caches = [device.array(rng.standard_normal((PAGES, PAGE, 1, DIM))) for _ in "kv"]
        self.q = device.array(rng.standard_normal((2, 1, 1, DIM)))
        self.rows = device.array(rng.standard_normal((3, 1, DIM)))
        self.cos, self.sin = (device.array(rng.standard_normal((8, DIM // 2))) for _ in "cs")

    def attend(self):
        self.out = self.device.poisoned((2, 1, 1, DIM))
        kvcache.flash_attn_with_kvcache(
            self.q, *self.caches, cache_seqlens=self.device.array(self.lengths, "i32"),
            block_table=self.device.array(self.table, "i32"), causal=True, out=self.out, context=self.context)

    def append(self):
        kvcache.append_slots(self.rows, self.rows, *self.caches, self.device.array(self.slots, "i32"),
                             rotary_cos=self.cos, rotary_sin=self.sin, positions=self.device.array(self.positions, "i32"),
                             context=self.context)


def spoil(array, at, value):
    array[at] = value


BAD = {
    "block_table[0, 2] is 6": (Calls.attend, lambda c: spoil(c.table, (0, 2), 6)),
    "block_table[0, 0] is -1": (Calls.attend, lambda c: spoil(c.table, (0, 0), -1)),
    "cache_seqlens[0] is 13": (Calls.attend, lambda c: spoil(c.lengths, 0, 13)),
    "cache_seqlens[0] is -1": (Calls.attend, lambda c: spoil(c.lengths, 0, -1)),
    "slot_mapping[0] is 24": (Calls.append, lambda c: spoil(c.slots, 0, 24)),
    "positions[0] is 8": (Calls.append, lambda c: spoil(c.positions, 0, 8)),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_values_are_left_out_and_reported(device, context, rng, what):
    call, damage = BAD[what]
    calls = Calls(device, context, rng)
    call(calls)
    device.synchronize()
    context.check()
    damage(calls)
    if device.name == "cpu":
        with pytest.raises(kvcache.OutOfRange):
            call(calls)
        return context.check()
    with device.late():
        call(calls)
        context.check()  # no call waits, so it is not known yet
    device.synchronize()
    if call is Calls.attend:
        out = values_of(device.host(calls.out))
        assert (out[0] == np.float32(POISON)).all() and (out[1] != np.float32(POISON)).all()
    with pytest.raises(kvcache.EarlierCall) as report:
        calls.attend()
    assert what in str(report.value) and report.value.index == 0
    assert "an earlier " in str(report.value)
    context.check()  # reported once


def test_builds_of_plans(device, context):
    plan = kvcache.Plan("decode", page_size=PAGE, graph=True, max_rows=2, max_pages_per_row=3, num_pool_pages=PAGES,
                        context=context)
    lengths, table = np.array([9, 2]), np.array([[3, 1, 4], [0, 2, 5]])
    plan.build(device.array(lengths, "i32"), block_table=device.array(table, "i32"))
    assert plan.tables() is not None
    table[0, 1] = PAGES
    if device.name == "cpu":
        with pytest.raises(kvcache.OutOfRange):
            plan.build(device.array(lengths, "i32"), block_table=device.array(table, "i32"))
        return
    plan.build(device.array(lengths, "i32"), block_table=device.array(table, "i32"))
    device.synchronize()
    with pytest.raises(kvcache.EarlierCall, match=r"Plan.build, row 0: block_table\[0, 1\] is 6, not in 0\.\.5"):
        plan.tables()
    assert device.host(plan.tables().generation_word).tolist() == [0]


def test_another_context_hears_nothing(device, context, rng):
    if device.name == "cpu":
        pytest.skip("the CPU's calls say at once what is wrong")
    calls, others = Calls(device, context, rng), Calls(device, device.open(validate=True), rng)
    calls.slots[1] = 99
    calls.append()
    device.synchronize()
    others.context.check()
    others.append()
    with pytest.raises(kvcache.EarlierCall):
        context.check()
