"""What transformers sees as the layers of the cache."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.nn.functional import pad
from transformers import PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin

from .geometry import Place, StatePlace
from .rows import Rows

if TYPE_CHECKING:
    import kvcache

ATTENTION = "kvcache"
"""Name of the attention implementation: attn_implementation=ATTENTION."""


class Handover(threading.local):
    """What one of our functions hands over to the next one that a model calls in this thread."""

    masked: Rows | None = None  # the rows whose mask is being made
    latents: tuple[PagedLayer, torch.Tensor, torch.Tensor] | None = None  # what a latent layer is about to attend with


handover = Handover()


class PagedLayer(CacheLayerMixin):
    """The keys and values of a layer.

    attends: the attention function of this package reads them; else the model does, and update returns them all.
    """

    is_croppable = True
    supports_early_init = False

    def __init__(self, rows: Rows, place: Place, config: PreTrainedConfig, attends: bool) -> None:
        super().__init__()
        self.rows, self.place, self.config, self.attends = rows, place, config, attends
        self.is_sliding = place.window is not None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing: pages exist from the start."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any,  # type: ignore[override]
               **kwargs: Any) -> tuple[Any, Any]:
        """Hands the new states to the attention function, which stores them: only it knows the mask.

        A model with latent attention expands what it gets here, so it gets the new latents themselves.
        """
        if self.attends != (self.config._attn_implementation == ATTENTION) and not self.attends:
            raise TypeError(f'PagedCache: made with attention="model", but the model has attn_implementation="{ATTENTION}"')
        if not self.attends:
            return self.rows.extend(self.place, key_states, None if self.place.same else value_states)
        if self.place.latent:
            if self.config._attn_implementation != ATTENTION:
                raise TypeError(reason(self.config))
            handover.latents = self, key_states, value_states
            return key_states, value_states
        return NewStates(self, key_states), NewStates(self, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        if self.attends or self.place.window is None:
            return self.rows.length + query_length, 0
        kept = min(self.rows.length, self.place.window - 1)
        return kept + query_length, self.rows.length - kept

    def get_seq_length(self) -> int:
        return self.rows.length

    def get_max_length(self) -> int:
        return -1


class PoolingLayer(PagedLayer):
    """A layer whose indexer asks for the number of its tokens when the new ones are stored, in two ways."""

    def get_seq_length(self) -> int:
        stored = self.rows.step is not None and self.place.index not in self.rows.pending
        return self.rows.length + (int(self.rows.visible.shape[1]) if stored else 0)

    @property
    def keys(self) -> torch.Tensor:  # type: ignore[override]
        """As many keys as there are tokens, but without dims."""
        return torch.empty(len(self.rows.sequences), 1, self.get_seq_length(), 0)

    @keys.setter
    def keys(self, keys: None) -> None:
        """Nothing: the keys are in the pages. The base class sets None."""


class PositionsLayer(PagedLayer):
    """A layer that has the positions of the tokens too, which a model reads and replaces when a forward begins."""

    def __init__(self, rows: Rows, place: Place, positions: Place, config: PreTrainedConfig) -> None:
        super().__init__(rows, place, config, attends=False)
        self.positions = positions

    @property
    def indexer_position_ids(self) -> torch.Tensor | None:
        """[3, rows, tokens]; None if there are no tokens."""
        self.rows.settle()
        if self.rows.length == 0:
            return None
        return self.rows.past_and_drafts(self.positions)[:, 0].permute(2, 0, 1).long()

    @indexer_position_ids.setter
    def indexer_position_ids(self, positions: torch.Tensor) -> None:
        """Stores the new ones of all positions."""
        new = positions[..., self.rows.length:].permute(1, 2, 0)  # of text, a model gives one for all rows
        self.rows.extend(self.positions, new[:, None].float().contiguous(), None)


def reason(config: PreTrainedConfig) -> str:
    """The message for a model that reads keys which only the attention function of this package can read."""
    if config._attn_implementation == ATTENTION:
        return ("this model computes attention itself, not through the attention interface of transformers: make the cache "
                'with PagedCache(..., attention="model"), and load the model with attn_implementation="eager"')
    return (f'what a PagedCache returns is read by attn_implementation="{ATTENTION}" only, and this model runs '
            f'"{config._attn_implementation}": call model.set_attn_implementation("{ATTENTION}"). A model on which that has no '
            'effect computes attention itself: make the cache with PagedCache(..., attention="model")')


class NewStates:
    """New keys or values of a layer on their way to its pages: not a tensor of all of them, as other caches return."""

    def __init__(self, layer: PagedLayer, new: torch.Tensor) -> None:
        self.layer, self.new = layer, new
        self.shape, self.dtype, self.device = new.shape, new.dtype, new.device

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        states = next(x for x in flat((args, kwargs)) if isinstance(x, cls))
        raise TypeError(f"{getattr(function, '__name__', function)}: {reason(states.layer.config)}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: {reason(self.layer.config)}")

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(reason(self.layer.config))

    def _operate(self, *args: Any) -> NoReturn:
        raise TypeError(reason(self.layer.config))

    __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __matmul__ = __rmatmul__ = _operate


def flat(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        for item in x:
            yield from flat(item)
    elif isinstance(x, dict):
        yield from flat(tuple(x.values()))
    else:
        yield x


class StateLayer:
    """The recurrent states of a layer.

    A model may write into a state that it got. So the pages get what the tensors hold when the layer is done: when it has
    handed over the states that it computes last, or has written them in place. These are the recurrent ones; without any,
    those of convolutions.
    """

    is_croppable = False
    is_compileable = False
    supports_early_init = False
    is_sliding = False

    def __init__(self, rows: Rows, place: StatePlace) -> None:
        self.rows, self.place = rows, place
        self.kernels = [shape[-1] for shape in place.shapes.convolutions]
        self.shapes = [*place.shapes.convolutions, *place.shapes.recurrent]
        num_convolutions, num_states = len(self.kernels), len(self.shapes)
        self.awaited = set(range(num_convolutions, num_states) or range(num_convolutions))
        # With record_past a model hands over every input of a convolution. Without it, it writes the state of a single token in place.
        self.record_past = num_convolutions == num_states
        self.dtypes: dict[int, torch.dtype] = {}
        self.step: kvcache.Step | None = None
        self.tensors: dict[int, torch.Tensor] = {}  # in the step: the states by index
        self.versions: dict[int, int] = {}  # of those that have been loaded, when they were
        self.updated: set[int] = set()

    def get_max_length(self) -> int:
        return -1

    @property
    def has_previous_state(self) -> bool:
        return self.rows.length > 0

    def convolution(self, index: int) -> torch.Tensor | None:
        return self._load(index)

    def recurrent(self, index: int) -> torch.Tensor | None:
        return self._load(len(self.kernels) + index)

    def update_convolution(self, new: torch.Tensor, index: int) -> torch.Tensor:
        """new: [rows, channels, new tokens]. Returns it after the inputs before, and keeps the last ones."""
        kernel = self.kernels[index]
        loaded = self.step is not None and self.step is self.rows.step and index in self.tensors
        past = self.tensors[index] if loaded else self._load(index)
        self._enter(index, new, new.shape[-1])
        full = new if past is None else torch.cat([past, new], dim=-1)
        kept = pad(full, (max(0, kernel - full.shape[-1]), 0))[..., -kernel:]
        self._update(index, kept)
        return full if self.record_past else pad(full, (max(0, kernel - full.shape[-1]), 0))

    def update_recurrent(self, new: torch.Tensor, index: int) -> torch.Tensor:
        index += len(self.kernels)
        self._enter(index, new, None)
        new = new.to(self.dtypes.setdefault(index, new.dtype))
        self._update(index, new)
        return new

    def _load(self, index: int) -> torch.Tensor | None:
        """A copy of a state as it was before the forward; None before the first one."""
        rows = self.rows
        rows.settle()
        if rows.length == 0:
            return None
        if rows.step is None or self.place.index not in rows.pending or (self.step is rows.step and index in self.tensors):
            rows.begin_announced()  # the last forward has ended, or it raised
        self._follow()
        assert rows.step is not None
        num = len(rows.sequences) if rows.growing is None else len(rows.growing)
        with torch.inference_mode(False):  # whose tensors have no version
            state = torch.empty(num, *self.shapes[index], dtype=self.place.dtypes[index])
            rows.step.load_state(self.place.index, index, state)
            if rows.growing is not None:  # the other rows have hidden tokens alone, and their outputs are not read
                every = state.new_zeros(len(rows.sequences), *state.shape[1:])
                every[rows.growing.clone()] = state
                state = every
            state = state.to(self.dtypes.get(index, state.dtype))
        self.tensors[index], self.versions[index] = state, state._version
        if self not in rows.unsettled:
            rows.unsettled.append(self)
        return self.tensors[index]

    def _follow(self) -> None:
        if self.step is not self.rows.step:
            self._reset(self.rows.step)

    def _reset(self, step: kvcache.Step | None) -> None:
        self.step, self.tensors, self.versions, self.updated = step, {}, {}, set()

    def _enter(self, index: int, new: torch.Tensor, num_new: int | None) -> None:
        rows = self.rows
        self.dtypes.setdefault(index, new.dtype)
        if rows.step is None or self.place.index not in rows.pending or (self.step is rows.step and index in self.updated):
            rows.begin_announced(len(new), num_new)
            self._follow()
        elif num_new is not None and rows.announced is None and num_new != rows.visible.shape[1]:
            rows.begin_announced(len(new), num_new)  # the states that were loaded are those of the same tokens
            self.step = rows.step
        else:
            self._follow()

    def _update(self, index: int, new: torch.Tensor) -> None:
        expected = (len(self.rows.sequences), *self.shapes[index])
        if tuple(new.shape) != expected:
            self.rows.abort()
            raise ValueError(f"PagedCache: state {index} of a layer is {list(new.shape)}, but {list(expected)} was expected")
        self.tensors[index] = new
        self.versions.pop(index, None)
        self.updated.add(index)
        if self.awaited <= self.updated:
            self._store()

    def settle(self) -> bool:
        """Stores the states if the awaited ones were written in place since they were loaded. False: they may be still."""
        if self.step is None or self.step is not self.rows.step:
            return True
        written = {index for index, version in self.versions.items() if self.tensors[index]._version != version}
        if not self.awaited <= self.updated | written:
            return False
        self._store()
        return True

    def _store(self) -> None:
        step, growing = self.rows.step, self.rows.growing
        assert step is not None
        try:
            for state, tensor in self.tensors.items():
                tensor = tensor if growing is None else tensor.index_select(0, growing)
                step.store_state(self.place.index, state, tensor.detach().to(self.place.dtypes[state]).contiguous())
        except BaseException:
            self.rows.abort()
            raise
        self._reset(None)
        self.rows.finish(self.place.index)
