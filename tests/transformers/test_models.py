"""Models that differ from the plain ones: what they cache, and the messages about calls that do not suit them."""

import pytest
import torch
import transformers

import kvcache
from architectures import small_model
from kvcache.integrations.transformers import PagedCache
from twin import SMALL, WINDOW, Twin, assert_same, generate, prompts, worst_error

LENGTHS = (WINDOW + 3, 4, 1)


def twin(name):
    return Twin(small_model(name))


def copies(twin, **options):
    """A cache that gives the model copies of its pages."""
    return twin.paged_cache(attention="model", **options)


def generate_by_the_model(twin, cache, ids, **arguments):
    """The stock output, and the output of the model's own attention over pages."""
    arguments["use_cache"] = True  # MPT's configuration says no
    expected = generate(twin.on_stock(), ids, past_key_values=twin.stock_cache(), **arguments)
    return expected, generate(twin.on_stock(), ids, past_key_values=cache, **arguments)


def test_heads_that_differ_by_layer():
    """MiMo-V2-Flash: V is narrower than K, and sliding layers have twice the kv heads."""
    model = twin("mimo_v2_flash")
    ids, arguments = prompts(*LENGTHS)
    stock, ours, cache = model.generate_both(ids, **arguments)
    assert_same(stock, ours)
    shapes = {kind: cache.pool.layer_pool(place.index, "k").shape[1]
              for kind, place in zip(model.model.config.layer_types, cache._rows.geometry.places, strict=True)}
    assert shapes["sliding_attention"] == 2 * shapes["full_attention"]


def longrope(original=12):
    factors = [1.0 + 0.1 * i for i in range(4)]
    rope = dict(rope_type="longrope", short_factor=factors, long_factor=[3 * f for f in factors], rope_theta=10000.0,
                original_max_position_embeddings=original, partial_rotary_factor=0.5)
    torch.manual_seed(0)
    config = transformers.Phi3Config(**SMALL, max_position_embeddings=64, original_max_position_embeddings=original,
                                     rope_parameters=rope)
    return Twin(transformers.Phi3ForCausalLM(config).eval())


def test_longrope_up_to_the_original_length():
    stock, ours, _ = longrope().generate_both(prompts(6, padded=False), max_new_tokens=6)
    assert_same(stock, ours)


def test_longrope_past_the_original_length():
    """The model drops its cache here. The error says so, and what to do, which works."""
    model = longrope()
    cache, ids = model.paged_cache(), prompts(6, padded=False)
    stock = generate(model.on_stock(), ids, max_new_tokens=14)
    with pytest.raises(TypeError, match="more than 12 tokens.*call reset"):
        generate(model.on_pages(), ids, past_key_values=cache, max_new_tokens=14)
    cache.reset()
    first = generate(model.on_pages(), ids, past_key_values=cache, max_new_tokens=7)
    cache.reset()
    second = generate(model.on_pages(), first.sequences, past_key_values=cache, max_new_tokens=7)
    assert torch.equal(second.sequences, stock.sequences)
    assert cache.pool.lengths(cache.sequences) == [19]


OWN_ATTENTION = ["gptj", "falcon", "bloom", "mpt", "xglm", "codegen"]


@pytest.mark.parametrize("name", OWN_ATTENTION)
def test_models_that_compute_attention_themselves(name):
    model = twin(name)
    ids, arguments = prompts(*LENGTHS)
    with pytest.raises((TypeError, AttributeError), match='PagedCache\\(..., attention="model"\\)'):
        generate(model.on_pages(), ids, past_key_values=model.paged_cache(), **arguments)
    cache = copies(model)
    assert_same(*generate_by_the_model(model, cache, ids, **arguments))
    assert cache.pool.lengths(cache.sequences) == [LENGTHS[0] + 19] * 3  # hidden tokens are stored too


def test_every_kind_of_layer_can_be_copied(main_twin):
    """Sliding layers hold the window, in pages that may begin before it."""
    ids, arguments = prompts(*LENGTHS)
    cache = copies(main_twin, rollback_tokens=0)
    assert_same(*generate_by_the_model(main_twin, cache, ids, **arguments))
    window = cache._rows.geometry.places[0].window
    held = cache.pool.pages(cache.sequences[0], 0) >= 0
    assert held.sum() == (len(held) if window is None else 3) <= 8


def test_beams_over_copies(llama):
    stock, ours = generate_by_the_model(llama, copies(llama), prompts(11, padded=False), num_beams=3)
    assert_same(stock, ours)


