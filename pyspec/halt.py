"""Ends of a generation that come from outside: a time that is over, a caller who has enough, an abort.

Owns when they hold, and that an abort stops the generation that it was meant for and no later one. Leaves to the
decoder where a generation stops, which is in front of a decode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from pyspec._core import Context

__all__ = ["AtWork", "Halt"]


class Halt:
    """Whether a generation is to end before it is done; asked before every decode.

    `cancel` may be called from any thread, also before the generation begins.
    """

    __slots__ = ("_cancelled", "_deadline")

    def __init__(self) -> None:
        self._cancelled = False
        self._deadline: float | None = None

    def limit(self, timeout_s: float | None) -> None:
        """Let the time run from now on, unless it runs already; None for no limit."""
        if timeout_s is not None and self._deadline is None:
            self._deadline = perf_counter() + timeout_s

    def cancel(self) -> None:
        """It is enough."""
        self._cancelled = True

    def __call__(self) -> str | None:
        """The finish reason, "cancelled" or "timeout"; None to go on."""
        if self._cancelled:
            return "cancelled"
        if self._deadline is not None and perf_counter() >= self._deadline:
            return "timeout"
        return None


class AtWork:
    """The generation that a context works for, to be stopped from any thread, a signal handler among them.

    Args:
        context: decodes for one generation at a time.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.RLock()
        self._halt: Halt | None = None

    @contextmanager
    def on(self, halt: Halt) -> Iterator[None]:
        """The generation of `halt` is at work inside; an abort that came too late for it is forgotten at its end."""
        with self._lock:
            self._halt = halt
        try:
            yield
        finally:
            with self._lock:
                self._halt = None
                self._context.clear_abort()

    def cancel(self) -> None:
        """Let the generation at work, if any, end before its next decode."""
        with self._lock:
            if self._halt is not None:
                self._halt.cancel()

    def abort(self, halt: Halt | None = None) -> None:
        """Break off the decode of the generation at work, if any; with `halt` only if it is that one's."""
        with self._lock:
            if self._halt is not None and halt in (None, self._halt):
                self._context.abort()
