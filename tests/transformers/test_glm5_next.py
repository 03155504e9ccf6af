"""GLM-5.3's text model: latents without rotary part, keys and gates of an indexer that pools them, and recurrent states, in pages.
It has no head of its own for text, so hidden states are compared. The model attends."""

import copy

import pytest
import torch
import transformers

from kvcache.integrations.transformers import PagedCache
from twin import TOLERANCE, prompts, worst_error


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.CONFIG_MAPPING["glm5_next_text"](
        vocab_size=101, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, kv_lora_rank=32, q_lora_rank=24,
        v_head_dim=16, qk_nope_head_dim=16, index_topk=8, index_head_dim=16, index_n_heads=16, index_kpool=4, linear_head_dim=16,
        linear_num_heads=4, hc_mult=2, initializer_range=0.2, pad_token_id=0,
        layer_types=["linear_attention", "indexed_attention", "indexed_attention", "linear_attention"],
        indexer_types=["full", "full", "shared", "full"])
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        if "index_kpool" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def run(model, cache, ids, mask=None):
    with torch.no_grad():
        return model(ids, past_key_values=cache, attention_mask=mask, use_cache=True).last_hidden_state


def paged(model, **options):
    return PagedCache(model.config, capacity_tokens=256, page_size=4, attention="model", **options)


def test_padded_batch_forks_and_decoding(model):
    ids, arguments = prompts(22, 6, 13)
    mask, stock, cache = arguments["attention_mask"], transformers.DynamicCache(config=model.config), paged(model)
    for begin, end in ((0, 9), (9, 20), (20, 21), (21, 22)):
        given = ids[:, begin:end], mask[:, :end]
        seen = mask[:, begin:end].bool()
        assert worst_error(run(model, cache, *given)[seen], run(model, stock, *given)[seen]) <= TOLERANCE
    for each in (stock, cache):
        each.reorder_cache(torch.tensor([2, 2, 0]))
    fork, mask = copy.deepcopy(cache), mask[[2, 2, 0]]
    for count in (1, 5, 1):
        mask = torch.cat([mask, torch.ones(3, count, dtype=torch.long)], dim=1)
        given = torch.randint(3, 90, (3, count)), mask
        expected = run(model, stock, *given)
        assert worst_error(run(model, fork, *given), expected) <= TOLERANCE
        assert worst_error(run(model, cache, *given), expected) <= TOLERANCE


@pytest.mark.parametrize("right", [0, 2, 3])
def test_rejected_drafts(model, right):
    tokens, drafts, cache = prompts(9, 9, padded=False), prompts(3, 3, padded=False), paged(model, max_draft_states=3)
    run(model, cache, tokens)
    cache.draft()
    for i in range(3):
        run(model, cache, drafts[:, i:i + 1])
    cache.crop(right - 3)
    tokens = torch.cat([tokens, drafts[:, :right], prompts(2, 2, padded=False)], dim=1)
    expected = run(model, None, tokens)[:, -2:]
    assert worst_error(run(model, cache, tokens[:, -2:]), expected) <= TOLERANCE


def test_what_is_in_pages(model):
    cache = paged(model)
    run(model, cache, prompts(9, padded=False))
    geometry, pool = cache._rows.geometry, cache.pool
    assert [place is not None for place in geometry.indexers] == [False, True, False, False]  # a shared one has no keys
    assert pool.layer_pool(geometry.indexers[1].index, "k").shape[3] == 2 * 16 + 1
    assert pool.layer_pool(geometry.places[1].index, "k").shape[3] == 32
    with pytest.raises(NotImplementedError, match='indexer selects.*attention="model"'):
        PagedCache(model.config, capacity_tokens=64)
