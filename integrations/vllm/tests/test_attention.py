"""Attention of one layer by the plug-in, by vLLM's own backend and by a definition in float64, over one state of a cache."""
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from kvcache_vllm import backend
from vllm import _custom_ops as ops
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends import cpu_attn

PAGE = 32
# Largest differences of outputs about 1, to the definition over K and V as they were stored.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass
class Case:
    """A layer, and the requests of a step: (tokens in the cache, new ones among them)."""
    rows: tuple = ((1, 1), (70, 70), (200, 9), (97, 1), (512, 33))
    heads: tuple = (4, 2)
    dim: int = 64
    dtype: torch.dtype = torch.float32
    window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    sinks: torch.dtype | None = None
    causal: bool | tuple = True
    encoder: bool = False
    float8: str = "auto"
    scales: tuple = (1.0, 1.0)


CASES = {
    "groups of 4": Case(heads=(8, 2), dim=128),
    "one kv head": Case(heads=(4, 1), dim=256),
    "bfloat16": Case(dtype=torch.bfloat16),
    "float16": Case(dtype=torch.float16),
    "head dim 80": Case(dim=80),
    "window": Case(window=48),
    "window of 1": Case(window=1),
    "softcap": Case(softcap=20.0),
    "softcap, window, bfloat16": Case(softcap=20.0, window=48, dtype=torch.bfloat16),
    "alibi": Case(alibi=True, heads=(8, 8)),
    "sinks": Case(sinks=torch.float32),
    "sinks in bfloat16, window": Case(sinks=torch.bfloat16, window=48, dtype=torch.bfloat16),
    "sinks in float16": Case(sinks=torch.float16),
    "all keys": Case(causal=False),
    "all keys of a window": Case(causal=False, window=48),
    "causal by request": Case(causal=(True, False, True, False, False)),
    "causal by request, all": Case(causal=(True,) * 5),
    "encoder": Case(causal=False, encoder=True, rows=((5, 5), (70, 70), (33, 33))),
    "encoder with a window": Case(causal=False, encoder=True, window=20, rows=((5, 5), (70, 70), (33, 33))),
    "alibi, all keys": Case(causal=False, alibi=True, heads=(8, 8)),
    "float8": Case(float8="fp8"),
    "float8, scales, bfloat16": Case(float8="fp8_e4m3", scales=(0.25, 0.5), dtype=torch.bfloat16),
    "float8_e5m2": Case(float8="fp8_e5m2"),
}


