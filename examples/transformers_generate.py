"""Hugging Face transformers on libkvcache: a batch of prompts, a prompt shared by several, beams, a chat.

    pip install ./bindings/python[transformers]                in a checkout
    python examples/transformers_generate.py PATH_OR_NAME      any decoder model, as for from_pretrained
    python examples/transformers_generate.py                   a small Gemma 3 with random weights: nothing to download
"""

import argparse
import copy

import torch
import transformers

from kvcache.integrations.transformers import PagedCache


def load(name):
    """The model and a function from text to token ids [1, tokens]."""
    if name:
        model = transformers.AutoModelForCausalLM.from_pretrained(name, attn_implementation="kvcache")
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        return model.eval(), lambda text: tokenizer(text, return_tensors="pt").input_ids
    config = transformers.Gemma3TextConfig(vocab_size=256, hidden_size=128, num_hidden_layers=6, num_attention_heads=4,
                                           num_key_value_heads=1, head_dim=32, intermediate_size=256, sliding_window=32,
                                           pad_token_id=0, eos_token_id=None, bos_token_id=None, initializer_range=0.2)
    torch.manual_seed(0)
    model = transformers.Gemma3ForCausalLM(config).eval()
    model.set_attn_implementation("kvcache")
    return model, lambda text: torch.tensor([list(text.encode())])


def pad_left(prompts, pad=0):
    longest = max(prompt.shape[1] for prompt in prompts)
    ids = torch.cat([torch.nn.functional.pad(prompt, (longest - prompt.shape[1], 0), value=pad) for prompt in prompts])
    mask = torch.cat([torch.nn.functional.pad(torch.ones_like(prompt), (longest - prompt.shape[1], 0)) for prompt in prompts])
    return ids, mask


def pages(cache):
    stats = cache.pool.stats()
    return f"{stats.pages_used} of {stats.pages_total} pages, {stats.pages_shared} of them shared"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="path or name of a model; none: a small one with random weights")
    parser.add_argument("--max-new-tokens", type=int, default=24)
    arguments = parser.parse_args()
    model, encode = load(arguments.model)
    options = dict(max_new_tokens=arguments.max_new_tokens, do_sample=False)

    cache = PagedCache(model.config, capacity_tokens=4096)  # the pool: all that follows lives in it

    ids, mask = pad_left([encode("A page is the unit of everything."), encode("Fork!")])
    out = model.generate(ids, attention_mask=mask, past_key_values=cache, **options)
    print(f"a batch of two, padding takes no slot: {tuple(out.shape)}; "
          f"{cache.pool.lengths(cache.sequences)} tokens stored, {pages(cache)}")

    system = cache.new()  # one prompt, computed once, for several questions
    shared = encode("You are a helpful assistant. " * 4)
    with torch.no_grad():
        model(shared, past_key_values=system)
    answers = []
    for question in ("Who are you?", "What is a page?", "Why?"):
        asked = torch.cat([shared, encode(question)], dim=1)
        answers.append(copy.deepcopy(system))  # a fork
        model.generate(asked, past_key_values=answers[-1], **options)
    print(f"three answers to one system prompt: {pages(cache)}")
    del answers, system  # rows leave the pool with their cache

    beams = cache.new()
    out = model.generate(ids, attention_mask=mask, past_key_values=beams, num_beams=4, num_return_sequences=4, **options)
    print(f"four beams a row: {tuple(out.shape)}; {pages(cache)}")
    beams.reset()

    chat, ids = cache.new(), encode("Hello.")
    for turn in ("And then?", "Go on.", ""):
        ids = model.generate(ids, past_key_values=chat, **options)
        print(f"chat: {chat.get_seq_length()} tokens stored, {ids.shape[1]} in the conversation")
        ids = torch.cat([ids, encode(turn)], dim=1) if turn else ids


if __name__ == "__main__":
    main()
