#!/usr/bin/env python3
"""vLLM with the plug-in beside vLLM without it, in one run: samples of each in turn, medians, and stock / ours.

    build/venv-vllm/bin/python integrations/vllm/benchmark.py [--samples N] [--attention | --server] [--dtype bfloat16]

A ratio above 1 means that the plug-in is faster. --attention measures the calls of one layer in this process. --server
starts two servers, and sends the same requests over HTTP to one after the other.
"""
from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE / "tests"))
PAGE = 128  # tokens: vLLM's default on the CPU

# q heads, kv heads, head dim; requests of a step, tokens in the cache of each, new ones among them
ATTENTION = {
    "decode 4/1 D256, 1 x 1k": ((4, 1, 256), (1, 1024, 1)),
    "decode 4/1 D256, 8 x 1k": ((4, 1, 256), (8, 1024, 1)),
    "decode 32/8 D128, 1 x 4k": ((32, 8, 128), (1, 4096, 1)),
    "decode 32/8 D128, 8 x 4k": ((32, 8, 128), (8, 4096, 1)),
    "prefill 4/1 D256, 512": ((4, 1, 256), (1, 512, 512)),
    "prefill 32/8 D128, 512": ((32, 8, 128), (1, 512, 512)),
    "prefill 32/8 D128, 256 of 4k": ((32, 8, 128), (1, 4096, 256)),
}
# requests at once, words of a prompt, new tokens
SERVER = {
    "prefill, 4 x 1,200 tokens": (4, 900, 1),
    "decode, 1 x 64 tokens": (1, 12, 64),
    "decode, 8 x 64 tokens": (8, 12, 64),
    "decode, 8 x 32 tokens after 1,200": (8, 900, 32),
}


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "a CPU without a name"


def in_turn(samples: int, *functions) -> list[list[float]]:
    """Times of the functions, in ms. Their order alternates, and one run of each is not counted."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(samples + 1):
        order = list(enumerate(functions))
        for i, function in order if turn % 2 else reversed(order):
            begin = time.perf_counter()
            function()
            if turn > 0:
                times[i].append(1e3 * (time.perf_counter() - begin))
    return times


def report(name: str, stock: list[float], ours: list[float]) -> None:
    paired = [a / b for a, b in zip(stock, ours, strict=True)]
    quarters = statistics.quantiles(paired, n=4) if len(paired) > 1 else [paired[0]] * 3
    print(f"| {name} | {statistics.median(stock):.3f} | {statistics.median(ours):.3f} | {statistics.median(paired):.2f} "
          f"({quarters[0]:.2f}..{quarters[2]:.2f}) |", flush=True)


def header(title: str) -> None:
    print(f"\n| {title} | stock, ms | ours, ms | stock / ours (quartiles) |\n|---|---|---|---|")


def layer_calls(heads: tuple, step_size: tuple, dtype) -> tuple:
    """What one layer does in a step, by stock and by the plug-in: it stores the new keys and attends."""
    import torch
    from kvcache_vllm import backend
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends import cpu_attn

    (q_heads, kv_heads, dim), (rows, total, new) = heads, step_size
    config = SimpleNamespace(model_config=SimpleNamespace(dtype=dtype), kv_transfer_config=None)
    cpu_attn.get_current_vllm_config = backend.get_current_vllm_config = lambda: config
    pages = -(-total // PAGE)
    table = torch.randperm(rows * pages, dtype=torch.int32).view(rows, pages)
    lengths = torch.full((rows,), total, dtype=torch.int32)
    starts = torch.arange(0, rows * new + 1, new, dtype=torch.int32)
    positions = torch.arange(total - new, total)
    slots = (table.long()[:, positions // PAGE] * PAGE + positions % PAGE).flatten()
    q, output = (torch.randn(rows * new, q_heads, dim).to(dtype) for _ in range(2))
    k, v = (torch.randn(rows * new, kv_heads, dim).to(dtype) for _ in range(2))
    isa = cpu_attn._get_attn_isa(dtype, PAGE, dim)
    layer = SimpleNamespace(isa=isa, _k_scale_float=1.0, _v_scale_float=1.0)
    schedule = ops.cpu_attn_get_scheduler_metadata(
        num_reqs=rows, num_heads=q_heads, num_kv_heads=kv_heads, head_dim=dim, seq_lens=lengths, dtype=dtype,
        query_start_loc=starts, causal=True, sliding_window_size=-1, isa=isa, enable_kv_split=True)
    step = cpu_attn.CPUAttentionMetadata(
        num_actual_tokens=rows * new, max_query_len=new, query_start_loc=starts, max_seq_len=total, seq_lens=lengths,
        block_table=table, slot_mapping=slots, scheduler_metadata=schedule)

    def calls(kind: type):
        impl = kind(q_heads, dim, dim ** -0.5, kv_heads, None, None, "auto")
        # Several caches in turn, so that K and V come from memory and not from the processor's caches.
        size = rows * pages * kv_heads * PAGE * 2 * dim * dtype.itemsize
        caches = [torch.randn(rows * pages, kv_heads, PAGE, 2 * dim).to(dtype) for _ in range(max(1, (128 << 20) // size))]
        turns = iter(range(1 << 60))

        def one_step() -> None:
            cache = caches[next(turns) % len(caches)]
            impl.do_kv_cache_update(layer, k, v, cache, slots)
            impl.forward(layer, q, k, v, cache, step, output)

        return one_step

    return calls(cpu_attn.CPUAttentionBackendImpl), calls(backend.KvcacheImpl)


def measure_attention(samples: int, dtype_name: str) -> None:
    import torch

    header(f"one layer, {dtype_name}, {torch.get_num_threads()} threads")
    for name, (heads, step_size) in ATTENTION.items():
        report(name, *in_turn(samples, *layer_calls(heads, step_size, getattr(torch, dtype_name))))


def measure_server(samples: int, dtype: str) -> None:
    from server import Server

    model = ROOT / "build" / "vllm" / "gemma-3-270m"
    subprocess.run([sys.executable, str(HERE / "tests" / "gemma.py"), str(model)], check=True)
    arguments = ("--dtype", dtype, "--enforce-eager", "--max-model-len", "4096", "--kv-cache-memory-bytes", str(1 << 30),
                 "--no-enable-prefix-caching")
    with tempfile.TemporaryDirectory() as name:
        logs = Path(name)
        with Server(model, logs / "stock.log", False, *arguments) as stock, \
                Server(model, logs / "ours.log", True, *arguments) as ours:
            header(f"Gemma 3 270M over HTTP, {dtype}")
            for title, (clients, words, new) in SERVER.items():
                prompts = [f"Text {i}. " + "The river runs to the sea and the sea is deep. " * (words // 11)
                           for i in range(clients)]
                report(title, *in_turn(samples, *(
                    lambda server=server: server.complete_all(prompts, new, clients) for server in (stock, ours))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], action="append")
    options = parser.parse_args()
    print(f"{cpu()}; medians of {options.samples} samples in turn")
    for dtype in options.dtype or ["float32", "bfloat16"]:
        if options.attention or not options.server:
            measure_attention(options.samples, dtype)
        if options.server or not options.attention:
            measure_server(options.samples, dtype)


if __name__ == "__main__":
    main()
