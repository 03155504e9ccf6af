"""JAX arrays without conversion. The test needs jax, so only scripts that install it name this file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kvcache
from reference import DenseLayer


@pytest.fixture
def step():
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16)] * 8, capacity_tokens=64) as cache:
        with cache.forward([cache.add()], [3]) as step:
            yield step
            step.abort()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_in_and_out(step, qkv, dtype):
    q, k, v = (jnp.asarray(x).astype(dtype) for x in qkv(3, 2, 1, 16))
    expected, expected_lse = DenseLayer().step([0], [3], *(np.asarray(x, np.float32) for x in (q, k, v)))
    out, lse = step.attend(0, q, k, v, lse=True)
    assert isinstance(out, jax.Array) and out.dtype == dtype and lse.dtype == jnp.float32
    tolerance = 2e-5 if dtype == jnp.float32 else 3e-2
    np.testing.assert_allclose(np.asarray(out, np.float32), expected, atol=tolerance)
    np.testing.assert_allclose(lse, expected_lse, atol=tolerance)
    del step
    assert jnp.isfinite(out.sum())  # the array owns its memory


def test_arrays_are_no_outputs(step, qkv):
    q, k, v = (jnp.asarray(x) for x in qkv(3, 2, 1, 16))
    with pytest.raises(kvcache.InvalidArgument, match="immutable"):
        step.attend(0, q, k, v, out=jnp.zeros_like(q))
    with pytest.raises(kvcache.InvalidArgument, match="immutable"):
        kvcache.Cache([kvcache.Layer(head_dim=16, kv_storage=jnp.zeros((4, 2, 1, 16, 16)))], [kvcache.Full(pages=4)])
    out = np.zeros((3, 2, 16), np.float32)
    assert step.attend(0, q, k, v, out=out) is out and out.any()


def test_results_still_being_computed(step):
    x = jnp.ones((3, 2, 16))
    q = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda _, y: y * 1.0001, x))(x)
    out = step.attend(0, q, q[:, :1], q[:, 1:])
    np.testing.assert_allclose(out, q, rtol=1e-5)  # equal keys: the mean of equal values


def test_tracers_are_refused(step):
    kv = np.ones((3, 1, 16), np.float32)
    with pytest.raises(Exception) as caught:
        jax.jit(lambda q: step.attend(0, q, kv, kv))(jnp.ones((3, 2, 16)))
    assert not isinstance(caught.value, kvcache.Internal)


def test_pools_and_exports(qkv):
    q, k, v = (jnp.asarray(x).astype(jnp.bfloat16) for x in qkv(3, 2, 1, 16))
    with kvcache.Cache([kvcache.Layer(q_heads=2, head_dim=16, dtype=jnp.bfloat16)], capacity_tokens=64) as cache:
        a = cache.add()
        with cache.forward([a], [3]) as step:
            step.attend(0, q, k, v)
        exported_k, exported_v = (jax.dlpack.from_dlpack(x) for x in cache.export(a, 0))
        assert jnp.array_equal(exported_k, k) and jnp.array_equal(exported_v, v)
        b = cache.add()
        cache.import_(b, [exported_k], [exported_v], as_stored=True)
        assert cache.length(b) == 3
