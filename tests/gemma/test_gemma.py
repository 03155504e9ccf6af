"""The main test: Gemma 3 270M through libkvcache gives the logits of a computation without any cache.

The greedy paths of the prompts have no near ties: at every step the two best logits are more than twice the tolerance
apart, which is asserted below. So equal tokens are a strict demand, and not luck.
"""
import json
from dataclasses import dataclass
from pathlib import Path

import gemma_reference
import numpy as np
import pytest
from engine import Engine, Request, capacity_for

STEPS = 10
TOLERANCE = 1e-4  # of the largest |logit| of the same step
PAGE_SIZES = (16, 5)


@dataclass
class Run:
    """The greedy tokens of a prompt, and the logits of each choice, float32 [STEPS, vocabulary]."""
    output: list
    logits: np.ndarray


def decode(engine, requests):
    runs = {request: Run([], []) for request in requests}
    engine.run(requests, on_token=lambda request, token, logits: runs[request].logits.append(logits.copy()))
    return [Run(request.output, np.stack(run.logits)) for request, run in runs.items()]


def new_engine(model, page_size, prompts, sequences, **options):
    lengths = [len(ids) + STEPS for ids in prompts] * 3  # parent, child and sibling
    return Engine(model, capacity_for(lengths, page_size), sequences, page_size, chunk_tokens=192, **options)


def run_alone(model, page_size, prompts):
    engine = new_engine(model, page_size, prompts, sequences=1)
    return [decode(engine, [Request(ids, STEPS)])[0] for ids in prompts]


def run_batch(model, page_size, prompts):
    return decode(new_engine(model, page_size, prompts, len(prompts)), [Request(ids, STEPS) for ids in prompts])


def forked_requests(engine, ids):
    """The prompt, and a sibling that gets other tokens. Both share the pages of one parent."""
    held = len(ids) * 2 // 3
    parent = engine.prefill(ids[:held])
    texts = [ids, ids[:held] + ids[held:][::-1]]
    return parent, [Request(text, STEPS, parent=parent, cached=held) for text in texts]


def run_forked_alone(model, page_size, prompts):
    engine, runs = new_engine(model, page_size, prompts, sequences=2), []
    for ids in prompts:
        parent, (request, _) = forked_requests(engine, ids)
        runs += decode(engine, [request])
        engine.remove([parent])
    return runs


def run_forked_batch(model, page_size, prompts):
    engine = new_engine(model, page_size, prompts, sequences=3 * len(prompts))
    pairs = [forked_requests(engine, ids)[1] for ids in prompts]
    return decode(engine, [request for pair in pairs for request in pair])[::2]


def run_found(model, page_size, prompts):
    """Each prompt after a sibling that shares two thirds of it, and again after itself. The earlier sequences are removed,
    so the prefix index serves the tokens. One sequence is open at a time. The sliding layers' pool has room for the windows of
    more, so no page is evicted that a sibling left."""
    engine, runs = new_engine(model, page_size, prompts, len(prompts), prefix_index=True), []
    for ids in prompts:
        held = len(ids) * 2 // 3
        decode(engine, [Request(ids[:held] + ids[held:][::-1], STEPS)])
        first, again = Request(ids, STEPS), Request(ids, STEPS)
        runs += decode(engine, [first])
        assert held <= first.found < len(ids)
        assert decode(engine, [again])[0].output == runs[-1].output
        assert again.found == len(ids) - 1
    return runs


@pytest.fixture(scope="module")
def prompts(files):
    ids = [files.tokenizer.encode(text) for text in json.loads(Path(__file__).with_name("prompts.json").read_text())]
    assert len(ids) == 4 and max(map(len, ids)) > 600
    return ids


@pytest.fixture(scope="module")
def alone(model, prompts):
    return run_alone(model, 16, prompts)


@pytest.fixture(scope="module")
def expected(files, prompts, alone):
    """One teacher-forced pass over each prompt and its output."""
    runs = []
    for ids, run in zip(prompts, alone):
        logits = gemma_reference.logits(files.tensors, ids + run.output[:-1], first_row=len(ids) - 1)
        runs.append(Run([int(i) for i in logits.argmax(1)], logits))
    return runs


def worst_error(logits, expected):
    """Largest deviation of each step, relative to the step's largest |logit|."""
    return np.abs(logits - expected).max(-1) / np.abs(expected).max(-1)


def test_prompts_have_no_near_ties(expected):
    for run in expected:
        best = np.sort(np.partition(run.logits, -2, axis=1)[:, -2:], axis=1)
        assert ((best[:, 1] - best[:, 0]) / np.abs(run.logits).max(1)).min() > 2 * TOLERANCE


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("way", [run_alone, run_batch, run_forked_alone, run_forked_batch, run_found])
def test_logits_and_tokens_equal_the_recompute(model, prompts, alone, expected, way, page_size):
    runs = alone if (way, page_size) == (run_alone, 16) else way(model, page_size, prompts)
    for number, (run, reference) in enumerate(zip(runs, expected)):
        assert run.output == reference.output, f"prompt {number}"
        error = worst_error(run.logits, reference.logits)
        assert error.max() <= TOLERANCE, f"prompt {number}, step {error.argmax()}: {error.max():.2e}"


def test_control_one_disturbed_key_changes_the_logits(model, prompts, expected):
    ids, layer, position = prompts[1], 5, 7  # layer 5 is the first full one
    engine = new_engine(model, 16, prompts, sequences=4)
    parent = engine.prefill(ids[:-1])
    pool = np.asarray(engine.cache.layer_pool(layer, writable=True))  # [pages, 2, kv_heads, page_size, head_dim]
    key = pool[engine.cache.pages(parent, 1)[position // 16], 0, 0, position % 16]

    def error_now():
        child = engine.cache.fork([parent])[0]  # it reads the shared pages of the parent
        logits = engine.forward([child], [ids[-1:]])
        engine.cache.remove([child])
        return worst_error(logits[0], expected[1].logits[0])

    kept = key.copy()
    assert error_now() <= TOLERANCE
    key[:] = -kept
    assert error_now() > 10 * TOLERANCE
    key[:] = kept
    assert error_now() <= TOLERANCE


def test_stops_behind_the_end_of_sequence(model, prompts, expected):
    request = Request(prompts[0], STEPS)
    new_engine(model, 16, prompts, 1).run([request], stop_ids={expected[0].output[2]})
    assert request.output == expected[0].output[:expected[0].output.index(expected[0].output[2]) + 1]
