"""The handle of a request that an engine works on.

Owns waiting for its text and its result, from threads and from asyncio, and asking for its end. Leaves the work to
`pyspec.engine.scheduler`, which is the only one to call `push`, `finish` and `fail`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Any

from pyspec.arguments import check_call
from pyspec.completion import Completion
from pyspec.errors import UnsupportedError
from pyspec.generation import Generation

__all__ = ["Ticket", "refuse_own_thread"]

_log = logging.getLogger("pyspec")


def refuse_own_thread(worker: threading.Thread | None, what: str) -> None:
    """Refuse to wait for an engine in the thread that does its work.

    Raises:
        UnsupportedError: this is that thread.
    """
    if threading.current_thread() is worker:
        raise UnsupportedError(
            what=f"{what} in a callback of the same engine",
            why="callbacks run in the thread that does the work, which would wait for itself",
            way_out="use add_done_callback, or wait in another thread",
        )


class Ticket:
    """A request of an `Engine`: iterate over it for pieces of text, `result()` for the completion.

    In asyncio: `await ticket` for the completion, `async for piece in ticket` for the pieces. Every reader gets all
    pieces from the first one on. Thread-safe.

    Args:
        generation: what is generated.
        owner: an engine that is to live as long as the request.
        worker: the thread that works on it, None if nobody asks.
    """

    def __init__(self, generation: Generation, owner: object = None, *, worker: threading.Thread | None = None) -> None:
        self.generation = generation
        self._worker = worker
        self._owner = owner  # an engine that nobody holds lives as long as its requests
        self._future: Future[Completion] = Future()
        self._changed = threading.Condition()
        self._pieces: list[str] = []
        self._listeners: list[Callable[[], object]] = []

    # ------------------------------------------------------------- for users
    def result(self, timeout: float | None = None) -> Completion:
        """Wait for the completion.

        Args:
            timeout: seconds to wait at most, None for as long as it takes; the request goes on after it.

        Raises:
            InvalidValueError: no number of seconds.
            TimeoutError: not done in that time.
            UnsupportedError: not done, and this is a callback of the same engine, which would wait for itself.
            PyspecError: what went wrong with this request; whatever one of its callbacks raised.
        """
        check_call(timeout=timeout)
        if not self.done:
            refuse_own_thread(self._worker, "waiting for a request")
        try:
            return self._future.result(timeout)
        except TimeoutError:
            raise
        except Exception as error:  # Python 3.10 has a TimeoutError of its own here
            if type(error).__name__ == "TimeoutError" and not self._future.done():
                raise TimeoutError(f"not done after {timeout} s") from None
            raise

    @property
    def done(self) -> bool:
        """Whether `result` would return, or raise, at once."""
        return self._future.done()

    def cancel(self) -> None:
        """Ask for its end: the completion has what was generated so far, and finish reason "cancelled"."""
        self.generation.halt.cancel()

    def add_done_callback(self, function: Callable[[Ticket], object]) -> None:
        """Call `function` with this ticket when it is done, in the thread of the engine, or now if it is.

        What it raises is logged, and harms nobody.

        Raises:
            InvalidValueError: no function.
        """
        check_call(function=function)

        def call(_: object) -> None:
            try:
                function(self)
            except BaseException as error:
                if not isinstance(error, Exception) and threading.current_thread() is not self._worker:
                    raise  # Ctrl-C in the caller's own thread
                _log.exception("a done callback raised %s", type(error).__name__)

        self._future.add_done_callback(call)

    def __iter__(self) -> Iterator[str]:
        n = 0
        while True:
            with self._changed:
                while n == len(self._pieces) and not self.done:
                    refuse_own_thread(self._worker, "reading a request's pieces")
                    self._changed.wait()
                new = self._pieces[n:]
            yield from new
            n += len(new)
            if not new and self.done:
                self._future.result()
                return

    def __await__(self) -> Generator[Any, None, Completion]:
        """The completion; an awaiting task that is cancelled does not cancel the request."""
        import asyncio  # a tenth of the package's import, and seldom needed

        if not self.done:
            refuse_own_thread(self._worker, "awaiting a request")
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()

    async def __aiter__(self) -> AsyncIterator[str]:
        import asyncio

        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(changed.set)

        with self._changed:
            self._listeners.append(tell)
        n = 0
        try:
            while True:
                changed.clear()
                done = self.done  # asked first: what is done has all its pieces
                new = self._pieces[n:]
                for piece in new:
                    yield piece
                n += len(new)
                if not new and done:
                    self._future.result()
                    return
                if not new:
                    refuse_own_thread(self._worker, "reading a request's pieces")
                    await changed.wait()
        finally:
            with self._changed:
                self._listeners.remove(tell)

    def __repr__(self) -> str:
        return f"<Ticket {'done' if self.done else 'at work or waiting'}, {len(self.generation.tokens)} tokens>"

    # ------------------------------------------------------------- for the scheduler
    def push(self, piece: str) -> None:
        """New text."""
        if piece:
            with self._changed:
                self._pieces.append(piece)
            self._tell()

    def finish(self, completion: Completion) -> None:
        """It is done."""
        self._future.set_result(completion)
        self._tell()
        self._owner = None

    def fail(self, error: BaseException) -> None:
        """It cannot be done."""
        if isinstance(error, (StopIteration, StopAsyncIteration)):  # generators and asyncio take these for ends
            stopped, error = error, RuntimeError(f"a callback raised {type(error).__name__}")
            error.__cause__ = stopped
        self._future.set_exception(error)
        self._tell()
        self._owner = None

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()
