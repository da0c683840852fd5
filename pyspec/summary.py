"""The numbers of a generation in words: which, and in which order.

Owns the rows of the short table and the line of the log; leaves counting to `pyspec.stats`, and the layout of other
tables to those who print them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspec.rounds import N_ROUNDS_KEPT

if TYPE_CHECKING:
    from pyspec.stats import Stats

__all__ = ["line", "rows", "tell", "text"]

_N_POSITIONS_SHOWN = 16

_log = logging.getLogger("pyspec")


def rows(stats: Stats) -> list[tuple[str, str]]:
    """(what, its numbers) of everything that was counted and timed; parts that never happened are left out."""
    s, t = stats, stats.timings
    found = [
        ("prompt", f"{_n(s.n_prompt, 'token')}{_speed(t.prompt_s, t.prompt_tokens_per_s)}"),
        ("generated", f"{_n(s.n_generated, 'token')}{_speed(t.generate_s, t.tokens_per_s)}"),
        ("rounds", f"{s.n_rounds}, {s.tokens_per_round:.2f} tokens a round, {_decodes(s)}"),
    ]
    if s.n_dropped:
        found.append(("dropped", f"{_n(s.n_dropped, 'token')} from the middle of a full memory"))
    if s.n_drafted:
        found += _drafted(s)
    decided = sorted(((n, reason) for reason, n in s.decisions.items() if reason != "prompt"), reverse=True)
    if decided:
        found.append(("decisions", ", ".join(f"{n} {reason}" for n, reason in decided)))
    if s.drafting.n_watched:
        found.append(
            ("watched", f"{_n(s.drafting.n_watched, 'draft')}, {_n(s.drafting.n_watched_right, 'token')} right")
        )
    if s.rollback:
        found.append(("rollback", _rollback(s)))
    if any(t.shares.values()):
        found.append(("time", ", ".join(f"{name} {share:.0%}" for name, share in t.shares.items())))
    if (bound := s.oracle) is not None:
        reached = f"{bound.tokens_per_s:.1f} tokens/s at width {bound.width}, {bound.share:.0%} of it reached"
        found.append(("oracle", reached))
    if s.n_rounds > len(s.rounds) == N_ROUNDS_KEPT:
        found.append(("recorded", f"the first {N_ROUNDS_KEPT} of {s.n_rounds} rounds one by one"))
    return found


def text(stats: Stats) -> str:
    """The rows as a table of two columns."""
    found = rows(stats)
    width = max(len(name) for name, _ in found)
    return "\n".join(f"{name:<{width}}  {numbers}" for name, numbers in found)


def line(stats: Stats) -> str:
    """One line about a finished generation."""
    s, t = stats, stats.timings
    drafted = f"accepted {s.n_accepted} of {s.n_drafted} ({s.acceptance_rate:.0%})" if s.n_drafted else "no drafts"
    return (
        f"{_n(s.n_generated, 'token')}, {t.tokens_per_s:.1f} tokens/s, {s.tokens_per_decode:.2f} tokens a decode, "
        f"{drafted}, rollback {s.rollback}: {s.n_rollbacks}"
    )


def tell(stats: Stats, finish: str) -> None:
    """Log one line about a finished generation, at INFO."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s, finish: %s", line(stats), finish)


# ------------------------------------------------------------------ parts
def _drafted(s: Stats) -> list[tuple[str, str]]:
    cut = f"; {s.n_cut} cut by the end" if s.n_cut else ""
    found = [
        ("drafted", f"{_n(s.n_drafted, 'token')} in {_n(s.n_drafts, 'draft')}{cut}"),
        ("accepted", f"{s.n_accepted}, {s.acceptance_rate:.0%} of the drafted, {s.mean_accepted_length:.2f} a draft"),
    ]
    for name, one in s.by_speculator.items():
        numbers = (
            f"{_n(one.n_drafts, 'draft')}, {one.n_drafted} drafted, {one.n_accepted} accepted "
            f"({one.acceptance_rate:.0%}), {one.mean_accepted_length:.2f} a draft"
        )
        found.append((f"  {name}", numbers + _asked(s.drafting.asked_s.get(name, 0.0))))
    pairs = list(zip(s.accepted_per_position, s.drafted_per_position, strict=True))
    shown = " ".join(f"{accepted}/{drafted}" for accepted, drafted in pairs[:_N_POSITIONS_SHOWN])
    found.append(("by position", shown + (" ..." if len(pairs) > _N_POSITIONS_SHOWN else "")))
    return found


def _decodes(s: Stats) -> str:
    return f"{_n(s.n_decodes, 'decode')}, {s.tokens_per_decode:.2f} tokens a decode"


def _rollback(s: Stats) -> str:
    did = f"{s.rollback}: {_n(s.n_rollbacks, 'rollback')}"
    if len(s.rollbacks_by_strategy) > 1:
        did += f" ({', '.join(f'{n} {name}' for name, n in s.rollbacks_by_strategy.items())})"
    parts = (
        (s.n_replayed, "token", " replayed"),
        (s.n_forced_commits, "forced commit", ""),
        (s.n_saves, "save", ""),
        (s.n_failed_saves, "failed save", ""),
    )
    copied = [f"{s.saved_bytes / 2**20:.1f} MiB copied"] if s.saved_bytes else []
    return ", ".join([did, *(f"{_n(n, noun)}{verb}" for n, noun, verb in parts if n), *copied])


def _asked(seconds: float) -> str:
    return f", {seconds:.3f} s" if seconds else ""


def _speed(seconds: float, per_s: float) -> str:
    return f", {seconds:.3f} s, {per_s:.1f} tokens/s" if seconds else ""


def _n(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
