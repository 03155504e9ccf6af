"""What the plug-in uses of vLLM, as it was when it was tested.

vLLM's backends are not a stable interface. So the plug-in compares the signatures of what it overrides and calls, and the
fields that it reads, with those of the version that was tested.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import Any

TESTED = "0.32.0"

# Parameters of what is overridden or called, by module.
PARAMETERS = {
    "cpu_attn": {
        "CPUAttentionBackendImpl.__init__":
            "self num_heads head_size scale num_kv_heads alibi_slopes sliding_window kv_cache_dtype logits_soft_cap attn_type "
            "kv_sharing_target_layer_name sinks",
        "CPUAttentionBackendImpl.forward":
            "self layer query key value kv_cache attn_metadata output output_scale output_block_scale",
        "CPUAttentionBackendImpl.do_kv_cache_update": "self layer key value kv_cache slot_mapping",
        "CPUAttentionBackend.get_impl_cls": "",
        "CPUAttentionBackend.get_name": "",
    },
    "mla.cpu_mla": {
        "CPUMLAImpl.forward_mqa": "self q kv_c_and_k_pe_cache attn_metadata layer",
        "CPUMLAImpl.do_kv_cache_update": "self kv_c_normed k_pe kv_cache slot_mapping kv_cache_dtype k_scale",
        "CPUMLABackend.get_impl_cls": "",
    },
    "registry": {"register_backend": "backend class_path is_mamba"},
}

# The same of what prefixes are stored with (store.py, tier.py), by module.
OFFLOADING = {
    "distributed.kv_transfer.kv_connector.v1.offloading_connector": {
        "OffloadingConnector.__init__": "self vllm_config role kv_cache_config",
        "OffloadingConnector.build_prom_metrics": "vllm_config metric_types labelnames per_engine_labelvalues",
    },
    "v1.kv_offload.base": {
        "OffloadingSpec.get_worker": "self kv_caches",
        "OffloadingWorker.submit_store": "self job_id src_spec dst_spec",
        "OffloadingWorker.submit_load": "self job_id src_spec dst_spec",
        "OffloadingWorker.get_finished": "self",
        "OffloadingWorker.wait": "self job_ids",
        "CanonicalKVCacheRef": "tensor_idx page_size_bytes mapping",
        "CanonicalKVCaches": "tensors group_data_refs",
        "GPULoadStoreSpec": "block_ids group_sizes block_indices",
        "OffloadingEvent": "keys medium removed locality ownership removal_expected",
        "TransferResult": "job_id success transfer_size transfer_time",
    },
    "v1.kv_offload.config": {
        "OffloadingConfig": "groups worker_kv_bytes_per_block enable_kv_cache_events extra_config engine_id model cache parallel "
                            "replicated_layout canonical_layout kv_cache_layout",
    },
    "v1.kv_offload.cpu.shared_offload_region": {
        "SharedOffloadRegion": "engine_id num_chunks rank kv_bytes_per_chunk cpu_page_size barrier creator_memory_check "
                               "populate_only_on_creator",
        "SharedOffloadRegion.create_next_worker_view": "self tensor_page_size",
    },
    "v1.kv_offload.tiering.base": {
        "SecondaryTierManager.__init__": "self offloading_spec primary_kv_view tier_type backpressure_detector",
        "SecondaryTierManager.lookup": "self key req_context",
        "SecondaryTierManager.submit_store": "self job_metadata",
        "SecondaryTierManager.submit_load": "self job_metadata",
        "SecondaryTierManager.get_finished_jobs": "self",
        "SecondaryTierManager.drain_jobs": "self",
        "SecondaryTierManager.on_request_finished": "self req_context",
        "TransferJob": "job_id keys chunk_ids is_promotion req_context submit_time",
        "JobResult": "job_id success successful_keys transfer_time transfer_bytes",
    },
    "v1.kv_offload.tiering.spec": {"TieringOffloadingSpec.get_manager": "self", "TieringOffloadingSpec.__init__": "self config"},
}

# Fields of the metadata of a step that are read.
FIELDS = ("num_actual_tokens query_start_loc seq_lens block_table slot_mapping causal dynamic_causal encoder_cache").split()


def _parameters(function: Any) -> str:
    return " ".join(inspect.signature(function).parameters)


def _find(place: Any, path: str) -> Any:
    for name in path.split("."):
        place = getattr(place, name)
    return place


def difference() -> str | None:
    """The first difference between the installed vLLM, or libkvcache, and what was tested, as a clause. None: there is none."""
    try:
        import kvcache
        modules = {name: importlib.import_module(f"vllm.v1.attention.backends.{name}") for name in PARAMETERS}
    except Exception as error:  # a wheel for another machine fails with an OSError, a moved module with an ImportError
        return f"an import failed: {type(error).__name__}: {error}"
    if not hasattr(kvcache, "flash_attn_with_kvcache") or "pool" not in inspect.signature(kvcache.Context).parameters:
        return f"the installed kvcache in {kvcache.__file__} is another package, or too old"
    found = _difference_of(modules)
    return None if found is None else f"{found}; vLLM {TESTED} was tested"


def store_difference() -> str | None:
    """As difference(), of what prefixes are stored with."""
    try:
        modules = {name: importlib.import_module(f"vllm.{name}") for name in OFFLOADING}
    except ImportError as error:
        return f"an import failed: {error}; vLLM {TESTED} was tested"
    found = _wrong_parameters(OFFLOADING, modules)
    return None if found is None else f"{found}; vLLM {TESTED} was tested"


def _wrong_parameters(tested: dict[str, dict[str, str]], modules: dict[str, Any]) -> str | None:
    for module, functions in tested.items():
        for path, wanted in functions.items():
            try:
                found = _parameters(_find(modules[module], path))
            except (AttributeError, TypeError, ValueError):
                return f"this vLLM has no {path}"
            if found != wanted:
                return f"{path} of this vLLM takes ({found}), not ({wanted})"
    return None


def _difference_of(modules: dict[str, Any]) -> str | None:
    wrong = _wrong_parameters(PARAMETERS, modules)
    if wrong is not None:
        return wrong
    cpu_attn = modules["cpu_attn"]
    try:
        fields = {field.name for field in dataclasses.fields(cpu_attn.CPUAttentionMetadata)}
    except (AttributeError, TypeError):
        return "this vLLM has no CPUAttentionMetadata"
    missing = [name for name in FIELDS if name not in fields]
    if missing:
        return f"CPUAttentionMetadata of this vLLM has no {', '.join(missing)}"
    if cpu_attn.CPUAttentionBackend.get_name() != "CPU_ATTN" or cpu_attn.CPUAttentionBackend.forward_includes_kv_cache_update:
        return "CPUAttentionBackend of this vLLM stores keys in another place"
    return None
