"""What the speculators that look up the last n tokens share: options, the index of the history, learned lengths.

Owns their calls but `draft`, which is where they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec.config import int_between, validate
from pyspec.speculators.draft_lengths import DraftLengths
from pyspec.speculators.history import Tokens, as_tokens
from pyspec.speculators.ngram_chains import NgramChains
from pyspec.speculators.protocol import check_kind, check_verdict

__all__ = ["LearnedLookup", "NgramLookup", "NgramLookupOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramLookupOptions:
    """Length of what is looked up `size_n`, of a draft `size_m`, earlier occurrences needed `min_hits`.

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


class NgramLookup:
    """A speculator of one sequence that drafts from earlier places of its last `size_n` tokens, and learns nothing."""

    name: ClassVar[str]

    def __init__(self, options: NgramLookupOptions) -> None:
        self.options = options
        self._chains = NgramChains(options.size_n)

    @property
    def match_length(self) -> int:
        """Tokens that a draft's source agrees with."""
        return self.options.size_n

    @property
    def nbytes(self) -> int:
        """Bytes held: 1 MiB, and 4 to 8 a token of history."""
        return self._chains.nbytes

    def begin(self, tokens: Tokens) -> None:
        """Index the prompt, forgetting the history before it."""
        self._chains.begin(as_tokens(tokens))

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Change nothing."""
        check_verdict(n_drafted, n_accepted)

    def get_state(self) -> dict[str, Any]:
        """The name alone; the history gives the index."""
        return {"kind": self.name}

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft from the history given to the next `draft`.

        Raises:
            StateError: of another kind; nothing was changed.
        """
        check_kind(state, self.name)
        self._chains.clear()


class LearnedLookup(NgramLookup):
    """The same, with a length of the next draft learned for each key of `n_key` tokens; `draft` opens a key."""

    def __init__(self, options: NgramLookupOptions, *, n_key: int) -> None:
        super().__init__(options)
        self._lengths = DraftLengths(n_key, options.size_m)
        self._open_key: bytes | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held: 1 MiB, 4 to 8 a token of history, and the shortened keys (at most 1,024)."""
        return self._chains.nbytes + self._lengths.nbytes

    def begin(self, tokens: Tokens) -> None:
        """Index the prompt, forgetting the history before it."""
        self._open_key = None
        super().begin(tokens)

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Learn from the verdict on one's own draft how long the next one of the same key may be."""
        check_verdict(n_drafted, n_accepted)
        key, self._open_key = self._open_key, None
        if own and key is not None and n_drafted > 0:
            self._lengths.judge(key, n_drafted, n_accepted)

    def get_state(self) -> dict[str, Any]:
        """The shortened keys [n_keys, n_key] and their lengths [n_keys]; the history gives the index."""
        return {"kind": self.name, **self._lengths.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved speculator did, from the history given to the next `draft`.

        Raises:
            StateError: of another kind or length of keys, or damaged; nothing was changed.
        """
        check_kind(state, self.name)
        self._lengths.set_state(state)
        self._open_key = None
        self._chains.clear()
