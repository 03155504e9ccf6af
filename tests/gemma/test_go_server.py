"""The server in Go (examples/gemma/go/server). Its own tests, in Go, load it with a small random model. Here it serves
Gemma, and its texts and answers are compared with those of the example in Python."""
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import EXAMPLE
from engine import Engine, Request, capacity_for

STEPS = 10
PROMPTS = json.loads((Path(__file__).parent / "prompts.json").read_text())[:3]  # no near ties: test_gemma.py


@pytest.fixture(scope="module")
def go():
    program = shutil.which("go")
    if program is None:
        pytest.skip("Go is not installed")
    import kvcache
    library = os.environ.get("KVCACHE_LIBRARY") or kvcache.get_library()
    environment = os.environ | {"CGO_ENABLED": "0", "KVCACHE_LIBRARY": str(library)}

    def run(*arguments, **variables):
        return subprocess.run([program, *map(str, arguments)], cwd=EXAMPLE / "go", env=environment | variables,
                              capture_output=True, text=True, timeout=400)  # fmt: skip

    return run, environment


def test_its_own_tests(go):
    run, _ = go
    for command in (["vet", "./..."], ["test", "-race", "-count=1", "-timeout=300s", "./..."]):
        result = run(*command, CGO_ENABLED="1")  # the race detector needs it
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def serving(go, exported, tmp_path_factory):
    """A function that starts the server, with a tier that stays."""
    run, environment = go
    place = tmp_path_factory.mktemp("server")
    built = run("build", "-o", place / "server", "./server")
    assert built.returncode == 0, built.stderr

    @contextmanager
    def start(ended_by):
        command = [place / "server", "--listen", "127.0.0.1:0", "--tier", place / "tier", exported]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process.stdout.readline().split("//")[1].strip()
            finally:
                process.send_signal(ended_by)
            assert process.wait(60) == (0 if ended_by == signal.SIGTERM else -ended_by)

    return start


def post(address, path, **body):
    connection = http.client.HTTPConnection(address, timeout=300)
    connection.request("POST", path, json.dumps(body))
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    return answer


def texts_of(tokenizer):
    """Texts of all kinds, and random ones of tokens that a text may have."""
    rng = random.Random(3)
    yield from ("", "a", " ", "  two  spaces\tand a tab", "The heart is a pump.\n\n\n", "na\u00efve \u65e5\u672c\u8a9e \U0001f9e0 \u1e9e",
                "a<b>&\"\\", "<strong>x</strong>", "aaaaaaaaaaaaaaaaaaaaaaa", "\u0e01\u0300\u0301\U0010ffff", "x" * 3000, "\x00\r\n")
    for _ in range(150):
        ids = [rng.randrange(262144) for _ in range(rng.randrange(1, 30))]
        yield tokenizer.decode(ids)
        yield "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xA0, 0x2000), 10, 32))) for _ in range(40))


def test_texts_answers_and_a_kill(serving, model, files):
    with ThreadPoolExecutor(len(PROMPTS)) as clients:
        def ask(address):
            options = {"max_tokens": STEPS, "ignore_eos": True}
            return list(clients.map(lambda prompt: post(address, "/v1/completions", prompt=prompt, **options), PROMPTS))
        with serving(signal.SIGKILL) as address:
            for text in texts_of(files.tokenizer):
                assert post(address, "/tokenize", prompt=text)["tokens"] == files.tokenizer.encode(text), text
            first = ask(address)
            metrics = http.client.HTTPConnection(address, timeout=60)
            while True:
                metrics.request("GET", "/metrics")
                if "\nkvcache_tier_pages_waiting 0\n" in metrics.getresponse().read().decode():
                    break
        with serving(signal.SIGTERM) as address:
            again = ask(address)
    for prompt, *answers in zip(PROMPTS, first, again):
        ids = files.tokenizer.encode(prompt)
        request = Request(ids, STEPS)
        Engine(model, capacity_for([len(ids) + STEPS], 16), 1).run([request])
        for answer in answers:
            choice = answer["choices"][0]
            assert choice["token_ids"] == request.output and choice["finish_reason"] == "length"
            assert choice["text"] == files.tokenizer.decode(request.output)
            assert answer["usage"]["prompt_tokens"] == len(ids)
        found = answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
        published = (len(ids) - 1) // 16 * 16  # and a prompt that came before it may share tokens of the next page
        assert published <= found < min(published + 16, len(ids)), "what the killed server had published was not found"
    assert any(answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in again)
