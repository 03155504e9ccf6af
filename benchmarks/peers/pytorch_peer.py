"""PyTorch's scaled_dot_product_attention on dense K and V."""
import torch
from torch.nn.functional import scaled_dot_product_attention

from common import copies, dense_bytes, huge, numbers, only

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

LATENT = 512  # MLA: the first dims of a row, which are also V


def tensor(shape: tuple, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random numbers in memory on huge pages."""
    memory = torch.from_numpy(huge(shape, "float32" if dtype == torch.float32 else "int16")).view(dtype)
    memory.copy_(torch.from_numpy(numbers(shape, seed)))
    return memory


class Sdpa:
    """In decoding, the heads of a group are the rows of one matrix. That is several times as fast as enable_gqa. Causal
    prefill uses the call as it is."""

    def __init__(self, case: dict, threads: int):
        only(case, ("decode", "prefill", "shared-prefix", "mla"), tuple(DTYPES))
        torch.set_num_threads(threads)
        self.decode, dtype = case["work"] != "prefill", DTYPES[case["dtype"]]
        batch, heads, new, dim = case["batch"], case["kv_heads"], case["new_tokens"], case["head_dim"]
        shape, number = (batch, heads, case["context"], dim), copies(case, dense_bytes(case))
        self.kv = []
        for c in range(number):
            k = tensor(shape, dtype, 2 * c)
            self.kv.append((k, k[..., :LATENT] if case["work"] == "mla" else tensor(shape, dtype, 2 * c + 1)))
        rows = (batch, heads, case["q_heads"] // heads, dim) if self.decode else (batch, case["q_heads"], new, dim)
        self.q = tensor(rows, dtype, 1000)
        self.mask = None
        if not self.decode and case["context"] > new:
            self.mask = torch.ones(new, case["context"], dtype=torch.bool).tril(case["context"] - new)

    @torch.inference_mode()
    def run(self, turn: int) -> None:
        k, v = self.kv[turn % len(self.kv)]
        if self.decode:
            self.out = scaled_dot_product_attention(self.q, k, v)
        else:
            self.out = scaled_dot_product_attention(self.q, k, v, attn_mask=self.mask, is_causal=self.mask is None,
                                                    enable_gqa=True)

    def one_row(self) -> tuple:
        k, v = self.kv[0]
        return tuple(x.float().numpy() for x in (self.out[0, 0, -1], self.q[0, 0, -1], k[0, 0], v[0, 0]))
