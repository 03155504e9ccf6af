"""Paths and the model, which is loaded once for all tests here."""
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gemma"
sys.path.insert(0, str(EXAMPLE))


@pytest.fixture(scope="session")
def files():
    import weights
    return weights.load()


@pytest.fixture(scope="session")
def model(files):
    from model import Config, Model
    return Model(Config.from_metadata(files.metadata), files.tensors)


@pytest.fixture(scope="session")
def exported(model, files, tmp_path_factory):
    import export
    target = tmp_path_factory.mktemp("export") / "gemma.safetensors"
    export.write(target, model, files)
    yield target
    target.unlink()  # it has a gigabyte
