"""Cache.describe, and what kvcache.inspect makes of it: traces, pages, servers."""

import http.client
import json
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from inspect_scene import Scene

import kvcache
from kvcache import inspect


def pages_of(sequence, group):
    found = []
    for first, count in sequence["pages"][group]:
        found += [-1] * count if first < 0 else range(first, first + count)
    return found


def map_of(group):
    return [(users, flags) for count, users, flags in group["map"] for _ in range(count)]


def expect_agreement(cache, removed=()):
    """Compares describe() with what other calls say."""
    described = cache.describe()
    ids = [sequence["id"] for sequence in described["sequences"]]
    assert len(ids) == cache.stats().num_sequences and not set(ids) & set(removed)
    for sequence in described["sequences"]:
        assert sequence["length"] == cache.length(sequence["id"])
        assert sequence["nodes"] == cache.tree_nodes(sequence["id"])
    for g, group in enumerate(described["groups"]):
        stats, pages = cache.stats(g), map_of(group)
        for name in ("total", "used", "free", "shared", "peak", "published", "idle", "evicted"):
            assert group[f"pages_{name}"] == getattr(stats, f"pages_{name}"), name
        for name in ("tokens_held", "tokens_shared", "tokens_logical", "fragmentation_bytes", "storage_bytes"):
            assert group[name] == getattr(stats, name), name
        assert len(pages) == stats.pages_total
        assert sum(flags & 1 for _, flags in pages) == stats.pages_used
        assert sum((flags & 2) // 2 for _, flags in pages) == stats.pages_published
        assert sum(users == 0 and flags == 3 for users, flags in pages) == stats.pages_idle
        counted = [0] * stats.pages_total
        for sequence in described["sequences"]:
            for page in {page for page in pages_of(sequence, g) if page >= 0}:
                counted[page] += 1
            if sequence["state"] == "idle" and group["row"] != "state":
                own = cache.pages(sequence["id"], g).tolist()
                assert pages_of(sequence, g)[: len(own)] == own
        assert counted == [users for users, _ in pages]
    return described


def test_many_sequences_take_more_than_one_buffer():
    with kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16)], capacity_tokens=256, max_sequences=200) as cache:
        ids = cache.add(200)
        described = expect_agreement(cache)
        assert [sequence["id"] for sequence in described["sequences"]] == list(ids) and len(json.dumps(described)) > 2 * 4096


@pytest.fixture
def scene(tmp_path):
    with Scene(tmp_path) as made:
        yield made


def test_a_description_agrees_with_the_other_calls(scene):
    for _ in scene.play():
        expect_agreement(scene.cache)


def test_families():
    cache = kvcache.Cache([kvcache.Layer(head_dim=16)], page_size=4, capacity_tokens=256, max_sequences=8)
    root = cache.add()
    kv = np.ones((11, 1, 16), np.float32)

    def grow(sequence, tokens):
        with cache.forward([sequence], [tokens]) as step:
            step.append(0, kv[:tokens], kv[:tokens])

    grow(root, 11)
    child = cache.fork(root)  # shares 8 tokens in whole pages, and copies the last page
    described = expect_agreement(cache)
    assert [(s["parent"], s["shared_tokens"]) for s in described["sequences"]] == [(-1, 0), (0, 8)]
    grow(child, 9)
    grandchild = cache.fork(child, 16)
    grow(grandchild, 2)
    described = expect_agreement(cache)
    assert [(s["id"], s["length"], s["parent"], s["shared_tokens"]) for s in described["sequences"]] == [
        (root, 11, -1, 0), (child, 20, 0, 8), (grandchild, 18, 1, 16)]  # fmt: skip
    cache.remove(child)
    described = expect_agreement(cache, removed=[child])
    assert [(s["parent"], s["shared_tokens"]) for s in described["sequences"]] == [(-1, 0), (0, 8)]
    assert [users for users, _ in map_of(described["groups"][0])[:2]] == [2, 2]


def test_steps_and_windows():
    layers = [kvcache.Layer(head_dim=8, group=0), kvcache.Layer(head_dim=8, group=1)]
    cache = kvcache.Cache(layers, [kvcache.Full(), kvcache.Sliding(8)], page_size=4, capacity_tokens=256, rollback_tokens=0)
    a, b = cache.add(2)
    kv = np.ones((24, 1, 8), np.float32)
    with cache.forward([a], [24]) as step:
        for layer in range(2):
            step.append(layer, kv, kv)
    described = expect_agreement(cache)
    first = described["sequences"][0]["pages"][1][0]
    assert first[0] == -1 and first[1] >= 3, "pages before the window are gone"
    kinds = [(group["visibility"], group["window_tokens"], group["page_size"]) for group in described["groups"]]
    assert kinds == [("all", 0, 4), ("window", 8, 4)]
    assert described["steps"] == [] and described["prefix"] is None and described["tiers"] is None
    step = cache.forward([b, a], [1, 2])
    described = cache.describe()
    assert [s["state"] for s in described["sequences"]] == ["busy", "busy"]
    (open_step,) = described["steps"]
    assert (open_step["sequences"], open_step["lengths"]) == ([1, 0], [1, 2])
    assert not open_step["graph"] and not open_step["cancelled"] and open_step["encoder_group"] == -1
    step.cancel()
    assert cache.describe()["steps"][0]["cancelled"]
    step.abort()
    assert cache.describe()["steps"] == []


