"""A model that runs with transformers' own cache and attention and with ours, and the comparison of both."""

from dataclasses import dataclass, field
from functools import cache

import torch
import transformers

from kvcache.integrations.transformers import PagedCache

WINDOW = 8  # of sliding and chunked layers: shorter than most sequences here
VOCABULARY = 101
SMALL = dict(vocab_size=VOCABULARY, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4,
             intermediate_size=96, head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=None, initializer_range=0.2)
TOLERANCE = 2e-5  # of a step's largest |logit|, in float32


def llama(**changes):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL | changes))


def mistral():  # every layer slides
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SMALL, sliding_window=WINDOW))


def gemma3():  # five sliding layers, one full, one sliding
    config = transformers.Gemma3TextConfig(**SMALL | dict(num_hidden_layers=7, sliding_window=WINDOW,
                                                          query_pre_attn_scalar=24))
    return transformers.Gemma3ForCausalLM(config)


def gemma2():  # soft-capped scores
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SMALL, sliding_window=WINDOW,
                                                                    attn_logit_softcapping=2.0))


def gpt_oss():  # attention sinks
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**SMALL, sliding_window=WINDOW, num_local_experts=4,
                                                                     num_experts_per_tok=2))
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    return model


def llama4():  # chunked attention, and layers without rotation
    return transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(
        **SMALL, attention_chunk_size=WINDOW, intermediate_size_mlp=96, num_local_experts=2, no_rope_layers=[1, 1, 0, 1]))


def gpt2():  # learned positions, as many kv heads as q heads
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_head=4, n_layer=3, initializer_range=0.2, pad_token_id=0, bos_token_id=1,
        eos_token_id=None))


FAMILIES = {f.__name__: f for f in (llama, mistral, gemma3, gemma2, gpt_oss, llama4, gpt2)}


@dataclass
class Twin:
    model: transformers.PreTrainedModel
    options: dict = field(default_factory=lambda: dict(capacity_tokens=2048, page_size=4))

    @staticmethod
    @cache
    def of(family):
        torch.manual_seed(0)
        return Twin(FAMILIES[family]().eval())

    def on_stock(self):
        self.model.set_attn_implementation("eager")  # the simplest one, and the only one with soft caps and sinks
        return self.model

    def on_pages(self):
        self.model.set_attn_implementation("kvcache")
        return self.model

    def paged_cache(self, **changes):
        return PagedCache(self.model.config, **self.options | changes)

    def stock_cache(self):
        return transformers.DynamicCache(config=self.model.config)

    def generate_both(self, ids, cache=None, **arguments):
        """The stock output, ours, and our cache."""
        cache = self.paged_cache() if cache is None else cache
        stock = generate(self.on_stock(), ids, **arguments)
        return stock, generate(self.on_pages(), ids, past_key_values=cache, **arguments), cache

    def forward_both(self, stock_cache, paged_cache, ids, **arguments):
        """Logits [rows, new, vocabulary] of both."""
        with torch.no_grad():
            stock = self.on_stock()(ids, past_key_values=stock_cache, **arguments).logits
            return stock, self.on_pages()(ids, past_key_values=paged_cache, **arguments).logits


def generate(model, ids, **arguments):
    torch.manual_seed(7)  # for sampling
    defaults = dict(max_new_tokens=20, do_sample=False, return_dict_in_generate=True, output_logits=True)
    return model.generate(ids, **defaults | arguments)


def prompts(*lengths, padded=True):
    """Random prompts, padded on the left: ids and attention_mask, arguments of generate and of a model."""
    longest = max(lengths)
    ids, mask = torch.zeros(len(lengths), longest, dtype=torch.long), torch.zeros(len(lengths), longest, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, longest - length:] = torch.randint(2, VOCABULARY, (length,))
        mask[row, longest - length:] = 1
    return (ids, dict(attention_mask=mask)) if padded else ids


def worst_error(ours, stock):
    """Largest deviation, relative to the largest |logit|."""
    return ((ours - stock).abs().max() / stock.abs().max()).item()


def assert_same(stock, ours):
    """The same logits at every step, and the same tokens. Where a row's two best logits lie within the tolerance of each other,
    rounding may choose another token. The rest of that row is then another text, and is not compared."""
    assert len(stock.logits) == len(ours.logits)
    same = torch.ones(len(stock.logits[0]), dtype=torch.bool)
    of_rows = len(stock.sequences) == len(same)  # not of beams, whose logits are in another order than their tokens
    for step, (expected, logits) in enumerate(zip(stock.logits, ours.logits)):
        error = worst_error(logits[same], expected[same])
        assert error <= TOLERANCE, f"step {step}: {error:.2e}"
        if of_rows:
            best = expected.topk(2).values
            tie = best[:, 0] - best[:, 1] <= TOLERANCE * expected.abs().max()
            place = step - len(stock.logits)
            other = stock.sequences[:, place] != ours.sequences[:, place]
            assert not (same & other & ~tie).any(), f"step {step}: other tokens"
            same &= ~other
    assert same.any()
    if of_rows:
        assert torch.equal(stock.sequences[same], ours.sequences[same])
    else:
        assert torch.equal(stock.sequences, ours.sequences)


def shown(mask):
    """Visible tokens of each row."""
    return mask.sum(1).tolist()
