"""Transfers of sequences between caches: of one process, and of two over UCX."""

import os
import subprocess
import sys

import numpy as np
import pytest

import kvcache

LENGTH = 21


def make(page_size=4, **options):
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8) for _ in range(3)]
    return kvcache.Cache(layers, page_size=page_size, capacity_tokens=256, max_sequences=8, **options)


def rows(begin, end, layer, is_v):
    return np.array([[[t * 0.25 + layer * 100 + is_v * 50 + d for d in range(8)]] for t in range(begin, end)],
                    dtype=np.float32)


def compute(cache, sequence, tokens, after=None):
    begin = cache.length(sequence)
    with cache.forward([sequence], [tokens]) as step:
        for layer in range(3):
            step.append(layer, rows(begin, begin + tokens, layer, 0), rows(begin, begin + tokens, layer, 1))
            if after:
                after()


def check(cache, sequence, length=LENGTH):
    assert cache.length(sequence) == length
    for layer in range(3):
        k, v = cache.export(sequence, layer)[:2]
        np.testing.assert_array_equal(np.asarray(k), rows(0, length, layer, 0))
        np.testing.assert_array_equal(np.asarray(v), rows(0, length, layer, 1))


def test_layers_leave_while_the_step_computes():
    prefill, decode = make(), make(page_size=16)
    sequence = prefill.add()
    incoming = decode.receive(LENGTH)
    outgoing = prefill.send(sequence, incoming.describe())
    sent = []

    def after():
        assert not outgoing.poll()
        incoming.poll()
        sent.append(outgoing.bytes)

    compute(prefill, sequence, LENGTH, after)
    assert sent == [LENGTH * 64, LENGTH * 128, LENGTH * 192]
    assert not outgoing.poll()
    received = incoming.wait(10)
    assert outgoing.wait(10) is None and outgoing.done and incoming.done
    assert incoming.tokens == outgoing.tokens == LENGTH
    check(decode, received)
    check(prefill, sequence)


def test_only_the_tail_of_a_prefix_travels():
    prefill, decode = make(), make()
    sequence, prefix = prefill.add(), decode.add()
    compute(prefill, sequence, LENGTH)
    compute(decode, prefix, 10)
    incoming = decode.receive(LENGTH, prefix=prefix)
    outgoing = prefill.send(sequence, incoming.describe())
    while not incoming.poll():
        outgoing.poll()
    assert incoming.bytes == (LENGTH - 8) * 192
    check(decode, incoming.sequence)


def test_errors():
    prefill, decode, other = make(), make(), kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=2, head_dim=8)],
                                                           capacity_tokens=64)  # fmt: skip
    sequence = prefill.add()
    with pytest.raises(kvcache.OutOfRange, match="num_tokens 0"):
        decode.receive(0)
    with pytest.raises(kvcache.Layout, match="1 heads.*2 heads|2 heads.*1 heads"):
        prefill.send(sequence, other.receive(4).describe())
    incoming = decode.receive(LENGTH, timeout=0.05)
    with pytest.raises(kvcache.Corrupt):
        prefill.send(sequence, incoming.describe()[:-1])
    used = decode.stats().pages_used
    assert used > 0
    with pytest.raises(kvcache.FileError, match="silent"):
        incoming.wait(30)
    assert decode.stats().pages_used == 0
    with pytest.raises(kvcache.StaleId):
        incoming.poll()
    incoming = decode.receive(LENGTH)
    outgoing = prefill.send(sequence, incoming.describe())
    with pytest.raises(TimeoutError):
        outgoing.wait(0.01)
    outgoing.cancel()
    with pytest.raises(kvcache.FileError, match="cancelled"):
        incoming.wait(30)
    with pytest.raises(kvcache.Order, match="memory"):
        decode.set_transport(ucx_library())


def ucx_library():
    library = os.environ.get("KVCACHE_UCX_LIBRARY")
    if library is None:
        pytest.skip("KVCACHE_UCX_LIBRARY does not name the UCX transport")
    return library


def nixl_library():
    for variable, what in (("KVCACHE_NIXL_LIBRARY", "the NIXL transport"), ("KVCACHE_NIXL_CAPI", "libnixl_capi.so")):
        if variable not in os.environ:
            pytest.skip(f"{variable} does not name {what}")
    return os.environ["KVCACHE_NIXL_LIBRARY"]


def use(cache, transport, options):
    if transport == "ucx":
        cache.use_ucx(*options.split("/"))
    else:
        cache.use_nixl(dict(option.split("=", 1) for option in options.split(";") if option))


def prefill_here(transport, options):
    """The other process: reads a description, computes, and sends."""
    cache = make()
    use(cache, transport, options)
    description = bytes.fromhex(sys.stdin.readline())
    sequence = cache.add()
    outgoing = cache.send(sequence, description)
    for tokens in (9, LENGTH - 9):
        compute(cache, sequence, tokens, outgoing.poll)
    outgoing.wait(60)


def receive_from_another_process(transport, options):
    with subprocess.Popen([sys.executable, __file__, transport, options], stdin=subprocess.PIPE, text=True) as process:
        decode = make(page_size=8)
        use(decode, transport, options)
        incoming = decode.receive(LENGTH, timeout=60)
        process.stdin.write(incoming.describe().hex() + "\n")
        process.stdin.flush()
        check(decode, incoming.wait(60))
        assert process.wait(60) == 0


@pytest.mark.parametrize("options", ["sm,self", "tcp/lo"])
def test_another_process_over_ucx(options):
    ucx_library()
    receive_from_another_process("ucx", options)


@pytest.mark.parametrize("options", ["engine_config=TLS=sm;ucx_error_handling_mode=none", "engine_config=TLS=tcp,NET_DEVICES=lo"])
def test_another_process_over_nixl(options):
    nixl_library()
    receive_from_another_process("nixl", options)


def test_options_of_nixl():
    cache = make()
    for options in ({"": "x"}, {"a=b": "x"}, {"a;b": "x"}, {"a": "x;y"}):
        with pytest.raises(kvcache.InvalidArgument, match="no option"):
            cache.use_nixl(options)
    if "KVCACHE_NIXL_LIBRARY" not in os.environ:
        with pytest.raises(kvcache.FileError, match="libkvcache_nixl"):
            cache.use_nixl({"backend": "UCX"})


def test_nixl_without_its_library():
    """In a process of its own, because a process loads one libnixl_capi.so."""
    if "KVCACHE_NIXL_LIBRARY" not in os.environ:
        pytest.skip("KVCACHE_NIXL_LIBRARY does not name the NIXL transport")
    program = """if True:
        import os, kvcache
        cache = kvcache.Cache([kvcache.Layer(q_heads=2, kv_heads=1, head_dim=8)], capacity_tokens=64)
        try:
            cache.use_nixl({"library": "/none/libnixl_capi.so"})
        except kvcache.FileError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "/none/libnixl_capi.so" in done.stdout and "KVCACHE_NIXL_CAPI" in done.stdout


if __name__ == "__main__":
    prefill_here(*sys.argv[1:])
