"""Rejected drafts over recurrent states: the logits after them are those of a model that never saw them."""

import pytest
import torch

import kvcache
from architectures import small_model
from twin import TOLERANCE, Twin, worst_error

NEXT = (7, 11, 13)  # tokens that follow


def logits(model, tokens, cache):
    with torch.no_grad():
        return model(torch.tensor(tokens), past_key_values=cache, use_cache=True).logits


@pytest.mark.parametrize("name", ["qwen3_next", "falcon_h1", "lfm2", "bamba"])
@pytest.mark.parametrize("right", [0, 1, 3, 4])
def test_rejected_drafts(name, right):
    twin = Twin(small_model(name))
    rows = [[5, 9, 2, 44, 8, 31, 6], [17, 3, 3, 90, 21, 4, 77]]
    drafts = [[12, 34, 56, 78], [87, 65, 43, 21]]
    cache = twin.paged_cache(max_draft_states=4)
    model = twin.on_pages()
    logits(model, rows, cache)
    for rounds in range(2):  # the first round is dropped as a whole
        cache.draft()
        with pytest.raises(kvcache.Order):
            cache.draft()
        ours = [logits(model, [[row[i]] for row in drafts], cache) for i in range(4)]
        cache.crop(-4 if rounds == 0 else right - 4)
    assert cache.get_seq_length() == len(rows[0]) + right
    after = [logits(model, [[token]] * 2, cache) for token in NEXT]
    stock = twin.on_stock()
    compare(ours, one_by_one(stock, rows, drafts, twin.stock_cache()))
    accepted = [new[:right] + list(NEXT) for new in drafts]
    compare(after, one_by_one(stock, rows, accepted, twin.stock_cache())[right:])


def one_by_one(model, rows, tokens, cache):
    """The logits after each token, in forwards of their own after the rows."""
    logits(model, rows, cache)
    return [logits(model, [[row[i]] for row in tokens], cache) for i in range(len(tokens[0]))]


def compare(got, expected):
    assert len(got) == len(expected)
    for ours, stock in zip(got, expected, strict=True):
        assert worst_error(ours, stock) <= TOLERANCE


def test_without_draft_states_drafts_are_kept_or_dropped_whole():
    twin = Twin(small_model("qwen3_next"))
    cache = twin.paged_cache()
    model = twin.on_pages()
    logits(model, [[1, 2, 3]], cache)
    cache.draft()
    for token in (4, 5):
        logits(model, [[token]], cache)
    with pytest.raises(kvcache.Evicted):
        cache.crop(-1)
    cache.crop(-2)
    assert cache.get_seq_length() == 3
