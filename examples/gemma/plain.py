"""The demo as the decoders in Rust, Go and Java print it: README.md says what the lines are."""
import time

import kvcache
import numpy as np
from engine import Engine, Request, capacity_for
from texts import Texts


def run(model, files, max_new_tokens: int, tier=None) -> None:
    texts = Texts.read(files)
    lengths = [len(texts.system)] + [len(texts.system) + len(user) + max_new_tokens for user in texts.users]
    engine = Engine(model, capacity_for(lengths, 16), len(lengths), tier=tier, fingerprint=files.fingerprint() if tier else None)
    shared = engine.prefill(texts.system)
    if tier:
        print(f"tier: {engine.found} of {len(texts.system)} tokens of the system prompt loaded,"
              f" {len(texts.system) - engine.found} computed", flush=True)
    requests = [Request(texts.system + user, max_new_tokens, parent=shared, cached=len(texts.system))
                for user in texts.users]
    times = [time.perf_counter()]
    engine.run(requests, texts.stop_ids, on_step=lambda: times.append(time.perf_counter()), keep=True)

    for number, (user, request) in enumerate(zip(texts.users, requests), start=1):
        print(f"prompt {number}: {_one_line(files.tokenizer.decode(user))}")
        print(f"ids {number}: {' '.join(map(str, request.output))}")
        print(f"text {number}: {_one_line(files.tokenizer.decode(request.output))}")
    usages = engine.usage([shared, *(request.sequence for request in requests)])
    print(f"sharing: {sum(usage.saved_bytes for usage in usages)} bytes saved"
          f" ({len(requests)} forks of a system prompt of {len(texts.system)} tokens)")

    tokens, seconds = sum(len(request.output) for request in requests), times[-1] - times[0]
    print(f"speed: {tokens / seconds:.1f} tokens/s ({tokens} tokens of {len(requests)} users in {seconds:.2f} s)")
    if len(times) > 2:  # the first step read the prompts
        step, calls = (times[-1] - times[1]) / (len(times) - 2), _seconds_of_calls(model.config.layers, len(requests))
        print(f"binding: at most {100 * calls / step:.3f} % of a decode step"
              f" (its calls over tiny heads take {1e3 * calls:.3f} ms, the step {1e3 * step:.1f} ms)")


def _one_line(text: str) -> str:
    return text.replace("\n", " ").strip(" ")


def _seconds_of_calls(layers: int, rows: int, steps: int = 200) -> float:
    """A decode step's calls over heads so small that attention costs next to nothing: an upper bound of what the binding
    takes, since the library's own time is in it."""
    cache = kvcache.Cache(layers=[kvcache.Layer(q_heads=1, kv_heads=1, head_dim=16)] * layers, max_sequences=rows,
                          capacity_tokens=rows * 2 * steps)
    sequences, q = cache.add(rows), np.ones((rows, 1, 16), np.float32)
    out = np.empty_like(q)
    for step_number in range(steps + 1):
        if step_number == 1:  # the first one warms up
            started = time.perf_counter()
        with cache.forward(sequences, [1] * rows) as step:
            for layer in range(layers):
                step.attend(layer, q, q, q, out=out)
            assert len(step.last_rows) == rows
    return (time.perf_counter() - started) / steps
