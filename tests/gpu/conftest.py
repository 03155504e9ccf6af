"""Every test here is of every device that there is: `device` is the CPU, the emulated CUDA backend, a card.

--device NAME takes one alone: then tests that the machine cannot run fail. Without it those that need a card are skipped
on machines without one, with the reason; a skipped test is not a passed one.
"""

import numpy as np
import pytest
from devices import MAKERS, why_not

_made = {}


def pytest_addoption(parser):
    parser.addoption("--device", choices=sorted(MAKERS), help="this device alone")
    parser.addoption("--share", type=float, default=1.0, help="part of the sampled grids' usual size")


def pytest_configure(config):
    config.addinivalue_line("markers", "only(*devices): the devices that a test means something on")


def pytest_generate_tests(metafunc):
    if "device" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("only")
    wanted = mark.args if mark else tuple(MAKERS)
    chosen = metafunc.config.getoption("--device")
    names = [name for name in wanted if chosen in (None, name)]
    if chosen is None and len(wanted) > 1:  # what is not here is left out; a test that is a card's alone says why it is skipped
        names = [name for name in names if why_not(name) is None]
    metafunc.parametrize("device", names, indirect=True, scope="session")


def pytest_collection_modifyitems(config, items):
    """Tests that mean nothing on the one device that was asked for."""
    of_others = [item for item in items if "NOTSET" in item.name]
    config.hook.pytest_deselected(items=of_others)
    items[:] = [item for item in items if item not in of_others]


@pytest.fixture(scope="session")
def device(request):
    reason = why_not(request.param)
    if reason and request.config.getoption("--device") is None:
        pytest.skip(reason)
    assert reason is None, reason
    if request.param not in _made:
        _made[request.param] = MAKERS[request.param]()
    return _made[request.param]


@pytest.fixture
def rng():
    return np.random.default_rng(20261122)


@pytest.fixture
def sampled(request, device):
    """sampled(n): how many of n cases of a grid this device takes."""
    return lambda n: max(2, int(n * device.share * request.config.getoption("--share")))
