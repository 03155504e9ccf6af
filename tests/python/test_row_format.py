"""Row formats: numpy writers and readers that know only the bytes of a row. Pages hold what the writer writes. A pool that
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


def make(row_format="fp8_ds_mla", **options):
    layer = kvcache.Layer(q_heads=HEADS, head_dim=576, latent_dim=512, row_format=row_format, scale=SCALE, **options)
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
    with pytest.raises(kvcache.InvalidArgument, match='row_format must be None or one of "fp8_ds_mla"'):
        kvcache.Cache([kvcache.Layer(head_dim=576, latent_dim=512, row_format="fp8", scale=1)], capacity_tokens=16)
    with pytest.raises(kvcache.InvalidArgument, match='dtype bfloat16 with row_format="fp8_ds_mla"'):
        make(dtype="bf16")
    with pytest.raises(kvcache.Misuse, match='row_format="fp8_ds_mla" needs MLA rows'):
        kvcache.Cache(layers=[kvcache.Layer(head_dim=64, row_format="fp8_ds_mla")], capacity_tokens=16)


def write_blocks(rows, element, each, scale, blocks, rest, least):
    """Rows [T, D] as bytes, and the bytes of their scales. element: the type of the first `blocks` dims, `each` of which share
    a scale: a power of two as a byte ("e8m0"), as a float32 ("f32"), or a float8 ("e4m3"). rest: the type of the other dims."""
    largest = np.float32(448 if element == ml_dtypes.float8_e4m3fn else 6)
    parts = rows[:, :blocks].astype(np.float32).reshape(len(rows), -1, each)
    quotient = np.abs(parts).max(-1) / largest
    if scale == "e4m3":
        stored = np.clip(quotient, np.float32(2**-9), 448).astype(ml_dtypes.float8_e4m3fn)
        value, scales = stored.astype(np.float32), stored.view(np.uint8)
    else:
        exponent = np.ceil(np.log2(np.maximum(quotient, np.float32(least)).astype(np.float64)))
        value = np.exp2(exponent).astype(np.float32)
        scales = (exponent + 127).astype(np.uint8) if scale == "e8m0" else value.astype("<f4").view(np.uint8)
    elements = (parts / value[..., None]).astype(element).reshape(len(rows), -1)
    if element == ml_dtypes.float4_e2m1fn:
        codes = elements.view(np.uint8) & 15
        data = codes[:, 0::2] | codes[:, 1::2] << 4
    else:
        data = elements.view(np.uint8)
    if blocks < rows.shape[1]:
        data = np.concatenate([data, np.ascontiguousarray(rows[:, blocks:]).astype(rest).view(np.uint8)], -1)
    return data, scales.reshape(len(rows), -1)


def read_blocks(data, scales, element, each, scale, blocks, rest):
    """Bytes of rows and of their scales as float64."""
    end = blocks // 2 if element == ml_dtypes.float4_e2m1fn else blocks
    elements = np.ascontiguousarray(data[:, :end])
    if element == ml_dtypes.float4_e2m1fn:
        elements = np.stack([elements & 15, elements >> 4], -1).reshape(len(data), -1)
    if scale == "e8m0":
        value = np.exp2(scales.astype(np.float64) - 127)
    else:
        value = np.ascontiguousarray(scales).view("<f4" if scale == "f32" else ml_dtypes.float8_e4m3fn).astype(np.float64)
    values = elements.view(element).astype(np.float64) * np.repeat(value[:, : blocks // each], each, -1)
    if rest is None:
        return values
    return np.concatenate([values, np.ascontiguousarray(data[:, end:]).view(rest).astype(np.float64)], -1)


E4M3, E2M1, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.bfloat16
PAGED = {
    "fp8_ds_v4": (E4M3, 64, "e8m0", 448, BF16, 1e-4 / 448),
    "mxfp8": (E4M3, 32, "e8m0", 512, None, 1e-4 / 448),
    "mxfp4": (E2M1, 32, "e8m0", 512, None, 2.0**-126),
    "fp8_blocks": (E4M3, 128, "f32", 512, None, 1e-4 / 448),
    "nvfp4": (E2M1, 16, "e4m3", 512, None, 0),
}


@pytest.mark.parametrize("name", PAGED)
def test_pages_that_a_server_shares(name, rows, q):
    """A page is [rows, scales of the rows]. It has what the writer writes, and attention is what the reader gives."""
    rows, q = rows[:, :512], q[..., :512]
    *kind, least = PAGED[name]
    data, scales = write_blocks(rows, *kind, least)
    if name == "fp8_ds_v4":
        scales = np.pad(scales, ((0, 0), (0, 1)))
    pool = np.full((20, PAGE * (data.shape[1] + scales.shape[1])), 0xFF, np.uint8)
    layer = kvcache.Layer(q_heads=HEADS, head_dim=512, latent_dim=512, row_format=name, scale=SCALE, k_storage=pool)
    with kvcache.Cache(layers=[layer], groups=[kvcache.Full(row="latent")], page_size=PAGE, capacity_tokens=64) as cache:
        sequence = cache.add()
        with cache.forward([sequence], [TOKENS]) as step:
            out = step.attend(0, q, rows[:, None])
        pages = cache.pages(sequence)
    for token in range(TOKENS):
        page, slot = pool[pages[token // PAGE]], token % PAGE
        begin = PAGE * data.shape[1] + slot * scales.shape[1]
        np.testing.assert_array_equal(page[slot * data.shape[1] : (slot + 1) * data.shape[1]], data[token])
        np.testing.assert_array_equal(page[begin : begin + scales.shape[1]], scales[token])
    np.testing.assert_allclose(out, attention(q, read_blocks(data, scales, *kind)), rtol=1e-4, atol=2e-3)


def test_rows_of_nvfp4_ds_mla(rows, q):
    """A row has 256 bytes of elements, 64 float8 and 32 scales. Byte 8 * r + j of the scales belongs to block 4 * j + r."""
    kind = (E2M1, 16, "e4m3", 512, E4M3)
    rows[:, 512:] = np.clip(rows[:, 512:], -448, 448)
    data, scales = write_blocks(rows, *kind, 0)
    blocks = [4 * j + r for r in range(4) for j in range(8)]
    pool = np.full((20, 1, PAGE, 352), 0xFF, np.uint8)
    with make(row_format="nvfp4_ds_mla", k_storage=pool) as cache:
        sequence = cache.add()
        with cache.forward([sequence], [TOKENS]) as step:
            out = step.attend(0, q, rows[:, None])
        stored = pool[cache.pages(sequence), 0].reshape(-1, 352)[:TOKENS]
    np.testing.assert_array_equal(stored, np.concatenate([data, scales[:, blocks]], -1))
    np.testing.assert_allclose(out, attention(q, read_blocks(data, scales, *kind)), rtol=1e-4, atol=2e-3)
