"""A bar on stderr for what takes long.

Owns its drawing, and that it leaves no trace; draws nothing where stderr is neither a terminal nor a notebook's.
Leaves what is measured to the caller, who calls it with fractions.
"""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["ProgressBar", "PromptBar"]

_WIDTH = 30


class ProgressBar:
    """A context manager to be called with 0.0 to 1.0; the line is wiped at the end.

    Being called at all is what lets Ctrl-C through to Python during a long native call.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._shown = ""
        self._stream = sys.stderr if sys.stderr.isatty() or "ipykernel" in sys.modules else None

    def __call__(self, fraction: float) -> None:
        """Show `fraction`."""
        if self._stream is None:
            return
        n_full = int(_WIDTH * fraction)
        line = f"{self._label} [{'#' * n_full}{'.' * (_WIDTH - n_full)}] {fraction:4.0%}"
        if line != self._shown:
            self._shown = line
            self._stream.write(f"\r{line}")
            self._stream.flush()

    def wipe(self) -> None:
        """Leave no trace."""
        if self._stream is not None and self._shown:
            self._stream.write(f"\r{' ' * len(self._shown)}\r")
            self._stream.flush()
            self._shown = ""

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wipe()


class PromptBar:
    """For `on_progress` of a generation: shown between the decodes of a prompt that takes several, wiped behind it."""

    def __init__(self, label: str = "reading the prompt") -> None:
        self._bar = ProgressBar(label)

    def __call__(self, n_done: int, n_total: int) -> None:
        """`n_done` of the prompt's `n_total` tokens are in memory."""
        if n_done < n_total:
            self._bar(n_done / n_total)
        else:
            self._bar.wipe()

    def __enter__(self) -> PromptBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.wipe()
