"""kvcache.compat.flash_attn and flash_attn_interface, against attention in float64 and against FlashAttention's signatures."""

import inspect

import pytest
import torch

import kvcache
from kvcache.compat import flash_attn as fa2
from kvcache.compat import flash_attn_interface as fa3
from float64_attention import assert_close, attend


def tensors(*shapes):
    generator = torch.Generator().manual_seed(7)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


# The arguments of FlashAttention 2.8 and 3, which callers may give by position.
FA2 = {
    "flash_attn_func": "q k v dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs",
    "flash_attn_kvpacked_func": "q kv dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic "
                                "return_attn_probs",
    "flash_attn_qkvpacked_func": "qkv dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic "
                                 "return_attn_probs",
    "flash_attn_varlen_func": "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p softmax_scale causal "
                              "window_size softcap alibi_slopes deterministic return_attn_probs block_table",
    "flash_attn_varlen_kvpacked_func": "q kv cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p softmax_scale causal "
                                       "window_size softcap alibi_slopes deterministic return_attn_probs",
    "flash_attn_varlen_qkvpacked_func": "qkv cu_seqlens max_seqlen dropout_p softmax_scale causal window_size softcap "
                                        "alibi_slopes deterministic return_attn_probs",
    "flash_attn_with_kvcache": "q k_cache v_cache k v rotary_cos rotary_sin cache_seqlens cache_batch_idx cache_leftpad "
                               "block_table softmax_scale causal window_size softcap rotary_interleaved alibi_slopes num_splits "
                               "return_softmax_lse",
}
FA3 = {
    "flash_attn_func": "q k v softmax_scale causal qv q_descale k_descale v_descale window_size attention_chunk softcap "
                       "num_splits pack_gqa deterministic sm_margin return_attn_probs",
    "flash_attn_varlen_func": "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k seqused_q seqused_k softmax_scale causal "
                              "qv q_descale k_descale v_descale window_size attention_chunk softcap num_splits pack_gqa "
                              "deterministic sm_margin return_attn_probs",
    "flash_attn_with_kvcache": "q k_cache v_cache k v qv rotary_cos rotary_sin cache_seqlens cache_batch_idx cache_leftpad "
                               "page_table cu_seqlens_q cu_seqlens_k_new max_seqlen_q rotary_seqlens q_descale k_descale "
                               "v_descale softmax_scale causal window_size attention_chunk softcap rotary_interleaved "
                               "scheduler_metadata num_splits pack_gqa sm_margin return_softmax_lse",
}


@pytest.mark.parametrize(("module", "name", "arguments"), [(m, *item) for m, names in ((fa2, FA2), (fa3, FA3))
                                                           for item in names.items()])
def test_signature(module, name, arguments):
    assert list(inspect.signature(getattr(module, name)).parameters) == arguments.split()


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (3, 2)}, {"causal": True, "softcap": 5.0},
                                     {"softmax_scale": 0.3, "window_size": (4, -1)}])
@pytest.mark.parametrize("module", [fa2, fa3])
def test_dense(module, options):
    q, k, v = tensors((2, 5, 6, 32), (2, 9, 2, 32), (2, 9, 2, 32))
    result = module.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    out, lse = result[:2]
    assert torch.equal(module.flash_attn_func(q, k, v, **options), out)
    wanted = {"window" if name == "window_size" else "scale" if name == "softmax_scale" else name: value
              for name, value in options.items()}
    for row in range(2):
        expected, expected_lse = attend(q[row], k[row], v[row], **wanted)
        assert_close(out[row], expected)
        assert_close(lse[row].t(), expected_lse)


def test_alibi_and_packed_forms():
    qkv, slopes = tensors((2, 7, 3, 4, 16))[0], torch.tensor([0.5, 0.25, 0.125, 0.0625])
    q, k, v = qkv.unbind(2)
    out = fa2.flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes)
    assert_close(out[1], attend(q[1], k[1], v[1], causal=True, slopes=slopes)[0])
    assert torch.equal(fa2.flash_attn_qkvpacked_func(qkv, causal=True, alibi_slopes=slopes), out)
    assert torch.equal(fa2.flash_attn_kvpacked_func(q, qkv[:, :, 1:], causal=True, alibi_slopes=slopes), out)
    assert torch.equal(fa3.flash_attn_qkvpacked_func(qkv), fa3.flash_attn_func(q, k, v))
    joined = torch.cat([q, k[:, :, :2], v[:, :, :2]], 2)
    assert torch.equal(fa3.flash_attn_qkvpacked_func(joined, num_heads_q=4), fa3.flash_attn_func(q, k[:, :, :2], v[:, :, :2]))
    with pytest.raises(kvcache.Shape, match="8 heads and num_heads_q is 3"):
        fa3.flash_attn_qkvpacked_func(joined, num_heads_q=3)


QUERIES, KEYS = [3, 0, 1, 6], [5, 4, 0, 6]


def packed():
    q, k, v = tensors((sum(QUERIES), 4, 32), (sum(KEYS), 2, 32), (sum(KEYS), 2, 32))
    cu_q, cu_k = (torch.tensor([0, *lengths]).cumsum(0).to(torch.int32) for lengths in (QUERIES, KEYS))
    return q, k, v, cu_q, cu_k


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("module", [fa2, fa3])
def test_packed(module, causal):
    q, k, v, cu_q, cu_k = packed()
    out, lse = module.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 6, 6, causal=causal, return_attn_probs=True)[:2]
    for row in range(4):
        of_q, of_k = slice(cu_q[row], cu_q[row + 1]), slice(cu_k[row], cu_k[row + 1])
        expected, expected_lse = attend(q[of_q], k[of_k], v[of_k], causal=causal)
        assert_close(out[of_q], expected)
        assert_close(lse.t()[of_q], expected_lse)


