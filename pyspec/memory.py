"""What the memory of a live context can do.

Owns the probe: it tries on the context itself (and clears it), since flags and readbacks cannot be trusted alone.
Leaves the choice of a strategy to `pyspec.rollback`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspec._core import STATE_ON_DEVICE, STATE_PARTIAL_ONLY, Context, devices
from pyspec.errors import MemoryRefusedError, UnsupportedError

__all__ = ["Capabilities", "has_device", "probe"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a context's memory was seen to do.

    Attributes:
        kind: "attention", "sliding_window", "recurrent" or "hybrid".
        can_trim: positions can be removed from the end of a sequence, any number of them.
        n_snapshots: recurrent states kept for rollback (`n_rs_seq` as read back).
        can_fork: a whole sequence can be shared with a spare one.
        can_shadow: the recurrent state alone can be shared with a spare one.
        state_bytes: bytes of the partial state of one sequence (0 where nothing is partial).
        can_keep_on_device: the partial state can be saved without leaving its device.
    """

    kind: str
    can_trim: bool
    n_snapshots: int
    can_fork: bool
    can_shadow: bool
    state_bytes: int
    can_keep_on_device: bool


def has_device() -> bool:
    """Whether llama.cpp found a GPU; other accelerators work for the CPU."""
    return any(device.kind in ("gpu", "igpu") for device in devices())


def probe(context: Context, *, seq_id: int = 0) -> Capabilities:
    """Find out what `context` can do; its memory is cleared before and after.

    Decodes two tokens one by one, so any `n_batch` will do.

    Raises:
        ContextFullError: the context has fewer than two positions.
    """
    model = context.model
    kind = model.memory_kind
    recurrent = kind in ("recurrent", "hybrid")
    token = next((t for t in (model.vocab.bos, model.vocab.eos) if t is not None), 0)
    context.clear()
    try:
        context.decode([token], pos=0, seq_id=seq_id, n_outputs=1)
        context.decode([token], pos=1, seq_id=seq_id, n_outputs=1)
        state_bytes = context.state_size(seq_id, STATE_PARTIAL_ONLY)
        can_keep_on_device = state_bytes > 0
        try:
            context.state_size(seq_id, STATE_PARTIAL_ONLY | STATE_ON_DEVICE)
        except UnsupportedError:
            can_keep_on_device = False
        can_trim = False
        if not (recurrent and context.n_rs_seq > 0):
            try:
                context.seq_rm(seq_id, 1, -1)
                can_trim = context.seq_pos_max(seq_id) == 0
            except MemoryRefusedError:
                can_trim = False
    finally:
        context.clear()
    spare = context.n_seq_max > 1
    return Capabilities(
        kind=kind,
        can_trim=can_trim,
        n_snapshots=context.n_rs_seq if recurrent else 0,
        can_fork=spare and context.can_seq_cp(partial=False),
        can_shadow=spare and recurrent and context.can_seq_cp(partial=True),
        state_bytes=state_bytes,
        can_keep_on_device=can_keep_on_device,
    )
