"""Prefixes that outlive a server and that servers share, over HTTP: a folder and a Redis server below vLLM's own cache.

All answers are compared with those of a server that keeps nothing. The model has full attention and sliding windows.
"""
import json
import socket
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pytest
import zmq
from server import Answer, Server, free_port
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVEventBatch

PAGE, TOKENS = 128, 4
ARGUMENTS = ("--enforce-eager", "--max-model-len", "2048", "--max-num-batched-tokens", "512", "--dtype", "float32",
             "--kv-cache-memory-bytes", str(1 << 29))
# One thread: several servers run at once. Whole hashes in events, so that they are unequal for unequal blocks.
ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "OMP_NUM_THREADS": "1", "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0"}
SENTENCE = "A guide speaks about {topic} to visitor number {i}, who has come to the museum for the first time. "
LOCAL, REMOTE = ({"kv_load_tiers": [{"locality": where}]} for where in ("LOCAL", "REMOTE"))


def prompt(topic: str) -> str:
    return "".join(SENTENCE.format(topic=topic, i=i) for i in range(30)) + "Visitor: Why? Guide:"


PROMPTS = {topic: prompt(topic) for topic in ("rivers", "clocks", "bread", "ships", "bees")}
STORED = ("rivers", "clocks", "bread")


def transfer(**extra: object) -> tuple[str, str]:
    return "--kv-transfer-config", json.dumps({
        "kv_connector": "KvcacheConnector", "kv_connector_module_path": "kvcache_vllm.store", "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 200 << 20, **extra}})


class Redis:
    """A server on loopback, which a test may kill."""

    def __init__(self, folder: Path):
        self.port = free_port()
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                                         "--dir", str(folder)], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while self.objects() is None:
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.05)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def objects(self) -> int | None:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(b"DBSIZE\r\n")
                return int(connection.makefile().readline()[1:])
        except OSError:
            return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Listener:
    """The events that a server publishes, read by vLLM's own classes."""

    def __init__(self, port: int):
        self.events: list[BlockStored | BlockRemoved] = []
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.socket.subscribe("")
        self.ends = False
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self) -> None:
        decoder = msgspec.msgpack.Decoder(KVEventBatch)
        while not self.ends:
            if self.socket.poll(100):
                self.events += decoder.decode(self.socket.recv_multipart()[2]).events
        self.socket.close()

    def close(self) -> None:
        self.ends = True
        self.thread.join()

    def stored(self, locality: str) -> dict[tuple[bytes, int], BlockStored]:
        return {(event.block_hashes[-1], event.group_idx): event for event in self.events
                if isinstance(event, BlockStored) and event.locality == locality}


def external(server: Server, topic: str, **fields: object) -> tuple[Answer, int]:
    """The answer to a prompt, and how many of its tokens came from outside vLLM's cache."""
    before = server.metric("vllm:external_prefix_cache_hits_total")
    answer = server.complete(PROMPTS[topic], TOKENS, **fields)
    return answer, int(server.metric("vllm:external_prefix_cache_hits_total") - before)


def forget(server: Server) -> None:
    """Drops vLLM's pages and the host memory of its tiers, but no stored object."""
    server.post("/reset_prefix_cache?reset_external=true")


def until(condition) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("[0-9a-f][0-9a-f]/*") if path.is_file()]


def quiet(folder: Path) -> int:
    """The number of objects, once no more are added."""
    counts = []
    until(lambda: counts.append(len(files(folder))) or (len(counts) > 20 and len(set(counts[-20:])) == 1 and counts[-1] > 0))
    return counts[-1]


@pytest.fixture(scope="module")
def expected(gemma, tmp_path_factory) -> dict[str, Answer]:
    """What a server answers that stores nothing."""
    with Server(gemma, tmp_path_factory.mktemp("plain") / "log", True, *ARGUMENTS, **ENVIRONMENT) as server:
        return {topic: server.complete(text, TOKENS) for topic, text in PROMPTS.items()}


def whole_pages(ids: list[int]) -> int:
    """How many tokens of a prompt can be found: vLLM computes the last token of a prompt in any case."""
    return (len(ids) - 1) // PAGE * PAGE