def test_packed_forms_and_pages():
    q, k, v, cu_q, cu_k = packed()
    out = fa2.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 6, 6, causal=True)
    assert torch.equal(fa2.flash_attn_varlen_kvpacked_func(q, torch.stack([k, v], 1), cu_q, cu_k, 6, 6, causal=True), out)
    qkv = tensors((9, 3, 2, 16))[0]
    cu = torch.tensor([0, 4, 9], dtype=torch.int32)
    assert torch.equal(fa2.flash_attn_varlen_qkvpacked_func(qkv, cu, 5, causal=True),
                       fa2.flash_attn_varlen_func(*qkv.unbind(1), cu, cu, 5, 5, causal=True))
    # Pages of two tokens, in an order of their own.
    pools = torch.zeros(2, 12, 2, 2, 32)
    table, free = torch.full((4, 3), -1, dtype=torch.int32), [5, 0, 7, 3, 11, 2, 9, 1]
    for row in range(4):
        for page in range(-(-KEYS[row] // 2)):
            table[row, page] = free.pop()
            tokens = slice(int(cu_k[row]) + 2 * page, min(int(cu_k[row]) + 2 * page + 2, int(cu_k[row + 1])))
            for pool, rows in zip(pools, (k, v), strict=True):
                pool[table[row, page], : tokens.stop - tokens.start] = rows[tokens]
    paged = fa2.flash_attn_varlen_func(q, *pools, cu_q, cu_k, 6, 6, causal=True, block_table=table)
    assert_close(paged, out)


def test_used_lengths():
    q, k, v, cu_q, cu_k = packed()
    used_q, used_k = torch.tensor([2, 0, 1, 4], dtype=torch.int32), torch.tensor([3, 2, 0, 5], dtype=torch.int32)
    out, lse = fa3.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 6, 6, used_q, used_k, causal=True, return_attn_probs=True)
    for row in range(4):
        of_q = slice(int(cu_q[row]), int(cu_q[row] + used_q[row]))
        of_k = slice(int(cu_k[row]), int(cu_k[row] + used_k[row]))
        expected, expected_lse = attend(q[of_q], k[of_k], v[of_k], causal=True)
        assert_close(out[of_q], expected)
        assert_close(lse.t()[of_q], expected_lse)
        unused = slice(of_q.stop, int(cu_q[row + 1]))
        assert not out[unused].any()
        assert torch.isneginf(lse.t()[unused]).all()


def test_with_kvcache_by_position():
    q, k_cache, v_cache, k, v = tensors((2, 1, 4, 16), (2, 8, 2, 16), (2, 8, 2, 16), (2, 1, 2, 16), (2, 1, 2, 16))
    lengths = torch.tensor([3, 5], dtype=torch.int64)
    copies = [(k_cache.clone(), v_cache.clone()) for _ in range(3)]
    expected = kvcache.flash_attn_with_kvcache(q, *copies[0], k, v, cache_seqlens=lengths, causal=True)
    assert torch.equal(fa2.flash_attn_with_kvcache(q, *copies[1], k, v, None, None, lengths, None, None, None, None, True), expected)
    assert torch.equal(fa3.flash_attn_with_kvcache(q, *copies[2], k, v, None, None, None, lengths, causal=True,
                                                   scheduler_metadata=fa3.get_scheduler_metadata(2, 1)), expected)
    assert torch.equal(copies[1][0], copies[0][0]) and torch.equal(copies[2][1], copies[0][1])


def test_combine():
    q, k, v = tensors((2, 3, 4, 16), (2, 10, 2, 16), (2, 10, 2, 16))
    parts = [fa3.flash_attn_func(q, k[:, keys], v[:, keys], return_attn_probs=True) for keys in (slice(0, 4), slice(4, 10))]
    partial = torch.stack([out for out, _ in parts])
    out, lse = fa3.flash_attn_combine(partial, torch.stack([lse.transpose(1, 2) for _, lse in parts]))
    whole, whole_lse = fa3.flash_attn_func(q, k, v, return_attn_probs=True)
    assert_close(out, whole)
    assert_close(lse, whole_lse.transpose(1, 2))
    into = torch.empty_like(whole)
    assert fa3.flash_attn_combine(partial, torch.stack([lse.transpose(1, 2) for _, lse in parts]), into)[0] is into
    assert_close(into, whole)


def test_refused():
    q, k, v = tensors((1, 2, 2, 16), (1, 2, 2, 16), (1, 2, 2, 16))
    with pytest.raises(kvcache.Unsupported, match=r"dropout_p is 0\.1"):
        fa2.flash_attn_func(q, k, v, 0.1)
    q.requires_grad_()
    with pytest.raises(kvcache.Unsupported, match="requires a gradient"):
        fa2.flash_attn_func(q, k, v)
    with torch.no_grad():  # a Parameter is welcome there
        out = fa2.flash_attn_func(torch.nn.Parameter(q), k, v)
    assert not out.requires_grad
