"""Decoding of one MLA layer by the plug-in, by vLLM's own backend and by a definition in float64."""
from types import SimpleNamespace

import pytest
import torch
from kvcache_vllm import mla
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLAImpl

PAGE, LATENT, ROTARY = 16, 512, 64
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 1.6e-2}


def make_layer(kind: type, heads: int):
    layer = kind.__new__(kind)  # the constructor takes projections, which these methods do not use
    layer.num_heads, layer.kv_lora_rank, layer.scale = heads, LATENT, (128 + ROTARY) ** -0.5
    return layer


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("as_pair", [True, False])
def test_decode_is_as_defined(dtype, as_pair):
    torch.manual_seed(3)
    lengths, heads = [1, 40, 333], 16
    pages = [-(-length // PAGE) for length in lengths]
    ids = torch.randperm(sum(pages), dtype=torch.int32)
    table = torch.zeros(len(lengths), max(pages), dtype=torch.int32)
    for row, part in enumerate(ids.split(pages)):
        table[row, :len(part)] = part
    latent = [torch.randn(length, LATENT).to(dtype) for length in lengths]
    rotary = [torch.randn(length, 1, ROTARY).to(dtype) for length in lengths]
    q_latent, q_rotary = torch.randn(3, heads, LATENT).to(dtype), torch.randn(3, heads, ROTARY).to(dtype)
    step = SimpleNamespace(decode=SimpleNamespace(block_table=table, seq_lens=torch.tensor(lengths, dtype=torch.int32)))

    outputs = {}
    for kind in (mla.KvcacheMlaImpl, CPUMLAImpl):
        layer = make_layer(kind, heads)
        cache = torch.zeros(len(ids), PAGE, LATENT + ROTARY, dtype=dtype)
        for row, length in enumerate(lengths):
            positions = torch.arange(length)
            slots = table[row].long()[positions // PAGE] * PAGE + positions % PAGE
            slots = torch.cat([slots, torch.tensor([-1])])  # padding
            layer.do_kv_cache_update(torch.cat([latent[row], latent[row][:1]]), torch.cat([rotary[row], rotary[row][:1]]),
                                     cache, slots, "auto", torch.tensor(1.0))
        q = (q_latent, q_rotary) if as_pair else torch.cat([q_latent, q_rotary], -1)
        outputs[kind], lse = layer.forward_mqa(q, cache, step, None)
        assert lse is None

    for row in range(len(lengths)):
        k = torch.cat([latent[row], rotary[row][:, 0]], -1).double()
        q = torch.cat([q_latent[row], q_rotary[row]], -1).double()
        defined = (q @ k.T * (128 + ROTARY) ** -0.5).softmax(-1) @ latent[row].double()
        assert float((outputs[mla.KvcacheMlaImpl][row].double() - defined).abs().max()) <= TOLERANCE[dtype]
        assert float((outputs[CPUMLAImpl][row].double() - defined).abs().max()) <= 2 * TOLERANCE[dtype]
