"""model.generate gives the logits and the tokens of the stock cache."""

import pytest
import torch
import transformers

import kvcache
from kvcache.integrations.transformers import PagedCache
from twin import TOLERANCE, WINDOW, Twin, assert_same, generate, llama, prompts, shown, worst_error

LENGTHS = (WINDOW + 3, 4, WINDOW - 1, 1)  # left padding in all rows but the first


def test_one_prompt(twin):
    stock, ours, cache = twin.generate_both(prompts(11, padded=False))
    assert_same(stock, ours)
    assert cache.get_seq_length() == 30 and cache.batch_size == 1  # the last token was not fed


def test_batch_with_left_padding(twin):
    ids, arguments = prompts(*LENGTHS)
    stock, ours, cache = twin.generate_both(ids, **arguments)
    assert_same(stock, ours)
    assert cache.get_seq_length() == LENGTHS[0] + 19
    assert cache.pool.lengths(cache.sequences) == [length + 19 for length in LENGTHS]  # no slot for padding
    if all(place.kind == "full" for place in cache._rows.geometry.places):
        assert cache.pool.stats().pages_used == sum(-(-(length + 19) // 4) for length in LENGTHS)


@pytest.mark.parametrize("page_size", [1, 5, 64])
def test_page_sizes(main_twin, page_size):
    ids, arguments = prompts(*LENGTHS)
    stock, ours, _ = main_twin.generate_both(ids, main_twin.paged_cache(page_size=page_size), **arguments)
    assert_same(stock, ours)


@pytest.mark.parametrize("beams", [dict(num_beams=4, num_return_sequences=3), dict(num_beams=2, length_penalty=0.0)])
def test_beam_search(twin, beams):
    ids, arguments = prompts(*LENGTHS[:3])
    stock, ours, cache = twin.generate_both(ids, **arguments, **beams)
    assert_same(stock, ours)
    assert len(set(cache.sequences)) == 3 * beams["num_beams"] == cache.pool.stats().num_sequences
    cache.pool.check_invariants()


def test_beams_share_pages(llama):
    stock, ours, cache = llama.generate_both(prompts(21, padded=False), num_beams=6, max_new_tokens=30)
    assert_same(stock, ours)
    stats = cache.pool.stats()
    assert stats.pages_shared > 0 and stats.tokens_held < stats.tokens_logical == 6 * 50


def test_sampling_several_returns(main_twin):
    ids, arguments = prompts(*LENGTHS)
    stock, ours, _ = main_twin.generate_both(ids, **arguments, do_sample=True, num_return_sequences=3)
    assert_same(stock, ours)


class Crops:
    """Records by how much a cache is cropped, and at which length."""

    def __init__(self, cache):
        self.seen = []
        self.crop, cache.crop, self.cache = cache.crop, self, cache

    def __call__(self, tokens):
        self.seen.append((self.cache.get_seq_length(), tokens))
        self.crop(tokens)

    @property
    def after_the_window_slid(self):
        return sum(tokens < 0 and length > WINDOW + 4 for length, tokens in self.seen)


@pytest.mark.parametrize("padding", [0, 3])
def test_prompt_lookup(main_twin, padding):
    ids, arguments = prompts(padding + 5, 12)
    ids, mask = ids[:1], arguments["attention_mask"][:1]
    ids[0, -5:], mask[0, -5 - padding:-5] = torch.tensor([5, 6, 7, 5, 6]), 1
    cache = main_twin.paged_cache()
    crops = Crops(cache)
    stock, ours, _ = main_twin.generate_both(ids, cache, attention_mask=mask, prompt_lookup_num_tokens=4, max_new_tokens=40)
    assert_same(stock, ours)
    assert crops.seen


def test_assisted_by_a_stranger(main_twin):
    """Another random model drafts. Nearly everything is rejected, mostly after the window has moved."""
    torch.manual_seed(5)
    assistant = llama(num_hidden_layers=1).eval()
    assistant.generation_config.num_assistant_tokens = 5
    assistant.generation_config.assistant_confidence_threshold = 0.0
    cache = main_twin.paged_cache()
    crops = Crops(cache)
    ids = prompts(11, padded=False)
    stock, ours, _ = main_twin.generate_both(ids, cache, assistant_model=assistant, max_new_tokens=40)
    assert_same(stock, ours)
    assert crops.after_the_window_slid > 5
    plain = generate(main_twin.on_pages(), ids, past_key_values=main_twin.paged_cache(), max_new_tokens=40)
    assert torch.equal(plain.sequences, ours.sequences)
    cache.pool.check_invariants()


def test_assisted_by_a_sibling(main_twin):
    """The drafts are the model's own with a little noise: some are accepted."""
    torch.manual_seed(5)
    assistant = type(main_twin.model)(main_twin.model.config).eval()
    assistant.load_state_dict(main_twin.model.state_dict())
    with torch.no_grad():
        for parameter in assistant.parameters():
            parameter += 0.01 * torch.randn_like(parameter)
    # The assistant keeps the stock cache that generate makes for it, because its config has another attention.
    assistant.config = type(assistant.config)(**main_twin.model.config.to_dict())
    for module in assistant.modules():
        if hasattr(module, "config"):
            module.config = assistant.config
    assistant.config._attn_implementation = "eager"
    stock, ours, cache = main_twin.generate_both(prompts(11, padded=False), assistant_model=assistant, max_new_tokens=40)
    assert_same(stock, ours)


def test_chunked_prefill(main_twin):
    ids, arguments = prompts(17, 3, 9)  # some chunks are padding only
    cache = main_twin.paged_cache(max_batch_tokens=12)
    stock, ours, _ = main_twin.generate_both(ids, cache, **arguments, prefill_chunk_size=4)
    assert_same(stock, ours)


def test_twice_with_new_caches(main_twin):
    """Both caches live at once, in one pool."""
    first, second = main_twin.paged_cache(), None
    for lengths in ((9, 12), (12, 5, 3)):
        ids, arguments = prompts(*lengths)
        second = first if second is None else first.new()
        assert_same(*main_twin.generate_both(ids, second, **arguments)[:2])
    assert second.pool is first.pool and first.batch_size == 2 and second.batch_size == 3
    assert first.pool.stats().num_sequences == 5
    del second
    assert first.pool.stats().num_sequences == 2  # a deleted cache frees its rows


@pytest.mark.parametrize("lengths", [(9,), (9, 4, 6)])
def test_chat(main_twin, lengths):
    """One cache over three questions, each with the whole conversation so far."""
    ids, arguments = prompts(*lengths)
    mask = arguments["attention_mask"]
    stock_cache, cache = main_twin.stock_cache(), main_twin.paged_cache()
    for turn in range(3):
        expected = generate(main_twin.on_stock(), ids, attention_mask=mask, past_key_values=stock_cache, max_new_tokens=7)
        ours = generate(main_twin.on_pages(), ids, attention_mask=mask, past_key_values=cache, max_new_tokens=7)
        assert_same(expected, ours)
        question = prompts(*[5 + turn] * len(lengths), padded=False)
        ids = torch.cat([ours.sequences, question], dim=1)
        mask = torch.cat([mask, torch.ones(len(lengths), 7 + question.shape[1], dtype=torch.long)], dim=1)
    # All but the last question and the token before it.
    assert cache.pool.lengths(cache.sequences) == [n - 8 for n in shown(mask)]


def test_bfloat16(main_twin):
    """Both caches round. Ours is as close to float32 as the stock one."""
    state, config = main_twin.model.state_dict(), main_twin.model.config
    half = Twin(type(main_twin.model)(type(config)(**config.to_dict())).eval())
    half.model.load_state_dict(state)
    half.model.to(torch.bfloat16)
    exact = Twin(type(main_twin.model)(type(config)(**config.to_dict())).eval())
    exact.model.load_state_dict({name: x.float() for name, x in half.model.state_dict().items()})
    ids, arguments = prompts(30, 19)
    mask = arguments["attention_mask"]
    caches = half.stock_cache(), half.paged_cache(dtype=torch.bfloat16), exact.stock_cache()
    for begin, end in ((0, 20), (20, 21), (21, 25), *((i, i + 1) for i in range(25, 30))):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, begin:end]
        given = dict(attention_mask=mask[:, :end], position_ids=positions)
        stock, ours = half.forward_both(*caches[:2], ids[:, begin:end], **given)
        with torch.no_grad():
            expected = exact.on_stock()(ids[:, begin:end], past_key_values=caches[2], **given).logits[:, -1]
        assert worst_error(ours[:, -1].float(), expected) <= 1.5 * worst_error(stock[:, -1].float(), expected) + 0.01
        assert ours.dtype == torch.bfloat16
    assert caches[1].pool.layer_pool(0).dtype == "bf16"


def test_dtype_of_the_pages_is_that_of_the_config():
    config = transformers.LlamaConfig(num_hidden_layers=1, dtype="bfloat16")
    assert PagedCache(config, capacity_tokens=64).pool.layer_pool(0).dtype == "bf16"
    assert PagedCache(config, capacity_tokens=64, dtype=torch.float16).pool.layer_pool(0).dtype == "f16"


def test_int8_pages(llama):
    stock, ours, cache = llama.generate_both(prompts(12, padded=False), llama.paged_cache(dtype="int8"), max_new_tokens=1)
    assert TOLERANCE < worst_error(ours.logits[0], stock.logits[0]) < 0.05
    assert cache.pool.layer_pool(0).dtype == "i8"


def test_out_of_pages(main_twin):
    """More tokens than the pool holds: the error has the numbers, and the cache is as before that forward."""
    ids, arguments = prompts(9, 5)
    stock = generate(main_twin.on_stock(), ids, max_new_tokens=60, **arguments)
    cache = main_twin.paged_cache(capacity_tokens=28, max_sequences=2)
    with pytest.raises(kvcache.OutOfPages, match="page") as raised:
        generate(main_twin.on_pages(), ids, past_key_values=cache, max_new_tokens=60, **arguments)
    error = raised.value
    assert error.row is not None and error.missing == error.required - error.available > 0
    assert error.available == cache.pool.stats(error.group).pages_free
    length = cache.get_seq_length()
    assert 9 < length < 68 and cache.pool.lengths(cache.sequences) == [length, length - 4]
    # The refused forward stored nothing. When pages are freed, the same cache continues as a fresh one would.
    cache.crop(-4)
    known = torch.cat([ids, torch.randint(2, 99, (2, length - 9))], dim=1)
    known[:, :length - 4] = stock.sequences[:, :length - 4]
    given = torch.cat([arguments["attention_mask"], torch.ones(2, length - 9, dtype=torch.long)], dim=1)
    again, ours, _ = main_twin.generate_both(known, cache, attention_mask=given, max_new_tokens=1)
    assert_same(again, ours)
