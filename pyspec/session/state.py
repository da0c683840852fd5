"""What a session's `Llama` knows of its text, for a file and back: memory, draft model, what speculators learned.

Owns which of it belongs to the session, and that what cannot be had again costs time and no text. Leaves the text to
`pyspec.session`, the file to `pyspec.session.file`.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import numpy as np

from pyspec.errors import PyspecError
from pyspec.held import HeldMemory, hold, take
from pyspec.llm import Llama
from pyspec.session.plain_data import pack
from pyspec.speculators import History, Spec, Tokens
from pyspec.speculators.history import n_common

__all__ = ["NO_SPEC", "drop_behind", "give_drafting", "give_memory", "held_drafting", "held_memory"]

NO_SPEC: Any = object()
"""A session that names no speculator: that of its `Llama`."""

_log = logging.getLogger("pyspec")


def held_memory(llm: Llama, text: Tokens) -> HeldMemory | None:
    """What memory holds of `text`, None for nothing or where it holds another text.

    Tokens behind the text are forgotten first, as the next turn would.
    """
    decoder = llm._decoder
    memory, checkpoints = decoder.memory, decoder.checkpoints
    n_past = memory.n_past
    n = n_common(decoder.history.view()[:n_past], text)
    if n not in (n_past, len(text)) or checkpoints is None:
        return None
    n = checkpoints.go_back(n)
    return hold(memory, checkpoints, text[:n]) if n else None


def give_memory(llm: Llama, held: HeldMemory) -> None:
    """Have what was held; where that cannot be, memory is empty, and a log line says why."""
    decoder = llm._decoder
    try:
        take(decoder.memory, decoder.checkpoints, held)
        decoder.history = History(held.tokens)
    except (PyspecError, MemoryError) as error:
        with contextlib.suppress(PyspecError):
            decoder.memory.clear()
        _log.warning("the saved memory is of no use here, the text will be decoded again: %s", error)


def drop_behind(llm: Llama, text: Tokens, n_keep: int, n_drop: int) -> None:
    """Where memory holds the first `n_keep` + `n_drop` tokens of `text`, drop those behind the first `n_keep`."""
    decoder, end = llm._decoder, n_keep + n_drop
    held = decoder.history.view()[: decoder.memory.n_past]
    if len(held) > end and np.array_equal(held[:end], text[:end]):
        decoder.shift(n_keep, n_drop)


def held_drafting(llm: Llama, spec: Spec) -> dict[str, Any] | None:
    """What the session's speculators learned, a draft model's memory included; None where there are none.

    A speculator whose state is no plain data, or cannot be had, starts anew, and a log line says so.
    """
    drafting = llm._speculators.drafting(llm._spec if spec is NO_SPEC else spec)
    if drafting.speculator is None:
        return None
    try:
        state = drafting.get_state()
    except PyspecError as error:
        _log.warning("what the speculators learned is not saved: %s", error)
        return None
    for i, (member, one) in enumerate(zip(drafting.members, state["speculators"], strict=True)):
        try:
            pack(one, [])
        except TypeError as error:
            _log.warning("what %s learned is not saved: %s", member.name, error)
            state["speculators"][i] = None
    return state


def give_drafting(llm: Llama, spec: Spec, state: dict[str, Any]) -> None:
    """Have the speculators draft as the saved ones would; others start anew, and a log line says so."""
    try:
        llm._speculators.drafting(llm._spec if spec is NO_SPEC else spec).set_state(state)
    except PyspecError as error:
        _log.warning("what the saved speculators learned is of no use here, they read the text again: %s", error)
