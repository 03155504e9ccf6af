#!/usr/bin/env python3
"""write_results.py writes one page and one plot for each machine and day, with every case and its verdict."""
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
        path = write_results.write(json.loads(run.read_text()), PEERS, Path(directory) / "results")
        text, plot = path.read_text(), path.with_suffix(".svg")
        failures += [f"missing: {line}" for line in EXPECTED if line not in text]
        failures += [] if path.name == "intel-xeon-platinum-8500c-2026-11-23.md" else [f"name: {path.name}"]
        failures += [] if plot.exists() and "<svg" in plot.read_text() else ["no plot"]
        write_results.write(RUN, [], path.parent)
        failures += ["peers stayed in a page that was written again"] if "## Peers" in path.read_text() else []
        failures += [] if len(list(path.parent.iterdir())) == 2 else ["more than a page and a plot"]
    print(*failures, f"{len(EXPECTED) + 4} checks, {len(failures)} failures", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
