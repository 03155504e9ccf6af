"""What a call costs in each language beside the same call in C, on one thread: the fastest of several rounds. Each language
runs in turn with C, with the geometry of its own benchmark. Languages that are not installed are named and left out.

    run.py CALLS LIBRARY     the C program of main.cc, and libkvcache.so
"""
import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ROUNDS = 3
GO_ROUNDS = 40  # many short rounds, because an average would include what else the machine did
# How many nanoseconds longer than in C a trivial call may take. The attend has no target.
TARGETS = {"Rust": 5, "Python": 300, "Go": 250, "Go, cgo": 250, "Java": 100}


def output(*command, cwd=None, **environment) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, **environment}).stdout


def numbers(text: str) -> tuple:
    trivial, attend = text.split()
    return float(trivial), float(attend)


def python(library, geometry):
    return numbers(output(sys.executable, HERE / "in_python.py", *geometry))


def rust(library, geometry):
    text = output("cargo", "bench", "--locked", "--quiet", "--bench", "overhead", cwd=ROOT / "bindings/rust",
                  KVCACHE_LIB_DIR=str(library.parent), CARGO_TARGET_DIR=str(ROOT / "build/rust"))
    rows = [line.split() for line in text.splitlines() if line.startswith(("seq_lengths", "forward_attend"))]
    (_, trivial, _), (_, attend, _) = (map(float, row[-3:]) for row in rows)  # C, Rust, difference
    return trivial, attend


def go(library, geometry, *tags):
    text = output("go", "test", "-run", "xxx", "-bench", "^(BenchmarkLength|BenchmarkAttend)$", "-benchtime", "4096x",
                  "-count", GO_ROUNDS, *tags, ".", cwd=ROOT / "bindings/go",
                  KVCACHE_LIBRARY=str(library), CGO_ENABLED="1" if tags else "0")
    found = re.findall(r"^Benchmark(Length|Attend)\S*\s+\d+\s+([\d.]+) ns/op", text, flags=re.M)
    return tuple(min(float(time) for name, time in found if name == wanted) for wanted in ("Length", "Attend"))


def go_with_cgo(library, geometry):
    return go(library, geometry, "-tags", "kvcache_cgo")


def java(library, geometry):
    text = output("mvn", "--batch-mode", "--quiet", "test-compile", "exec:exec@overhead", cwd=ROOT / "bindings/java",
                  KVCACHE_LIBRARY=str(library))
    return tuple(float(re.search(rf"^{name}.*? ([\d.]+) ns", text, flags=re.M)[1]) for name in
                 ("Cache.length", "Step.attend of one decode row"))


# Arguments of main.cc as in the language's benchmark: query heads, kv heads, head dim, layers, capacity.
LANGUAGES = {"Rust": (rust, "cargo", (4, 1, 64, 512, 256)),
             "Python": (python, "python3", (4, 1, 64, 512, 256)),
             "Go": (go, "go", (4, 2, 16, 4096, 256)),
             "Go, cgo": (go_with_cgo, "go", (4, 2, 16, 4096, 256)),
             "Java": (java, "mvn", (4, 2, 16, 4096, 64))}


def main() -> int:
    calls, library = (Path(word).resolve() for word in sys.argv[1:])
    name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    print(f"{datetime.date.today()}, {name[1] if name else platform.machine()}, {os.cpu_count()} CPUs; nanoseconds")
    print(f"{'':8} | {'trivial call':^34} | {'attend of one decode row':^26}")
    print(f"{'':8} | {'C':>6} {'here':>7} {'added':>7} {'target':>10} | {'C':>8} {'here':>8} {'added':>8}")
    for language, (measure, program, geometry) in LANGUAGES.items():
        if not shutil.which(program) or (language == "Java" and not (ROOT / "bindings/java/pom.xml").exists()):
            print(f"{language:8} | not here")
            continue
        samples = [(numbers(output(calls, *geometry)), measure(library, geometry)) for _ in range(ROUNDS)]
        (c, c_attend), (own, attend) = (map(min, zip(*column)) for column in zip(*samples))
        verdict = f"<= {TARGETS[language]}" + ("" if own - c <= TARGETS[language] else " !")
        print(f"{language:8} | {c:6.1f} {own:7.1f} {own - c:7.1f} {verdict:>10} | {c_attend:8.1f} {attend:8.1f} "
              f"{attend - c_attend:8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
