"""Messages have the names of Python: the library names functions, fields and constants of its header, and each binding
translates them."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kvcache

ROOT = Path(__file__).resolve().parents[2]
# Words in the library's texts that look like names of C, but are not.
NO_NAMES = set("""
    MLA CPU CUDA KVCACHE_CUDA_BACKEND libkvcache_cuda kvc_backend_get float8_e4m3fn float8_e5m2 float4_e2m1fn
    cfs_period_us cfs_quota_us kvc_copy decode_items split_tiles prefix_groups kv_bytes host_parallel_for simd_available
    layer_begin layer_end kvc_graph struct_size kvc_error item_size kvc_ num_ device_id KVC_ASSERT kvc_event event_size
    GPU HOST io_uring STORAGE num_buffers max_job_items max_items kvcache_cuda KVC_ROW_FORMAT_
""".split())
SOURCES = {"python": "bindings/python/kvcache/*.py*", "rust": "bindings/rust/kvcache/src/*.rs", "go": "bindings/go/*.go",
           "java": "bindings/java/src/main/java/dev/kvcache/*.java"}
GENERATED = {"_names.py", "names.rs", "names_generated.go", "Names.java", "abi_generated.go", "Abi.java", "JniCalls.java",
             "NativeCalls.java", "calls_cgo_generated.go", "calls_purego_generated.go"}
# Translations that are not names of the language: words, and parts of a text.
NO_SOURCE = {"absent", '"..."', "Plan", "len", "size", "length"}


NO_MESSAGES = {"event_message.cc", "cache_reports.cc", "describe.cc"}  # words of vLLM's format, and of describe.md


def words_of_messages():
    """Words in the library's string literals that may be names of its header."""
    words = set()
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".cc", ".h") or path.name in NO_MESSAGES:
            continue
        code = re.sub(r"//.*|^#.*", "", path.read_text(), flags=re.M)
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code):
            for word in re.findall(r"[A-Za-z_]\w*", re.sub(r"%[-+ #0-9.*lz]*[a-zA-Z]", " ", literal)):
                if "_" in word.strip("_") or word == "NULL" or word.endswith("_") or (word.isupper() and len(word) > 2):
                    words.add(word)
    return {word for word in words if not word.startswith(("_", "KVC_ERROR_"))} - NO_NAMES


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(ROOT / "scripts"))
    import c_header
    import generate_names

    header = (ROOT / "include/kvcache.h").read_text()
    fields = {field for struct in c_header.structs(header) for field in struct.fields}
    return fields, {language: generate_names.table(ROOT, header, language) for language in SOURCES}


def test_generated_tables_are_up_to_date():
    subprocess.run([sys.executable, ROOT / "scripts/generate_names.py", "--check"], check=True)


def test_every_name_in_a_message_is_known(tables):
    fields, names = tables
    listed = set(names["go"]) | fields | lacking_in("go")
    assert not sorted(word for word in words_of_messages() if word not in listed), "add them to bindings/names.txt"


def lacking_in(language):
    """Names that the package of a language lacks, by names.txt. Its messages never contain them."""
    column = 1 + list(SOURCES).index(language)
    lines = [line.split(" | ") for line in (ROOT / "bindings/names.txt").read_text().splitlines()
             if " | " in line and not line.startswith("#")]
    return {line[0] for line in lines if line[column].strip() == "-"}


@pytest.mark.parametrize("language", SOURCES)
def test_translations_are_names_of_the_language(tables, language):
    """The names in messages exist in the sources of the package."""
    names = tables[1][language]
    source = "\n".join(path.read_text() for path in ROOT.glob(SOURCES[language]) if path.name not in GENERATED)
    known = set(re.findall(r"\w+", source))
    missing = {}
    lacking = lacking_in(language)
    for word in words_of_messages() - lacking:
        if word.startswith("kvc_") and word not in names:
            missing[word] = "no translation"
        parts = set(re.findall(r'"\.+"|\w+', names.get(word, word))) - NO_SOURCE
        if not parts <= known:
            missing[word] = sorted(parts - known)
    assert not missing


def failures():
    """Patterns of messages, and calls that fail with them."""
    def cache(**options):
        return kvcache.Cache([kvcache.Layer(q_heads=2, head_dim=16)], **{"capacity_tokens": 64, **options})

    def step(call):
        with cache() as made, made.forward([made.add()], [3]) as open_step:
            try:
                call(made, open_step)
            finally:
                open_step.abort()

    def in_open_step():
        with cache() as made:
            sequence = made.add()
            with made.forward([sequence], [3]) as open_step:
                try:
                    made.truncate(sequence, 0)
                finally:
                    open_step.abort()

    def branching_tables():
        with cache() as made, made.forward([made.add()], [3], parents=[[-1, 0, 0]]) as open_step:
            try:
                open_step.tables(0)
            finally:
                open_step.abort()

    rows = np.ones((3, 2, 16), np.float32)
    pool = np.ones((4, 16, 1, 16), np.float32)
    return {
        "Cache: layer 0: q_heads 3 is no multiple of kv_heads 2":
            lambda: kvcache.Cache([kvcache.Layer(q_heads=3, kv_heads=2)], capacity_tokens=64),
        "estimate: layer 0: scale -1":
            lambda: kvcache.estimate([kvcache.Layer(scale=-1.0)], capacity_tokens=64),
        "Cache.set_streaming: .*without streaming":
            lambda: step(lambda made, _: made.set_streaming(made.add(), sinks=4, window=64)),
        "Cache: .*window 0": lambda: cache(groups=[kvcache.Sliding(0)]),
        "Cache.forward: .* at index 0": lambda: cache().forward([77], [1]),
        "Cache.forward: .*max_batch_tokens": lambda: step(lambda made, _: made.forward([made.add()], [1 << 20])),
        "Cache.forward: .*parents": lambda: step(lambda made, _: made.forward([made.add()], [2], parents=[[-1, 7]])),
        "Cache.forward: .*spans": lambda: step(lambda made, _: made.forward([made.add()], [2], spans=[-1, -1])),
        "Cache.truncate: sequence .* is in an open step": lambda: in_open_step(),
        "Step.attend: .*k is None and v is not": lambda: step(lambda _, open_step: open_step.attend(0, rows, None, rows)),
        "Step.attend: layer 0: k has shape": lambda: step(lambda _, open_step: open_step.attend(0, rows, rows, rows)),
        "Step.tables: .*\"whole\"": lambda: branching_tables(),
        "append_slots: .*slot_mapping": lambda: kvcache.append_slots(rows[:, :1], rows[:, :1], pool, pool.copy(), np.full(3, 99)),
    }


@pytest.mark.parametrize("words", failures())
def test_messages_have_pythons_names(words):
    with pytest.raises(kvcache.Error) as caught:
        failures()[words]()
    message = str(caught.value)
    assert re.search(words, message), message
    assert not re.search(r"\bkvc_|\bKVC_|\bnum_|\bNULL\b|_tokens_|\bforward \d", message), message
