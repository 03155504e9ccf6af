"""One peer, one case, one process: sets the work up, checks one row, then answers each line of stdin with one sample.

    worker.py MODULE CLASS CASE_JSON THREADS

Speaks as `attention --serve` does: `ready` or `refused: why`, then {"ours": seconds} a line. Seconds are CPU time of
the process with one thread and wall time with more, as there.
"""
import importlib
import json
import sys
import time

import numpy as np

from common import NotSupported


def check(peer) -> None:
    """The last query of one head against float64: a peer that computes something else is not measured."""
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
    except Exception as error:  # said to the other side, whatever it is
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
