"""CUDA streams: which is current, and making one wait for another.

Nothing here runs for caches on the CPU. On a GPU a call reads the current stream at most, as long as its arrays' library
works on the call's stream; making streams wait for each other is for calls that mix streams, by events of the CUDA driver.
Streams are numbers, addresses of CUstream; 0 is the legacy default stream.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._errors import DeviceFailure

_EVENT_DISABLE_TIMING = 2


def address(stream: Any) -> int:
    """The number of a stream of PyTorch or CuPy, or of anything with __cuda_stream__()."""
    for name in ("cuda_stream", "ptr"):
        value = getattr(stream, name, None)
        if isinstance(value, int):
            return value
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise TypeError(f"stream: a stream of PyTorch or CuPy, or its address, is needed, not {type(stream).__name__}")


def current(device_id: int) -> int:
    """The stream of a call that has no array: PyTorch's current one where it computes on CUDA, else CuPy's, else 0."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return current_of_torch(device_id)
    return current_of_cupy(device_id) if "cupy" in sys.modules else 0


def current_of_torch(device_id: int) -> int:
    torch = sys.modules["torch"]
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)  # makes no stream object, which takes microseconds
    return int(raw(device_id) if raw is not None else torch.cuda.current_stream(device_id).cuda_stream)


def current_of_cupy(device_id: int) -> int:
    cuda = sys.modules["cupy"].cuda
    with cuda.Device(device_id):
        return int(cuda.get_current_stream().ptr)


def order(device_id: int, first: int, then: int) -> None:
    """Makes stream `then` wait for what was put on `first` so far; the host waits for nothing."""
    driver = _driver()
    with driver.device(device_id):
        event = ctypes.c_void_p()
        driver.call("cuEventCreate", ctypes.byref(event), _EVENT_DISABLE_TIMING)
        try:
            driver.call("cuEventRecord", event, ctypes.c_void_p(first))
            driver.call("cuStreamWaitEvent", ctypes.c_void_p(then), event, 0)
        finally:
            driver.call("cuEventDestroy_v2", event)


def wait(device_id: int, stream: int) -> None:
    """Waits until what was put on a stream is done."""
    driver = _driver()
    with driver.device(device_id):
        driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))


class _Driver:
    """The CUDA driver's library. Uses devices' primary contexts, as PyTorch, CuPy and JAX do."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self.call("cuInit", 0)

    def call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status == 0:
            return
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(name))
        raise DeviceFailure(f"{function}: {(name.value or b'unknown error').decode()} ({status})", status=301)

    @contextmanager
    def device(self, device_id: int) -> Iterator[None]:
        if device_id not in self._contexts:
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self.call("cuDeviceGet", ctypes.byref(device), device_id)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device_id] = context
        self.call("cuCtxPushCurrent_v2", self._contexts[device_id])
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


_opened: _Driver | None = None


def _driver() -> _Driver:
    global _opened
    if _opened is None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceFailure(f"streams cannot wait for each other: {error}", status=301) from None
        _opened = _Driver(library)
    return _opened
