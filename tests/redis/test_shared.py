"""Engines in Python and in C share prefixes through one Redis server. ctest gives the programs: redis.shared_prefixes."""

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import kvcache

TOKENS = list(range(30))


@contextlib.contextmanager
def serve(folder, options_of_port):
    program = os.environ["KVC_REDIS_SERVER"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([program, *options_of_port(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
                               stdout=subprocess.DEVNULL)
    for _ in range(1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.01)
    yield f"127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("redis"), lambda port: ["--port", str(port)]) as address:
        yield address


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory):
    """The address of a server that has only TLS, and the file of the authority that has signed its certificate: itself."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = str(folder / "server.pem"), str(folder / "server.key")
    subprocess.run([os.environ["KVC_OPENSSL"], "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                    "-keyout", key, "-out", certificate], check=True, capture_output=True)
    with serve(folder, lambda port: ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no", "--tls-cert-file",
                                     certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate]) as address:
        yield address, certificate


def make(server, prefix, **options):
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8) for _ in range(2)]
    cache = kvcache.Cache(layers, page_size=4, capacity_tokens=256, prefix_index=True, fingerprint=b"m" * 32)
    cache.add_redis_tier(server if "//" in server else f"redis://{server}", prefix=prefix, **options)
    return cache


def rows(tokens, layer, is_v):
    return np.array([[[t * 0.25 + layer * 100 + is_v * 50 + d for d in range(8)]] for t in tokens], dtype=np.float32)


def run_in_c(*arguments, **environment):
    return subprocess.run([os.environ["KVC_SHARED_PREFIX"], *arguments], env={**os.environ, **environment},
                          capture_output=True, text=True)


def engine_in_c(*arguments, **environment):
    result = run_in_c(*arguments, **environment)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


def publish(cache):
    sequence, hit = cache.attach_prefix(TOKENS)
    assert hit.tokens == 0
    with cache.forward([sequence], [30]) as step:
        for layer in range(2):
            step.append(layer, rows(TOKENS, layer, 0), rows(TOKENS, layer, 1))
    cache.publish_prefix(sequence, TOKENS)
    while cache.tier_traffic().pages_waiting > 0:
        time.sleep(0.001)
    return cache.tier_traffic().pages_stored


def load(cache):
    job, _ = cache.load_prefix(TOKENS)
    return 0 if job is None else job.wait(30)


def check(cache, tokens):
    sequence, hit = cache.attach_prefix(TOKENS)
    assert hit.tokens == tokens
    for layer in range(2):
        k, v = cache.export(sequence, layer, 0, tokens)
        np.testing.assert_array_equal(np.from_dlpack(k), rows(TOKENS[:tokens], layer, 0))
        np.testing.assert_array_equal(np.from_dlpack(v), rows(TOKENS[:tokens], layer, 1))


def test_python_writes_and_c_reads(server):
    with make(server, "a:") as cache:
        assert publish(cache) == 7
    assert engine_in_c("read", server, "a:") == 28
    assert engine_in_c("read", server, "other:") == 0


def test_c_writes_and_python_reads(server):
    assert engine_in_c("write", server, "b:") == 7
    with make(server, "b:") as cache:
        assert load(cache) == 28
        check(cache, 28)
        assert load(cache) == 0
    with make(server, "b:") as cache:  # what another engine has stored is not stored again
        sequence = cache.add()
        with cache.forward([sequence], [30]) as step:
            for layer in range(2):
                step.append(layer, rows(TOKENS, layer, 0), rows(TOKENS, layer, 1))
        cache.publish_prefix(sequence, TOKENS)
        while cache.tier_traffic().pages_waiting > 0:
            time.sleep(0.001)
        assert cache.tier_traffic().pages_stored == 0


def test_engines_share_over_tls(tls_server):
    address, ca_file = tls_server
    url = f"rediss://{address}?tls_ca_file={ca_file}"
    with make(url, "p:") as cache:
        assert publish(cache) == 7
    assert engine_in_c("read", address, "p:", ca_file) == 28
    assert engine_in_c("write", address, "c:", ca_file) == 7
    with make(url, "c:") as cache:
        assert load(cache) == 28
        check(cache, 28)
    with pytest.raises(kvcache.FileError, match="TLS handshake: certificate verify failed"):
        make(f"rediss://{address}", "p:")


def test_without_openssl(server, tls_server, tmp_path):
    """Only a tier with TLS needs OpenSSL."""
    address, ca_file = tls_server
    library = tmp_path / "libssl.so.3"
    libm = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libm.so" in line)
    environment = {"LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    for make_library, why in [(lambda: library.write_text("no library"), "file too short"),
                              (lambda: library.symlink_to(libm), "has no OPENSSL_init_ssl")]:
        library.unlink(missing_ok=True)
        make_library()
        result = run_in_c("read", address, "p:", ca_file, **environment)
        assert result.returncode == 1
        assert "TLS needs OpenSSL 3: " in result.stderr and why in result.stderr and "libssl.so.3" in result.stderr
        assert engine_in_c("read", server, "nothing:", **environment) == 0


def test_expiry_and_options(server):
    with make(server, "c:", time_to_live=0.3, threads=2, timeout=5, lazy=True, min_tokens=10) as cache:
        assert publish(cache) == 7
    time.sleep(0.5)
    assert engine_in_c("read", server, "c:") == 0
    with make(server, "a:", store="nothing") as cache:
        assert load(cache) == 28


def test_bad_calls(server, tmp_path, monkeypatch):
    with pytest.raises(kvcache.FileError, match=r"^Tiers.add_redis_tier: no Redis server can be used: 127.0.0.1:1: Conn"):
        make("127.0.0.1:1", "a:")
    with pytest.raises(kvcache.OutOfRange, match="threads 65 is outside 1..64"):
        make(server, "a:", threads=65)
    with pytest.raises(ValueError, match="add_redis_tier: store 'some' is not one of published, reused, nothing"):
        make(server, "a:", store="some")
    with kvcache.Cache([kvcache.Layer(q_heads=1, kv_heads=1, head_dim=8)], capacity_tokens=64) as cache:
        with pytest.raises(kvcache.Unsupported, match=r"^Tiers.add_redis_tier: a tier needs"):
            cache.add_redis_tier(f"redis://{server}")
        with pytest.raises(kvcache.FileError, match="^Tiers.add_plugin_tier: .*cannot open"):
            cache.add_plugin_tier(tmp_path / "none.so")
        with pytest.raises(kvcache.Unsupported, match="^Tiers.add_plugin_tier: .*undefined symbol: kvc_tier_open"):
            cache.add_plugin_tier("libm.so.6")
        monkeypatch.setenv("KVCACHE_REDIS_LIBRARY", str(tmp_path / "other.so"))
        with pytest.raises(kvcache.FileError, match="other.so"):
            cache.add_redis_tier(f"redis://{server}")


def test_plugin(server):
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8) for _ in range(2)]
    with kvcache.Cache(layers, page_size=4, capacity_tokens=256, prefix_index=True, fingerprint=b"m" * 32) as cache:
        cache.add_plugin_tier(os.environ["KVC_EXAMPLE_TIER"])  # in memory
        assert publish(cache) == 7
        cache.drop_prefix([])
        assert load(cache) == 28
        check(cache, 28)
