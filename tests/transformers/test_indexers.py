"""Models with an indexer, whose MLA rows and index keys are both in one cache: DeepSeek-V3.2, and GLM-5, some of whose
layers use the lists of the layer before. The model's own attention computes the expected logits."""

import copy
import functools
import sys

import pytest
import torch
import transformers

import kvcache
from architectures import small_config

TOLERANCE = 1e-4  # of the largest logit


class PagedIndexer:
    """Runs a model over pages. Layer 2 i has the rows of layer i, and layer 2 i + 1 its index keys."""

    def __init__(self, model):
        self.model = copy.deepcopy(model)
        self.config = c = model.config
        self.code = sys.modules[type(model).__module__]
        rows = kvcache.Layer(q_heads=c.num_attention_heads, head_dim=c.kv_lora_rank + c.qk_rope_head_dim,
                             latent_dim=c.kv_lora_rank, scale=(c.qk_nope_head_dim + c.qk_rope_head_dim) ** -0.5)
        keys = kvcache.Layer(q_heads=c.index_n_heads, head_dim=c.index_head_dim, keys_only=True)
        self.cache = kvcache.Cache([rows, keys] * c.num_hidden_layers, [kvcache.Full(row="latent")], page_size=4,
                                   capacity_tokens=400, max_tree_nodes=8)
        for index, layer in enumerate(self.model.model.layers):
            layer.self_attn.forward = functools.partial(self.attend, layer.self_attn, index)

    def run(self, sequences, tokens, parents=None):
        """Logits of the new tokens of each sequence."""
        lengths = [len(t) for t in tokens]
        with torch.no_grad(), self.cache.forward(sequences, lengths, parents=parents) as self.step:
            positions = torch.tensor(self.step.positions, dtype=torch.long)[None]
            ids = torch.cat(tokens)[None]
            return self.model(ids, position_ids=positions, use_cache=False).logits[0].split(lengths)

    def select(self, indexer, layer, hidden, residual, rotation):
        def rotated(x):
            rotary, rest = x.split([c.qk_rope_head_dim, c.index_head_dim - c.qk_rope_head_dim], dim=-1)
            return torch.cat([rotate(rotary, rotary, *rotation, unsqueeze_dim=2)[0], rest], dim=-1)[0]

        c = self.config
        interleaved = c.model_type == "glm_moe_dsa"
        rotate = self.code.apply_rotary_pos_emb_interleave if interleaved else self.code.apply_rotary_pos_emb
        q = indexer.wq_b(residual).unflatten(-1, (c.index_n_heads, c.index_head_dim))
        self.step.append(2 * layer + 1, rotated(indexer.k_norm(indexer.wk(hidden)).unsqueeze(2)))
        weights = indexer.weights_proj(hidden)[0].float()
        return self.step.select(2 * layer + 1, rotated(q), c.index_topk, weights)

    def attend(self, module, layer, hidden_states, position_embeddings, prev_topk_indices=None, **_):
        c, hidden = self.config, hidden_states
        residual = module.q_a_layernorm(module.q_a_proj(hidden))
        q = module.q_b_proj(residual).unflatten(-1, (c.num_attention_heads, -1))
        q_nope, q_rotary = q.split([c.qk_nope_head_dim, c.qk_rope_head_dim], dim=-1)
        latent, k_rotary = module.kv_a_proj_with_mqa(hidden).split([c.kv_lora_rank, c.qk_rope_head_dim], dim=-1)
        rotation = position_embeddings
        q_rotary, k_rotary = self.code.apply_rotary_pos_emb_interleave(q_rotary, k_rotary.unsqueeze(2), *rotation,
                                                                       unsqueeze_dim=2)
        indexer = getattr(module, "indexer", None)
        if indexer is not None:
            indices = self.select(indexer, layer, hidden, residual, rotation)
        else:
            indices = prev_topk_indices
            self.step.append(2 * layer + 1, torch.zeros(hidden.shape[1], 1, c.index_head_dim))
        up = module.kv_b_proj.weight.view(c.num_attention_heads, c.qk_nope_head_dim + c.v_head_dim, c.kv_lora_rank)
        out = self.step.attend(
            2 * layer, torch.cat([q_nope, q_rotary], dim=-1)[0].contiguous(),
            torch.cat([module.kv_a_layernorm(latent).unsqueeze(2), k_rotary], dim=-1)[0].contiguous(),
            w_uk=up[:, :c.qk_nope_head_dim], w_uv=up[:, c.qk_nope_head_dim:], indices=indices)
        attended = module.o_proj(out.flatten(1))[None], None
        return attended if c.model_type == "deepseek_v32" else (*attended, indices)


@pytest.fixture(scope="module", params=["deepseek_v32", "glm_moe_dsa"])
def model(request):
    torch.manual_seed(3)
    config = small_config(request.param)
    if request.param == "glm_moe_dsa":
        config.indexer_types = ["full", "shared", "full", "shared"]
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def draw(n):
    return torch.randint(3, 90, (n,))


def expect(model, tokens, logits, compared):
    """The last `compared` logits of a sequence with these tokens."""
    with torch.no_grad():
        stock = model(tokens[None], use_cache=False).logits[0, -compared:]
    error = ((logits - stock).abs().max() / stock.abs().max()).item()
    assert error < TOLERANCE, error


def test_chunks_unlike_lengths_and_decoding(model):
    paged = PagedIndexer(model)
    tokens = [draw(50), draw(24), draw(14)]
    sequences = paged.cache.add(3)
    done = [0, 0, 0]
    for lengths in ([20, 9, 1], [13, 3, 1], [1, 1, 1], [12, 1, 1], *[[1, 1, 1]] * 3, [1, 7, 0]):
        running = [i for i in range(3) if lengths[i] > 0]
        pieces = [tokens[i][done[i] : done[i] + lengths[i]] for i in running]
        logits = paged.run([sequences[i] for i in running], pieces)
        for i, of_row in zip(running, logits, strict=True):
            done[i] += lengths[i]
            expect(model, tokens[i][: done[i]], of_row, lengths[i])


def test_forks_truncations_and_rejected_drafts(model):
    paged = PagedIndexer(model)
    prompt = draw(30)
    first = paged.cache.add()
    paged.run([first], [prompt])
    second = paged.cache.fork(first)
    ends = [draw(5), draw(5)]
    logits = paged.run([first, second], ends)
    for end, of_row in zip(ends, logits, strict=True):
        expect(model, torch.cat([prompt, end]), of_row, 5)
    paged.cache.truncate(first, 17)
    end = draw(6)
    expect(model, torch.cat([prompt[:17], end]), paged.run([first], [end])[0], 6)
    # Two drafts of three tokens after the same token. The second one is kept.
    drafts, start = draw(7), torch.cat([prompt, ends[1]])
    logits = paged.run([second], [drafts], parents=[[-1, 0, 1, 2, 0, 4, 5]])[0]
    expect(model, torch.cat([start, drafts[:4]]), logits[:4], 4)
    expect(model, torch.cat([start, drafts[:1], drafts[4:]]), logits[4:], 3)
    paged.cache.commit(second, 6)
    end, start = draw(2), torch.cat([start, drafts[:1], drafts[4:]])
    expect(model, torch.cat([start, end]), paged.run([second], [end])[0], 2)


def test_the_lists_matter(model):
    """The expected logits are not those of attention over all keys."""
    paged = PagedIndexer(model)
    paged.config = copy.copy(paged.config)
    paged.config.index_topk = 60
    tokens = draw(40)
    with pytest.raises(AssertionError):
        expect(model, tokens, paged.run([paged.cache.add()], [tokens])[0], 40)
