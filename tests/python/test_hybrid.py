"""Mixtures of every kind of layer group in one cache, compared with numpy float64 after each step, with forks, rejected
drafts and trees. Options of other kinds are refused, with their value, and nothing changes."""

import numpy as np
import pytest
from reference import DenseLayer, attention

import kvcache

HEADS, KV_HEADS, DIM = 4, 2, 16
LATENT, ROTARY, SCALE = 12, 4, 0.2


class Softmax:
    """A layer with K and V, and its expected outputs."""

    def __init__(self, group, **mask):
        self.layer = kvcache.Layer(group, q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
        self.dense = DenseLayer(**mask)

    def run(self, step, index, rng, sequences, lengths):
        tokens = sum(lengths)
        q, k, v = (rng.standard_normal((tokens, heads, DIM), dtype="f4") for heads in (HEADS, KV_HEADS, KV_HEADS))
        expected, _ = self.dense.step(sequences, lengths, q, k, v)
        np.testing.assert_allclose(step.attend(index, q, k, v), expected, atol=3e-5, err_msg=f"layer {index}")


class Latent(Softmax):
    """A layer with one kv head, whose K is a row and whose V is the first dims of it."""

    def __init__(self, group, **seen):
        self.layer = kvcache.Layer(group, q_heads=HEADS, kv_heads=1, head_dim=LATENT + ROTARY, latent_dim=LATENT,
                                   scale=SCALE)  # fmt: skip
        self.dense = DenseLayer(scale=SCALE, **seen)

    def run(self, step, index, rng, sequences, lengths):
        tokens = sum(lengths)
        q, row = (rng.standard_normal((tokens, heads, LATENT + ROTARY), dtype="f4") for heads in (HEADS, 1))
        expected, _ = self.dense.step(sequences, lengths, q, row, row[..., :LATENT])
        np.testing.assert_allclose(step.attend(index, q, row), expected, atol=3e-5, err_msg=f"layer {index}")


class States:
    """A recurrent layer whose state counts the tokens of its sequence."""

    def __init__(self, group):
        self.layer = kvcache.RecurrentLayer(group, [kvcache.StateTensor((3,))])
        self.counts = {}

    @property
    def dense(self):
        return self

    def run(self, step, index, _rng, sequences, lengths):
        state = step.load_state(index, 0, np.empty((len(sequences), 3), np.float32))
        np.testing.assert_array_equal(state[:, 0], [self.counts.get(s, 0) for s in sequences])
        step.store_state(index, 0, state + np.float32(lengths)[:, None])
        self.counts.update({s: self.counts.get(s, 0) + n for s, n in zip(sequences, lengths)})

    def fork(self, parent, child, position=None):
        self.counts[child] = self.counts[parent] if position is None else position

    def truncate(self, sequence, length):
        self.counts[sequence] = length


MODELS = {
    "five sliding to one full": ([kvcache.Sliding(7), kvcache.Full()],
                                 lambda: [Softmax(0, window=7) for _ in range(5)] + [Softmax(1)]),
    "three chunked to one full": ([kvcache.Chunked(6), kvcache.Full()],
                                  lambda: [Softmax(0, chunk=6) for _ in range(3)] + [Softmax(1)]),
    "recurrent, full and MLA": ([kvcache.Recurrent(), kvcache.Full(), kvcache.Full(row="latent")],
                                lambda: [States(0), Softmax(1), Latent(2), States(0)]),
    "MLA windows and chunks": ([kvcache.Sliding(7, row="latent"), kvcache.Chunked(6, row="latent")],
                               lambda: [Latent(0, window=7), Latent(1, chunk=6)]),
    "everything": ([kvcache.Sliding(5), kvcache.Recurrent(), kvcache.Full(row="latent"), kvcache.Chunked(4), kvcache.Full()],
                   lambda: [Softmax(0, window=5), States(1), Latent(2), Softmax(3, chunk=4), Softmax(4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 3])
def test_hybrid_models(name, threads, rng):
    groups, make = MODELS[name]
    layers = make()
    with kvcache.Cache([x.layer for x in layers], groups=groups, page_size=4, capacity_tokens=512, max_sequences=8,
                       rollback_tokens=4, context=kvcache.Context(threads=threads)) as cache:
        recurrent = any(isinstance(x, States) for x in layers)

        def step(sequences, lengths):
            with cache.forward(sequences, lengths) as s:
                for index, layer in enumerate(layers):
                    layer.run(s, index, rng, sequences, lengths)
            cache.check_invariants()

        a, b = cache.add(2)
        step([a, b], [9, 3])
        child = cache.fork(a)
        for layer in layers:
            layer.dense.fork(a, child)
        for _ in range(12):  # drafts of 4 just after the windows moved; one token is accepted
            step([b, child, a], [1, 1, 1])
            length = cache.length(a)
            if recurrent:
                cache.checkpoint([a])
            step([a], [4])
            keep = length if recurrent else length + 1
            cache.truncate(a, keep)
            for layer in layers:
                layer.dense.truncate(a, keep)
        if recurrent and not cache.nearest_position(a, 1)[0]:
            with pytest.raises(kvcache.Evicted):
                cache.fork(a, 1)
        cache.remove([a, b, child])
        assert cache.stats().pages_used == 0


BAD_LAYERS = [
    ("rope_dim odd", {"rope": "on_append", "rope_dim": 3}, "rope_dim 3"),
    ("rope_dim above the head", {"rope": "on_read", "rope_dim": 18}, "rope_dim 18"),
    ("rope_offset above the head", {"rope": "on_read", "rope_offset": 16}, "rope_offset 16"),
    ("scales missing for V", {"dtype": "float8_e4m3fn", "k_scales": 0.5}, "scales"),
    ("scales of int8", {"dtype": "int8", "k_scales": 0.5, "v_scales": 0.5}, "len(k_scales) 1"),
    ("a scale below 0", {"dtype": "float8_e5m2", "k_scales": -1.0, "v_scales": 0.5}, "-1"),
    ("heads", {"q_heads": 3}, "q_heads 3"),
    ("latent dims", {"latent_dim": 4}, "latent_dim 4"),
    ("itself", {"kv_layer": 0}, "kv_layer names layer 0"),
    ("a scale", {"scale": -1.0}, "scale -1"),
    ("no number", {"scale": float("nan")}, "scale nan"),
]
GROUPS = {"full": kvcache.Full(), "sliding": kvcache.Sliding(5), "chunked": kvcache.Chunked(5), "cross": kvcache.Cross()}


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("what, change, words", BAD_LAYERS, ids=[bad[0] for bad in BAD_LAYERS])
def test_layers_that_make_no_sense(kind, what, change, words):
    layer = kvcache.Layer(**{"q_heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, **change})
    for make in (kvcache.Cache, kvcache.estimate):
        with pytest.raises(kvcache.Misuse) as caught:
            make([layer], groups=[GROUPS[kind]], capacity_tokens=64)
        assert words in caught.value.message and caught.value.index in (0, -1), what


@pytest.mark.parametrize("group, words", [
    (kvcache.Sliding(0), "window 0"), (kvcache.Sliding(-1), "window -1"),
    (kvcache.Sliding(2**31), f"window {2**31}"), (kvcache.Chunked(0), "chunk 0"),
    (kvcache.Chunked(-3), "chunk -3"), (kvcache.Full(row="latent"), "latent_dim 0"), (kvcache.Full(pages=-1), "-1"),
    (kvcache.Sliding(3, row="rows"), "'rows'"),
    (kvcache.Recurrent(), "q_heads 4"),
])  # fmt: skip
def test_groups_that_make_no_sense(group, words):
    with pytest.raises(kvcache.Misuse, match=words):
        kvcache.Cache([kvcache.Layer(q_heads=HEADS, kv_heads=1, head_dim=DIM)], groups=[group], capacity_tokens=64)


def test_an_mla_layer_without_a_scale():
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=1, head_dim=DIM, latent_dim=LATENT)
    with pytest.raises(kvcache.InvalidArgument, match="scale 0 of an MLA group"):
        kvcache.Cache([layer], groups=[kvcache.Full(row="latent")], capacity_tokens=64)


ARRAY, TABLE = np.zeros((2, HEADS, DIM), np.float32), np.zeros((2, 2, DIM // 2), np.float32)
K, ROW = np.zeros((2, KV_HEADS, DIM), np.float32), np.zeros((2, 1, DIM), np.float32)


@pytest.mark.parametrize("what, call", [
    ("a branching tree over states", lambda c, s: c.forward([s], [3], parents=[[-1, 0, 0]])),
    ("a parent that points forward", lambda c, s: c.forward([s], [3], parents=[[-1, 2, 1]])),
    ("a node that is its own parent", lambda c, s: c.forward([s], [2], parents=[[-1, 1]])),
    ("a parent below the root", lambda c, s: c.forward([s], [2], parents=[[-1, -3]])),
    ("a tree of encoder tokens", lambda c, s: c.forward([s], [2], parents=[[-1, 0]], encoder_group=1)),
    ("spans of encoder tokens", lambda c, s: c.forward([s], [2], spans=[1, 1], encoder_group=1)),
    ("a span in a tree", lambda c, s: c.forward([s], [2], parents=[[-1, 0]], spans=[1, 1])),
    ("a span below 0", lambda c, s: c.forward([s], [2], spans=[1, -1])),
    ("spans of 32 bits", lambda c, s: c.forward([s], [2], spans=[2**31, 2**31 + 1])),
    ("too few spans", lambda c, s: c.forward([s], [2], spans=[1])),
    ("encoder tokens of a full group", lambda c, s: c.forward([s], [2], encoder_group=0)),
    ("a window of as many sinks", lambda c, s: c.set_streaming(s, sinks=4, window=4)),
    ("a negative window", lambda c, s: c.set_streaming(s, sinks=0, window=-4)),
    ("sinks without a window", lambda c, s: c.set_streaming(s, sinks=4, window=0)),
    ("encoder lengths of a full group", lambda c, s: c.encoder_lengths(s, 0)),
    ("longrope sets without longrope", lambda c, s: c.set_rope(s, "long")),
    ("a commit without a tree", lambda c, s: c.commit(s, 0)),
])  # fmt: skip
def test_batches_and_settings_that_make_no_sense(what, call):
    check_refused(what, lambda c, s, step: call(c, s), with_step=False)


@pytest.mark.parametrize("what, call", [
    ("k and v of a cross layer", lambda step: step.attend(1, ARRAY, K, K)),
    ("a part of a cross layer", lambda step: step.attend(1, ARRAY, part="past")),
    ("attention of states", lambda step: step.attend(2, ARRAY)),
    ("rows of states", lambda step: step.append(2, K, K)),
    ("a state of a full layer", lambda step: step.load_state(0, 0, ARRAY)),
    ("a state too many", lambda step: step.store_state(2, 1, np.zeros((1, 3), np.float32))),
    ("a state of another shape", lambda step: step.store_state(2, 0, np.zeros((1, 4), np.float32))),
    ("a state of another type", lambda step: step.store_state(2, 0, np.zeros((1, 3), np.float16))),
    ("v of an MLA row", lambda step: step.append(3, ROW, ROW)),
    ("heads of an MLA row", lambda step: step.append(3, K)),
    ("k without v", lambda step: step.append(0, K)),
    ("angles where nothing is rotated", lambda step: step.attend(0, ARRAY, K, K, rope_cos_sin=TABLE)),
    ("up-projections of a full layer", lambda step: step.attend(0, ARRAY, K, K, w_uk=ARRAY, w_uv=ARRAY)),
    ("one up-projection", lambda step: step.attend(3, ARRAY, ROW, w_uk=np.zeros((HEADS, 5, LATENT), np.float32))),
    ("scales of float32", lambda step: step.append(0, K, K, k_scale=K[..., 0], v_scale=K[..., 0])),
    ("a softcap below 0", lambda step: step.attend(0, ARRAY, K, K, softcap=-1.0)),
    ("slopes of other heads", lambda step: step.attend(0, ARRAY, K, K, alibi_slopes=np.zeros(3, np.float32))),
    ("sinks of another type", lambda step: step.attend(0, ARRAY, K, K, sinks=np.zeros(HEADS, np.float16))),
    ("no such layer", lambda step: step.attend(4, ARRAY, K, K)),
    ("only the new tokens, before they are there", lambda step: step.attend(0, ARRAY, part="self")),
])  # fmt: skip
def test_calls_that_make_no_sense(what, call):
    check_refused(what, lambda c, s, step: call(step), with_step=True)


def check_refused(what, call, with_step):
    layers = [kvcache.Layer(0, q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM),
              kvcache.Layer(1, q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM),
              kvcache.RecurrentLayer(2, [kvcache.StateTensor((3,))]),
              kvcache.Layer(3, q_heads=HEADS, kv_heads=1, head_dim=DIM, latent_dim=LATENT, scale=SCALE)]
    with kvcache.Cache(layers, groups=[kvcache.Full(), kvcache.Cross(), kvcache.Recurrent(), kvcache.Full(row="latent")], page_size=4,
                       capacity_tokens=64, streaming=True) as cache:
        sequence = cache.add()
        step = cache.forward([sequence], [2]) if with_step else None
        before = cache.digest()
        with pytest.raises((kvcache.Misuse, kvcache.Order)) as caught:
            call(cache, sequence, step)
        assert caught.value.message and caught.value.status < 100 or isinstance(caught.value, kvcache.Order), what
        assert cache.digest() == before
        cache.check_invariants()
        if step is not None:  # the step continues as if nothing had happened
            out = step.attend(0, ARRAY, K, K + 1)
            np.testing.assert_array_equal(out, np.ones_like(out))
            step.append(3, ROW)
            step.store_state(2, 0, np.zeros((1, 3), np.float32))
            step.end()
            assert cache.length(sequence) == 2


def test_encoders_beside_other_kinds(rng):
    layers = [kvcache.Layer(i, q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM) for i in range(3)]
    with kvcache.Cache(layers, groups=[kvcache.Sliding(3), kvcache.Cross(), kvcache.Chunked(4)], page_size=2,
                       capacity_tokens=256) as cache:
        a, b = cache.add(2)
        encoded = {}
        for sequence, frames in ((a, 11), (b, 5)):
            encoded[sequence] = rng.standard_normal((2, frames, KV_HEADS, DIM), dtype="f4")
            with cache.forward([sequence], [frames], encoder_group=1) as step:
                step.append(1, *encoded[sequence])
        sliding, chunked = DenseLayer(window=3), DenseLayer(chunk=4)
        for lengths in ([5, 2], [1, 1], [1, 1], [7, 1]):
            total = sum(lengths)
            q, k, v = (rng.standard_normal((total, n, DIM), dtype="f4") for n in (HEADS, KV_HEADS, KV_HEADS))
            with cache.forward([a, b], lengths) as step:
                outs = [step.attend(0, q, k, v), step.attend(1, q), step.attend(2, q, k, v)]
            np.testing.assert_allclose(outs[0], sliding.step([a, b], lengths, q, k, v)[0], atol=3e-5)
            np.testing.assert_allclose(outs[2], chunked.step([a, b], lengths, q, k, v)[0], atol=3e-5)
            for sequence, rows in ((a, slice(0, lengths[0])), (b, slice(lengths[0], total))):
                expected, _ = attention(q[rows], *encoded[sequence], [10**6] * len(q[rows]))
                np.testing.assert_allclose(outs[1][rows], expected, atol=3e-5)
