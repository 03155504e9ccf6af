"""Operations of a PagedCache between forwards, compared with those of the stock cache; and refused calls."""

import copy
import gc

import pytest
import torch
import transformers

import kvcache
from kvcache.integrations.transformers import PagedCache
from twin import TOLERANCE, WINDOW, assert_same, generate, prompts, shown, worst_error
from twin import llama as new_llama


class Both:
    """Makes the same forwards and cache operations on both caches. Every forward compares the logits."""

    def __init__(self, twin, *lengths, **options):
        self.twin, self.stock, self.paged = twin, twin.stock_cache(), twin.paged_cache(**options)
        self.stock.activate_past_recording()  # so that it can crop before a window
        self.mask = torch.zeros(len(lengths), 0, dtype=torch.long)
        if lengths:
            ids, arguments = prompts(*lengths)
            self.feed(ids, arguments["attention_mask"])

    def feed(self, ids, mask=None):
        """Appends tokens to every row. `ids` may be a number of random ones."""
        if isinstance(ids, int):
            ids = prompts(*[ids] * len(self.mask), padded=False)
        self.mask = torch.cat([self.mask, torch.ones_like(ids) if mask is None else mask], dim=1)
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1]:]
        stock, ours = self.twin.forward_both(self.stock, self.paged, ids, attention_mask=self.mask, position_ids=positions)
        seen = self.mask[:, -ids.shape[1]:].bool()
        assert worst_error(ours[seen], stock[seen]) <= TOLERANCE
        assert self.paged.get_seq_length() == self.stock.get_seq_length() == self.mask.shape[1]
        assert self.paged.pool.lengths(self.paged.sequences) == shown(self.mask)
        self.paged.pool.check_invariants()

    def each(self, name, argument):
        for cache in (self.stock, self.paged):
            getattr(cache, name)(argument)

    def crop(self, tokens):
        self.each("crop", tokens)
        self.mask = self.mask[:, :self.mask.shape[1] + tokens]


def test_every_key_and_value_is_in_the_pages(main_twin):
    both = Both(main_twin, 11, 4, 7)
    for _ in range(5):
        both.feed(1)
    for layer in range(len(both.paged)):
        stock = both.stock.layers[layer]
        for row, sequence in enumerate(both.paged.sequences):
            keep = both.mask[row].bool()
            for exported, states in zip(both.paged.pool.export(sequence, layer), (stock.keys, stock.values)):
                expected = states[row][:, keep].transpose(0, 1)  # [tokens, heads, dim]
                torch.testing.assert_close(torch.from_dlpack(exported), expected, rtol=1e-4, atol=1e-4)
    assert both.paged.layers[0].keys is None


@pytest.mark.parametrize("tokens", [1, 3, 6])
def test_crop(main_twin, tokens):
    """Crops before the window moves, just after it moved, and into the padding of the prompt."""
    both = Both(main_twin, WINDOW - 1, 2)
    both.crop(-tokens)  # row 1 has padding there
    both.feed(tokens + 2)
    for _ in range(3):
        both.feed(6)  # the window moves by less than its length
        both.crop(-tokens)
        both.feed(1)
    both.crop(0)
    both.feed(2)


def test_crop_to_nothing_and_more(main_twin):
    both = Both(main_twin, 6, 5)
    both.paged.crop(-100)
    assert both.paged.get_seq_length() == 0 and both.paged.pool.stats().pages_used == 0
    both.paged.crop(-1)
    both.stock, both.mask = main_twin.stock_cache(), both.mask[:, :0]
    both.feed(9)


def test_crop_of_zero_keeps_everything(llama):
    both = Both(llama, 6, 5)
    pages = both.paged.pool.stats().pages_used
    both.paged.crop(0)
    assert both.paged.get_seq_length() == 6 and both.paged.pool.stats().pages_used == pages > 0
    with pytest.raises(ValueError, match="4"):
        both.paged.crop(4)


def test_crop_further_than_the_window_remembers(mistral):
    both = Both(mistral, 40, rollback_tokens=4)
    both.paged.crop(-4)
    with pytest.raises(kvcache.Evicted):
        both.paged.crop(-12)
    assert both.paged.get_seq_length() == 36


@pytest.mark.parametrize("beams", [[0, 0, 0], [2, 0, 1], [1, 1, 2], [0, 1, 2], [2, 2, 0]])
def test_reorder(main_twin, beams):
    both = Both(main_twin, 9, 9, 9)
    for _ in range(3):
        both.each("reorder_cache", torch.tensor(beams))
        both.feed(1)
        both.feed(3)
    assert both.paged.pool.stats().num_sequences == 3


