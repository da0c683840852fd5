"""A context made ready for one sequence: how many sequences it gets, what its memory can do, how it is rolled back.

Owns the order of these steps, which a target and a draft model share. Leaves each step to its own module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspec._core import Context, Model
from pyspec.exact import ExactMemory
from pyspec.flash_attention import flash_attention
from pyspec.memory import Capabilities, has_device, probe
from pyspec.rollback import StrategyCost, cached_costs, candidates, check_name, choose, needs_spare
from pyspec.sequence import SequenceMemory
from pyspec.width_costs import cached_width_costs

__all__ = ["Assembly", "assemble"]


@dataclass(frozen=True, slots=True)
class Assembly:
    """What `assemble` made.

    Attributes:
        context: owned by the caller.
        capabilities: what its memory was seen to do.
        memory: sequence 0, with its rollback strategy.
        reason: why that strategy was chosen.
        flash_attn: as asked for or chosen, None where llama.cpp decides.
        costs: what was measured for the choice, by strategy; empty where there was nothing to choose.
        width_costs: seconds of a decode by width; empty where it was not asked for or could not be told.
    """

    context: Context
    capabilities: Capabilities
    memory: SequenceMemory
    reason: str
    flash_attn: bool | None = None
    costs: dict[str, StrategyCost] = field(default_factory=dict)
    width_costs: dict[int, float] = field(default_factory=dict)


def assemble(
    model: Model,
    *,
    options: Mapping[str, Any],
    n_seq_max: int = 1,
    rollback: str = "auto",
    checkpoint_budget_bytes: int = 0,
    exact: bool = False,
    placement: object = None,
    width_max: int = 0,
) -> Assembly:
    """Make a context of `model` and choose how its sequence 0 is rolled back.

    Args:
        model: fully loaded.
        options: parameters of `pyspec._core.Context`.
        n_seq_max: sequences for the caller; a spare one for rollback and a scratch one for `exact` come on top.
        rollback: a strategy or "auto", which measures the possible ones at first use (`pyspec.rollback.timing`).
        checkpoint_budget_bytes: most bytes of one checkpoint, 0 for no limit.
        exact: keep all decodes in one width class.
        placement: anything that says where the model's layers lie; costs are remembered for it.
        width_max: the widest decode whose cost is of interest, which is measured at first use (`pyspec.width_costs`);
            below 2 nothing is. Not with `exact`, where decodes are padded.

    Raises:
        PyspecError: the context cannot be had, or the strategy or exactness not with this memory.
    """
    rollback = check_name(rollback)
    spare = needs_spare(rollback, model.memory_kind)
    defaults: dict[str, Any] = {
        "n_seq_max": n_seq_max + spare + exact,
        "kv_unified": True if spare or exact else None,
    }
    options = {**options, "flash_attn": flash_attention(model, options)}
    if exact and options["flash_attn"] is None:
        options["flash_attn"] = True
    context = Context(model, **defaults | options)
    can = probe(context)
    spare_id = n_seq_max if spare else None
    settings = {name: str(value) for name, value in options.items()} | {"placement": str(placement)}
    costs: dict[str, StrategyCost] = {}
    if rollback == "auto":
        names = candidates(can, spare=spare, device=has_device())
        costs = cached_costs(context, names, spare=spare_id, settings=settings)
    strategy, reason = choose(
        context, can, rollback, spare=spare_id, checkpoint_budget_bytes=checkpoint_budget_bytes, costs=costs
    )
    if exact:
        memory: SequenceMemory = ExactMemory(context, strategy, scratch=n_seq_max + spare)
    else:
        memory = SequenceMemory(context, strategy)
    width_costs: dict[int, float] = {}
    if width_max > 1 and not exact:
        width_costs = cached_width_costs(context, width_max=width_max, settings=settings)
    return Assembly(context, can, memory, reason, options["flash_attn"], costs, width_costs)
