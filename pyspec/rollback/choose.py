"""Which rollback strategy a context gets.

Owns the order of preference, the reason in words, and the refusal of a strategy that the memory cannot do.
Leaves the finding of what the memory can do to `pyspec.memory`.
"""

from __future__ import annotations

from typing import Literal

from pyspec._core import Context
from pyspec.errors import UnknownOptionError, UnsupportedError
from pyspec.memory import Capabilities
from pyspec.rollback.checkpoint import CheckpointDevice, CheckpointHost
from pyspec.rollback.fork import Fork
from pyspec.rollback.protocol import Rollback
from pyspec.rollback.shadow import Shadow
from pyspec.rollback.snapshot import Snapshot
from pyspec.rollback.trim import Trim

__all__ = ["NAMES", "RollbackName", "choose", "needs_spare"]

RollbackName = Literal["auto", "trim", "snapshot", "shadow", "fork", "checkpoint-host", "checkpoint-device"]
NAMES: tuple[str, ...] = (
    "auto",
    "trim",
    "snapshot",
    "shadow",
    "fork",
    "checkpoint-host",
    "checkpoint-device",
)


def check_name(name: str) -> str:
    """Return the strategy's full name ("checkpoint" means "checkpoint-host").

    Raises:
        UnknownOptionError: no such strategy.
    """
    name = "checkpoint-host" if name == "checkpoint" else name
    if name not in NAMES:
        raise UnknownOptionError(name=str(name), known=NAMES, where="rollback strategy")
    return name


def needs_spare(name: str, kind: str) -> bool:
    """Whether a context for strategy `name` on memory `kind` should have one more sequence and a unified buffer."""
    return name in ("shadow", "fork") or (name == "auto" and kind in ("recurrent", "hybrid"))


def choose(
    context: Context,
    can: Capabilities,
    name: str = "auto",
    *,
    seq_id: int = 0,
    spare: int | None = None,
    checkpoint_budget_bytes: int = 0,
) -> tuple[Rollback, str]:
    """The strategy for one sequence of `context`, and the reason for it.

    `auto` takes `trim` where memory can be cut; else `shadow`, which copies the state once inside the graph,
    then `checkpoint-host`, which works everywhere. `spare` is a sequence id that nobody else uses.

    Raises:
        UnknownOptionError: no strategy of that name.
        UnsupportedError: this memory cannot do it, with the ones that it can.
    """
    name = check_name(name)
    kind = can.kind.replace("_", " ")
    able = {
        "trim": can.can_trim,
        "snapshot": can.n_snapshots > 0,
        "shadow": can.can_shadow and spare is not None,
        "fork": can.can_fork and spare is not None,
        "checkpoint-host": True,
        "checkpoint-device": can.can_keep_on_device,
    }
    if name == "auto":
        name = next(n for n in ("trim", "shadow", "checkpoint-host") if able[n])
        reason = {
            "trim": f"{kind} memory can be cut back for free",
            "shadow": f"{kind} memory cannot be cut back; a spare sequence shares its state",
            "checkpoint-host": f"{kind} memory can neither be cut back nor shared",
        }[name]
    else:
        reason = "asked for"
        if not able[name]:
            raise UnsupportedError(
                what=f"rollback={name!r}",
                why=f"this context has {kind} memory, n_rs_seq={can.n_snapshots}, n_seq_max={context.n_seq_max}",
                way_out=f"use one of {', '.join(n for n, ok in able.items() if ok)}, or 'auto'",
            )
    budget = checkpoint_budget_bytes
    if name == "shadow" and spare is not None:
        return Shadow(context, seq_id, spare), reason
    if name == "fork" and spare is not None:
        return Fork(context, seq_id, spare), reason
    if name == "snapshot":
        return Snapshot(context, seq_id), reason
    if name == "checkpoint-host":
        return CheckpointHost(context, seq_id, budget_bytes=budget), reason
    if name == "checkpoint-device":
        return CheckpointDevice(context, seq_id, budget_bytes=budget), reason
    return Trim(context, seq_id), reason
