#!/usr/bin/env python3
"""One call over the caller's own cache, as an operator of PyTorch and by the Python package: the fastest of alternating rounds.

    PYTHONPATH=build/torch/package .venv-transformers/bin/python integrations/torch/benchmark.py [--seconds 2] [--tokens 512]
"""
import argparse
import timeit

import torch

import kvcache
import kvcache_torch  # noqa: F401 - loads the operators

PAGE_SIZE, HEADS, KV_HEADS, DIM = 16, 8, 2, 128


def fastest(calls, seconds: float):
    """Microseconds of each call."""
    rounds = [[] for _ in calls]
    number = 20
    end = timeit.default_timer() + seconds
    while timeit.default_timer() < end or len(rounds[0]) < 5:
        for call, times in zip(calls, rounds):
            times.append(timeit.timeit(call, number=number) / number * 1e6)
    return [min(times) for times in rounds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=float, default=2.0, help='for each case')
    parser.add_argument('--tokens', type=int, default=512)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    context = kvcache.Context(threads=1)
    pages = arguments.tokens // PAGE_SIZE + 1
    q, k, v = torch.randn(1, 1, HEADS, DIM), *(torch.randn(1, KV_HEADS, DIM) for _ in 'kv')
    pools = [torch.randn(pages, PAGE_SIZE, KV_HEADS, DIM) for _ in 'kv']
    lengths, table = torch.tensor([arguments.tokens], dtype=torch.int32), torch.arange(pages, dtype=torch.int32)[None]
    slot = torch.tensor([arguments.tokens - 1])
    ops = torch.ops.kvcache
    attend, append = ops.flash_attn_with_kvcache.default, ops.append_slots.default
    options = {'cache_seqlens': lengths, 'block_table': table, 'causal': True}

    def of_package():
        kvcache.flash_attn_with_kvcache(q, *pools, **options, return_softmax_lse=True, context=context)

    cases = {
        f'attention, 1 row at {arguments.tokens} tokens': (lambda: attend(q, *pools, **options), of_package),
        'append, 1 row': (lambda: append(k, v, *pools, slot), lambda: kvcache.append_slots(k, v, *pools, slot, context=context)),
    }
    print(f'PyTorch {torch.__version__}, {context.describe()["simd"]}, 1 thread\n\n| call | operator, us | Python package, us |\n|---|---|---|')
    with torch.inference_mode():
        for name, calls in cases.items():
            operator, package = fastest(calls, arguments.seconds)
            print(f'| {name} | {operator:.1f} | {package:.1f} |', flush=True)


if __name__ == '__main__':
    main()
