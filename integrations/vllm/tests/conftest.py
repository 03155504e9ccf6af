"""The model, as a folder that vLLM reads."""
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[2] / "build" / "vllm"


@pytest.fixture(scope="session")
def gemma() -> Path:
    folder = BUILD / "gemma-3-270m"
    subprocess.run([sys.executable, str(HERE / "gemma.py"), str(folder)], check=True)
    return folder
