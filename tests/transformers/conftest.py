"""Small models with random weights, each on the stock cache and on pages."""

import pytest
import torch
import transformers

from twin import FAMILIES, Twin

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()


@pytest.fixture(scope="session", params=sorted(FAMILIES))
def twin(request):
    """Every family."""
    return Twin.of(request.param)


@pytest.fixture(scope="session", params=["llama", "mistral", "gemma3"])
def main_twin(request):
    """Full, sliding and both."""
    return Twin.of(request.param)


@pytest.fixture(scope="session")
def llama():
    return Twin.of("llama")


@pytest.fixture(scope="session")
def mistral():
    return Twin.of("mistral")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20)
