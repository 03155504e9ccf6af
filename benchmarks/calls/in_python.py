"""What calls cost in Python: the two calls of main.cc, with the same arguments.

    in_python.py Q_HEADS KV_HEADS HEAD_DIM LAYERS CAPACITY_TOKENS
"""
import sys
import time

import kvcache
import numpy as np


def main() -> None:
    q_heads, kv_heads, dim, num_layers, capacity = (int(word) for word in sys.argv[1:])
    layers = [kvcache.Layer(q_heads=q_heads, kv_heads=kv_heads, head_dim=dim)] * num_layers
    cache = kvcache.Cache(layers, context=kvcache.Context(threads=1), capacity_tokens=capacity)
    sequence = cache.add()
    now, length = time.perf_counter_ns, cache.length
    trivial = attend = float("inf")
    for _ in range(50):
        begin = now()
        for _ in range(10000):
            length(sequence)
        trivial = min(trivial, (now() - begin) / 10000)
    q, out = (np.full((1, q_heads, dim), 0.1, np.float32) for _ in range(2))
    k, v = (np.full((1, kv_heads, dim), 0.2, np.float32) for _ in range(2))
    for _ in range(100):  # the first round touches each pool
        step = cache.forward([sequence], [1])
        begin = now()
        for layer in range(num_layers):
            step.attend(layer, q, k, v, out=out)
        attend = min(attend, (now() - begin) / num_layers)
        step.abort()
    print(f"{trivial:.1f} {attend:.1f}")


main()
