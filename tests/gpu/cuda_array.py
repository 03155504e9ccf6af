"""Arrays that are on CUDA device 0 by DLPack, in memory that the host can read, for tests of the emulated backend.

CudaArray is a producer of DLPack capsules, versioned and unversioned ones. It records the stream that each consumer names.
`on_host` is a consumer, which gives the numpy array of a producer.
"""

import ctypes
import weakref

import numpy as np

try:
    import ml_dtypes
except ImportError:  # tests on a GPU do not need it
    ml_dtypes = None

CPU, CUDA = 1, 2  # DLDeviceType


class _Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


class _Managed(ctypes.Structure):  # DLManagedTensor
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_CODES = {} if ml_dtypes is None else {np.dtype(ml_dtypes.bfloat16): (4, 16), np.dtype(ml_dtypes.float8_e4m3fn): (10, 8),
                                       np.dtype(ml_dtypes.float8_e5m2): (12, 8)}
_KINDS = {"i": 0, "u": 1, "f": 2}

alive = {}  # capsules whose memory a consumer still uses: address -> the owner of the memory


@_DELETER
def _delete(address):
    alive.pop(address, None)


def _code_of(dtype):
    return _CODES.get(dtype) or (_KINDS[dtype.kind], 8 * dtype.itemsize)


def _dtype_of(tensor):
    for dtype, code in _CODES.items():
        if code == (tensor.code, tensor.bits):
            return dtype
    return np.dtype({code: kind for kind, code in _KINDS.items()}[tensor.code] + str(tensor.bits // 8))


class CudaArray:
    """`array`, presented as memory of CUDA device `device_id`."""

    def __init__(self, array, device_id=0, flags=0):
        self.array, self.device_id, self.flags = array, device_id, flags
        self.streams = []  # that consumers named

    @property
    def shape(self):
        return self.array.shape

    def __dlpack_device__(self):
        return (CUDA, self.device_id)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.made_ready(stream)
        return self._capsule(_Versioned if max_version and max_version[0] >= 1 else _Managed)

    def made_ready(self, stream):
        self.streams.append(stream)

    def _capsule(self, kind):
        array, managed = self.array, kind()
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        code, bits = _code_of(array.dtype)
        managed.tensor = _Tensor(array.ctypes.data, CUDA, self.device_id, array.ndim, code, bits, 1, shape, strides, 0)
        managed.deleter = ctypes.cast(_delete, ctypes.c_void_p)
        if kind is _Versioned:
            managed.major, managed.minor, managed.flags = 1, 1, self.flags
        address = ctypes.addressof(managed)
        alive[address] = (managed, shape, strides, array)
        return _api.PyCapsule_New(address, b"dltensor_versioned" if kind is _Versioned else b"dltensor", None)


class FirstKind(CudaArray):
    """A producer from before DLPack 1.0."""

    def __dlpack__(self, *, stream=None):
        self.made_ready(stream)
        return self._capsule(_Managed)


def on_host(producer, stream=1):
    """The memory of a producer as a numpy array. The producer gets `stream` as the consumer's stream."""
    capsule = producer.__dlpack__(stream=stream, max_version=(1, 1))
    address = _api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
    managed = ctypes.cast(address, ctypes.POINTER(_Versioned)).contents
    assert (managed.tensor.device_type, managed.tensor.device_id) == (CUDA, 0)
    tensor, dtype = managed.tensor, _dtype_of(managed.tensor)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    extent = sum((n - 1) * s for n, s in zip(shape, strides)) + dtype.itemsize if 0 not in shape else 0
    memory = (ctypes.c_char * max(extent, 1)).from_address(tensor.data + tensor.byte_offset)
    weakref.finalize(memory, lambda keep: None, capsule)  # the capsule lives as long as the last view
    return np.ndarray(shape, dtype, memory, strides=strides)
