"""ngram-mod: drafts by asking a hashed table, token after token, what followed the last n tokens before.

Owns one sequence's reading position, its streak of bad drafts and what follows from it; the table is apart.
Names, defaults, thresholds and slots as in llama.cpp (common/ngram-mod.cpp, common/speculative.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec.config import int_between, validate
from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators.history import History, Tokens, as_tokens
from pyspec.speculators.ngram_mod_table import NgramModTable
from pyspec.speculators.protocol import check_kind, check_verdict

__all__ = ["NgramMod", "NgramModOptions"]

_LOW_FRACTION = 4  # a draft is bad when fewer than one in so many of its tokens were accepted
_LOW_STREAK = 5
_BULK = 64  # from so many new tokens on, numpy is faster than the loop


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramModOptions:
    """Lookup length `n_match`; a draft has `n_min` to `n_max` tokens, or none. llama.cpp: --spec-ngram-mod-*.

    Raises:
        InvalidValueError: out of range, or `n_min` > `n_max`.
    """

    n_match: int = 24
    n_min: int = 48
    n_max: int = 64

    _CHECKS: ClassVar[dict[str, Any]] = {
        "n_match": int_between(1, 1024),
        "n_min": int_between(0, 1024),
        "n_max": int_between(0, 1024),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)
        if self.n_min > self.n_max:
            raise InvalidValueError(name="n_min", value=self.n_min, allowed=f"at most n_max={self.n_max}")


class NgramMod:
    """Speculator of one sequence over a table of its own, or over one shared with other sequences.

    The table also remembers earlier generations. Five drafts in a row with less than a quarter accepted mean
    that such memories mislead: then only the current context counts. A table of one's own is emptied and
    taught the context again; a shared one is left untouched and a private one takes its place until the next
    `begin`, so no sequence ever loses its drafts to another's failures.

    A draft is proposed only if `n_min` tokens could be looked up, and is cut to the `n_max` of the call
    afterwards.

    Raises:
        InvalidValueError: `table` has another `n_match` than `options`.
    """

    name = "ngram-mod"

    def __init__(self, options: NgramModOptions | None = None, *, table: NgramModTable | None = None) -> None:
        self.options = options = options or NgramModOptions()
        if table is not None and table.n_match != options.n_match:
            raise InvalidValueError(
                name="n_match", value=options.n_match, allowed=f"that of the table, {table.n_match}"
            )
        self._shared = table
        self._table = table if table is not None else NgramModTable(options.n_match)
        self._n_seen = 0  # tokens of the history whose n-grams are in the table
        self._slot: int | None = None  # of the last n_match tokens seen; None: to be computed
        self._epoch: int | None = None
        self._generation = self._table.generation
        self._n_low = 0
        self._draft_open = False
        self._others_inside = False  # the table may hold more than the current context

    @property
    def table(self) -> NgramModTable:
        """The table in use: the shared one unless this sequence has turned away from it."""
        return self._table

    @property
    def match_length(self) -> int:
        """Tokens that a draft's source agrees with."""
        return self.options.n_match

    @property
    def nbytes(self) -> int:
        """Bytes of the table in use, and of the shared one beside it where there are two: at most 32 MiB."""
        both = self._shared is not None and self._shared is not self._table
        return self._table.nbytes * (2 if both else 1)

    def begin(self, tokens: Tokens) -> None:
        """Learn the prompt. What earlier generations taught stays, unless the table has become crowded."""
        if self._shared is not None:
            self._table = self._shared
        self._table.clear_if_crowded()
        self._others_inside = self._table.n_written > 0
        self._restart()
        self._read_all(as_tokens(tokens))

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """Tokens looked up one after the other, at most `n_max`; none where fewer than `n_min` were found."""
        self._draft_open = False
        n = self.options.n_match
        window = self._read_new(history)
        if n_max <= 0 or self._slot is None:
            return []
        rolling = self._table.hash
        factor, leaving_factor, mask = (rolling.factor, rolling.leaving_factor, rolling.mask)
        cells, slot = self._table.cells, self._slot
        for i in range(min(self.options.n_max, max(n_max, self.options.n_min))):
            cell = cells[slot]
            if not cell:
                break
            window.append(cell - 1)
            slot = (slot * factor + cell - 1 - window[i] * leaving_factor) & mask
        if len(window) - n < self.options.n_min:
            return []
        draft = window[n : n + n_max]
        self._draft_open = bool(draft)
        return draft

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Count bad drafts of one's own; after five in a row trust the current context alone."""
        check_verdict(n_drafted, n_accepted)
        is_verdict = own and self._draft_open and n_drafted > 0
        self._draft_open = False
        if not is_verdict:
            return
        if n_accepted * _LOW_FRACTION >= n_drafted:
            self._n_low = 0
            return
        self._n_low += 1
        if self._n_low == _LOW_STREAK:
            self._n_low = 0
            self._forget_others()

    def get_state(self) -> dict[str, Any]:
        """The table's used cells (8 bytes each) and the counters."""
        return {
            "kind": self.name,
            "table": self._table.get_state(),
            "n_seen": self._n_seen,
            "n_low": self._n_low,
            "others_inside": self._others_inside,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved speculator did; in place of a shared table, from a private one until `begin`.

        Raises:
            StateError: of another kind or `n_match`, or damaged; nothing was changed.
        """
        check_kind(state, self.name)
        try:
            table = NgramModTable.from_state(state["table"])
            n_seen, n_low = int(state["n_seen"]), int(state["n_low"])
            others_inside = bool(state["others_inside"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(reason=f"no ngram-mod state: {error!r}") from error
        if table.n_match != self.options.n_match:
            raise StateError(reason=f"n_match={table.n_match}, this speculator has {self.options.n_match}")
        if n_seen < 0 or not 0 <= n_low < _LOW_STREAK:
            raise StateError(reason=f"ngram-mod counters n_seen={n_seen}, n_low={n_low}")
        self._table = table
        self._restart()
        self._n_seen, self._n_low, self._others_inside = n_seen, n_low, others_inside

    # ------------------------------------------------------------- reading

    def _restart(self) -> None:
        self._n_seen = 0
        self._slot = None
        self._epoch = None
        self._generation = self._table.generation
        self._draft_open = False

    def _forget_others(self) -> None:
        # a table that holds this context alone would be refilled with what it holds already
        if not self._others_inside and self._table is not self._shared:
            return
        if self._table is self._shared:
            self._table = NgramModTable(self.options.n_match, n_entries=self._table.n_entries)
        else:
            self._table.clear()
        self._others_inside = False
        self._restart()

    def _read_all(self, tokens: Tokens) -> None:
        n = self.options.n_match
        self._table.learn(tokens)
        self._n_seen = len(tokens)
        self._slot = self._table.hash.slot(tokens[-n:].tolist()) if len(tokens) >= n else None

    def _read_new(self, history: History) -> list[int]:
        """Learn what `history` has more than was seen; returns its last n_match tokens."""
        table, n, length = self._table, self.options.n_match, len(history)
        is_cut = length < self._n_seen or self._epoch not in (None, history.epoch)
        if is_cut or table.generation != self._generation:
            self._n_seen, self._slot = 0, None
            self._generation = table.generation
            self._others_inside = self._others_inside or is_cut
        self._epoch = history.epoch
        n_new = length - self._n_seen
        if self._slot is None or n_new >= _BULK:
            known = max(0, self._n_seen - n)
            self._read_all(history.view()[known:])
            self._n_seen = length
            last: list[int] = history.tail(n).tolist()
            return last
        recent: list[int] = history.tail(n + n_new).tolist()
        rolling = table.hash
        factor, leaving_factor, mask = (rolling.factor, rolling.leaving_factor, rolling.mask)
        cells, slot = table.cells, self._slot
        for entering, leaving in zip(recent[n:], recent, strict=False):
            cells[slot] = entering + 1
            slot = (slot * factor + entering - leaving * leaving_factor) & mask
        table.n_written += n_new
        self._slot, self._n_seen = slot, length
        return recent[n_new:]
