#!/usr/bin/env python3
"""Registers, shared and local memory and occupancy of each CUDA kernel and arch, from the built plug-in.

    ptxas_report.py PLUGIN --cuobjdump PROGRAM [--docs docs/reference/cuda-kernels.md]

Prints a table; --docs puts it between the two marks there. Exits with 1 if a kernel uses local memory (spills too), or if
the plug-in has no kernel that attends.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

BEGIN, END = "<!-- kernels: scripts/ptxas_report.py -->", "<!-- /kernels -->"
# Of a multiprocessor: threads, blocks, KiB of shared memory. Each has 65536 registers, in units of 256 a warp.
PROCESSORS = {"sm_80": (2048, 32, 164), "sm_86": (1536, 16, 100), "sm_89": (1536, 24, 100), "sm_90": (2048, 32, 228),
              "sm_100": (2048, 32, 228), "sm_120": (1536, 24, 100)}
# Of a kernel's blocks: threads, and the most dynamic shared memory in KiB that they are launched with.
LAUNCHES = {"attend_kernel": (128, 47), "merge_tiles_kernel": (128, 3), "append_kernel": (128, 0),
            "append_kernel<true>": (128, 18), "append_words_kernel": (128, 0),
            "rope_kernel": (128, 0), "copy_in_order_kernel": (128, 0), "copy_apart_kernel": (128, 0), "gather_kernel": (128, 0), "merge_kernel": (128, 0),
            "states_kernel": (256, 0), "project_kernel": (256, 2.2), "project_mma_kernel": (128, 72), "send_kernel": (256, 0),
            "plan_rows_kernel": (128, 1), "plan_fill_kernel": (128, 1.5), "plan_read_kernel": (128, 1),
            "plan_trees_kernel": (128, 0), "plan_count_kernel": (128, 0), "plan_scan_kernel": (128, 1),
            "plan_check_kernel": (128, 0), "plan_write_kernel": (128, 0), "plan_tokens_kernel": (128, 0),
            "plan_finish_kernel": (32, 0), "list_keys_kernel": (1024, 33), "simple_score_kernel": (128, 7), "tile_score_kernel": (256, 93),
            "choice_kernel": (1024, 35)}
# What kernels/cuda/attend/mma/tiles.cuh keeps beside q and tiles, at most (tests/cuda holds it): in all; of latent rows
# once, and of a tile. And attend/wgmma/tiles.cuh, in all; and all of a block of attend/wgmma/latent.cuh.
MMA_FIXED_KIB, MMA_ONCE_KIB, MMA_TILE_KIB = 16, 5.6, 1.77
DECODE_FIXED_KIB = 3.5
KEY_COPIES = ("plain", "bytes", "element")  # of kernels/cuda/select/tile_scores.cuh
TYPES = ("float", "F16", "Bf16", "E4m3", "E5m2", "I8", "U4", "E2m1")  # by their number
WGMMA_FIXED_KIB = 14
MANY_FIXED_KIB = 12  # attend/mma/many_rows.cuh
WGMMA_LATENT_KIB = 225
BY_WARPGROUPS = ("attend_wgmma_kernel", "attend_wgmma_latent_kernel")


def lower_parts(kernel: str) -> int:
    """For keys that are rotated on read (rotated_parts of attend/mma/plan.h)."""
    return 0 if not kernel.endswith("true>") else 1 if "<F16" in kernel else 2


def mma_shared_kib(kernel: str, shared_kib: int) -> float:
    """Shared memory of a block on tensor cores, by shape_of_block of attend/mma/plan.h: 16-bit K and V whose dims are the
    most that the instance is for; all of them are rotated, if keys are rotated on read. 0: not even one stage fits, and another kernel computes
    such calls."""
    dims, key_warps = (int(word) for word in re.findall(r"\d+(?=[,>])", kernel)[-2:])
    rows = 64 // key_warps
    for share in (shared_kib / 2 - 1, shared_kib - 1):
        for stages in (3, 2, 1):
            kib = MMA_FIXED_KIB + (rows + stages * 2 * 64 + lower_parts(kernel) * 64) * dims * 2 / 1024
            if kib <= share:
                return kib
    return 0


def many_shared_kib(kernel: str, shared_kib: int) -> float:
    """The same of attend_many_kernel, by many_shape."""
    dims, v_dims = (int(word) for word in re.findall(r"\d+(?=[,>])", kernel)[-2:])
    kib = MANY_FIXED_KIB + (128 * dims + 64 * (dims + v_dims)) * 2 / 1024
    return kib if kib <= shared_kib - 1 else 0


def latent_shared_kib(kernel: str, rows: int, shared_kib: int) -> float:
    """The same for latent rows of 512 + 64 dims, of which the last 64 are rotated."""
    keys, most_blocks = (64, 1) if rows == 64 else (32, 2)
    for blocks in range(most_blocks, 0, -1):
        for stages in (3, 2, 1):
            kib = MMA_ONCE_KIB + (stages + 1) * MMA_TILE_KIB + (rows + stages * keys) * 1152 / 1024
            kib += lower_parts(kernel) * keys * 128 / 1024
            if kib <= shared_kib / blocks - 1:
                return kib
    return 0


def named(line: str) -> str:
    """Values of enumerations by their names."""
    line = re.sub(r"\(kvc::kernels::Type\)(\d)", lambda n: TYPES[int(n[1])], line)
    return re.sub(r"\(kvc::kernels::cuda::KeyCopy\)(\d)", lambda n: KEY_COPIES[int(n[1])], line)


def wgmma_shared_kib(kernel: str) -> float:
    """The same of warpgroups' kernel, by wgmma_shape of attend/wgmma/plan.h."""
    dims, v_dims, stored_bits = (int(word) for word in re.findall(r"\d+(?=[,>])", kernel)[-3:])
    stages, keys = 2 if dims > 64 else 4, 64 if v_dims > 128 else 128
    v_stages = 3 if dims == 128 and stored_bits == 16 else stages
    raw = 3 * keys * dims if stored_bits == 8 else 0
    return WGMMA_FIXED_KIB + ((128 * dims + keys * (stages * dims + v_stages * v_dims)) * 2 + raw) / 1024


