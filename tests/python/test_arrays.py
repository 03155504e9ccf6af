"""numpy arrays in and out: no copies, read-only inputs, bfloat16, and clear refusals."""

import ctypes

import numpy as np
import pytest

import kvcache
from reference import BF16, DenseLayer


@pytest.fixture
def cache():
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16)] * 8, capacity_tokens=1024) as cache:
        yield cache


@pytest.fixture
def step(cache):
    with cache.forward([cache.add()], [3]) as step:
        yield step
        step.abort()


def resident_peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def test_inputs_are_not_copied(step):
    """Rows after the batch are ignored. The array has 1 GB that was never touched, and only its first rows may be read."""
    big = np.zeros((1 << 23, 2, 16), np.float32)
    out = np.zeros((1 << 23, 2, 16), np.float32)
    before = resident_peak_bytes()
    assert step.attend(0, big, big[:, :1], big[:, 1:], out=out) is out
    assert resident_peak_bytes() - before < 64 << 20


def test_outputs_are_written_in_place(step, qkv):
    q, k, v = qkv(3, 2, 1, 16)
    out, lse = np.zeros((3, 2, 16), np.float32), np.zeros((3, 2), np.float32)
    assert step.attend(0, q, k, v, out=out) is out and out.any()
    result = step.attend(1, q, k, v, out, lse)
    assert result[0] is out and result[1] is lse and lse.any()
    new, new_lse = step.attend(2, q, k, v, lse=True)
    np.testing.assert_array_equal(new, out)
    np.testing.assert_array_equal(new_lse, lse)
    out16 = np.zeros((3, 2, 16), np.float16)  # another type than q's
    assert step.attend(3, q, k, v, out=out16, lse=None) is out16
    np.testing.assert_allclose(out16, out, atol=2e-3)


