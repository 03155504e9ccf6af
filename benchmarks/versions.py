#!/usr/bin/env python3
"""Compares two builds of the attention benchmark: samples in turn, so that a busy machine slows both.

usage: versions.py OLD NEW [--threads N] [--simd NAME] [--samples N] [FILTER]...
OLD and NEW: the programs `attention` of two builds. A case is set up in both, then each takes one sample after the other.
Prints the ratio OLD / NEW of the times, as the median of the paired samples with its quartiles: above 1, NEW is faster.
Exit code 1: in some case, three quarters of the pairs say that NEW is slower, and the median is below 0.97.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import statistics
import subprocess
import sys

from peers.run import Process


def quartiles(values: list) -> tuple:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def compare(arguments: argparse.Namespace, name: str) -> tuple | str:
    """The quartiles of OLD / NEW, or why there are none."""
    options = ["--threads", str(arguments.threads)] + (["--simd", arguments.simd] if arguments.simd else [])
    both = [Process([program, "--serve", name, *options], arguments.threads) for program in (arguments.old, arguments.new)]
    try:
        for process in both:
            if process.answer != "ready":
                return process.answer
            process.sample()
        ratios = []
        for number in range(arguments.samples):
            order = both if number % 2 else both[::-1]
            times = {process: process.sample()["ours"] for process in order}
            ratios.append(times[both[0]] / times[both[1]])
        return quartiles(ratios)
    except RuntimeError as error:
        return str(error)
    finally:
        for process in both:
            process.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("filters", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--samples", type=int, default=11)
    parser.add_argument("--simd")
    arguments = parser.parse_intermixed_args()
    cases = json.loads(subprocess.run([arguments.new, "--list"], check=True, capture_output=True, text=True).stdout)
    names = [case["name"] for case in cases if not arguments.filters or any(f in case["name"] for f in arguments.filters)]
    slower, medians = [], []
    for name in names:
        result = compare(arguments, name)
        if isinstance(result, str):
            print(f"{name:<52} not run: {result}", flush=True)
            continue
        low, middle, high = result
        medians.append(middle)
        mark = ""
        if middle < 0.97 and high < 1:
            slower.append(name)
            mark = "  slower"
        print(f"{name:<52} {middle:.3f} ({low:.3f}..{high:.3f}){mark}", flush=True)
    if medians:
        print(f"{len(medians)} cases, geometric mean {statistics.geometric_mean(medians):.3f}, slower in {len(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
