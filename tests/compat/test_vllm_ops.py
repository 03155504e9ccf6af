"""kvcache.compat.vllm_ops, against what PyTorch computes."""

import pytest
import torch

import kvcache
from kvcache.compat import vllm_ops

PAGES, PAGE, HEADS, DIM = 5, 4, 2, 32
SLOTS = torch.tensor([7, -1, 0, 19, 12])


def rows(dtype=torch.float32, tokens=5):
    generator = torch.Generator().manual_seed(1)
    return tuple((3 * torch.randn(tokens, HEADS, DIM, generator=generator)).to(dtype) for _ in "kv")


def test_flash_layout():
    key, value = rows(tokens=7)  # two rows of padding
    k, v = torch.zeros(PAGES, PAGE, HEADS, DIM), torch.zeros(PAGES, PAGE, HEADS, DIM)
    vllm_ops.reshape_and_cache_flash(key, value, k, v, SLOTS, "auto", torch.tensor(1.0), torch.tensor(1.0))
    for got, given in ((k, key), (v, value)):
        expected = torch.zeros(PAGES * PAGE, HEADS, DIM)
        expected[SLOTS[SLOTS >= 0]] = given[:5][SLOTS >= 0]
        assert torch.equal(got.flatten(0, 1), expected)


@pytest.mark.parametrize(("name", "dtype"), [("fp8", torch.float8_e4m3fn), ("fp8_e5m2", torch.float8_e5m2)])
@pytest.mark.parametrize("grouped", [False, True])
def test_fp8(name, dtype, grouped):
    key, value = rows(torch.bfloat16)
    scales = torch.tensor(0.25), torch.tensor(2.0)
    wanted = [(row.float() / scale).to(dtype).view(torch.uint8) for row, scale in zip((key, value), scales, strict=True)]
    used = SLOTS >= 0
    if grouped:
        k, v = torch.zeros(PAGES, HEADS, DIM // 16, PAGE, 16, dtype=torch.uint8), torch.zeros(PAGES, HEADS, DIM, PAGE,
                                                                                              dtype=torch.uint8)
        vllm_ops.reshape_and_cache(key, value, k, v, SLOTS, name, *scales)
        k, v = k.permute(0, 3, 1, 2, 4).reshape(PAGES * PAGE, HEADS, DIM), v.permute(0, 3, 1, 2).reshape(PAGES * PAGE, HEADS, DIM)
    else:
        k, v = (torch.zeros(PAGES, PAGE, HEADS, DIM, dtype=torch.uint8) for _ in "kv")
        vllm_ops.reshape_and_cache_flash(key, value, k, v, SLOTS, name, *scales)
        k, v = k.flatten(0, 1), v.flatten(0, 1)
    for got, expected in ((k, wanted[0]), (v, wanted[1])):
        assert torch.equal(got[SLOTS[used]], expected[used])
        assert got.any(-1).any(-1).sum() == used.sum()


def test_grouped_layout():
    key, value = rows()
    k, v = torch.zeros(PAGES, HEADS, DIM // 4, PAGE, 4), torch.zeros(PAGES, HEADS, DIM, PAGE)
    vllm_ops.reshape_and_cache(key, value, k, v, SLOTS, "auto", 1.0, 1.0)
    for token, slot in enumerate(SLOTS.tolist()):
        if slot >= 0:
            assert torch.equal(k[slot // PAGE, :, :, slot % PAGE].flatten(1), key[token])
            assert torch.equal(v[slot // PAGE, :, :, slot % PAGE], value[token])
    before = k.clone()
    with pytest.raises(kvcache.OutOfRange, match="slot 20 of token 1"):
        vllm_ops.reshape_and_cache(key, value, k, v, torch.tensor([1, 20, -1, -1, -1]), "auto", 1.0, 1.0)
    with pytest.raises(kvcache.Shape, match=r"key \[5, 2, 32\]"):
        vllm_ops.reshape_and_cache(key, value, k[:, :1], v, SLOTS, "auto", 1.0, 1.0)
    with pytest.raises(kvcache.Unsupported, match="'int8'"):
        vllm_ops.reshape_and_cache(key, value, k, v, SLOTS, "int8", 1.0, 1.0)
    assert torch.equal(k, before)


def test_mla():
    generator = torch.Generator().manual_seed(4)
    latent, rotary = torch.randn(5, 64, generator=generator), torch.randn(5, 1, 16, generator=generator)
    cache = torch.zeros(PAGES, PAGE, 80)
    vllm_ops.concat_and_cache_mla(latent, rotary, cache, SLOTS, "auto", torch.tensor(1.0))
    expected = torch.zeros(PAGES * PAGE, 80)
    expected[SLOTS[SLOTS >= 0]] = torch.cat([latent, rotary[:, 0]], 1)[SLOTS >= 0]
    assert torch.equal(cache.flatten(0, 1), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_merge(dtype):
    generator = torch.Generator().manual_seed(6)
    outs = [torch.randn(6, HEADS, DIM, generator=generator).to(dtype) for _ in range(2)]
    lses = [torch.randn(HEADS, 6, generator=generator) for _ in range(2)]
    lses[0][1, 2] = torch.inf  # vLLM: this part saw nothing
    lses[1][0, 3] = -torch.inf
    output, output_lse = torch.empty_like(outs[0]), torch.empty(HEADS, 6)
    vllm_ops.merge_attn_states(output, outs[0], lses[0], outs[1], lses[1], output_lse)
    logits = torch.stack([torch.where(torch.isposinf(lse), -torch.inf, lse) for lse in lses]).double()
    weights = torch.softmax(logits, 0).transpose(1, 2)[..., None]
    expected = weights[0] * outs[0].double() + weights[1] * outs[1].double()
    limit = {torch.float32: 1e-6, torch.bfloat16: 0.02, torch.float16: 0.003}[dtype]
    assert (output.double() - expected).abs().max() <= limit
    assert (output_lse.double() - logits.logsumexp(0)).abs().max() <= 1e-6
