"""vLLM's OpenAI server as a process, with and without the plug-in, and its clients."""
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 1200  # a start takes 40 s of CPU time; the machine may be busy
SERVED = "attention on the CPU is libkvcache's"


@dataclass(frozen=True)
class Answer:
    """Greedy tokens, and of each the difference of log-probability to the second best."""
    tokens: tuple[str, ...]
    margins: tuple[float, ...]
    logprobs: tuple[float, ...]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """Use it by `with`. The log is in a file, because a pipe that nothing reads would block the server."""

    def __init__(self, model: Path, log: Path, plugin: bool, *arguments: str, **environment: str):
        self.log, self.port, self.model = log, free_port(), str(model)
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1",
                   "--port", str(self.port), *arguments]
        # VLLM_PLUGINS names the plug-ins that vLLM loads.
        variables = {**os.environ, "VLLM_PLUGINS": "kvcache" if plugin else "none", "HF_HUB_OFFLINE": "1",
                     "VLLM_NO_USAGE_STATS": "1", **environment}
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=variables,
                                            start_new_session=True)
        self.end = time.monotonic() + START_SECONDS

    def __enter__(self) -> Server:
        try:
            while not self.is_ready():
                if self.process.poll() is not None or time.monotonic() > self.end:
                    raise RuntimeError(f"vLLM did not start:\n{self.log.read_text()[-6000:]}")
                time.sleep(0.5)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the server. Processes that outlive it are in its session, and end too."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """Ends all processes of the server at once, by SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as reply:
            return reply.read().decode()

    def post(self, path: str, timeout: float = 60, **body: object) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.read()

    def token_ids(self, prompt: str) -> list[int]:
        return json.loads(self.post("/tokenize", model=self.model, prompt=prompt))["tokens"]

    def metric(self, name: str) -> float:
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def complete(self, prompt: str, tokens: int, timeout: float = 300, **fields: object) -> Answer:
        reply = self.post("/v1/completions", timeout, model=self.model, prompt=prompt, max_tokens=tokens, temperature=0,
                          logprobs=2, ignore_eos=True, **fields)
        found = json.loads(reply)["choices"][0]["logprobs"]
        margins = []
        for best in found["top_logprobs"]:
            ordered = sorted(best.values(), reverse=True)
            margins.append(ordered[0] - ordered[1] if len(ordered) > 1 else 0.0)  # two tokens may have one text
        return Answer(tuple(found["tokens"]), tuple(margins), tuple(found["token_logprobs"]))

    def complete_all(self, prompts: list[str], tokens: int, clients: int) -> list[Answer]:
        with ThreadPoolExecutor(clients) as pool:
            return list(pool.map(lambda prompt: self.complete(prompt, tokens), prompts))
