#!/usr/bin/env python3
"""Attention nodes by ONNX Runtime's own kernels and by the plug-in, in one run: medians of alternating calls.

    build/venv-onnxruntime/bin/python integrations/onnxruntime/benchmark.py [--seconds 1] [--threads 1 2] [--dtypes float32 float16]
"""
import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent / 'tests'))
from models import GroupQuery, session  # noqa: E402

CASES = [('prefill 512', 512, 512), ('prefill 2048', 2048, 2048), ('chunk of 64 at 2048', 64, 2048),
         ('decode at 128', 1, 128), ('decode at 1024', 1, 1024), ('decode at 8192', 1, 8192)]


def bound(running, case, feed):
    """A call of a session, with past and present in one buffer and nothing copied by Python."""
    binding = running.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    out = np.empty((*feed['query'].shape[:2], case.q_heads * case.dims), case.dtype)
    for name, array in ('output', out), ('present_key', feed['past_key']), ('present_value', feed['past_value']):
        binding.bind_output(name, 'cpu', 0, array.dtype.type, array.shape, array.ctypes.data)
    return lambda: running.run_with_iobinding(binding), (binding, out)


def medians(calls, seconds: float):
    times = [[] for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, taken in zip(calls, times):
            begin = time.perf_counter()
            call()
            taken.append(time.perf_counter() - begin)
    return [float(np.median(taken)) for taken in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=float, default=1.0, help='for each case')
    parser.add_argument('--threads', type=int, nargs='+', default=[1, 2])
    parser.add_argument('--dtypes', nargs='+', default=['float32', 'float16'], choices=['float32', 'float16'])
    arguments = parser.parse_args()
    print(f'ONNX Runtime {onnxruntime.__version__}, GroupQueryAttention, 32 query heads, 8 KV heads, 128 dims, rotary, one buffer\n')
    print('| Case | Type | Threads | ONNX Runtime, ms | Plug-in, ms | Faster |\n|---|---|---|---|---|---|')
    for dtype in arguments.dtypes:
        case = GroupQuery(dtype, q_heads=32, kv_heads=8, dims=128, do_rotary=1)
        for threads in arguments.threads:
            sessions = [session(case.model, plugin, threads) for plugin in (False, True)]
            for name, new, total in CASES:
                feed = case.feed(new, [total], room=total)
                calls, kept = zip(*(bound(running, case, dict(feed)) for running in sessions))
                stock, plugin = medians(calls, arguments.seconds)
                print(f'| {name} | {dtype} | {threads} | {stock * 1e3:.3f} | {plugin * 1e3:.3f} | {stock / plugin:.2f} |', flush=True)
                del kept


if __name__ == '__main__':
    main()
