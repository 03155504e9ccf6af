import sys
from pathlib import Path

import pytest
from chromium import Browser

sys.path.append(str(Path(__file__).parents[1] / "support"))


@pytest.fixture
def browser():
    made = Browser()
    yield made
    made.close()
