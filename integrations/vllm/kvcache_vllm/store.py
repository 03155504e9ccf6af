"""A KV connector for vLLM that keeps prefixes in a folder or on a Redis server: the class of --kv-transfer-config.

It is vLLM's offloading connector with three parts of our own: on the CPU platform, which vLLM's own specs refuse, a worker that
copies pages to host memory; a secondary tier over libkvcache (tier.py); and keys that no other model has (identity.py).

    {"kv_connector": "KvcacheConnector", "kv_connector_module_path": "kvcache_vllm.store", "kv_role": "kv_both",
     "kv_connector_extra_config": {"directory": "/var/cache/vllm", "capacity_bytes": 100000000000}}
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingWorker,
    TransferResult,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from .identity import model_identity
from .interface import store_difference
from .tier import DISK, REDIS

HOST_BYTES = 1 << 30
OURS = {"fingerprint", *DISK, *REDIS}
# What else vLLM's offloading reads.
THEIRS = set("cpu_bytes_to_use block_size blocks_per_chunk eviction_policy cache_policy_module_path offload_prompt_only "
             "self_describing_kv_events canonical_layout spec_name spec_module_path secondary_tiers backpressure".split())


def complete(extra: dict[str, Any]) -> None:
    """Adds to the configuration what vLLM's offloading reads there. It may be called again."""
    unknown = set(extra) - OURS - THEIRS
    if unknown:
        raise ValueError(f"kvcache-vllm: kv_connector_extra_config has unknown names: {', '.join(sorted(unknown))}")
    if "secondary_tiers" in extra:
        return
    tiers = [{name: extra[name] for name in names if name in extra} for names in (DISK, REDIS) if names[0] in extra]
    if not tiers or len(set().union(*tiers)) != len(set(extra) & set(DISK + REDIS)):
        raise ValueError("kvcache-vllm: kv_connector_extra_config needs directory, or redis, or both, for its other names")
    extra.update(spec_name="KvcacheSpec", spec_module_path=__name__, secondary_tiers=[
        {"type": "KvcacheTier", "module_path": f"{__package__}.tier", **tier} for tier in tiers])
    extra.setdefault("cpu_bytes_to_use", HOST_BYTES)


class KvcacheConnector(OffloadingConnector):
    """vLLM's offloading connector with KvcacheSpec."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        why = store_difference()
        if why is not None:
            raise RuntimeError(f"kvcache-vllm: prefixes cannot be stored, because {why}")
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        complete(extra)
        if role == KVConnectorRole.SCHEDULER:
            name = model_identity(vllm_config, extra.get("fingerprint"))
            for tier in extra["secondary_tiers"]:
                if tier.get("type") == "KvcacheTier":
                    tier.setdefault("identity", name)
        super().__init__(vllm_config, role, kv_cache_config)

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, *arguments: Any) -> Any:
        complete(vllm_config.kv_transfer_config.kv_connector_extra_config)
        return super().build_prom_metrics(vllm_config, *arguments)


class KvcacheSpec(TieringOffloadingSpec):
    """vLLM's tiers with a worker for the CPU platform."""

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        if not current_platform.is_cpu():
            return super().get_worker(kv_caches)
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks, kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                rank=0 if self.replicated_layout else self.config.parallel.rank, cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = PageCopier(kv_caches, self.blocks_per_chunk, region)
        return self._worker


class PageCopier(OffloadingWorker):
    """Copies pages between a worker's KV cache and its part of the rows of host memory. A copy ends before its call returns."""

    def __init__(self, kv_caches: CanonicalKVCaches, blocks_per_chunk: int, region: SharedOffloadRegion) -> None:
        self._groups = [[(ref.tensor_idx, ref.page_size_bytes) for ref in refs] for refs in kv_caches.group_data_refs]
        self._pages = [cache.tensor.view(torch.uint8) for cache in kv_caches.tensors]
        self._blocks_per_chunk = blocks_per_chunk
        self._rows = [region.create_next_worker_view(cache.page_size_bytes * blocks_per_chunk).view(torch.uint8)
                      for cache in kv_caches.tensors]
        self._region = region
        self._finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        return self._copy(job_id, src_spec, dst_spec, to_host=True)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        return self._copy(job_id, dst_spec, src_spec, to_host=False)

    def _copy(self, job_id: int, pages: GPULoadStoreSpec, rows: LoadStoreSpec, *, to_host: bool) -> bool:
        assert isinstance(rows, CPULoadStoreSpec)
        self._remove_name()
        begin, copied = time.monotonic(), 0
        for refs, group in zip(self._groups, self._places(pages, rows.block_ids.tolist()), strict=True):
            for tensor, size in refs:
                stored, kept, page = self._rows[tensor], self._pages[tensor], self._pages[tensor].shape[1]
                for block, row, part in group:
                    host = stored[row, part * page:part * page + size]
                    own = kept[block, :size]
                    (host if to_host else own).copy_(own if to_host else host)
                copied += size * len(group)
        self._finished.append(TransferResult(job_id, True, copied, time.monotonic() - begin))
        return True

    def _places(self, pages: GPULoadStoreSpec, rows: Sequence[int]) -> list[list[tuple[int, int, int]]]:
        """Of each group: its pages, each with its row and its place within the row."""
        blocks, groups, first_block, first_row = pages.block_ids.tolist(), [], 0, 0
        for count, index in zip(pages.group_sizes, pages.block_indices, strict=True):
            skipped = index % self._blocks_per_chunk
            places = [divmod(skipped + i, self._blocks_per_chunk) for i in range(count)]
            groups.append([(blocks[first_block + i], rows[first_row + row], part) for i, (row, part) in enumerate(places)])
            first_block += count
            first_row += places[-1][0] + 1 if places else 0
        assert (first_block, first_row) == (len(blocks), len(rows))
        return groups

    def _remove_name(self) -> None:
        """Removes the name of the memory in /dev/shm. All processes have mapped it before the first copy, so that the system
        frees it with the last of them, also after a SIGKILL."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._region.mmap_path)

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Nothing: copies have ended when they are submitted."""

    def shutdown(self) -> None:
        self._rows.clear()
        self._region.cleanup()
