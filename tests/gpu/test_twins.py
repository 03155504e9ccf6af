"""The same calls with the same numbers on the device and on the CPU, for what has no definition in these tests."""

import numpy as np
import pytest
from devices import MAKERS, rounded
from scene import TOLERANCE, values_of

import kvcache

pytestmark = pytest.mark.only("emulated", "cuda")
HEADS, KV_HEADS, DIM = 4, 2, 64


class Twins:
    """Two caches of one configuration. A sequence is a pair of ids, an array a pair of arrays: the CPU's and the
    device's."""

    def __init__(self, device, rng, layers, groups=None, **options):
        self.devices, self.rng = (MAKERS["cpu"](), device), rng
        options = {"page_size": 8, "capacity_tokens": 1024, **options}
        self.caches = [kvcache.Cache(layers, groups, context=d.context(), **options) for d in self.devices]

    def random(self, *shape, dtype="f32"):
        values = values_of(rounded(self.rng.standard_normal(shape), dtype))
        return tuple(d.array(values, dtype) for d in self.devices)

    def poisoned(self, *shape, dtype="f32"):
        return tuple(d.poisoned(shape, dtype) for d in self.devices)

    def add(self, count):
        return list(zip(*(cache.add(count) for cache in self.caches)))

    def each(self, *pairs):
        """(cache, its device, its half of the pairs) for both sides."""
        return zip(self.caches, self.devices, *([list(x) for x in zip(*p)] if isinstance(p, list) else p for p in pairs))

    def attend(self, ids, lengths, layer=0, dtype="f32", keys=True, forward=None, **options):
        total = sum(lengths)
        q, k, v = (self.random(total, heads, DIM, dtype=dtype) for heads in (HEADS, KV_HEADS, KV_HEADS))
        out, lse = self.poisoned(total, HEADS, DIM, dtype=dtype), self.poisoned(total, HEADS)
        for cache, _, rows, *arrays, to, lse_to in self.each(ids, *((q, k, v) if keys else (q,)), out, lse):
            with cache.forward(rows, lengths, **(forward or {"layers": (layer, layer + 1)})) as step:
                step.attend(layer, *arrays, out=to, lse=lse_to, **options)
        self.same(out, TOLERANCE[dtype])
        self.same(lse, 1e-2 if dtype == "bf16" else 1e-3)

    def same(self, arrays, tolerance=0.0):
        wanted, got = (values_of(d.host(a)) for d, a in zip(self.devices, arrays))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * max(1.0, np.abs(wanted[np.isfinite(wanted)]).max()))

    def close(self):
        self.devices[1].synchronize()
        for cache in self.caches:
            cache.check_invariants()
            cache.close()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("options", [{"rope": "on_append", "rope_interleaved": True}, {"rope": "on_read"},
                                     {"rope": "on_read", "rope_dim": 32, "rope_offset": 16, "rope_interleaved": True}])
