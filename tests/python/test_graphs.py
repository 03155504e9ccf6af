"""Graphs: calls that were recorded in one step are replayed in later steps. A replay without an open step is refused."""

import numpy as np
import pytest

import kvcache

LAYERS, HEADS, DIM, TOKENS = 2, 2, 16, 8


@pytest.fixture
def cache():
    layers = [kvcache.Layer(q_heads=HEADS, head_dim=DIM, rope="on_append")] * LAYERS
    with kvcache.Cache(layers, page_size=4, capacity_tokens=512, max_batch_tokens=64) as cache:
        yield cache


class Program:
    """A model that was recorded once: a step, and arrays with fixed addresses."""

    def __init__(self, step):
        self.step = step
        self.q = np.zeros((TOKENS, HEADS, DIM), np.float32)
        self.k, self.v = (np.zeros((TOKENS, 1, DIM), np.float32) for _ in "kv")
        self.outs = [np.full((TOKENS, HEADS, DIM), 7, np.float32) for _ in range(LAYERS)]

    def replay(self, seed):
        rng = np.random.default_rng(seed)
        for array in (self.q, self.k, self.v):
            array[:] = rng.standard_normal(array.shape)
        for layer, out in enumerate(self.outs):
            self.step.attend(layer, self.q, self.k, self.v, out=out)


def test_replays_are_the_steps_that_are_open(cache):
    graph = cache.create_graph(max_sequences=3, max_tokens=TOKENS)
    replayed, plain = cache.add(3), cache.add(3)
    program = None
    for round in range(40):
        rows = [round % 3, (round + 1) % 3][: 1 + round % 2]
        lengths = [1 + round % 4 for _ in rows]
        total = sum(lengths)
        with cache.forward([replayed[r] for r in rows], lengths, graph=graph) as step:
            program = program or Program(step)  # recorded with the first step, replayed in all
            for out in program.outs:
                out[:] = 7
            program.replay(round)
            assert len(step.positions) == total
        with cache.forward([plain[r] for r in rows], lengths) as step:
            wanted = [step.attend(i, program.q, program.k, program.v) for i in range(LAYERS)]
        for got, out in zip(program.outs, wanted):
            np.testing.assert_array_equal(got[:total], out[:total])
            assert (got[total:] == 7).all()
        assert cache.lengths(replayed) == cache.lengths(plain)


def test_stale_replays_touch_nothing(cache):
    graph = cache.create_graph(max_tokens=TOKENS)
    sequence = cache.add()
    with cache.forward(sequence, 2, graph=graph) as step:
        program = Program(step)
        program.replay(1)
        assert step.tables().generation_word[0] > 0
    before, digest = [out.copy() for out in program.outs], cache.digest()
    with pytest.raises(kvcache.Stale, match="no step is open in graph"):
        program.replay(2)
    assert all((a == b).all() for a, b in zip(before, program.outs)) and cache.digest() == digest
    cache.destroy_graph(graph)
    with pytest.raises(kvcache.StaleId):
        program.replay(3)
    with pytest.raises(kvcache.StaleId):
        cache.destroy_graph(graph)


def test_tables_have_the_graphs_shapes(cache):
    graph = cache.create_graph(max_sequences=5, max_tokens=TOKENS, max_pages_per_row=9)
    a, b = cache.add(2)
    for lengths in ([8, 0], [1, 3]):
        rows = [s for s, n in zip((a, b), lengths) if n]
        with cache.forward(rows, [n for n in lengths if n], graph=graph) as step:
            tables = step.tables()
            assert tables.block_table.shape == (5, 9) and tables.slot_mapping.shape == (TOKENS,)
            assert (tables.slot_mapping[sum(lengths):] == -1).all() and (tables.batch_rows[len(rows):] == -1).all()
            assert tables.num_rows == len(rows)
            for i in range(LAYERS):
                step.append(i, *(np.zeros((TOKENS, 1, DIM), np.float32) for _ in "kv"))


def test_refused(cache):
    graph = cache.create_graph(max_sequences=2, max_tokens=4)
    a, b, c = cache.add(3)
    with pytest.raises(kvcache.BatchTooLarge, match="graph's max_tokens 4"):
        cache.forward([a, b], [3, 2], graph=graph)
    assert not cache.can_fit([a, b, c], [1, 1, 1], graph=graph)
    step = cache.forward(a, 1, graph=graph)
    with pytest.raises(kvcache.Busy):
        cache.forward(b, 1, graph=graph)
    with pytest.raises(kvcache.Busy):
        cache.destroy_graph(graph)
    step.abort()
    with pytest.raises(kvcache.StaleId, match="no graph"):
        cache.forward(a, 1, graph=a)
    with pytest.raises(TypeError):
        cache.forward(a, 1, graph="graph")
    with pytest.raises(kvcache.OutOfRange):
        cache.create_graph(max_tokens=1 << 40)
