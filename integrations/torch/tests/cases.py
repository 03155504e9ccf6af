"""Calls of the operators, over small tensors that are drawn anew."""

import torch

import kvcache_torch  # noqa: F401 - loads the operators

ops = torch.ops.kvcache
PAGES, PAGE_SIZE, KV_HEADS, HEADS, DIM = 12, 8, 2, 6, 32
TABLE = torch.tensor([[1, 2, 4, -1], [5, 11, 0, 3], [7, -1, -1, -1]], dtype=torch.int32)
LENGTHS = torch.tensor([17, 25, 3], dtype=torch.int32)


def draw(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def pools(dtype=torch.float32, dims=(DIM, DIM)):
    return tuple(draw(PAGES, PAGE_SIZE, KV_HEADS, dim, dtype=dtype, seed=i) for i, dim in enumerate(dims))


def angles(rotary_dim=16, positions=40):
    turns = torch.outer(torch.arange(positions), 100.0 ** -(torch.arange(rotary_dim // 2) / (rotary_dim // 2)))
    return {"rotary_cos": turns.cos(), "rotary_sin": turns.sin()}


def paged(dtype=torch.float32, queries=1, **options):
    """Positional arguments, and the others."""
    return (draw(3, queries, HEADS, DIM, dtype=dtype), *pools(dtype)), {
        "cache_seqlens": LENGTHS, "block_table": TABLE, "causal": True, **options}


def appending(dtype=torch.float32, **options):
    arguments, others = paged(dtype, queries=2, **options)
    return (*arguments, *(draw(3, 2, KV_HEADS, DIM, dtype=dtype, seed=seed) for seed in (7, 8))), others


def packed(**options):
    arguments, others = paged(**options)
    return (draw(7, HEADS, DIM), *arguments[1:]), others | {"cu_seqlens_q": torch.tensor([0, 4, 5, 7], dtype=torch.int32)}


def float8():
    (q, *caches), others = paged(torch.bfloat16)
    scales = {name: draw(3, KV_HEADS).abs() + 0.5 for name in ("q_descale", "k_descale", "v_descale")}
    return (q.to(torch.float8_e4m3fn), *(cache.to(torch.float8_e4m3fn) for cache in caches)), others | scales


def latent():
    """Absorbed MLA: K and V are parts of one row."""
    rows = draw(PAGES, PAGE_SIZE, 1, 64 + 16)
    return (draw(3, 1, HEADS, 16), rows[..., 64:], rows[..., :64]), {
        "qv": draw(3, 1, HEADS, 64), "cache_seqlens": LENGTHS, "block_table": TABLE, "softmax_scale": 0.1}


def listed():
    indices = torch.randint(-1, PAGES * PAGE_SIZE, (3, 1, 1, 10), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    arguments, _ = paged()
    return arguments, {"indices": indices}


def contiguous():
    return (draw(2, 3, HEADS, DIM), draw(4, 30, KV_HEADS, DIM), draw(4, 30, KV_HEADS, 24)), {
        "cache_seqlens": torch.tensor([20, 30]), "cache_batch_idx": torch.tensor([3, 1]), "cache_leftpad": torch.tensor([0, 4])}


FLASH = {
    "paged": paged, "bfloat16": lambda: paged(torch.bfloat16), "float16": lambda: paged(torch.float16, queries=2),
    "window": lambda: paged(queries=3, window_left=6), "two-sided": lambda: paged(queries=3, causal=False, window_left=4, window_right=1),
    "chunks": lambda: paged(attention_chunk=4), "softcap": lambda: paged(softcap=5.0, softmax_scale=0.3),
    "sinks": lambda: paged(sinks=draw(HEADS)), "splits": lambda: paged(num_splits=3),
    "alibi": lambda: paged(alibi_slopes=draw(HEADS).abs(), alibi_signed=True), "append": appending,
    "rotary": lambda: appending(**angles()), "rotary in halves": lambda: appending(
        torch.bfloat16, **angles(), rotary_interleaved=False, rotary_seqlens=torch.tensor([1, 2, 3])),
    "packed": packed, "float8": float8, "latent": latent, "lists": listed, "contiguous": contiguous,
}


def slots(dtype=torch.float32, rows=4, **options):
    return (*(draw(rows, KV_HEADS, DIM, seed=seed) for seed in (7, 8)), *pools(dtype), torch.tensor([95, -1, 3, 40])[:rows]), options


APPEND = {
    "plain": slots, "bfloat16": lambda: slots(torch.bfloat16),
    "float8": lambda: slots(torch.float8_e4m3fn, k_scale=torch.tensor([0.5]), v_scale=torch.tensor([0.5, 2.0])),
    "rotary": lambda: slots(**angles(), positions=torch.tensor([5, 0, 9, 39]), rotary_interleaved=True),
    "latent": lambda: ((draw(2, 1, 16), draw(2, 1, 64), draw(PAGES, PAGE_SIZE, 1, 80), None, torch.tensor([9, 1])), {}),
}


def merged(parts=3):
    return ([draw(5, HEADS, DIM, seed=i) for i in range(parts)], [draw(5, HEADS, seed=i) for i in range(parts)]), {}


def copied(value):
    """A call's arguments with tensors of its own, by the same strides."""
    if isinstance(value, torch.Tensor):
        return value.clone() if value.is_contiguous() else value  # the parts of one buffer are only read here
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    return {name: copied(item) for name, item in value.items()} if isinstance(value, dict) else value
