"""What callers hand to a generation, checked and brought to one form.

Owns prompts, token ids, stop strings, limits and unknown names; every refusal happens before anything is decoded.
Leaves sampling options to `pyspec.config`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pyspec._core import Vocab
from pyspec.errors import InvalidValueError, TokenRangeError, UnknownOptionError, VocabularyMissingError
from pyspec.speculators import Tokens, as_tokens

__all__ = ["as_max_tokens", "as_stops", "prompt_tokens", "refuse_unknown", "tokens_in_range"]


def prompt_tokens(vocab: Vocab, prompt: str | bytes | Sequence[int]) -> Tokens:
    """A prompt's token ids [n_tokens], special tokens of texts included.

    Raises:
        VocabularyMissingError: a text for a model without a text vocabulary.
        InvalidValueError: neither a text nor token ids, or a text of no tokens.
        TokenRangeError: an id outside the vocabulary.
    """
    if not isinstance(prompt, (str, bytes)):
        return tokens_in_range(prompt, vocab.n_tokens, name="prompt")
    if not vocab.has_text:
        raise VocabularyMissingError(what="a prompt given as text")
    ids = vocab.tokenize(prompt, add_special=True, parse_special=True)
    if not len(ids):
        raise InvalidValueError(name="prompt", value=prompt, allowed="a text of at least one token")
    return ids


def tokens_in_range(values: Sequence[int], n_vocab: int, *, name: str) -> Tokens:
    """A copy of `values` as token ids [n_tokens], each in the vocabulary.

    Raises:
        InvalidValueError: not whole numbers in a row.
        TokenRangeError: the first id outside 0 to `n_vocab` - 1.
    """
    try:
        ids = as_tokens(np.asarray(values)).copy()
    except (InvalidValueError, ValueError, TypeError, OverflowError):
        raise InvalidValueError(name=name, value=values, allowed="whole token ids, or text") from None
    bad = np.flatnonzero((ids < 0) | (ids >= n_vocab))
    if len(bad):
        raise TokenRangeError(token=int(ids[bad[0]]), index=int(bad[0]), n_vocab=n_vocab)
    return ids


def as_stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Stop strings as a tuple.

    Raises:
        InvalidValueError: something else than texts, or an empty one.
    """
    stops = () if stop is None else (stop,) if isinstance(stop, str) else stop
    if not isinstance(stops, (list, tuple)) or not all(isinstance(s, str) and s for s in stops):
        raise InvalidValueError(name="stop", value=stop, allowed="a text or several, none of them empty")
    return tuple(stops)


def as_max_tokens(max_tokens: int | None) -> int | None:
    """The limit; a negative one means none, as in llama.cpp.

    Raises:
        InvalidValueError: not a whole number.
    """
    if max_tokens is None:
        return None
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, (int, np.integer)):
        raise InvalidValueError(name="max_tokens", value=max_tokens, allowed="a whole number, or None for no limit")
    return int(max_tokens) if max_tokens >= 0 else None


def refuse_unknown(
    given: dict[str, Any], function: Callable[..., object], known: Iterable[str] = (), *, more: bool = True
) -> None:
    """Raise for a keyword that `known` does not have; with `more` the error offers what `function` names, too.

    Raises:
        UnknownOptionError: with the nearest name that exists.
    """
    known = set(known)
    for name in given:
        if name not in known:
            named = {
                p.name
                for p in inspect.signature(function).parameters.values()
                if more and p.kind is not inspect.Parameter.VAR_KEYWORD and p.name != "self"
            }
            raise UnknownOptionError(name=name, known=known | named)
