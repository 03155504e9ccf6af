"""Exceptions: one class a status of the C API, below one class a band."""

from __future__ import annotations

import re

from . import _kvcache
from ._names import NAMES

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Error(RuntimeError):
    """A failed call. On any failure nothing has changed, unless the call's documentation says otherwise.

    It is a RuntimeError, since programs that call FlashAttention catch that.

    Attributes:
        status: the kvc_status, an integer.
        status_name: its name, "KVC_ERROR_OUT_OF_PAGES".
        message: "function: what, with the values". Functions and arguments have their names in Python.
        index: row, layer or array element at fault, or None.
        required, available: capacity errors: what the call needs and what there is; else 0.
        group: layer group at fault, or None.
    """

    def __init__(self, message: str, *, status: int = 900, index: int | None = None, required: int = 0,
                 available: int = 0, group: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.index = index
        self.required = required
        self.available = available
        self.group = group

    @property
    def status_name(self) -> str:
        """Name of the status, "KVC_ERROR_OUT_OF_PAGES"; for an unknown code the name of its band."""
        return _kvcache.status_name(self.status)

    @property
    def row(self) -> int | None:
        """The index at fault, by its name in calls over a batch."""
        return self.index

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.message, self.status, self.index, self.required, self.available, self.group)
        return _rebuild, (type(self), *fields)


def _rebuild(cls: type[Error], message: str, status: int, index: int | None, required: int, available: int,
             group: int | None) -> Error:
    return cls(message, status=status, index=index, required=required, available=available, group=group)


class Misuse(Error, ValueError):
    """The program is wrong (status 1..99)."""


class InvalidArgument(Misuse):
    """A value out of its range, or values that contradict each other."""


class NullArgument(Misuse):
    """Nothing where something is needed."""


class StructSize(Misuse):
    """This package and the loaded library do not fit together."""


class Unsupported(Misuse):
    """Well formed, but this library or backend cannot do it."""


class DType(Misuse):
    """A tensor's element type."""


class Device(Misuse):
    """A tensor's device, or a stream that the device does not have."""


class Rank(Misuse):
    """A tensor's number of dimensions."""


class Shape(Misuse):
    """A tensor's shape."""


class Stride(Misuse):
    """A tensor's strides (the innermost must be 1), or its alignment."""


class OutOfRange(Misuse, IndexError):
    """A layer, group, position or length that does not exist."""


class StaleId(Misuse, LookupError):
    """A sequence or step that is gone, or is of another cache."""


class Duplicate(Misuse):
    """The same sequence twice in one call."""


class EarlierCall(Misuse):
    """Context(validate=True): the device found a bad index in an earlier call. The call that raises this did nothing."""


class Capacity(Error):
    """Not enough of something: try later, or with less (status 100..199)."""

    @property
    def missing(self) -> int:
        """How much is missing: required - available."""
        return self.required - self.available


class OutOfPages(Capacity):
    """Too few free pages: `row` is the first row that does not fit, `missing` the pages of `group` still needed."""


class OutOfMemory(Capacity, MemoryError):
    """The host or the device refused memory."""


class TooManySequences(Capacity):
    """More sequences than max_sequences."""


class TooManyForwards(Capacity):
    """More open steps than max_open_forwards."""


class BatchTooLarge(Capacity):
    """More tokens than max_batch_tokens, or more rows than max_sequences."""


class BufferTooSmall(Capacity):
    """An output array is too small."""


class TreeTooLarge(Capacity):
    """More uncommitted tree nodes of a sequence than max_tree_nodes."""


class State(Error):
    """Not now, or not in this order (status 200..299)."""


class Busy(State):
    """The sequence is in an open step, or the step is in use by another thread."""


class Order(State):
    """Calls in the wrong order, or the same call twice."""


class Cancelled(State):
    """The step was cancelled: only abort() is left."""


class Evicted(State):
    """The needed keys were freed when they left a window, or the needed recurrent state is not kept."""


class Stale(State):
    """The tables of a plan hold another step than the requested one, or no step is open in a graph."""


class Suspended(State):
    """The sequence is suspended: resume() it first."""


class Pending(State):
    """A load still fills pages of the sequence (LoadJob.attach)."""


class Uncommitted(State):
    """The sequence has an uncommitted tree: commit() it first."""


class Closed(State):
    """The cache was closed. Raised by this package, with the status of Order."""


class DeviceFailure(Error):
    """Something on the device's side (status 300..399)."""


class DeviceUnavailable(DeviceFailure):
    """No backend, driver or device of that type."""


class Data(Error):
    """Files and peers (status 400..499)."""


class FileError(Data, OSError):
    """A file could not be written or read, or a server did not answer; the message has the reason."""


class Corrupt(Data):
    """Stored bytes are damaged, cut off, or were never written by this library."""


class Layout(Data):
    """Stored bytes of another model, dtype or layout: the message has what both say."""


class Internal(Error):
    """A bug of the library (status 900..999)."""


_BY_STATUS: dict[int, type[Error]] = {
    1: InvalidArgument, 2: NullArgument, 3: StructSize, 4: Unsupported, 5: DType, 6: Device, 7: Rank, 8: Shape,
    9: Stride, 10: OutOfRange, 11: StaleId, 12: Duplicate, 13: EarlierCall,
    100: OutOfPages, 101: OutOfMemory, 102: TooManySequences, 103: TooManyForwards, 104: BatchTooLarge,
    105: BufferTooSmall, 106: TreeTooLarge,
    200: Busy, 201: Order, 202: Cancelled, 203: Evicted, 204: Uncommitted, 205: Stale, 206: Suspended,
    207: Pending,
    300: DeviceUnavailable,
    400: FileError, 401: Corrupt, 402: Layout,
    900: Internal,
}  # fmt: skip
_BY_BAND: dict[int, type[Error]] = {0: Misuse, 1: Capacity, 2: State, 3: DeviceFailure, 4: Data}


def _in_python(message: str) -> str:
    """A message of the library with Python's names for C's. A name may have a meaning of its own in one function."""
    function = message.partition(":")[0]
    if not function.startswith("kvc_"):  # a message of this package
        return message
    return _WORD.sub(lambda word: NAMES.get(f"{function}.{word[0]}") or NAMES.get(word[0], word[0]), message)


def _make_error(status: int, index: int, required: int, available: int, group: int, message: str) -> Error:
    """The exception of a failed C call; -1 stands for no index and no group."""
    message = _in_python(message)
    cls = _BY_STATUS.get(status) or _BY_BAND.get(status // 100, Internal)
    return cls(message, status=status, index=None if index < 0 else index, required=required, available=available,
               group=None if group < 0 else group)


def _make_closed(message: str) -> Error:
    return Closed(message, status=201)


_kvcache.set_error_factories(_make_error, _make_closed)
