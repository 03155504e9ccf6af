"""An interpreter that loads the library keeps its signal handlers and the names of its threads, and ends as without the
library."""
import subprocess
import sys

PROGRAM = r"""
import os, pathlib, signal, time
import numpy as np

def signals():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("SigCgt", "SigIgn", "SigBlk"))]

def threads():
    return {task.name: (task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()}

def workers_become(count):  # a thread names itself, and a joined one leaves /proc a moment later
    for _ in range(5000):
        found = sum(name.startswith("kvc-") for name in threads().values())
        if found == count:
            return
        time.sleep(0.001)
    raise AssertionError(f"{found} workers instead of {count}")

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored from the start, where this runs in the background
handlers, names = signals(), threads()
import kvcache
x = np.ones((64, 8, 64), np.float32)
context = kvcache.Context(threads=3)
with kvcache.Cache([kvcache.Layer(q_heads=8, kv_heads=8, head_dim=64)], capacity_tokens=64, context=context) as cache:
    with cache.forward([cache.add()], [64]) as step:
        assert np.allclose(step.attend(0, x, x, x), 1)
    workers_become(2)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        raise AssertionError("the signal is lost")
    except KeyboardInterrupt:
        pass
del cache, step, context
workers_become(0)
assert signals() == handlers, (signals(), handlers)
now = threads()
assert all(now.get(task, name) == name for task, name in names.items()), (names, now)
os.kill(os.getpid(), signal.SIGINT)  # no code catches it: the interpreter ends by it, after its own clean-up
"""


def test_the_process_is_left_as_it_was():
    result = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert result.returncode == -2 and result.stderr.rstrip().endswith("KeyboardInterrupt"), result
    assert "Error" not in result.stderr and result.stdout == ""