def test_rope(device, rng, dtype, options):
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=dtype, **options)
    twins = Twins(device, rng, [layer])
    a, b = twins.add(2)
    for lengths in ([41, 9], [1, 1], [3, 20], [1, 1]):
        twins.attend([a, b], lengths, dtype=dtype)
    twins.close()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_spans_see_each_other(device, rng, dtype):
    twins = Twins(device, rng, [kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=dtype)])
    a, b = twins.add(2)
    twins.attend([a, b], [30, 7], dtype=dtype)
    spans = [0] * 3 + [1] * 9 + [0] * 2 + [2] * 6 + [0] * 5
    twins.attend([a, b], [20, 5], dtype=dtype, forward={"spans": spans})
    twins.attend([a, b], [1, 1], dtype=dtype)
    twins.close()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_cross_attention(device, rng, dtype):
    layers = [kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=dtype, group=g) for g in (0, 1)]
    twins = Twins(device, rng, layers, [kvcache.Full(), kvcache.Cross()])
    a, b = twins.add(2)
    k, v = (twins.random(50, KV_HEADS, DIM, dtype=dtype) for _ in "kv")
    for cache, _, rows, *arrays in twins.each([a, b], k, v):
        with cache.forward(rows, [37, 13], encoder_group=1) as step:
            step.append(1, *arrays)
    for lengths in ([5, 2], [1, 1]):  # both layers in one step, because a token is stored in every layer
        total = sum(lengths)
        arrays = [twins.random(total, heads, DIM, dtype=dtype) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
        outs = [twins.poisoned(total, HEADS, DIM, dtype=dtype) for _ in range(2)]
        for cache, _, rows, q, k, v, cross_q, own, cross in twins.each([a, b], *arrays, *outs):
            with cache.forward(rows, lengths) as step:
                step.attend(0, q, k, v, out=own)
                step.attend(1, cross_q, out=cross)
        for out in outs:
            twins.same(out, TOLERANCE[dtype])
    twins.close()


def test_recurrent_states(device, rng):
    """States of odd sizes: they are loaded, stored, forked, kept by a checkpoint and restored."""
    shapes, dtypes = ((3, 5), (2, 8, 16), (7,)), ("f32", "bf16", "f32")
    states = [kvcache.StateTensor(shape, dtype) for shape, dtype in zip(shapes, dtypes)]
    layers = [kvcache.Layer(head_dim=16), kvcache.RecurrentLayer(1, states)]
    twins = Twins(device, rng, layers, [kvcache.Full(), kvcache.Recurrent()], max_sequences=8, max_checkpoints=2)
    rows = twins.add(3)

    def step(ids):
        fresh = [twins.random(len(ids), *shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes)]
        for number, (shape, dtype) in enumerate(zip(shapes, dtypes)):
            loaded.append((number, twins.poisoned(len(ids), *shape, dtype=dtype)))
        targets = [arrays for _, arrays in loaded[-len(shapes):]]
        for cache, _, rows_of, *arrays in twins.each(ids, *targets, *fresh):
            with cache.forward(rows_of, [1] * len(ids), layers=(1, 2)) as forward:
                for number in range(len(shapes)):
                    forward.load_state(1, number, out=arrays[number])
                for number in range(len(shapes)):
                    forward.store_state(1, number, arrays[len(shapes) + number])

    loaded = []
    step(rows)
    step(rows)
    rows.append(tuple(cache.fork(i) for cache, i in zip(twins.caches, rows[0])))
    for cache, i in zip(twins.caches, rows[1]):
        cache.checkpoint(i)
    step(rows[::-1])
    for cache, i in zip(twins.caches, rows[1]):
        cache.truncate(i, 2)
    step(rows)
    for _, arrays in loaded:
        twins.same(arrays)
    twins.close()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_deterministic_bits(device, rng, dtype):
    """The bits of a token on the device are the same alone and in a batch, in one step and in several, and in a fork."""
    twins = Twins(device, rng, [kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=dtype)], deterministic=True)
    cache, length = twins.caches[1], 90
    q, k, v = (values_of(rounded(rng.standard_normal((length, heads, DIM)), dtype)) for heads in (HEADS, KV_HEADS, KV_HEADS))

    def outputs(beside, cuts):
        rows, parts = [cache.add() for _ in range(beside + 1)], []
        for begin, end in zip([0, *cuts], [*cuts, length]):
            n, arrays = end - begin, []
            for x in (q, k, v):
                others = values_of(rounded(rng.standard_normal((beside * 2, *x.shape[1:])), dtype))
                arrays.append(device.array(np.concatenate([x[begin:end], others]), dtype))
            out = device.poisoned((n + 2 * beside, HEADS, DIM), dtype)
            with cache.forward(rows, [n] + [2] * beside) as step:
                step.attend(0, *arrays, out=out)
            parts.append(values_of(device.host(out))[:n])
        cache.remove(rows)
        return np.concatenate(parts)

    once = outputs(0, [])
    for beside, cuts in ((3, []), (0, [1, 2, 40]), (2, [17, 64])):
        np.testing.assert_array_equal(outputs(beside, cuts), once)
    twins.attend(twins.add(2), [50, 3], dtype=dtype)
    twins.close()


def test_what_was_exported_comes_back(device, rng):
    """Rows that are exported as they are stored, and imported into another cache; int8 with its scales too."""
    for dtype in ("bf16", "int8"):
        layer = kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=dtype)
        twins = Twins(device, rng, [layer])
        a, b = twins.add(2)
        twins.attend([a], [21], dtype="bf16")
        for cache, d, source, target in zip(twins.caches, twins.devices, a, b):
            parts = cache.export(source, 0, scales=dtype == "int8")
            scales = {"k_scales": [parts[2]], "v_scales": [parts[3]]} if dtype == "int8" else {}
            cache.import_(target, [parts[0]], [parts[1]], as_stored=True, **scales)
            for x, y in zip(*(cache.export(s, 0, scales=dtype == "int8") for s in (source, target))):
                np.testing.assert_array_equal(values_of(d.host(x)), values_of(d.host(y)))
        twins.attend([a, b], [1, 1], dtype="bf16")
        twins.close()