def test_drafts_over_copies(mistral):
    ids = torch.tensor([[5, 6, 7, 5, 6, 7, 5, 6]])
    assert_same(*generate_by_the_model(mistral, copies(mistral), ids, prompt_lookup_num_tokens=4, max_new_tokens=30))


def test_the_two_kinds_of_cache_are_not_mixed_up(llama):
    ids = prompts(5, padded=False)
    with pytest.raises(TypeError, match='made with attention="model", but the model has attn_implementation="kvcache"'):
        generate(llama.on_pages(), ids, past_key_values=copies(llama))
    with pytest.raises(ValueError, match="'other'"):
        llama.paged_cache(attention="other")
    with pytest.raises(ValueError, match="float pages, not dtype='int8'"):
        copies(llama, dtype="int8")


LATENT = ["deepseek_v2", "deepseek_v3", "longcat_flash"]


@pytest.mark.parametrize("name", LATENT)
def test_latent_rows(name):
    """One row for each token and all heads. The model's own projections make keys and values."""
    model = twin(name)
    ids, arguments = prompts(*LENGTHS)
    stock, ours, cache = model.generate_both(ids, **arguments)
    assert_same(stock, ours)
    config = model.model.config
    assert cache.pool.layer_pool(0, "k").shape[1:] == (1, 4, config.kv_lora_rank + config.qk_rope_head_dim)
    assert_same(*generate_by_the_model(model, copies(model), ids, **arguments))


def test_latents_with_other_projections():
    """A projection that the library would not apply as the model does."""
    model = twin("deepseek_v3")
    project = model.model.model.layers[0].self_attn.kv_b_proj
    model.model.model.layers[0].self_attn.kv_b_proj = torch.nn.Sequential(project)
    cache = model.paged_cache()
    with pytest.raises(NotImplementedError, match="kv_b_proj is Sequential"):
        generate(model.on_pages(), prompts(5, padded=False), past_key_values=cache)
    assert cache.get_seq_length() == 0
    with pytest.raises(TypeError, match='this model runs "eager"'):
        generate(model.on_stock(), prompts(5, padded=False), past_key_values=model.paged_cache())


@pytest.mark.parametrize("name", ["gemma3n_text", "gemma4_text"])
def test_layers_that_read_keys_of_others(name):
    """Gemma 4 gives these layers only the queries of the last tokens."""
    model = twin(name)
    ids, arguments = prompts(*LENGTHS)
    stock, ours, cache = model.generate_both(ids, **arguments)
    assert_same(stock, ours)
    places = cache._rows.geometry.places
    assert [place.shared for place in places] == [False, False, True, True]
    assert_same(*generate_by_the_model(model, copies(model), ids, **arguments))


def test_keys_of_an_indexer():
    """These rows have no values. The model selects keys by them, and attends itself."""
    model = twin("glm_moe_dsa")
    ids, arguments = prompts(*LENGTHS)
    with pytest.raises(NotImplementedError, match='indexer selects.*attention="model"'):
        model.paged_cache()
    cache = copies(model)
    assert_same(*generate_by_the_model(model, cache, ids, **arguments))
    indexers = [place for place in cache._rows.geometry.indexers if place is not None]
    assert indexers and all(cache.pool.layer_pool(place.index, "k").shape[1:] == (1, 4, 16) for place in indexers)
    with pytest.raises(ValueError, match="layer 1 has no indexer"):
        PagedCache(transformers.LlamaConfig(num_hidden_layers=2), capacity_tokens=64).update_indexer(torch.zeros(1, 1, 16), 1)


def test_latents_of_a_forward_that_raised():
    """They do not count as those of the next forward, which has another cache."""
    model = twin("deepseek_v3")
    attention = model.model.model.layers[0].self_attn
    expand, attention.expand_kv = attention.expand_kv, lambda *_: 1 / 0
    ids = prompts(5, padded=False)
    with pytest.raises(ZeroDivisionError), torch.no_grad():
        model.on_pages()(ids, past_key_values=model.paged_cache())
    attention.expand_kv = expand
    with pytest.raises(TypeError, match="pass past_key_values=PagedCache"), torch.no_grad():
        model.on_pages()(ids, past_key_values=model.stock_cache())
    assert_same(*model.generate_both(ids)[:2])


