"""Paged KV cache and attention over it, for LLM engines.

A Cache holds page pools for every layer of a model, and sequences, which are plain integers. Each step of the model is
a `with cache.forward(sequences, lengths) as step:`, and `step.attend(layer, q, k, v)` stores the layer's new keys and
values and computes attention over everything stored. Arrays are numpy's, PyTorch's, JAX's or anyone's with __dlpack__,
and are never copied. Failures are exceptions below kvcache.Error, with numbers (row, missing pages), not only text.

    cache = kvcache.Cache(layers=[kvcache.Layer(q_heads=32, kv_heads=8, head_dim=128)] * 16, capacity_tokens=65536)
    prompt = cache.add()
    with cache.forward([prompt], [len(tokens)]) as step:
        for i, layer in enumerate(model):
            q, k, v = layer.project(x, step.positions)
            x = layer.rest(x, step.attend(i, q, k, v))
    users = cache.fork([prompt] * 8)

Thread safety: any call from any thread; one step is used by one thread at a time. Compute calls release the GIL.
"""

import os as _os

from . import inspect
from ._batches import ObjectBatch, ObjectBatches, open_objects
from ._cache import Cache, Estimate, GroupEstimate, Stats, estimate
from ._config import Chunked, Context, Cross, Full, Layer, Recurrent, RecurrentLayer, Sliding, StateTensor
from ._errors import (
    BatchTooLarge,
    BufferTooSmall,
    Busy,
    Cancelled,
    Capacity,
    Closed,
    Corrupt,
    Data,
    Device,
    DeviceFailure,
    DeviceUnavailable,
    DType,
    Duplicate,
    EarlierCall,
    Error,
    Evicted,
    FileError,
    Internal,
    InvalidArgument,
    Layout,
    Misuse,
    NullArgument,
    Order,
    OutOfMemory,
    OutOfPages,
    OutOfRange,
    Pending,
    Rank,
    Shape,
    Stale,
    StaleId,
    State,
    Stride,
    StructSize,
    Suspended,
    TooManyForwards,
    TooManySequences,
    TreeTooLarge,
    Uncommitted,
    Unsupported,
)
from ._events import Event, EventMessage, EventRange, Events
from ._keys import page_keys
from ._kvcache import Step, Tables, Tensor, build_info, version
from ._objects import ObjectDone, ObjectFound, ObjectStore, TierResult
from ._prefixes import PrefixHit, Published
from ._publisher import EventPublisher
from ._rope import RopeScaling
from ._stateless import append_slots, flash_attn_with_kvcache
from ._tables import Plan
from ._tiers import LoadJob, PendingLoad, TierTraffic
from ._transfers import Transfer

__version__: str = version()


def get_include() -> str:
    """Folder with kvcache.h and dlpack/dlpack.h, to compile C or C++ against the library in this package."""
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "include")


def get_library() -> str:
    """Path of the shared library libkvcache in this package, for dlopen, ctypes or a linker."""
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "libkvcache.so.0")


__all__ = [
    "BatchTooLarge",
    "BufferTooSmall",
    "Busy",
    "Cache",
    "Cancelled",
    "Capacity",
    "Chunked",
    "Closed",
    "Context",
    "Corrupt",
    "Cross",
    "DType",
    "Data",
    "Device",
    "DeviceFailure",
    "DeviceUnavailable",
    "Duplicate",
    "EarlierCall",
    "Error",
    "Estimate",
    "Event",
    "EventMessage",
    "EventPublisher",
    "EventRange",
    "Events",
    "Evicted",
    "FileError",
    "Full",
    "GroupEstimate",
    "Internal",
    "InvalidArgument",
    "Layer",
    "Layout",
    "LoadJob",
    "Misuse",
    "NullArgument",
    "ObjectBatch",
    "ObjectBatches",
    "ObjectDone",
    "ObjectFound",
    "ObjectStore",
    "Order",
    "OutOfMemory",
    "OutOfPages",
    "OutOfRange",
    "Pending",
    "PendingLoad",
    "Plan",
    "PrefixHit",
    "Published",
    "Rank",
    "Recurrent",
    "RecurrentLayer",
    "RopeScaling",
    "Shape",
    "Sliding",
    "Stale",
    "StaleId",
    "State",
    "StateTensor",
    "Stats",
    "Step",
    "Stride",
    "StructSize",
    "Suspended",
    "Tables",
    "Tensor",
    "TierResult",
    "TierTraffic",
    "TooManyForwards",
    "TooManySequences",
    "Transfer",
    "TreeTooLarge",
    "Uncommitted",
    "Unsupported",
    "__version__",
    "append_slots",
    "build_info",
    "estimate",
    "flash_attn_with_kvcache",
    "get_include",
    "get_library",
    "inspect",
    "open_objects",
    "page_keys",
    "version",
]
