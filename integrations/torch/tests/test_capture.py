"""Graphs that are captured keep the operators, and do what the calls do, caches included."""

import subprocess
import sys

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code

import kvcache_torch
from cases import APPEND, DIM, FLASH, HEADS, KV_HEADS, PAGE_SIZE, PAGES, draw, merged, ops, pools

# opcheck compares by products, which PyTorch lacks for float8, and the caches of a latent call are two parts of one buffer.
CHECKED = sorted(FLASH.keys() - {"latent", "float8"})


class Step(torch.nn.Module):
    """A decode step of one layer: it stores new rows, attends to each half of the pages, and merges the halves."""

    def forward(self, q, k, v, k_cache, v_cache, slot_mapping, lengths, table):
        ops.append_slots(k * 2, v, k_cache, v_cache, slot_mapping)
        out, lse = ops.flash_attn_with_kvcache(q[:, None] * 0.5, k_cache, v_cache, cache_seqlens=lengths, block_table=table, causal=True)
        short, short_lse = ops.flash_attn_with_kvcache(q[:, None], k_cache, v_cache, cache_seqlens=lengths, block_table=table,
                                                       causal=True, window_left=3)
        return ops.merge_states([out[:, 0], short[:, 0]], [lse[..., 0], short_lse[..., 0]])


def inputs(rows):
    lengths = torch.arange(rows, dtype=torch.int32) + 9
    table = (torch.arange(rows * 2, dtype=torch.int32) % PAGES).reshape(rows, 2).clone()  # a view would bring the size of its base
    mapping = torch.tensor([int(table[i, (n - 1) // PAGE_SIZE]) * PAGE_SIZE + (n - 1) % PAGE_SIZE for i, n in enumerate(lengths.tolist())])
    return [draw(rows, HEADS, DIM), draw(rows, KV_HEADS, DIM), draw(rows, KV_HEADS, DIM, seed=1), *pools(), mapping, lengths, table]


def expected(rows):
    given = inputs(rows)
    with torch.no_grad():
        out, lse = Step()(*given)
    assert not torch.equal(given[3], pools()[0])
    return out, lse, given[3], given[4]


def equal(some, others):
    return len(some) == len(others) and all(torch.equal(a, b) for a, b in zip(some, others))


@pytest.mark.parametrize(("operator", "call"), [
    *(pytest.param(ops.flash_attn_with_kvcache, FLASH[name], id=name) for name in CHECKED),
    *(pytest.param(ops.append_slots, APPEND[name], id=f"append {name}") for name in sorted(APPEND.keys() - {"float8"})),
    pytest.param(ops.merge_states, merged, id="merge"),
])
def test_opcheck(operator, call):
    arguments, options = call()
    torch.library.opcheck(operator.default, arguments, options)


def test_one_graph_for_all_batch_sizes():
    counter = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(Step(), fullgraph=True, dynamic=True, backend=counter)
    for rows in (3, 5, 7):  # unlike the other sizes, since equal sizes of the first call become one symbol
        given = inputs(rows)
        with torch.no_grad():
            results = compiled(*given)
        assert equal((*results, given[3], given[4]), expected(rows))
    assert counter.frame_count == 1


def test_inductor_copies_no_cache():
    torch._dynamo.reset()
    given = inputs(3)
    with torch.no_grad():
        results, code = run_and_get_code(torch.compile(Step(), fullgraph=True), *given)
    assert equal((*results, given[3], given[4]), expected(3))
    assert "torch.ops.kvcache.append_slots.default" in code[0]
    assert f"empty_strided_cpu((3, {KV_HEADS}, {DIM})" in code[0]  # of k * 2
    assert f"empty_strided_cpu(({PAGES}, {PAGE_SIZE}, {KV_HEADS}, {DIM})" not in code[0]  # a copy would need it


RUN = """
import sys, torch
import torch._inductor.codecache  # aoti_load_package of PyTorch 2.10 needs it, and does not import it
library, program, exported, given, results = sys.argv[1:]
torch.ops.load_library(library)
both = []
for run in (torch._inductor.aoti_load_package(program), torch.export.load(exported).module()):
    for tensors in torch.load(given):
        with torch.no_grad():
            both.append([*run(*tensors), tensors[3], tensors[4]])
torch.save(both, results)
assert not {"kvcache", "kvcache_torch"} & sys.modules.keys()
"""


def test_exported_programs_need_the_library_alone(tmp_path):
    """A package of AOTInductor and an exported program, with a free batch size, run in a process without Python's kvcache."""
    rows = torch.export.Dim("rows", min=2, max=64)
    free = {0: rows}
    with torch.no_grad():
        exported = torch.export.export(Step(), tuple(inputs(3)), dynamic_shapes=(free, free, free, None, None, free, free, free))
        targets = [str(node.target) for node in exported.graph.nodes if "kvcache" in str(node.target)]
        assert len(targets) == 4
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "step.pt2"))
    torch.export.save(exported, tmp_path / "exported.pt2")
    sizes = (3, 2, 7)
    torch.save([inputs(n) for n in sizes], tmp_path / "inputs.pt")
    subprocess.run([sys.executable, "-c", RUN, kvcache_torch.library, package, tmp_path / "exported.pt2", tmp_path / "inputs.pt",
                    tmp_path / "results.pt"], check=True, timeout=600)
    results = torch.load(tmp_path / "results.pt")
    assert len(results) == 6
    for got, n in zip(results, sizes * 2):
        assert equal(got, expected(n))
