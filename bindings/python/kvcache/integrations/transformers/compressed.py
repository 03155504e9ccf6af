"""Layers whose keys are their values too, and that may have rows which compress several tokens: those of DeepSeek-V4."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedConfig

from .geometry import CompressedPlace, Place
from .layers import ATTENTION, NewStates, PagedLayer, flat
from .rows import Rows


class WindowStates(NewStates):
    """New keys of such a layer on their way to its pages. The model puts compressed rows after them.

    These rows are in the pages by then, so what the model has is a tensor of as many rows without dims. Its shape counts them
    alone, as do the masks that the model makes for this attention.
    """

    def __init__(self, layer: PagedLayer, new: torch.Tensor) -> None:
        super().__init__(layer, new)
        self.shape = torch.Size((*new.shape[:2], 0, new.shape[3]))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(flat((args, kwargs or {})))
        if function is torch.cat and len(given) == 3 and isinstance(given[0], cls) and isinstance(given[1], torch.Tensor):
            both = cls(given[0].layer, given[0].new)
            both.shape = torch.Size((*both.shape[:2], given[1].shape[2], both.shape[3]))
            return both
        return super().__torch_function__(function, types, args, kwargs)


class CompressedLayer(PagedLayer):
    """A layer with one row a token that is key and value, in a window. Its modules call it to keep compressed rows too.

    A module projects each new token and hands that over. It gets back the tokens of the rows that close now, computes these
    rows, and hands them over as well. All that it needs of tokens before is in the pages. A module computes as many rows for
    each row of the batch, from one position on. So it gets those that any row of the batch closes, and what it computes
    of them for another one is left out.
    """

    def __init__(self, rows: Rows, place: Place, compressed: dict[str, CompressedPlace], config: PreTrainedConfig,
                 attends: bool) -> None:
        super().__init__(rows, place, config, attends)
        self.compressed = compressed

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any,  # type: ignore[override]
               **kwargs: Any) -> tuple[Any, Any]:
        if not self.attends:
            return super().update(key_states, value_states)
        new = WindowStates(self, key_states)
        return new, new

    def store_compression_weights(self, name: str, kv: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Stores what rows are computed from, [rows, new tokens, channels], and returns that of the rows that close.

        Of rows that overlap, the tokens begin with those of the row before. The module computes that row again, without
        its overlap, and update_compressor_states leaves it out.
        """
        place = self.compressed[name]
        tokens = torch.cat([kv, gate], dim=-1)
        heads = tokens.unflatten(-1, (4 if place.overlaps else 2, -1)).transpose(1, 2)
        seen = self.rows.extend_window(place.tokens, heads)
        closing, first, last = self._closing(place)
        chunk = tokens.new_zeros(len(tokens), (last - first) * place.ratio, tokens.shape[-1])
        for row, (begin, end) in enumerate(closing):
            if begin < end:
                begin = max(begin - place.overlaps, 0) * place.ratio
                open_tokens = self.rows.lengths_after[row] - end * place.ratio
                of_row = seen[row].transpose(0, 1).flatten(1)
                of_row = of_row[len(of_row) - open_tokens - (end * place.ratio - begin):len(of_row) - open_tokens]
                chunk[row, begin - first * place.ratio:(end - first) * place.ratio] = of_row
        kv, gate = chunk.chunk(2, dim=-1)
        return kv, gate, first * place.ratio

    def update_overlap_state(self, name: str, chunk_kv: torch.Tensor, chunk_gate: torch.Tensor,
                             head_dim: int) -> tuple[None, None]:
        """Nothing: what store_compression_weights returns begins with the tokens that the first row overlaps."""
        return None, None

    def update_compressor_states(self, name: str, compressed: torch.Tensor) -> torch.Tensor:
        """Stores the rows that close, and returns all, [rows, compressed rows, dim]; without dims if attention reads the pages."""
        place = self.compressed[name]
        closing, first, _ = self._closing(place)
        new = [compressed[row, begin - first:end - first] for row, (begin, end) in enumerate(closing)]
        read = not self.attends or name != "compressor"
        past = self.rows.extend_compressed(place.rows, new, read)
        result = compressed.new_zeros(len(new), max(end for _, end in closing), compressed.shape[-1] if read else 0)
        for row, (begin, end) in enumerate(closing if read else []):
            result[row, :begin] = past[row][:begin]
            result[row, begin:end] = new[row].to(past[row].dtype)
        return result

    def _closing(self, place: CompressedPlace) -> tuple[list[tuple[int, int]], int, int]:
        """The rows that close in the open step, of each row of the batch; and those that the module is to compute."""
        lengths = zip(self.rows.lengths, self.rows.lengths_after, strict=True)
        closing = [(before // place.ratio, after // place.ratio) for before, after in lengths]
        some = [(begin, end) for begin, end in closing if begin < end] or [(0, 0)]
        return closing, max(min(begin for begin, _ in some) - place.overlaps, 0), max(end for _, end in some)

    def attend(self, module: torch.nn.Module, query: torch.Tensor, key: WindowStates, mask: torch.Tensor | None,
               options: dict[str, Any]) -> torch.Tensor:
        """mask: what the model made of that of `mask`: 0 where a query sees a compressed row, [rows, 1, new tokens, compressed rows]."""
        expected = (query.shape[0], 1, query.shape[2], key.shape[2])
        if mask is None or tuple(mask.shape) != expected:
            raise NotImplementedError(f'attn_implementation="{ATTENTION}": an attention_mask of its own; [rows, tokens] is supported')
        far = None
        if self.compressed:
            far = self.compressed["compressor"].rows, _listed(mask[:, 0] == 0) if "indexer" in self.compressed else None
        announced = self.rows.announced
        return self.rows.attend(self.place, module, announced[0] if announced else None, query, key.new, None, far=far, **options)


def _listed(seen: torch.Tensor) -> torch.Tensor:
    """The indices of what is True in the last dimension, ascending, and then -1."""
    count = seen.shape[-1]
    indices = torch.where(seen, torch.arange(count), count).sort(dim=-1).values
    most = max(1, int(seen.sum(-1).max())) if count else 1
    indices = torch.nn.functional.pad(indices, (0, max(0, most - count)), value=count)[..., :most]
    return torch.where(indices == count, -1, indices).int()