@pytest.mark.parametrize("name", ["minicpm3", "olmo_hybrid", "gemma3n_text", "gptj"])  # no experts: routing is not continuous
def test_bfloat16(name):
    """Both caches round. Ours is about as close to float32 as the stock one."""
    exact, half = twin(name), twin(name)
    half.model.to(torch.bfloat16)
    exact.model.load_state_dict({key: x.float() for key, x in half.model.state_dict().items()})
    options = dict(dtype=torch.bfloat16, attention="model" if name == "gptj" else "kvcache")
    ids = prompts(12, 12, padded=False)
    caches = [half.stock_cache(), half.paged_cache(**options), exact.stock_cache()]
    for tokens in (ids[:, :9], ids[:, 9:10], ids[:, 10:12]):
        with torch.no_grad():
            stock = half.on_stock()(tokens, past_key_values=caches[0]).logits[:, -1].float()
            model = half.on_stock() if name == "gptj" else half.on_pages()
            ours = model(tokens, past_key_values=caches[1]).logits[:, -1].float()
            expected = exact.on_stock()(tokens, past_key_values=caches[2]).logits[:, -1]
        assert worst_error(ours, expected) <= 1.5 * worst_error(stock, expected) + 0.02


RECURRENT = ["qwen3_next", "jamba", "nemotron_h", "lfm2", "falcon_h1", "zamba2"]


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_states(name):
    model = twin(name)
    ids, arguments = prompts(*LENGTHS)
    stock, ours, cache = model.generate_both(ids, **arguments)
    assert_same(stock, ours)
    assert cache.pool.lengths(cache.sequences) == [length + 19 for length in LENGTHS]
    stock, ours, _ = model.generate_both(prompts(9, padded=False), num_beams=3)
    assert_same(stock, ours)
    assert_same(*model.generate_both(ids, **arguments, prefill_chunk_size=4)[:2])


@pytest.mark.parametrize("name", RECURRENT)
def test_inference_mode(name):
    """Its tensors have no version that counts what is written in place."""
    model = twin(name)
    ids, arguments = prompts(*LENGTHS)
    with torch.inference_mode():
        stock, ours, _ = model.generate_both(ids, **arguments, prefill_chunk_size=4)
        assert_same(stock, ours)


@pytest.mark.parametrize("name", RECURRENT)
def test_states_cannot_be_dropped(name):
    model = twin(name)
    cache = model.paged_cache()
    generate(model.on_pages(), prompts(5, padded=False), past_key_values=cache, max_new_tokens=3)
    assert not cache.is_croppable
    with pytest.raises(kvcache.Error):
        cache.crop(-1)
    assert cache.get_seq_length() == 7


@pytest.mark.parametrize("name", RECURRENT)
def test_a_forward_that_raises_keeps_the_states(name):
    """Wherever a forward raises, the next one begins with the states before it."""
    model, ids = twin(name), prompts(6, 6, padded=False)
    stock_cache, cache = model.stock_cache(), model.paged_cache()
    model.forward_both(stock_cache, cache, ids)
    has_cache = [place is not None or states is not None
                 for place, states in zip(cache._rows.geometry.places, cache._rows.geometry.states, strict=True)]
    last = max(index for index, has in enumerate(has_cache) if has)
    for layer in model.model.model.layers[:last + 1]:
        for tokens in (ids[:, :1], ids[:, :3]):
            hook = layer.register_forward_pre_hook(lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError), torch.no_grad():
                model.on_pages()(tokens, past_key_values=cache)
            hook.remove()
            assert cache.get_seq_length() == 6
    for tokens in (ids[:, :2], ids[:, :1], ids[:, 1:2]):
        stock, ours = model.forward_both(stock_cache, cache, tokens)
        assert torch.allclose(ours, stock, atol=1e-4 * stock.abs().max().item())
    assert cache.pool.lengths(cache.sequences) == [10, 10]


def test_states_alone():
    """Mamba has no keys, and makes no mask, by which other models announce a forward."""
    model = twin("mamba")
    ids = prompts(6, 6, padded=False)
    stock_cache, cache = model.stock_cache(), model.paged_cache()
    for tokens in (ids, ids[:, :3], ids[:, :1], ids[:, 1:2], ids[:, :4]):
        with torch.no_grad():
            stock = model.model(tokens, cache_params=stock_cache, use_cache=True).logits
            ours = model.model(tokens, cache_params=cache, use_cache=True).logits
        assert torch.allclose(ours, stock, atol=1e-4 * stock.abs().max().item())
    assert cache.pool.lengths(cache.sequences) == [15, 15]
