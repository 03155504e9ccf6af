"""The attention backend computes what SGLang's own torch_native backend computes, over SGLang's pools and layers."""

from types import SimpleNamespace

import pytest
import torch
from kvcache_sglang import NAME, register
from kvcache_sglang.attention import KvcacheAttnBackend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode

TOKENS, REQUESTS, LONGEST = 512, 6, 128


class Scene:
    """Requests in a pool whose pages lie in no order."""

    def __init__(self, page_size=16, dtype=torch.float32, heads=(4, 2), dims=(32, 32), seed=1) -> None:
        torch.manual_seed(seed)
        self.heads, self.dims, self.dtype, self.page_size = heads, dims, dtype, page_size
        self.pools = []
        for _ in range(2):  # ours, and SGLang's own
            pool = MHATokenToKVPool(size=TOKENS, page_size=page_size, dtype=dtype, head_num=heads[1], head_dim=dims[0],
                                    v_head_dim=dims[1], layer_num=1, device="cpu", enable_memory_saver=False)
            self.pools.append(pool)
        req_to_token = torch.zeros(REQUESTS, LONGEST, dtype=torch.int32)
        pages = torch.randperm(TOKENS // page_size) + 1
        per_request = TOKENS // page_size // REQUESTS
        for i in range(REQUESTS):
            own = pages[i * per_request:(i + 1) * per_request]
            slots = (own[:, None] * page_size + torch.arange(page_size)).flatten()[:LONGEST]
            req_to_token[i, :len(slots)] = slots
        self.requests = SimpleNamespace(req_to_token=req_to_token)
        runners = [SimpleNamespace(device="cpu", req_to_token_pool=self.requests, token_to_kv_pool=pool, use_mla_backend=False)
                   for pool in self.pools]
        self.ours, self.own = KvcacheAttnBackend(runners[0]), TorchNativeAttnBackend(runners[1])

    def layer(self, **options) -> RadixAttention:
        return RadixAttention(self.heads[0], self.dims[0], self.dims[0] ** -0.5, self.heads[1], 0, v_head_dim=self.dims[1], **options)

    def batch(self, rows, old, new, mode):
        lengths = torch.tensor([a + b for a, b in zip(old, new)])
        slots = [self.requests.req_to_token[row, a:a + b] for row, a, b in zip(rows, old, new)]
        return SimpleNamespace(
            forward_mode=mode, batch_size=len(rows), req_pool_indices=torch.tensor(rows), seq_lens=lengths, seq_lens_cpu=lengths,
            out_cache_loc=torch.cat(slots).long(), encoder_lens=None, encoder_out_cache_loc=None, spec_info=None,
            extend_prefix_lens=torch.tensor(old), extend_seq_lens=torch.tensor(new), kv_loc_plan=None)

    def forward(self, batch, layer, save_kv_cache=True, **kwargs):
        """The outputs of both backends, for the same q, k and v."""
        count = len(batch.out_cache_loc)
        (q_heads, kv_heads), (k_dim, v_dim) = self.heads, self.dims
        q, k, v = (torch.randn(count, *shape).to(self.dtype) for shape in ((q_heads * k_dim,), (kv_heads, k_dim), (kv_heads, v_dim)))
        self.ours.init_forward_metadata(batch)
        ours = self.ours.forward(q, k, v, layer, batch, save_kv_cache=save_kv_cache, **kwargs)
        if save_kv_cache:  # as set_kv_buffer of the pool would, which imports SGLang's server
            for pool, new in zip(self.pools[1].get_kv_buffer(0), (k, v)):
                pool[batch.out_cache_loc] = new
        self.own.init_forward_metadata(batch)
        return ours, self.own.forward(q, k, v, layer, batch, save_kv_cache=False)


def compare(outputs, tolerance=1e-5):
    ours, own = outputs
    assert ours.shape == own.shape and ours.dtype == own.dtype
    torch.testing.assert_close(ours, own, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_prefill_and_decode(page_size, dtype, tolerance):
    scene = Scene(page_size, dtype)
    layer = scene.layer()
    rows = [4, 1, 3]
    compare(scene.forward(scene.batch(rows, [0, 0, 0], [5, 33, 1], ForwardMode.EXTEND), layer), tolerance)
    compare(scene.forward(scene.batch(rows, [5, 33, 1], [1, 1, 1], ForwardMode.DECODE), layer), tolerance)
    compare(scene.forward(scene.batch([1, 0, 4], [34, 0, 6], [7, 20, 1], ForwardMode.MIXED), layer), tolerance)
    for pool, other in zip(scene.pools[0].get_kv_buffer(0), scene.pools[1].get_kv_buffer(0)):
        assert torch.equal(pool, other), "both have stored the same rows"


@pytest.mark.parametrize("heads", [(4, 4), (8, 1)])
def test_heads_and_dims(heads):
    scene = Scene(heads=heads, dims=(64, 32))
    compare(scene.forward(scene.batch([0, 5], [0, 0], [30, 8], ForwardMode.EXTEND), scene.layer()))
    compare(scene.forward(scene.batch([0, 5], [30, 8], [1, 1], ForwardMode.DECODE), scene.layer()))


@pytest.mark.parametrize("window", [0, 3, 100])
def test_sliding_windows(window):
    scene = Scene()
    layer = scene.layer(sliding_window_size=window)
    assert layer.sliding_window_size in (window, -1)  # SGLang reads 0 as none
    compare(scene.forward(scene.batch([2], [0], [40], ForwardMode.EXTEND), layer))
    compare(scene.forward(scene.batch([2], [40], [1], ForwardMode.DECODE), layer))


def test_encoders_see_later_keys():
    scene = Scene()
    outputs = scene.forward(scene.batch([2, 0], [0, 0], [9, 21], ForwardMode.EXTEND), scene.layer(attn_type=AttentionType.ENCODER_ONLY))
    compare(outputs)


def test_layers_that_share_keys():
    scene = Scene()
    compare(scene.forward(scene.batch([2], [0], [40], ForwardMode.EXTEND), scene.layer()))
    before = [pool.get_key_buffer(0).clone() for pool in scene.pools]
    compare(scene.forward(scene.batch([2], [39], [1], ForwardMode.DECODE), scene.layer(), save_kv_cache=False))
    assert all(torch.equal(pool.get_key_buffer(0), keys) for pool, keys in zip(scene.pools, before))


def test_soft_cap_and_sinks_by_their_definitions():
    """torch_native ignores both."""
    scene = Scene(dims=(16, 16), heads=(2, 1))
    cap, sinks = 2.0, torch.tensor([0.5, -1.0])
    layer = scene.layer(logit_cap=cap)
    batch = scene.batch([3], [0], [6], ForwardMode.EXTEND)
    torch.manual_seed(5)
    ours, _ = scene.forward(batch, layer, sinks=sinks)
    torch.manual_seed(5)
    q, k, v = (torch.randn(6, *shape).double() for shape in ((2, 16), (1, 16), (1, 16)))
    scores = cap * torch.tanh(torch.einsum("qhd,kd->hqk", q, k[:, 0]) * layer.scaling / cap)
    scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
    weights = torch.cat([scores, sinks.double()[:, None, None].expand(2, 6, 1)], -1).softmax(-1)[..., :6]
    expected = torch.einsum("hqk,kd->qhd", weights, v[:, 0]).reshape(6, 32)
    torch.testing.assert_close(ours, expected.float(), rtol=1e-5, atol=1e-5)


def test_what_is_not_served_is_refused():
    scene = Scene()
    batch = scene.batch([2], [0], [4], ForwardMode.EXTEND)
    scene.ours.init_forward_metadata(batch)
    q, k, v = torch.zeros(4, 128), torch.zeros(4, 2, 32), torch.zeros(4, 2, 32)
    for layer, message in [(scene.layer(is_cross_attention=True), "cross attention"),
                           (scene.layer(attn_type=AttentionType.DECODER_BIDIRECTIONAL), "decoder_bidirectional"),
                           (scene.layer(logit_cap=3.0, logit_capping_method="sigmoid"), "sigmoid")]:
        with pytest.raises(NotImplementedError, match=message):
            scene.ours.forward(q, k, v, layer, batch)
    with pytest.raises(NotImplementedError, match="score_mod"):
        scene.ours.forward(q, k, v, scene.layer(), batch, score_mod=print)
    for mode in (ForwardMode.TARGET_VERIFY, ForwardMode.DRAFT_EXTEND_V2):
        with pytest.raises(NotImplementedError, match=mode.name):
            scene.ours.init_forward_metadata(scene.batch([2], [0], [4], mode))
    pool = scene.pools[0]
    runner = SimpleNamespace(device="cpu", req_to_token_pool=scene.requests, token_to_kv_pool=pool, use_mla_backend=True)
    with pytest.raises(ValueError, match="MLA models are not served. Use another --attention-backend"):
        KvcacheAttnBackend(runner)
    runner.use_mla_backend, pool.dtype = False, torch.float8_e5m2
    with pytest.raises(ValueError, match="a KV cache of torch.float8_e5m2"):
        KvcacheAttnBackend(runner)


def test_sglang_finds_the_backend_by_its_name():
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    register()
    assert NAME in ATTENTION_BACKEND_CHOICES
    scene = Scene()
    runner = SimpleNamespace(device="cpu", req_to_token_pool=scene.requests, token_to_kv_pool=scene.pools[0], use_mla_backend=False)
    assert isinstance(ATTENTION_BACKENDS[NAME](runner), KvcacheAttnBackend)
