"""What every peer needs: random numbers, memory on 2 MiB pages, and the number of copies that makes K and V cold."""
import mmap

import numpy as np

COLD_BYTES = 256 << 20
HUGE = 2 << 20


class NotSupported(Exception):
    """The peer cannot compute the case."""


def copies(case: dict, bytes_now: int = 0) -> int:
    return COLD_BYTES // (bytes_now or case["bytes"]) + 2 if case["cold"] else 1


def block_tables(case: dict, block: int) -> np.ndarray:
    """Shuffled block ids, [copies, batch, blocks of a sequence]. Sequences with a shared prefix share its blocks."""
    number, batch, common = copies(case), case["batch"], case["shared"] // block
    own = -(-case["context"] // block) - common
    order = np.random.default_rng(5).permutation(number * (common + batch * own)).astype(np.int32).reshape(number, -1)
    shared = np.broadcast_to(order[:, None, :common], (number, batch, common))
    return np.ascontiguousarray(np.concatenate([shared, order[:, common:].reshape(number, batch, own)], axis=2))


def dense_bytes(case: dict) -> int:
    """Bytes of K and V if each sequence has its own copy of the shared prefix."""
    own = case["context"] - case["shared"]
    return case["bytes"] * case["batch"] * case["context"] // (case["shared"] + case["batch"] * own)


def huge(shape: tuple, dtype) -> np.ndarray:
    """An array aligned to 2 MiB, on huge pages where the system allows."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, size + HUGE)
    memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    skip = -whole.ctypes.data % HUGE
    return whole[skip:skip + size].view(dtype).reshape(shape)


def numbers(shape: tuple, seed: int) -> np.ndarray:
    """Normally distributed numbers, which repeat with a prime period."""
    block = np.random.default_rng(seed).standard_normal(1048573, dtype=np.float32)
    return np.resize(block, int(np.prod(shape))).reshape(shape)


def only(case: dict, works: tuple, dtypes: tuple) -> None:
    if case["work"] not in works:
        raise NotSupported(f"no {case['work']} here")
    if case["dtype"] not in dtypes:
        raise NotSupported(f"no {case['dtype']} here")
