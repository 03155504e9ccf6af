"""Steps that were captured once in a CUDA graph and are replayed in other steps. On a GPU, torch.cuda.CUDAGraph captures the
attend calls of a library graph. Between replays the host only begins and ends steps."""

import numpy as np
import pytest
from devices import POISON, rounded
from scene import LSE_TOLERANCE, TOLERANCE, Scene, values_of

pytestmark = pytest.mark.only("emulated", "cuda")
ROWS, TOKENS = 8, 16
LONGEST = {"emulated": 620, "cuda": 9000}


class Program:
    """A model of one layer that was captured with `rows` and `lengths`."""

    def __init__(self, scene, rows, lengths, **options):
        self.scene, self.device, self.options = scene, scene.device, options
        self.stream = self.device.stream()
        self.graph = scene.cache.create_graph(max_sequences=ROWS, max_tokens=TOKENS)
        self.types = (scene.q_dtype, scene.q_dtype, scene.q_dtype, scene.q_dtype, "f32")
        self.shapes = ((TOKENS, scene.q_heads, scene.dim), (TOKENS, scene.kv_heads, scene.dim),
                       (TOKENS, scene.kv_heads, scene.v_dim), (TOKENS, scene.q_heads, scene.v_dim), (TOKENS, scene.q_heads))
        self.arrays = [self.device.poisoned(shape, dtype) for shape, dtype in zip(self.shapes, self.types)]
        self.device.synchronize()
        q, k, v, out, lse = self.arrays
        with self.device.on(self.stream):
            step = scene.cache.forward(rows, lengths, graph=self.graph, stream=self.stream)
            with self.device.capture(self.stream) as self.replay_recorded:
                step.attend(0, q, k, v, out=out, lse=lse, **options)
            step.abort()  # recorded, not run

    def poison(self, arrays=(3, 4)):
        for i in arrays:
            self.device.put(self.arrays[i], np.full(self.shapes[i], POISON), self.types[i], self.stream)

    def results(self):
        """Values of out and LSE, and which of them still are poison."""
        self.device.synchronize()
        got = [values_of(self.device.host(self.arrays[i])) for i in (3, 4)]
        return got, [x == values_of(rounded(POISON, self.types[i])) for i, x in zip((3, 4), got)]

    def replay(self, rows, lengths):
        """A step by a replay, compared with the definition."""
        scene, total = self.scene, sum(lengths)
        given = scene.new_rows(total)
        self.poison()
        if total > 0:
            for i, values in enumerate(given):
                self.device.put(self.arrays[i], values, scene.q_dtype, self.stream)
        with self.device.on(self.stream):
            step = scene.cache.forward(rows, lengths, graph=self.graph, stream=self.stream)
            self.replay_recorded()
            step.end()
        (got, got_lse), poison = self.results()
        assert all(is_poison[total:].all() for is_poison in poison), "a row after those of the step was written"
        row = 0
        for sequence, count in zip(rows, lengths):
            span, row = slice(row, row + count), row + count
            if sequence == 0:
                assert all(is_poison[span].all() for is_poison in poison), "an inert row was written"
                continue
            scene._extend(sequence, given[1][span], given[2][span], None)
            wanted, wanted_lse = scene._expected(sequence, given[0][span], count, None, True,
                                                 self.options.get("softcap", 0.0), None, None)
            np.testing.assert_allclose(got[span], wanted, rtol=0, atol=TOLERANCE[scene.q_dtype])
            np.testing.assert_allclose(got_lse[span], wanted_lse, rtol=0, atol=LSE_TOLERANCE[scene.q_dtype])


@pytest.fixture(params=["bf16", "f32"])
def scene(device, rng, request):
    longest = LONGEST[device.name]
    scene = Scene(device, rng, q_heads=8, kv_heads=2, dim=64, q_dtype=request.param, kv_dtype=request.param, page=16,
                  capacity=4 * longest, max_batch_tokens=longest, max_sequences=32)
    yield scene
    scene.close()


def test_captured_short_replayed_up_to_the_capacity(device, scene):
    first = scene.add()
    scene.step([first], [3])
    program = Program(scene, [first], [1])
    program.replay([first], [1])
    rows = [first] + [scene.add() for _ in range(ROWS - 1)]
    program.replay(rows, [2] * ROWS)  # rows and tokens at the capacity; most rows are new
    scene.fill(rows[1], LONGEST[device.name] // 2)
    program.replay(rows, [1] * ROWS)
    program.replay(rows[::-1], [2, 1, 3, 1, 1, 4, 2, 2])
    program.replay([rows[1]], [TOKENS])


def test_replays_of_nothing(scene):
    """No rows, rows without tokens, and padding rows: nothing is written."""
    a = scene.add()
    scene.step([a], [5])
    program = Program(scene, [a], [1])
    program.replay([], [])
    program.replay([0], [0])
    program.replay([a, 0], [1, 0])
    program.replay([0, a], [3, 2])


def test_replays_across_split_borders(device, scene):
    """Between replays the context grows beyond lengths at which decode is cut into more parts."""
    a, b = scene.add(), scene.add()
    scene.step([a, b], [1, 40])
    program = Program(scene, [a, b], [1, 1])
    for length in (15, 16, 17, 63, 255, 256, 257, 511, 513, 1023, 1024, 1025, 2047, 4096, 8200):
        if length > LONGEST[device.name] - 50:
            break
        if length > len(scene.keys[a]):
            scene.fill(a, length - len(scene.keys[a]))
        program.replay([a, b], [1, 1])
        program.replay([a], [2])


def test_forks_and_removes_between_replays(scene, rng, sampled):
    rows = [scene.add()]
    scene.step(rows, [300])
    program = Program(scene, rows, [1], softcap=30.0)
    for _ in range(sampled(40)):
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


def test_a_stale_replay_writes_nothing(device, scene):
    a = scene.add()
    scene.step([a], [20])
    program = Program(scene, [a], [1])
    program.replay([a], [1])
    before, length = values_of(device.host(scene.cache.layer_pool(0))).copy(), scene.cache.length(a)
    program.poison()
    for i, values in enumerate(scene.new_rows(TOKENS)):
        device.put(program.arrays[i], values, scene.q_dtype, program.stream)
    program.replay_recorded()  # no step is open
    assert all(is_poison.all() for is_poison in program.results()[1])
    np.testing.assert_array_equal(values_of(device.host(scene.cache.layer_pool(0))), before)
    assert scene.cache.length(a) == length
    program.replay([a], [1])  # the replay without a step changed nothing
