"""What is computed now, on one line: in a terminal, in a notebook, or step by step in a log."""

from __future__ import annotations

import shutil
import sys
from time import monotonic
from typing import Final, Self, TextIO

from xclp_crypto.transport.driver import Progress

PERIOD: Final = 0.1
"""Seconds between two changes of the line."""


class ProgressLine:
    """Shows the progress of a run; give it as `progress`.

    In a terminal and in a notebook of Jupyter one line changes; elsewhere each step is a line.

    Args:
        file: where to write; standard error by default.

    Examples:
        >>> import sys
        >>> from xclp_crypto import ProgressLine, secure_sum
        >>> with ProgressLine(sys.stdout) as progress:
        ...     result = secure_sum([[1.0], [2.0], [3.0]], progress=progress)
        setup …
        share …
        upload …
        reveal …
    """

    def __init__(self, file: TextIO | None = None) -> None:
        notebook = file is None and "ipykernel" in sys.modules  # its standard error is no terminal
        self._file = sys.stderr if file is None else file
        self._changes = notebook or self._file.isatty()
        self._steps: set[str] = set()
        self._next = 0.0
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        """Take a report of a driver."""
        if not self._changes:
            if progress.step not in self._steps:
                self._write(f"{progress.step} …\n")
            self._steps.add(progress.step)
        elif monotonic() >= self._next:
            self._next = monotonic() + PERIOD
            self._show(str(progress))

    def _show(self, text: str) -> None:
        """Write `text` over what the line was; a terminal's line is not exceeded."""
        if self._file.isatty():
            text = text[: shutil.get_terminal_size().columns - 1]
        self._write(f"\r{text:{self._width}}")
        self._width = len(text)

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._width:
            self._show("")
            self._write("\r")
