"""Where `up` speaks to the person who started it: whole lines, from any thread."""

import sys
import threading
from typing import TextIO


class Console:
    """Writes lines; silent once the reader has gone: looking after the roles is what matters."""

    def __init__(self, out: TextIO | None = None) -> None:
        """Write to `out`, by default standard output."""
        self._out = out or sys.stdout
        self._lock = threading.Lock()
        self._deaf = False

    def say(self, text: str) -> None:
        """Write a line, or several."""
        with self._lock:
            if self._deaf:
                return
            try:
                self._out.write(f"{text}\n")
                self._out.flush()
            except (BrokenPipeError, ValueError):
                self._deaf = True
