"""DeepSeek-V4's three kinds of layers as an engine would run them: window rows alone; window rows and listed rows of 4 tokens with
overlap; window rows and all rows of 16 tokens. The engine computes rows from keys of single tokens that the cache keeps in sliding
groups. Everything is compared with float64 over the whole history, by the definition in the model."""

import numpy as np
import pytest

import kvcache

HEADS, DIM, INDEX_HEADS, INDEX_DIM, CHOSEN = 4, 16, 16, 8, 3
WINDOW, SHORT, LONG, PAGE, ROLLBACK, SCALE = 12, 4, 16, 16, 6, 0.3
LOCAL, CSA_LOCAL, CSA_ROWS, CSA_INDEX, HCA_LOCAL, HCA_ROWS, CSA_RAW, INDEX_RAW, HCA_RAW = range(9)


def make(**options):
    latent = dict(q_heads=HEADS, head_dim=DIM, latent_dim=DIM, scale=SCALE)
    layers = [kvcache.Layer(group=0, **latent), kvcache.Layer(group=0, **latent), kvcache.Layer(group=1, **latent),
              kvcache.Layer(group=1, q_heads=INDEX_HEADS, head_dim=INDEX_DIM, keys_only=True),
              kvcache.Layer(group=0, **latent), kvcache.Layer(group=2, **latent),
              kvcache.Layer(group=3, q_heads=4, kv_heads=4, head_dim=DIM, keys_only=True),  # kv | gate, 2 DIM channels each
              kvcache.Layer(group=3, q_heads=4, kv_heads=4, head_dim=INDEX_DIM, keys_only=True),
              kvcache.Layer(group=4, q_heads=2, kv_heads=2, head_dim=DIM, keys_only=True)]  # fmt: skip
    groups = [kvcache.Sliding(WINDOW, row="latent"), kvcache.Full(row="latent", tokens_per_row=SHORT),
              kvcache.Full(row="latent", tokens_per_row=LONG), kvcache.Sliding(2 * SHORT), kvcache.Sliding(LONG)]  # fmt: skip
    return kvcache.Cache(layers, groups=groups, page_size=PAGE, capacity_tokens=512, rollback_tokens=ROLLBACK, **options)


def rotated(row, position):
    """The last 4 dims, interleaved."""
    angles = position * np.array([1.0, 0.01])
    x, y = row[..., -4::2].copy(), row[..., -3::2].copy()
    row = row.copy()
    row[..., -4::2], row[..., -3::2] = x * np.cos(angles) - y * np.sin(angles), x * np.sin(angles) + y * np.cos(angles)
    return row


def pooled(raw, ape, begin, first):
    """The row that begins at token `begin`, from keys of tokens. raw [tokens, heads, D], of tokens from `first` on: kv and gate.
    With 4 heads, the first half of the channels comes from the tokens of the row before."""
    size, overlaps = len(ape), raw.shape[1] == 4
    parts = []
    for half in range(2 if overlaps else 1):
        start = begin - size if overlaps and half == 0 else begin
        if start < 0:
            continue
        tokens = raw[start - first : start - first + size].astype(np.float64)
        kv, gate = (tokens[:, half], tokens[:, 2 + half]) if overlaps else (tokens[:, 0], tokens[:, 1])
        parts.append((kv, gate + ape))
    kv, gate = (np.concatenate(each) for each in zip(*parts))
    weights = np.exp(gate - gate.max(axis=0))
    row = (weights / weights.sum(axis=0) * kv).sum(axis=0)
    row /= np.sqrt((row**2).mean() + 1e-6)
    return rotated(row, begin)


KINDS = {CSA_ROWS: (CSA_RAW, SHORT), CSA_INDEX: (INDEX_RAW, SHORT), HCA_ROWS: (HCA_RAW, LONG)}
APE = {rows: np.random.default_rng(rows).standard_normal((size, INDEX_DIM if rows == CSA_INDEX else DIM))
       for rows, (_, size) in KINDS.items()}  # fmt: skip