class Scene:
    """Random K, V and queries of a case, in a shuffled block table."""

    def __init__(self, case: Case):
        torch.manual_seed(7)
        self.case = case
        q_heads, self.kv_heads = case.heads
        self.lengths = torch.tensor([total for total, _ in case.rows], dtype=torch.int32)
        new = torch.tensor([count for _, count in case.rows])
        self.starts = torch.nn.functional.pad(new.cumsum(0), (1, 0)).to(torch.int32)
        pages = [-(-total // PAGE) for total, _ in case.rows]
        order = torch.randperm(sum(pages) + 3, dtype=torch.int32)
        self.num_pages = len(order)
        self.table = torch.zeros(len(pages), max(pages), dtype=torch.int32)
        for row, (ids, count) in enumerate(zip(order.split(pages + [3])[:-1], pages, strict=True)):
            self.table[row, :count] = ids
        self.k, self.v = ([torch.randn(total, self.kv_heads, case.dim).to(case.dtype) for total, _ in case.rows]
                          for _ in "kv")
        self.q = torch.randn(int(new.sum()), q_heads, case.dim).to(case.dtype)
        self.slopes = [2.0 ** -(i + 1) for i in range(q_heads)] if case.alibi else None
        self.sinks = torch.randn(q_heads).to(case.sinks) if case.sinks else None
        self.layer = SimpleNamespace(_k_scale_float=case.scales[0], _v_scale_float=case.scales[1])

    def slots(self, row: int) -> torch.Tensor:
        positions = torch.arange(int(self.lengths[row]))
        return self.table[row].long()[positions // PAGE] * PAGE + positions % PAGE

    def run(self, kind: type, monkeypatch) -> torch.Tensor:
        """The output of a layer, whose cache is filled by the layer itself."""
        case = self.case
        config = SimpleNamespace(model_config=SimpleNamespace(dtype=case.dtype), kv_transfer_config=None)
        for module in (cpu_attn, backend):
            monkeypatch.setattr(module, "get_current_vllm_config", lambda: config)
        q_heads, kv_heads = case.heads
        impl = kind(q_heads, case.dim, case.dim ** -0.5, kv_heads, self.slopes, case.window, case.float8, case.softcap,
                    AttentionType.ENCODER_ONLY if case.encoder else AttentionType.DECODER, sinks=self.sinks)
        assert getattr(impl, "is_served", True)
        self.layer.isa = cpu_attn._get_attn_isa(case.dtype, PAGE, case.dim, case.float8)
        cache = torch.zeros(self.num_pages, kv_heads, PAGE, 2 * case.dim,
                            dtype=case.dtype if case.float8 == "auto" else torch.uint8)
        step = self.step()
        k, v = torch.cat(self.k), torch.cat(self.v)
        if case.encoder:
            step.encoder_cache, cache = cache, None
            step.slot_mapping = torch.cat([self.slots(row) for row in range(len(case.rows))])
            impl.do_kv_cache_update(self.layer, k, v, cache, step.slot_mapping)
        for row in range(0 if case.encoder else len(case.rows)):
            impl.do_kv_cache_update(self.layer, self.k[row], self.v[row], cache, self.slots(row))
        output = torch.full_like(self.q, torch.nan)
        impl.forward(self.layer, self.q, k, v, cache, step, output)
        return output

    def step(self) -> cpu_attn.CPUAttentionMetadata:
        case = self.case
        by_request = torch.tensor(case.causal, dtype=torch.int32) if isinstance(case.causal, tuple) else None
        causal = False if by_request is not None else case.causal
        schedule = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(case.rows), num_heads=case.heads[0], num_kv_heads=case.heads[1], head_dim=case.dim,
            seq_lens=self.lengths, dtype=case.dtype, query_start_loc=self.starts, causal=causal,
            sliding_window_size=-1 if case.window is None else case.window, isa=self.layer.isa, enable_kv_split=True,
            dynamic_causal=by_request, kv_cache_dtype=case.float8)
        new = [count for _, count in case.rows]
        return cpu_attn.CPUAttentionMetadata(
            num_actual_tokens=len(self.q), max_query_len=max(new), query_start_loc=self.starts,
            max_seq_len=int(self.lengths.max()), seq_lens=self.lengths, block_table=self.table,
            slot_mapping=torch.empty(0), scheduler_metadata=schedule, causal=causal, dynamic_causal=by_request)

    def stored(self, values: torch.Tensor, scale: float) -> torch.Tensor:
        """Values as a cache holds them, rounded to the nearest."""
        dtype = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}.get(
            self.case.float8)
        values = values.double()
        return values if dtype is None else (values.float() / scale).to(dtype).double() * scale

    def definition(self) -> torch.Tensor:
        case, rows = self.case, []
        for row, (total, new) in enumerate(case.rows):
            causal = case.causal[row] if isinstance(case.causal, tuple) else case.causal
            q = self.q[self.starts[row]:self.starts[row + 1]].double()
            group = case.heads[0] // case.heads[1]
            k = self.stored(self.k[row], case.scales[0]).repeat_interleave(group, 1)
            v = self.stored(self.v[row], case.scales[1]).repeat_interleave(group, 1)
            scores = torch.einsum("qhd,khd->hqk", q, k) * case.dim ** -0.5
            if case.softcap:
                scores = case.softcap * torch.tanh(scores / case.softcap)
            behind = torch.arange(total - new, total)[:, None] - torch.arange(total)[None, :]
            if case.alibi:
                scores -= torch.tensor(self.slopes)[:, None, None] * behind  # vLLM's is signed, which matters to later keys
            hidden = (behind < 0) if causal else torch.zeros_like(behind, dtype=torch.bool)
            if case.window is not None:
                hidden |= (behind if causal else behind.abs()) >= case.window
            scores.masked_fill_(hidden, -torch.inf)
            if self.sinks is not None:
                sink = self.sinks.double()[:, None, None].expand(-1, new, 1)
                weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
            else:
                weights = scores.softmax(-1)
            rows.append(torch.einsum("hqk,khd->qhd", weights, v))
        return torch.cat(rows)


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


@pytest.mark.parametrize("name", CASES)
def test_attention_is_as_defined(name, monkeypatch):
    case = CASES[name]
    scene = Scene(case)
    ours = scene.run(backend.KvcacheImpl, monkeypatch)
    defined = scene.definition()
    assert largest(ours, defined) <= TOLERANCE[case.dtype]
    stock = largest(scene.run(cpu_attn.CPUAttentionBackendImpl, monkeypatch), defined)
    if case.float8 == "auto":
        assert stock <= 2 * TOLERANCE[case.dtype], "vLLM's own backend has another definition"
    else:
        assert stock >= largest(ours, defined), "vLLM's own backend rounds float8 too"
