"""Steps that were captured once in a CUDA graph and are replayed in other steps: torch.cuda.CUDAGraph around attend calls of
a library graph. Between replays the host only begins and ends steps."""

import numpy as np
import pytest
from devices import POISON
from scene import LSE_TOLERANCE, TOLERANCE, Scene, values_of

pytestmark = pytest.mark.only("cuda")
ROWS, TOKENS, LONGEST = 8, 16, 9000


class Program:
    """A model of one layer that was captured with `rows` and `lengths`."""

    def __init__(self, scene, rows, lengths, **options):
        self.scene, self.device, self.options = scene, scene.device, options
        torch = self.torch = scene.device.torch
        self.stream, self.recorded = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        self.graph = scene.cache.create_graph(max_sequences=ROWS, max_tokens=TOKENS)
        self.q = self.device.poisoned((TOKENS, scene.q_heads, scene.dim), scene.q_dtype)
        self.k = self.device.poisoned((TOKENS, scene.kv_heads, scene.dim), scene.q_dtype)
        self.v = self.device.poisoned((TOKENS, scene.kv_heads, scene.v_dim), scene.q_dtype)
        self.out = self.device.poisoned((TOKENS, scene.q_heads, scene.v_dim), scene.q_dtype)
        self.lse = self.device.poisoned((TOKENS, scene.q_heads))
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            step = scene.cache.forward(rows, lengths, graph=self.graph)
            with torch.cuda.graph(self.recorded, stream=self.stream):
                step.attend(0, self.q, self.k, self.v, out=self.out, lse=self.lse, **options)
            step.abort()  # recorded, not run

    def poison(self):
        self.out.fill_(POISON)
        self.lse.fill_(POISON)

    def replay(self, rows, lengths):
        """A step by a replay, compared with the definition."""
        scene, total, torch = self.scene, sum(lengths), self.torch
        given = scene.new_rows(total)
        with torch.cuda.stream(self.stream):
            self.poison()
            for target, values in zip((self.q, self.k, self.v), given):
                target[:total] = self.device.array(values, scene.q_dtype)
            step = scene.cache.forward(rows, lengths, graph=self.graph)
            self.recorded.replay()
            step.end()
        torch.cuda.synchronize()
        got, got_lse = values_of(self.device.host(self.out)), values_of(self.device.host(self.lse))
        poison = got[-1, 0, 0] if total < TOKENS else None
        assert (got[total:] == poison).all() if poison is not None else True, "a row behind the step was written"
        row = 0
        for sequence, count in zip(rows, lengths):
            span, row = slice(row, row + count), row + count
            if sequence == 0:
                continue
            scene._extend(sequence, given[1][span], given[2][span], None)
            wanted, wanted_lse = scene._expected(sequence, given[0][span], count, None, True,
                                                 self.options.get("softcap", 0.0), None, None)
            np.testing.assert_allclose(got[span], wanted, rtol=0, atol=TOLERANCE[scene.q_dtype])
            np.testing.assert_allclose(got_lse[span], wanted_lse, rtol=0, atol=LSE_TOLERANCE[scene.q_dtype])


@pytest.fixture(params=["bf16", "f32"])
def scene(device, rng, request):
    scene = Scene(device, rng, q_heads=8, kv_heads=2, dim=64, q_dtype=request.param, kv_dtype=request.param, page=16,
                  capacity=4 * LONGEST, max_batch_tokens=LONGEST, max_sequences=32)
    yield scene
    scene.close()


def test_captured_short_replayed_up_to_the_capacity(scene):
    first = scene.add()
    scene.step([first], [3])
    program = Program(scene, [first], [1])
    program.replay([first], [1])
    rows = [first] + [scene.add() for _ in range(ROWS - 1)]
    program.replay(rows, [2] * ROWS)  # rows and tokens at the capacity, most rows new
    scene.fill(rows[1], LONGEST - 700)
    program.replay(rows, [1] * ROWS)
    program.replay(rows[::-1], [2, 1, 3, 1, 1, 4, 2, 2])
    program.replay([rows[1]], [TOKENS])


def test_replays_of_nothing(scene):
    """Rows without tokens, and rows that are padding: nothing is written."""
    a = scene.add()
    program = Program(scene, [a], [1])
    program.replay([0], [0])
    assert (values_of(program.device.host(program.out)) == values_of(program.device.host(program.out))[0, 0, 0]).all()
    program.replay([a, 0], [1, 0])  # the first token of a sequence
    program.replay([0, a], [0, 2])


def test_replays_across_split_borders(scene):
    """Between replays the context grows past the lengths at which decode is cut into more parts."""
    a, b = scene.add(), scene.add()
    scene.step([a, b], [1, 40])
    program = Program(scene, [a, b], [1, 1])
    for length in (15, 16, 17, 63, 255, 256, 257, 511, 513, 1023, 1024, 1025, 2047, 4096, 8200):
        if length > len(scene.keys[a]):
            scene.fill(a, length - len(scene.keys[a]))
        program.replay([a, b], [1, 1])
        program.replay([a], [2])


def test_forks_and_removes_between_replays(scene, rng):
    rows = [scene.add()]
    scene.step(rows, [300])
    program = Program(scene, rows, [1], softcap=30.0)
    for round in range(30):
        action = rng.integers(4)
        if action == 0 and len(rows) < ROWS:
            rows.append(scene.fork(rows[int(rng.integers(len(rows)))]))
        elif action == 1 and len(rows) > 1:
            scene.remove(rows.pop(int(rng.integers(len(rows)))))
        elif action == 2:
            victim = rows[int(rng.integers(len(rows)))]
            scene.truncate(victim, int(rng.integers(len(scene.keys[victim]) + 1)))
        elif len(rows) < ROWS:
            rows.append(scene.add())
        program.replay(rows, [int(rng.integers(1, 3)) for _ in rows])
    scene.cache.check_invariants()


def test_a_stale_replay_writes_nothing(scene):
    a = scene.add()
    scene.step([a], [20])
    program = Program(scene, [a], [1])
    program.replay([a], [1])
    pool = program.torch.from_dlpack(scene.cache.layer_pool(0))
    before, length = pool.clone(), scene.cache.length(a)
    with program.torch.cuda.stream(program.stream):
        program.poison()
        program.q.normal_(), program.k.normal_(), program.v.normal_()
        program.recorded.replay()  # no step is open
    program.torch.cuda.synchronize()
    out = values_of(program.device.host(program.out))
    assert (out == out[0, 0, 0]).all() and abs(out[0, 0, 0]) > 60000
    assert program.torch.equal(pool, before) and scene.cache.length(a) == length
    program.replay([a], [1])  # and the next step is as if nothing had been
