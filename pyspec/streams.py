"""Streams of text that end with their result.

Owns that a stream which is not read to its end is closed at once, whatever happened: until then it holds the model.
Leaves what the pieces are to those who make them; a stream inside another is closed with it by `contextlib.closing`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, TypeVar

__all__ = ["drained"]

_T = TypeVar("_T")


def drained(stream: Generator[Any, None, _T], on_text: Callable[[str], object] | None = None) -> _T:
    """The result of a stream.

    Args:
        stream: gives texts, possibly its result as the last item, and returns the result.
        on_text: called with each text. When it raises, the stream is closed: the traceback would keep it alive.
    """
    with closing(stream):
        while True:
            try:
                piece = next(stream)
            except StopIteration as end:
                result: _T = end.value
                return result
            if on_text is not None and isinstance(piece, str):
                on_text(piece)
