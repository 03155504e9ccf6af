"""What a cache does, step by step: a trace of its steps, and one HTML page that shows it.

    recorder = kvcache.inspect.Recorder(cache, "engine.trace")
    ...
    with recorder.forward(sequences, lengths) as step:      # in place of cache.forward
        ...

`kvcache inspect engine.trace` writes the page, and `serve(recorder)` shows it while the engine runs. Neither has tokens.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit

from ._cache import Cache
from ._errors import Error
from ._kvcache import Step

__all__ = ["Recorder", "Server", "TraceError", "page", "read_trace", "serve"]

_LIVE_LINES = 10_000
_PAGE_STATES = 1_000
_ID = re.compile(r'"id": ?(\d+)')
_NUMBERS = ("time", "seconds", "rows", "tokens")
_STATE_FIELDS = {"groups", "sequences", "steps", "prefix", "tiers"}


class TraceError(Error):
    """A trace that cannot be read, with its line."""


class Recorder:
    """Writes a trace of a cache: one JSON line for each step.

    Each line has the time, the seconds that the step took, its rows and its tokens. Lines also have what the step planned
    (`Step.describe`) with `plans`, and the whole cache (`Cache.describe`), at most every `state_ms` milliseconds.

    Args:
        cache: the cache that is watched.
        file: a path, or a text file that is open for writing. None: the newest lines are kept in memory, for serve().
        state_ms: least time between two lines with the whole cache.
        plans: whether lines have what the step planned.

    Thread safety: any call from any thread.
    """

    def __init__(self, cache: Cache, file: str | Path | IO[str] | None = None, *, state_ms: float = 200.0,
                 plans: bool = False) -> None:  # fmt: skip
        self.cache = cache
        self._plans = plans
        self._state_seconds = state_ms / 1e3
        self._next_state = 0.0
        self._begin = time.perf_counter()
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._first = 0  # number of the first of these lines
        self._owned = isinstance(file, (str, Path))
        self._file: IO[str] | None = open(file, "w", encoding="utf-8") if isinstance(file, (str, Path)) else file

    def forward(self, sequences: Any, lengths: Any, *arguments: Any, **options: Any) -> _Recorded:
        """What cache.forward(...) does, as a context manager that ends the step and writes its line.

        Raises:
            What Cache.forward raises.
        """
        begin = time.perf_counter()
        return _Recorded(self, self.cache.forward(sequences, lengths, *arguments, **options), begin, lengths)

    def note(self, rows: int, tokens: int, seconds: float, plan: str | None = None) -> None:
        """Writes the line of a step that was made without forward(). plan: the JSON text of Step.describe."""
        now = time.perf_counter()
        fields = [f'"time": {now - self._begin:.6f}, "seconds": {seconds:.7f}, "rows": {rows}, "tokens": {tokens}']
        if plan is not None:
            fields.append(f'"plan": {plan}')
        with self._lock:
            self._add(now, fields)

    def poll(self) -> None:
        """Writes a line with the cache alone, if the last one is old enough: while the engine does nothing."""
        now = time.perf_counter()
        with self._lock:
            if now >= self._next_state and not self.cache.closed:
                self._add(now, [f'"time": {now - self._begin:.6f}'])

    def lines(self, begin: int = 0) -> tuple[list[str], int]:
        """The lines in memory from number `begin` on, and the number of the next line. A recorder with a file has none."""
        with self._lock:
            return self._lines[max(0, begin - self._first) :], self._first + len(self._lines)

    def close(self) -> None:
        """Closes a file that the recorder has opened. The cache stays open."""
        with self._lock:
            if self._file is not None and self._owned:
                self._file.close()
            self._file, self._owned = None, False

    def _add(self, now: float, fields: list[str]) -> None:
        with_state = now >= self._next_state
        if with_state:
            fields.append(f'"state": {self.cache._describe()}')
            self._next_state = time.perf_counter() + self._state_seconds
        line = "{" + ", ".join(fields) + "}"
        if self._file is None:
            self._lines.append(line)
            if len(self._lines) > 2 * _LIVE_LINES:
                self._first += len(self._lines) - _LIVE_LINES
                del self._lines[:-_LIVE_LINES]
            return
        self._file.write(line + "\n")
        if with_state:
            self._file.flush()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, exception_type: type[BaseException] | None, exception: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self.close()


class _Recorded:
    """A step within `with recorder.forward(...) as step`."""

    __slots__ = ("_begin", "_lengths", "_recorder", "_step")

    def __init__(self, recorder: Recorder, step: Step, begin: float, lengths: Any) -> None:
        self._recorder = recorder
        self._step = step
        self._begin = begin
        self._lengths = lengths

    def __enter__(self) -> Step:
        return self._step.__enter__()

    def __exit__(self, exception_type: type[BaseException] | None = None, exception: BaseException | None = None,
                 traceback: TracebackType | None = None) -> None:  # fmt: skip
        step, recorder = self._step, self._recorder
        kept = exception_type is None and not step.closed
        spent = time.perf_counter() - self._begin
        plan = step._describe() if kept and recorder._plans else None
        begin = time.perf_counter()
        step.__exit__(exception_type, exception, traceback)
        if kept:
            spent += time.perf_counter() - begin
            lengths = self._lengths
            tokens = lengths.sum() if hasattr(lengths, "sum") else sum(lengths)
            recorder.note(len(lengths), int(tokens), spent, plan)


# ---- Traces and pages --------------------------------------------------------------------------------------------------


def read_trace(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a trace, checked.

    Raises:
        TraceError: with the line that is wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: {error}", status=1) from error
    return [_checked(path, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _checked(path: str | Path, number: int, text: str) -> dict[str, Any]:
    def wrong(what: str) -> TraceError:
        return TraceError(f"{path}, line {number}: {what}", status=1)

    try:
        line = json.loads(text)
    except json.JSONDecodeError as error:
        raise wrong(f"no JSON: {error}") from error
    if not isinstance(line, dict):
        raise wrong("a line must be a JSON object")
    for name in _NUMBERS if "rows" in line else ("time",):
        if not isinstance(line.get(name), (int, float)) or isinstance(line[name], bool):
            raise wrong(f"{name} must be a number, not {line.get(name)!r}")
    state = line.get("state")
    if state is not None and not (isinstance(state, dict) and state.keys() >= _STATE_FIELDS):
        raise wrong("state must be what Cache.describe() gives")
    return line


def _thinned(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most _PAGE_STATES lines keep their state: evenly spaced ones, the first and the last."""
    with_state = [index for index, line in enumerate(lines) if "state" in line]
    if len(with_state) <= _PAGE_STATES:
        return lines
    kept = {with_state[i * (len(with_state) - 1) // (_PAGE_STATES - 1)] for i in range(_PAGE_STATES)}
    return [line if index in kept else {name: value for name, value in line.items() if name != "state"}
            for index, line in enumerate(lines)]  # fmt: skip


def _as_texts(text: str) -> str:
    """JavaScript's numbers have 53 bits, and ids have 62: they become texts."""
    return _ID.sub(r'"id": "\1"', text)


def page(lines: list[dict[str, Any]], live: str | None = None) -> str:
    """One HTML page that shows a trace and loads nothing else. live: the address from which it fetches more lines."""
    data = _as_texts(json.dumps({"live": live, "lines": _thinned(lines)})).replace("<", "\\u003c")
    html = (Path(__file__).parent / "_inspect.html").read_text(encoding="utf-8")
    return html.replace("/*DATA*/", data)


class _GrowingTrace:
    """The lines of a file that another process may still write."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._offset = 0
        self.lines(0)

    def lines(self, begin: int) -> tuple[list[str], int]:
        with self._lock:
            try:
                with open(self._path, "rb") as file:
                    file.seek(self._offset)
                    whole = file.read().rpartition(b"\n")[0]  # the last line may lack its end yet
            except OSError as error:
                raise TraceError(f"{self._path}: {error}", status=1) from error
            for line in whole.decode(errors="replace").split("\n") if whole else ():
                self._lines.append(json.dumps(_checked(self._path, len(self._lines) + 1, line)))
            self._offset += len(whole) + 1 if whole else 0
            return self._lines[begin:], len(self._lines)


# ---- Live --------------------------------------------------------------------------------------------------------------


class _PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, lines_from: Callable[[int], tuple[list[str], int]], port: int) -> None:
        self.lines_from = lines_from
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _PageServer

    def do_GET(self) -> None:
        # Another site may resolve its own name to this address: its pages must not read the answer.
        host = self.headers.get("Host", "").rpartition(":")[0]
        address = urlsplit(self.path)
        if host not in ("127.0.0.1", "localhost") or address.path not in ("/", "/lines"):
            self.send_error(404 if host else 400)
            return
        if address.path == "/":
            self._answer("text/html", page([], live="lines"))
            return
        begin = parse_qs(address.query).get("from", ["0"])[0]
        if not begin.isdecimal():
            self.send_error(400, "from must be a number")
            return
        lines, following = self.server.lines_from(int(begin))
        text = ", ".join(map(_as_texts, lines))
        self._answer("application/json", f'{{"next": {following}, "lines": [{text}]}}')

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class Server:
    """Serves the page on 127.0.0.1 until close(). Made by serve()."""

    def __init__(self, lines_from: Callable[[int], tuple[list[str], int]], port: int) -> None:
        self._server = _PageServer(lines_from, port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="kvcache-inspect", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, exception_type: type[BaseException] | None, exception: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self.close()


def serve(source: Cache | Recorder | str | Path, port: int = 0) -> Server:
    """Shows a cache, a recorder or a trace on a page at `.address`, on this machine alone, which follows what happens.

    Args:
        source: a Cache: its state, twice a second. A Recorder with file None: its steps too. A path: a trace, also one that
            still grows.
        port: 0 = any that is free.

    Raises:
        OSError: the port is taken. TraceError: the trace cannot be read.
    """
    if isinstance(source, (str, Path)):
        return Server(_GrowingTrace(source).lines, port)
    recorder = Recorder(source, state_ms=500.0) if isinstance(source, Cache) else source

    def lines_from(begin: int) -> tuple[list[str], int]:
        recorder.poll()
        return recorder.lines(begin)

    return Server(lines_from, port)


def show(trace: Path, out: Path | None, port: int | None) -> None:
    """The command `kvcache inspect`."""
    if port is not None:
        with serve(trace, port) as server:
            print(f"{trace} is shown at {server.address} until Ctrl-C", flush=True)
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                return
    lines = read_trace(trace)
    if not lines:
        raise TraceError(f"{trace}: the file has no lines", status=1)
    out = trace.with_suffix(".html") if out is None else out
    out.write_text(page(lines), encoding="utf-8")
    print(out.resolve().as_uri())
