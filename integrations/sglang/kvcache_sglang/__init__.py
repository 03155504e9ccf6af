"""libkvcache for SGLang: a storage backend of HiCache (storage.py), and an attention backend (attention.py).

SGLang calls `register` in each of its processes, because it is an entry point of "sglang.srt.plugins".
"""

__all__ = ["register"]

NAME = "kvcache"


def register() -> None:
    """Makes `--attention-backend kvcache` known."""
    from sglang.srt.arg_groups.choices import add_attention_backend_choices
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    from .attention import create

    add_attention_backend_choices([NAME])
    register_attention_backend(NAME)(create)
