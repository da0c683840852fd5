"""The budget: how many tokens to draft so that the tokens a second are most.

Owns what a decode of each width costs (learned while generating), how often drafted tokens are accepted (one record
for each speculator), and the length that follows from both. Values in, values out: asking speculators and decoding
are other modules' work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pyspec.config import between, int_between, validate
from pyspec.errors import StateError

__all__ = ["N_STREAK", "AcceptanceRecord", "BudgetOptions", "CostModel", "RoundCosts", "best_length"]

N_STREAK = 64
"""From so many right tokens in a row on, all are counted together."""

_PRIOR_BY_MATCH = (0.4, 0.15, 0.3, 0.6, 0.7, 0.8, 0.85, 0.9)
"""Chance of a first token from a match of unknown length, of 1, 2 to 3, 4 to 7 ... tokens, before any was seen."""

_LENGTHS = np.arange(1, 129)

_CHANGE = 0.02
"""Share by which a cost must have changed to be noticed."""

_PRIOR_ROW_ENDS = (0.2, 0.08, 0.05, 0.03, 0.025, 0.012, 0.005)
"""Chance that a row of right tokens ends after 1, 2 to 3, 4 to 7 ... of them, before any was seen."""

_PRIOR_WEIGHT = 2.0
_LATER_WEIGHT = 8.0
"""Observations that a prior counts for: that of a first token; and of a later one, the chance of the one before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """How the budget learns.

    Attributes:
        measured: costs are measured; False makes every decision depend on counts alone, so that a run can be repeated.
        slope: cost of one more token in a decode, as a share of a decode of one, until it is known.
        width_max: most tokens in a round's decode, pending ones included. Kernels change at larger widths (llama.cpp's
            flash attention on a CPU at 64, many matrix products on GPUs), and with them the last bits of logits.
        gain: share by which drafting must beat plain decoding.
        memory: observations of acceptance that count, older ones fade.
        overhead: most of the time of plain decoding that may be spent on asking speculators that are not used.
        draft_token: cost of one token of a speculator that decodes itself, as a share of a decode, where not measured.
        probe_every: tokens between two drafts of such a speculator when its record is bad; doubles up to 16 times that.
    """

    measured: bool = True
    slope: float = 0.15
    width_max: int = 48
    gain: float = 0.03
    memory: int = 32
    overhead: float = 0.005
    draft_token: float = 0.25
    probe_every: int = 64

    _CHECKS: ClassVar = {
        "measured": (lambda v: isinstance(v, bool), "True or False"),
        "slope": between(0, 1),
        "width_max": int_between(2, 128),
        "gain": between(0, 10),
        "memory": int_between(2, 100_000),
        "overhead": between(1e-4, 1),
        "draft_token": between(0, 10),
        "probe_every": int_between(1, 1_000_000),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)


