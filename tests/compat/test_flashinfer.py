"""kvcache.compat.flashinfer, against attention in float64."""

import math

import pytest
import torch

import kvcache
from kvcache.compat import flashinfer
from float64_attention import assert_close, attend

HEADS, KV_HEADS, DIM, PAGE = 4, 2, 32, 4
LENGTHS = [6, 1, 8, 11]


class Pages:
    """Rows of K and V in pages, in an order of their own, as CSR tables."""

    def __init__(self, layout="NHD", as_pair=False):
        generator = torch.Generator().manual_seed(3)
        self.layout = layout
        self.rows = [[torch.randn(n, KV_HEADS, DIM, generator=generator) for _ in "kv"] for n in LENGTHS]
        counts = [-(-n // PAGE) for n in LENGTHS]
        self.indptr = torch.tensor([0, *counts]).cumsum(0).to(torch.int32)
        self.indices = torch.randperm(16, generator=generator)[: sum(counts)].to(torch.int32)
        self.last = torch.tensor([(n - 1) % PAGE + 1 for n in LENGTHS], dtype=torch.int32)
        pools = torch.zeros(16, 2, PAGE, KV_HEADS, DIM)
        self.cache = pools.transpose(2, 3).contiguous() if layout == "HND" else pools
        if as_pair:
            self.cache = tuple(part.clone() for part in self.cache.unbind(1))

    def fill(self):
        k, v = (torch.cat([row[part] for row in self.rows]) for part in (0, 1))
        cu = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)
        lengths = flashinfer.get_seq_lens(self.indptr, self.last, PAGE)
        assert lengths.tolist() == LENGTHS
        batch, positions = flashinfer.get_batch_indices_positions(cu, lengths, len(k))
        assert batch.tolist() == [b for b, n in enumerate(LENGTHS) for _ in range(n)]
        assert positions.tolist() == [p for n in LENGTHS for p in range(n)]
        flashinfer.append_paged_kv_cache(k, v, batch, positions, self.cache, self.indices, self.indptr, self.last, self.layout)
        return self


def queries(counts, seed=5):
    q = torch.randn(sum(counts), HEADS, DIM, generator=torch.Generator().manual_seed(seed))
    return q, torch.tensor([0, *counts]).cumsum(0).to(torch.int32)


@pytest.mark.parametrize(("layout", "as_pair"), [("NHD", False), ("HND", False), ("NHD", True), ("HND", True)])
def test_decode(layout, as_pair):
    pages = Pages(layout, as_pair).fill()
    q, _ = queries([1] * 4)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(1), layout)
    with pytest.raises(kvcache.Order, match="call plan first"):
        wrapper.run(q, pages.cache)
    wrapper.plan(pages.indptr, pages.indices, pages.last, HEADS, KV_HEADS, DIM, PAGE, window_left=4, logits_soft_cap=3.0,
                 q_data_type=torch.float32)
    out, lse = wrapper.run(q, pages.cache, return_lse=True)
    for row, (k, v) in enumerate(pages.rows):
        expected, expected_lse = attend(q[row:row + 1], k, v, causal=True, window=(4, -1), softcap=3.0)
        assert_close(out[row:row + 1], expected)
        assert_close(lse[row:row + 1], expected_lse / math.log(2))
    assert torch.equal(wrapper.run_return_lse(q, pages.cache)[1], lse)
    into = torch.empty_like(out)
    assert wrapper.run(q, pages.cache, out=into) is into
    assert torch.equal(into, out)


def test_decode_scales_sinks_and_alibi():
    pages = Pages().fill()
    q, _ = queries([1] * 4)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper()
    wrapper.plan(pages.indptr, pages.indices, pages.last, HEADS, KV_HEADS, DIM, PAGE)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    out = wrapper.run(q, pages.cache, q_scale=0.5, k_scale=3.0, v_scale=2.0, sinks=sinks)
    expected = attend(q[3:], *pages.rows[3], scale=DIM**-0.5 * 1.5, sinks=sinks)[0]
    assert_close(out[3:], 2 * expected)
    wrapper.plan(pages.indptr, pages.indices, pages.last, HEADS, KV_HEADS, DIM, PAGE, "ALIBI")
    slopes = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625])
    assert torch.equal(flashinfer.get_alibi_slopes(4), slopes)
    assert_close(wrapper.run(q, pages.cache)[2:3], attend(q[2:3], *pages.rows[2], slopes=slopes, signed=True)[0])
    assert flashinfer.get_alibi_slopes(6).tolist() == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])


