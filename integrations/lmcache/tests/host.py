"""What LMCache does with an L2 adapter: its memory objects, its keys, and its wait for the descriptors."""

from __future__ import annotations

import json
import os
import select
import time
from argparse import Namespace

import numpy as np
import torch
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.memory_management import MemoryObjMetadata, TensorMemoryObj

WAIT = 300  # seconds: the machine may be busy


def object_key(i: int, model: str = "model/a", **others) -> ObjectKey:
    return ObjectKey(chunk_hash=i.to_bytes(32, "big"), model_name=model, kv_rank=0x02000200, **others)


def memory(seed: int | None, size: int) -> TensorMemoryObj:
    """A memory object of LMCache with random bytes, or zeros."""
    data = np.zeros(size, np.uint8) if seed is None else np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    tensor = torch.from_numpy(data)
    meta = MemoryObjMetadata(shape=tensor.shape, dtype=torch.uint8, address=0, phy_size=size, ref_count=1)
    return TensorMemoryObj(tensor, meta, None)


def content(one: TensorMemoryObj) -> bytes:
    return bytes(one.byte_array)


def make(spec: dict):
    """The adapter of a --l2-adapter argument."""
    (config,) = parse_args_to_l2_adapters_config(Namespace(l2_adapter=[json.dumps(spec)])).adapters
    return create_l2_adapter(config)


def ours(eviction: dict | None = None, **parameters):
    return make({"type": "native_plugin", "module_path": "kvcache_lmcache", "class_name": "KvcacheConnector",
                 "adapter_params": parameters, **({"max_capacity_gb": 1.0} if eviction else {})})


class Host:
    """A controller of LMCache. Its calls submit, wait for the descriptor, and return the answer."""

    def __init__(self, adapter) -> None:
        self.adapter = adapter

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.adapter.close()

    def _wait(self, descriptor: int, query):
        end = time.monotonic() + WAIT
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while (answer := query()) is None:
            assert time.monotonic() < end, "no answer"
            if poller.poll(100):
                os.eventfd_read(descriptor)
        return answer

    def store(self, keys, objects) -> bool:
        task, found = self.adapter.submit_store_task(keys, objects), {}

        def query():
            found.update(self.adapter.pop_completed_store_tasks())
            return found.get(task)

        return self._wait(self.adapter.get_store_event_fd(), query).is_successful()

    def find(self, keys) -> list[int]:
        """The positions of the keys that are found. They are locked."""
        task = self.adapter.submit_lookup_and_lock_task(keys, {})
        query = self.adapter.query_lookup_and_lock_result
        return self._wait(self.adapter.get_lookup_and_lock_event_fd(), lambda: query(task)).get_indices_list()

    def load(self, keys, objects) -> list[int]:
        task = self.adapter.submit_load_task(keys, objects)
        query = self.adapter.query_load_result
        return self._wait(self.adapter.get_load_event_fd(), lambda: query(task)).get_indices_list()