def test_streams_pins_and_states():
    cache = kvcache.Cache([kvcache.Layer(head_dim=8)], page_size=4, capacity_tokens=64, streaming=True, prefix_index=True)
    tokens = list(range(8))
    a = cache.add()
    kv = np.ones((8, 1, 8), np.float32)
    with cache.forward([a], [8]) as step:
        step.append(0, kv, kv)
    cache.publish_prefix(a, tokens)
    pin, _ = cache.pin_prefix(tokens[:4])
    described = cache.describe()
    assert [flags for _, flags in map_of(described["groups"][0])[:3]] == [1 | 2 | 4, 1 | 2, 0]
    assert described["prefix"]["pins"] == 1 and described["prefix"]["blocks"] == 2
    cache.remove(a)
    assert map_of(cache.describe()["groups"][0])[:2] == [(0, 1 | 2 | 4), (0, 1 | 2)]
    cache.unpin_prefix(pin)
    assert map_of(cache.describe()["groups"][0])[:2] == [(0, 1 | 2), (0, 1 | 2)]
    b = cache.add()
    cache.set_streaming(b, sinks=2, window=16)
    (sequence,) = cache.describe()["sequences"]
    assert (sequence["stream_sinks"], sequence["stream_window"]) == (2, 16)


def test_recurrent_groups():
    layers = [kvcache.RecurrentLayer(0, [kvcache.StateTensor((4,))])]
    cache = kvcache.Cache(layers, [kvcache.Recurrent()], max_sequences=4, max_checkpoints=2)
    a = cache.add()
    state = np.ones((1, 4), np.float32)
    for _ in range(2):
        with cache.forward([a], [3]) as step:
            step.store_state(0, 0, state)
        cache.checkpoint(a)
    (sequence,), (group,) = cache.describe()["sequences"], cache.describe()["groups"]
    assert sequence["checkpoints"] == 2 and group["row"] == "state" and group["page_size"] == 0
    assert sum(flags & 1 for _, flags in map_of(group)) == cache.stats(0).pages_used
    assert len({page for page in pages_of(sequence, 0) if page >= 0}) == cache.stats(0).pages_used


def test_suspended_sequences(tmp_path):
    cache = kvcache.Cache([kvcache.Layer(head_dim=8)], page_size=4, capacity_tokens=64, prefix_index=True,
                          fingerprint=bytes(32))  # fmt: skip
    cache.add_disk_tier(str(tmp_path))
    a = cache.add()
    kv = np.ones((8, 1, 8), np.float32)
    with cache.forward([a], [8]) as step:
        step.append(0, kv, kv)
    child = cache.fork(a)
    with cache.forward([child], [4]) as step:
        step.append(0, kv[:4], kv[:4])
    cache.suspend(child).wait()
    described = expect_agreement(cache)
    (suspended,) = [s for s in described["sequences"] if s["id"] == child]
    assert suspended["state"] == "suspended" and suspended["length"] == 12
    assert pages_of(suspended, 0) == [*cache.pages(a).tolist(), -1]
    assert described["tiers"]["sequences_suspended"] == 1


# ---- Recorder -----------------------------------------------------------------------------------------------------------


def test_a_trace(scene, tmp_path):
    path = tmp_path / "engine.trace"
    with inspect.Recorder(scene.cache, path, state_ms=0, plans=True) as recorder:
        for _ in scene.play(recorder):
            pass
    lines = inspect.read_trace(path)
    assert [(line["rows"], line["tokens"]) for line in lines] == scene.steps
    assert all(line["seconds"] > 0 and line["plan"]["tokens"] == line["tokens"] for line in lines)
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    last, now = lines[-1]["state"], scene.cache.describe()
    del last["tiers"], now["tiers"]  # its thread goes on
    assert last == now, "nothing has happened since the last step"
    assert scene.secret not in path.read_text(), "no token is in a trace"


def test_states_are_rare_and_plans_are_optional(scene, tmp_path):
    with inspect.Recorder(scene.cache, tmp_path / "t", state_ms=1e6) as recorder:
        for _ in scene.play(recorder):
            pass
    lines = inspect.read_trace(tmp_path / "t")
    assert ["state" in line for line in lines] == [True] + [False] * (len(lines) - 1)
    assert not any("plan" in line for line in lines)


