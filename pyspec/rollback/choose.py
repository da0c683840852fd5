"""Which rollback strategy a context gets.

Owns the order of preference, the weighing of measured costs, the reason in words, and the refusal of a strategy that
the memory cannot do. Leaves the finding of what the memory can do to `pyspec.memory`, and measuring to `timing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pyspec._core import Context
from pyspec.errors import InvalidValueError, UnknownOptionError, UnsupportedError
from pyspec.memory import Capabilities
from pyspec.rollback.checkpoint import CheckpointDevice, CheckpointHost
from pyspec.rollback.costs import StrategyCost
from pyspec.rollback.fork import Fork
from pyspec.rollback.mixed import SnapshotShadow
from pyspec.rollback.protocol import Rollback
from pyspec.rollback.shadow import Shadow
from pyspec.rollback.snapshot import Snapshot
from pyspec.rollback.trim import Trim

__all__ = ["NAMES", "RollbackName", "able", "build", "candidates", "check_name", "choose", "extra_bytes", "needs_spare"]

RollbackName = Literal[
    "auto", "trim", "snapshot", "shadow", "snapshot+shadow", "fork", "checkpoint-host", "checkpoint-device"
]
NAMES: tuple[str, ...] = (
    "auto",
    "trim",
    "snapshot",
    "shadow",
    "snapshot+shadow",
    "fork",
    "checkpoint-host",
    "checkpoint-device",
)

WORTH_IT = 0.1
"""Share of a round by which a strategy must beat the one before it in the order; less is noise."""


def check_name(name: str) -> str:
    """Return the strategy's full name ("checkpoint" means "checkpoint-host").

    Raises:
        UnknownOptionError: no such strategy.
        InvalidValueError: no name at all.
    """
    if not isinstance(name, str):
        raise InvalidValueError(name="rollback", value=name, allowed=f"one of {', '.join(NAMES)}")
    name = "checkpoint-host" if name == "checkpoint" else name
    if name not in NAMES:
        raise UnknownOptionError(name=name, known=NAMES, where="rollback strategy")
    return name


def needs_spare(name: str, kind: str) -> bool:
    """Whether a context for strategy `name` on memory `kind` should have one more sequence and a unified buffer."""
    return name in ("shadow", "snapshot+shadow", "fork") or (name == "auto" and kind in ("recurrent", "hybrid"))


def able(can: Capabilities, *, spare: bool) -> dict[str, bool]:
    """Which strategies a context can do; `spare`: there is a sequence that nobody else uses."""
    return {
        "trim": can.can_trim,
        "snapshot": can.n_snapshots > 0,
        "shadow": can.can_shadow and spare,
        "snapshot+shadow": can.can_shadow and spare and can.n_snapshots > 0,
        "fork": can.can_fork and spare,
        "checkpoint-host": True,
        "checkpoint-device": can.can_keep_on_device,
    }


def extra_bytes(name: str, can: Capabilities) -> int:
    """Bytes that a strategy holds beside the memory that plain decoding has.

    One state; with snapshots `n_rs_seq` more for each sequence. No strategy adds a KV cell to the buffer.
    """
    if name == "trim" or (name == "fork" and can.kind not in ("recurrent", "hybrid")):
        return 0
    n_states = {"snapshot": can.n_snapshots, "snapshot+shadow": 2 * can.n_snapshots + 1}
    return can.state_bytes * n_states.get(name, 1)


def candidates(can: Capabilities, *, spare: bool, device: bool = True) -> list[str]:
    """What `auto` weighs, in order of preference; a single one where another could never be better.

    Cutting back is free. Snapshots are paid for by every decode, so they are used where the context has them. `fork`
    is a shadow that also walks every attention cell, so it stands in only where there is no shadow. Without a `device`
    other than the CPU, a checkpoint on the device is one on the host.
    """
    ok = able(can, spare=spare)
    for name in ("trim", "snapshot+shadow"):
        if ok[name]:
            return [name]
    shared = next((name for name in ("shadow", "fork") if ok[name]), None)
    copied = ("checkpoint-host", "checkpoint-device") if device else ("checkpoint-host",)
    return [name for name in (shared, *copied) if name is not None and ok[name]]


def build(name: str, context: Context, *, seq_id: int, spare: int | None, checkpoint_budget_bytes: int = 0) -> Rollback:
    """The strategy `name`, which this context can do."""
    if name in ("checkpoint-host", "checkpoint-device"):
        kind = CheckpointHost if name == "checkpoint-host" else CheckpointDevice
        return kind(context, seq_id, budget_bytes=checkpoint_budget_bytes)
    if name in ("trim", "snapshot"):
        return Trim(context, seq_id) if name == "trim" else Snapshot(context, seq_id)
    assert spare is not None, f"{name} needs a spare sequence"
    sharing: dict[str, type[Shadow | Fork | SnapshotShadow]] = {
        "shadow": Shadow,
        "fork": Fork,
        "snapshot+shadow": SnapshotShadow,
    }
    return sharing[name](context, seq_id, spare)


def choose(
    context: Context,
    can: Capabilities,
    name: str = "auto",
    *,
    seq_id: int = 0,
    spare: int | None = None,
    checkpoint_budget_bytes: int = 0,
    costs: Mapping[str, StrategyCost] | None = None,
) -> tuple[Rollback, str]:
    """The strategy for one sequence of `context`, and the reason for it.

    `auto` takes the first of `candidates`, unless `costs` show that a later one makes a round cheaper by more than
    `WORTH_IT`. `spare` is a sequence id that nobody else uses.

    Raises:
        UnknownOptionError: no strategy of that name.
        UnsupportedError: this memory cannot do it, with the ones that it can.
    """
    name = check_name(name)
    ok = able(can, spare=spare is not None)
    if name == "auto":
        name, reason = _weigh(can, candidates(can, spare=spare is not None), costs or {})
    else:
        reason = "asked for"
        if not ok[name]:
            raise UnsupportedError(
                what=f"rollback={name!r}",
                why=f"this context has {can.kind.replace('_', ' ')} memory, n_rs_seq={can.n_snapshots}, "
                f"n_seq_max={context.n_seq_max}",
                way_out=f"use one of {', '.join(n for n, yes in ok.items() if yes)}, or 'auto'",
            )
    strategy = build(name, context, seq_id=seq_id, spare=spare, checkpoint_budget_bytes=checkpoint_budget_bytes)
    return strategy, reason


def _weigh(can: Capabilities, names: list[str], costs: Mapping[str, StrategyCost]) -> tuple[str, str]:
    kind = can.kind.replace("_", " ")
    best = names[0]
    for name in names[1:]:
        if name in costs and best in costs and costs[name].round_s < (1 - WORTH_IT) * costs[best].round_s:
            best = name
    why = {
        "trim": f"{kind} memory can be cut back for free",
        "snapshot+shadow": f"{kind} memory cannot be cut back; {can.n_snapshots} states are kept for short drafts and "
        "a spare sequence shares the state for longer ones",
        "shadow": f"{kind} memory cannot be cut back; a spare sequence shares its state",
        "fork": f"{kind} memory cannot be cut back; a spare sequence shares all of it",
        "checkpoint-host": f"{kind} memory can neither be cut back nor shared",
        "checkpoint-device": f"{kind} memory can neither be cut back nor shared",
    }[best]
    if best.startswith("checkpoint") and ("shadow" in names or "fork" in names):
        why = f"{kind} memory cannot be cut back, and copying the state is faster here than sharing it"
    timed = [f"{n} {costs[n].round_s * 1e3:.3g} ms" for n in names if n in costs]
    return best, f"{why} (rejected round: {', '.join(timed)})" if len(timed) > 1 else why
