"""Packed MLA rows: a numpy writer and reader that know only the bytes of a row. Pages hold what the writer writes. A pool that
the writer filled, in the layout of FlashMLA, is adopted, and attention over it is what the reader gives."""
import ml_dtypes
import numpy as np
import pytest

import kvcache

PAGE, TOKENS, HEADS, SCALE = 4, 21, 4, 0.05


def write(rows):
    """Rows [T, 576] float32 as bytes [T, 656]: 512 float8, 4 float32 scales of 128 dims, 64 bfloat16."""
    out = np.zeros((len(rows), 656), np.uint8)
    latent = rows[:, :512].astype(np.float32).reshape(-1, 4, 128)
    amax = np.abs(latent).max(-1) / np.float32(448)
    scale = np.float32(2) ** np.ceil(np.log2(np.maximum(amax, np.float32(1e-4)).astype(np.float64))).astype(np.float32)
    out[:, :512] = (latent / scale[..., None]).astype(ml_dtypes.float8_e4m3fn).reshape(-1, 512).view(np.uint8)
    out[:, 512:528] = scale.astype("<f4").view(np.uint8)
    out[:, 528:] = rows[:, 512:].astype(ml_dtypes.bfloat16).view(np.uint8)
    return out


def read(data):
    """Bytes [T, 656] as rows [T, 576] float64."""
    data = np.ascontiguousarray(data)
    latent = data[:, :512].copy().view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    scale = data[:, 512:528].copy().view("<f4").astype(np.float64)
    rotary = data[:, 528:].copy().view(ml_dtypes.bfloat16).astype(np.float64)
    return np.concatenate([latent * np.repeat(scale, 128, -1), rotary], -1)


def make(**options):
    layer = kvcache.Layer(q_heads=HEADS, head_dim=576, latent_dim=512, row_format="fp8_ds_mla", scale=SCALE, **options)
    return kvcache.Cache(layers=[layer], groups=[kvcache.Full(row="latent")], page_size=PAGE, capacity_tokens=64)


def attention(q, rows):
    """Causal attention in float64: q [T, H, 576] over rows [N, 576], of which the last T are the queries' own."""
    out = np.empty((*q.shape[:2], 512))
    for token in range(len(q)):
        seen = rows[: len(rows) - len(q) + token + 1]
        scores = q[token].astype(np.float64) @ seen.T * SCALE
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[token] = weights / weights.sum(-1, keepdims=True) @ seen[:, :512]
    return out


@pytest.fixture
def rows():
    """Rows with spikes, tiny parts, and one part of zeros."""
    random = np.random.default_rng(5)
    rows = random.standard_normal((TOKENS, 576), dtype=np.float32)
    rows[:, 17] *= 50
    rows[3, 128:256] *= 1e-6
    rows[4, 256:384] = 0
    rows[5] *= 300
    return rows


@pytest.fixture
def q():
    return np.random.default_rng(6).standard_normal((TOKENS, HEADS, 576), dtype=np.float32) * np.float32(0.2)


def test_bytes_and_attention(rows, q):
    with make() as cache:
        sequence = cache.add()
        with cache.forward([sequence], [TOKENS]) as step:
            out = step.attend(0, q, rows[:, None])
        exported = cache.export(sequence, 0)[0].numpy()
        pool = np.from_dlpack(cache.layer_pool(0, "k"))
    assert exported.dtype == np.uint8 and exported.shape == (TOKENS, 1, 656)
    assert pool.dtype == np.uint8 and pool.shape[1:] == (1, PAGE, 656)
    np.testing.assert_array_equal(exported[:, 0], write(rows))
    np.testing.assert_allclose(out, attention(q, read(write(rows))), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("lists", [False, True])
def test_a_pool_that_a_server_filled(rows, q, lists):
    """The pool is [pages, page size, 1, 656], as FlashMLA has it. Another writer chose other scales, and wrote the rows."""
    pool = np.full((20, PAGE, 1, 656), 0xFF, np.uint8)
    data = write(rows)
    data[:, 512:528] = (data[:, 512:528].copy().view("<f4") * np.float32(0.7)).view(np.uint8)  # no powers of two
    with make(k_storage=pool.transpose(0, 2, 1, 3)) as cache:
        sequence = cache.add()
        with cache.forward([sequence], [TOKENS - 1]) as step:
            step.append(0, data[:-1, None], as_stored=True)
        for token, page in enumerate(np.repeat(cache.pages(sequence), PAGE)[: TOKENS - 1]):
            np.testing.assert_array_equal(pool[page, token % PAGE, 0], data[token])
            pool[page, token % PAGE, 0, :512] ^= 0x80  # the server negates the latent part
        data[:-1, :512] ^= 0x80
        indices = np.array([[[0, 2, 3, 5, 8, 13, 20, -1]]], np.int32) if lists else None
        with cache.forward([sequence], [1]) as step:
            step.append(0, data[-1:, None], as_stored=True)
            out = np.asarray(step.attend(0, q[-1:], **({"indices": indices} if lists else {})))
    seen = read(data)[[0, 2, 3, 5, 8, 13, 20]] if lists else read(data)
    np.testing.assert_allclose(out, attention(q[-1:], seen), rtol=1e-4, atol=1e-3)


def test_configs_that_are_refused():
    with pytest.raises(kvcache.InvalidArgument, match='row_format must be None or "fp8_ds_mla"'):
        kvcache.Cache([kvcache.Layer(head_dim=576, latent_dim=512, row_format="fp8", scale=1)], capacity_tokens=16)
    with pytest.raises(kvcache.InvalidArgument, match='dtype bfloat16 with row_format="fp8_ds_mla"'):
        make(dtype="bf16")
    with pytest.raises(kvcache.Misuse, match='row_format="fp8_ds_mla" needs MLA rows'):
        kvcache.Cache(layers=[kvcache.Layer(head_dim=64, row_format="fp8_ds_mla")], capacity_tokens=16)
