"""What each round of a generation did, and what follows from that for each token.

Owns the record of a round, the reasons why it drafted or did not, and the origin of every token.
Leaves making the records to the decoder and the drafting, and totals to `pyspec.stats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

__all__ = [
    "N_ROUNDS_KEPT",
    "REASONS",
    "Decision",
    "Origin",
    "Reason",
    "RoundRecord",
    "Span",
    "columns",
    "origins",
    "per_position",
    "spans",
]

N_ROUNDS_KEPT = 100_000
"""Rounds of one generation that are kept one by one, the first ones (about 250 bytes each). Totals count all."""

Reason = Literal[
    "prompt",
    "no speculator",
    "save failed",
    "forced commit",
    "no room",
    "no proposal",
    "not asked",
    "does not pay",
    "probe",
    "drafted",
]

REASONS: dict[Reason, str] = {
    "prompt": "the round that reads the prompt; nothing is drafted before the first token",
    "no speculator": "plain decoding was asked for",
    "save failed": "memory could not be saved before a draft; the generation goes on without drafts",
    "forced commit": "too many decided tokens were pending, so they were committed without a draft",
    "no room": "one token is left to generate, or to decode at once",
    "no proposal": "no speculator had a draft",
    "not asked": "who had nothing of use to say is asked only now and then, and thinking about drafts is rationed",
    "does not pay": "no length of any draft promised more tokens a second than plain decoding",
    "probe": "a short draft of a speculator with a bad record, to see whether it has become better",
    "drafted": "the draft, or its first tokens, promised the most tokens a second, or drafts are not weighed",
}

Origin = Literal["accepted", "bonus", "correction", "plain", "unrecorded"]
"""Where a token comes from: accepted (drafted, and the target's choice), bonus (the target's own behind a whole draft),
correction (its own where the draft was wrong), plain (a round without a draft), unrecorded (a round that was not kept).
"""


class Decision(NamedTuple):
    """Why a round drafts or does not; the fields are those of `RoundRecord`."""

    reason: Reason
    n_proposed: int = 0
    expected_gain: float | None = None


class RoundRecord(NamedTuple):
    """One round.

    Attributes:
        width: tokens in its decode, `n_pending + n_drafted`. Of a long prompt, the last part.
        n_pending: decided tokens that were decoded first, one or more.
        n_drafted: draft tokens behind them.
        n_accepted: how many of these were kept.
        n_emitted: tokens that the round gave: the accepted ones, and one of the target's own unless the end came first.
        speculator: whose draft it was, "" without one.
        rollback: the strategy that brought memory back, "" where nothing was to be undone.
        draft_s: seconds of deciding and drafting.
        decode_s: seconds of the decode and of the target's choices, the whole prompt's in the first round.
        rollback_s: seconds of saving before the draft and of committing or undoing after it.
        reason: why it drafted or did not, a key of `REASONS`.
        n_proposed: tokens of the proposal that the draft was cut from, 0 without a draft.
        expected_gain: tokens a second that the draft promised, over those of plain decoding; None where nothing was
            weighed.
    """

    width: int
    n_pending: int
    n_drafted: int
    n_accepted: int
    n_emitted: int
    speculator: str
    rollback: str
    draft_s: float
    decode_s: float
    rollback_s: float
    reason: Reason
    n_proposed: int = 0
    expected_gain: float | None = None

    @property
    def why(self) -> str:
        """The decision in a few words: "drafted 8 of 12, expected 1.84 times plain"."""
        if not self.n_drafted:
            return self.reason
        expected = "" if self.expected_gain is None else f", expected {self.expected_gain:.2f} times plain"
        return f"{self.reason} {self.n_drafted} of {self.n_proposed}{expected}"


class Span(NamedTuple):
    """Neighbouring tokens of one origin and one round: the tokens `start` to `end` - 1, of round `i_round`."""

    start: int
    end: int
    origin: Origin
    i_round: int


def spans(rounds: Sequence[RoundRecord], n_tokens: int) -> list[Span]:
    """The origins of `n_tokens` generated tokens, in order and without gaps.

    Rounds behind `n_tokens` (cut away by a stop string) are left out; tokens behind the last round are "unrecorded".
    """
    found: list[Span] = []
    at = 0
    for i, record in enumerate(rounds):
        parts: tuple[tuple[int, Origin], ...] = (
            (record.n_accepted, "accepted"),
            (record.n_emitted - record.n_accepted, _own(record)),
        )
        for n, origin in parts:
            end = min(at + n, n_tokens)
            if end > at:
                found.append(Span(at, end, origin, i))
                at = end
    if at < n_tokens:
        found.append(Span(at, n_tokens, "unrecorded", len(rounds)))
    return found


def origins(rounds: Sequence[RoundRecord], n_tokens: int) -> list[Origin]:
    """[n_tokens] the origin of each generated token."""
    return [span.origin for span in spans(rounds, n_tokens) for _ in range(span.end - span.start)]


def per_position(rounds: Sequence[RoundRecord], speculator: str) -> list[tuple[int, int]]:
    """[longest draft] of one speculator: (accepted, drafted) at each position of its drafts."""
    mine = [(r.n_accepted, r.n_drafted) for r in rounds if r.n_drafted and r.speculator == speculator]
    longest = max((n_drafted for _, n_drafted in mine), default=0)
    n_kept, n_made = [0] * (longest + 1), [0] * (longest + 1)  # drafts by tokens accepted, and by length
    for n_accepted, n_drafted in mine:
        n_kept[n_accepted] += 1
        n_made[n_drafted] += 1
    return [(sum(n_kept[i + 1 :]), sum(n_made[i + 1 :])) for i in range(longest)]


def columns(rounds: Sequence[RoundRecord]) -> dict[str, list[Any]]:
    """The records as one list for each field, as tables and plots take them."""
    return {name: [record[i] for record in rounds] for i, name in enumerate(RoundRecord._fields)}


def _own(record: RoundRecord) -> Origin:
    if not record.n_drafted:
        return "plain"
    return "bonus" if record.n_accepted == record.n_drafted else "correction"