def check_events(listener: Listener, count: int, prompts: list[list[int]]) -> None:
    """vLLM has told of each object in both tiers, and of the tokens of all pages of the groups with full attention."""
    until(lambda: len(listener.stored("LOCAL")) == len(listener.stored("REMOTE")) == count)
    described = [event.token_ids for event in listener.stored("LOCAL").values() if event.token_ids]
    for ids in prompts:
        for begin in range(0, len(ids) // PAGE * PAGE, PAGE):
            assert ids[begin:begin + PAGE] in described
    assert not any(isinstance(event, BlockRemoved) and event.medium == "STORAGE" for event in listener.events)


def damage_half(folder: Path) -> None:
    """Flips a bit in the contents of some objects."""
    chosen = [path for path in files(folder) if path.name[0] in "01234567"]
    assert 0 < len(chosen) < len(files(folder))
    for path in chosen:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    redis = Redis(folder)
    yield folder / "store", redis
    redis.kill()


@pytest.fixture(scope="module")
def sizes(gemma, tmp_path_factory, expected, stores) -> dict[str, int]:
    """A server has computed three prompts and was killed. Of each: how many tokens can be found again."""
    logs, (folder, redis), events = tmp_path_factory.mktemp("first"), stores, free_port()
    publish = ("--kv-events-config", json.dumps({"enable_kv_cache_events": True, "publisher": "zmq",
                                                 "endpoint": f"tcp://*:{events}"}))
    arguments = transfer(directory=str(folder), redis=redis.url, self_describing_kv_events=True)
    with Server(gemma, logs / "log", True, *ARGUMENTS, *arguments, *publish, **ENVIRONMENT) as server:
        listener = Listener(events)
        try:
            for topic in STORED:
                answer, found = external(server, topic)
                assert (answer.tokens, found) == (expected[topic].tokens, 0)
            tokens = {topic: server.token_ids(PROMPTS[topic]) for topic in STORED}
            count = quiet(folder)
            until(lambda: redis.objects() == count)
            check_events(listener, count, list(tokens.values()))
        finally:
            listener.close()
        for where in (LOCAL, REMOTE):
            forget(server)
            answer, found = external(server, "rivers", kv_transfer_params=where)
            assert (answer.tokens, found) == (expected["rivers"].tokens, whole_pages(tokens["rivers"]))
        server.kill()
    return {topic: whole_pages(ids) for topic, ids in tokens.items()}


def test_servers_share_prefixes_and_restart_with_them(gemma, tmp_path, expected, stores, sizes):
    folder, redis = stores
    damage_half(folder)  # while no server runs

    def check(server: Server, topic: str, **fields: object) -> int:
        answer, found = external(server, topic, **fields)
        assert answer.tokens == expected[topic].tokens
        return found

    arguments = (*ARGUMENTS, *transfer(directory=str(folder), redis=redis.url))
    second_log, third_log = tmp_path / "second.log", tmp_path / "third.log"
    with Server(gemma, second_log, True, *arguments, **ENVIRONMENT) as second, \
            Server(gemma, third_log, True, *arguments, **ENVIRONMENT) as third:
        # A damaged object is a miss: fewer tokens are found, and none is wrong.
        assert sum(check(second, topic, kv_transfer_params=LOCAL) for topic in ("rivers", "clocks")) \
            < sizes["rivers"] + sizes["clocks"]
        # The second server has stored again what was damaged, and the third one uses the same folder.
        quiet(folder)
        assert check(third, "clocks", kv_transfer_params=LOCAL) == sizes["clocks"]
        assert check(third, "bread", kv_transfer_params=REMOTE) == sizes["bread"]
        # What one server computes, the other one loads.
        assert check(third, "ships") == 0
        quiet(folder)
        forget(second)
        assert check(second, "ships") > 0
        # Without Redis both go on.
        redis.kill()
        forget(second)
        assert check(second, "bread", kv_transfer_params=REMOTE) == 0
        assert check(third, "bees") == 0
        forget(third)
        assert check(third, "ships", kv_transfer_params=LOCAL) > 0
    assert "kvcache-vllm: the redis tier fails" in second_log.read_text() + third_log.read_text()
