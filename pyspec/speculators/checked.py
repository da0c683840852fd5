"""The border to speculators, which may be anybody's code: their mistakes become one error.

Owns the checks of a draft and the wrapping of exceptions; leaves to the decoder what to do about a bad
speculator. A `SpeculatorError` of a member of a chain passes unchanged, so that it names the member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from pyspec.errors import SpeculatorError, StateError
from pyspec.shown import shown
from pyspec.speculators.adapted import own_object
from pyspec.speculators.history import History, Tokens
from pyspec.speculators.protocol import Law, Speculator

__all__ = [
    "checked_accept",
    "checked_begin",
    "checked_draft",
    "checked_get_state",
    "checked_laws",
    "checked_reseed",
    "checked_set_state",
    "checked_unread",
    "name_of",
    "optional",
    "optional_seconds",
]

_ONLY_INT = {int}
_TRUTHS = ("decodes", "draws")


def checked_draft(speculator: Speculator, history: History, n_max: int, n_vocab: int) -> list[int]:
    """The speculator's draft as Python ints, at most `n_max` of them, each in the vocabulary.

    Accepted are sequences and one-dimensional arrays of whole numbers; strings, bytes, bools and floats are
    not.

    Raises:
        SpeculatorError: it raised, returned something else, an id outside 0 to `n_vocab` - 1, or more than
            `n_max` tokens (not cut in silence: a speculator that ignores its limit has a mistake worth
            knowing).
    """
    n_decided, epoch = len(history), history.epoch
    try:
        proposed: object = speculator.draft(history.read_only, n_max)
        draft = list(proposed) if type(proposed) is list else _as_list(proposed)
        if draft and set(map(type, draft)) != _ONLY_INT:
            draft = [_as_int(token) for token in draft]
    except SpeculatorError:
        raise
    except _WrongDraftError as error:
        raise SpeculatorError(speculator=speculator.name, reason=str(error)) from None
    except Exception as error:
        raise _failed(speculator, "draft", error) from error
    if len(history) != n_decided or history.epoch != epoch:
        raise SpeculatorError(
            speculator=speculator.name, reason="draft changed the history, which only the decoder may do"
        )
    if not draft:
        return draft
    if len(draft) > n_max:
        raise SpeculatorError(
            speculator=speculator.name, reason=f"drafted {len(draft)} tokens, at most {n_max} were asked for"
        )
    low, high = min(draft), max(draft)
    if low < 0 or high >= n_vocab:
        wrong = low if low < 0 else high
        raise SpeculatorError(
            speculator=speculator.name,
            reason=f"drafted token {shown(wrong)} at index {draft.index(wrong)}, known are 0 to {n_vocab - 1}",
        )
    return draft


def checked_begin(speculator: Speculator, tokens: Tokens) -> None:
    """`begin` with the speculator's own exceptions told as such.

    Raises:
        SpeculatorError: it raised.
    """
    with _told(speculator, "begin"):
        speculator.begin(tokens)


def checked_accept(speculator: Speculator, n_drafted: int, n_accepted: int, *, own: bool) -> None:
    """`accept` with the speculator's own exceptions told as such.

    Raises:
        SpeculatorError: it raised.
    """
    with _told(speculator, "accept"):
        speculator.accept(n_drafted, n_accepted, own=own)


def checked_reseed(speculator: Speculator, seed: int) -> None:
    """`reseed` of a speculator that draws, with its own exceptions told as such.

    Raises:
        SpeculatorError: it raised, or has no such call.
    """
    with _told(speculator, "reseed"):
        speculator.reseed(seed)  # type: ignore[attr-defined]


def checked_get_state(speculator: Speculator) -> dict[str, Any]:
    """`get_state` with the speculator's own exceptions told as such.

    Raises:
        SpeculatorError: it raised.
    """
    with _told(speculator, "get_state"):
        return speculator.get_state()


def checked_unread(speculator: Speculator, history: History) -> int | None:
    """What a speculator says is new to it of a history, `n_unread(history)`; None where it has no such call.

    Raises:
        SpeculatorError: it raised, or gave no whole number from 0 to the history's length.
    """
    call = _read(speculator, "n_unread", 0.0)
    if not callable(call):
        return None
    with _told(speculator, "n_unread"):
        said = call(history.read_only)
    try:
        number = index(said)
    except Exception:
        number = -1
    if not 0 <= number <= len(history):
        reason = f"n_unread gave {shown(said)}, not a whole number from 0 to {len(history)}, the history's length"
        raise SpeculatorError(speculator=speculator.name, reason=reason)
    return number


def checked_set_state(speculator: Speculator, state: Any) -> None:
    """`set_state` with the speculator's own exceptions told as such.

    Raises:
        StateError: not a state of such a speculator.
        SpeculatorError: it raised something else.
    """
    try:
        with _told(speculator, "set_state"):
            speculator.set_state(state)
    except SpeculatorError as error:
        if isinstance(error.__cause__, StateError):
            raise error.__cause__ from None
        raise


def name_of(speculator: Any) -> str:
    """The name of a speculator, or of an object that will be one; its class's where it has none.

    Raises:
        SpeculatorError: reading `name` raised, or it is no text.
    """
    kind = type(speculator).__name__
    try:
        name = getattr(speculator, "name", kind)
    except Exception as error:
        raise SpeculatorError(speculator=kind, reason=f"its name raised {type(error).__name__}: {error}") from error
    if not isinstance(name, str) or not name:
        raise SpeculatorError(speculator=kind, reason=f"its name is {shown(name)}, not a text")
    return name


def optional(speculator: Speculator, name: str) -> int:
    """An attribute that a speculator may have: `match_length`, or a truth like `decodes`; 0 where it has none.

    Raises:
        SpeculatorError: reading it raised, or it is no whole number from 0 on.
    """
    value = _read(speculator, name, 0)
    try:
        number = int(value) if isinstance(value, np.bool_) else index(value)
    except Exception:
        number = -1
    if not 0 <= number < 2**63:
        allowed = "True or False" if name in _TRUTHS else "a whole number from 0 on"
        raise SpeculatorError(speculator=speculator.name, reason=f"its {name} is {shown(value)}, not {allowed}")
    return number


def optional_seconds(speculator: Speculator, name: str) -> float:
    """An attribute in seconds that a speculator may have, like `token_s`; 0.0 where it has none.

    Raises:
        SpeculatorError: reading it raised, or it is no number from 0 on.
    """
    value = _read(speculator, name, 0.0)
    seconds = float(value) if isinstance(value, Real) and not isinstance(value, bool) and value < 2**63 else -1.0
    if not seconds >= 0.0:
        reason = f"its {name} is {shown(value)}, not seconds from 0 on"
        raise SpeculatorError(speculator=speculator.name, reason=reason)
    return seconds


def checked_laws(speculator: Speculator, draft: list[int], start: int) -> list[Law]:
    """The laws that the tokens of `draft`, its author's from `start` on, were drawn from.

    Raises:
        SpeculatorError: they are missing, no laws, or give a drafted token no chance.
    """
    with _told(speculator, "its laws"):
        laws: list[Any] = list(speculator.laws)[start : start + len(draft)]  # type: ignore[attr-defined]
        if len(laws) != len(draft):
            raise ValueError(f"{len(laws)} for a draft of {len(draft)}")
        return [_as_law(law, token) for law, token in zip(laws, draft, strict=True)]


def _as_law(law: Any, token: int) -> Law:
    ids, chances = np.asarray(law[0]), np.asarray(law[1])
    if ids.ndim != 1 or ids.shape != chances.shape or ids.dtype.kind not in "iu" or chances.dtype.kind != "f":
        raise ValueError(f"ids {ids.dtype} {ids.shape} with probabilities {chances.dtype} {chances.shape}")
    if len(np.unique(ids)) < len(ids) or (ids < 0).any():
        raise ValueError("ids that are negative or stand twice")
    total = float(chances.sum())
    if not np.isfinite(chances).all() or (chances < 0).any() or not 0.999 < total < 1.001:
        raise ValueError(f"probabilities that are negative or sum to {total:g}, not 1")
    if not (chances[ids == token] > 0).any():
        raise ValueError(f"token {token} was drafted and has no probability")
    return ids.astype(np.int32), (chances / total).astype(np.float32)


class _WrongDraftError(Exception):
    pass


def _as_list(proposed: object) -> list[int]:
    if isinstance(proposed, np.ndarray):
        if proposed.ndim != 1 or (proposed.size and proposed.dtype.kind not in "iu"):
            raise _WrongDraftError(f"drafted {proposed.dtype} of shape {proposed.shape}, not token ids")
        return [int(token) for token in proposed.tolist()]
    if isinstance(proposed, (str, bytes, bytearray, memoryview)) or not isinstance(proposed, Sequence):
        raise _WrongDraftError(f"drafted {type(proposed).__name__}, not a sequence of token ids")
    return list(proposed)


def _as_int(token: object) -> int:
    try:
        if not isinstance(token, bool):
            return index(token)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise _WrongDraftError(f"drafted {shown(token)} ({type(token).__name__}), not a token id")


def _failed(speculator: Speculator, call: str, error: Exception) -> SpeculatorError:
    try:
        said = str(error)
    except Exception:
        said = "(it cannot say what)"
    return SpeculatorError(speculator=speculator.name, reason=f"{call} raised {type(error).__name__}: {said}")


def _read(speculator: Speculator, name: str, default: float) -> Any:
    """An attribute that may be missing; one that is there and cannot be read is no missing one."""
    owner = own_object(speculator)
    try:
        if hasattr(type(owner), name):
            return getattr(owner, name)
        return getattr(owner, name, default)
    except Exception as error:
        raise _failed(speculator, f"its {name}", error) from error


@contextmanager
def _told(speculator: Speculator, call: str) -> Iterator[None]:
    try:
        yield
    except SpeculatorError:
        raise
    except Exception as error:
        raise _failed(speculator, call, error) from error
