"""FlashInfer's wrappers and functions over paged and ragged K and V, forward only.

    from kvcache.compat import flashinfer
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace)
    wrapper.plan(indptr, indices, last_page_len, q_heads, kv_heads, head_dim, page_size)
    out = wrapper.run(q, paged_kv_cache)

As there, an LSE has base 2 and is [tokens, heads]. Workspaces, backends and CUDA graphs are accepted and not needed. Missing:
RoPE on read (`pos_encoding_mode="ROPE_LLAMA"`), custom masks, NVFP4 caches, and JIT modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

import kvcache
from kvcache.compat._common import LN2, attend_packed, merge, unsupported

__all__ = [
    "BatchDecodeWithPagedKVCacheWrapper", "BatchMLAPagedAttentionWrapper", "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper", "MultiLevelCascadeAttentionWrapper", "append_paged_kv_cache",
    "append_paged_mla_kv_cache", "get_alibi_slopes", "get_batch_indices_positions", "get_seq_lens", "merge_state",
    "merge_state_in_place", "merge_states", "single_decode_with_kv_cache", "single_prefill_with_kv_cache",
]  # fmt: skip

PagedCache: TypeAlias = Tensor | tuple[Tensor, Tensor]

# Arguments that steer a GPU's kernels, or say again what the tensors say.
_HINTS = frozenset({
    "backend", "block_tables", "data_type", "disable_split_kv", "enable_pdl", "fixed_split_size", "kv_data_type",
    "max_sequence_kv", "max_token_per_sequence", "non_blocking", "q_data_type", "q_len_per_req", "seq_lens", "seq_lens_q", "uniform_q_len",
    "use_fp16_qk_reduction", "use_fp16_softmax", "use_profiler", "use_tensor_cores", "uses_spcompress",
})  # fmt: skip


def _no_more(where: str, options: dict[str, Any]) -> None:
    """Refuses what is neither a hint nor absent."""
    for name, value in options.items():
        if name not in _HINTS and value is not None and value is not False:
            raise unsupported(f"{where}: {name} is not supported")


# ---- Options -----------------------------------------------------------------------------------------------------------


def get_alibi_slopes(heads: int, device: torch.device | str = "cpu") -> Tensor:
    """The slopes of ALiBi's paper, [heads] float32."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes, dtype=torch.float32, device=device)


def _options(where: str, heads: int, device: torch.device, pos_encoding_mode: str, window_left: int,
             logits_soft_cap: float | None, sm_scale: float | None, custom: Sequence[Tensor | None] = ()) -> dict[str, Any]:
    if pos_encoding_mode not in ("NONE", "ALIBI"):
        raise unsupported(f"{where}: pos_encoding_mode is {pos_encoding_mode!r}, and only 'NONE' and 'ALIBI' are supported: "
                          "rotate q and k before they are given")
    if any(mask is not None for mask in custom):
        raise unsupported(f"{where}: custom masks are not supported")
    alibi = pos_encoding_mode == "ALIBI"
    return {"window_size": (window_left, -1), "softcap": logits_soft_cap or 0.0, "softmax_scale": sm_scale,
            "alibi_slopes": get_alibi_slopes(heads, device) if alibi else None, "alibi_signed": alibi}  # fmt: skip


def _number(scale: float | Tensor | None) -> float:
    return 1.0 if scale is None else float(scale)


def _scaled(options: dict[str, Any], head_dim: int, q_scale: float | Tensor | None, k_scale: float | Tensor | None,
            window_left: int | None = None, sinks: Tensor | None = None) -> dict[str, Any]:
    """The options of a plan with what one run changes."""
    options = dict(options)
    factor = _number(q_scale) * _number(k_scale)
    if factor != 1.0:
        options["softmax_scale"] = (options["softmax_scale"] or head_dim**-0.5) * factor
    if window_left is not None:
        options["window_size"] = (window_left, -1)
    if sinks is not None:
        options["sinks"] = sinks
    return options


def _finish(out: Tensor, lse: Tensor, v_scale: float | Tensor | None, into: Tensor | None, lse_into: Tensor | None,
            return_lse: bool, base: float = LN2) -> Any:
    """lse: natural, [heads, tokens]."""
    if _number(v_scale) != 1.0:
        out = out * _number(v_scale)
    if into is not None:
        out = into.copy_(out)
    if not return_lse:
        return out
    lse = lse.t() / base
    return out, lse.contiguous() if lse_into is None else lse_into.copy_(lse)


