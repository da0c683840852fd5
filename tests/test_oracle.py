"""The oracle's speed is the best that any sequence of the widths seen could have reached."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pyspec.oracle import oracle
from pyspec.rounds import RoundRecord
from pyspec.stats import Stats, Timings


def record(
    width: int, decode_s: float, n_emitted: int = 1, *, n_pending: int = 1, reason: str = "drafted"
) -> RoundRecord:
    """A round whose draft is a token shorter than `width`, behind `n_pending` tokens."""
    n_drafted = width - 1
    return RoundRecord(
        n_pending + n_drafted, n_pending, n_drafted, n_emitted - 1, n_emitted, "a", "", 0.0, decode_s, 0.0, reason
    )  # type: ignore[arg-type]


def rising_costs(seed: int, n_widths: int = 6) -> dict[int, float]:
    rng = random.Random(seed)
    widths = sorted(rng.sample(range(1, 20), n_widths))
    seconds = np.cumsum([rng.uniform(0.01, 1.0) for _ in widths])
    return dict(zip(widths, seconds.tolist(), strict=True))


def soonest(costs: dict[int, float], n_tokens: int) -> float:
    """Seconds of the fastest sequence of decodes that gives at least `n_tokens`, by trying all."""
    best = [0.0] + [float("inf")] * n_tokens
    for n in range(1, n_tokens + 1):
        best[n] = min(best[max(0, n - width)] + seconds for width, seconds in costs.items())
    return best[n_tokens]


@pytest.mark.parametrize("seed", range(12))
def test_no_sequence_of_widths_is_faster(seed: int):
    costs = rising_costs(seed)
    found = oracle([record(width, seconds) for width, seconds in costs.items()], 1.0)
    assert found is not None
    for n_tokens in (found.width, 7 * found.width, 100, 101):
        assert n_tokens / soonest(costs, n_tokens) <= found.tokens_per_s * (1 + 1e-9)
    assert 7 * found.width / soonest(costs, 7 * found.width) == pytest.approx(found.tokens_per_s)


@pytest.mark.parametrize("seed", range(12))
def test_no_width_between_those_seen_is_better_where_cost_grows_evenly(seed: int):
    costs = rising_costs(seed)
    found = oracle([record(width, seconds) for width, seconds in costs.items()], 1.0)
    between = np.arange(min(costs), max(costs) + 1)
    seconds = np.interp(between, list(costs), list(costs.values()))
    assert found is not None
    assert (between / seconds).max() == pytest.approx(found.tokens_per_s)


@pytest.mark.parametrize("seed", range(12))
def test_no_generation_exceeds_it_however_noisy(seed: int):
    rng = random.Random(seed)
    rounds = []
    for _ in range(rng.choice([3, 20, 200])):
        width, n_pending = rng.randint(1, 12), rng.choice([1, 1, 5])
        seconds = rng.lognormvariate(0, 1) * (1 + 0.1 * (width + n_pending))
        rounds.append(record(width, seconds, rng.randint(max(1, width - 1), width), n_pending=n_pending))
    tokens_per_s = sum(r.n_emitted for r in rounds) / sum(r.decode_s for r in rounds)
    found = oracle(rounds, tokens_per_s)
    assert found is not None
    assert 0 < found.share <= 1 + 1e-9
    assert found.share == pytest.approx(tokens_per_s / found.tokens_per_s)


def test_a_generation_that_is_always_right_at_the_best_width_reaches_it():
    rounds = [record(1, 1.0), *[record(8, 2.0, 8)] * 5]
    found = oracle(rounds[1:] + rounds[:1], 4.0)
    assert found is not None
    assert (found.width, found.tokens_per_s, found.share) == (8, 4.0, 1.0)


@pytest.mark.parametrize("seed", range(12))
def test_costs_are_the_nearest_that_never_fall(seed: int):
    """Against the max-min formula of isotonic regression, weighed by the decodes of each width."""
    rng = random.Random(seed)
    samples = {width: [rng.uniform(0.5, 1.5)] * rng.randint(1, 4) for width in range(1, 9)}
    found = oracle([record(width, s) for width, taken in samples.items() for s in taken], 1.0)
    seconds = np.array([taken[0] for taken in samples.values()])
    weights = np.array([len(taken) for taken in samples.values()])

    def mean(i: int, j: int) -> float:
        return float(np.average(seconds[i : j + 1], weights=weights[i : j + 1]))

    best = [max(min(mean(i, j) for j in range(at, 8)) for i in range(at + 1)) for at in range(8)]
    assert found is not None
    assert list(found.seconds_by_width.values()) == pytest.approx(best)
    assert list(found.seconds_by_width) == list(samples)


def test_of_each_width_the_faster_half_counts():
    rounds = [record(1, s) for s in (1.0, 3.0, 1.2, 50.0)] + [record(2, 2.0)]
    found = oracle(rounds, 0.1)
    assert found is not None
    assert found.seconds_by_width == {1: pytest.approx(1.1), 2: 2.0}


def test_tokens_that_ride_again_make_no_width():
    """A plain commit of 20 tokens gives one row of logits and one token."""
    riders = [record(1, 3.0, n_pending=20)] * 3 + [record(4, 2.5, 2, n_pending=9)] * 3
    found = oracle([record(1, 1.0), record(4, 2.0, 4), *riders], 0.1)
    assert found is not None
    assert found.seconds_by_width == {1: 1.0, 4: 2.0}


def test_a_bound_that_riders_alone_would_exceed_is_raised():
    """All by chance: the decode of 4 alone met a busy machine, those with riders did not."""
    rounds = [record(1, 1.0), record(4, 4.0, 4), *[record(4, 2.0, 4, n_pending=2)] * 9]
    found = oracle(rounds, sum(r.n_emitted for r in rounds) / sum(r.decode_s for r in rounds))
    assert found is not None
    assert found.seconds_by_width[4] == 2.0
    assert found.share < 1


def test_a_width_that_only_ever_had_riders_costs_what_it_took():
    found = oracle([record(1, 1.0), record(4, 2.5, 2, n_pending=9)], 0.1)
    assert found is not None
    assert found.seconds_by_width == {1: 1.0, 4: 2.5}


@pytest.mark.parametrize(
    ("rounds", "tokens_per_s"),
    [
        pytest.param([], 1.0, id="no-rounds"),
        pytest.param([record(1, 1.0)] * 3, 1.0, id="one-width"),
        pytest.param([record(9, 5.0, reason="prompt"), record(1, 1.0)], 1.0, id="the-prompt-is-none"),
        pytest.param([record(1, 1.0), record(2, 0.0)], 1.0, id="not-timed"),
        pytest.param([record(1, 1.0), record(1, 2.0, n_pending=7)], 1.0, id="only-riders"),
        pytest.param([record(1, 1.0), record(2, 1.0)], 0.0, id="stopped-at-once"),
    ],
)
def test_with_fewer_than_two_widths_nothing_is_said(rounds: list[RoundRecord], tokens_per_s: float):
    assert oracle(rounds, tokens_per_s) is None


def test_the_stats_tell_it():
    stats = Stats(rounds=[record(1, 1.0), record(4, 2.0, 4)], timings=Timings(generate_s=5.0, n_generated=6))
    assert stats.oracle is not None
    assert (stats.oracle.tokens_per_s, stats.oracle.share) == (2.0, 0.5)
    assert "2.0 tokens/s at width 4, 50% of it reached" in str(stats)
    assert stats.to_dict()["oracle"]["seconds_by_width"] == {"1": 1.0, "4": 2.0}