class Engine:
    """Runs the layers on a cache. A sequence's history is what the model gave for each of its tokens, by layer."""

    def __init__(self, seed, **options):
        self.cache, self.rng, self.history = make(**options), np.random.default_rng(seed), {}

    def draw(self, shape):
        return self.rng.standard_normal(shape, dtype="f4")

    def add(self):
        sequence = self.cache.add()
        self.history[sequence] = {layer: np.zeros((0, heads, dim), "f4") for layer, heads, dim in self.inputs()}
        return sequence

    @staticmethod
    def inputs():
        return [(LOCAL, 1, DIM), (CSA_LOCAL, 1, DIM), (HCA_LOCAL, 1, DIM), (CSA_RAW, 4, DIM), (INDEX_RAW, 4, INDEX_DIM), (HCA_RAW, 2, DIM)]

    def step(self, sequences, counts):
        lengths = [self.cache.length(s) for s in sequences]
        total = sum(counts)
        fresh = {layer: self.draw((total, heads, dim)) for layer, heads, dim in self.inputs()}
        splits = np.cumsum(counts)[:-1]
        closed = {rows: self.closed_rows(rows, sequences, lengths, counts, np.split(fresh[raw], splits))
                  for rows, (raw, _) in KINDS.items()}  # fmt: skip
        for layer, given in fresh.items():
            for sequence, part in zip(sequences, np.split(given, splits)):
                self.history[sequence][layer] = np.concatenate([self.history[sequence][layer], part])
        q = {layer: self.draw((total, HEADS, DIM)) for layer in (LOCAL, CSA_LOCAL, HCA_LOCAL)}
        index_q, weights, sinks = self.draw((total, INDEX_HEADS, INDEX_DIM)), self.draw((total, INDEX_HEADS)), self.draw(HEADS)
        outputs = {}
        with self.cache.forward(sequences, counts) as step:
            for layer in (CSA_RAW, INDEX_RAW, HCA_RAW):
                step.append(layer, fresh[layer])
            outputs[LOCAL] = step.attend(LOCAL, q[LOCAL], fresh[LOCAL], sinks=sinks)
            step.append(CSA_INDEX, closed[CSA_INDEX])
            lists = step.select(CSA_INDEX, index_q, CHOSEN, weights)
            for local, rows, indices in ((CSA_LOCAL, CSA_ROWS, lists), (HCA_LOCAL, HCA_ROWS, None)):
                near = step.attend(local, q[local], fresh[local], sinks=sinks, lse=True)
                far = step.attend(rows, q[local], closed[rows], indices=indices, lse=True)
                outputs[local] = self.cache.context.merge_states([near[0], far[0]], [near[1], far[1]])[0]
        token = 0
        for sequence, length, count in zip(sequences, lengths, counts):
            for position in range(length, length + count):
                self.check(sequence, position, token, q, index_q, weights, sinks, lists, outputs)
                token += 1

    def closed_rows(self, rows, sequences, lengths, counts, fresh):
        """The rows that close, in the order of the batch: from what the cache has of the tokens before, and the new ones."""
        raw, size = KINDS[rows]
        overlap = size if fresh[0].shape[1] == 4 else 0
        result = []
        for sequence, length, count, new in zip(sequences, lengths, counts, fresh):
            first = max(0, length // size * size - overlap)
            kept = np.asarray(self.cache.export(sequence, raw, first)[0]) if first < length else new[:0]
            for w in range(length // size, (length + count) // size):
                result.append(pooled(np.concatenate([kept, new]), APE[rows], w * size, first))
        return np.array(result, "f4").reshape(len(result), 1, APE[rows].shape[1])

    def check(self, sequence, position, token, q, index_q, weights, sinks, lists, outputs):
        history = self.history[sequence]

        def rows_of(rows):
            raw, size = KINDS[rows]
            count = (position + 1) // size
            made = [pooled(history[raw], APE[rows], w * size, 0) for w in range(count)]
            return np.array(made).reshape(count, APE[rows].shape[1])

        keys = rows_of(CSA_INDEX)
        scores = (np.maximum(index_q[token].astype(float) @ keys.T, 0) * weights[token][:, None]).sum(axis=0)
        chosen = np.sort(np.argsort(-scores, kind="stable")[:CHOSEN])
        np.testing.assert_array_equal(lists[token, 0], np.r_[chosen, np.full(CHOSEN - len(chosen), -1)])
        for local, far in ((LOCAL, np.zeros((0, DIM))), (CSA_LOCAL, rows_of(CSA_ROWS)[chosen]), (HCA_LOCAL, rows_of(HCA_ROWS))):
            near = history[local][max(0, position - WINDOW + 1) : position + 1, 0]
            values = np.concatenate([near, far])
            logits = q[local][token].astype(float) @ values.T * SCALE
            weight = np.exp(logits)
            expected = weight @ values / (weight.sum(axis=1) + np.exp(sinks))[:, None]
            np.testing.assert_allclose(outputs[local][token], expected, atol=2e-5, err_msg=f"layer {local}, position {position}")

    def cut(self, sequence, length):
        self.cache.truncate(sequence, length)
        self.history[sequence] = {layer: rows[:length] for layer, rows in self.history[sequence].items()}

    def fork(self, sequence, position):
        child = self.cache.fork(sequence, position)
        self.history[child] = {layer: rows[:position] for layer, rows in self.history[sequence].items()}
        return child


def test_chunks_of_prompts_and_decoding():
    engine = Engine(1)
    a, b = engine.add(), engine.add()
    engine.step([a], [37])
    engine.step([a, b], [9, 2])
    for _ in range(18):
        engine.step([b, a], [1, 1])
    engine.step([b], [50])
    engine.cache.check_invariants()


def test_rejected_drafts_close_rows_again():
    engine = Engine(2)
    a = engine.add()
    engine.step([a], [30])
    for accepted in (0, 1, 2, 5, 3, 1, 0, 4):
        length = engine.cache.length(a)
        engine.step([a], [6])
        engine.cut(a, length + accepted)
        engine.step([a], [1])


def test_forks_share_rows_and_part():
    engine = Engine(3)
    a = engine.add()
    engine.step([a], [45])
    children = [engine.fork(a, position) for position in (45, 44, 42, 40)]
    engine.step([a, *children], [5, 4, 3, 2, 1])
    engine.step([*children, a], [1, 2, 3, 4, 5])


def test_positions_whose_tokens_are_gone():
    engine = Engine(4)
    a = engine.add()
    engine.step([a], [90])
    with pytest.raises(kvcache.Evicted, match="nearest positions: 0 and"):
        engine.cache.truncate(a, 40)
    before, after = engine.cache.nearest_position(a, 40)
    assert before == 0 and 40 < after <= 90 - ROLLBACK
    engine.cut(a, after)
    engine.step([a], [20])


def test_prefixes():
    engine = Engine(5, prefix_index=True)
    a, tokens = engine.add(), list(range(53))
    engine.step([a], [53])
    engine.cache.publish_prefix(a, tokens)
    b, hit = engine.cache.attach_prefix(tokens[:50])
    assert hit.tokens == engine.cache.length(b) > 32
    engine.history[b] = {layer: rows[: hit.tokens] for layer, rows in engine.history[a].items()}
    engine.step([b, a], [11, 3])


def test_refusals():
    with pytest.raises(kvcache.InvalidArgument, match="tokens_per_row 3 does not divide the page size of 16 tokens"):
        kvcache.Cache([kvcache.Layer(head_dim=8)], groups=[kvcache.Full(tokens_per_row=3)], capacity_tokens=64)
    with kvcache.Cache([kvcache.Layer(head_dim=8)], groups=[kvcache.Full(tokens_per_row=4)], capacity_tokens=64) as cache:
        assert kvcache.Full(tokens_per_row=4) != kvcache.Full()
        with pytest.raises(kvcache.Unsupported, match="group 0 has a row for each 4 tokens"):
            cache.forward(cache.add(), 2, parents=[-1, 0])
