#!/usr/bin/env python3
"""Attention nodes, and Gemma 3 270M, by ONNX Runtime's own kernels and by the plug-in, in one run: medians of alternating calls.

    build/venv-onnxruntime/bin/python integrations/onnxruntime/benchmark.py [--seconds 1] [--threads 1 2] [--dtypes float32 float16]
        [--only grouped multi-head gemma] [--gemma FOLDER]       FOLDER has the model of export_gemma.py, which is written if it is not there
"""
import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / 'tests')]
from models import GroupQuery, session  # noqa: E402
from test_multi_head import HEADS, multi_head, vectors  # noqa: E402

CASES = [('prefill 512', 512, 512), ('prefill 2048', 2048, 2048), ('chunk of 64 at 2048', 64, 2048),
         ('decode at 128', 1, 128), ('decode at 1024', 1, 1024), ('decode at 8192', 1, 8192)]
GEMMA_CASES = [('prefill 512', 512, 512), ('decode at 512', 1, 512), ('decode at 4096', 1, 4096)]


def bound(running, feed, output: str, out):
    """A call of a session, with past and present in one buffer and nothing copied by Python."""
    binding = running.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    presents = {name.replace('past', 'present'): array for name, array in feed.items() if name.startswith('past')}
    for name, array in {output: out, **presents}.items():
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


def compare(title: str, model, cases, feed_of, output: str, out_of, arguments, dtypes):
    """Prints a table. feed_of(dtype, new, total) and out_of(dtype, feed) make the tensors of a case."""
    print(f'\n{title}\n\n| Case | Type | Threads | ONNX Runtime, ms | Plug-in, ms | Faster |\n|---|---|---|---|---|---|')
    for dtype in dtypes:
        for threads in arguments.threads:
            sessions = [session(model(dtype), False, threads), session(model(dtype), True, threads, num_threads=str(threads))]
            for name, new, total in cases:
                feed = feed_of(dtype, new, total)
                calls, kept = zip(*(bound(running, dict(feed), output, out_of(dtype, feed)) for running in sessions))
                stock, plugin = medians(calls, arguments.seconds)
                print(f'| {name} | {dtype} | {threads} | {stock * 1e3:.3f} | {plugin * 1e3:.3f} | {stock / plugin:.2f} |', flush=True)
                del calls, kept


def grouped(arguments):
    cases = {dtype: GroupQuery(dtype, q_heads=32, kv_heads=8, dims=128, do_rotary=1) for dtype in arguments.dtypes}
    compare('GroupQueryAttention, 32 query heads, 8 KV heads, 128 dims, rotary, past and present in one buffer',
            lambda dtype: cases[dtype].model, CASES, lambda dtype, new, total: cases[dtype].feed(new, [total], room=total), 'output',
            lambda dtype, feed: np.empty((*feed['query'].shape[:2], 32 * 128), dtype), arguments, arguments.dtypes)


def multi(arguments):
    def feed_of(dtype, new, total):
        return vectors(1, new, total, dims=128, v_dims=128, dtype=dtype)

    cases = [('self attention of 512', 512, 512), ('self attention of 2048', 2048, 2048), ('a query over 1500 keys', 1, 1500)]
    compare(f'MultiHeadAttention, {HEADS} heads, 128 dims', lambda dtype: multi_head(feed_of(dtype, 1, 1)), cases, feed_of, 'output',
            lambda dtype, feed: np.empty(feed['query'].shape, dtype), arguments, arguments.dtypes)


def gemma(arguments):
    from export_gemma import Config, export, weights
    files = weights.load(report=print)
    config, folder = Config.from_metadata(files.metadata), arguments.gemma
    path = folder / 'model.onnx'
    if not path.exists():
        export(files, folder)

    def feed_of(dtype, new, total):
        draw = np.random.default_rng(0)
        caches = {f'past_{kind}{layer}': draw.standard_normal((1, config.kv_heads, total, config.head_dim), np.float32)
                  for layer in range(config.layers) for kind in ('key', 'value')}
        return caches | {'ids': draw.integers(3, 250000, (1, new)), 'seqlens_k': np.array([total - 1], np.int32),
                         'total': np.array([total], np.int32)}

    vocabulary = files.tensors['token_embd.weight'].shape[0]
    compare('Gemma 3 270M, the logits of the last token, past and present in one buffer', lambda dtype: str(path), GEMMA_CASES, feed_of,
            'logits', lambda dtype, feed: np.empty((1, 1, vocabulary), np.float32), arguments, ['float32'])


PARTS = {'grouped': grouped, 'multi-head': multi, 'gemma': gemma}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=float, default=1.0, help='for each case')
    parser.add_argument('--threads', type=int, nargs='+', default=[1, 2])
    parser.add_argument('--dtypes', nargs='+', default=['float32', 'float16'], choices=['float32', 'float16'])
    parser.add_argument('--only', nargs='+', default=list(PARTS), choices=list(PARTS))
    parser.add_argument('--gemma', type=Path, default=HERE.parents[1] / 'build' / 'onnxruntime' / 'gemma', help='folder of the model')
    arguments = parser.parse_args()
    print(f'ONNX Runtime {onnxruntime.__version__}')
    for name in arguments.only:
        PARTS[name](arguments)


if __name__ == '__main__':
    main()
