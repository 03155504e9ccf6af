"""Gemma 3 270M as an ONNX model, on ONNX Runtime's own kernels and with the plug-in, from Python and from Java. The longest prompt is
longer than the window of 512. The tokens are also those of a computation without any cache."""
import json
import sys
from pathlib import Path

import java_host
import numpy as np
import pytest
from models import PROVIDER, generate, provider_of, session

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / 'tests' / 'gemma'), str(ROOT / 'integrations' / 'onnxruntime')]
import gemma_reference  # noqa: E402
from export_gemma import export, weights  # noqa: E402

COUNT, MARGIN = 32, 2e-3  # tokens to generate; between the best logit and the next, far above the errors of float32


@pytest.fixture(scope='module')
def files():
    return weights.load()


@pytest.fixture(scope='module')
def model(files, tmp_path_factory):
    path = export(files, tmp_path_factory.mktemp('gemma'))
    yield path
    path.with_suffix('.onnx.data').unlink()  # it has a gigabyte


@pytest.fixture(scope='module')
def prompts(files):
    ids = [files.tokenizer.encode(text) for text in json.loads((ROOT / 'tests' / 'gemma' / 'prompts.json').read_text())]
    assert len(ids) == 4 and max(map(len, ids)) > 600
    return ids


@pytest.fixture(scope='module')
def stock(model, prompts):
    running = session(model, False)
    assert provider_of(running, 'GroupQueryAttention') == 'CPUExecutionProvider'
    tokens, margins = zip(*(generate(running, prompt, COUNT) for prompt in prompts))
    assert min(margins) > MARGIN
    return list(tokens)


def test_the_exported_model_is_gemma(files, prompts, stock):
    for prompt, tokens in zip(prompts, stock):
        logits = gemma_reference.logits(files.tensors, prompt + tokens[:-1], first_row=len(prompt) - 1)
        assert [int(token) for token in logits.argmax(1)] == tokens
        best = np.partition(logits, -2, axis=1)[:, -2:]
        assert (best[:, 1] - best[:, 0]).min() > MARGIN


def test_the_plugin_gives_the_same_tokens(model, prompts, stock):
    running = session(model, True)
    assert provider_of(running, 'GroupQueryAttention') == PROVIDER
    assert [generate(running, prompt, COUNT)[0] for prompt in prompts] == stock


def test_java_gives_the_same_tokens(model, files, prompts, stock, tmp_path):
    sizes = [COUNT, *(files.metadata[f'gemma3.{key}'] for key in ('block_count', 'attention.head_count_kv', 'attention.key_length'))]
    of_java, of_plugin = java_host.tokens(model, sizes, prompts[::3], tmp_path)  # the shortest and the longest
    assert of_java == stock[::3]
    assert of_plugin == stock[::3]
