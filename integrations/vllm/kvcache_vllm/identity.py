"""What the bytes of a page depend on beside its tokens. Servers with the same identity share pages, and others never do."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.kv_offload.config import OffloadingConfig

FORMAT = 1  # raise it when the plug-in stores other bytes for the same tokens
SAMPLES, SAMPLE_BYTES = 256, 4096
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


def weights_digest(folder: Path) -> str:
    """A hash of a model's files: all of the configuration, and of each file of weights its size and 256 samples of 4 KiB.

    So a tensor that is larger than 1/256 of its file is sampled, and another model of the same shape differs.
    """
    digest = hashlib.sha256()
    files = sorted({path for pattern in (*WEIGHTS, "config.json") for path in folder.glob(pattern)})
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if size <= SAMPLES * SAMPLE_BYTES:
                digest.update(file.read())
                continue
            for i in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * i // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    if not any(path.name != "config.json" for path in files):
        raise ValueError(f"kvcache-vllm: {folder} has no weights. Name the model by \"fingerprint\" in kv_connector_extra_config")
    return digest.hexdigest()


def model_folder(model: str, revision: str | None) -> Path:
    if Path(model).exists():
        return Path(model)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, revision=revision, local_files_only=True))
    except Exception as error:
        raise ValueError(f"kvcache-vllm: the files of {model} are not found ({error}). Name the model by \"fingerprint\" in "
                         "kv_connector_extra_config") from error


def attention_paths() -> list[str]:
    """Who computes attention: vLLM's own kernels and libkvcache order the values in a page in different ways."""
    return [AttentionBackendEnum[name].get_path() for name in ("CPU_ATTN", "CPU_MLA")]


def model_identity(vllm_config: Any, fingerprint: str | None) -> str:
    """What the values in pages depend on, beside the tokens and the layout."""
    model = vllm_config.model_config
    if fingerprint is None:
        fingerprint = weights_digest(model_folder(model.model, model.revision))
    return _digest({
        "model": fingerprint,
        "config": model.hf_config.to_dict(),  # with the overrides of this server
        "dtype": model.dtype,
        "quantization": model.quantization,
        "attention": attention_paths(),
        "machine": [platform.machine(), torch.backends.cpu.get_cpu_capability(), torch.cpu._is_amx_tile_supported()],
        "vllm": vllm.__version__,
    }).hex()


def salt(identity: str, config: OffloadingConfig, row_bytes: int) -> bytes:
    """What makes a key of an object out of a block hash: it depends on the model and on how rows of host memory are laid out."""
    parallel = config.parallel
    return _digest({
        "format": FORMAT,
        "identity": identity,
        "dtype": config.model.dtype,
        "row": row_bytes,
        "groups": [[group.tokens_per_block, *group.layer_names] for group in config.groups],
        "chunk": [config.cache.tokens_per_hash, config.cache.blocks_per_chunk],
        "parallel": [parallel.world_size, parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size],
        "layout": [config.kv_cache_layout, config.replicated_layout, config.canonical_layout],
    })


def _digest(parts: dict[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).digest()
