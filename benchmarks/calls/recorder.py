"""What kvcache.inspect.Recorder costs: CPU time of decode steps with and without it, in turn, and the part that it adds.

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
    cache = kvcache.Cache([layer] * layers, capacity_tokens=rows * (context + 3 * steps + 64), max_sequences=rows,
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
        forwards = {"no recorder": cache.forward}
        for name, plans in (("a recorder", False), ("a recorder of plans", True)):
            forwards[name] = kvcache.inspect.Recorder(cache, nowhere, state_ms=1e9, plans=plans).forward
        times = {name: [] for name in forwards}
        for _ in range(steps):
            for name, forward in forwards.items():
                begin = time.process_time()
                with forward(sequences, [1] * rows) as step:
                    for i in range(layers):
                        step.attend(i, q, kv, kv, out=out)
                times[name].append(time.process_time() - begin)
    base = statistics.median(times["no recorder"])
    for name, found in times.items():
        median = statistics.median(found)
        print(f"step with {name}: {median * 1e6:.1f} us, {100 * (median / base - 1):+.2f} %")
    begin = time.process_time()
    text = cache._describe()
    print(f"the whole cache, every 200 ms: {len(text)} bytes in {(time.process_time() - begin) * 1e6:.1f} us")


main()