def test_read_only_and_strided_inputs(step, qkv, rng):
    q, k, v = qkv(3, 2, 1, 16)
    expected = step.attend(0, q, k, v)
    for array in (q, k, v):
        array.flags.writeable = False
    np.testing.assert_array_equal(step.attend(1, q, k, v), expected)
    packed = rng.standard_normal((3, 4, 16)).astype(np.float32)  # one projection: q q k v
    packed[:, :2], packed[:, 2:3], packed[:, 3:] = q, k, v
    strided = np.full((3, 2, 32), 9.0, np.float32)
    out = strided[:, :, :16]
    assert step.attend(2, packed[:, :2], packed[:, 2:3], packed[:, 3:], out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert (strided[:, :, 16:] == 9.0).all()


@pytest.mark.parametrize("index, change, error", [
    (0, lambda x: x.astype(np.float64), kvcache.DType),
    (0, lambda x: x.astype(np.int32), kvcache.DType),
    (1, lambda x: x.astype(np.uint16), kvcache.DType),
    (0, lambda x: x.view(np.uint32), kvcache.DType),
    (0, lambda x: x[0], kvcache.Rank),
    (0, lambda x: x[None], kvcache.Rank),
    (0, lambda x: np.float32(3), kvcache.Rank),
    (0, lambda x: x.reshape((1,) * 12 + x.shape), kvcache.Rank),
    (0, lambda x: x[:2], kvcache.Shape),
    (1, lambda x: np.repeat(x, 2, axis=1), kvcache.Shape),
    (2, lambda x: x[..., :8], kvcache.Shape),
    (0, lambda x: np.repeat(x, 2, axis=2)[..., ::2], kvcache.Stride),
    (2, lambda x: x[..., ::-1], kvcache.Stride),
    (0, lambda x: x[:, ::-1], kvcache.Stride),
    (0, lambda x: x.astype(">f4"), (TypeError, BufferError)),
    (0, lambda x: x.tolist(), TypeError),
    (1, lambda x: "k", TypeError),
    (0, lambda x: x.astype(object), (TypeError, BufferError)),
])  # fmt: skip
def test_bad_inputs_have_their_own_error(step, qkv, index, change, error):
    arrays = list(qkv(3, 2, 1, 16))
    good = list(arrays)
    arrays[index] = change(arrays[index])
    with pytest.raises(error):
        step.attend(0, *arrays)
    step.attend(0, *good)  # nothing was appended


def test_bad_outputs(step, qkv):
    q, k, v = qkv(3, 2, 1, 16)
    frozen = np.zeros_like(q)
    frozen.flags.writeable = False
    with pytest.raises(kvcache.InvalidArgument, match="out.*read-only"):
        step.attend(0, q, k, v, out=frozen)
    with pytest.raises(kvcache.InvalidArgument, match="lse.*read-only"):
        step.attend(0, q, k, v, lse=frozen[:, :, 0])
    with pytest.raises(kvcache.Shape):
        step.attend(0, q, k, v, out=np.zeros((3, 1, 16), np.float32))
    with pytest.raises(kvcache.DType):
        step.attend(0, q, k, v, out=np.zeros((3, 2, 16), np.float64))
    with pytest.raises(kvcache.DType):
        step.attend(0, q, k, v, lse=np.zeros((3, 2), np.float64))
    with pytest.raises(TypeError):
        step.attend(0, q, k, v, out=[1])
    with pytest.raises(kvcache.Misuse):
        step.attend(0, q, k)  # k without v
    with pytest.raises(kvcache.OutOfRange):
        step.attend(99, q, k, v)
    assert not frozen.any()
    step.attend(0, q, k, v)


def bits(x):
    """float32 to bfloat16, as the uint16 of its bits, to nearest even."""
    words = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def test_bfloat16_as_integers(step, qkv):
    q, k, v = (bits(x) for x in qkv(3, 2, 1, 16))
    out = step.attend(0, q, k, v, dtype="bf16")
    assert out.dtype == np.uint16
    expected, _ = DenseLayer().step([0], [3], from_bits(q), from_bits(k), from_bits(v))
    np.testing.assert_allclose(from_bits(out), expected, atol=3e-2)
    out32 = np.zeros((3, 2, 16), np.float32)  # outputs of other types are allowed
    step.append(1, k, v, dtype="bfloat16")
    step.attend(1, q, out=out32, dtype="bf16")
    np.testing.assert_array_equal(bits(out32), out)
    with pytest.raises(kvcache.DType):
        step.attend(2, q, k, v, dtype="bf17")


@pytest.mark.skipif(BF16 is None, reason="ml_dtypes is not installed")
def test_ml_dtypes(step, qkv):
    import ml_dtypes

    raw = [bits(x) for x in qkv(3, 2, 1, 16)]
    expected = step.attend(0, *raw, dtype="bf16")
    q, k, v = (x.view(BF16) for x in raw)
    q.flags.writeable = False
    out = step.attend(1, q, k, v)
    assert out.dtype == BF16
    np.testing.assert_array_equal(out.view(np.uint16), expected)
    again = np.zeros((3, 2, 16), BF16)
    assert step.attend(2, q, k, v, out=again) is again
    np.testing.assert_array_equal(again.view(np.uint16), expected)
    np.testing.assert_array_equal(step.attend(3, raw[0], k, raw[2], dtype=ml_dtypes.bfloat16), expected)
    frozen = np.zeros((3, 2, 16), BF16)
    frozen.flags.writeable = False
    with pytest.raises(kvcache.InvalidArgument, match="read-only"):
        step.attend(4, q, k, v, out=frozen)
    for name in ("float8_e4m3fn", "float8_e5m2"):  # the dtype arrives unchanged, but no layer of the cache has it
        with pytest.raises(kvcache.DType):
            step.attend(4, q.astype(getattr(ml_dtypes, name)), k, v)
        with pytest.raises(kvcache.DType):
            step.attend(4, q.astype(getattr(ml_dtypes, name)).view(np.uint8), k, v, dtype=name)


class Exporter:
    """An array of another library, which has DLPack alone, of a version before or after 1.0."""

    def __init__(self, array, versioned):
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        if self.versioned:
            return self.array.__dlpack__(**arguments)
        if arguments:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__()


@pytest.mark.parametrize("versioned", [True, False])
def test_any_exporter(step, qkv, versioned):
    q, k, v = qkv(3, 2, 1, 16)
    expected = step.attend(0, q, k, v)
    out = np.zeros_like(q)
    exporter = Exporter(out, versioned)
    assert step.attend(1, *(Exporter(x, versioned) for x in (q, k, v)), out=exporter) is exporter
    np.testing.assert_array_equal(out, expected)
    new = step.attend(2, *(Exporter(x, versioned) for x in (q, k, v)))
    np.testing.assert_array_equal(np.asarray(new), expected)


def test_the_producers_reason_is_passed_on(step, qkv):
    class Refuses:
        def __dlpack__(self, **_):
            raise BufferError("requires grad")

    q, k, v = qkv(3, 2, 1, 16)
    with pytest.raises(BufferError, match="requires grad"):
        step.attend(0, Refuses(), k, v)


def test_buffers(step, qkv):
    q, k, v = qkv(3, 2, 1, 16)
    expected = step.attend(0, q, k, v)
    np.testing.assert_array_equal(np.asarray(step.attend(1, memoryview(q), memoryview(k), v)), expected)
    ctypes_out = (ctypes.c_float * 16 * 2 * 3)()
    step.attend(2, q, k, v, out=ctypes_out)
    np.testing.assert_array_equal(np.ctypeslib.as_array(ctypes_out), expected)
