"""Speculative sampling: keeping a drawn draft token with the right chance, so that the target's law stays the same.

Owns the rule of Leviathan et al. (2023, arXiv:2211.17192) and Chen et al. (2023, arXiv:2302.01318) for one token: keep
it with probability min(1, p/q), else draw from what p has more than q. Owns the sampler that applies it, too.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyspec._core import Context
from pyspec.config import SamplingOptions
from pyspec.drafting import Drafting
from pyspec.errors import UnsupportedError
from pyspec.speculators import Law

__all__ = ["ResidualSampler", "TargetSampler", "keep_or_correct", "with_residual"]

_STREAM = 0x5EC
"""Sets these random numbers apart from the sampler's own, which have the same seed."""


def keep_or_correct(token: int, p: Law, q: Law, rng: np.random.Generator) -> int:
    """The target's token where a draft proposed `token`.

    Args:
        token: drawn from `q`.
        p: the target's law there.
        q: the law that the draft token was drawn from.
        rng: two numbers are drawn at most.

    Returns:
        `token` when it is kept, else another one. Over draws of `token` from `q` the result has the law `p`.
    """
    p_token, q_token = _chance(p, token), _chance(q, token)
    if p_token > 0 and rng.random() * q_token < p_token:
        return token
    ids, chances = p
    rest = chances.astype(np.float64)
    order = np.argsort(ids)
    places = np.searchsorted(ids, q[0], sorter=order)
    places[places == len(ids)] = 0
    places = order[places]
    shared = ids[places] == q[0]
    rest[places[shared]] -= q[1][shared]
    rest = np.maximum(rest, 0.0)
    total = rest.sum()
    if total <= 0.0:  # p and q are equal up to rounding
        rest, total = chances.astype(np.float64), float(chances.sum())
    edges = np.cumsum(rest)
    at = int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
    return int(ids[min(at, len(ids) - 1)])


def _chance(law: Law, token: int) -> float:
    at = np.flatnonzero(law[0] == token)
    return float(law[1][at[0]]) if len(at) else 0.0


class TargetSampler(Protocol):
    """What chooses the target's tokens and can tell by which law: `pyspec._core.Sampler`, or one under a constraint."""

    @property
    def is_greedy(self) -> bool:
        """Every choice is the row's largest logit."""

    @property
    def seed(self) -> int:
        """Of its random numbers."""

    def reset(self) -> None:
        """A generation begins."""

    def sample(self, context: Context, row: int) -> int:
        """The token at an output row of the last decode."""

    def probabilities(self, context: Context, row: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The law that `sample` draws from."""

    def accept(self, token: int, *, prompt: bool = False) -> None:
        """`token` stands in the prompt, or was chosen."""


_Target = TypeVar("_Target", bound=TargetSampler)


class ResidualSampler:
    """A sampler that keeps drawn draft tokens by `keep_or_correct`, and draws all others as it always does.

    The text has the target's law, but for a seed it is not the text of plain decoding.

    Args:
        sampler: the target's.
        drafting: knows the draft that is being verified, and the laws that its tokens were drawn from.
        seed: of the chances.
    """

    is_greedy = False

    def __init__(self, sampler: TargetSampler, drafting: Drafting, seed: int) -> None:
        self._sampler = sampler
        self._drafting = drafting
        self._seed = seed
        self.reset()

    def reset(self) -> None:
        """Back to the seed."""
        self._sampler.reset()
        self._rng = np.random.default_rng([self._seed, _STREAM])
        self._round, self._at = -1, 0
        self._drafting.reseed(self._seed)

    def sample(self, context: Context, row: int) -> int:
        """The target's token at an output row; rows come in order, one more than the draft has at most."""
        drafting = self._drafting
        if drafting.n_rounds != self._round:
            self._round, self._at = drafting.n_rounds, 0
        at, self._at = self._at, self._at + 1
        if at < len(drafting.laws):
            p = self._sampler.probabilities(context, row)
            return keep_or_correct(drafting.drafted[at], p, drafting.laws[at], self._rng)
        return self._sampler.sample(context, row)

    def accept(self, token: int, *, prompt: bool = False) -> None:
        """As the target's sampler."""
        self._sampler.accept(token, prompt=prompt)


def with_residual(sampler: _Target, drafting: Drafting, options: SamplingOptions) -> _Target | ResidualSampler:
    """The sampler that verifies drafts of `drafting`: the target's own, unless they may be drawn from a law.

    Raises:
        UnsupportedError: drawn drafts with mirostat, whose bound follows its own draws.
    """
    if sampler.is_greedy or options.temperature == 0 or not drafting.draws:
        return sampler
    if options.mirostat:
        raise UnsupportedError(
            what=f"mirostat={options.mirostat} with drafts that are drawn (draft temperature above 0)",
            why="mirostat's bound follows the draws that it makes itself",
            way_out="use greedy drafts (draft_options={'temperature': 0}), or no mirostat",
        )
    return ResidualSampler(sampler, drafting, sampler.seed)
