"""When vLLM is not as it was tested, its own backend stays and one line of the log says why."""
import logging
from types import SimpleNamespace

import kvcache_vllm
import pytest
import torch
from kvcache_vllm import backend, interface, mla, store
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends import cpu_attn, registry
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager

STOCK = "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend"


@pytest.fixture
def lines(monkeypatch):
    """The lines that the plug-in logs. The registry is as before afterwards."""
    monkeypatch.setattr(registry, "_ATTN_OVERRIDES", {})
    found = []

    class Handler(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler, logger = Handler(), logging.getLogger("vllm.kvcache")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_the_tested_vllm_loads_the_plugin(lines):
    assert interface.difference() is None
    kvcache_vllm.register()
    assert AttentionBackendEnum.CPU_ATTN.get_class() is backend.KvcacheBackend
    assert backend.KvcacheBackend.get_name() == "CPU_ATTN"
    assert AttentionBackendEnum.CPU_MLA.get_class() is mla.KvcacheMlaBackend
    assert mla.KvcacheMlaBackend.get_name() == "CPU_MLA"
    assert len(lines) == 1


def test_another_signature_leaves_stock_in_place(lines, monkeypatch):
    def do_kv_cache_update(self, layer, kv, kv_cache, slot_mapping):
        raise AssertionError("not to be called")

    monkeypatch.setattr(cpu_attn.CPUAttentionBackendImpl, "do_kv_cache_update", do_kv_cache_update)
    kvcache_vllm.register()
    assert AttentionBackendEnum.CPU_ATTN.get_path() == STOCK
    assert len(lines) == 1
    assert "do_kv_cache_update of this vLLM takes (self layer kv kv_cache slot_mapping)" in lines[0]


@pytest.mark.parametrize("name", ["CPUAttentionMetadata", "CPUAttentionBackendImpl", "CPUAttentionBackend"])
def test_a_missing_class_leaves_stock_in_place(lines, monkeypatch, name):
    monkeypatch.delattr(cpu_attn, name)
    kvcache_vllm.register()
    assert AttentionBackendEnum.CPU_ATTN.get_path() == STOCK
    assert len(lines) == 1
    assert f"no {name}" in lines[0]


def test_a_missing_field_leaves_stock_in_place(lines, monkeypatch):
    monkeypatch.setattr(interface, "FIELDS", ["slot_mapping", "slots"])
    kvcache_vllm.register()
    assert AttentionBackendEnum.CPU_ATTN.get_path() == STOCK
    assert len(lines) == 1
    assert "has no slots" in lines[0]


def test_prefixes_are_refused_by_another_vllm(monkeypatch):
    assert interface.store_difference() is None

    def submit_load(self, job):
        raise AssertionError("not to be called")

    monkeypatch.setattr(SecondaryTierManager, "submit_load", submit_load)
    with pytest.raises(RuntimeError, match=r"^kvcache-vllm: prefixes cannot be stored, because .*submit_load of this vLLM takes"):
        store.KvcacheConnector(None, None, None)


def make_layer(monkeypatch, dtype=torch.float32, connectors=(), **arguments):
    transfer = SimpleNamespace(has_connector=connectors.__contains__) if connectors else None
    config = SimpleNamespace(model_config=SimpleNamespace(dtype=dtype), kv_transfer_config=transfer)
    for module in (cpu_attn, backend):
        monkeypatch.setattr(module, "get_current_vllm_config", lambda: config)
    values = {"alibi_slopes": None, "sliding_window": None, "kv_cache_dtype": "auto", **arguments}
    return backend.KvcacheImpl(4, 64, 0.125, 2, **values)


@pytest.mark.parametrize("case", [
    {"attn_type": AttentionType.ENCODER_ONLY, "kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8_inc"}, {"dtype": torch.float64},
    {"connectors": ("NixlConnector",)},
])
def test_layers_that_are_not_served_use_the_methods_of_stock(monkeypatch, case):
    layer = make_layer(monkeypatch, **case)
    assert not layer.is_served
    calls = []
    monkeypatch.setattr(cpu_attn.CPUAttentionBackendImpl, "forward", lambda self, *_: calls.append("forward"))
    monkeypatch.setattr(cpu_attn.CPUAttentionBackendImpl, "do_kv_cache_update", lambda self, *_: calls.append("store"))
    layer.do_kv_cache_update(None, None, None, None, None)
    layer.forward(None, None, None, None, None, SimpleNamespace(), None)
    assert calls == ["store", "forward"]


def test_a_decoder_layer_is_served(monkeypatch):
    assert make_layer(monkeypatch).is_served
