"""A cache, and a model of its contents. Both compute every step, and the results are compared."""

import numpy as np
from devices import POISON, rounded
from dense import attention, rotate, seen_by, tree_sees

import kvcache

# Largest errors of outputs, by the type of q and out, for values of the standard normal distribution; and of an LSE.
TOLERANCE = {"f32": 5e-5, "f16": 4e-3, "bf16": 2.5e-2}
LSE_TOLERANCE = {"f32": 1e-4, "f16": 2e-3, "bf16": 5e-3}


def values_of(array):
    return np.asarray(array).astype(np.float64)


class Scene:
    """A cache of one layer, sequences in it, and each sequence's K and V as the library says that they are stored.

    Stored values are compared with the given ones, apart from attention. So a failure shows which of the two kernels is wrong.
    """

    def __init__(self, device, rng, *, q_heads=2, kv_heads=1, dim=32, v_dim=0, q_dtype="f32", kv_dtype="f32", page=16,
                 window=None, chunk=None, rope=False, capacity=4096, pool=None, **cache_options):
        self.device, self.rng, self.q_dtype, self.kv_dtype = device, rng, q_dtype, kv_dtype
        self.q_heads, self.kv_heads, self.dim, self.v_dim = q_heads, kv_heads, dim, v_dim or dim
        self.window, self.chunk, self.rope = window, chunk, rope
        group = kvcache.Sliding(window) if window else kvcache.Chunked(chunk) if chunk else kvcache.Full()
        scales = {"k_scales": 0.05, "v_scales": 0.04} if kv_dtype.startswith("float8") else {}
        layer = kvcache.Layer(q_heads=q_heads, kv_heads=kv_heads, head_dim=dim, v_head_dim=v_dim, dtype=kv_dtype,
                              rope="on_append" if rope else None, kv_storage=pool, **scales)
        self.cache = kvcache.Cache([layer], [group], page_size=page, capacity_tokens=capacity, context=device.context(),
                                   **cache_options)
        self.keys, self.values = {}, {}  # sequence -> [tokens, Hkv, D] as stored, float64

    def close(self):
        self.device.synchronize()
        self.cache.close()

    def add(self):
        sequence = self.cache.add()
        self.keys[sequence] = np.zeros((0, self.kv_heads, self.dim))
        self.values[sequence] = np.zeros((0, self.kv_heads, self.v_dim))
        return sequence

    def fork(self, parent, position=-1):
        child = self.cache.fork(parent, position)
        end = None if position < 0 else position
        self.keys[child], self.values[child] = self.keys[parent][:end], self.values[parent][:end]
        return child

    def truncate(self, sequence, length):
        self.cache.truncate(sequence, length)
        self.keys[sequence], self.values[sequence] = self.keys[sequence][:length], self.values[sequence][:length]

    def remove(self, sequence):
        self.cache.remove(sequence)
        del self.keys[sequence], self.values[sequence]

    def random(self, tokens, heads, dim, dtype):
        return values_of(rounded(self.rng.standard_normal((tokens, heads, dim)), dtype))

    def new_rows(self, tokens):
        return (self.random(tokens, self.q_heads, self.dim, self.q_dtype),
                self.random(tokens, self.kv_heads, self.dim, self.q_dtype),
                self.random(tokens, self.kv_heads, self.v_dim, self.q_dtype))

    def stored(self, x, positions):
        """The expected K and V, before quantisation."""
        return values_of(rounded(rotate(x, positions) if self.rope and positions is not None else x, self.kv_dtype))

    def check_stored(self, sequence, begin, given_k, given_v):
        """Reads what the cache holds from `begin` on, and compares it with what was given."""
        quantised = self.kv_dtype not in ("f32", "f16", "bf16")
        parts = self.cache.export(sequence, 0, begin, scales=quantised)
        parts = [values_of(self.device.host(part)) for part in parts]
        if quantised:
            k_scale, v_scale = (s[None, :, None] if s.ndim == 1 else s[:, :, None] for s in parts[2:])
            parts = [parts[0] * k_scale, parts[1] * v_scale]
        positions = np.arange(begin, begin + len(given_k))
        for part, given, places in ((parts[0], given_k, positions), (parts[1], given_v, None)):
            wanted = rotate(given, places) if self.rope and places is not None else given
            # Half a step of the largest value of the row (int8), or of each value (floats).
            step = {"f32": 1e-5, "f16": 1e-3, "bf16": 8e-3, "float8_e4m3fn": 0.07, "float8_e5m2": 0.14}
            bound = (np.abs(wanted).max(-1, keepdims=True) / 250 if self.kv_dtype == "int8"
                     else np.maximum(np.abs(wanted), 0.05) * step[self.kv_dtype])
            assert (np.abs(part - wanted) <= bound + 1e-6).all(), f"stored {self.kv_dtype}: {np.abs(part - wanted).max()}"
        return parts

    def fill(self, sequence, tokens):
        """Appends without attention, because the definition would take time that grows with the square of the length."""
        _, k, v = self.new_rows(tokens)
        with self.cache.forward(sequence, tokens) as step:
            step.append(0, *(self.device.array(x, self.q_dtype) for x in (k, v)))
        self._extend(sequence, k, v, None)

    def step(self, sequences, lengths, *, stream=None, graph=None, parents=None, check=True, softcap=0.0, slopes=None,
             sinks=None, causal=True, lse=True):
        """A step. Its outputs are compared with the definition, and its stored values with the given ones.

        check=False: returns a function that compares the outputs only. The device may be late until it is called.
        """
        device, total = self.device, sum(lengths)
        q, k, v = self.new_rows(total)
        arrays = [device.array(x, self.q_dtype) for x in (q, k, v)]
        out = device.poisoned((total + 1, self.q_heads, self.v_dim), self.q_dtype)
        lse_array = device.poisoned((total + 1, self.q_heads)) if lse else None
        options = {"softcap": softcap, "causal": causal}
        for name, value in (("alibi_slopes", slopes), ("sinks", sinks)):
            if value is not None:
                options[name] = device.array(value)
        given = None if parents is None else [list(p) if p is not None else None for p in parents]
        with self.cache.forward(sequences, lengths, parents=given, graph=graph, stream=stream) as step:
            step.attend(0, *arrays, out=out, lse=lse_array if lse else False, **options)

        begins = np.cumsum([0, *lengths])
        spans = [slice(begin, end) for begin, end in zip(begins, begins[1:])]
        expected = []
        for i, (sequence, rows) in enumerate(zip(sequences, spans)):
            tree = parents[i] if parents else None
            self._extend(sequence, k[rows], v[rows], tree, check)
            expected.append(self._expected(sequence, q[rows], lengths[i], tree, causal, softcap, slopes, sinks))

        def compare():
            got, got_lse = values_of(device.host(out)), values_of(device.host(lse_array)) if lse else None
            assert (got[total:] == values_of(rounded(POISON, self.q_dtype))).all(), "a row after those of the batch was written"
            for i, (rows, (wanted, wanted_lse)) in enumerate(zip(spans, expected)):
                error = np.abs(got[rows] - wanted).max()
                bound = TOLERANCE[self.q_dtype] * max(1.0, np.abs(wanted).max())
                assert error <= bound, f"row {i} of {sequences}: off by {error}"
                if lse:
                    np.testing.assert_allclose(got_lse[rows], wanted_lse, rtol=0,
                                               atol=LSE_TOLERANCE[self.q_dtype] * max(1.0, softcap))

        if check:
            compare()
        return compare

    def commit(self, sequence, parents, leaf):
        """Commits a path of the tree that the last step appended."""
        begin = len(self.keys[sequence]) - len(parents)
        path, node = [], leaf
        while node >= 0:
            path.insert(0, node)
            node = parents[node]
        self.cache.commit(sequence, leaf)
        keep = np.concatenate([np.arange(begin), begin + np.array(path, np.int64)]).astype(np.int64)
        self.keys[sequence], self.values[sequence] = self.keys[sequence][keep], self.values[sequence][keep]

    def _positions(self, sequence, count, tree):
        begin = len(self.keys[sequence]) - count
        return begin + (np.arange(count) if tree is None else tree_sees(tree, begin)[1])

    def _extend(self, sequence, k, v, tree, check=True):
        begin = len(self.keys[sequence])
        evicted = self.window or self.chunk
        if check and tree is None and not evicted and self.cache.length(sequence) == begin + len(k):
            k, v = self.check_stored(sequence, begin, k, v)
        else:
            depths = np.arange(len(k)) if tree is None else tree_sees(tree, begin)[1]
            k, v = self.stored(k, begin + depths), self.stored(v, None)
        self.keys[sequence] = np.concatenate([self.keys[sequence], k])
        self.values[sequence] = np.concatenate([self.values[sequence], v])

    def _expected(self, sequence, q, count, tree, causal, softcap, slopes, sinks):
        keys, values = self.keys[sequence], self.values[sequence]
        begin, positions = len(keys) - count, self._positions(sequence, count, tree)
        key_positions = np.concatenate([np.arange(begin), positions])
        seen = (seen_by(positions, len(keys), self.window, self.chunk, causal) if tree is None
                else tree_sees(tree, begin)[0])
        if self.rope:
            q = values_of(rounded(rotate(q, positions), self.q_dtype))
        return attention(q, keys, values, seen, positions, key_positions, self.dim**-0.5, softcap, slopes, sinks)
