"""The `checkpoint` strategies: copy the state that cannot be cut back out of the context, and back in.

Owns one reusable state buffer. Works on every architecture; costs a copy of the state per save and per restore.
`checkpoint-host` keeps it in host memory, `checkpoint-device` in buffers of the state's own device.
"""

from __future__ import annotations

from typing import ClassVar

from pyspec._core import STATE_ON_DEVICE, STATE_PARTIAL_ONLY, Context, State
from pyspec.errors import StateError
from pyspec.rollback.protocol import Rollback

__all__ = ["CheckpointDevice", "CheckpointHost"]


class CheckpointHost(Rollback):
    """Partial state through host memory; refuses when it would exceed `budget_bytes` (0: no limit)."""

    name: ClassVar[str] = "checkpoint-host"
    flags: ClassVar[int] = STATE_PARTIAL_ONLY

    def __init__(self, context: Context, seq_id: int, *, budget_bytes: int = 0) -> None:
        super().__init__(context, seq_id)
        self.budget_bytes = budget_bytes
        self._state = State()

    def roll_back(self, keep: int) -> int:
        """Restore the saved state and forget everything after it; the save stays good."""
        pos = self._require(keep)
        if pos == 0:
            self.context.seq_rm(self.seq_id)
            return 0
        self.context.state_restore(self.seq_id, self._state)
        self.context.seq_rm(self.seq_id, pos, -1)
        return pos

    def _save(self, pos: int) -> None:
        if pos == 0:
            return
        on_device = bool(self.flags & STATE_ON_DEVICE)
        need = self.context.state_size(self.seq_id, STATE_PARTIAL_ONLY) if self.budget_bytes or on_device else 0
        if self.budget_bytes and need > self.budget_bytes:
            raise StateError(
                reason=f"a checkpoint of {need} bytes exceeds checkpoint_budget_bytes={self.budget_bytes}; "
                "raise the budget or choose rollback='shadow'"
            )
        # a save on the device returns only the few bytes that lie on the host
        self.saved_bytes += max(need, self.context.state_save(self.seq_id, self._state, self.flags))


class CheckpointDevice(CheckpointHost):
    """The same with tensors kept on their device; one save per sequence is alive at a time."""

    name = "checkpoint-device"
    flags = STATE_PARTIAL_ONLY | STATE_ON_DEVICE
