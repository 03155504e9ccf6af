"""The names and arguments of other projects, over this library: change an import, and keep the code.

- `kvcache.compat.flash_attn`: FlashAttention 2.
- `kvcache.compat.flash_attn_interface`: FlashAttention 3.
- `kvcache.compat.flashinfer`: FlashInfer's wrappers over paged and ragged K and V.
- `kvcache.compat.vllm_ops`: vLLM's operations on its caches.

They take PyTorch tensors, on the CPU or a GPU. Only forward passes exist. What a module lacks raises kvcache.Unsupported.
"""
