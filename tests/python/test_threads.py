"""Compute calls release the GIL; another thread can cancel, query and close."""

import threading
import time

import numpy as np
import pytest

import kvcache

HEAD_DIM = 64
SECONDS = 0.15  # duration of a "long" attend


class Prefill:
    """An attend over `tokens` new tokens, with so many heads that it takes long on one thread."""

    def __init__(self, tokens, heads):
        layer = kvcache.Layer(q_heads=heads, kv_heads=1, head_dim=HEAD_DIM)
        self.cache = kvcache.Cache([layer], capacity_tokens=tokens, max_batch_tokens=tokens, max_sequences=2,
                                   context=kvcache.Context(threads=1))
        self.q = np.ones((tokens, heads, HEAD_DIM), np.float32)
        self.kv = np.ones((tokens, 1, HEAD_DIM), np.float32)
        self.out = np.ones_like(self.q)
        self.sequence = self.cache.add()
        self.tokens = tokens

    def begin(self):
        return self.cache.forward([self.sequence], [self.tokens])

    def attend(self, step):
        start = time.perf_counter()
        step.attend(0, self.q, self.kv, self.kv, out=self.out)
        return time.perf_counter() - start


@pytest.fixture(scope="module")
def prefill():
    tokens, heads = 128, 4
    while True:
        candidate = Prefill(tokens, heads)
        with candidate.begin() as step:
            seconds = candidate.attend(step)
            step.abort()
        if seconds >= SECONDS:
            return candidate
        tokens, heads = (tokens * 2, heads) if tokens < 2048 else (tokens, heads * 2)


def test_the_gil_is_released_in_a_long_attend(prefill):
    ticks, running = [], True

    def tick():
        while running:
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        with prefill.begin() as step:
            start = time.perf_counter()
            prefill.attend(step)
            end = time.perf_counter()
            step.abort()
    finally:
        running = False
        thread.join()
    assert sum(start < t < end for t in ticks) >= 5  # if the GIL were held, at most one


def test_cancel_and_queries_from_another_thread(prefill):
    answers = {}

    def other(step):
        time.sleep(SECONDS / 10)
        answers["length"] = prefill.cache.length(prefill.sequence)
        try:
            step.append(0, prefill.kv, prefill.kv)
        except kvcache.Error as error:
            answers["append"] = error
        try:
            step.abort()
        except kvcache.Error as error:
            answers["abort"] = error
        step.cancel()

    with prefill.begin() as step:
        thread = threading.Thread(target=other, args=(step,))
        thread.start()
        try:
            with pytest.raises(kvcache.Cancelled):
                prefill.attend(step)
        finally:
            thread.join()
        step.abort()
    assert answers["length"] == 0 and isinstance(answers["append"], kvcache.Busy)
    assert isinstance(answers["abort"], kvcache.Busy)
    prefill.cache.check_invariants()


def test_close_waits_for_a_running_call():
    candidate = Prefill(512, 16)
    step = candidate.begin()
    thread = threading.Thread(target=lambda: (time.sleep(0.002), candidate.cache.close()))
    thread.start()
    try:
        candidate.attend(step)
    except kvcache.Closed:
        pass  # the other thread has closed it already
    thread.join()
    with pytest.raises(kvcache.Closed):
        step.end()


def test_threads_with_steps_of_their_own():
    with kvcache.Cache([kvcache.Layer(head_dim=16)], capacity_tokens=4096, max_open_forwards=4) as cache:
        failures = []

        def work(sequence):
            try:
                one = np.ones((1, 1, 16), np.float32)
                for _ in range(100):
                    with cache.forward([sequence], [1]) as step:
                        step.attend(0, one, one, one)
            except Exception as error:  # the main thread prints it
                failures.append(error)

        sequences = cache.add(4)
        threads = [threading.Thread(target=work, args=(s,)) for s in sequences]
        [t.start() for t in threads], [t.join() for t in threads]
        assert not failures and cache.lengths(sequences) == [100] * 4
        cache.check_invariants()
