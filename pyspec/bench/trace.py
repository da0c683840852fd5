"""Traces: how long the drafts of a real generation were and how much of each was right, to be played again.

Owns the file's format (a JSON list of [n_drafted, n_accepted] pairs, a round each) and the recording of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pyspec.errors import InvalidValueError
from pyspec.speculators import History, Speculator, Tokens

__all__ = ["MAX_DRAFT", "Trace", "Traced", "read_trace", "write_trace"]

MAX_DRAFT = 256
"""Longest draft that a benchmark plays."""

Trace = tuple[tuple[int, int], ...]  # (n_drafted, n_accepted) of each round

_PAIR = f"[n_drafted, n_accepted] with 0 <= n_accepted <= n_drafted <= {MAX_DRAFT}"


class Traced:
    """Another speculator, with the verdict about each of its drafts on record in `pairs`.

    Rounds in which it had nothing to propose are (0, 0). Without a budget, every draft is a round's:

        llm = pyspec.Llama(MODEL, budget="off")
        traced = Traced(make("ngram-mod:n_match=6,n_min=2", n_vocab=llm.n_vocab))
        llm.generate(prompt, spec=traced)
        write_trace("trace.json", traced.pairs)
    """

    def __init__(self, speculator: Speculator) -> None:
        self._speculator = speculator
        self.pairs: list[tuple[int, int]] = []

    @property
    def name(self) -> str:
        """The speculator's name."""
        return self._speculator.name

    @property
    def author(self) -> Speculator | None:
        """Whose draft is open, as the speculator says."""
        return getattr(self._speculator, "author", None) or self._speculator

    @property
    def nbytes(self) -> int:
        """The speculator's bytes."""
        return self._speculator.nbytes

    def begin(self, tokens: Tokens) -> None:
        """Tell the speculator; the record goes on."""
        self._speculator.begin(tokens)

    def draft(self, history: History, n_max: int) -> Sequence[int] | Tokens:
        """The speculator's draft."""
        draft = self._speculator.draft(history, n_max)
        if not len(draft):
            self.pairs.append((0, 0))
        return draft

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Record the verdict about an own draft and pass it on."""
        if own:
            self.pairs.append((n_drafted, n_accepted))
        self._speculator.accept(n_drafted, n_accepted, own=own)

    def get_state(self) -> dict[str, Any]:
        """The speculator's state."""
        return self._speculator.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the speculator's state."""
        self._speculator.set_state(state)


def write_trace(path: str | PathLike[str], pairs: Iterable[Sequence[int]]) -> None:
    """Write a trace: `Traced.pairs`, or `Scripted.verdicts` (whatever follows the two numbers is left out).

    Raises:
        InvalidValueError: no pairs, or one that cannot be; nothing was written.
        OSError: the file cannot be written.
    """
    trace = _checked([list(pair[:2]) for pair in pairs], "trace")
    Path(path).write_text(json.dumps(trace) + "\n", encoding="utf-8")


def read_trace(path: str | PathLike[str]) -> Trace:
    """Read a trace.

    Raises:
        InvalidValueError: not a trace; names the file and the first round that is wrong.
        OSError: the file cannot be read.
    """
    text = Path(path).read_bytes()
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidValueError(
            name=f"trace {path}", value=text[:40], allowed=f"JSON, a list of {_PAIR}; {error}"
        ) from None
    return _checked(data, f"trace {path}")


def _checked(data: Any, name: str) -> Trace:
    if not isinstance(data, list) or not data:
        raise InvalidValueError(name=name, value=data, allowed=f"a list of at least one {_PAIR}")
    for i, pair in enumerate(data):
        whole = isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair)
        if not whole or not 0 <= pair[1] <= pair[0] <= MAX_DRAFT:
            raise InvalidValueError(name=f"{name}, round {i}", value=pair, allowed=_PAIR)
    return tuple((pair[0], pair[1]) for pair in data)
