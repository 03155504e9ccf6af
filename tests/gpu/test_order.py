"""The host runs ahead of the device: page ids, forks, truncates and removes never wait for it, and are right.

Within `device.late()`, no work on the streams of the emulated device has finished, and a GPU is busy with something else. On the
CPU the same calls run at once.
"""

import numpy as np
import pytest
from scene import Scene

SETTING = {"q_heads": 4, "kv_heads": 2, "dim": 32, "page": 8}


def test_fork_then_truncate_and_append_while_the_copy_is_queued(device, rng):
    """The child's partial page is copied before later tokens of the parent overwrite it, because the stream orders both."""
    for late in device.rounds():
        scene = Scene(device, rng, **SETTING)
        parent = scene.add()
        scene.step([parent], [13])
        checks = []
        with late() as is_late:
            children = []
            for keep in (11, 9, 3):
                children.append(scene.fork(parent))
                scene.truncate(parent, keep)
                checks.append(scene.step([parent], [5], check=False))
            checks.append(scene.step(children, [2, 1, 3], check=False))
            assert is_late(), "the host waited for the device"
        for check in checks:
            check()
        scene.step([parent, *children], [1, 1, 1, 1])
        scene.close()


def test_pages_are_freed_under_steps_in_flight(device, rng):
    """The pages of a removed sequence are given to the next one at once, while steps that read them are queued."""
    for late in device.rounds():
        scene = Scene(device, rng, capacity=64, max_sequences=4, **SETTING)
        checks, pages = [], set()
        with late() as is_late:
            for number in range(6):
                assert is_late() or number >= 2, "the host waited for the device before its buffers were full"
                sequence = scene.add()
                checks.append(scene.step([sequence], [40], check=False))
                checks.append(scene.step([sequence], [1], check=False))
                pages |= set(scene.cache.pages(sequence).tolist())
                scene.remove(sequence)
        assert len(pages) <= 8  # the same pages are used again and again
        for check in checks:
            check()
        scene.close()


def test_many_steps_in_flight(device, rng):
    """More steps than the library has buffers for: the host waits for room, and nothing is overwritten early."""
    for late in device.rounds():
        scene = Scene(device, rng, **SETTING)
        rows = [scene.add() for _ in range(3)]
        scene.step(rows, [9, 4, 20])
        steps = {"cpu": 10, "emulated": 12, "cuda": 60}[device.name]
        with late():
            checks = [scene.step(rows, [1, 2, 1], check=False) for _ in range(steps)]
        for check in checks:
            check()
        scene.step(rows, [1, 1, 1])
        scene.close()


def test_aborted_steps_leave_no_trace(device, rng):
    for late in device.rounds():
        scene = Scene(device, rng, **SETTING)
        a = scene.add()
        scene.step([a], [10])
        with late() as is_late:
            q, k, v = (device.array(x) for x in scene.new_rows(5))
            with scene.cache.forward([a], [5]) as step:
                step.attend(0, q, k, v, out=device.poisoned((5, 4, 32)))
                step.abort()
            check = scene.step([a], [3], check=False)
            assert is_late(), "the host waited for the device"
        check()
        scene.step([a], [1])
        scene.close()


@pytest.mark.only("emulated", "cuda")
def test_caches_on_streams_of_their_own(device, rng):
    """Four caches on four streams of one context. Their steps are interleaved."""
    streams = [device.stream() for _ in range(4)]
    for late in device.rounds():
        scenes = [Scene(device, rng, **SETTING) for _ in streams]
        rows, checks = [scene.add() for scene in scenes], []
        with late(*streams) as is_late:
            for number in range(3):
                for scene, row, stream in zip(scenes, rows, streams):
                    with device.on(stream):
                        checks.append(scene.step([row], [17 if number == 0 else 1], check=False, stream=stream))
            assert is_late(), "the host waited for the device"
        for check in checks:
            check()
        for scene in scenes:
            scene.close()


@pytest.mark.only("emulated", "cuda")
def test_a_cache_moves_to_another_stream(device, rng):
    """Another stream reads what one stream stored, after it waits for that one."""
    first, second = device.stream(), device.stream()
    for late in device.rounds():
        scene = Scene(device, rng, **SETTING)
        a = scene.add()
        with late(first) as is_late:
            with device.on(first):
                check = scene.step([a], [21], check=False, stream=first)
            device.order(first, second)
            with device.on(second):
                again = scene.step([a], [2], check=False, stream=second)
            assert is_late(), "the host waited for the device"
        check(), again()
        np.testing.assert_equal(scene.cache.length(a), 23)
        scene.close()
