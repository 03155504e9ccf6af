"""The rows of a batch as sequences of the pool, and the step of the forward that runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch.nn.functional import pad

import kvcache

from .geometry import Geometry, Place


class Unsettled(Protocol):
    """A layer whose states a model writes in place. No call says when it has done so."""

    def settle(self) -> bool:
        """Stores the states and returns True if the model has written them."""


class Rows:
    """The rows of a batch: a sequence each, and which of their tokens are stored.

    Invariants outside a step: `stored` is [rows, length]; sequence b holds the stored[b].sum() tokens that it marks. Without
    tokens there are no sequences, so that the next forward may have any number of rows.
    """

    def __init__(self, pool: kvcache.Cache, geometry: Geometry) -> None:
        self.pool = pool
        self.geometry = geometry
        self.sequences: list[int] = []
        self.stored = torch.ones(0, 0, dtype=torch.bool)
        self.step: kvcache.Step | None = None
        self.visible = self.stored  # [rows, new tokens] of the open step
        self.picked: torch.Tensor | None = None  # the visible ones of its rows * new tokens; None = all
        self.growing: torch.Tensor | None = None  # rows that have visible tokens in it; None = all
        self.mask: torch.Tensor | None = None  # the attention_mask that it was opened with
        self.pending: set[int] = set()  # layers of the pool that have not run in it
        self.unsettled: list[Unsettled] = []  # layers whose states have been loaded, and may be written in place
        # attention_mask and new tokens of the next forward. Its masks are made before its first layer runs.
        self.announced: tuple[torch.Tensor | None, int] | None = None
        self.drafts_from: int | None = None  # the length at which drafts began. They are nodes, chains of their rows

    @property
    def length(self) -> int:
        """Tokens of each row as transformers counts them, hidden ones included."""
        return int(self.stored.shape[1])

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row in its sequence."""
        lengths: list[int] = self.stored.sum(1).tolist()
        return lengths

    @property
    def lengths_after(self) -> list[int]:
        """Tokens of each row when the open step has ended."""
        lengths: list[int] = (self.stored.sum(1) + self.visible.sum(1)).tolist()
        return lengths

    def settle(self) -> None:
        """Ends the layers whose states have been written in place since. Every call that depends on the length calls it first."""
        waiting, self.unsettled = self.unsettled, []
        self.unsettled += [layer for layer in waiting if not layer.settle()]

    def begin(self, mask: torch.Tensor | None, num_rows: int, num_new: int) -> kvcache.Step:
        """Opens the step of a forward."""
        self.abort()  # of a forward that raised or was interrupted
        if not self.sequences:
            self.sequences = self.pool.add(num_rows)
            self.stored = torch.ones(num_rows, 0, dtype=torch.bool)
        try:
            self._check_mask(mask, num_rows, num_new)
            new = torch.ones(num_rows, num_new, dtype=torch.bool) if mask is None else mask[:, self.length:].bool()
            counts = new.sum(1).tolist()
            growing = [(sequence, count) for sequence, count in zip(self.sequences, counts, strict=True) if count]
            if not growing:
                raise ValueError(f"PagedCache: attention_mask hides all {num_new} new tokens of every row")
            sequences, lengths = zip(*growing, strict=True)
            self.step = self.pool.forward(sequences, lengths, parents=self._chains(sequences, lengths))
        except BaseException:
            self.abort()
            raise
        self.visible, self.picked = new, None if new.all() else new.flatten().nonzero().squeeze(1)
        self.growing = None if len(growing) == num_rows else torch.tensor(counts).nonzero().squeeze(1)
        self.mask = mask
        self.pending = set(range(len(self.geometry.layers)))
        return self.step

    def _chains(self, sequences: Sequence[int], lengths: Sequence[int]) -> list[list[int]] | None:
        """The parents of new drafts, each of which follows the one before. None: the tokens are no nodes."""
        if not self._drafts_are_nodes:
            return None
        nodes = self.pool.tree_nodes(sequences)
        return [[first - 1 + i for i in range(count)] for first, count in zip(nodes, lengths, strict=True)]

    @property
    def _drafts_are_nodes(self) -> bool:
        """A group with compressed rows has no nodes, so its drafts are tokens, which can be truncated."""
        return self.drafts_from is not None and not any(self.geometry.compressed)

    def begin_announced(self, num_rows: int | None = None, num_new: int | None = None) -> kvcache.Step:
        """Opens the step of a forward at a layer that does not know the mask, and may not know the number of tokens.

        A model without masks announces nothing. Then all tokens are visible. A layer that does not give their number has one token.
        """
        mask, num_new = self.announced or (None, num_new or 1)
        return self.begin(mask, len(self.sequences) if num_rows is None else num_rows, num_new)

    def _check_mask(self, mask: torch.Tensor | None, num_rows: int, num_new: int) -> None:
        if len(self.sequences) != num_rows:
            raise ValueError(f"PagedCache: the forward has {num_rows} rows, the cache {len(self.sequences)}; reset() makes "
                             "it ready for another batch")
        shape = (num_rows, self.length + num_new)
        if mask is not None and tuple(mask.shape) != shape:
            raise ValueError(f"PagedCache: attention_mask is {list(mask.shape)}; {list(shape)} is needed: {num_rows} rows of "
                             f"{self.length} tokens in the cache and {num_new} new ones")
        past = torch.ones_like(self.stored) if mask is None else mask[:, :self.length].bool()
        if not torch.equal(past, self.stored):
            raise ValueError("PagedCache: attention_mask differs from what the cache was filled with: hidden tokens were not "
                             "stored, and stored ones cannot be hidden later")

    def attend(self, place: Place, module: torch.nn.Module, mask: torch.Tensor | None, q: torch.Tensor,
               k: torch.Tensor | None, v: torch.Tensor | None, far: tuple[Place, torch.Tensor | None] | None = None,
               **options: Any) -> torch.Tensor:
        """q [rows, q_heads, new, head_dim]; k and v the same with kv_heads. Returns [rows, new, q_heads, v_head_dim].

        far: a layer whose rows are stored already, which q sees in the same softmax; and if it does not see all, lists of
        them, [rows, new, count]. A layer that reads the keys of another one may have fewer queries than the forward has
        tokens: those of the last ones.
        """
        self.settle()
        num_rows, _, num_queries, _ = q.shape
        num_new = num_queries
        step = self.step
        if step is not None and place.shared:
            num_new = self.visible.shape[1]
            q = pad(q, (0, 0, num_new - num_queries, 0))
        if step is None or place.index not in self.pending:
            self._check_layers(module)
            step = self.begin(mask, num_rows, num_new)
        elif mask is not self.mask and not _equal(mask, self.mask):
            self.abort()
            raise ValueError("PagedCache: layers of one forward got different values of attention_mask")
        try:
            parts = [None if x is None else self._pack(x) for x in (q, k, v)]
            out: torch.Tensor
            if far is None:
                out = step.attend(place.index, *parts, **options)
            else:
                near, near_lse = step.attend(place.index, *parts, lse=True, **options)
                lists = None if far[1] is None else self._pack(far[1][:, None]).contiguous()
                rest, rest_lse = step.attend(far[0].index, parts[0], indices=lists, lse=True, **options | dict(sinks=None))
                out = self.pool.context.merge_states([near, rest], [near_lse, rest_lse])[0].to(q.dtype)
        except BaseException:
            self.abort()
            raise
        self.finish(place.index)
        if far is not None:
            self.finish(far[0].index)
        if self.picked is not None:
            out = out.new_zeros(num_rows * num_new, *out.shape[1:]).index_copy_(0, self.picked, out)
        return out.view(num_rows, num_new, *out.shape[1:])[:, num_new - num_queries:]

    def _check_layers(self, module: torch.nn.Module) -> None:
        made_for = len(self.geometry.places)
        runs = getattr(module.config, "num_hidden_layers", made_for)
        if runs < made_for:
            raise ValueError(f"PagedCache: made for {made_for} layers, but the model runs {runs} (an early exit?)")

    def _pack(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, heads, new, dim] -> [visible tokens, heads, dim]: a view if there is no padding."""
        x = x.transpose(1, 2).flatten(0, 1)
        return x if self.picked is None else x.index_select(0, self.picked)

    def extend(self, place: Place, k: torch.Tensor, v: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores new keys and values, every column of them, and returns copies of all that the layer sees.

        They are [rows, heads, tokens, dim]; of a latent layer the latent and the rotary part. Without v both are keys.
        """
        self.settle()
        num_rows, _, num_new, _ = k.shape
        step = self.step
        if step is None or place.index not in self.pending:
            step = self.begin(None, num_rows, num_new)
        try:
            if v is None:
                step.append(place.index, self._pack(k))
                keys = values = self._read(place, step, "k")
            elif place.latent:
                step.append(place.index, self._pack(torch.cat([k, v], dim=-1)))
                row = self._read(place, step, "k")
                keys, values = row.split([k.shape[-1], v.shape[-1]], dim=-1)
            else:
                step.append(place.index, self._pack(k), self._pack(v))
                keys, values = self._read(place, step, "k"), self._read(place, step, "v")
        except BaseException:
            self.abort()
            raise
        self.finish(place.index)
        return keys.to(k.dtype), values.to(k.dtype)

    def _read(self, place: Place, step: kvcache.Step, which: Literal["k", "v"]) -> torch.Tensor:
        """A copy of the keys or values that the new tokens see. Rows have equally many, because none is hidden."""
        tables = step.tables(place.group)
        assert tables.block_table is not None
        return self._gather(place, which, tables.block_table)[:, :, tables.leftpad[0]:tables.cache_seqlens[0]]

    def _gather(self, place: Place, which: Literal["k", "v"], pages: np.ndarray[Any, Any]) -> torch.Tensor:
        """A copy of these pages of each row, [rows, heads, slots, dim]."""
        pool = torch.from_dlpack(self.pool.layer_pool(place.index, which))  # [pages, heads, slots of a page, dim]
        return pool[torch.from_numpy(pages).long()].transpose(1, 2).flatten(2, 3)

    def extend_window(self, place: Place, new: torch.Tensor) -> list[torch.Tensor]:
        """Stores new keys of a sliding layer, [rows, heads, new, dim], and returns copies of those that each row sees.

        They are [heads, tokens, dim], the new ones last. A row whose tokens are all hidden gets none.
        """
        self.settle()
        if self.step is None or place.index not in self.pending:
            self.begin_announced(new.shape[0], new.shape[2])
        step = self.step
        assert step is not None
        try:
            step.append(place.index, self._pack(new))
            tables = step.tables(place.group)
            assert tables.block_table is not None
            pages = self._gather(place, "k", tables.block_table).to(new.dtype)
        except BaseException:
            self.abort()
            raise
        seen = [new[row, :, :0] for row in range(len(new))]
        for i, row in enumerate(range(len(new)) if self.growing is None else self.growing.tolist()):
            seen[row] = pages[i, :, tables.leftpad[i]:tables.cache_seqlens[i]]
        self.finish(place.index)
        return seen

    def extend_compressed(self, place: Place, new: list[torch.Tensor], read: bool) -> list[torch.Tensor]:
        """Stores the compressed rows that close in the open step, [closing, dim] of each row.

        read: returns copies of those before, and maybe more; the layer has run then. Else an attend follows.
        """
        step = self.step
        assert step is not None and place.index in self.pending
        past = []
        try:
            step.append(place.index, torch.cat(new)[:, None])
            if read:
                past = [self._gather(place, "k", self.pool.pages(sequence, place.group)[None])[0, 0] for sequence in self.sequences]
        except BaseException:
            self.abort()
            raise
        if read:
            self.finish(place.index)
        return past

    def past(self, place: Place, count: int) -> torch.Tensor:
        """A copy of the first `count` rows of a layer that sees them all, without those of an open step and drafts."""
        pages = [self.pool.pages(sequence, place.group) for sequence in self.sequences]
        return self._gather(place, "k", np.stack(pages))[:, :, :count]

    def past_and_drafts(self, place: Place) -> torch.Tensor:
        """A copy of all keys of a layer that sees them all, outside a step. Only a step has the pages of drafts."""
        if self.drafts_from is None:
            return self.past(place, self.length)
        keys = self._read(place, self.begin(None, len(self.sequences), 1), "k")[:, :, :-1]
        self.abort()
        return keys

    def finish(self, layer: int) -> None:
        """A layer of the pool has run. The step ends with the last one."""
        self.pending.remove(layer)
        if not self.pending and self.step is not None:
            self.step.end()
            self.step = self.announced = None
            self.stored = torch.cat([self.stored, self.visible], dim=1)

    def abort(self) -> None:
        """Closes an open step; its tokens are not stored."""
        step, self.step, self.unsettled = self.step, None, []
        if step is not None and not self.pool.closed:
            step.abort()
        if self.length == 0:
            self._remove()

    def clear(self) -> None:
        self.drafts_from = None
        self.stored = self.stored[:, :0]
        self.abort()

    def _remove(self) -> None:
        sequences, self.sequences = self.sequences, []
        if sequences and not self.pool.closed:
            self.pool.remove(sequences)

    def crop(self, tokens: int) -> None:
        self.settle()
        self.abort()
        kept = self.stored[:, :max(0, self.length - tokens)]
        if self._drafts_are_nodes and kept.shape[1] >= (self.drafts_from or 0):
            nodes = zip(self.sequences, self.stored[:, self.drafts_from:].sum(1).tolist(),
                        kept[:, self.drafts_from:].sum(1).tolist(), strict=True)
            leaves = [(sequence, right - 1) for sequence, drafts, right in nodes if drafts]
            if leaves:
                self.pool.commit(*zip(*leaves, strict=True))
        elif self.sequences:
            self.pool.truncate(self.sequences, kept.sum(1).tolist())
        self.drafts_from = None
        self.stored = kept
        self.abort()  # its rows go with their last token

    def fork(self) -> Rows:
        self.settle()
        other = Rows(self.pool, self.geometry)
        if self.sequences:
            other.sequences, other.stored = self.pool.fork(self.sequences), self.stored
        return other

    def select(self, rows: Iterable[int]) -> None:
        """Row i becomes what row rows[i] was: its first heir keeps the sequence, others get forks of it."""
        self.settle()
        self.abort()
        if not self.sequences:
            return
        rows = list(rows)
        heirs: dict[int, int] = {}
        twins = [i for i, row in enumerate(rows) if heirs.setdefault(row, i) != i]
        forks = dict(zip(twins, self.pool.fork([self.sequences[rows[i]] for i in twins]), strict=True))
        self.pool.remove([sequence for row, sequence in enumerate(self.sequences) if row not in heirs])
        self.sequences = [forks[i] if i in forks else self.sequences[row] for i, row in enumerate(rows)]
        self.stored = self.stored[rows]


def _equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return a is None and b is None or a is not None and b is not None and torch.equal(a, b)