# ---- Pages -------------------------------------------------------------------------------------------------------------


def _pools(cache: PagedCache, kv_layout: str) -> tuple[Tensor, Tensor]:
    """K and V as [pages, page size, kv heads, dim]."""
    k, v = cache.unbind(1) if isinstance(cache, Tensor) else cache
    return (k.transpose(1, 2), v.transpose(1, 2)) if kv_layout == "HND" else (k, v)


def _layout(kv_layout: str) -> str:
    if kv_layout not in ("NHD", "HND"):
        raise kvcache.InvalidArgument(f"kv_layout is {kv_layout!r}, and must be 'NHD' or 'HND'", status=1)
    return kv_layout


def _table(indptr: Tensor, indices: Tensor) -> Tensor:
    """CSR rows as a block table [rows, most pages]; -1 after a row's pages."""
    counts = indptr[1:] - indptr[:-1]
    width = int(counts.max()) if counts.numel() else 0
    table = torch.full((counts.numel(), max(width, 1)), -1, dtype=torch.int32, device=indices.device)
    inside = torch.arange(table.shape[1], device=counts.device) < counts[:, None]
    table[inside.to(table.device)] = indices[int(indptr[0]):int(indptr[-1])].to(torch.int32)
    return table


def get_seq_lens(kv_indptr: Tensor, kv_last_page_len: Tensor, page_size: int) -> Tensor:
    """Tokens of each row. A row without pages has none."""
    pages = kv_indptr[1:] - kv_indptr[:-1]
    return torch.where(pages > 0, (pages - 1) * page_size + kv_last_page_len, torch.zeros_like(pages)).to(torch.int32)


