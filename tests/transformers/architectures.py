"""Small models with random weights of every architecture that transformers has for text generation."""

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from twin import VOCABULARY, WINDOW

# Fields of a configuration. Those that a class has are set, because its defaults make models of 7 billion parameters.
SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    intermediate_size=96, max_position_embeddings=256, sliding_window=WINDOW, attention_chunk_size=WINDOW,
    initializer_range=0.2, init_std=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    # mixtures of experts
    moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=4, n_routed_experts=4, num_local_experts=4,
    moe_num_experts=4, num_experts_per_tok=2, moe_topk=2, moe_k=2, n_group=1, topk_group=1, n_shared_experts=1,
    num_shared_experts=1, first_k_dense_replace=1, moe_num_shared_experts=1, expert_ffn_hidden_size=32, ffn_hidden_size=96,
    zero_expert_num=2,
    # latent attention
    q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, qk_head_dim=24, v_head_dim=16,
    index_head_dim=16, index_n_heads=16, index_topk=6,
    # states
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_heads=4,
    linear_head_dim=16, mamba_d_state=8, mamba_n_heads=8, mamba_d_head=16, mamba_n_groups=2, mamba_num_heads=8,
    mamba_head_dim=16, ssm_state_size=8, state_size=8, n_groups=2, mamba_d_ssm=128, mamba_headdim=16, mamba_ngroups=2,
    n_mamba_heads=8, mamba_dt_rank=4, time_step_rank=4, mamba_chunk_size=8, chunk_size=8, lru_width=64, block_dim=64,
    # older names
    n_embd=64, n_head=4, n_layer=4, n_positions=256, n_ctx=256, n_inner=96, d_model=64, n_heads=4, n_layers=4, d_ff=96,
    ffn_dim=96, decoder_layers=4, decoder_attention_heads=4, decoder_ffn_dim=96, attention_heads=4, num_layers=4,
    rotary_dim=8, word_embed_proj_dim=64, embedding_size=64, attention_head_dim=16)


