"""PyTorch tensors without conversion. The test needs torch, so only scripts that install it name this file."""

import numpy as np
import pytest
import torch

import kvcache
from reference import DenseLayer


@pytest.fixture
def step():
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16)] * 8, capacity_tokens=64) as cache:
        with cache.forward([cache.add()], [3]) as step:
            yield step
            step.abort()


def tensors(qkv, dtype=torch.float32):
    return tuple(torch.from_numpy(x).to(dtype) for x in qkv(3, 2, 1, 16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_in_and_out(step, qkv, dtype):
    q, k, v = tensors(qkv, dtype)
    expected, expected_lse = DenseLayer().step([0], [3], *(x.float().numpy() for x in (q, k, v)))
    out, lse = step.attend(0, q, k, v, lse=True)
    assert type(out) is torch.Tensor and out.dtype == dtype and lse.dtype == torch.float32
    tolerance = 2e-5 if dtype == torch.float32 else 3e-2
    np.testing.assert_allclose(out.float().numpy(), expected, atol=tolerance)
    np.testing.assert_allclose(lse.numpy(), expected_lse, atol=tolerance)
    given = torch.zeros_like(out)
    assert step.attend(1, q, k, v, out=given) is given
    assert torch.equal(given, out)
    with torch.inference_mode():
        assert torch.equal(step.attend(2, *(x.clone() for x in (q, k, v))), out)


def test_views_and_parameters(step, qkv):
    q, k, v = tensors(qkv)
    expected = step.attend(0, q, k, v)
    packed = torch.cat([q, k, v], dim=1)
    assert torch.equal(step.attend(1, packed[:, :2], packed[:, 2:3], packed[:, 3:]), expected)
    assert torch.equal(step.attend(2, torch.nn.Parameter(q, requires_grad=False), k, v), expected)
    with pytest.raises(kvcache.Stride):
        step.attend(3, q.repeat(1, 1, 2)[..., ::2], k, v)
    with pytest.raises(kvcache.Rank):
        step.attend(3, q[0], k, v)
    with pytest.raises(kvcache.DType):
        step.attend(3, q.double(), k, v)


def test_gradients_are_not_lost_silently(step, qkv):
    q, k, v = tensors(qkv)
    with pytest.raises(kvcache.InvalidArgument, match="out.*gradient"):
        step.attend(0, q, k, v, out=torch.zeros_like(q, requires_grad=True))
    q.requires_grad = True
    with pytest.raises(kvcache.InvalidArgument, match="q.*gradient"):
        step.attend(0, q, k, v)
    with torch.no_grad():
        step.attend(0, q * 2, k, v)


def test_parameters_where_no_gradient_is_recorded(step, qkv):
    q, k, v = tensors(qkv)
    expected = step.attend(0, q, k, v)
    parameters = [torch.nn.Parameter(x) for x in (q, k, v)]
    with pytest.raises(RuntimeError, match="q.*gradient"):  # what callers of FlashAttention catch
        step.attend(1, *parameters)
    out = torch.nn.Parameter(torch.zeros_like(expected))
    with torch.no_grad():
        assert torch.equal(step.attend(1, *parameters), expected)
        assert step.attend(2, *parameters, out=out) is out
    assert torch.equal(out, expected)
    with torch.inference_mode():
        assert torch.equal(step.attend(3, *parameters), expected)


def test_compiled_calls_without_a_context(rng):
    """torch.compile breaks its graph at each call, and compiles what follows it. The first call of a process may be compiled
    too."""
    q, new, pool = (torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
                    for shape in [(2, 1, 4, 32), (2, 2, 32), (6, 16, 2, 32)])
    lengths, table = torch.tensor([17, 30], dtype=torch.int32), torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    slots = torch.tensor([17, 3 * 16 + 14])

    def program(q, pool, new):
        kvcache.append_slots(new * 1, new * 2, pool, pool * 1, slots)
        out, lse = kvcache.flash_attn_with_kvcache(q * 2, pool, pool, cache_seqlens=lengths + 1, block_table=table, causal=True,
                                                   return_softmax_lse=True)
        return out * 3, lse

    with torch.no_grad():
        stored = pool.clone()
        compiled = torch.compile(program, backend="eager")(q, stored, new)
        expected = program(q, pool, new)
    assert torch.equal(stored, pool) and torch.equal(pool[1, 1], new[0])
    assert torch.equal(compiled[0], expected[0]) and torch.equal(compiled[1], expected[1])


def test_pools_exports_and_storage(qkv):
    q, k, v = tensors(qkv, torch.bfloat16)
    memory = torch.zeros(4, 2, 1, 16, 16, dtype=torch.bfloat16)
    layer = kvcache.Layer(q_heads=2, head_dim=16, dtype=torch.bfloat16, kv_storage=memory)
    with kvcache.Cache([layer], [kvcache.Full(pages=4)]) as cache:
        a = cache.add()
        with cache.forward([a], [3]) as step:
            step.attend(0, q, k, v)
        pool = torch.from_dlpack(cache.layer_pool(0, writable=True))
        assert pool.data_ptr() == memory.data_ptr() and pool.dtype == torch.bfloat16
        page = int(cache.pages(a)[0])
        assert torch.equal(memory[page, 0, :, :3], k.transpose(0, 1))
        exported_k, exported_v = (torch.from_dlpack(x) for x in cache.export(a, 0))
        assert torch.equal(exported_k, k) and torch.equal(exported_v, v)
        b = cache.add()
        cache.import_(b, [exported_k], [exported_v], as_stored=True)
        assert cache.length(b) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attn_with_kvcache_like_sdpa(rng, dtype, causal):
    """Compares with PyTorch's own attention. The caches are appended in place."""
    def new(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype)

    q, k, v, k_cache, v_cache = new(2, 5, 4, 32), new(2, 5, 2, 32), new(2, 5, 2, 32), new(2, 30, 2, 32), new(2, 30, 2, 32)
    lengths = torch.tensor([25, 11], dtype=torch.int32)
    with torch.no_grad():
        out, lse = kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=causal,
                                                   return_softmax_lse=True)
    assert type(out) is torch.Tensor and out.dtype == dtype and lse.shape == (2, 4, 5)
    for row, length in enumerate([30, 16]):
        assert torch.equal(k_cache[row, length - 5:length], k[row])
        mask = torch.ones(5, length, dtype=torch.bool).tril(length - 5) if causal else None
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(x.float().transpose(0, 1)[None] for x in (q[row], k_cache[row, :length], v_cache[row, :length])),
            attn_mask=mask, enable_gqa=True)
        torch.testing.assert_close(out[row].float(), expected[0].transpose(0, 1), atol=2e-2 if dtype != torch.float32 else 2e-5,
                                   rtol=0)


def test_flash_attn_with_kvcache_paged_float8(rng):
    q = torch.from_numpy(rng.standard_normal((2, 1, 4, 16)).astype(np.float32)).to(torch.bfloat16)
    pool = torch.from_numpy(rng.standard_normal((6, 4, 2, 16)).astype(np.float32))
    table = torch.tensor([[5, 1, -1], [0, 2, 4]], dtype=torch.int32)
    out = kvcache.flash_attn_with_kvcache(q, pool.to(torch.bfloat16), pool.to(torch.bfloat16), page_table=table,
                                          cache_seqlens=torch.tensor([7, 12], dtype=torch.int32))
    stored = pool.to(torch.float8_e4m3fn)
    quantised = kvcache.flash_attn_with_kvcache(
        q, stored.view(torch.uint8), stored.view(torch.uint8), page_table=table, dtype="float8_e4m3fn",
        cache_seqlens=torch.tensor([7, 12], dtype=torch.int32), k_descale=torch.ones(2, 2), v_descale=torch.ones(2, 2))
    assert quantised.dtype == torch.bfloat16
    torch.testing.assert_close(out, quantised, atol=0.2, rtol=0)