def get_batch_indices_positions(append_indptr: Tensor, seq_lens: Tensor, nnz: int, batch_indices: Tensor | None = None,
                                positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Row and position of each new token, if row b's tokens are the last ones of seq_lens[b]. -1 after the last token."""
    tokens = torch.arange(nnz, device=append_indptr.device)
    rows = torch.bucketize(tokens, append_indptr[1:], right=True)
    inside = rows < seq_lens.numel()
    safe = rows.clamp(max=max(seq_lens.numel() - 1, 0))
    counts = append_indptr[1:] - append_indptr[:-1]
    found = (torch.where(inside, rows, -1).to(torch.int32),
             torch.where(inside, tokens - append_indptr[safe] + seq_lens[safe] - counts[safe], -1).to(torch.int32))
    return tuple(value if target is None else target.copy_(value)  # type: ignore[return-value]
                 for value, target in zip(found, (batch_indices, positions), strict=True))


def _slots(batch_indices: Tensor, positions: Tensor, kv_indices: Tensor, kv_indptr: Tensor, page_size: int) -> Tensor:
    used = (batch_indices >= 0) & (positions >= 0)
    page_of_row = torch.div(positions, page_size, rounding_mode="floor")
    entry = torch.where(used, kv_indptr[batch_indices.clamp(min=0).long()] + page_of_row, 0)
    slots = kv_indices[entry.long()].long() * page_size + positions % page_size
    return torch.where(used, slots, -1)


def append_paged_kv_cache(append_key: Tensor, append_value: Tensor, batch_indices: Tensor, positions: Tensor,
                          paged_kv_cache: PagedCache, kv_indices: Tensor, kv_indptr: Tensor, kv_last_page_len: Tensor,
                          kv_layout: str = "NHD") -> None:
    """Stores rows [tokens, kv heads, dim] at positions of rows of the batch. Negative: not stored."""
    del kv_last_page_len
    k, v = _pools(paged_kv_cache, _layout(kv_layout))
    slots = _slots(batch_indices, positions, kv_indices, kv_indptr, k.shape[1])
    kvcache.append_slots(append_key, append_value, k, v, slots)


def append_paged_mla_kv_cache(append_ckv: Tensor, append_kpe: Tensor, batch_indices: Tensor, positions: Tensor, ckv_cache: Tensor,
                              kpe_cache: Tensor, kv_indices: Tensor, kv_indptr: Tensor, kv_last_page_len: Tensor) -> None:
    """Stores latent rows [tokens, latent dim] and rotary parts [tokens, rotary dim] in [pages, page size, dim]."""
    del kv_last_page_len
    slots = _slots(batch_indices, positions, kv_indices, kv_indptr, ckv_cache.shape[1])
    kvcache.append_slots(append_kpe[:, None], append_ckv[:, None], kpe_cache[:, :, None], ckv_cache[:, :, None], slots)


# ---- Wrappers ----------------------------------------------------------------------------------------------------------


@dataclass
class _Plan:
    heads: int
    head_dim: int
    options: dict[str, Any]
    cu_q: Tensor
    lengths: Tensor
    table: Tensor | None = None
    first_keys: Tensor | None = None


@dataclass
class _Wrapper(ABC):
    """Keeps what plan() was told until run()."""

    float_workspace_buffer: Any = None
    kv_layout: str = "NHD"
    use_cuda_graph: bool = False
    planned: _Plan | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        _layout(self.kv_layout)

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self.use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any) -> None:
        """Does nothing: memory is the library's own."""

    def _current(self) -> _Plan:
        if self.planned is None:
            raise kvcache.Order(f"{type(self).__name__}.run: call plan first", status=201)
        return self.planned

    @abstractmethod
    def run(self, *arguments: Any, **options: Any) -> Any: ...

    def run_return_lse(self, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """run(..., return_lse=True)"""
        out, lse = self.run(*arguments, return_lse=True, **options)
        return out, lse

    def _attend_pages(self, q: Tensor, cache: PagedCache, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
        plan = self._current()
        k, v = _pools(cache, self.kv_layout)
        out, lse = kvcache.flash_attn_with_kvcache(q, k, v, cache_seqlens=plan.lengths, block_table=plan.table,
                                                   cu_seqlens_q=plan.cu_q, return_softmax_lse=True, **options)
        return out, lse


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    """Attention of one new token (or q_len_per_req) a row over its pages."""

    def __init__(self, float_workspace_buffer: Any = None, kv_layout: str = "NHD", use_cuda_graph: bool = False,
                 use_tensor_cores: bool = False, paged_kv_indptr_buffer: Tensor | None = None,
                 paged_kv_indices_buffer: Tensor | None = None, paged_kv_last_page_len_buffer: Tensor | None = None,
                 backend: str = "auto", jit_args: Any = None) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph)
        _no_more("BatchDecodeWithPagedKVCacheWrapper", {"jit_args": jit_args})

    def plan(self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim: int,
             page_size: int, pos_encoding_mode: str = "NONE", window_left: int = -1, logits_soft_cap: float | None = None,
             q_data_type: Any = None, kv_data_type: Any = None, o_data_type: Any = None, data_type: Any = None,
             sm_scale: float | None = None, rope_scale: float | None = None, rope_theta: float | None = None,
             q_len_per_req: int = 1, **hints: Any) -> None:
        """indptr [rows + 1], indices: the pages of all rows; last_page_len [rows]: tokens in the last page of each."""
        _no_more("plan", hints)
        rows = indptr.numel() - 1
        self.planned = _Plan(num_qo_heads, head_dim,
                             {**_options("plan", num_qo_heads, indices.device, pos_encoding_mode, window_left, logits_soft_cap,
                                         sm_scale), "causal": True},
                             torch.arange(rows + 1, dtype=torch.int32, device=indices.device) * q_len_per_req,
                             get_seq_lens(indptr, last_page_len, page_size), _table(indptr, indices))  # fmt: skip

    begin_forward = plan

    def run(self, q: Tensor, paged_kv_cache: PagedCache, *, q_scale: float | Tensor | None = None,
            k_scale: float | Tensor | None = None, v_scale: float | Tensor | None = None, out: Tensor | None = None,
            lse: Tensor | None = None, return_lse: bool = False, window_left: int | None = None, sinks: Tensor | None = None,
            **hints: Any) -> Any:
        """out [rows, heads, dim], or with return_lse (out, LSE [rows, heads])."""
        _no_more("run", hints)
        plan = self._current()
        found = self._attend_pages(q, paged_kv_cache, _scaled(plan.options, plan.head_dim, q_scale, k_scale, window_left, sinks))
        return _finish(*found, v_scale, out, lse, return_lse)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    """Attention of the new tokens of each row over its pages, which hold them too."""

    def __init__(self, float_workspace_buffer: Any = None, kv_layout: str = "NHD", use_cuda_graph: bool = False,
                 qo_indptr_buf: Tensor | None = None, paged_kv_indptr_buf: Tensor | None = None,
                 paged_kv_indices_buf: Tensor | None = None, paged_kv_last_page_len_buf: Tensor | None = None,
                 custom_mask_buf: Tensor | None = None, mask_indptr_buf: Tensor | None = None, backend: str = "auto",
                 jit_args: Any = None, jit_kwargs: Any = None, variant_owns_mask: bool = False) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph)
        _no_more("BatchPrefillWithPagedKVCacheWrapper", {"jit_args": jit_args})

    def plan(self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor,
             num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int, head_dim_vo: int | None = None,
             custom_mask: Tensor | None = None, packed_custom_mask: Tensor | None = None, causal: bool = False,
             pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, sm_scale: float | None = None,
             window_left: int = -1, logits_soft_cap: float | None = None, rope_scale: float | None = None,
             rope_theta: float | None = None, q_data_type: Any = None, kv_data_type: Any = None, o_data_type: Any = None,
             **hints: Any) -> None:
        """qo_indptr [rows + 1]: where each row's queries begin. The last query of a row sees its last key."""
        _no_more("plan", hints)
        options = _options("plan", num_qo_heads, paged_kv_indices.device, pos_encoding_mode, window_left, logits_soft_cap, sm_scale,
                           (custom_mask, packed_custom_mask))
        self.planned = _Plan(num_qo_heads, head_dim_qk, {**options, "causal": causal}, qo_indptr,
                             get_seq_lens(paged_kv_indptr, paged_kv_last_page_len, page_size),
                             _table(paged_kv_indptr, paged_kv_indices))

    begin_forward = plan

    def run(self, q: Tensor, paged_kv_cache: PagedCache, *, q_scale: float | Tensor | None = None,
            k_scale: float | Tensor | None = None, v_scale: float | Tensor | None = None, out: Tensor | None = None,
            lse: Tensor | None = None, return_lse: bool = False, lse_base: str = "log2", lse_layout: str = "NH",
            window_left: int | None = None, sinks: Tensor | None = None, **hints: Any) -> Any:
        """out [tokens, heads, dim], or with return_lse (out, LSE [tokens, heads])."""
        _no_more("run", hints)
        if lse_layout != "NH":
            raise unsupported(f"run: lse_layout is {lse_layout!r}, and only 'NH' is supported")
        plan = self._current()
        found = self._attend_pages(q, paged_kv_cache, _scaled(plan.options, plan.head_dim, q_scale, k_scale, window_left, sinks))
        return _finish(*found, v_scale, out, lse, return_lse, LN2 if lse_base == "log2" else 1.0)


