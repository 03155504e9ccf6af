#!/usr/bin/env python3
"""Speed of the CUDA backend through the Python package, row by row with its target, beside PyTorch's own attention.

    python benchmarks/cuda/speed.py [--out FOLDER] [--seconds N] [--only PATTERN] [--dry]

Writes speed.json and speed.md. A row that fails has the reason, and the others continue. Rows that do not fit into --seconds
are marked as left out. Data is random. The program needs the kvcache package, its plug-in and PyTorch; --dry runs tiny shapes
on the CPU.
"""

import argparse
import datetime
import json
import re
import sys
import time
from pathlib import Path

import torch
import works
from clock import Clock, Machine

COLUMNS = ("work", "case", "us", "rate", "share", "target", "torch_us")


def text_of(row: dict) -> str:
    if "error" in row:
        return f"| {row['work']} | {row['case']} | {row['error'].splitlines()[0][:120]} | | | | |"
    share = f"{100 * row['share']:.1f} %" if row.get("share") is not None else ""
    met = "" if row.get("met") is None else ("met" if row["met"] else "MISSED")
    beside = f"{row['torch_us']:.1f}" if row.get("torch_us") else ""
    return (f"| {row['work']} | {row['case']} | {row['us']:.1f} | {row['rate']} | {share} | {row['target']} {met} | "
            f"{beside} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--seconds", type=float, default=1e9, help="no row begins after that")
    parser.add_argument("--only", default="", help="rows whose 'work: case' matches this regular expression")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--dry", action="store_true")
    arguments = parser.parse_args()
    begun = time.perf_counter()
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    clock = Clock("cpu" if arguments.dry else "cuda", arguments.repeats)
    machine = Machine(clock)
    head = [f"{machine.name}: copy {machine.copy / 1e12:.2f} TB/s, bf16 matrix product {machine.matrix / 1e12:.0f} TFLOP/s", "",
            "| work | case | us | rate | of what the card does | target | PyTorch us |", "|---|---|---|---|---|---|---|"]
    print("\n".join(head), flush=True)
    rows = []
    arguments.out.mkdir(parents=True, exist_ok=True)
    for work, case, run in works.all_of(clock, machine, dry=arguments.dry):
        if not re.search(arguments.only, f"{work}: {case}"):
            continue
        row = {"work": work, "case": case}
        if time.perf_counter() - begun > arguments.seconds:
            row["error"] = "left out: no time"
        else:
            try:
                row.update(run())
            except Exception as error:  # a failed row does not stop the next one
                row["error"] = f"{type(error).__name__}: {error}"
            if clock.on_card:
                torch.cuda.empty_cache()
        rows.append(row)
        print(text_of(row), flush=True)
        (arguments.out / "speed.json").write_text(json.dumps(
            {"machine": machine.name, "software": machine.software, "date": datetime.date.today().isoformat(),
             "copy": machine.copy, "matrix": machine.matrix, "rows": rows}, indent=1))
        (arguments.out / "speed.md").write_text("\n".join(head + [text_of(r) for r in rows]) + "\n")
    failed = sum("error" in row and not row["error"].startswith("left out") for row in rows)
    print(f"{len(rows)} rows, {failed} failed, {sum(row.get('met') is False for row in rows)} below their target")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
