"""The demo: several users share one system prompt's pages and are decoded as one batch. Later conversations find them again."""
import json
import sys
import time

import display
import kvcache
import picture
from engine import Engine, Request, capacity_for
from texts import Texts


def run(model, files, max_new_tokens: int, page_size: int, chunk_tokens: int, tier=None, page=None) -> None:
    texts = Texts.read(files)
    system, users = texts.system, [texts.system + user for user in texts.users]
    lengths = [len(system)] + [len(user) + max_new_tokens for user in users]
    engine = Engine(model, capacity_for(lengths, page_size), len(lengths), page_size, chunk_tokens, prefix_index=True, tier=tier,
                    fingerprint=files.fingerprint() if tier else None)

    engine.recorder = kvcache.inspect.Recorder(engine.cache, plans=True) if page else None

    show = display.Display([f"{i + 1}. {question}" for i, question in enumerate(texts.questions)])
    print(f"{len(users)} users share a system prompt of {len(system)} tokens\n", flush=True)
    started = time.perf_counter()
    shared = engine.prefill(system, lambda done: show.progress("system prompt", done, len(system)))
    requests = [Request(user, max_new_tokens, parent=shared, cached=len(system)) for user in users]
    prefilled = time.perf_counter()
    if tier:
        print(f"{engine.found} of them loaded from {tier}, {len(system) - engine.found} computed\n", flush=True)

    def on_token(request, token, logits):
        user = requests.index(request)
        show.texts[user] = files.tokenizer.decode(request.output)
        if request.finished:
            show.complete(user)

    def on_step():
        # A user who stopped early leaves nothing to wait for, so the bar ends full.
        done = sum(max_new_tokens if r.finished else len(r.output) for r in requests)
        show.progress("generating", done, max_new_tokens * len(requests))

    engine.run(requests, texts.stop_ids, on_token, on_step, keep=True)
    seconds = time.perf_counter() - prefilled
    show.close()

    tokens = sum(len(request.output) for request in requests)
    names = ["system", *(f"user {i + 1}" for i in range(len(requests)))]
    usages = engine.usage([shared, *(request.sequence for request in requests)])
    print(f"\n{'speed':<15} {tokens / seconds:.1f} tokens/s: {tokens} tokens of {len(requests)} users in {seconds:.1f} s"
          f" (system prompt, {'loaded' if engine.found else 'read'} once: {len(system) / (prefilled - started):.0f} tokens/s)")
    print("\n".join(picture.summary(usages, names, picture.symbols_for(sys.stdout))))

    engine.remove([shared, *(request.sequence for request in requests)])
    answer = requests[0].tokens + ([] if requests[0].tokens[-1] in texts.stop_ids else texts.paragraph)
    again(engine, files.tokenizer, texts, max_new_tokens, {"a new visitor": system + texts.new_visitor,
                                                           "visitor 1 again": answer + texts.follow_up})
    engine.store()
    if page:
        lines, _ = engine.recorder.lines()
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(kvcache.inspect.page([json.loads(line) for line in lines]))
        print(f"\nThe pages of the cache, step by step: {page.resolve().as_uri()}")


def again(engine, tokenizer, texts, max_new_tokens: int, prompts: dict) -> None:
    """Conversations that begin when every sequence is gone. The prefix index still holds the pages of the earlier ones."""
    print("\nAll sequences are removed. Later conversations find their pages in the prefix index:\n")
    for name, tokens in prompts.items():
        request = Request(tokens, max_new_tokens)
        engine.run([request], texts.stop_ids)
        print(f"{name}: {request.found} of {request.prompt_tokens} tokens found, {request.prompt_tokens - request.found} computed\n"
              f"   {' '.join(tokenizer.decode(request.output).split())}", flush=True)
