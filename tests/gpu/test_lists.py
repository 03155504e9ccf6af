"""Attention over lists of keys, and the choice of keys, against the same calls on the CPU."""

import numpy as np
import pytest
from devices import MAKERS, rounded
from scene import TOLERANCE, values_of

import kvcache

PAST = {"cpu": 60, "emulated": 60, "cuda": 500}


class Twins:
    """Caches of one configuration on the CPU and on the device, with the same rows."""

    def __init__(self, device, seed, layers, groups=None, page=8, **options):
        self.rng, self.devices = np.random.default_rng(seed), (MAKERS["cpu"](), device)
        options = {"page_size": page, "capacity_tokens": 4 * PAST[device.name] + 64 * page, **options}
        self.caches = [kvcache.Cache(layers, groups, context=d.context(), **options) for d in self.devices]
        self.rows = [cache.add(2) for cache in self.caches]
        self.lengths = [0, 0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.devices[1].synchronize()
        for cache in self.caches:
            cache.close()

    def random(self, shape, whole=False):
        return self.rng.integers(-4, 5, shape) if whole else self.rng.standard_normal(shape)

    def step(self, lengths, call, arrays, out, parents=None):
        """Runs call(step, arrays, out) on both sides. arrays: (values, dtype) each. out: pairs of shape and dtype. Gives the
        outputs of both sides."""
        results = []
        for cache, device, rows in zip(self.caches, self.devices, self.rows):
            given = [None if a is None else device.array(*a) for a in arrays]
            outs = [device.poisoned(shape, dtype) if dtype != "i32" else device.array(np.full(shape, 7), "i32")
                    for shape, dtype in out]
            with cache.forward(rows, lengths, parents=parents) as step:
                call(step, given, outs)
            results.append([values_of(device.host(o)).copy() for o in outs])
        self.lengths = [a + b for a, b in zip(self.lengths, lengths)]
        return results

    def lists(self, lengths, heads, entries, block):
        """Entries of each query: any order, some twice, some negative, some that later tokens will have."""
        lists = np.empty((sum(lengths), heads, entries), np.int64)
        begin = 0
        for past, new in zip(self.lengths, lengths):
            units = -(-(past + new) // block)
            lists[begin:begin + new] = self.rng.integers(-max(1, units // 8), units, (new, heads, entries))
            begin += new
        return lists


CASES = {
    "gqa": {"q_heads": 8, "kv_heads": 2, "head_dim": 64},
    "gqa_bf16": {"q_heads": 8, "kv_heads": 2, "head_dim": 64, "dtype": "bf16"},
    "wide group": {"q_heads": 40, "kv_heads": 2, "head_dim": 32, "dtype": "bf16"},
    "float8": {"q_heads": 12, "kv_heads": 2, "head_dim": 64, "dtype": "float8_e4m3fn", "k_scales": 0.05, "v_scales": 0.04},
    "int8": {"q_heads": 4, "kv_heads": 4, "head_dim": 32, "dtype": "int8"},
    "on read": {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "bf16", "rope": "on_read"},
    "latent": {"q_heads": 16, "head_dim": 96, "latent_dim": 64, "dtype": "bf16", "scale": 0.1},
    "latent, by warpgroups": {"q_heads": 20, "head_dim": 576, "latent_dim": 512, "dtype": "bf16", "scale": 0.04},
    "latent, many heads": {"q_heads": 72, "head_dim": 96, "latent_dim": 64, "dtype": "bf16", "scale": 0.1},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("block", [1, 8])
def test_attention_over_lists(device, name, block):
    case = {"dtype": "f32", **CASES[name]}
    heads, kv_heads, dim, latent = case["q_heads"], case.get("kv_heads", 1), case["head_dim"], case.get("latent_dim", 0)
    dtype = case["dtype"] if case["dtype"] in ("f32", "bf16") else "bf16"
    groups = [kvcache.Full(row="latent")] if latent else None
    options = [{}, {"softcap": 20.0}] if latent or case.get("rope") else [{}, {"alibi": True}]
    past = PAST[device.name]
    with Twins(device, 5 + block, [kvcache.Layer(**case)], groups, max_batch_tokens=2 * past + 64) as twins:
        for lengths, listed in (([past, past // 3], False), ([1, 1], True), ([3, 9], True)):
            for extra in options if listed else [{}]:
                total, of_list = sum(lengths), int(twins.rng.choice([1, kv_heads]))
                keys = [(twins.random((total, kv_heads, dim)), dtype), None if latent else (twins.random((total, kv_heads, dim)), dtype)]
                arrays = [(twins.random((total, heads, dim)), dtype), *keys,
                          (twins.lists(lengths, of_list, 40 // block + 3, block), "i32"),
                          (0.1 * np.arange(heads), "f32") if "alibi" in extra else None]

                def attend(step, given, outs, listed=listed, extra=extra):
                    more = {"indices": given[3], "index_block": block} if listed else {}
                    if given[4] is not None:
                        more["alibi_slopes"] = given[4]
                    step.attend(0, *given[:3], out=outs[0], lse=outs[1], **more, softcap=extra.get("softcap", 0.0))

                wanted, got = twins.step(lengths, attend, arrays, [((total, heads, latent or dim), dtype), ((total, heads), "f32")])
                if listed:
                    for a, b, bound in ((wanted[0], got[0], 2 * TOLERANCE[dtype]), (wanted[1], got[1], 2e-2)):
                        np.testing.assert_allclose(b, a, rtol=0, atol=bound * max(1.0, np.abs(a[np.isfinite(a)]).max()))


def test_lists_with_trees_windows_and_streams(device):
    layer = {"q_heads": 4, "kv_heads": 2, "head_dim": 32, "dtype": "f32"}
    past = PAST[device.name]
    for groups, parents in (([kvcache.Sliding(20)], None), ([kvcache.Full()], [[-1, 0, 0, 2], [-1, 0, 1, -1]])):
        with Twins(device, 3, [kvcache.Layer(**layer)], groups, max_batch_tokens=2 * past + 64, max_tree_nodes=8) as twins:
            for lengths, tree in (([past, past // 2], None), ([4, 4], parents)):
                arrays = [(twins.random((sum(lengths), n, 32)), "f32") for n in (4, 2, 2)]
                arrays.append((twins.lists(lengths, 2, 30, 1), "i32"))
                wanted, got = twins.step(lengths, lambda step, a, o: step.attend(0, *a[:3], out=o[0], indices=a[3]), arrays,
                                         [((sum(lengths), 4, 32), "f32")], tree)
                np.testing.assert_allclose(got[0], wanted[0], rtol=0, atol=1e-4)


@pytest.mark.only("emulated", "cuda")
def test_entries_that_no_token_has_name_no_key(device):
    with Twins(device, 9, [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=32, dtype="f32")]) as twins:
        q, k, v = ((twins.random((5, n, 32)), "f32") for n in (2, 1, 1))
        lists = np.tile(np.array([0, 2, 2**31 - 1, 5000, -5]), (5, 1, 1))
        results = []
        for entries in (lists, np.where(lists > 4, -1, lists)):
            device_array = [device.array(*a) for a in (q, k, v)]
            out = device.poisoned((5, 2, 32))
            with twins.caches[1].forward(twins.rows[1][:1], [5]) as step:
                step.attend(0, *device_array, out=out, indices=device.array(entries, "i32"))
                results.append(values_of(device.host(out)).copy())
                step.abort()
        np.testing.assert_array_equal(*results)


SELECTS = {
    "bf16": {"q_heads": 16, "kv_heads": 1, "head_dim": 64, "dtype": "bf16"},
    "many heads": {"q_heads": 72, "kv_heads": 1, "head_dim": 128, "dtype": "bf16"},
    "each head": {"q_heads": 4, "kv_heads": 4, "head_dim": 32, "dtype": "bf16", "each": True},
    "float8": {"q_heads": 16, "kv_heads": 2, "head_dim": 64, "dtype": "float8_e4m3fn"},
    "f32": {"q_heads": 6, "kv_heads": 2, "head_dim": 40, "dtype": "f32"},
    "f32, each head": {"q_heads": 4, "kv_heads": 2, "head_dim": 40, "dtype": "f32", "each": True},
}


@pytest.mark.parametrize("name", SELECTS)
@pytest.mark.parametrize("block", [1, 4])
def test_choice_of_keys(device, name, block):
    """Whole numbers have the same sums in every order, and many equal scores, so both sides choose the same entries."""
    case = dict(SELECTS[name])
    each, heads, kv_heads, dim = case.pop("each", False), case["q_heads"], case["kv_heads"], case["head_dim"]
    dtype = "f32" if case["dtype"] == "f32" else "bf16"
    past, lists = PAST[device.name], heads if each else 1
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16), kvcache.Layer(keys_only=True, **case)]
    with Twins(device, 11 + block, layers, max_batch_tokens=2 * past + 64, max_tree_nodes=8) as twins:
        small = (np.zeros((2 * past + 64, 1, 16)), "f32")
        for lengths, tree in (([past, past // 3], None), ([1, 1], None), ([4, 3], [[-1, 0, 0, 2], [-1, -1, 0]])):
            total = sum(lengths)
            arrays = [(twins.random((total, heads, dim), True), dtype), (twins.random((total, kv_heads, dim), True), dtype),
                      None if each else (twins.random((total, heads), True), "f32"), (small[0][:total], "f32"),
                      (twins.lists(lengths, lists, 24, 2), "i32")]
            count = 12 // block

            def select(step, given, outs, total=total):
                step.append(0, given[3], given[3])
                step.append(1, given[1])
                more = {"each_head": each, "index_block": block}
                step.select(1, given[0], count, given[2], out=outs[0], **more)
                step.select(1, given[0], count, given[2], out=outs[1], candidates=given[4], candidate_block=2,
                            first_blocks=1, last_blocks=1, **more)

            shape = ((total, lists, count), "i32")
            wanted, got = twins.step(lengths, select, arrays, [shape, shape], tree)
            for i in range(2):
                np.testing.assert_array_equal(got[i], wanted[i], err_msg=f"{name}, {lengths}, call {i}")


@pytest.mark.only("emulated", "cuda")
def test_captured_lists(device):
    """One capture, replayed in later steps with other lists, lengths and rows, and in none."""
    heads, dim, tokens, entries, past = 4, 64, 8, 20, PAST[device.name]
    shapes = {"q": (tokens, heads, dim), "k": (tokens, 2, dim), "v": (tokens, 2, dim)}
    with Twins(device, 21, [kvcache.Layer(q_heads=heads, kv_heads=2, head_dim=dim, dtype="bf16")],
               max_batch_tokens=2 * past + 64) as twins:
        cpu, cache = twins.caches
        given = [(twins.random((past + 40, n, dim)), "bf16") for n in (heads, 2, 2)]
        twins.step([past, 40], lambda step, a, o: step.attend(0, *a, out=o[0]), given, [((past + 40, heads, dim), "bf16")])
        stream, graph = device.stream(), cache.create_graph(max_sequences=2, max_tokens=tokens)
        q, k, v = (device.poisoned(shape, "bf16") for shape in shapes.values())
        lists, out = device.array(np.full((tokens, 1, entries), -1), "i32"), device.poisoned(shapes["q"], "bf16")
        device.synchronize()

        def forward(lengths):
            return cache.forward(twins.rows[1][:len(lengths)], lengths, graph=graph, stream=stream)

        with device.on(stream):
            step = forward([1, 1])
            step.attend(0, q, k, v, out=out, indices=lists)  # from now on, the graph's plans are of lists
            step.abort()
            step = forward([1, 1])
            with device.capture(stream) as replay:
                step.attend(0, q, k, v, out=out, indices=lists)
            step.abort()
        for lengths in ([1, 1], [3, 5], [1], [1, 2]):
            total = sum(lengths)
            values = [twins.random((total, n, dim)) for n in (heads, 2, 2)]
            names = twins.lists(lengths, 1, entries, 1)
            for array, rows in zip((q, k, v), values):
                device.put(array, rows, "bf16", stream)
            device.put(lists, names, "i32", stream)
            device.put(out, np.full(shapes["q"], 7.0), "bf16", stream)
            with device.on(stream):
                step = forward(lengths)
                replay()
                step.end()
                replay()  # no step is open: nothing is written
            device.synchronize()
            got = values_of(device.host(out)).copy()
            wanted = twins.devices[0].poisoned((total, heads, dim), "bf16")
            arrays = [twins.devices[0].array(x, "bf16") for x in values]
            with cpu.forward(twins.rows[0][:len(lengths)], lengths) as step:
                step.attend(0, *arrays, out=wanted, indices=twins.devices[0].array(names, "i32"))
            twins.lengths = [a + b for a, b in zip(twins.lengths, [*lengths, 0])]
            np.testing.assert_allclose(got[:total], values_of(wanted), rtol=0, atol=2 * TOLERANCE["bf16"])
            assert (got[total:] == 7.0).all(), "a row after those of the step was written"
