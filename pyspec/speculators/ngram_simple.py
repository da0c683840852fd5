"""ngram-simple: drafts what followed the last n tokens when they stood in this history before, and learns nothing.

Owns which occurrence is drafted from, through an exact index of the history. `ngram-map-k` drafts from the same place
and learns how long its drafts may be. Names and defaults as in llama.cpp (common/ngram-map.h, common/common.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec.config import int_between, validate
from pyspec.errors import StateError
from pyspec.speculators.history import History, Tokens, as_tokens
from pyspec.speculators.ngram_chains import NgramChains, continuation
from pyspec.speculators.protocol import check_verdict

__all__ = ["NgramSimple", "NgramSimpleOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramSimpleOptions:
    """Length of what is looked up `size_n`, of a draft `size_m`, earlier occurrences needed `min_hits`.

    llama.cpp: --spec-ngram-simple-*.

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


class NgramSimple:
    """Speculator of one sequence: drafts from the latest earlier place where its last `size_n` tokens stood.

    Of the history alone, and of nothing else: verdicts change nothing. Where that place is so near that what followed
    it runs into the end of the history, the draft repeats that period. (llama.cpp searches the history anew each
    time, does not look at its first token, stops where the history ends, and then drafts nothing when fewer than
    `size_n` tokens are left or the history has fewer than `size_n + size_m + 3`; it reads `min_hits` and ignores it.)
    """

    name = "ngram-simple"

    def __init__(self, options: NgramSimpleOptions | None = None) -> None:
        self.options = options or NgramSimpleOptions()
        self._chains = NgramChains(self.options.size_n)

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

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """What followed the latest earlier occurrence; at most `n_max` tokens."""
        self._chains.follow(history)
        tokens = history.view()
        found = self._chains.find(tokens, self.options.min_hits) if n_max > 0 else None
        return [] if found is None else continuation(tokens, found[1], min(n_max, self.options.size_m))

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
        try:
            if state["kind"] != self.name:
                raise StateError(reason=f"of speculator {state['kind']!r}, not {self.name!r}")
        except (KeyError, TypeError) as error:
            raise StateError(reason=f"no {self.name} state: {error!r}") from error
        self._chains.clear()