class BatchPrefillWithRaggedKVCacheWrapper(_Wrapper):
    """Attention of packed queries over packed K and V."""

    def __init__(self, float_workspace_buffer: Any = None, kv_layout: str = "NHD", use_cuda_graph: bool = False,
                 qo_indptr_buf: Tensor | None = None, kv_indptr_buf: Tensor | None = None, custom_mask_buf: Tensor | None = None,
                 mask_indptr_buf: Tensor | None = None, backend: str = "auto", jit_args: Any = None, jit_kwargs: Any = None,
                 variant_owns_mask: bool = False) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph)
        _no_more("BatchPrefillWithRaggedKVCacheWrapper", {"jit_args": jit_args})

    def plan(self, qo_indptr: Tensor, kv_indptr: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
             head_dim_vo: int | None = None, custom_mask: Tensor | None = None, packed_custom_mask: Tensor | None = None,
             causal: bool = False, pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, window_left: int = -1,
             logits_soft_cap: float | None = None, sm_scale: float | None = None, rope_scale: float | None = None,
             rope_theta: float | None = None, q_data_type: Any = None, kv_data_type: Any = None, o_data_type: Any = None,
             **hints: Any) -> None:
        """qo_indptr, kv_indptr [rows + 1]: where each row's queries and keys begin."""
        _no_more("plan", hints)
        options = _options("plan", num_qo_heads, qo_indptr.device, pos_encoding_mode, window_left, logits_soft_cap, sm_scale,
                           (custom_mask, packed_custom_mask))
        self.planned = _Plan(num_qo_heads, head_dim_qk, {**options, "causal": causal}, qo_indptr, kv_indptr[1:],
                             first_keys=kv_indptr[:-1])

    begin_forward = plan

    def run(self, q: Tensor, k: Tensor, v: Tensor, *, q_scale: float | Tensor | None = None,
            k_scale: float | Tensor | None = None, v_scale: float | Tensor | None = None, out: Tensor | None = None,
            lse: Tensor | None = None, return_lse: bool = False, lse_base: str = "log2", lse_layout: str = "NH",
            **hints: Any) -> Any:
        """q [tokens, heads, dim], k and v [keys, kv heads, dim]. out, or with return_lse (out, LSE [tokens, heads])."""
        _no_more("run", hints)
        if lse_layout != "NH":
            raise unsupported(f"run: lse_layout is {lse_layout!r}, and only 'NH' is supported")
        plan = self._current()
        assert plan.first_keys is not None
        found = attend_packed(q, k, v, plan.cu_q, plan.first_keys, plan.lengths,
                              **_scaled(plan.options, plan.head_dim, q_scale, k_scale))
        return _finish(*found, v_scale, out, lse, return_lse, LN2 if lse_base == "log2" else 1.0)


