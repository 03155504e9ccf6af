"""The context that computes for all layers of a process."""

from __future__ import annotations

import functools

import kvcache
import torch


@functools.cache
def context() -> kvcache.Context:
    """The context of this process. It computes on PyTorch's threads, which vLLM binds to cores before the first step."""
    try:
        return kvcache.Context(pool="openmp")
    except kvcache.Unsupported:  # a PyTorch without OpenMP
        return kvcache.Context(threads=torch.get_num_threads())
