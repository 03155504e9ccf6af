"""Tokens a second of model.generate on pages against the stock cache: one model, prompts of one length, greedy.

    .venv-transformers/bin/python benchmarks/transformers_generate.py [--batch 8] [--prompt 1024] [--new 64] [--threads 1]

The model has the shape of Llama, random weights, and more bytes of keys than of weights, so that the caches take most of the
time. Both run in turn, several times, and medians are printed. PyTorch and libkvcache get the same number of threads.
"""

import argparse
import statistics
import time

import torch
import transformers

import kvcache
from kvcache.integrations.transformers import PagedCache


def new_model(arguments):
    config = transformers.LlamaConfig(
        vocab_size=1024, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=arguments.kv_heads,
        head_dim=64, intermediate_size=1024, pad_token_id=0, eos_token_id=None, bos_token_id=None, initializer_range=0.05,
        max_position_embeddings=32768)
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval().to(getattr(torch, arguments.dtype))


def run(model, ids, new, cache):
    """Returns the tokens, the seconds until the first one, and the seconds of each later step."""
    times = [time.perf_counter()]
    hook = model.register_forward_hook(lambda *_: times.append(time.perf_counter()))
    out = model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache, max_new_tokens=new, do_sample=False)
    hook.remove()
    return out, times[1] - times[0], (times[-1] - times[1]) / (new - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    context = kvcache.Context(threads=arguments.threads)
    model = new_model(arguments)
    ids = torch.randint(1, 1024, (arguments.batch, arguments.prompt))
    tokens = arguments.batch * (arguments.prompt + arguments.new)
    paged = PagedCache(model.config, dtype=model.dtype, capacity_tokens=tokens + 16 * arguments.batch, max_batch_tokens=tokens,
                       max_sequences=2 * arguments.batch, context=context)

    def stock():
        model.set_attn_implementation("sdpa")
        return run(model, ids, arguments.new, transformers.DynamicCache(config=model.config))

    def ours():
        model.set_attn_implementation("kvcache")
        paged.reset()
        return run(model, ids, arguments.new, paged)

    runs = {"stock cache, sdpa": [], "pages": []}
    for _ in range(arguments.repeat + 1):  # the first run is a warm-up
        for name, way in zip(runs, (stock, ours)):
            runs[name].append(way())
    if arguments.dtype == "float32":
        assert all(torch.equal(runs["pages"][0][0], out) for results in runs.values() for out, *_ in results)
    print(f"{arguments.batch} x {arguments.prompt} + {arguments.new} tokens, {arguments.dtype}, 8 layers, 8/{arguments.kv_heads} "
          f"heads of 64, {arguments.threads} threads; medians of {arguments.repeat}")
    for name, results in runs.items():
        prefill, decode = (statistics.median(times) for times in list(zip(*results[1:]))[1:])
        print(f"{name:20} prefill {arguments.batch * arguments.prompt / prefill:8.0f} tokens/s   "
              f"decode {arguments.batch / decode:8.1f} tokens/s")


if __name__ == "__main__":
    main()