# Further or other values for single architectures. None: the class's own value.
_MIXED = ["linear_attention", "full_attention"] * 2
_LATENT = dict(head_dim=8, num_key_value_heads=4)  # only the rotary part
CHANGES = {
    **dict.fromkeys(("axk1", "axk2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "longcat_flash",
                     "minicpm3", "youtu", "mistral4"), _LATENT),
    "deepseek_v2": _LATENT | dict(num_experts_per_tok=2),
    **dict.fromkeys(("bailing_hybrid", "kimi_linear"), _LATENT | dict(layer_types=_MIXED)),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral"), dict(head_dim=16)),
    **dict.fromkeys(("granitemoehybrid", "olmo_hybrid", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), dict(layer_types=_MIXED)),
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), dict(layer_types=["conv", "full_attention"] * 2)),
    "bamba": dict(attn_layer_indices=[1, 3]),
    "bigbird_pegasus": dict(attention_type="original_full"),
    "big_bird": dict(attention_type="original_full"),
    "cohere_compass_text": dict(rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=1e4,
                                                                         mrope_section=[2, 3, 3]))),
    "dbrx": dict(attn_config=dict(kv_n_heads=2, rope_theta=1e4, clip_qkv=8.0), ffn_config=dict(
        ffn_hidden_size=96, moe_num_experts=4, moe_top_k=2)),
    "dots3_note_text": dict(num_key_value_heads=4),
    "dots1": dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2),
    "deepseek_v4": dict(num_key_value_heads=1, partial_rotary_factor=0.5, o_groups=2, o_lora_rank=16, hc_mult=2, index_topk=3,
                        compress_rates=dict(compressed_sparse_attention=2, heavily_compressed_attention=4),
                        layer_types=["sliding_attention", *["compressed_sparse_attention", "heavily_compressed_attention"] * 2][:4],
                        mlp_layer_types=["hash_moe"] + ["moe"] * 3),
    "falcon": dict(head_dim=None),
    "gemma3n_text": dict(layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2, laurel_rank=8,
                         hidden_size_per_layer_input=16, vocab_size_per_layer_input=VOCABULARY, altup_num_inputs=2,
                         activation_sparsity_pattern=[0.0] * 4, intermediate_size=[96] * 4),
    "gemma4_text": dict(layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2, global_head_dim=32,
                        hidden_size_per_layer_input=16, vocab_size_per_layer_input=VOCABULARY),
    "hrm_text": dict(initializer_range=0.02),  # its cycles amplify rounding
    "inkling_text": dict(sliding_window_size=WINDOW, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=16,
                         layer_types=["hybrid_sliding", "hybrid"] * 2),
    "inkling2_text": dict(sliding_window_size=WINDOW, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=16,
                          layer_types=["hybrid_sliding", "hybrid"] * 2),
    "qwen4_exp_text": dict(
        layer_types=["linear_attention", "indexed_attention"] * 2, hc_count=2, hc_lowrank=8, eos_token_id=2, ple_layer_ids=[1, 3],
        ple_embed_dim=32, heads_per_ngram=2, ngram_vocab_size_base=50, make_ngram_vocab_size_divisible_by=8, split_ngram_parts=1,
        indexer_n_heads=16, indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=6, indexer_compress_ratio=2,
        rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[3, 3, 2])),
    "xmod": dict(default_language="en_XX"),
    "gpt_neo": dict(attention_types=[[["global", "local"], 2]], window_size=WINDOW),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1),
    "mamba2": dict(num_heads=8),
    "nemotron": dict(num_key_value_heads=2),
    "zaya": dict(num_experts_per_tok=1),
    "zamba": dict(num_hidden_layers=6, layers_block_type=["linear_attention", "linear_attention", "hybrid"] * 2,
                  attention_head_dim=32, attention_hidden_size=128, head_dim=None),
    "zamba2": dict(num_hidden_layers=6, layers_block_type=["linear_attention", "linear_attention", "hybrid"] * 2,
                   attention_head_dim=32, head_dim=None, num_mem_blocks=1, use_shared_attention_adapter=False),
}


# Architectures without a small model, or whose logits cannot be compared, and the reason.
NOT_EXAMINED = {
    "blt": "it generates without a cache",
    "cpmant": "it puts 32 positions of its own before the tokens",
    "phi4_multimodal": "its encoders cannot be made small; its text decoder is that of `phi3`",
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), "it keeps no keys: it drafts over those of another model"),
    **dict.fromkeys(("musicgen", "musicgen_melody"), "it generates audio; its decoder has cross-attention"),
    "prophetnet": "it predicts several tokens at once, with streams of keys of its own",
    "reformer": "it keeps buckets of its own, and no keys",
    "xlnet": "it keeps hidden states, and no keys",
    "xlstm": "it keeps states of a class of its own, and no keys",
}


# Architectures that count padding among the tokens of a row. The library's attention does not, so it is compared without.
PADDING_COUNTS = ("deepseek_v4",)


def names():
    """The model types of AutoModelForCausalLM."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def default_config(name):
    return transformers.CONFIG_MAPPING[name]()


def has_field(config, name):
    """Whether a field is set. A field that may differ between layers cannot be read."""
    try:
        return getattr(config, name, None) is not None
    except (AttributeError, RuntimeError):  # the latter: AmbiguousGlobalPerLayerAttributeError
        return True


def small_config(name):
    default = default_config(name)
    fields = {field: value for field, value in SIZES.items() if has_field(default, field)}
    if hasattr(default, "is_decoder"):
        fields["is_decoder"] = True  # for BERT and similar models
    fields |= CHANGES.get(name, {})
    return type(default)(**{field: value for field, value in fields.items() if value is not None})


def small_model(name):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(small_config(name), attn_implementation="eager").eval()
