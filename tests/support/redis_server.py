"""Redis servers of tests: one that answers, and one that accepts connections and never answers."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class RedisServer:
    """Use it by `with`. kill() ends it as a crash would, and start() starts it again, empty."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        self.process = subprocess.Popen([PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir",
                                         str(self.folder)], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise TimeoutError("the server did not start")

    def command(self, *words: bytes | str) -> bytes:
        """The first line of the reply to a command."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
            return connection.makefile("rb").readline().strip()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class SilentServer:
    """Connections to it are made, and nothing comes back. Use it by `with`."""

    def __enter__(self) -> SilentServer:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)  # the system accepts for it
        self.url = f"redis://127.0.0.1:{self.socket.getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
