"""The numeric grid: options drawn at random, every step against the definition in float64."""

import numpy as np
import pytest
from devices import rounded
from dense import attention, seen_by
from scene import LSE_TOLERANCE, TOLERANCE, Scene, values_of

import kvcache

DIMS = (8, 16, 32, 40, 64, 80, 96, 128, 192, 256, 512)
GROUPS = ((1, 1), (4, 4), (4, 1), (8, 2), (12, 2), (16, 1), (10, 2), (3, 1), (14, 2))
PAGES = (1, 2, 16, 64, 128)


def drawn(seed):
    """Options of one case. They are small on slow devices."""
    rng = np.random.default_rng(seed)

    def pick(items):
        return items[int(rng.integers(len(items)))]

    q_dtype = pick(("f32", "f16", "bf16"))
    case = {"q_dtype": q_dtype, "kv_dtype": pick((q_dtype, q_dtype, "float8_e4m3fn", "float8_e5m2", "int8", "bf16")),
            "dim": pick(DIMS), "heads": pick(GROUPS), "page": pick(PAGES), "softcap": pick((0.0, 0.0, 20.0)),
            "mask": pick(("full", "full", "full", "sliding", "chunked")), "alibi": bool(rng.integers(4) == 0),
            "sinks": bool(rng.integers(4) == 0), "lse": bool(rng.integers(2)), "causal": bool(rng.integers(6) > 0),
            "rope": bool(rng.integers(3) == 0), "v_dim": 0}
    if rng.integers(6) == 0:
        case["v_dim"] = pick((16, 64, 128))
    if case["kv_dtype"] not in ("f32", "f16", "bf16"):  # stored values are read back, so no page may be freed
        case["mask"] = "full"
    return case, rng


def run(device, seed, longest):
    case, rng = drawn(seed)
    q_heads, kv_heads = case["heads"]
    window = int(rng.integers(1, 80)) if case["mask"] == "sliding" else None
    chunk = int(rng.integers(2, 60)) if case["mask"] == "chunked" else None
    scene = Scene(device, rng, q_heads=q_heads, kv_heads=kv_heads, dim=case["dim"], v_dim=case["v_dim"],
                  q_dtype=case["q_dtype"], kv_dtype=case["kv_dtype"], page=case["page"], window=window, chunk=chunk,
                  rope=case["rope"], capacity=8 * longest + 4 * 128)
    options = {"softcap": case["softcap"], "causal": case["causal"], "lse": case["lse"],
               "slopes": 2.0 ** -np.arange(1, q_heads + 1) if case["alibi"] else None,
               "sinks": rng.standard_normal(q_heads) if case["sinks"] else None}
    try:
        rows = [scene.add() for _ in range(int(rng.integers(1, 4)))]
        scene.step(rows, [int(rng.integers(1, longest)) for _ in rows], **options)  # prompts
        scene.step(rows, [1 for _ in rows], **options)                             # a token each
        scene.step(rows[::-1], [int(rng.integers(1, 9)) for _ in rows], **options)  # some more
    except AssertionError as error:
        raise AssertionError(f"case {seed} {case}, window {window}, chunk {chunk}: {error}") from error
    finally:
        scene.close()


@pytest.mark.parametrize("part", range(10))
def test_drawn_options(device, sampled, part):
    longest = {"cpu": 150, "emulated": 40, "cuda": 500}[device.name]
    for number in range(sampled(30)):
        run(device, 10 * number + part, longest)


@pytest.mark.parametrize("q_dtype", ["f32", "f16", "bf16"])
def test_long_contexts_are_split(device, rng, q_dtype):
    """One row over many pages: decode is cut along the keys."""
    length = {"cpu": 1500, "emulated": 300, "cuda": 20000}[device.name]
    scene = Scene(device, rng, q_heads=8, kv_heads=2, dim=64, q_dtype=q_dtype, kv_dtype=q_dtype, capacity=3 * length,
                  max_batch_tokens=length)
    a, b = scene.add(), scene.add()
    scene.fill(a, length - 100)
    scene.step([a, b], [60, 33])
    scene.step([a, b], [1, 1])
    scene.step([b, a], [5, 2], sinks=rng.standard_normal(8))
    scene.close()


