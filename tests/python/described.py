"""Arrays with the description that their exporter gives, which may be wrong."""

import ctypes


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_FLOAT, _CPU = 2, 1


class Described:
    """Exports the memory of a numpy array of floats with any shape and strides (in elements)."""

    def __init__(self, memory, shape, strides):
        self._memory = memory
        self._shape, self._strides = ((ctypes.c_int64 * len(shape))(*numbers) for numbers in (shape, strides))
        self._managed = _Managed(_Tensor(memory.ctypes.data, _CPU, 0, len(shape), _FLOAT, 8 * memory.itemsize, 1, self._shape,
                                         self._strides, 0), None, None)

    def __dlpack__(self, **_):
        return _new_capsule(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self):
        return _CPU, 0
