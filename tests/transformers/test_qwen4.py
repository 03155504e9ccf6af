"""Qwen4-Exp: keys with index keys and positions, recurrent states, and the last token ids, all in pages. The model attends."""

import pytest
import torch

import kvcache
from architectures import small_model
from test_drafts import NEXT, compare, logits, one_by_one
from twin import TOLERANCE, Twin, assert_same, generate, prompts, worst_error

LENGTHS = (21, 6, 13)


@pytest.fixture(scope="module")
def qwen4():
    return Twin(small_model("qwen4_exp_text"))


def copies(twin, **options):
    return twin.paged_cache(attention="model", **options)


def test_padded_batch(qwen4):
    ids, arguments = prompts(*LENGTHS)
    arguments |= dict(prefill_chunk_size=8, max_new_tokens=12)
    cache = copies(qwen4)
    stock = generate(qwen4.on_stock(), ids, past_key_values=qwen4.stock_cache(), **arguments)
    assert_same(stock, generate(qwen4.on_stock(), ids, past_key_values=cache, **arguments))
    held = [value for layer in cache.layers for value in vars(layer).values() if isinstance(value, torch.Tensor)]
    assert not held
    assert cache._rows.geometry.states[0].dtypes[2] == torch.int64  # bfloat16 has no token ids


def test_beams(qwen4):
    arguments = dict(num_beams=3, max_new_tokens=9)
    ids = prompts(1, padded=False)  # fewer tokens than an n-gram
    stock = generate(qwen4.on_stock(), ids, **arguments)
    assert_same(stock, generate(qwen4.on_stock(), ids, past_key_values=copies(qwen4), **arguments))


def test_positions_in_three_dimensions(qwen4):
    """Tokens of an image have another position in each, and index keys are rotated at that of their block's first token."""
    ids, (stock, paged) = prompts(14, 14, padded=False), (qwen4.stock_cache(), copies(qwen4))
    positions = torch.stack([torch.arange(14), torch.arange(14) // 3, torch.arange(14) % 3 + 4])[:, None].repeat(1, 2, 1)
    positions[:, 1] += 5
    for begin, end in ((0, 6), (6, 12), (12, 13), (13, 14)):
        part = dict(position_ids=positions[:, :, begin:end], use_cache=True)
        with torch.no_grad():
            expected = qwen4.on_stock()(ids[:, begin:end], past_key_values=stock, **part).logits
            ours = qwen4.on_stock()(ids[:, begin:end], past_key_values=paged, **part).logits
        assert worst_error(ours, expected) <= TOLERANCE
    first = qwen4.model.config.layer_types.index("indexed_attention")
    assert torch.equal(paged.layers[first].indexer_position_ids, positions)
    text = torch.arange(14).expand(3, 2, -1)
    with torch.no_grad():
        assert worst_error(qwen4.on_stock()(ids, position_ids=text).logits[:, -1:], expected) > 100 * TOLERANCE


@pytest.mark.parametrize("right", [0, 1, 3, 4])
def test_rejected_drafts(qwen4, right):
    rows, drafts = prompts(9, 9, padded=False).tolist(), prompts(4, 4, padded=False).tolist()
    cache, model = copies(qwen4, max_draft_states=4), qwen4.on_stock()
    logits(model, rows, cache)
    for rounds in range(2):  # the first round is dropped as a whole
        cache.draft()
        ours = [logits(model, [[row[i]] for row in drafts], cache) for i in range(4)]
        cache.crop(-4 if rounds == 0 else right - 4)
    after = [logits(model, [[token]] * 2, cache) for token in NEXT]
    compare(ours, one_by_one(model, rows, drafts, qwen4.stock_cache()))
    accepted = [new[:right] + list(NEXT) for new in drafts]
    compare(after, one_by_one(model, rows, accepted, qwen4.stock_cache())[right:])


def test_a_forward_that_raises_stores_no_positions(qwen4):
    ids, (stock, paged) = prompts(12, padded=False), (qwen4.stock_cache(), copies(qwen4))
    logits(qwen4.on_stock(), ids[:, :6].tolist(), paged)
    for layer in qwen4.model.model.layers[:-1]:
        hook = layer.register_forward_pre_hook(lambda *_: 1 / 0)
        for part in (ids[:, 6:], ids[:, 6:7]):
            with pytest.raises(ZeroDivisionError):
                logits(qwen4.on_stock(), part.tolist(), paged)
            assert paged.get_seq_length() == 6
        hook.remove()
    expected = logits(qwen4.on_stock(), ids.tolist(), stock)[:, 6:]
    assert worst_error(logits(qwen4.on_stock(), ids[:, 6:].tolist(), paged), expected) <= TOLERANCE


def test_refusals(qwen4):
    with pytest.raises(NotImplementedError, match='selects from the mask; make the cache with PagedCache\\(..., attention="model"'):
        qwen4.paged_cache()
    cache = copies(qwen4)
    logits(qwen4.on_stock(), prompts(5, padded=False).tolist(), cache)
    assert not cache.is_croppable
    with pytest.raises(kvcache.Error):
        cache.crop(-1)
    assert cache.get_seq_length() == 5
