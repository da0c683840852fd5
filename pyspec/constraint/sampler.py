"""Choosing under a constraint: the target's sampler among the tokens that a matcher allows.

Owns the samplers that tell a matcher what was chosen, and the lending of a matcher to the speculator "grammar".
Leaves the choice among the allowed tokens to `pyspec._core.Sampler`, and what is allowed to `matcher`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pyspec._core import Context, Model, Sampler
from pyspec.config import SamplingOptions
from pyspec.constraint.kinds import Constraint, llguidance
from pyspec.constraint.matcher import Matcher, compile_constraint, compile_grammar
from pyspec.drafting import Drafting
from pyspec.errors import ConstraintError, InvalidValueError, PyspecError
from pyspec.residual import ResidualSampler, TargetSampler, with_residual
from pyspec.speculators.grammar import Grammar

__all__ = ["ConstrainedSampler", "GrammarFollower", "constrained", "follower_of", "matcher_of"]

_log = logging.getLogger("pyspec")


class ConstrainedSampler:
    """A sampler that chooses among the tokens that a matcher allows, with the law that a GBNF grammar would have.

    The sampler chooses as without a constraint; only when that token is forbidden it chooses again, among the allowed
    ones, with what is left of the same random number. So one number is drawn per token, whatever is allowed.

    Args:
        sampler: the target's.
        matcher: of this generation.
    """

    is_greedy = False

    def __init__(self, sampler: Sampler, matcher: Matcher) -> None:
        self._sampler = sampler
        self.matcher = matcher

    @property
    def seed(self) -> int:
        """The sampler's."""
        return self._sampler.seed

    def reset(self) -> None:
        """A generation begins."""
        self._sampler.reset()
        self.matcher.reset()

    def sample(self, context: Context, row: int) -> int:
        """An allowed token at an output row of the last decode.

        Raises:
            ConstraintError: no token may follow.
            PyspecError: as the sampler's own.
        """
        sampler, matcher = self._sampler, self.matcher
        if matcher.is_forced:
            return sampler.sample(context, row, matcher.mask())
        token = sampler.sample(context, row)
        return token if matcher.allows(token) else sampler.sample(context, row, matcher.mask(), again=True)

    def probabilities(self, context: Context, row: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The law that `sample` draws from."""
        return self._sampler.probabilities(context, row, self.matcher.mask())

    def accept(self, token: int, *, prompt: bool = False) -> None:
        """`token` was chosen; one of the prompt counts for penalties, not for the constraint."""
        if not prompt:
            self.matcher.accept(token)
        self._sampler.accept(token, prompt=prompt)


class GrammarFollower:
    """A sampler with a GBNF grammar of its own, which a matcher of the same grammar follows to tell forced tokens.

    What is chosen is the sampler's business alone: where the matcher loses its place, there are no more drafts.

    Args:
        sampler: the target's.
        matcher: of the same grammar.
    """

    is_greedy = False

    def __init__(self, sampler: Sampler, matcher: Matcher) -> None:
        self._sampler = sampler
        self._matcher = matcher
        self._lost = False

    @property
    def seed(self) -> int:
        """The sampler's."""
        return self._sampler.seed

    def reset(self) -> None:
        """A generation begins."""
        self._sampler.reset()
        self._matcher.reset()
        self._lost = False

    def sample(self, context: Context, row: int) -> int:
        """As the sampler."""
        return self._sampler.sample(context, row)

    def probabilities(self, context: Context, row: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """As the sampler."""
        return self._sampler.probabilities(context, row)

    def accept(self, token: int, *, prompt: bool = False) -> None:
        """As the sampler, and the matcher goes with it."""
        self._sampler.accept(token, prompt=prompt)
        if not prompt and not self._lost:
            try:
                self._matcher.accept(token)
            except ConstraintError:
                self._lost = True

    def forced(self, n_max: int) -> list[int]:
        """The tokens that the grammar forces, as they are usually cut; the target may cut them otherwise."""
        return [] if self._lost else self._matcher.forced(n_max)


def matcher_of(
    constraint: Constraint | None, options: SamplingOptions, model: Model, *, ends: Iterable[int]
) -> Matcher | None:
    """The constraint of a generation at its beginning, None where there is none.

    Args:
        constraint: what the text must look like.
        options: of the generation's sampling.
        model: the target.
        ends: tokens that end the generation, allowed exactly where the text may end.

    Raises:
        InvalidValueError: a constraint beside a GBNF grammar.
        ConstraintError, VocabularyMissingError, UnsupportedError: as `compile_constraint`.
    """
    if constraint is None:
        return None
    if options.grammar is not None:
        allowed = "left out beside grammar=, or the other way round"
        raise InvalidValueError(name="constraint", value=constraint, allowed=allowed)
    return compile_constraint(constraint, model, ends=ends)


def constrained(
    sampler: Sampler,
    matcher: Matcher | None,
    follower: GrammarFollower | None,
    drafting: Drafting,
    options: SamplingOptions,
) -> TargetSampler | ResidualSampler:
    """What chooses a generation's tokens, by everything that was asked for.

    The members "grammar" of `drafting` draft what the matcher, or the sampler's GBNF grammar, forces.

    Args:
        sampler: the target's, with its GBNF grammar if there is one.
        matcher: of the generation's constraint.
        follower: of the sampler's GBNF grammar, None for no drafts from it.
        drafting: who drafts.
        options: the sampler's.

    Raises:
        UnsupportedError: as `with_residual`.
    """
    chooser: TargetSampler = sampler
    forced = None
    drafters = [member for member in drafting.members if isinstance(member, Grammar)]
    if matcher is not None:
        chooser, forced = ConstrainedSampler(sampler, matcher), matcher.forced
    elif drafters and follower is not None:
        chooser, forced = follower, follower.forced
    for drafter in drafters:
        drafter.follow(forced, certain=matcher is not None)
    return with_residual(chooser, drafting, options)


def follower_of(sampler: Sampler, model: Model, options: SamplingOptions) -> GrammarFollower | None:
    """A follower of the sampler's GBNF grammar, None where there is none or where it cannot be followed.

    The first one of a model reads its vocabulary, which takes a second where that is large.
    """
    if options.grammar is None:
        return None
    if options.grammar_root != "root":
        _log.info("no drafts from the grammar: its root is %r", options.grammar_root)
        return None
    try:
        grammar = llguidance().grammar_from("gbnf", options.grammar)
        return GrammarFollower(sampler, compile_grammar(grammar, model))
    except (PyspecError, ValueError, RecursionError) as error:
        _log.info("no drafts from the grammar: %s", error)
        return None
