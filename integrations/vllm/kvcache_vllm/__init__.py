"""libkvcache's attention inside an unmodified vLLM on the CPU.

vLLM calls `register` in each of its processes. It replaces vLLM's CPU attention backends by those in backend.py and mla.py. If
that is not possible, it writes one line to vLLM's log, and vLLM's own backends stay.
"""

__all__ = ["register"]

BACKENDS = {"CPU_ATTN": "kvcache_vllm.backend.KvcacheBackend", "CPU_MLA": "kvcache_vllm.mla.KvcacheMlaBackend"}


def register() -> None:
    """Replaces vLLM's CPU attention backends, if this vLLM has the interface that was tested."""
    from vllm.logger import init_logger  # vLLM configures loggers below its own name only
    from vllm.platforms import current_platform

    from .interface import difference

    if not current_platform.is_cpu():
        return
    logger = init_logger("vllm.kvcache")
    why = difference()
    if why is not None:
        logger.warning("kvcache-vllm: vLLM's own attention stays, because %s", why)
        return
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    # vLLM's CPU platform takes the paths of these, also where another backend is requested.
    for name, path in BACKENDS.items():
        register_backend(AttentionBackendEnum[name], path)
    logger.info("kvcache-vllm: attention on the CPU is libkvcache's")
