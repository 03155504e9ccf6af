"""Hugging Face transformers on libkvcache: `model.generate` of an unmodified model, every key and value in pages.

    from kvcache.integrations.transformers import PagedCache

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="kvcache")
    cache = PagedCache(model.config, capacity_tokens=4096)
    model.generate(**inputs, past_key_values=cache)

Importing this package registers the attention implementation "kvcache". A model that was loaded with another one switches
by `model.set_attn_implementation("kvcache")`. Use both or neither: this attention takes keys from a PagedCache only, and
what a PagedCache returns for keys is no tensor that another attention could read. A model that computes attention by itself
takes a cache that is made with `attention="model"`: its keys are in pages too, and it gets copies of them.

Rows and positions. Row b of the batch is one sequence of the pool. The model rotates q and k itself, so the library only
has to know which tokens come before which. A token that attention_mask hides takes no slot: the sequence of a row holds its
visible tokens one after another, and windows count those. Outputs of hidden tokens are 0.

    attention_mask      0 0 1 1 1 | 1        cache.get_seq_length() == 6, as generate counts
    slot in the row         0 1 2 | 3        cache.pool.length(cache.sequences[0]) == 4

A forward is one step of the pool. It opens at the first layer and ends with the last one: a forward that raised in between
has stored nothing.

Modules: geometry (the layers of the pool), states (shapes of recurrent states), rows (the batch and its step), layers (what
transformers sees as layers of a cache), compressed (those with rows that compress several tokens), attention (the two
functions that it calls), cache (PagedCache).
"""

from transformers import AttentionInterface, AttentionMaskInterface

from .attention import attention, mask
from .cache import PagedCache
from .layers import ATTENTION

AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, mask)

__all__ = ["ATTENTION", "PagedCache", "attention", "mask"]
