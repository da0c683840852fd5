"""ngram-map-k: drafts what followed the last n tokens when they stood in this history before.

Owns which occurrence is drafted from, through an exact index of the history and learned draft lengths.
Names and defaults as in llama.cpp (common/ngram-map.h, key-only mode); differences are told at the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec.config import int_between, validate
from pyspec.errors import StateError
from pyspec.speculators.draft_lengths import DraftLengths
from pyspec.speculators.history import History, Tokens, as_tokens
from pyspec.speculators.ngram_chains import NgramChains, continuation
from pyspec.speculators.protocol import check_verdict

__all__ = ["NgramMapK", "NgramMapKOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramMapKOptions:
    """Key length `size_n`, draft length `size_m`, earlier occurrences needed `min_hits`.

    Raises:
        InvalidValueError: out of range.
    """

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1

    _CHECKS: ClassVar[dict[str, Any]] = {
        "size_n": int_between(1, 1024),
        "size_m": int_between(1, 1024),
        "min_hits": int_between(1, 1024),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)


class NgramMapK:
    """Speculator of one sequence: its last `size_n` tokens are the key, the draft is what followed it.

    Of the history alone: a new `begin` starts from nothing but the learned lengths. Where the latest
    occurrence is so near that its continuation runs into the end of the history, the draft repeats that
    period.

    A key whose draft was accepted in part drafts that many tokens next time, at least one; full acceptance
    doubles the length again, up to `size_m`. (llama.cpp only shortens, wants `size_m` tokens after an
    occurrence, may take an older one, and ignores `min_hits` in this mode.) The 1,024 latest shortened keys
    are remembered.
    """

    name = "ngram-map-k"

    def __init__(self, options: NgramMapKOptions | None = None) -> None:
        self.options = options or NgramMapKOptions()
        self._chains = NgramChains(self.options.size_n)
        self._lengths = DraftLengths(self.options.size_n, self.options.size_m)
        self._open_key: bytes | None = None

    @property
    def match_length(self) -> int:
        """Tokens that a draft's source agrees with."""
        return self.options.size_n

    @property
    def nbytes(self) -> int:
        """Bytes held: 1 MiB, 4 to 8 a token of history, and the shortened keys (at most 1,024)."""
        return self._chains.nbytes + self._lengths.nbytes

    def begin(self, tokens: Tokens) -> None:
        """Index the prompt, forgetting the history before it."""
        self._open_key = None
        self._chains.begin(as_tokens(tokens))

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """What followed the latest earlier occurrence of the key; at most `n_max` tokens."""
        self._open_key = None
        self._chains.follow(history)
        tokens = history.view()
        if n_max <= 0:
            return []
        found = self._chains.find(tokens, self.options.min_hits)
        if found is None:
            return []
        self._open_key, end = found
        return continuation(tokens, end, min(n_max, self._lengths.get(self._open_key)))

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Learn from the verdict on one's own draft how long the next one with the same key may be."""
        check_verdict(n_drafted, n_accepted)
        key, self._open_key = self._open_key, None
        if own and key is not None and n_drafted > 0:
            self._lengths.judge(key, n_drafted, n_accepted)

    def get_state(self) -> dict[str, Any]:
        """The shortened keys [n_keys, size_n] and their lengths [n_keys]; the history gives the index."""
        return {"kind": self.name, **self._lengths.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved speculator did, from the history given to the next `draft`.

        Raises:
            StateError: of another kind or `size_n`, or damaged; nothing was changed.
        """
        try:
            if state["kind"] != self.name:
                raise StateError(reason=f"of speculator {state['kind']!r}, not {self.name!r}")
        except (KeyError, TypeError) as error:
            raise StateError(reason=f"no {self.name} state: {error!r}") from error
        self._lengths.set_state(state)
        self._open_key = None
        self._chains.clear()