class CostModel:
    """Seconds of a decode by its width, from the decodes seen so far.

    For each width the faster half of the last few decodes counts, since a machine may be busy but is never too fast.
    Between widths seen the cost is interpolated, beyond them it grows as it did between them. What was not seen again
    for `N_REMEMBERED` decodes is forgotten: it was too dear then, and may be so no more.

    With `ratios` it starts from a curve that was measured before: the decodes seen tell what a second is worth and
    where the curve has changed, and what was not seen keeps the curve's shape.

    Args:
        options: `slope` is the start where no ratios are given; without `measured` nothing is learned, and ratios,
            which were measured too, do not count.
        ratios: cost of a decode by width, 1 and others, in any unit; None or empty where none were measured.
    """

    N_SAMPLES = 8
    N_REMEMBERED = 64

    def __init__(self, options: BudgetOptions, ratios: Mapping[int, float] | None = None) -> None:
        self.n_widths = options.width_max
        self._measured = options.measured
        self._samples: dict[int, deque[float]] = {}
        self._known: dict[int, float] = {}
        self._n_seen = 0
        self._seen_at: dict[int, int] = {}  # the last decode of each width, by the count of all
        self._curve: NDArray[np.float64] | None = None
        self._slopes_of: NDArray[np.float64] | None = None
        self._slopes = 0.0, 0.0  # behind one pending token, behind more
        self._shaped = options.measured and bool(ratios)
        self._prior: NDArray[np.float64] = 1.0 + options.slope * np.arange(-1, self.n_widths, dtype=np.float64)
        if ratios and self._shaped:
            self._prior = self._through({width: max(1.0, cost / ratios[1]) for width, cost in ratios.items()})

    def observe(self, width: int, seconds: float) -> None:
        """A decode of `width` tokens took `seconds`."""
        if self._measured and 0 < width <= self.n_widths and seconds > 0:
            samples = self._samples.get(width)
            if samples is None:
                samples = self._samples[width] = deque(maxlen=self.N_SAMPLES)
            samples.append(seconds)
            self._n_seen += 1
            self._seen_at[width] = self._n_seen
            if self._n_seen % (self.N_REMEMBERED // 8) == 0:
                self._forget()
            known, found = self._known.get(width, 0.0), _low_mean(samples)
            if abs(found - known) > _CHANGE * known:
                self._known[width] = found
                self._curve = None

    def _forget(self) -> None:
        for width, at in list(self._seen_at.items()):
            if self._n_seen - at > self.N_REMEMBERED:
                del self._seen_at[width], self._samples[width], self._known[width]
                self._curve = None

    @property
    def plain(self) -> float:
        """Seconds of a decode of one token; 1.0 where nothing is measured."""
        return float(self.curve()[1])

    def least_slope(self, n_pending: int) -> float:
        """A draft whose first token has no better chance than this cannot pay, however long it is.

        The least that one more token costs behind so many pending ones, in plain decodes; later tokens of a draft are
        never likelier than its first.
        """
        curve = self.curve()
        if self._slopes_of is not curve:
            plain = float(curve[1])
            behind_one = (curve[2:] - plain) / _LENGTHS[: len(curve) - 2]
            self._slopes = float(behind_one.min()) / plain, float(np.diff(curve[1:]).min()) / plain
            self._slopes_of = curve
        return self._slopes[n_pending > 1]

    def curve(self) -> NDArray[np.float64]:
        """[n_widths + 1] seconds by width, never falling; entry 0 has no meaning."""
        curve = self._curve
        if curve is None:
            curve = self._curve = self._fit()
        return curve

    def _fit(self) -> NDArray[np.float64]:
        known, prior = self._known, self._prior
        if not known:
            return prior
        knots = sorted(known)
        if len(knots) == 1:
            scaled: NDArray[np.float64] = prior * (known[knots[0]] / prior[knots[0]])
            return scaled
        if self._shaped:
            return self._reshaped(knots)
        curve = self._through(known)
        if knots[0] > 1:
            curve[: knots[0]] = prior[: knots[0]] * (curve[knots[0]] / prior[knots[0]])
        return curve

    def _reshaped(self, knots: list[int]) -> NDArray[np.float64]:
        """The curve measured before, stretched at each width as far as the decodes near it took longer."""
        prior, samples = self._prior, self._samples
        weights = np.array([len(samples[width]) for width in knots])
        own = np.array([self._known[width] / prior[width] for width in knots])
        # A width seen once may have been a bad moment; the one that was seen most tells how fast the machine is.
        stretch = (weights * own + _PRIOR_WEIGHT * own[weights.argmax()]) / (weights + _PRIOR_WEIGHT)
        widths = np.arange(self.n_widths + 1)
        curve: NDArray[np.float64] = np.maximum.accumulate(prior * np.interp(widths, knots, stretch))
        return curve

    def _through(self, points: Mapping[int, float]) -> NDArray[np.float64]:
        """[n_widths + 1] a line through costs by width that never falls, rising behind the last as before it."""
        knots = sorted(points)
        values = np.maximum.accumulate([points[width] for width in knots])
        widths = np.arange(self.n_widths + 1)
        curve: NDArray[np.float64] = np.interp(widths, knots, values)
        if len(knots) > 1 and knots[-1] < self.n_widths:
            rise = (values[-1] - values[0]) / (knots[-1] - knots[0])
            curve[knots[-1] :] = values[-1] + rise * (widths[knots[-1] :] - knots[-1])
        return curve


def _low_mean(samples: deque[float]) -> float:
    low = sorted(samples)[: (len(samples) + 1) // 2]
    return sum(low) / len(low)


class AcceptanceRecord:
    """How often a speculator's tokens were right, old observations fading.

    A token is judged by how many tokens its speculator has been right in a row before it: the first ones of a match
    are often wrong, later ones seldom. The first of a row is judged by the length of the match that it comes from, too.

    A row that goes on for forty tokens is one observation more than forty: after 1, 2 to 3, 4 to 7, 8 to 15 ... right
    tokens the chance that it ends is never taken for less than if it were to end at the very next token, of all that
    were seen after about so many.
    """

    def __init__(self, options: BudgetOptions) -> None:
        self._keep = 1.0 - 1.0 / options.memory
        self._first = [_Share(_PRIOR_WEIGHT, _PRIOR_WEIGHT * prior) for prior in _PRIOR_BY_MATCH]
        self._later = [_Share() for _ in range(N_STREAK)]
        # tokens seen by bit length of the streak; where a row has more of them, a memory of rows is one of more tokens
        self._rows = [1.0 / ends for ends in _PRIOR_ROW_ENDS]
        self._keep_rows = [1.0 - 1.0 / (options.memory << i) for i in range(len(self._rows))]
        self._chances = [0.0] * N_STREAK
        self._n_current = 0  # of the chances, the first ones are up to date

    def observe(self, streak: int, match_length: int, right: bool) -> None:
        """A token after `streak` right ones in a row, from a match of `match_length`, was `right` or not."""
        if streak:
            streak = min(streak, N_STREAK)
            i = streak.bit_length() - 1
            self._rows[i] = self._rows[i] * self._keep_rows[i] + 1.0
            self._later[streak - 1].count(right, self._keep)
            self._n_current = min(self._n_current, (1 << i) - 1)
        else:
            self._first[_match_class(match_length)].count(right, self._keep)

    def chance(self, streak: int, match_length: int) -> float:
        """Probability that the next token is right."""
        if streak == 0:
            first = self._first[_match_class(match_length)]
            return first.right / first.n
        i = min(streak, N_STREAK)
        self._bring_up_to_date(i)
        return self._chances[i - 1]

    def expected(self, streak: int, match_length: int, n: int) -> NDArray[np.float64]:
        """[n] probability that each token of a draft is reached and right."""
        start = max(0, streak - 1)
        self._bring_up_to_date(min(start + n, N_STREAK))
        chances = self._chances[start : start + n]
        chances += self._chances[-1:] * (n - len(chances))
        if streak == 0:
            first = self._first[_match_class(match_length)]
            chances = [first.right / first.n, *chances[: n - 1]]
        reached: NDArray[np.float64] = np.multiply.accumulate(np.array(chances, np.float64))
        return reached

    def get_state(self) -> dict[str, Any]:
        """What was observed: `first` [n_classes, 2], `later` [N_STREAK, 2] (all tokens, right ones), `rows` [n]."""
        shares = {"first": self._first, "later": self._later}
        state = {name: np.array([(one.n, one.right) for one in row], np.float64) for name, row in shares.items()}
        return state | {"rows": np.array(self._rows, np.float64)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Expect what the saved record did.

        Raises:
            StateError: not a state of a record; nothing was changed.
        """
        try:
            first, later, rows = (np.asarray(state[name], np.float64) for name in ("first", "later", "rows"))
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(reason=f"no record of acceptance: {error!r}") from error
        if (first.shape, later.shape, rows.shape) != ((len(self._first), 2), (N_STREAK, 2), (len(self._rows),)):
            raise StateError(reason=f"a record of acceptance with {first.shape}, {later.shape}, {rows.shape} numbers")
        pairs = np.concatenate((first, later))
        n, right = pairs.T
        if not (np.isfinite(pairs).all() and ((right >= 0) & (right <= n)).all()):
            raise StateError(reason="a record of acceptance with more right tokens than tokens, or fewer than none")
        if not ((first[:, 0] > 0).all() and np.isfinite(rows).all() and (rows >= 1).all()):
            raise StateError(reason="a record of acceptance without observations")
        self._first, self._later = ([_Share(n, right) for n, right in part.tolist()] for part in (first, later))
        self._rows, self._n_current = rows.tolist(), 0

    def _bring_up_to_date(self, n: int) -> None:
        """Chances after 1, 2, ... right tokens: each leans on the one before as far as it was not seen itself."""
        chances, current = self._chances, self._n_current
        chance = chances[current - 1] if current else 1.0
        for i in range(current, n):
            share = self._later[i]
            at_most = 1.0 - 1.0 / self._rows[(i + 1).bit_length() - 1]
            chance = (share.right + _LATER_WEIGHT * min(chance, at_most)) / (share.n + _LATER_WEIGHT)
            chances[i] = chance
        self._n_current = max(current, n)


@dataclass(slots=True)
class _Share:
    n: float = 0.0
    right: float = 0.0

    def count(self, right: bool, keep: float) -> None:
        """One observation more; the ones before fade to the share `keep`."""
        self.n = self.n * keep + 1.0
        self.right = self.right * keep + right


def _match_class(match_length: int) -> int:
    return min(match_length.bit_length(), len(_PRIOR_BY_MATCH) - 1)


@dataclass(slots=True)
class RoundCosts:
    """What a round costs beside its decode, in the unit of the cost model.

    Attributes:
        n_pending: decided tokens that ride in front of the draft.
        rollback: save and undo of a rejected draft.
        keeps_accepted: a rollback loses no accepted token, so nothing rides again.
        draft_token: each token of the draft, where drafting is still to be done.
    """

    n_pending: int = 1
    rollback: float = 0.0
    keeps_accepted: bool = False
    draft_token: float = 0.0


def best_length(
    reached: NDArray[np.float64], cost: CostModel, round_costs: RoundCosts, *, gain: float
) -> tuple[int, float]:
    """The draft length that gives the most tokens a second, and by how much it beats plain decoding.

    Args:
        reached: [n] probability that each token is accepted, as of `AcceptanceRecord.expected`.
        cost: of decodes.
        round_costs: of everything else.
        gain: share by which a draft must win.

    Returns:
        (length, ratio): 0 and 1.0 where plain decoding is best, else at most n. With one pending token the ratio is
        that of the tokens a second; with more, committing them first is what a draft is weighed against.
    """
    curve = cost.curve()
    n_pending = min(round_costs.n_pending, len(curve) - 1)
    n = min(len(reached), len(curve) - 1 - n_pending)
    if n < 1:
        return 0, 1.0
    reached = reached[:n]
    tokens = 1.0 + np.cumsum(reached)
    # What a second is worth: the most tokens that it gives where one token is pending, with a draft or without.
    alone = _seconds(reached, tokens, curve, round_costs, 1)
    worth = max(1.0 / float(curve[1]), float((tokens / alone).max()))
    here = alone if n_pending == 1 else _seconds(reached, tokens, curve, round_costs, n_pending)
    gains = tokens - worth * here
    best = int(gains.argmax())
    ratio = 1.0 + float(gains[best]) - (1.0 - worth * float(curve[n_pending]))
    return (best + 1, ratio) if ratio > 1.0 + gain else (0, 1.0)


def _seconds(
    reached: NDArray[np.float64],
    tokens: NDArray[np.float64],
    curve: NDArray[np.float64],
    round_costs: RoundCosts,
    n_pending: int,
) -> NDArray[np.float64]:
    """[n] what a round with a draft of each length takes, and makes later rounds take longer."""
    n = len(reached)
    lengths = _LENGTHS[:n]
    rejected = 1.0 - reached
    seconds = curve[n_pending + 1 : n_pending + n + 1] + round_costs.draft_token * lengths
    seconds = seconds + rejected * round_costs.rollback
    if not round_costs.keeps_accepted:
        # What was accepted of a rejected draft rides in front of the next one, at the cost of a wider decode.
        slopes = (curve[n_pending + 1 : n_pending + n + 1] - curve[n_pending]) / lengths
        seconds = seconds + slopes * (rejected * n_pending + tokens - 1.0 - lengths * reached)
    result: NDArray[np.float64] = seconds
    return result
