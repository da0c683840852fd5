"""Requests of an engine and the places they are worked at.

Owns what is known of each, and the engine's counts. Leaves what happens to them to `pyspec.engine.scheduler`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspec.decoder import Decoder
from pyspec.engine.batch_cost import BatchCost
from pyspec.engine.sequences import MemberMemory
from pyspec.engine.ticket import Ticket
from pyspec.generation import Generation
from pyspec.speculator_pool import SpeculatorPool

__all__ = ["EngineStats", "Job", "Slot"]


@dataclass(slots=True, kw_only=True)
class Job:
    """A request, waiting or at work.

    Attributes:
        ticket: told what becomes of it.
        spec: who drafts.
        n_cells: positions that it may need.
    """

    ticket: Ticket
    spec: Any
    n_cells: int

    @property
    def generation(self) -> Generation:
        """What is generated."""
        return self.ticket.generation


@dataclass(slots=True, kw_only=True)
class EngineStats:
    """What an engine did since it began.

    Attributes:
        n_submitted, n_done, n_failed, n_cancelled: requests; cancelled and timed-out ones are done, too.
        n_running, n_queued: requests now.
        n_prompt: prompt tokens of the requests that were begun.
        n_reused: of those, tokens that memory held already.
        n_generated: tokens of requests that are done.
        n_decodes: batches decoded.
        n_decoded: tokens in them.
        n_drafted, n_accepted: draft tokens of requests that are done.
    """

    n_submitted: int = 0
    n_done: int = 0
    n_failed: int = 0
    n_cancelled: int = 0
    n_running: int = 0
    n_queued: int = 0
    n_prompt: int = 0
    n_reused: int = 0
    n_generated: int = 0
    n_decodes: int = 0
    n_decoded: int = 0
    n_drafted: int = 0
    n_accepted: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """A place to work at: a sequence with its decoder and speculators. Its memory outlives a request, to be reused.

    Attributes:
        stops: prompt positions that get a checkpoint, and whether each only follows the end.
        used_at: the step at which it was used last.
    """

    decoder: Decoder
    memory: MemberMemory
    cost: BatchCost
    speculators: SpeculatorPool
    reason: str
    has_spare: bool
    job: Job | None = None
    stops: dict[int, bool] = field(default_factory=dict)
    used_at: int = 0

    @property
    def has_begun(self) -> bool:
        """A request is at work that has had its first round."""
        return self.job is not None and self.decoder.stats.n_rounds > 0

    @property
    def is_feeding(self) -> bool:
        """A request is at work whose prompt is not decoded yet."""
        return self.job is not None and not self.has_begun