def test_repeat_and_select(main_twin):
    both = Both(main_twin, 9, 4)
    both.each("batch_repeat_interleave", 3)
    both.mask = both.mask.repeat_interleave(3, dim=0)
    assert both.paged.batch_size == 6
    both.feed(1)
    assert both.paged.pool.stats().pages_shared > 0
    for indices in (torch.tensor([5, 0, 3, 3]), torch.tensor([True, False, True, True]), [1, 0], torch.tensor([0])):
        both.each("batch_select_indices", indices)
        both.mask = both.mask[indices]
        both.feed(2)
        assert both.paged.pool.stats().num_sequences == len(both.mask)


def test_reset_allows_another_batch(main_twin):
    both = Both(main_twin, 9, 4)
    both.paged.reset()
    assert both.paged.pool.stats().pages_used == both.paged.pool.stats().num_sequences == 0
    assert both.paged.get_seq_length() == 0 and both.paged.batch_size == -1
    both.paged.reorder_cache(torch.tensor([], dtype=torch.long))
    both.stock, both.mask = main_twin.stock_cache(), torch.zeros(3, 0, dtype=torch.long)
    both.feed(7)


def test_deepcopy_is_a_fork(main_twin):
    """The prefix that many prompts share is computed and stored once."""
    prefix = prompts(13, padded=False)
    cache, stock_cache = main_twin.paged_cache(), main_twin.stock_cache()
    main_twin.forward_both(stock_cache, cache, prefix)
    for length in (3, 6):
        ids = torch.cat([prefix, prompts(length, padded=False)], dim=1)
        expected = generate(main_twin.on_stock(), ids, past_key_values=copy.deepcopy(stock_cache))
        copied = copy.deepcopy(cache)
        assert copied.pool is cache.pool and not set(copied.sequences) & set(cache.sequences)
        assert cache.pool.stats(0).pages_shared == 13 // 4  # whole pages; the last one is copied
        assert_same(expected, generate(main_twin.on_pages(), ids, past_key_values=copied))
    del copied
    gc.collect()
    assert cache.pool.stats().num_sequences == 1 and cache.get_seq_length() == 13


def forward_that_raises(both):
    """A forward of one token in which the second layer's MLP fails: attention of two layers has run."""
    hook = both.twin.model.model.layers[1].mlp.register_forward_hook(lambda *_: 1 / 0)
    mask = torch.cat([both.mask, torch.ones(2, 1, dtype=torch.long)], dim=1)
    try:
        with pytest.raises(ZeroDivisionError), torch.no_grad():
            both.twin.on_pages()(torch.tensor([[5], [6]]), past_key_values=both.paged, attention_mask=mask)
    finally:
        hook.remove()


def test_a_forward_that_raises_stores_nothing(main_twin):
    both = Both(main_twin, 9, 4)
    pages = both.paged.pool.stats().pages_used
    for _ in range(3):
        forward_that_raises(both)
        assert both.paged.get_seq_length() == 9
    both.feed(2)  # the next forward replaces it
    forward_that_raises(both)
    both.crop(-2)  # so does any other call
    assert both.paged.pool.stats().pages_used == pages
    both.feed(1)


def test_right_padding(llama):
    """Hidden tokens take no slot, wherever they are in the prompt."""
    both = Both(llama)
    ids, mask = prompts(7, 4)
    both.mask = mask["attention_mask"][:, :0]
    both.feed(ids.flip(1), mask["attention_mask"].flip(1))
    both.feed(3)


def test_without_a_mask(main_twin):
    ids = prompts(12, 12, padded=False)
    stock_cache, cache = main_twin.stock_cache(), main_twin.paged_cache()
    for part in ids.split([7, 1, 4], dim=1):
        stock, ours = main_twin.forward_both(stock_cache, cache, part)
        assert worst_error(ours, stock) <= TOLERANCE


def refused(twin, cache, ids, match, error=ValueError, **arguments):
    before = cache.get_seq_length(), cache.sequences
    with pytest.raises(error, match=match), torch.no_grad():
        twin.on_pages()(ids, past_key_values=cache, **arguments)
    assert (cache.get_seq_length(), cache.sequences) == before


