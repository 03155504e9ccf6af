"""What kvcache.inspect.Recorder costs: decode steps with and without it, in turn, and the part of a step that it adds.

    recorder.py [LAYERS [ROWS [CONTEXT [STEPS]]]]
"""

import os
import statistics
import sys
import time

import numpy as np

import kvcache


def main() -> None:
    layers, rows, context, steps = (int(word) for word in (*sys.argv[1:], *"16 8 1024 200".split()[len(sys.argv) - 1 :]))
    layer = kvcache.Layer(q_heads=8, kv_heads=2, head_dim=64)
    cache = kvcache.Cache([layer] * layers, capacity_tokens=rows * (context + 2 * steps + 64), max_sequences=rows,
                          context=kvcache.Context(threads=1))  # fmt: skip
    sequences = cache.add(rows)
    prompt = np.full((context, 2, 64), 0.1, np.float32)
    for sequence in sequences:
        with cache.forward([sequence], [context]) as step:
            for i in range(layers):
                step.append(i, prompt, prompt)
    q, out = (np.full((rows, 8, 64), 0.1, np.float32) for _ in range(2))
    kv = np.full((rows, 2, 64), 0.1, np.float32)
    with open(os.devnull, "w") as nowhere:
        recorder = kvcache.inspect.Recorder(cache, nowhere)
        times = {"without": [], "with": []}
        for _ in range(steps):
            for name, forward in (("without", cache.forward), ("with", recorder.forward)):
                begin = time.perf_counter()
                with forward(sequences, [1] * rows) as step:
                    for i in range(layers):
                        step.attend(i, q, kv, kv, out=out)
                times[name].append(time.perf_counter() - begin)
    without, with_recorder = (statistics.median(times[name]) for name in ("without", "with"))
    begin = time.perf_counter()
    text = cache._describe()
    state = time.perf_counter() - begin
    added = with_recorder - without + state * min(1, with_recorder / 0.2)
    print(f"step {without * 1e6:.1f} us, with a recorder {with_recorder * 1e6:.1f} us")
    print(f"the whole cache, every 200 ms: {len(text)} bytes in {state * 1e6:.1f} us")
    print(f"added to a step: {100 * added / without:.2f} %")


main()
