"""The speculators of one target: built by name once, kept with what they learned.

Owns the loading of draft models and the names "draft-model" and "draft:PATH"; leaves the other names to
`pyspec.speculators.registry` and drafting to the speculators.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import Any

from pyspec import models
from pyspec._core import Model
from pyspec.budget import BudgetOptions, CostModel
from pyspec.budgeted import BudgetedDrafting
from pyspec.checkpoints import CheckpointOptions
from pyspec.config import from_keywords
from pyspec.drafting import Drafting
from pyspec.errors import InvalidValueError
from pyspec.speculators import Chain, Grammar, Spec, Speculator, identity, make, parse_options, register
from pyspec.speculators.draft_model import DraftModel, DraftModelOptions
from pyspec.stats import Stats

__all__ = ["SpeculatorPool", "tell_silence"]

_N_KEPT = 32
"""Speculators whose records are kept, the ones used last."""

_log = logging.getLogger("pyspec")


class SpeculatorPool:
    """Builds what a `spec` names, for one target.

    Args:
        target: the model that verifies.
        n_ctx: positions of a draft model's context.
        draft_model: path, name or loaded model that "draft-model" means.
        draft_options: options of draft models, an object or its fields as a dict.
        rollback: strategy of the draft models' contexts.
        context: further options of the draft models' contexts.
        n_gpu_layers: layers on the GPU of draft models that are loaded here, negative for all.
        budget: how lengths are decided, None leaves them to the speculators.
        keeps_accepted: the target's rollback loses no accepted tokens.
        cost: what is known of the target's decodes, None to learn it.
        checkpoints: how many context checkpoints each draft model keeps.
    """

    def __init__(
        self,
        target: Model,
        *,
        n_ctx: int,
        draft_model: str | PathLike[str] | Model | None = None,
        draft_options: DraftModelOptions | dict[str, Any] | None = None,
        rollback: str = "auto",
        checkpoint_budget_bytes: int = 0,
        context: dict[str, Any] | None = None,
        n_gpu_layers: int = -1,
        budget: BudgetOptions | None = None,
        keeps_accepted: bool = False,
        cost: CostModel | None = None,
        checkpoints: CheckpointOptions | None = None,
    ) -> None:
        self._target = target
        self._budget = budget
        self._cost = cost or CostModel(budget or BudgetOptions())
        self._keeps_accepted = keeps_accepted
        self._drafting: dict[tuple[int, ...], Drafting] = {}
        self._n_gpu_layers = n_gpu_layers
        self._source = draft_model
        self._options = (
            draft_options
            if isinstance(draft_options, DraftModelOptions)
            else from_keywords(DraftModelOptions, draft_options or {})
        )
        self._settings: dict[str, Any] = {
            "n_ctx": n_ctx,
            "rollback": rollback,
            "checkpoint_budget_bytes": checkpoint_budget_bytes,
            "context": context,
            "checkpoints": checkpoints,
        }
        self._made: dict[tuple[str, ...], Speculator | None] = {}
        self._drafts: dict[str, DraftModel] = {}
        self._grammar = Grammar()

    @property
    def n_draft_models(self) -> int:
        """Draft models loaded so far."""
        return len(self._drafts)

    def get(self, spec: Spec | Sequence[Spec]) -> Speculator | None:
        """What `spec` names; the same names give the same object again.

        Raises:
            UnknownOptionError, InvalidValueError: no such name or option.
            ModelLoadError, VocabularyMismatchError: a draft model that cannot be used.
        """
        names = [spec] if isinstance(spec, str) else list(spec) if isinstance(spec, (list, tuple)) else [None]
        texts = [name for name in names if isinstance(name, str)]
        key = tuple(texts) if len(texts) == len(names) else None
        if key is not None and key in self._made:
            return self._made[key]
        if key is None and isinstance(spec, (list, tuple)):
            spec = [self.get(one) if isinstance(one, str) else one for one in spec]
        has_draft = self._source is not None
        made = make(spec, n_vocab=self._target.vocab.n_tokens, draft=self._draft, has_draft=has_draft)
        if key is not None:
            self._made[key] = made
        return made

    def drafting(self, spec: Spec | Sequence[Spec], *, grammar: bool = False) -> Drafting:
        """What `spec` names, with what was learned about it; what all learn of the target's costs is shared.

        With `grammar` the speculator of that name stands in front, unless `spec` names none at all.

        Raises: as `get`.
        """
        plain = Drafting(self.get(spec))
        if grammar and plain.speculator is not None and not any(isinstance(m, Grammar) for m in plain.members):
            plain = Drafting(Chain([self._grammar, *plain.members], n_vocab=self._target.vocab.n_tokens))
        if plain.speculator is None or self._budget is None:
            return plain
        key = tuple(map(identity, plain.members))
        kept = self._drafting.pop(key, None)
        if kept is None:
            budget, cost = self._budget, self._cost
            kept = BudgetedDrafting(plain.speculator, budget, cost=cost, keeps_accepted=self._keeps_accepted)
        self._drafting[key] = kept  # holds the members, so that no others get their ids
        if len(self._drafting) > _N_KEPT:
            del self._drafting[next(iter(self._drafting))]
        return kept

    def close(self) -> None:
        """Free the draft models' contexts."""
        for draft in self._drafts.values():
            draft.close()
        self._drafts.clear()
        self._made.clear()
        self._drafting.clear()

    def _draft(self, source: str, options: str) -> DraftModel:
        """The draft model at `source` ("" is the one of the constructor), loaded once."""
        given: str | PathLike[str] | Model | None = source or self._source
        if given is None:
            raise InvalidValueError(
                name="spec", value="draft-model", allowed="used with draft_model=PATH, or 'draft:PATH'"
            )
        name = given.path if isinstance(given, Model) else fspath(given)
        key = f"{name}:{options}"
        if key not in self._drafts:
            self._drafts[key] = DraftModel(
                given if isinstance(given, Model) else Model(models.resolve(given), n_gpu_layers=self._n_gpu_layers),
                target=self._target.vocab,
                options=parse_options(DraftModelOptions, options) if options else self._options,
                is_timed=self._budget is not None and self._budget.measured,
                **self._settings,
            )
        return self._drafts[key]


def tell_silence(speculator: Speculator | None, stats: Stats) -> None:
    """Log that a speculator had many rounds and no draft; a warning where a draft model was loaded for nothing."""
    if speculator is not None and stats.n_drafts == 0 and stats.n_rounds > 32:
        name, n_silent = speculator.name, stats.drafting.n_silent
        if n_silent:
            _log.info("no draft of %s promised to pay in %d of %d rounds", name, n_silent, stats.n_rounds)
        else:
            level = logging.WARNING if "draft-model" in name else logging.INFO
            _log.log(level, "speculator %s drafted nothing in %d rounds", name, stats.n_rounds)


def _draft(argument: str, *, draft: Callable[[str, str], DraftModel], **_: object) -> DraftModel:
    if not argument:
        raise InvalidValueError(name="spec", value="draft", allowed="'draft:PATH', or 'draft-model' with draft_model=")
    return draft(argument, "")


def _draft_model(argument: str, *, draft: Callable[[str, str], DraftModel], **_: object) -> DraftModel:
    return draft("", argument)


register("draft", _draft)
register("draft-model", _draft_model)
