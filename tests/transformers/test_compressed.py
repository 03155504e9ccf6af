"""DeepSeek-V4: window rows, rows that compress several tokens, and an indexer that selects them, all in pages."""

import copy

import pytest
import torch
import transformers

import kvcache
from architectures import small_config
from kvcache.integrations.transformers import PagedCache
from twin import TOLERANCE, Twin, assert_same, generate, prompts, worst_error

LENGTHS = (29, 6, 17)
RATES = dict(compressed_sparse_attention=4, heavily_compressed_attention=8)


@pytest.fixture(scope="module")
def v4():
    """Sinks and position biases are random too. transformers begins with zeros."""
    torch.manual_seed(0)
    config = small_config("deepseek_v4")
    config.compress_rates = RATES
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        if name.endswith(("sinks", "position_bias")):
            torch.nn.init.normal_(parameter)
    return Twin(model, dict(capacity_tokens=1024, page_size=8))


def run(model, cache, ids, **arguments):
    with torch.no_grad():
        return model(ids, past_key_values=cache, **arguments).logits


def alone(twin, tokens, last):
    """The stock logits of the last tokens of a sequence that is computed at once."""
    return run(twin.on_stock(), twin.stock_cache(), tokens[None])[0, -last:]


def test_each_row_of_a_padded_batch_is_as_if_alone(v4):
    """The stock model compresses padding too, so it gets the rows without."""
    ids, arguments = prompts(*LENGTHS)
    cache = v4.paged_cache()
    ours = generate(v4.on_pages(), ids, past_key_values=cache, prefill_chunk_size=10, **arguments)
    assert cache.pool.lengths(cache.sequences) == [length + 19 for length in LENGTHS]
    for row, length in enumerate(LENGTHS):
        tokens = ours.sequences[row, -20 - length:]
        logits = torch.stack([step[row] for step in ours.logits])
        assert worst_error(logits, alone(v4, tokens[:-1], 20)) <= TOLERANCE
    cache.pool.check_invariants()


def test_the_model_attends_over_copies(v4):
    """Then padding takes slots, as in the stock cache."""
    ids, arguments = prompts(*LENGTHS)
    cache = v4.paged_cache(attention="model", rollback_tokens=0)
    given = dict(arguments, use_cache=True, max_new_tokens=12)
    stock = generate(v4.on_stock(), ids, past_key_values=v4.stock_cache(), prefill_chunk_size=10, **given)
    assert_same(stock, generate(v4.on_stock(), ids, past_key_values=cache, prefill_chunk_size=10, **given))


def test_beams(v4):
    ids = prompts(11, padded=False)
    stock, ours, cache = v4.generate_both(ids, num_beams=3, max_new_tokens=9)
    assert_same(stock, ours)
    cache = v4.paged_cache(attention="model")
    assert_same(stock, generate(v4.on_stock(), ids, past_key_values=cache, num_beams=3, max_new_tokens=9))


@pytest.mark.parametrize("attention", ["kvcache", "model"])
@pytest.mark.parametrize("announced", [False, True])
def test_rejected_drafts_open_rows_again(v4, attention, announced):
    """Each round drafts nine tokens, which close rows of both sizes, and keeps some of them."""
    cache, model = v4.paged_cache(attention=attention), v4.on_pages() if attention == "kvcache" else v4.on_stock()
    tokens = prompts(13, 13, padded=False)
    run(model, cache, tokens)
    for right in (0, 5, 9, 1):
        drafts = torch.randint(3, 90, (2, 9))
        if announced:
            cache.draft()
        run(model, cache, drafts)
        cache.crop(right - 9)
        tokens = torch.cat([tokens, drafts[:, :right], torch.randint(3, 90, (2, 1))], dim=1)
        logits = run(model, cache, tokens[:, -1:])
        assert cache.get_seq_length() == tokens.shape[1]
    expected = torch.stack([alone(v4, row, 1) for row in tokens])
    assert worst_error(logits, expected) <= TOLERANCE
    with pytest.raises(kvcache.Evicted):
        v4_without_margin(v4, attention).crop(-5)


def v4_without_margin(twin, attention):
    cache = twin.paged_cache(attention=attention, rollback_tokens=0)
    run(twin.on_pages() if attention == "kvcache" else twin.on_stock(), cache, prompts(40, padded=False))
    return cache


def test_forks_go_on_alone(v4):
    tokens = prompts(14, 14, padded=False)
    cache = v4.paged_cache()
    run(v4.on_pages(), cache, tokens)
    cache.reorder_cache(torch.tensor([1, 1, 0]))
    tokens = torch.cat([tokens[[1, 1, 0]], torch.randint(3, 90, (3, 12))], dim=1)
    logits = torch.cat([run(v4.on_pages(), cache, part) for part in tokens[:, 14:].split([1, 7, 1, 3], dim=1)], dim=1)
    for row, of_row in zip(tokens, logits, strict=True):
        assert worst_error(of_row, alone(v4, row, 12)) <= TOLERANCE
    assert cache.pool.stats().pages_shared > 0