@pytest.mark.parametrize("causal", [False, True])
def test_prefill(causal):
    pages = Pages("HND").fill()
    counts = [3, 1, 0, 5]
    q, indptr = queries(counts)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(torch.empty(1), "HND")
    wrapper.plan(indptr, pages.indptr, pages.indices, pages.last, HEADS, KV_HEADS, DIM, PAGE, causal=causal, sm_scale=0.2)
    out, lse = wrapper.run(q, pages.cache, return_lse=True, lse_base="e")
    for row, (k, v) in enumerate(pages.rows):
        of_row = slice(indptr[row], indptr[row + 1])
        expected, expected_lse = attend(q[of_row], k, v, causal=causal, scale=0.2)
        assert_close(out[of_row], expected)
        assert_close(lse[of_row], expected_lse)


@pytest.mark.parametrize("causal", [False, True])
def test_ragged_and_single(causal):
    pages = Pages()
    counts = [3, 1, 2, 5]
    q, indptr = queries(counts)
    k, v = (torch.cat([row[part] for row in pages.rows]) for part in (0, 1))
    cu = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper()
    wrapper.plan(indptr, cu, HEADS, KV_HEADS, DIM, causal=causal)
    out, lse = wrapper.run_return_lse(q, k, v)
    for row, (of_k, of_v) in enumerate(pages.rows):
        of_row = slice(indptr[row], indptr[row + 1])
        expected, expected_lse = attend(q[of_row], of_k, of_v, causal=causal)
        assert_close(out[of_row], expected)
        assert_close(lse[of_row], expected_lse / math.log(2))
        alone = flashinfer.single_prefill_with_kv_cache(q[of_row], of_k.transpose(0, 1), of_v.transpose(0, 1), causal=causal,
                                                        kv_layout="HND")
        assert_close(alone, expected)
    one, one_lse = flashinfer.single_decode_with_kv_cache(q[0], *pages.rows[0], return_lse=True)
    expected, expected_lse = attend(q[:1], *pages.rows[0])
    assert_close(one, expected[0])
    assert_close(one_lse, expected_lse[0] / math.log(2))


def test_alibi_is_signed_where_later_keys_are_seen():
    q, _ = queries([4])
    k, v = Pages().rows[3]
    out = flashinfer.single_prefill_with_kv_cache(q, k, v, pos_encoding_mode="ALIBI")
    assert_close(out, attend(q, k, v, slopes=flashinfer.get_alibi_slopes(4), signed=True)[0])


def test_merges():
    pages = Pages()
    k, v = pages.rows[3]
    q, _ = queries([4])
    cuts = [slice(0, 2), slice(2, 7), slice(7, 11)]
    parts = [attend(q, k[cut], v[cut]) for cut in cuts]
    outs, lses = [p[0].float() for p in parts], [(p[1] / math.log(2)).float() for p in parts]
    expected, expected_lse = attend(q, k, v)
    out, lse = flashinfer.merge_states(torch.stack(outs, 1), torch.stack(lses, 1))
    assert_close(out, expected)
    assert_close(lse, expected_lse / math.log(2))
    out, lse = flashinfer.merge_state(outs[0], lses[0], outs[1], lses[1])
    a, s = outs[0].clone(), lses[0].clone()
    flashinfer.merge_state_in_place(a, s, outs[1], lses[1], torch.tensor([1, 0, 1, 1]))
    assert torch.equal(a[0], out[0]) and torch.equal(a[1], outs[0][1]) and torch.equal(s[1], lses[0][1])
    flashinfer.merge_state_in_place(out, lse, outs[2], lses[2])
    assert_close(out, expected)