def test_masks_that_do_not_fit(llama):
    both = Both(llama, 6, 4)
    one = torch.tensor([[5], [6]])
    refused(llama, both.paged, one, "differs")  # without a mask the padding would be visible
    refused(llama, both.paged, one, "differs", attention_mask=torch.ones(2, 7))
    hides = torch.cat([both.mask, torch.ones(2, 1, dtype=torch.long)], dim=1)
    hides[0, 2] = 0
    refused(llama, both.paged, one, "differs", attention_mask=hides)
    refused(llama, both.paged, one, r"\[2, 1\]; \[2, 7\] is needed", attention_mask=torch.ones(2, 1))
    refused(llama, both.paged, one[:1], "1 rows, the cache 2")
    refused(llama, both.paged, one, "hides all 1", attention_mask=torch.cat([both.mask, torch.zeros(2, 1)], dim=1))
    refused(llama, both.paged, one, r"shape \[2, 1, 1, 7\]", NotImplementedError, attention_mask=torch.ones(2, 1, 1, 7))
    both.feed(1)


def test_capacity(llama):
    cache = llama.paged_cache(capacity_tokens=16, max_batch_tokens=8, max_sequences=3)
    refused(llama, cache, prompts(9, padded=False), "9", kvcache.BatchTooLarge)
    refused(llama, cache, prompts(1, 1, 1, 1, padded=False), "4", kvcache.TooManySequences)
    llama.forward_both(llama.stock_cache(), cache, prompts(4, 4, padded=False))
    before = cache.sequences
    with pytest.raises(kvcache.TooManySequences):
        cache.batch_repeat_interleave(2)
    assert cache.sequences == before and cache.pool.stats().num_sequences == 2
    llama.forward_both(llama.stock_cache(), cache.new(), prompts(5, padded=False))


def test_both_or_neither(llama):
    ids = prompts(5, padded=False)
    for attention in ("eager", "sdpa"):
        llama.model.set_attn_implementation(attention)
        with pytest.raises((TypeError, AttributeError), match="attn_implementation=\"kvcache\""):
            llama.model.generate(ids, past_key_values=llama.paged_cache(), max_new_tokens=2)
    for arguments in ({}, dict(use_cache=False), dict(past_key_values=llama.stock_cache())):
        with pytest.raises(TypeError, match="PagedCache"):
            llama.on_pages().generate(ids, max_new_tokens=2, **arguments)


def test_models_that_it_cannot_serve():
    """The message names what the library lacks."""
    with pytest.raises(NotImplementedError, match="'indexed_attention' needs attention over the keys that an indexer selects"):
        PagedCache(transformers.DeepseekV32Config(num_hidden_layers=1), capacity_tokens=64)


def test_gradients_dropout_and_other_masks_are_refused(llama):
    cache = llama.paged_cache()
    with pytest.raises(kvcache.InvalidArgument, match="gradient"):
        llama.on_pages()(prompts(5, padded=False), past_key_values=cache)
    assert cache.get_seq_length() == 0
    torch.manual_seed(0)
    other = new_llama(attention_dropout=0.5).train()
    other.set_attn_implementation("kvcache")
    with pytest.raises(NotImplementedError, match="dropout"), torch.no_grad():
        other(prompts(5, padded=False), past_key_values=cache)
    other.eval().config.is_causal = False
    with pytest.raises(NotImplementedError, match="causal"), torch.no_grad():
        other(prompts(5, padded=False), past_key_values=cache)


def test_a_model_with_fewer_layers_than_the_cache(llama):
    cache = llama.paged_cache()
    layers, llama.model.config.num_hidden_layers = llama.model.config.num_hidden_layers, 2
    try:
        refused(llama, cache, prompts(5, padded=False), "4 layers, but the model runs 2")
    finally:
        llama.model.config.num_hidden_layers = layers


def test_another_window_than_the_cache(mistral):
    cache = mistral.paged_cache()
    mistral.model.config.sliding_window = 5
    try:
        refused(mistral, cache, prompts(5, padded=False), "window of 8, but the model asks for 5")
    finally:
        mistral.model.config.sliding_window = WINDOW


def test_attention_chosen_when_a_model_is_made(llama):
    model = transformers.AutoModelForCausalLM.from_config(llama.model.config, attn_implementation="kvcache").eval()
    assert generate(model, prompts(5, padded=False), past_key_values=llama.paged_cache()).sequences.shape == (1, 25)


def test_names(llama):
    both = Both(llama, 5, 3)
    assert repr(both.paged).startswith("<PagedCache, 2 rows of 5 tokens in <kvcache.Cache, 2 sequences")
    assert both.paged.is_croppable and not both.paged.is_compileable and len(both.paged) == 4
    assert isinstance(both.paged, transformers.Cache)
    both.paged.pool.close()
    with pytest.raises(kvcache.Closed):
        both.feed(1)
    del both.paged
    gc.collect()  # without a warning
