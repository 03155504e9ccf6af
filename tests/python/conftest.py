import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "support"))


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture
def qkv(rng):
    """qkv(T, Hq, Hkv, D, Dv=None, dtype=np.float32): random q, k and v."""

    def make(tokens, q_heads, kv_heads, head_dim, v_head_dim=None, dtype=np.float32):
        shapes = ((tokens, q_heads, head_dim), (tokens, kv_heads, head_dim), (tokens, kv_heads, v_head_dim or head_dim))
        return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)

    return make
