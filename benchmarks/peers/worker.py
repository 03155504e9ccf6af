"""One process for one peer and one case. It sets the work up, checks one row, and takes one sample for each line of stdin.

    worker.py MODULE CLASS CASE_JSON THREADS

It answers as `attention --serve` does: first `ready` or `refused: why`, then a line {"ours": seconds} for each sample. Seconds
are CPU time of the process with one thread, and wall time with more.
"""
import importlib
import json
import sys
import time

import numpy as np

from common import NotSupported


def check(peer) -> None:
    """Compares the last query of one head with float64. A peer that computes something else is not measured."""
    out, q, k, v = (np.asarray(a, dtype=np.float64) for a in peer.one_row())
    scores = k @ q / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max())
    expected = weights @ v / weights.sum()
    error = np.abs(out - expected).max() / np.abs(expected).max()
    if not error < 0.05:
        raise NotSupported(f"its output is not attention (error {error:.2g} of the largest element)")


def main() -> None:
    module, name, case, threads = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
    clock = time.process_time if threads == 1 else time.perf_counter
    try:
        peer = getattr(importlib.import_module(module), name)(case, threads)
        peer.run(0)
        check(peer)
    except Exception as error:  # whatever it is, run.py prints it
        print("refused:", " ".join(str(error).split())[:200] or type(error).__name__, flush=True)
        return
    print("ready", flush=True)
    for turn, _ in enumerate(sys.stdin):
        if not case["cold"]:
            peer.run(turn)
        begin = clock()
        peer.run(turn)
        print(json.dumps({"ours": clock() - begin}), flush=True)


if __name__ == "__main__":
    main()