def test_shared_prefixes(device, rng):
    """Forks of one prompt decode together: attention to the prompt is computed for all of them at once."""
    length = {"cpu": 400, "emulated": 90, "cuda": 3000}[device.name]
    for share in ("always", "never"):
        scene = Scene(device, rng, q_heads=8, kv_heads=2, dim=64, page=16, capacity=3 * length + 2048,
                      share_prefixes=share, max_batch_tokens=length)
        prompt = scene.add()
        scene.fill(prompt, length)
        rows = [scene.fork(prompt) for _ in range(6)]
        rows += [scene.fork(rows[0]), scene.fork(prompt, length // 2)]
        for lengths in ([1] * 8, [2, 1, 3, 1, 1, 2, 1, 4], [1] * 8):
            scene.step(rows, lengths)
        scene.close()


def test_trees(device, rng, sampled):
    for _ in range(sampled(100)):
        scene = Scene(device, rng, q_heads=4, kv_heads=2, dim=64, q_dtype="f16", kv_dtype="f16", page=4,
                      rope=bool(rng.integers(2)))
        a, b = scene.add(), scene.add()
        scene.step([a, b], [int(rng.integers(1, 40)), 3])
        for _ in range(3):
            nodes = int(rng.integers(1, 20))
            parents = [int(rng.integers(-1, max(node, 1))) if node else -1 for node in range(nodes)]
            scene.step([b, a], [1, nodes], parents=[None, parents])
            scene.commit(a, parents, int(rng.integers(-1, nodes)))
        scene.close()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("projected", [False, True])
def test_latent(device, rng, dtype, projected):
    """MLA: absorbed by the caller, and with projections."""
    heads, latent, rotary, nope, v_dim = (4, 64, 16, 32, 48) if device.name == "emulated" else (16, 512, 64, 128, 128)
    scale, lengths = 0.1, {"cpu": (120, 1, 40), "emulated": (20, 1, 9), "cuda": (700, 1, 600)}[device.name]
    layer = kvcache.Layer(q_heads=heads, head_dim=latent + rotary, latent_dim=latent, dtype=dtype, scale=scale)
    w_uk = values_of(rounded(rng.standard_normal((heads, nope, latent)) / np.sqrt(latent), dtype))
    w_uv = values_of(rounded(rng.standard_normal((heads, v_dim, latent)) / np.sqrt(latent), dtype))
    with kvcache.Cache([layer], [kvcache.Full(row="latent")], capacity_tokens=2048, context=device.context()) as cache:
        sequence, stored = cache.add(), np.zeros((0, 1, latent + rotary))
        for count in lengths:
            rows = values_of(rounded(rng.standard_normal((count, 1, latent + rotary)), dtype))
            q = values_of(rounded(rng.standard_normal((count, heads, (nope if projected else latent) + rotary)), dtype))
            stored = np.concatenate([stored, rows])
            options = {"w_uk": device.array(w_uk, dtype), "w_uv": device.array(w_uv, dtype)} if projected else {}
            out = device.poisoned((count, heads, v_dim if projected else latent), dtype)
            with cache.forward(sequence, count) as step:
                step.attend(0, device.array(q, dtype), device.array(rows, dtype), out=out, **options)
            positions = np.arange(len(stored) - count, len(stored))
            seen = seen_by(positions, len(stored))
            if projected:  # keys and values of each head, from the latent rows
                keys = np.concatenate([np.einsum("sl,hnl->shn", stored[:, 0, :latent], w_uk),
                                       np.repeat(stored[:, :, latent:], heads, 1)], axis=-1)
                values = np.einsum("sl,hvl->shv", stored[:, 0, :latent], w_uv)
            else:
                keys, values = stored, stored[..., :latent]
            wanted, _ = attention(q, keys, values, seen, positions, np.arange(len(stored)), scale)
            np.testing.assert_allclose(values_of(device.host(out)), wanted, rtol=0,
                                       atol=(2 if projected else 1) * TOLERANCE[dtype] * max(1, np.abs(wanted).max()))
        device.synchronize()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_parts_merge(device, rng, dtype):
    """The past and the new tokens in one call each, merged by their LSE."""
    scene = Scene(device, rng, q_heads=4, kv_heads=2, dim=64, q_dtype=dtype, kv_dtype=dtype)
    a = scene.add()
    scene.step([a], [50])
    q, k, v = scene.new_rows(7)
    outs = [device.poisoned((7, 4, 64)) for _ in "ps"]
    lses = [device.poisoned((7, 4)) for _ in "ps"]
    arrays = [device.array(x, dtype) for x in (q, k, v)]
    with scene.cache.forward(a, 7) as step:
        step.attend(0, arrays[0], out=outs[0], lse=lses[0], part="past")
        step.attend(0, *arrays, out=outs[1], lse=lses[1], part="self")
    if device.library is None:
        with pytest.raises(kvcache.InvalidArgument, match="out and lse are needed"):
            device.context().merge_states(outs, lses)
    else:
        out, lse = (values_of(device.host(x)) for x in device.context().merge_states(outs, lses))
        scene._extend(a, k, v, None)
        wanted, wanted_lse = scene._expected(a, q, 7, None, True, 0.0, None, None)
        np.testing.assert_allclose(out, wanted, atol=TOLERANCE[dtype], rtol=0)
        np.testing.assert_allclose(lse, wanted_lse, atol=LSE_TOLERANCE[dtype], rtol=0)
    scene.close()


def test_streaming(device, rng):
    """Sinks and a window: attention over the kept tokens, at positions as if they were contiguous."""
    sinks, window, layers = 3, 20, [kvcache.Layer(q_heads=2, head_dim=32)]
    with kvcache.Cache(layers, page_size=4, capacity_tokens=256, streaming=True, context=device.context()) as cache:
        a = cache.add()
        cache.set_streaming(a, sinks=sinks, window=window)
        keys, values = np.zeros((0, 1, 32)), np.zeros((0, 1, 32))
        for count in (10, 5, 9, 1, 1, 13, 1):
            q, k, v = (values_of(rounded(rng.standard_normal((count, heads, 32)), "f32")) for heads in (2, 1, 1))
            out = device.poisoned((count, 2, 32))
            with cache.forward(a, count) as step:
                step.attend(0, *(device.array(x) for x in (q, k, v)), out=out)
            keys, values = np.concatenate([keys, k]), np.concatenate([values, v])
            positions = np.arange(len(keys) - count, len(keys))
            seen = seen_by(positions, len(keys), window - sinks) | seen_by(positions, len(keys)) & (np.arange(len(keys)) < sinks)
            wanted, _ = attention(q, keys, values, seen, positions, np.arange(len(keys)), 32**-0.5)
            np.testing.assert_allclose(values_of(device.host(out)), wanted, atol=TOLERANCE["f32"], rtol=0)
        device.synchronize()
