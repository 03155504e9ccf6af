"""Plans: tables for attention kernels, of a server that has an allocator of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _kvcache
from ._config import Context
from ._errors import InvalidArgument

_MODES = {"decode": 0, "extend": 1, "verify": 2, "draft_decode": 3}
_GRAPH, _SLOTS, _LENGTHS_WITH_NEW = 1, 4, 8


class Plan(_kvcache.Plan):
    """Makes the tables of one kind of step, over a server's own lengths and block table or token-slot table.

        plan = kvcache.Plan("verify", num_draft_tokens=4, page_size=16)
        plan.build(seq_lens, rows=req_pool_indices, req_to_token=req_to_token)   # each step
        tables = plan.tables()

    Args:
        mode: "decode" (one new token a row), "extend" (append_lengths: prefill, mixed, draft extend), "verify"
            (num_draft_tokens a row, as a chain, or as trees by tree_parents), "draft_decode" (num_steps steps of top_k
            branches, all in one build).
        page_size: tokens a page.
        context: None for a CPU context of its own.
        window: queries see this many keys, themselves included: tables have only the last pages.
        chunk: queries see their chunk up to themselves: tables have a row for each chunk.
        slots: tables of page size 1.
        pad: what block_table has after a row's pages; None: -1, for a graph 0.
        arrays: of "dense", "csr" and "tokens"; None: all.
        graph: arrays of the capacity (max_*), whose addresses never change; what a batch does not use is inert.
        num_pool_pages: pages of the server's pool, against which tables are checked; 0 = unknown.
        lengths_with_new: seq_lens count the new tokens; a row of 0 is inert.

    Raises:
        InvalidArgument, OutOfRange, Unsupported, OutOfMemory.
    """

    def __init__(self, mode: str, *, page_size: int = 16, context: Context | None = None, num_draft_tokens: int = 0,
                 num_steps: int = 0, top_k: int = 0, window: int | None = None, chunk: int | None = None,
                 slots: bool = False, pad: int | None = None, arrays: Iterable[str] | None = None, graph: bool = False,
                 max_rows: int = 0, max_tokens: int = 0, max_pages_per_row: int = 0, num_pool_pages: int = 0,
                 lengths_with_new: bool = False) -> None:
        if mode not in _MODES:
            raise InvalidArgument(f"Plan: mode must be one of {', '.join(_MODES)}, not {mode!r}", status=1)
        flags = (_GRAPH if graph else 0) | (_SLOTS if slots else 0) | (_LENGTHS_WITH_NEW if lengths_with_new else 0)
        super().__init__(context or Context(threads=1), {
            "mode": _MODES[mode], "flags": flags, "page_size": page_size, "num_draft_tokens": num_draft_tokens,
            "num_steps": num_steps, "top_k": top_k, "window": window or 0, "chunk": chunk or 0, "pad": pad,
            "arrays": arrays, "max_rows": max_rows, "max_tokens": max_tokens, "max_pages_per_row": max_pages_per_row,
            "num_pool_pages": num_pool_pages})

    def build(self, seq_lens: Any, *, append_lengths: Any = None, rows: Any = None, block_table: Any = None,
              req_to_token: Any = None, encoder_lens: Any = None, tree_parents: Any = None,
              rows_grew: bool = False, stream: Any = None) -> int:
        """Makes the tables of a step. Arrays are int32; those of one dimension may be int64. All of them are on the host. In a
        graph plan of a GPU's context all may be on the GPU: then its kernels make the tables, and no call waits.

        Args:
            seq_lens: [B], tokens of each row before the step.
            append_lengths: [B], "extend": new tokens of each row.
            rows: [B], rows of the table; -1 = inert. None: row i is row i.
            block_table: [rows, columns], page ids. Either this,
            req_to_token: [rows, columns], or the slot of each token.
            encoder_lens: [B], encoder tokens before each row's own.
            tree_parents: [B * num_draft_tokens], "verify": the parent of each node in its row, -1 = root.
            rows_grew: a promise: the same rows as in the last build, each with what it had. Only what is new is read.
            stream: on a GPU, as Cache.forward.

        Returns:
            The number of this build, for check().

        Raises:
            InvalidArgument, OutOfRange, DType, Device, Rank, Shape, Stride, NullArgument, BatchTooLarge; the tables of
            the last build are stale then.
        """
        return self._build({"seq_lens": seq_lens, "append_lengths": append_lengths, "rows": rows,
                            "block_table": block_table, "req_to_token": req_to_token, "encoder_lens": encoder_lens,
                            "tree_parents": tree_parents}, rows_grew, stream)
