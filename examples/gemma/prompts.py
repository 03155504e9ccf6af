"""A file of prompts in, a file of new tokens out (and, when asked, every step's logits)."""
import json
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine import Engine, Request, capacity_for
from errors import ExampleError


class Job:
    """What `generate.py --prompts` does. `read` finds bad input before the model is loaded."""

    def __init__(self, entries, arguments):
        self._entries, self._arguments = entries, arguments

    @staticmethod
    def read(arguments) -> "Job":
        for target in filter(None, (arguments.output, arguments.logits)):
            require_writable(target)
        try:
            entries = json.loads(Path(arguments.prompts).read_text(encoding="utf-8"))
        except OSError as error:
            raise ExampleError(f"cannot read prompt file {arguments.prompts}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8
            raise ExampleError(f"prompt file {arguments.prompts} is not JSON: {error}") from error
        if not isinstance(entries, list) or not entries:
            raise ExampleError(f"prompt file {arguments.prompts}: expected a list of prompts, not empty")
        for index, entry in enumerate(entries):
            if not _is_prompt(entry):
                raise ExampleError(f"prompt file {arguments.prompts}: prompt {index} is neither"
                                   ' {"ids": [at least one integer]} nor {"text": "..."}')
        return Job(entries, arguments)

    def run(self, model, files) -> None:
        a = self._arguments
        prompts = [entry["ids"] if "ids" in entry else files.tokenizer.encode(entry["text"]) for entry in self._entries]
        for index, ids in enumerate(prompts):
            bad = next((i for i in ids if not 0 <= i < model.vocabulary), None)
            if bad is not None:
                raise ExampleError(f"prompt {index}: id {bad} is outside the vocabulary of {model.vocabulary}")
            if len(ids) + a.max_new_tokens > model.config.context_tokens:
                raise ExampleError(f"prompt {index}: {len(ids)} tokens and {a.max_new_tokens} new ones exceed the"
                                   f" model's context of {model.config.context_tokens}")
        with _logits_file(a.logits, (len(prompts), a.max_new_tokens, model.vocabulary)) as logits_out:
            requests = self._generate(model, files, prompts, logits_out)
        _write_output(a.output, [{"ids": r.output, "text": files.tokenizer.decode(r.output)} for r in requests])

    def _generate(self, model, files, prompts, logits_out):
        a = self._arguments
        # The last prompt token is never taken from the shared prefix: its logits are needed.
        shared = len(os.path.commonprefix([ids[:-1] for ids in prompts])) if a.share_prefix else 0
        batch = min(a.batch, len(prompts))
        lengths = sorted(len(ids) + a.max_new_tokens for ids in prompts)[-batch:] + [shared]
        rows = batch + (1 if shared else 0)  # a row is the prefix's
        engine = Engine(model, capacity_for(lengths, a.page_size), rows, a.page_size, a.chunk)
        prefix = engine.prefill(prompts[0][:shared]) if shared else 0
        requests = [Request(ids, a.max_new_tokens, parent=prefix, cached=shared) for ids in prompts]
        numbers = {request: index for index, request in enumerate(requests)}

        def on_token(request, token, logits):
            if logits_out is not None:
                logits_out[numbers[request], len(request.output) - 1] = logits

        engine.run(requests, frozenset() if a.ignore_eos else {files.eos_id}, on_token)
        return requests


def require_writable(target) -> None:
    parent = Path(target).absolute().parent
    if Path(target).is_dir():
        raise ExampleError(f"cannot write {target}: it is a directory")
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ExampleError(f"cannot write {target}: {parent} is no directory that can be written")


def _is_prompt(entry) -> bool:
    if not isinstance(entry, dict) or ("ids" in entry) == ("text" in entry):
        return False
    if "text" in entry:
        return isinstance(entry["text"], str)
    return isinstance(entry["ids"], list) and bool(entry["ids"]) and all(type(i) is int for i in entry["ids"])


@contextmanager
def _logits_file(target, shape):
    """A writable array that becomes the file `target` when all went well; None without a target."""
    if target is None:
        yield None
        return
    needed = int(np.prod(shape)) * 4
    free = shutil.disk_usage(Path(target).absolute().parent).free
    if free < needed:
        raise ExampleError(f"no disk space for {target}: {needed / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free")
    with replacing(target) as temporary:
        array = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
        array[:] = np.nan
        yield array
        array.flush()


def _write_output(target, results) -> None:
    text = "[" + ",\n ".join(json.dumps(result, ensure_ascii=False) for result in results) + "]\n"
    if target is None:
        sys.stdout.write(text)
        return
    with replacing(target) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")


@contextmanager
def replacing(target):
    """The name of a file beside `target` that takes its place at the end, or goes away on any error."""
    handle, temporary = tempfile.mkstemp(dir=Path(target).absolute().parent, prefix=".generate-")
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        raise ExampleError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
