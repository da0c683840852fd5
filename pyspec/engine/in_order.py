"""Results of many requests in the order of their prompts, handed in a few ahead.

Owns the order, which prompt an error is of, and that nothing done is lost. Leaves to `pyspec.engine.engine` what a
prompt may be, and to the queue of the worker how many wait.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any

from pyspec.completion import Completion
from pyspec.engine.ticket import Ticket
from pyspec.errors import ClosedError, PyspecError, QueueFullError

__all__ = ["in_order"]


def in_order(
    prompts: Iterable[Any], hand_in: Callable[..., Ticket], *, ahead: int, goes_on: bool
) -> Generator[Completion | Exception, None, None]:
    """Hand in prompts and give their completions, in the same order; leaving early cancels the rest.

    Args:
        prompts: any number.
        hand_in: called with a prompt and `wait`: whether to wait for room in the queue.
        ahead: most requests handed in whose result was not given.
        goes_on: give what went wrong with a prompt in its place.

    Raises:
        Exception: of the first prompt that went wrong, after the completions before it; of `prompts` itself, or
            `ClosedError`, after all before it.
    """
    source = enumerate(prompts)
    waiting: deque[tuple[int, Ticket | Exception]] = deque()
    refused: tuple[int, Any] | None = None  # the queue was full
    last: Exception | None = None  # nothing can be handed in any more
    is_over = False
    try:
        while True:
            while len(waiting) < ahead and not is_over:
                try:
                    index, prompt = refused or next(source)
                except StopIteration:
                    is_over = True
                    break
                except Exception as error:  # of the iterable
                    is_over, last = True, error
                    break
                refused = None
                try:
                    waiting.append((index, hand_in(prompt, wait=not waiting)))
                except QueueFullError:
                    refused = index, prompt
                    break
                except ClosedError as error:
                    is_over, last = True, error
                except Exception as error:
                    waiting.append((index, error))
                    is_over = not goes_on
            if waiting:
                result = _result(*waiting[0])
                waiting.popleft()
                if isinstance(result, Exception) and not goes_on:
                    raise result
                yield result
            elif last is not None:
                raise last
            elif is_over:
                return
    finally:
        for _, ticket in waiting:
            if isinstance(ticket, Ticket):
                ticket.cancel()


def _result(index: int, found: Ticket | Exception) -> Completion | Exception:
    if isinstance(found, Ticket):
        try:
            return found.result()
        except Exception as error:
            found = error
    return _named(found, index)


def _named(error: Exception, index: int) -> Exception:
    """The error, saying which prompt it is of."""
    if isinstance(error, PyspecError) or (len(error.args) == 1 and isinstance(error.args[0], str)):
        with contextlib.suppress(Exception):  # of other classes whose objects cannot be copied
            named = copy.copy(error)
            named.args = (f"prompts[{index}]: {error}",)
            named.__cause__ = error
            return named
    with contextlib.suppress(AttributeError):  # Python 3.10 has no notes
        error.add_note(f"of prompts[{index}]")
    return error
