"""Every test here runs on every device of the machine: `device` is the CPU, the emulated CUDA backend, or a GPU.

--device NAME selects one device. Then tests that the machine cannot run fail. Without it, tests that need a GPU are skipped on
machines without one, with the reason; a skipped test is not a passed one.
"""

import json
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's products are small here, so threads only cost time

import dense
import numpy as np
import pytest
from devices import MAKERS, why_not

_made = {}


def pytest_addoption(parser):
    parser.addoption("--device", choices=sorted(MAKERS), help="this device alone")
    parser.addoption("--share", type=float, default=1.0, help="part of the sampled grids' usual size")
    parser.addoption("--host-reference", action="store_true",
                     help="what is expected is computed by numpy: on a card run no kernels but the library's and conversions")
    parser.addoption("--progress", type=Path, help="a file for results as they come; what it has already is not run "
                                                   "(scripts/run_isolated.py)")


def pytest_configure(config):
    config.addinivalue_line("markers", "only(*devices): the devices that a test means something on")


def pytest_generate_tests(metafunc):
    if "device" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("only")
    wanted = mark.args if mark else tuple(MAKERS)
    chosen = metafunc.config.getoption("--device")
    names = [name for name in wanted if chosen in (None, name)]
    if chosen is None and len(wanted) > 1:  # leaves out missing devices; a test for GPUs alone is skipped with its reason
        names = [name for name in names if why_not(name) is None]
    metafunc.parametrize("device", names, indirect=True, scope="session")


def pytest_collection_modifyitems(config, items):
    """Leaves out tests that do not apply to the requested device."""
    of_others = [item for item in items if "NOTSET" in item.name]
    progress = config.getoption("--progress")
    if progress and progress.exists():
        done = {json.loads(line)["test"] for line in progress.read_text().splitlines()}
        of_others += [item for item in items if item.nodeid in done]
    config.hook.pytest_deselected(items=of_others)
    items[:] = [item for item in items if item not in of_others]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    progress = item.config.getoption("--progress")
    if progress is None:
        return (yield)
    write = _writer(progress, item.nodeid)
    write("started")
    item.stash[_reports] = []
    result = yield
    reports = item.stash[_reports]
    worst = next((r for r in reports if r.failed), next((r for r in reports if r.skipped), reports[-1]))
    text = str(worst.longrepr[2]) if worst.skipped and isinstance(worst.longrepr, tuple) else worst.longreprtext
    write(worst.outcome, round(sum(r.duration for r in reports), 3), text)
    if worst.failed and "cuda" in _made and not _made["cuda"].works():
        os._exit(70)  # after an error the GPU refuses all work of this process, so another process runs the rest
    return result


_reports = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if _reports in item.stash:
        item.stash[_reports].append(report)
    return report


def _writer(path, test):
    def write(outcome, seconds=0.0, text=""):
        with path.open("a") as file:
            file.write(json.dumps({"test": test, "outcome": outcome, "seconds": seconds, "text": text}) + "\n")
    return write


@pytest.fixture(scope="session")
def device(request):
    reason = why_not(request.param)
    if reason and request.config.getoption("--device") is None:
        pytest.skip(reason)
    assert reason is None, reason
    if request.param not in _made:
        _made[request.param] = MAKERS[request.param]()
        if request.param == "cuda" and not request.config.getoption("--host-reference"):
            dense.product = _made["cuda"].product
    return _made[request.param]


@pytest.fixture
def rng():
    return np.random.default_rng(20261122)


@pytest.fixture
def sampled(request, device):
    """sampled(n): how many of n cases of a grid this device runs."""
    return lambda n: max(2, int(n * device.share * request.config.getoption("--share")))