class BatchMLAPagedAttentionWrapper(_Wrapper):
    """Absorbed latent attention over pages of latent rows and of their rotary parts."""

    def __init__(self, float_workspace_buffer: Any = None, use_cuda_graph: bool = False, qo_indptr: Tensor | None = None,
                 kv_indptr: Tensor | None = None, kv_indices: Tensor | None = None, kv_len_arr: Tensor | None = None,
                 backend: str = "auto") -> None:
        super().__init__(float_workspace_buffer, "NHD", use_cuda_graph)

    def plan(self, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_len_arr: Tensor, num_heads: int,
             head_dim_ckv: int, head_dim_kpe: int, page_size: int, causal: bool, sm_scale: float, q_data_type: Any = None,
             kv_data_type: Any = None, use_profiler: bool = False, **hints: Any) -> None:
        """kv_len_arr [rows]: tokens of each row."""
        _no_more("plan", hints)
        self.planned = _Plan(num_heads, head_dim_kpe, {"causal": causal, "softmax_scale": sm_scale}, qo_indptr, kv_len_arr,
                             _table(kv_indptr, kv_indices))

    def run(self, q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, out: Tensor | None = None,
            lse: Tensor | None = None, return_lse: bool = False, profiler_buffer: Any = None,
            kv_len: Tensor | None = None, page_table: Tensor | None = None, return_lse_base_on_e: bool = False, **hints: Any) -> Any:
        """q_nope [tokens, heads, latent dim], q_pe [tokens, heads, rotary dim], caches [pages, page size, dim]. out [tokens,
        heads, latent dim], or with return_lse (out, LSE [tokens, heads])."""
        _no_more("run", {**hints, "kv_len": kv_len, "page_table": page_table})
        plan = self._current()
        attended, natural = kvcache.flash_attn_with_kvcache(q_pe, kpe_cache[:, :, None], ckv_cache[:, :, None], qv=q_nope,
                                                            cache_seqlens=plan.lengths, block_table=plan.table,
                                                            cu_seqlens_q=plan.cu_q, return_softmax_lse=True, **plan.options)
        return _finish(attended, natural, None, out, lse, return_lse, 1.0 if return_lse_base_on_e else LN2)


class MultiLevelCascadeAttentionWrapper:
    """Attention over pages that rows share by levels: each level is attended to for the rows that share it."""

    def __init__(self, num_levels: int, float_workspace_buffer: Any = None, kv_layout: str = "NHD", use_cuda_graph: bool = False,
                 qo_indptr_buf_arr: Any = None, paged_kv_indptr_buf_arr: Any = None, paged_kv_indices_buf_arr: Any = None,
                 paged_kv_last_page_len_buf_arr: Any = None) -> None:
        self._levels = [BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout, use_cuda_graph)
                        for _ in range(num_levels)]

    def plan(self, qo_indptr_arr: list[Tensor], paged_kv_indptr_arr: list[Tensor], paged_kv_indices_arr: list[Tensor],
             paged_kv_last_page_len: list[Tensor], num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
             causal: bool = False, pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
             sm_scale: float | None = None, window_left: int = -1, logits_soft_cap: float | None = None,
             rope_scale: float | None = None, rope_theta: float | None = None, q_data_type: Any = None,
             kv_data_type: Any = None) -> None:
        """A list entry for each level, from what most rows share to what is a row's own."""
        if window_left >= 0 or pos_encoding_mode != "NONE":
            raise unsupported("plan: windows and ALiBi need positions across levels, which a cascade does not have")
        for i, level in enumerate(self._levels):
            level.plan(qo_indptr_arr[i], paged_kv_indptr_arr[i], paged_kv_indices_arr[i], paged_kv_last_page_len[i], num_qo_heads,
                       num_kv_heads, head_dim, page_size, causal=causal and i == len(self._levels) - 1, sm_scale=sm_scale,
                       logits_soft_cap=logits_soft_cap)

    begin_forward = plan

    def run(self, q: Tensor, paged_kv_cache: PagedCache) -> Tensor:
        """out [tokens, heads, dim]."""
        parts = [level.run_return_lse(q, paged_kv_cache, lse_base="e") for level in self._levels]
        return merge([out for out, _ in parts], [lse for _, lse in parts])[0]

    forward = run


