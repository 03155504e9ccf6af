"""What SGLang does with a storage backend: its configuration, its factory, and pages of host memory."""

from __future__ import annotations

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

LAYERS, HEADS, DIM = 3, 2, 16
SHAPES = {"layer_first": lambda tokens: (2, LAYERS, tokens, HEADS, DIM), "page_first": lambda tokens: (2, tokens, LAYERS, HEADS, DIM)}


class HostPool:
    """The memory of SGLang's host pool, and its methods for pages: without a pool on a device beside it."""

    layer_num, head_num, head_dim, device, pin_memory = LAYERS, HEADS, DIM, "cpu", False
    get_page_buffer_meta = MHATokenToKVPoolHost.get_page_buffer_meta
    get_data_page = MHATokenToKVPoolHost.get_data_page
    get_dummy_flat_data_page = MHATokenToKVPoolHost.get_dummy_flat_data_page
    set_from_flat_data_page = MHATokenToKVPoolHost.set_from_flat_data_page

    def __init__(self, pages=8, page_size=4, layout="page_first", dtype=torch.bfloat16, seed=None) -> None:
        self.size, self.page_size, self.layout, self.dtype = pages * page_size, page_size, layout, dtype
        shape = SHAPES[layout](self.size)
        values = torch.zeros(shape)
        if seed is not None:
            values.random_(-100, 100, generator=torch.Generator().manual_seed(seed))
        self.kv_buffer = values.to(dtype)

    def indices(self, *pages: int) -> torch.Tensor:
        return torch.cat([torch.arange(page * self.page_size, (page + 1) * self.page_size) for page in pages])

    def page(self, page: int) -> torch.Tensor:
        return self.get_data_page(page * self.page_size).clone()


def config(options: dict, *, v1: bool = True, **changes) -> HiCacheStorageConfig:
    extra = {"backend_name": "kvcache", "module_path": "kvcache_sglang.storage", "class_name": "KvcacheStorage",
             "interface_v1": int(v1), "kvcache": options}
    fields = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "is_mla_model": False,
              "enable_storage_metrics": False, "is_page_first_layout": True, "model_name": "model/a", "extra_config": extra}
    return HiCacheStorageConfig(**{**fields, **changes})


class Storage:
    """A backend that SGLang's factory made, with a host pool. Use it by `with`."""

    def __init__(self, options: dict, pool: HostPool, **changes) -> None:
        self.pool = pool
        self.backend = StorageBackendFactory.create_backend("dynamic", config(options, **changes), pool)
        self.backend.register_mem_pool_host(pool)

    def __enter__(self):
        return self.backend

    def __exit__(self, *_: object) -> None:
        self.backend.close()
