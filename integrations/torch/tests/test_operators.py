"""Each operator does what the same call of the Python package does, bit by bit, and refuses what that refuses."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kvcache
import kvcache_torch
from cases import APPEND, FLASH, HEADS, KV_HEADS, LENGTHS, PAGE_SIZE, TABLE, appending, copied, merged, ops, paged, slots

pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


def context():
    return kvcache.Context(threads=torch.get_num_threads())


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*(x.reshape(-1).view(torch.uint8) for x in (a, b)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FLASH)
def test_attention_as_of_the_package(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        arguments, options = FLASH[name]()
        theirs, options_there = copied((arguments, options))
        out, lse = ops.flash_attn_with_kvcache(*arguments, **options)
        window = (options_there.pop("window_left", -1), options_there.pop("window_right", -1))
        expected, expected_lse = kvcache.flash_attn_with_kvcache(
            *theirs, **options_there, window_size=window, return_softmax_lse=True, context=context())
    finally:
        torch.set_num_threads(before)
    assert same(out, expected) and same(lse, expected_lse)
    assert all(same(a, b) for a, b in zip(arguments, theirs, strict=True))  # the caches, which a call with k writes


def test_attention_as_of_pytorch():
    (q, k_cache, v_cache), options = paged()
    out, lse = ops.flash_attn_with_kvcache(q, k_cache, v_cache, **options)
    for row, length in enumerate(LENGTHS.tolist()):
        k, v = (cache[TABLE[row].clamp(min=0)].flatten(0, 1)[:length].transpose(0, 1) for cache in (k_cache, v_cache))
        expected = torch.nn.functional.scaled_dot_product_attention(q[row].transpose(0, 1), k, v, enable_gqa=True)
        torch.testing.assert_close(out[row].transpose(0, 1), expected, atol=2e-5, rtol=0)
        scores = torch.einsum("hd,hjd->hj", q[row, 0], k.repeat_interleave(HEADS // KV_HEADS, 0)) * q.shape[-1] ** -0.5
        torch.testing.assert_close(lse[row, :, 0], scores.logsumexp(-1), atol=1e-4, rtol=0)


def test_new_rows_are_stored_in_their_pages():
    (q, k_cache, v_cache, k, v), options = appending()
    before = k_cache.clone()
    ops.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, **options)
    for row, length in enumerate(LENGTHS.tolist()):
        page, offset = TABLE[row, length // PAGE_SIZE], length % PAGE_SIZE
        assert torch.equal(k_cache[page, offset], k[row, 0]) and torch.equal(v_cache[page, offset], v[row, 0])
    assert (k_cache != before).any((2, 3)).sum() == 6


@pytest.mark.parametrize("name", APPEND)
def test_append_as_of_the_package(name):
    arguments, options = APPEND[name]()
    theirs, options_there = copied((arguments, options))
    before = arguments[2].clone()
    assert ops.append_slots(*arguments, **options) is None
    kvcache.append_slots(*theirs, **options_there)
    assert same(arguments[2], theirs[2]) and not same(arguments[2], before)
    assert arguments[3] is None or same(arguments[3], theirs[3])


def test_pages_of_heads_first_and_strided_rows():
    """Caches in HND order, and K and V within one projection, need no copy."""
    k, v, k_cache, v_cache, mapping = slots()[0]
    expected = k_cache.clone(), v_cache.clone()
    ops.append_slots(k, v, *expected, mapping)
    heads_first = [cache.transpose(1, 2).contiguous().transpose(1, 2) for cache in (k_cache, v_cache)]
    both = torch.cat([k, v], 1)
    ops.append_slots(both[:, :KV_HEADS], both[:, KV_HEADS:], *heads_first, mapping)
    assert all(torch.equal(a, b) for a, b in zip(heads_first, expected))


def test_merge_as_of_the_package():
    arguments, _ = merged()
    out, lse = ops.merge_states(*arguments)
    expected, expected_lse = context().merge_states(*arguments)
    assert same(out, expected) and same(lse, expected_lse)


def refused(call, arguments, options, changes):
    arguments, options = list(arguments), dict(options)
    for place, value in changes.items():
        if isinstance(place, int):
            arguments[place] = value(arguments[place]) if callable(value) else value
        else:
            options[place] = value
    before = copied(arguments)
    with pytest.raises(RuntimeError) as error:
        call(*arguments, **options)
    assert all(same(a, b) for a, b in zip(arguments, before) if a is not None and a.device.type == "cpu")
    return str(error.value)


@pytest.mark.parametrize(("changes", "message"), [
    ({4: torch.tensor([1, 2, 3, 96])}, "append_slots: slot_mapping[3] is 96; k_cache has 96 slots"),
    ({0: lambda k: k[0]}, "append_slots: k has 2 dims, not 3"),
    ({0: lambda k: k.double()}, "append_slots: k has dtype float64, not float32"),
    ({0: lambda k: k.to(torch.complex64)}, "kvcache: k has a dtype that libkvcache does not have"),
    ({1: lambda v: v[..., :8]}, "append_slots: v has "),
    ({3: lambda cache: cache[:5]}, "append_slots: v_cache has "),
    ({3: lambda cache: cache.bfloat16()}, "append_slots: v_cache has dtype bfloat16"),
    ({2: lambda cache: cache.to("meta")}, "append_slots: tensors are on the devices cpu, meta"),
    ({"positions": torch.tensor([1, 2, 3, 4])}, "append_slots: "),
])
def test_append_refuses(changes, message):
    assert message in refused(ops.append_slots, *slots(), changes)


@pytest.mark.parametrize(("changes", "message"), [
    ({0: lambda q: q[0]}, "flash_attn_with_kvcache: q has 3 dims, not 4"),
    ({0: lambda q: q[..., 0, 0, 0].sum()}, "flash_attn_with_kvcache: q has 0 dims, not 4"),
    ({2: lambda cache: cache[0]}, "flash_attn_with_kvcache: v_cache has 3 dims, not 4"),
    ({0: lambda q: q.to("meta")}, "flash_attn_with_kvcache: tensors are on the devices cpu, meta"),
    ({"block_table": TABLE.float()}, "flash_attn_with_kvcache: block_table has dtype float32, not int32 or int64"),
    ({"block_table": TABLE + 1}, "flash_attn_with_kvcache: "),
    ({"cache_seqlens": torch.tensor([1, 2, 33])}, "flash_attn_with_kvcache: "),
    ({"softcap": -1.0}, "flash_attn_with_kvcache: softcap -1 is not 0"),
    ({"attention_chunk": -(1 << 40)}, "flash_attn_with_kvcache: attention_chunk"),
    ({"sinks": torch.zeros(HEADS - 1)}, "flash_attn_with_kvcache: sinks"),
])
def test_attention_refuses(changes, message):
    assert message in refused(ops.flash_attn_with_kvcache, *paged(), changes)


@pytest.mark.parametrize(("changes", "message"), [
    ({1: lambda lses: lses[:2]}, "merge_states: 3 outputs and 2 lses"),
    ({0: lambda outputs: [outputs[0][0], *outputs[1:]]}, "merge_states: outputs[0] has 2 dim"),
    ({1: lambda lses: [lses[0], lses[1].t(), lses[2]]}, "merge_states: "),
])
def test_merge_refuses(changes, message):
    (outputs, lses), _ = merged()
    with pytest.raises(RuntimeError) as error:
        ops.merge_states(*[changes[i](value) if i in changes else value for i, value in enumerate((outputs, lses))])
    assert message in str(error.value)


def test_only_the_stable_abi_is_used():
    """The library imports C functions of PyTorch alone, and exports nothing."""
    symbols = subprocess.run(["nm", "--dynamic", "--format=posix", kvcache_torch.library], capture_output=True, text=True, check=True)
    rows = [line.split() for line in symbols.stdout.splitlines()]
    imported = [name for name, kind, *_ in rows if kind == "U"]
    assert [name for name in imported if name.startswith(("aoti_torch_", "torch_"))]
    assert not [name for name in imported if "c10" in name or "2at" in name or "5torch" in name]
    assert not [name for name, kind, *_ in rows if kind in "TDBRV"]


def test_a_second_copy_of_the_library_changes_nothing(tmp_path):
    for file in Path(kvcache_torch.library).parent.glob("*.so*"):
        shutil.copy(file, tmp_path)
    program = """
import sys, torch
for path in sys.argv[1:]:
    torch.ops.load_library(path)
out, _ = torch.ops.kvcache.merge_states([torch.ones(2, 1, 4)], [torch.zeros(2, 1)])
print(out.sum().item())
"""
    run = subprocess.run([sys.executable, "-c", program, kvcache_torch.library, tmp_path / "libkvcache_torch.so"],
                         capture_output=True, text=True, timeout=600)
    assert (run.returncode, run.stdout) == (0, "8.0\n"), run.stderr
