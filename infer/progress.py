"""A one-line progress display on stderr: how far, how fast, how long still."""

import sys
import time


class Progress:
    """`with Progress("decode", total) as progress: progress.add(tokens=5, done=1)`.

    On a terminal the line is redrawn; elsewhere a line is printed now and then, so that logs show
    progress without filling up.
    """

    def __init__(self, name: str, total: int, unit: str = "prompts") -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0
        self.tokens = 0
        self._start = time.monotonic()
        self._shown = 0.0
        self._live = sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self._show()
        if self._live:
            print(file=sys.stderr)

    def add(self, *, tokens: int = 0, done: int = 0) -> None:
        self.tokens += tokens
        self.done += done
        now = time.monotonic()
        if now - self._shown >= (0.2 if self._live else 10.0):
            self._shown = now
            self._show()

    def _show(self) -> None:
        elapsed = max(time.monotonic() - self._start, 1e-9)
        line = f"{self.name}: {self.done}/{self.total} {self.unit}, "
        line += f"{self.tokens / elapsed:.0f} tokens/s, {elapsed:.0f} s"
        if 0 < self.done < self.total:
            line += f", {elapsed / self.done * (self.total - self.done):.0f} s left"
        if self._live:
            print(f"\r{line:<78}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
