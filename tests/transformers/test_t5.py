"""T5, mT5 and umT5: their decoders with the library's cache and attention, against the stock models.

A relative bias in every self-attention, an encoder sequence of its own for each row, scores without a scale.
"""

import pytest
import torch
import transformers

import kvcache

HEADS, DIM, LAYERS = 3, 8, 3
SIZES = dict(vocab_size=61, d_model=24, d_kv=DIM, d_ff=40, num_layers=2, num_decoder_layers=LAYERS, num_heads=HEADS,
             dropout_rate=0.0, initializer_factor=1.0, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
MODELS = {"t5": (transformers.T5Config, transformers.T5ForConditionalGeneration),
          "mt5": (transformers.MT5Config, transformers.MT5ForConditionalGeneration),
          "umt5": (transformers.UMT5Config, transformers.UMT5ForConditionalGeneration)}


@pytest.fixture(params=sorted(MODELS))
def model(request):
    config, architecture = MODELS[request.param]
    torch.manual_seed(5)
    return architecture(config(**SIZES)).eval()


class Decoder:
    """The decoder of a model over pages. Layer 2 i is the self-attention of block i, and layer 2 i + 1 its cross-attention."""

    def __init__(self, model):
        shape = dict(q_heads=HEADS, kv_heads=HEADS, head_dim=DIM)
        layers = [kvcache.Layer(group=group, **shape) for _ in range(LAYERS) for group in (0, 1)]
        self.cache = kvcache.Cache(layers, [kvcache.Full(), kvcache.Cross()], page_size=16, capacity_tokens=4096)
        self.model, self.blocks = model, model.decoder.block
        tables = [self.table(block.layer[0].SelfAttention) for block in self.blocks]
        self.tables = [tables[0] if table is None else table for table in tables]  # T5: the first block's in all of them

    @staticmethod
    def table(attention):
        """The bias of each head by distance: that of the last of E queries to each key."""
        if not attention.has_relative_attention_bias:
            return None
        distances = attention.relative_attention_max_distance + 1
        return attention.compute_bias(distances, distances)[0, :, -1].flip(-1).contiguous()

    def add(self, encoder_output):
        """A sequence over an encoder's output, [tokens, d_model]."""
        sequence = self.cache.add()
        with self.cache.forward([sequence], [len(encoder_output)], encoder_group=1) as step:
            for i, block in enumerate(self.blocks):
                attention = block.layer[1].EncDecAttention
                step.append(2 * i + 1, self.heads(attention.k(encoder_output)), self.heads(attention.v(encoder_output)))
        return sequence

    @staticmethod
    def heads(rows):
        return rows.view(len(rows), HEADS, DIM)

    def step(self, sequences, tokens):
        """Logits of all new tokens, [T, vocabulary]. tokens: those of each sequence."""
        hidden = self.model.decoder.embed_tokens(torch.cat(tokens))
        with self.cache.forward(sequences, [len(ids) for ids in tokens]) as step:
            for i, block in enumerate(self.blocks):
                own, cross, feed = block.layer
                attention, x = own.SelfAttention, own.layer_norm(hidden)
                out = step.attend(2 * i, *(self.heads(project(x)) for project in (attention.q, attention.k, attention.v)),
                                  rel_bias=self.tables[i], softmax_scale=1.0)
                hidden = hidden + attention.o(out.flatten(1))
                attention = cross.EncDecAttention
                out = step.attend(2 * i + 1, self.heads(attention.q(cross.layer_norm(hidden))), softmax_scale=1.0)
                hidden = feed(hidden + attention.o(out.flatten(1)))
        hidden = self.model.decoder.final_layer_norm(hidden)
        if not isinstance(self.model, transformers.MT5ForConditionalGeneration):
            hidden = hidden * self.model.config.d_model**-0.5
        return self.model.lm_head(hidden)


@torch.no_grad()
def test_decoders(model):
    """Prompts beyond the last bucket in chunks, ragged rows, single steps, a fork, and rejected tokens."""
    random = torch.Generator().manual_seed(7)
    sources = [torch.randint(2, 61, (n,), generator=random) for n in (9, 23)]
    texts = [torch.randint(2, 61, (n,), generator=random) for n in (150, 12)]
    encoded = [model.encoder(source[None]).last_hidden_state for source in sources]

    def stock(row, ids):
        return model(encoder_outputs=(encoded[row],), decoder_input_ids=ids[None], use_cache=False).logits[0]

    expected = [stock(row, text) for row, text in enumerate(texts)]
    worst = 0.0

    def compare(got, wanted):
        nonlocal worst
        worst = max(worst, ((got - wanted).abs().max() / wanted.abs().max()).item())

    decoder = Decoder(model)
    a, b = (decoder.add(encoder_output[0]) for encoder_output in encoded)
    begin = 0
    for end in (100, 137, 138):  # the first row in chunks
        compare(decoder.step([a], [texts[0][begin:end]]), expected[0][begin:end])
        begin = end
    got = decoder.step([a, b], [texts[0][138:141], texts[1][:5]])  # both rows, of unlike lengths
    compare(got[:3], expected[0][138:141])
    compare(got[3:], expected[1][:5])
    for i in range(7):
        got = decoder.step([b, a], [texts[1][5 + i : 6 + i], texts[0][141 + i : 142 + i]])
        compare(got[:1], expected[1][5 + i : 6 + i])
        compare(got[1:], expected[0][141 + i : 142 + i])
    child = decoder.cache.fork(a, 120)  # drafts on a fork, and the last of them dropped
    draft = torch.randint(2, 61, (9,), generator=random)
    decoder.step([child], [draft])
    decoder.cache.truncate(child, 124)
    other = torch.cat([texts[0][:120], draft[:4], texts[1][:3]])
    compare(decoder.step([child], [texts[1][:3]]), stock(0, other)[124:])
    assert worst < 1e-4, worst
    print(f"{type(model).__name__}: {worst:.1e} of the largest logit")


@torch.no_grad()
def test_the_bias_matters(model):
    """Without the relative bias, the logits differ: the comparison can fail."""
    encoded = model.encoder(torch.arange(2, 12)[None]).last_hidden_state
    ids = torch.arange(3, 23)
    expected = model(encoder_outputs=(encoded,), decoder_input_ids=ids[None], use_cache=False).logits[0]
    decoder = Decoder(model)
    decoder.tables = [torch.zeros_like(table) for table in decoder.tables]
    got = decoder.step([decoder.add(encoded[0])], [ids])
    assert (got - expected).abs().max() > 1e-2 * expected.abs().max()
