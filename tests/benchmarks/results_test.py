#!/usr/bin/env python3
"""write_results.py writes one page with its plots for each machine and day, with every case, every figure and its verdict."""
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import write_results  # noqa: E402


def result(name: str, threads: int, verdict: str, ratio: float) -> dict:
    return {"number": 1, "name": name, "work": "decode", "dtype": "bf16", "cold": True, "bytes": 1e9, "operations": 4e9,
            "limit": "pages", "threads": threads, "verdict": verdict, "target": 0.88, "ratio": ratio, "low": ratio - 0.01,
            "high": ratio + 0.01, "seconds": {"ours": 0.1, "stream": 0.09, "pages": 0.088, "ops": 0.02, "memcpy": 0}}


RUN = {"date": "2026-11-23T10:00:00Z", "cpu": "Intel(R) Xeon(R) Platinum 8500C CPU @ 2.80GHz", "cores": 2,
       "load": "0.10 0.20 0.30 1/90 77\n", "library": {"version": "0.1.0", "compiler": "gcc 12.2"},
       "machine": [{"threads": 1, "stream": 16.8e9, "rates": {"f32 FMA": 177e9}},
                   {"threads": 2, "stream": 33e9, "rates": {"f32 FMA": 352e9}}],
       "results": [result("decode 32/8 D128 bf16 b1 16k", 1, "reached", 0.91),
                   result("decode 32/8 D128 bf16 b1 16k", 2, "short", 0.8),
                   {**result("decode 4/1 D256 int8 b1 64k", 1, "not supported", 0)}]}
PEERS = [{"name": "decode 32/8 D128 bf16 b1 16k", "peer": "vllm", "threads": 1, "ratio": 2.16},
         {"name": "decode 32/8 D128 bf16 b1 16k", "peer": "ggml", "threads": 1, "error": "not installed"}]
FIGURES = [
    {"section": "Disk tier", "name": "load, 64 KiB", "value": 0.3, "unit": "x", "target": 0.85, "better": "higher", "note": ""},
    {"section": "Prefix index", "name": "eviction", "value": 99.5, "unit": "ns", "target": 100, "better": "lower", "note": "n"},
    {"section": "Prefix index", "name": "memory", "value": 80, "unit": "bytes", "target": 64, "better": "lower", "note": ""},
    {"section": "Disk tier", "name": "load, 64 KiB", "value": 0.9, "unit": "x", "target": 0.85, "better": "higher", "note": "again"},
    {"section": "Page keys", "name": "portable", "value": 0.1, "unit": "GB/s", "target": 0, "better": "higher", "note": ""}]
OF_FIGURES = [
    "## Disk tier\n\n|  | measured | target |  |",
    "| load, 64 KiB | 0.9 x | 0.85 x | again |",
    "| eviction | 99.5 ns | 100 ns | n |",
    "| memory | **80 bytes** | 64 bytes |  |",
    "| portable | 0.1 GB/s |  |  |",
    "-bars.svg)",
]
EXPECTED = [
    "# Intel(R) Xeon(R) Platinum 8500C CPU @ 2.80GHz, 2026-11-23",
    "| read from memory | 16.8 GB/s | 33.0 GB/s |",
    "| f32 FMA peak | 177 GFLOP/s | 352 GFLOP/s |",
    "(intel-xeon-platinum-8500c-2026-11-23.svg)",
    "| decode 32/8 D128 bf16 b1 16k | a read of the same pages | 0.88 | 0.91 (0.90 to 0.92) | **0.80 (0.79 to 0.81)** |",
    "| decode 4/1 D256 int8 b1 64k | a read of the same pages | 0.88 | not supported |  |",
    "| decode 32/8 D128 bf16 b1 16k | 1 | 2.16 |",
]


def main() -> int:
    failures = []
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run.json"
        run.write_text(json.dumps(RUN))
        sections = write_results.latest("\n".join(map(json.dumps, FIGURES)))
        path = write_results.write(json.loads(run.read_text()), PEERS, sections, Path(directory) / "results")
        text, plot = path.read_text(), path.with_suffix(".svg")
        failures += [f"missing: {line}" for line in EXPECTED + OF_FIGURES if line not in text]
        failures += ["an older figure stayed"] if "**0.3 x**" in text else []
        bars = path.with_name(f"{path.stem}-bars.svg").read_text()
        failures += [] if bars.count("<rect") == 1 + 3 else [f"{bars.count('<rect')} bars, with the background"]
        failures += [] if bars.count("#c2410c") == 1 else ["not one red bar"]
        failures += [] if path.name == "intel-xeon-platinum-8500c-2026-11-23.md" else [f"name: {path.name}"]
        failures += [] if plot.exists() and "<svg" in plot.read_text() else ["no plot"]
        write_results.write(RUN, [], sections, path.parent)
        failures += ["peers stayed in a page that was written again"] if "## Peers" in path.read_text() else []
        failures += [] if len(list(path.parent.iterdir())) == 3 else ["not a page and two plots"]
        other = write_results.write(write_results.this_machine(), [], sections, Path(directory) / "figures alone")
        failures += ["a page without attention has its plot"] if other.with_suffix(".svg").exists() else []
        failures += [] if "| memory | **80 bytes** |" in other.read_text() else ["figures alone"]
    print(*failures, f"{len(EXPECTED) + len(OF_FIGURES) + 9} checks, {len(failures)} failures", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
