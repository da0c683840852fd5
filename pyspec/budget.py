"""The budget: how many tokens to draft so that the tokens a second are most.

Owns what a decode of each width costs (learned while generating), and the length that follows from that and from what
`pyspec.acceptance` expects. Values in, values out: asking speculators and decoding are other modules' work.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pyspec.config import between, int_between, validate

__all__ = ["BudgetOptions", "CostModel", "RoundCosts", "best_length"]

_LENGTHS = np.arange(1, 129)

_CHANGE, _LARGE_CHANGE = 0.02, 0.2
"""Share by which a cost must have changed to be noticed, and to be noticed at once."""

_FIT_EVERY = 8
"""Decodes before smaller changes are noticed; fewer in the beginning."""

_PRIOR_WEIGHT = 2.0
"""Decodes that the curve measured before counts for."""


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
        overhead: most of the time of plain decoding that may be spent on asking speculators and on judging what they
            propose, where no draft pays.
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
        ratios: seconds of a decode by width, 1 and others; None or empty where none were measured.
    """

    N_SAMPLES = 8
    N_REMEMBERED = 64

    hears_decodes = True
    """Whether what a sequence's decodes take is told to it."""

    def __init__(self, options: BudgetOptions, ratios: Mapping[int, float] | None = None) -> None:
        self.n_widths = options.width_max
        self._measured = options.measured
        self._samples: dict[int, deque[float]] = {}
        self._known: dict[int, float] = {}
        self._n_seen = 0
        self._seen_at: dict[int, int] = {}  # the last decode of each width, by the count of all
        self._curve: NDArray[np.float64] | None = None
        self._is_stale, self._fitted_at = False, 0  # the curve, and by the count of all decodes
        self._costs_of: NDArray[np.float64] | None = None
        self._costs: list[float] = []
        self._slopes_of: NDArray[np.float64] | None = None
        self._slopes = 0.0, 0.0  # behind one pending token, behind more
        self._shaped = options.measured and bool(ratios)
        self._prior: NDArray[np.float64] = 1.0 + options.slope * np.arange(-1, self.n_widths, dtype=np.float64)
        self._scale: float | None = None  # seconds of a plain decode as it was measured before
        if ratios and self._shaped:
            self._scale = ratios[1]
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
            change = abs(found - known)
            if change > _CHANGE * known:
                self._known[width] = found
                self._is_stale = True
            if change > _LARGE_CHANGE * known or (
                self._is_stale and self._n_seen - self._fitted_at >= min(_FIT_EVERY, self._n_seen // 4)
            ):
                self._curve = None

    def _forget(self) -> None:
        for width, at in list(self._seen_at.items()):
            if width > 1 and self._n_seen - at > self.N_REMEMBERED:
                del self._seen_at[width], self._samples[width], self._known[width]
                self._curve = None

    @property
    def plain(self) -> float:
        """Seconds of a decode of one token; 1.0 where nothing is measured."""
        return self.costs()[1]

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

    @property
    def is_known(self) -> bool:
        """Whether the costs are seconds, measured before or seen; otherwise they are decodes of one token."""
        return self._scale is not None or bool(self._known)

    def costs(self) -> list[float]:
        """The curve as a list."""
        curve = self.curve()
        if self._costs_of is not curve:
            self._costs_of, self._costs = curve, curve.tolist()
        return self._costs

    def curve(self) -> NDArray[np.float64]:
        """[n_widths + 1] seconds by width, never falling; entry 0 has no meaning."""
        curve = self._curve
        if curve is None:
            curve = self._curve = self._fit()
            self._is_stale, self._fitted_at = False, self._n_seen
        return curve

    def _fit(self) -> NDArray[np.float64]:
        known, prior = self._known, self._prior
        if not known:
            return prior if self._scale is None else prior * self._scale
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
        if knots[0] == 1 and weights[0] > 1:  # wide decodes, which are disturbed, do not tell what it takes
            stretch[0] = own[0]
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


@dataclass(slots=True)
class RoundCosts:
    """What a round costs beside its decode, in the unit of the cost model.

    Attributes:
        n_pending: decided tokens that ride in front of the draft.
        rollback: save and undo of a rejected draft.
        after: what the next round takes longer where it is plain, as often as it is: a decode of another width than the
            one before it builds a graph first.
        keeps_accepted: a rollback loses no accepted token, so nothing rides again.
        draft_token: each token of the draft, where drafting is still to be done.
    """

    n_pending: int = 1
    rollback: float = 0.0
    after: float = 0.0
    keeps_accepted: bool = False
    draft_token: float = 0.0

    def saved(self, cost: CostModel, n_drafted: int, n_accepted: int) -> float:
        """What a round with a draft saved against plain decoding, in plain decodes.

        Not included are thinking about it, and what rides again because of it, which makes later rounds wider.
        """
        curve, n_pending = cost.costs(), self.n_pending
        last = len(curve) - 1
        seconds = curve[min(n_pending + n_drafted, last)] - curve[min(n_pending, last)]
        if n_pending == 1:  # else the alternative is wide, too
            seconds += self.after
        if n_accepted < n_drafted:
            seconds += self.rollback
        return n_accepted - seconds / curve[1]


def best_length(
    reached: Sequence[float], cost: CostModel, round_costs: RoundCosts, *, gain: float
) -> tuple[int, float]:
    """The draft length that gives the most tokens a second, and by how much it beats plain decoding.

    Plain Python: between decodes, which empty the caches, a few dozen numbers are sooner added up than numpy is ready.

    Args:
        reached: [n] probability that each token is accepted, as of `AcceptanceRecord.expected`.
        cost: of decodes.
        round_costs: of everything else.
        gain: share by which a draft must win.

    Returns:
        (length, ratio): 0 and 1.0 where plain decoding is best, else at most n. With one pending token the ratio is
        that of the tokens a second; with more, committing them first is what a draft is weighed against.
    """
    curve = cost.costs()
    n_pending = min(round_costs.n_pending, len(curve) - 1)
    n = min(len(reached), len(curve) - 1 - n_pending)
    if n < 1:
        return 0, 1.0
    # What a second is worth: the most tokens that it gives where one token is pending, with a draft or without.
    worth, best, tokens = 1.0 / curve[1], 0, 1.0
    for length, chance in enumerate(reached[:n], 1):
        tokens += chance
        rate = tokens / _seconds(length, chance, tokens, curve, round_costs, 1)
        if rate > worth:
            worth, best = rate, length
    ratio = worth * curve[1]
    if n_pending > 1:
        most, tokens = -math.inf, 1.0
        for length, chance in enumerate(reached[:n], 1):
            tokens += chance
            gained = tokens - worth * _seconds(length, chance, tokens, curve, round_costs, n_pending)
            if gained > most:
                most, best = gained, length
        ratio = most + worth * curve[n_pending]
    return (best, ratio) if best and ratio > 1.0 + gain else (0, 1.0)


def _seconds(
    length: int, chance: float, tokens: float, curve: list[float], round_costs: RoundCosts, n_pending: int
) -> float:
    """What a round takes, and makes later rounds take longer.

    Args:
        length: of the draft.
        chance: probability that its last token is reached and right.
        tokens: expected of the round.
        curve: seconds by width.
        round_costs: of everything else.
        n_pending: decided tokens in front of the draft.
    """
    whole, rejected = curve[n_pending + length], 1.0 - chance
    seconds = whole + round_costs.draft_token * length + rejected * round_costs.rollback
    if n_pending == 1:  # else the alternative is wide, too
        seconds += round_costs.after
    if not round_costs.keeps_accepted:
        # What was accepted of a rejected draft rides in front of the next one, at the cost of a wider decode.
        slope = (whole - curve[n_pending]) / length
        seconds += slope * (rejected * n_pending + tokens - 1.0 - length * chance)
    return seconds
