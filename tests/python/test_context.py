"""Contexts, estimates, and the files of the package."""

import ctypes
import gc
import logging
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest

import kvcache

LAYER = kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16)


def test_describe():
    described = kvcache.Context(threads=3).describe()
    assert described["threads"] == 3 and described["simd"] in described["simd_available"]
    for name in described["simd_available"]:
        assert kvcache.Context(simd=name).describe()["simd"] == name


@pytest.mark.parametrize("arguments, error", [
    ({"device": "tpu"}, kvcache.InvalidArgument),
    ({"device": "cuda:x"}, kvcache.InvalidArgument),
    ({"device": (11, 0)}, kvcache.Error),
    ({"threads": -1}, kvcache.InvalidArgument),
    ({"threads": 2**40}, kvcache.InvalidArgument),
    ({"simd": "mmx"}, kvcache.Unsupported),
    ({"simd": 5}, (TypeError, RuntimeError)),
    ({"pool": "tbb"}, ValueError),
])  # fmt: skip
def test_bad_contexts(arguments, error):
    with pytest.raises(error):
        kvcache.Context(**arguments)


OPENMP = """
import ctypes, os, pathlib
import numpy as np
import kvcache
try:
    kvcache.Context(pool="openmp")
except kvcache.Unsupported as error:
    assert "OpenMP" in str(error)
else:
    raise AssertionError("a runtime was found before one was loaded")
ctypes.CDLL("libgomp.so.1").omp_set_num_threads(3)
pools = [kvcache.Context(pool="openmp"), kvcache.Context(pool="openmp", threads=2), kvcache.Context(threads=1)]
assert [pool.describe()["threads"] for pool in pools] == [3, 2, 1]
assert [pool.describe()["host_parallel_for"] for pool in pools] == [True, True, False]
def names():
    return sorted(pathlib.Path(f"/proc/self/task/{task}/comm").read_text() for task in os.listdir("/proc/self/task"))

before = names()
q, cache = np.random.randn(8, 64, 4, 64).astype("float32"), np.random.randn(8, 512, 1, 64).astype("float32")
outputs, found = [], []
for pool in pools:
    outputs.append(kvcache.flash_attn_with_kvcache(q, cache, cache, causal=True, context=pool))
    found.append(names())
assert len(found[0]) == len(before) + 2, (before, found)  # the workers of the runtime, beside the caller
assert not [name for name in found[-1] if name.startswith("kvc-")], found  # the library's have such names
for output in outputs:
    np.testing.assert_allclose(output, outputs[-1], atol=1e-5)
"""


def test_openmp_pool():
    """Contexts on the threads of a loaded OpenMP runtime. They find the runtime, use its threads, and start none of their
    own."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", OPENMP], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_every_simd_target_agrees(qkv):
    q, k, v = qkv(37, 2, 1, 16)
    results = []
    for name in kvcache.Context().describe()["simd_available"]:
        with kvcache.Cache([LAYER], capacity_tokens=64, context=kvcache.Context(simd=name)) as cache:
            with cache.forward([cache.add()], [37]) as step:
                results.append(step.attend(0, q, k, v))
    for result in results:
        np.testing.assert_allclose(result, results[0], atol=2e-5)


def test_log_goes_to_a_function_or_a_logger(caplog):
    messages = []
    with kvcache.Cache([LAYER], capacity_tokens=64, context=kvcache.Context(log=lambda *m: messages.append(m))):
        pass
    assert all(level in (1, 2, 3) and isinstance(message, str) for level, message in messages)
    with caplog.at_level(logging.DEBUG):
        kvcache.Context(log=logging.getLogger("kvcache"))
    assert all(record.name == "kvcache" for record in caplog.records)


def test_a_log_function_that_refers_to_its_context_is_collected():
    class Log:
        def __call__(self, level, message): ...

    log = Log()
    log.cache = kvcache.Cache([LAYER], capacity_tokens=64, context=kvcache.Context(log=log))
    log.step = log.cache.forward([0], [1])
    alive = weakref.ref(log)
    del log
    gc.collect()
    assert alive() is None


def test_a_cache_keeps_its_context():
    cache = kvcache.Cache([LAYER], capacity_tokens=64, context=kvcache.Context(threads=1))
    gc.collect()
    assert cache.context.describe()["threads"] == 1 and isinstance(cache.context, kvcache.Context)


def test_estimate():
    arguments = {"layers": [kvcache.Layer(head_dim=16, dtype="f16")] * 3, "page_size": 4, "capacity_tokens": 100}
    estimate = kvcache.estimate(**arguments)
    assert estimate.num_pages == 25 and estimate.token_bytes == 3 * 2 * 16 * 2
    assert estimate.storage_bytes == 25 * 4 * estimate.token_bytes
    assert [g.page_bytes for g in estimate.groups] == [4 * estimate.token_bytes]
    assert estimate.total_bytes >= estimate.storage_bytes + estimate.bookkeeping_bytes > 0
    with kvcache.Cache(**arguments) as cache:
        assert cache.stats().storage_bytes == estimate.storage_bytes and cache.stats().pages_total == 25
    groups = [kvcache.Sliding(8, pages=7), kvcache.Full(pages=9)]
    layers = [kvcache.Layer(group=g, head_dim=16) for g in (0, 1, 0)]
    assert [g.num_pages for g in kvcache.estimate(layers, groups).groups] == [7, 9]


def test_rollback_tokens():
    """None is the default margin of the library, and 0 is no margin."""
    pages = {}
    for rollback in (None, 0, 8):
        with kvcache.Cache([LAYER], [kvcache.Sliding(4)], page_size=4, capacity_tokens=1024, max_sequences=1,
                           rollback_tokens=rollback) as cache:
            a = cache.add()
            kv = np.ones((200, 1, 16), np.float32)
            with cache.forward([a], [200]) as step:
                step.append(0, kv, kv)
            pages[rollback] = int((cache.pages(a) >= 0).sum())
    assert pages[0] < pages[8] < pages[None]


def test_dtypes_by_any_name():
    names = ["f16", "float16", np.float16, np.dtype("float16")]
    for name in names:
        with kvcache.Cache([kvcache.Layer(head_dim=16, dtype=name)], capacity_tokens=64) as cache:
            assert cache.layer_pool(0).dtype == "f16"


def test_package():
    assert kvcache.__version__ == kvcache.version() == kvcache.build_info()["version"]
    for header in ("kvcache.h", "dlpack/dlpack.h"):
        assert os.path.isfile(os.path.join(kvcache.get_include(), header))
    library = ctypes.CDLL(kvcache.get_library())  # it is loaded already
    library.kvc_version.restype = ctypes.c_char_p
    assert library.kvc_version().decode() == kvcache.__version__
    assert os.path.isfile(os.path.join(os.path.dirname(kvcache.__file__), "py.typed"))
    assert sorted(kvcache.__all__) == kvcache.__all__ and all(hasattr(kvcache, name) for name in kvcache.__all__)


def test_everything_public_is_documented():
    for name in kvcache.__all__:
        item = getattr(kvcache, name)
        if not callable(item) or name == "version":
            continue
        assert item.__doc__, name
        for member, value in vars(item).items() if isinstance(item, type) else ():
            if not member.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{member}"