# ---- One sequence ------------------------------------------------------------------------------------------------------


def single_decode_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, kv_layout: str = "NHD", pos_encoding_mode: str = "NONE",
                                use_tensor_cores: bool = False, q_scale: float | None = None, k_scale: float | None = None,
                                v_scale: float | None = None, window_left: int = -1, logits_soft_cap: float | None = None,
                                sm_scale: float | None = None, rope_scale: float | None = None, rope_theta: float | None = None,
                                return_lse: bool = False) -> Any:
    """Attention of q [heads, dim] over k and v [keys, kv heads, dim]."""
    found = single_prefill_with_kv_cache(q[None], k, v, q_scale, k_scale, v_scale, None, None, None, True, kv_layout,
                                         pos_encoding_mode, False, sm_scale, window_left, logits_soft_cap, return_lse=True)
    return (found[0][0], found[1][0]) if return_lse else found[0][0]


def single_prefill_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, scale_q: float | Tensor | None = None,
                                 scale_k: float | Tensor | None = None, scale_v: float | Tensor | None = None,
                                 o_dtype: torch.dtype | None = None, custom_mask: Tensor | None = None,
                                 packed_custom_mask: Tensor | None = None, causal: bool = False, kv_layout: str = "NHD",
                                 pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
                                 sm_scale: float | None = None, window_left: int = -1, logits_soft_cap: float | None = None,
                                 rope_scale: float | None = None, rope_theta: float | None = None, backend: str = "auto",
                                 return_lse: bool = False, **hints: Any) -> Any:
    """Attention of q [queries, heads, dim] over k and v [keys, kv heads, dim]. The last query sees the last key."""
    _no_more("single_prefill_with_kv_cache", hints)
    if _layout(kv_layout) == "HND":
        k, v = k.transpose(0, 1), v.transpose(0, 1)
    options = _options("single_prefill_with_kv_cache", q.shape[1], q.device, pos_encoding_mode, window_left, logits_soft_cap,
                       sm_scale, (custom_mask, packed_custom_mask))
    out, lse = kvcache.flash_attn_with_kvcache(q[None], k[None], v[None], causal=causal, return_softmax_lse=True,
                                               **_scaled(options, q.shape[2], scale_q, scale_k))
    out = out[0] if o_dtype is None else out[0].to(o_dtype)
    return _finish(out, lse[0], scale_v, None, None, return_lse)


# ---- Merging -----------------------------------------------------------------------------------------------------------


def merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
    """The attention over the keys of both: v [tokens, heads, dim], s [tokens, heads] LSE of base 2."""
    out, lse = merge([v_a, v_b], [s_a * LN2, s_b * LN2])
    return out, lse / LN2


def merge_state_in_place(v: Tensor, s: Tensor, v_other: Tensor, s_other: Tensor, mask: Tensor | None = None) -> None:
    """The same, written to v and s. mask [tokens]: which tokens to merge."""
    out, lse = merge_state(v, s, v_other, s_other)
    if mask is not None:
        chosen = mask.to(torch.bool)
        out, lse = torch.where(chosen[:, None, None], out, v), torch.where(chosen[:, None], lse, s)
    v.copy_(out)
    s.copy_(lse)


def merge_states(v: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """The same of many parts: v [tokens, parts, heads, dim], s [tokens, parts, heads]."""
    out, lse = merge(v.unbind(1), [part * LN2 for part in s.unbind(1)])
    return out, lse / LN2
