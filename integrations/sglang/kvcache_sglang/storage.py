"""A storage backend of HiCache over libkvcache's tiers: a folder, or a Redis server.

SGLang names it by its module path, with the backend "dynamic". Its threads call it for pages of host memory and wait. A page that
cannot be loaded with the bytes that were stored is a miss, and so is every page of a server that is down.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
from collections.abc import Sequence
from typing import Any

import kvcache
import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)

__all__ = ["KvcacheStorage"]

logger = logging.getLogger(__name__)

FORMAT = 1  # raise it when other bytes are stored for the same page
_WRITABLE = 0x200  # PyBUF_WRITE
_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.argtypes, _memory.restype = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int], ctypes.py_object


def _bytes(page: torch.Tensor) -> memoryview:
    """The memory of a page, of any element type."""
    return memoryview(page.detach().reshape(-1).view(torch.uint8).numpy())


class KvcacheStorage(HiCacheStorage):
    """Pages of one rank as objects of a tier.

    The keys cover the model's name, the rank and how a page is laid out, so that servers share pages only if they may. The option
    "kvcache" of the extra config has the arguments of kvcache.open_objects, and:
        namespace: names what these keys do not cover, such as a revision of the weights.
        seconds: pages of a call that have not begun after this time are given up.
    """

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: dict[str, Any] | None = None) -> None:
        extra = storage_config.extra_config or {}
        options = dict(extra.get("kvcache") or {})
        rank = [storage_config.tp_rank, storage_config.tp_size]
        shard = [storage_config.pp_rank, storage_config.pp_size, storage_config.attn_cp_rank, storage_config.attn_cp_size,
                 storage_config.dcp_rank, storage_config.dcp_size, storage_config.logical_page_size]
        self._identity = {"format": FORMAT, "namespace": options.pop("namespace", ""), "model": storage_config.model_name,
                          "shard": shard, "pointers": bool(extra.get("interface_v1"))}
        self._rank, self._is_replicated = rank, storage_config.is_mla_model
        seconds = options.pop("seconds", 10.0)
        self.registered_pools: dict[Any, Any] = {}
        self._salts: dict[str, Any] = {}
        self._batches = kvcache.ObjectBatches(kvcache.open_objects(**options), seconds=seconds)

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._salts.clear()

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._salts.clear()

    def close(self) -> None:
        """Ends what has begun. After this, no memory of a call is in use."""
        self._batches.close()

    def clear(self) -> bool:
        logger.warning("kvcache-sglang: no page is removed. Other servers may use them; another namespace has none")
        return False

    # One page, and pages that SGLang copies.

    def get(self, key: str, target_location: torch.Tensor | None = None, target_sizes: Any = None) -> torch.Tensor | None:
        return self.batch_get([key], None if target_location is None else [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Sequence[torch.Tensor] | None = None,
                  target_sizes: Any = None) -> list[torch.Tensor | None]:
        if target_locations is None:
            target_locations = [torch.empty(size, dtype=torch.uint8) for size in self._sizes(keys)]
        copies = [page.contiguous() for page in target_locations]
        loaded = self._load(zip(self._keys(keys), map(_bytes, copies), strict=True))
        for page, copy, is_loaded in zip(target_locations, copies, loaded, strict=True):
            if is_loaded and copy is not page:
                page.copy_(copy)
        return [page if is_loaded else None for page, is_loaded in zip(target_locations, loaded, strict=True)]

    def set(self, key: str, value: torch.Tensor | None = None, target_location: torch.Tensor | None = None,
            target_sizes: Any = None) -> bool:
        return self.batch_set([key], [target_location if value is None else value])

    def batch_set(self, keys: list[str], values: Sequence[torch.Tensor | None] | None = None,
                  target_locations: Sequence[torch.Tensor] | None = None, target_sizes: Any = None) -> bool:
        pages = target_locations if values is None else values
        if pages is None or len(pages) != len(keys) or any(page is None for page in pages):
            logger.error("kvcache-sglang: %d keys came without as many pages", len(keys))
            return False
        copies = [page.contiguous() for page in pages if page is not None]
        return all(self._store(zip(self._keys(keys), map(_bytes, copies), strict=True)))

    def exists(self, key: str) -> bool:
        return self._find(self._keys([key]))[0]

    def batch_exists(self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None) -> int:
        if self._is_logical(self.mem_pool_host):
            return len(keys)
        return _leading(self._find(self._keys(keys)))

    # Pages of the host pool where they lie: nothing is copied.

    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor,
                     extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        pages = self._pages(self.mem_pool_host, len(keys), host_indices)
        return self._load(zip(self._keys(keys), pages, strict=True)) if pages is not None else [True] * len(keys)

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor,
                     extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        pages = self._pages(self.mem_pool_host, len(keys), host_indices)
        return self._store(zip(self._keys(keys), pages, strict=True)) if pages is not None else [True] * len(keys)

    # Models with several pools.

    def batch_exists_v2(self, keys: list[str], pool_transfers: list[PoolTransfer] | None = None,
                        extra_info: HiCacheStorageExtraInfo | None = None) -> PoolTransferResult:
        transfers = [transfer for transfer in pool_transfers or [] if transfer.hit_policy != PoolHitPolicy.BLOCK_GROUPS]
        names = [PoolName.KV, *(transfer.name for transfer in transfers)]
        found = self._find([key for name in names for key in self._keys(keys, name)])
        rows = [found[begin:begin + len(keys)] for begin in range(0, len(found), max(len(keys), 1))]
        pages = len(keys) if self._is_logical(self.mem_pool_host) else _leading(rows[0]) if rows else 0
        hits: dict[str, int] = {PoolName.KV: pages} if pages else {}
        usable = set(range(1, pages + 1))
        for transfer, stored in zip(transfers, rows[1:], strict=False):
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                lengths = set(range(1, min(_leading(stored), pages) + 1))
            else:  # TRAILING_PAGES
                window = max(1, len(transfer.keys or ()))
                lengths = {end for end in range(1, pages + 1) if all(stored[max(0, end - window):end])}
            if lengths:
                hits[transfer.name] = max(lengths)
            usable &= lengths
        return PoolTransferResult(max(usable, default=0), hits, sorted(usable))

    def batch_get_v2(self, transfers: list[PoolTransfer],
                     extra_info: HiCacheStorageExtraInfo | None = None) -> dict[str, list[bool]]:
        return {transfer.name: self._move(transfer, self._load_copies) for transfer in transfers}

    def batch_set_v2(self, transfers: list[PoolTransfer],
                     extra_info: HiCacheStorageExtraInfo | None = None) -> dict[str, list[bool]]:
        return {transfer.name: self._move(transfer, self._store_copies) for transfer in transfers}

    def _move(self, transfer: PoolTransfer, move: Any) -> list[bool]:
        keys, pool = transfer.keys or [], self.registered_pools.get(transfer.name)
        indices = transfer.host_indices
        page = getattr(pool, "page_size", 1) or 1
        if pool is None or indices is None or indices.numel() != len(keys) * page:
            count = 0 if indices is None else indices.numel()
            logger.error("kvcache-sglang: pool %s has %d keys of %d slots, and %d indices", transfer.name, len(keys), page, count)
            return [False] * len(keys)
        if not keys:
            return []
        if transfer.name == PoolName.KV and self._identity["pointers"]:  # one order of bytes in all pages of K and V
            pages = self._pages(pool, len(keys), indices)
            begin = self._load if move == self._load_copies else self._store
            return begin(zip(self._keys(keys), pages, strict=True)) if pages is not None else [True] * len(keys)
        return move(pool, self._keys(keys, transfer.name), indices[::page].tolist())

    def _load_copies(self, pool: Any, keys: list[bytes], places: list[int]) -> list[bool]:
        copies = [pool.get_dummy_flat_data_page().contiguous() for _ in keys]
        loaded = self._load(zip(keys, map(_bytes, copies), strict=True))
        for place, copy, is_loaded in zip(places, copies, loaded, strict=True):
            if is_loaded:
                pool.set_from_flat_data_page(place, copy)
        return loaded

    def _store_copies(self, pool: Any, keys: list[bytes], places: list[int]) -> list[bool]:
        copies = [pool.get_data_page(place, flat=True).contiguous() for place in places]
        return self._store(zip(keys, map(_bytes, copies), strict=True))

    # The tier.

    def _find(self, keys: list[bytes]) -> list[bool]:
        return self._batches.find(keys).result()

    def _load(self, pages: Any) -> list[bool]:
        return self._batches.load(pages).result()

    def _store(self, pages: Any) -> list[bool]:
        return self._batches.store(pages).result()

    def _sizes(self, keys: list[str]) -> list[int]:
        hashed = self._keys(keys)
        self._find(hashed)  # so that the tier has searched
        return [answer.bytes for answer in self._batches.objects.lookup(hashed)]

    def _keys(self, keys: Sequence[str], name: Any = PoolName.KV) -> list[bytes]:
        """The keys of objects. They cover all on which the bytes of a page depend."""
        name = str(getattr(name, "value", name))
        salt = self._salts.get(name)
        if salt is None:
            pool = self.mem_pool_host if name == PoolName.KV.value else self.registered_pools.get(name)
            parts = {**self._identity, "pool": name, "layout": _layout(pool)}
            if not self._is_replicated or name == PoolName.MAMBA.value:  # replicas of MLA's pages are shared
                parts["rank"] = self._rank
            salt = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
            self._salts[name] = salt
        hashed = []
        for key in keys:
            digest = salt.copy()
            digest.update(key.encode())
            hashed.append(digest.digest())
        return hashed

    def _pages(self, pool: Any, count: int, host_indices: torch.Tensor) -> list[list[memoryview]] | None:
        """The memory of each page, in parts. None: the pool has no memory of its own, and there is nothing to move."""
        meta = pool.get_page_buffer_meta(host_indices)
        if meta is None:
            return None
        addresses, sizes = meta
        sizes = [sizes] * len(addresses) if isinstance(sizes, int) else sizes
        parts = [_memory(address, size, _WRITABLE) for address, size in zip(addresses, sizes, strict=True)]
        per_page, rest = divmod(len(parts), count) if count else (0, 0)
        if rest or (count and not per_page):
            raise ValueError(f"kvcache-sglang: {count} keys came with {len(parts)} parts of pages")
        return [parts[i * per_page:(i + 1) * per_page] for i in range(count)]

    @staticmethod
    def _is_logical(pool: Any) -> bool:
        return getattr(pool, "kv_buffer", pool) is None


def _leading(found: Sequence[bool]) -> int:
    """How many of the first ones were found."""
    return next((i for i, one in enumerate(found) if not one), len(found))


def _layout(pool: Any) -> list[str]:
    """How a pool lays out a page."""
    names = ("layout", "dtype", "page_size", "layer_num", "head_num", "head_dim", "v_head_dim", "kv_lora_rank",
             "qk_rope_head_dim", "start_layer")
    return [f"{name}={getattr(pool, name)}" for name in names if getattr(pool, name, None) is not None]