def test_everything_is_in_pages(v4):
    """One row for each 4 or 8 tokens, index rows, and in windows the keys of tokens that the next rows need."""
    cache = v4.paged_cache(rollback_tokens=0)
    run(v4.on_pages(), cache, prompts(61, padded=False))
    pool, geometry = cache.pool, cache._rows.geometry
    kinds = v4.model.config.layer_types
    assert [sorted(places) for places in geometry.compressed] == [
        {"sliding_attention": [], "compressed_sparse_attention": ["compressor", "indexer"],
         "heavily_compressed_attention": ["compressor"]}[kind] for kind in kinds]
    for place in (place for places in geometry.compressed for place in places.values()):
        assert pool.layer_pool(place.rows.index, "k").shape[1:3] == (1, 8 // place.ratio)
        assert (pool.pages(cache.sequences[0], place.rows.group) >= 0).sum() == 8
        assert (pool.pages(cache.sequences[0], place.tokens.group) >= 0).sum() == 2  # a window of 8 tokens
    held = [value for layer in cache.layers for value in vars(layer).values() if isinstance(value, torch.Tensor)]
    assert not held


def test_the_library_selects_what_the_indexer_selects(v4):
    """Scores of the index rows in the pages, by Step.select, beside the lists of the model."""
    cache, seen = v4.paged_cache(), []
    layer = next(i for i, places in enumerate(cache._rows.geometry.compressed) if "indexer" in places)
    place = cache._rows.geometry.compressed[layer]["indexer"].rows
    indexer = v4.model.model.layers[layer].self_attn.compressor.indexer

    def score(scorer, arguments, result):
        q, _, hidden = arguments
        step = cache._rows.step
        step_lists = step.select(place.index, q.flatten(0, 1).contiguous(), 3, scorer.weights_proj(hidden).flatten(0, 1).contiguous())
        seen.append(step_lists[:, 0])

    def compare(module, arguments, result):
        chosen = [set(row[row >= 0].tolist()) for row in result.flatten(0, 1)]
        ours = [set(row[row >= 0].tolist()) for row in seen.pop()]
        assert ours == chosen and max(map(len, chosen)) == 3

    # The index rows of a step can be scored when they are stored, which is before the model scores its copy of them.
    hooks = [indexer.scorer.register_forward_hook(score), indexer.register_forward_hook(compare)]
    try:
        for ids in prompts(40, 40, padded=False).split([19, 1, 20], dim=1):
            run(v4.on_pages(), cache, ids)
    finally:
        for hook in hooks:
            hook.remove()
    assert seen == [] and cache.get_seq_length() == 40


def test_a_forward_that_raises_stores_no_rows(v4):
    cache, tokens = v4.paged_cache(), prompts(22, padded=False)
    run(v4.on_pages(), cache, tokens[:, :11])
    for layer in v4.model.model.layers:
        hook = layer.mlp.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(v4.on_pages(), cache, tokens[:, 11:])
        hook.remove()
        if layer is not v4.model.model.layers[-1]:
            assert cache.get_seq_length() == 11
    cache.crop(11 - cache.get_seq_length())  # the last layer had stored its keys
    assert worst_error(run(v4.on_pages(), cache, tokens[:, 11:])[0], alone(v4, tokens[0], 11)) <= TOLERANCE


def test_bfloat16(v4):
    """Both caches round. Ours is about as close to float32 as the stock one. The output of one layer's attention is compared,
    because the routing of experts to tokens jumps."""
    half = Twin(copy.deepcopy(v4.model).to(torch.bfloat16), v4.options)
    exact = Twin(copy.deepcopy(half.model).float())
    tokens = prompts(23, padded=False)
    outputs = []
    for twin, cache in ((exact, exact.stock_cache()), (half, half.stock_cache()), (half, half.paged_cache(dtype=torch.bfloat16))):
        model = twin.on_stock() if len(outputs) < 2 else twin.on_pages()
        seen = []
        hook = model.model.layers[1].self_attn.register_forward_hook(lambda module, given, result: seen.append(result[0].float()))
        for part in tokens.split([19, 1, 3], dim=1):
            run(model, cache, part)
        hook.remove()
        outputs.append(torch.cat(seen, dim=1))
    expected, stock, ours = outputs
    assert worst_error(ours, expected) <= 1.5 * worst_error(stock, expected) + 0.02


def test_refusals(v4):
    with pytest.raises(kvcache.InvalidArgument, match="tokens_per_row 4 does not divide the page size of 6 tokens"):
        v4.paged_cache(page_size=6)
    with pytest.raises(NotImplementedError, match="attention_mask of its own"):
        run(v4.on_pages(), v4.paged_cache(), prompts(5, padded=False), attention_mask=torch.zeros(1, 1, 5, 5))
    with pytest.raises(TypeError, match="call model.set_attn_implementation"):
        run(v4.on_stock(), v4.paged_cache(), prompts(5, padded=False))
    with pytest.raises(ValueError, match="float pages"):
        v4.paged_cache(attention="model", dtype="int8")
    config = small_config("deepseek_v4")
    config.compress_rates = dict(compressed_sparse_attention=4, heavily_compressed_attention=128)
    cache = PagedCache(config, capacity_tokens=256)
    assert cache.pool.layer_pool(cache._rows.geometry.places[0].index, "k").shape[2] == 128  # a page has whole rows
