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


def _difference_of(modules: dict[str, Any]) -> str | None:
    for module, functions in PARAMETERS.items():
        for path, tested in functions.items():
            try:
                found = _parameters(_find(modules[module], path))
            except (AttributeError, TypeError, ValueError):
                return f"this vLLM has no {path}"
            if found != tested:
                return f"{path} of this vLLM takes ({found}), not ({tested})"
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
