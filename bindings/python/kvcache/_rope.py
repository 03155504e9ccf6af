"""How a layer's rotary position embedding was stretched: the fields of "rope_scaling" in a model's config.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._errors import InvalidArgument

_KINDS = {"linear": 1, "llama3": 2, "yarn": 3, "longrope": 4}
_NO_TRUNCATE = 1


@dataclass(frozen=True)
class RopeScaling:
    """A scaling of RoPE. Fields that do not belong to the kind stay 0; docs/reference/rope.md has every formula.

    Args:
        kind: "linear", "llama3", "yarn" or "longrope".
        factor: how many times longer contexts became, >= 1; longrope: only for the default of attention_factor.
        original_max_position: llama3, yarn, longrope: tokens that the model was trained for before.
        low_freq_factor, high_freq_factor: llama3.
        beta_fast, beta_slow: yarn; 0 = 32 and 1.
        truncate: yarn: round the bounds of the blend to whole pairs.
        attention_factor: yarn, longrope: multiplies cos and sin of q and k; 0 = from the mscales, or from factor.
        mscale, mscale_all_dim: yarn: both together give the default of attention_factor, as in DeepSeek.
        short_factors, long_factors: longrope: rope_dim / 2 numbers each. Cache.set_rope chooses for a sequence.
    """

    kind: str
    factor: float = 0.0
    original_max_position: int = 0
    low_freq_factor: float = 0.0
    high_freq_factor: float = 0.0
    beta_fast: float = 0.0
    beta_slow: float = 0.0
    truncate: bool = True
    attention_factor: float = 0.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    short_factors: Sequence[float] = ()
    long_factors: Sequence[float] = ()

    def _fields(self) -> tuple[Any, ...]:
        if self.kind not in _KINDS:
            raise InvalidArgument(f"RopeScaling: kind must be one of {', '.join(_KINDS)}, not {self.kind!r}", status=1)
        return (_KINDS[self.kind], 0 if self.truncate else _NO_TRUNCATE, self.original_max_position,
                (self.factor, self.low_freq_factor, self.high_freq_factor, self.beta_fast, self.beta_slow,
                 self.attention_factor, self.mscale, self.mscale_all_dim),
                tuple(self.short_factors), tuple(self.long_factors))  # fmt: skip
