"""Shows several texts as they grow: redrawn in place on a terminal, plain lines anywhere else."""
import shutil
import sys
import time

FRAME_SECONDS = 0.1


class Display:
    """One line a user and a progress bar below. Without a terminal: each text once, when it is complete."""

    def __init__(self, names, stream=None):
        self.names, self.texts = names, [""] * len(names)
        self._stream = stream or sys.stdout
        self._live = self._stream.isatty()
        self._lines_drawn = 0
        self._next_frame = 0.0

    def progress(self, label: str, done: int, total: int, final: bool = False) -> None:
        """Redraws, at most ten times a second."""
        if not self._live or (time.monotonic() < self._next_frame and not final):
            return
        self._next_frame = time.monotonic() + FRAME_SECONDS
        columns = shutil.get_terminal_size().columns - 1
        lines = [self._last_part(f"{name} ", text, columns) for name, text in zip(self.names, self.texts)]
        lines.append(_bar(label, done, total, columns))
        self._erase()
        self._stream.write("".join(line + "\n" for line in lines))
        self._stream.flush()
        self._lines_drawn = len(lines)

    def complete(self, index: int) -> None:
        if not self._live:
            print(f"{self.names[index]} {self.texts[index].strip()}", file=self._stream, flush=True)

    def close(self) -> None:
        """On a terminal: replaces the moving lines by the whole texts."""
        if self._live:
            self._erase()
            for name, text in zip(self.names, self.texts):
                print(f"{name} {text.strip()}", file=self._stream)

    def _erase(self) -> None:
        if self._lines_drawn:
            self._stream.write(f"\x1b[{self._lines_drawn}A\x1b[J")  # up, then clear to the end of the screen
            self._lines_drawn = 0

    @staticmethod
    def _last_part(head: str, text: str, columns: int) -> str:
        text = " ".join(text.split())
        room = max(0, columns - len(head))
        return (head + (text if len(text) <= room else "..." + text[len(text) - max(0, room - 3):]))[:max(0, columns)]


def _bar(label: str, done: int, total: int, columns: int) -> str:
    width = 30
    filled = width * done // max(1, total)
    return f"{label} [{'#' * filled}{'-' * (width - filled)}] {done}/{total}"[:max(0, columns)]