def decode_block(kernel: str, shared_kib: int) -> tuple:
    """Threads and shared memory of a block of few rows, by decode_warps and decode_shape of attend/decode/plan.h."""
    dims, v_dims = (int(word) for word in re.findall(r"\d+(?=[,>])", kernel)[-2:])
    float4 = "E2m1," in kernel
    bits = 4 if "U4," in kernel or float4 else 8 if "E4m3," in kernel or "I8," in kernel else 16
    query_parts = 1 if "U4," not in kernel else 2 if "<F16" in kernel else 3
    warps = 2 if dims * bits > 2048 else 4
    keys = 32 if (bits == 8 and dims <= 128) or float4 else 16
    tile_kib = keys * ((dims + v_dims) * (bits / 8 + (1 / 16 if float4 else 0)) + (8 if "I8," in kernel or "U4," in kernel else 0)) / 1024
    before, results = DECODE_FIXED_KIB + 16 * dims * 2 * query_parts / 1024, warps * 16 * v_dims * 4 / 1024
    for least in (3, 2) if dims > 128 else (2,):
        for blocks in (3, 2, 1):
            for stages in range(4, least - 1, -1):
                kib = before + max(warps * stages * tile_kib, results)
                if kib <= shared_kib / blocks - 1:
                    return 32 * warps, kib
    return 32 * warps, 0


def usage(plugin: Path, cuobjdump: str) -> list:
    """(kernel, arch, registers, static shared bytes, local bytes) of each kernel and arch."""
    text = subprocess.run([cuobjdump, "--dump-resource-usage", str(plugin)], capture_output=True, text=True,
                          check=True).stdout
    names = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout
    found, arch, kernel = [], "", ""
    for line in names.splitlines():
        if match := re.match(r"arch = (sm_\d+)", line):
            arch = match[1]
        elif match := re.match(r" Function (.*):$", named(line)):
            kernel = re.sub(r"^void |kvc::kernels::|cuda::|\(anonymous namespace\)::|\(.*", "", match[1].split("(kvc")[0])
            kernel = re.sub(r"DecodeKind<(.*)> >", r"\1>", re.sub(r"\((?!anonymous).*", "", kernel))
        elif match := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            found.append((kernel, arch, int(match[1]), int(match[3]), int(match[2]) + int(match[4])))
    return found


