"""Generations for asyncio: they run in a thread of their own, the event loop never waits for one.

Owns the thread, the way of its pieces to the loop, and that a cancelled task has stopped its generation when it ends.
Leaves generating to `pyspec.generating`, which is for one generation at a time; an `Engine` serves many.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, TypeVar

from pyspec.arguments import check_call
from pyspec.completion import Completion
from pyspec.halt import Halt

if TYPE_CHECKING:
    from pyspec.generating import Generating

__all__ = ["adrained", "astream", "in_thread"]

_T = TypeVar("_T")
_END = object()


async def in_thread(start: Callable[[], Generator[_T, None, Any]], stop: Callable[[], object]) -> AsyncGenerator[_T]:
    """The items of a generator that runs in a thread of its own.

    The thread runs ahead of a slow reader. An error there is raised here. When this ends early (the task is cancelled,
    or `aclose`), `stop` is called, and the end of the thread is waited for.

    Args:
        start: makes the generator; called in the thread.
        stop: makes it end soon; called in the loop's thread, also when it has not begun or is over.
    """
    loop = asyncio.get_running_loop()
    items: asyncio.Queue[tuple[object, Any]] = asyncio.Queue()
    over = asyncio.Event()

    def tell(call: Callable[..., object], *args: object) -> None:
        try:
            loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop was closed without waiting: nobody listens any more
            stop()

    def work() -> None:
        try:
            with closing(start()) as generator:
                for item in generator:
                    tell(items.put_nowait, (None, item))
            tell(items.put_nowait, (_END, None))
        except BaseException as error:
            tell(items.put_nowait, (error, None))
        finally:
            tell(over.set)

    threading.Thread(target=work, name="pyspec-generation", daemon=True).start()
    try:
        while True:
            end, item = await items.get()
            if isinstance(end, BaseException):
                raise end
            if end is _END:
                return
            yield item
    finally:
        stop()
        await _wait(over)


async def _wait(over: asyncio.Event) -> None:
    """Wait, whatever is cancelled meanwhile: the object that is at work can only be used again afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not over.is_set():
        try:
            await over.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def astream(
    llm: Generating, start: Callable[[Halt], Generator[str | Completion, None, Any]]
) -> AsyncGenerator[str | Completion]:
    """A generation of `llm`, which `start` makes in the thread, to be ended by the halt that it gets."""
    halt = Halt()

    def stop() -> None:
        halt.cancel()
        llm._at_work.abort(halt)

    return in_thread(lambda: start(halt), stop)


async def adrained(
    stream: AsyncGenerator[str | Completion, None], on_text: Callable[[str], object] | None
) -> Completion:
    """The completion of a stream, whose texts go to `on_text`; see `pyspec.streams.drained`."""
    async with aclosing(stream):
        check_call(on_text=on_text)
        async for piece in stream:
            if isinstance(piece, Completion):
                return piece
            if on_text is not None:
                on_text(piece)
    raise AssertionError("a stream ends with its completion")