def test_cascade():
    """Rows 0 and 1 share two pages."""
    pages = Pages().fill()
    shared = pages.indices[3:5]  # the pages of row 2
    q, indptr = queries([2, 3])
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, torch.empty(1))
    own_indptr, own = torch.tensor([0, 2, 5], dtype=torch.int32), torch.cat([pages.indices[:2], pages.indices[5:8]])
    wrapper.plan([torch.tensor([0, 5], dtype=torch.int32), indptr], [torch.tensor([0, 2], dtype=torch.int32), own_indptr],
                 [shared, own], [torch.tensor([4], dtype=torch.int32), torch.tensor([2, 3], dtype=torch.int32)], HEADS, KV_HEADS,
                 DIM, PAGE, causal=True)
    out = wrapper.run(q, pages.cache)
    for row, source in ((0, 0), (1, 3)):
        k, v = (torch.cat([pages.rows[2][part], pages.rows[source][part]]) for part in (0, 1))
        assert_close(out[indptr[row]:indptr[row + 1]], attend(q[indptr[row]:indptr[row + 1]], k, v, causal=True)[0])


def test_mla():
    latent, rotary, heads = 64, 16, 8
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randn(n, latent + rotary, generator=generator) for n in LENGTHS]
    pages = Pages()
    ckv, kpe = torch.zeros(16, PAGE, latent), torch.zeros(16, PAGE, rotary)
    cu = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    packed = torch.cat(rows)
    batch, positions = flashinfer.get_batch_indices_positions(cu, lengths, len(packed))
    flashinfer.append_paged_mla_kv_cache(packed[:, :latent], packed[:, latent:], batch, positions, ckv, kpe, pages.indices,
                                         pages.indptr, pages.last)
    counts = [2, 1, 3, 1]
    q = torch.randn(sum(counts), heads, latent + rotary, generator=generator)
    indptr = torch.tensor([0, *counts]).cumsum(0).to(torch.int32)
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(torch.empty(1))
    wrapper.plan(indptr, pages.indptr, pages.indices, lengths, heads, latent, rotary, PAGE, True, 0.11, torch.float32,
                 torch.float32)
    out, lse = wrapper.run(q[..., :latent], q[..., latent:], ckv, kpe, return_lse=True)
    for row, keys in enumerate(rows):
        of_row = slice(indptr[row], indptr[row + 1])
        expected, expected_lse = attend(q[of_row], keys[:, None], keys[:, None, :latent], causal=True, scale=0.11)
        assert_close(out[of_row], expected, 1e-4)
        assert_close(lse[of_row], expected_lse / math.log(2), 1e-4)


def test_refused():
    pages = Pages().fill()
    q, indptr = queries([1] * 4)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper()
    tables = (indptr, pages.indptr, pages.indices, pages.last, HEADS, KV_HEADS, DIM, PAGE)
    with pytest.raises(kvcache.Unsupported, match="'ROPE_LLAMA'"):
        wrapper.plan(*tables, pos_encoding_mode="ROPE_LLAMA")
    with pytest.raises(kvcache.Unsupported, match="custom masks"):
        wrapper.plan(*tables, custom_mask=torch.ones(3, dtype=torch.bool))
    with pytest.raises(kvcache.Unsupported, match="max_item_len_ptr"):
        wrapper.plan(*tables, max_item_len_ptr=torch.ones(1))
    with pytest.raises(kvcache.InvalidArgument, match="'HDN'"):
        flashinfer.BatchDecodeWithPagedKVCacheWrapper(kv_layout="HDN")
    wrapper.plan(*tables)
    with pytest.raises(kvcache.Unsupported, match="kv_cache_sf"):
        wrapper.run(q, pages.cache, kv_cache_sf=torch.ones(1))
    bad = pages.indices.clone()
    bad[4] = 16
    wrapper.plan(indptr, pages.indptr, bad, *tables[3:])
    with pytest.raises(kvcache.OutOfRange, match="16"):
        wrapper.run(q, pages.cache)