def occupancy(kernel: str, arch: str, registers: int, shared: int) -> str:
    """Blocks of a multiprocessor that run at once, and their threads as a part of the most."""
    name = kernel.split("<")[0]
    if name not in [*LAUNCHES, "attend_mma_kernel", "attend_many_kernel", "attend_decode_kernel", "attend_latent_kernel", *BY_WARPGROUPS] or arch not in PROCESSORS:
        raise SystemExit(f"ptxas_report.py does not know {name} on {arch}: say how it is launched")
    most_threads, most_blocks, shared_kib = PROCESSORS[arch]
    if name == "attend_mma_kernel":
        threads, dynamic_kib = 128, mma_shared_kib(kernel, shared_kib)
        if dynamic_kib == 0:
            return "not used"
    elif name == "attend_many_kernel":
        threads, dynamic_kib = 128, many_shared_kib(kernel, shared_kib)
        if dynamic_kib == 0:
            return "not used"
    elif name == "attend_decode_kernel":
        threads, dynamic_kib = decode_block(kernel, shared_kib)
        if dynamic_kib == 0:
            return "not used"
    elif name == "attend_latent_kernel":
        rows = int(re.findall(r"\d+(?=[,>])", kernel)[-1])
        threads, dynamic_kib = (256 if rows == 64 else 128), latent_shared_kib(kernel, rows, shared_kib)
        if dynamic_kib == 0:
            return "not used"
    elif name in BY_WARPGROUPS:
        if registers < 128:
            return "empty"  # the body is for sm_90a alone
        if name == BY_WARPGROUPS[0]:
            threads, dynamic_kib = (512 if " 8>" in kernel else 384), wgmma_shared_kib(kernel)
        else:
            threads, dynamic_kib = 512, WGMMA_LATENT_KIB
    else:
        threads, dynamic_kib = LAUNCHES.get(kernel) or LAUNCHES[name]
    warp_registers = (registers * 32 + 255) // 256 * 256
    by_registers = 65536 // (warp_registers * (threads // 32))
    if int(arch[3:]) < 90 or shared == 0:
        shared += 1024  # of a block, the system's; from sm_90 on a kernel that uses shared memory names it among its own
    by_shared = int(shared_kib / (dynamic_kib + shared / 1024))
    blocks = min(by_registers, by_shared, most_blocks, most_threads // threads)
    return f"{blocks}, {100 * blocks * threads // most_threads} %"


def table(found: list) -> str:
    archs = sorted({row[1] for row in found}, key=lambda arch: int(arch[3:]))
    lines = ["| kernel | " + " | ".join(archs) + " |", "|---" * (len(archs) + 1) + "|"]
    for kernel in sorted({row[0] for row in found}):
        cells = []
        for arch in archs:
            rows = [row for row in found if row[0] == kernel and row[1] == arch]
            cells.append(f"{rows[0][2]}; {occupancy(*rows[0][:4])}" if rows else "")
        lines.append(f"| `{kernel}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plugin", type=Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--docs", type=Path)
    args = parser.parse_args()
    found = usage(args.plugin, args.cuobjdump)
    text = table(found)
    print(text)
    if args.docs:
        page = args.docs.read_text()
        head, rest = page.split(BEGIN)
        args.docs.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")
    bad = [row for row in found if row[4] > 0]
    for kernel, arch, _, _, local in bad:
        print(f"FAILED: {kernel} uses {local} bytes of local memory on {arch}")
    if not all(any(row[0].startswith(name) for row in found) for name in ("attend_kernel", "attend_mma_kernel",
                                                                        "attend_latent_kernel")):
        print("FAILED: no kernel attends")
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