def test_steps_that_fail_leave_no_line():
    cache = kvcache.Cache([kvcache.Layer(head_dim=8)], capacity_tokens=64)
    recorder = inspect.Recorder(cache)
    a = cache.add()
    with pytest.raises(ZeroDivisionError), recorder.forward([a], [1]):
        _ = 1 / 0
    with recorder.forward([a], [1]) as step:
        step.abort()
    with pytest.raises(kvcache.Order), recorder.forward([a], [1]):
        pass  # no layer was attended
    assert recorder.lines() == ([], 0) and cache.length(a) == 0
    recorder.note(2, 3, 0.5)
    (line,), following = recorder.lines()
    assert following == 1 and json.loads(line)["rows"] == 2 and json.loads(line)["seconds"] == 0.5
    assert recorder.lines(1) == ([], 1)


@pytest.mark.parametrize("text, says", [
    ("", "the file has no lines"), ("{", "line 1: no JSON"), ("[]", "line 1: a line must be a JSON object"),
    ('{"time": 1}\n{}', "line 2: time must be a number, not None"),
    ('{"time": 1, "rows": 1, "tokens": true, "seconds": 1}', "line 1: tokens must be a number, not True"),
    ('{"time": 1, "state": {"groups": []}}', "line 1: state must be what Cache.describe() gives"),
])  # fmt: skip
def test_bad_traces(tmp_path, text, says):
    path = tmp_path / "t"
    path.write_text(text)
    done = subprocess.run([sys.executable, "-m", "kvcache", "inspect", path], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "" and says in done.stderr and "Traceback" not in done.stderr
    assert not path.with_suffix(".html").exists()


def test_the_command_writes_a_page(scene, tmp_path):
    path = tmp_path / "engine.trace"
    with inspect.Recorder(scene.cache, path, state_ms=0, plans=True) as recorder:
        for _ in scene.play(recorder):
            pass
    done = subprocess.run([sys.executable, "-m", "kvcache", "inspect", path], capture_output=True, text=True, check=True)
    page = path.with_suffix(".html")
    assert done.stdout == page.as_uri() + "\n"
    data = data_of(page.read_text())
    assert data["live"] is None and len(data["lines"]) == len(scene.steps)
    ids = [sequence["id"] for sequence in data["lines"][-1]["state"]["sequences"]]
    assert ids == [str(sequence["id"]) for sequence in scene.cache.describe()["sequences"]], "texts: JavaScript has 53 bits"


def data_of(page):
    return json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])


def test_a_page_loads_nothing_and_ends_its_script_only_once():
    page = inspect.page([{"time": 0.0, "state": None, "note": "</script><script>alert(1)</script>"}])
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "") and page.count("</script>") == 2
    assert data_of(page)["lines"][0]["note"] == "</script><script>alert(1)</script>"


def test_long_traces_are_thinned():
    lines = [{"time": float(i), "state": {"number": i}} for i in range(5000)]
    kept = [line["state"]["number"] for line in data_of(inspect.page(lines))["lines"] if "state" in line]
    assert len(kept) == 1000 and kept[0] == 0 and kept[-1] == 4999 and max(b - a for a, b in zip(kept, kept[1:])) <= 6


# ---- Live ---------------------------------------------------------------------------------------------------------------


def fetch(server, path):
    with urllib.request.urlopen(server.address + path, timeout=10) as answer:
        return answer.read().decode()


def test_a_cache_is_served():
    cache = kvcache.Cache([kvcache.Layer(head_dim=8)], capacity_tokens=64)
    with inspect.serve(cache) as server:
        assert data_of(fetch(server, ""))["live"] == "lines"
        answer = json.loads(fetch(server, "lines?from=0"))
        assert answer["next"] == 1 and answer["lines"][0]["state"]["sequences"] == []
        cache.add()
        deadline = time.monotonic() + 20
        while answer["next"] < 2 and time.monotonic() < deadline:
            answer = json.loads(fetch(server, "lines?from=1"))
            time.sleep(0.05)
        assert len(answer["lines"][-1]["state"]["sequences"]) == 1
        refused = [("/lines", "example.com:80", 404), ("/etc/passwd", "localhost:1", 404), ("/lines?from=x", None, 400)]
        for path, host, status in refused:
            connection = http.client.HTTPConnection("127.0.0.1", int(server.address.rsplit(":")[-1].strip("/")), timeout=10)
            connection.request("GET", path, headers={"Host": host} if host else {})
            assert connection.getresponse().status == status
            connection.close()
        cache.close()
        assert json.loads(fetch(server, f"lines?from={answer['next']}"))["lines"] == []
    with pytest.raises(OSError):
        fetch(server, "")


def test_a_growing_trace_is_served(tmp_path):
    path = tmp_path / "t"
    path.write_text('{"time": 1}\n{"time": 2')
    with inspect.serve(path) as server:
        assert json.loads(fetch(server, "lines?from=0")) == {"next": 1, "lines": [{"time": 1}]}
        with path.open("a") as file:
            file.write('}\n{"time": 3}\n')
        assert json.loads(fetch(server, "lines?from=1")) == {"next": 3, "lines": [{"time": 2}, {"time": 3}]}
