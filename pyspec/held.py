"""What a sequence's memory holds, taken out whole and given back: tokens, state and context checkpoints.

Owns the going out and in, for a target's memory and a draft model's alike. Leaves files to `pyspec.session.file`, and
which text is worth keeping to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspec._core import Model, State
from pyspec.checkpoints import Checkpoints
from pyspec.errors import ContextFullError, StateError
from pyspec.sequence import SequenceMemory
from pyspec.speculators.history import Tokens, as_tokens

__all__ = ["HeldMemory", "fingerprint", "hold", "take"]


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """What a memory holds of a text.

    Attributes:
        tokens: [n_past] those in memory.
        state: bytes of the whole state (`State.to_bytes`).
        checkpoints: positions and bytes of earlier states, ascending.
    """

    tokens: Tokens
    state: bytes
    checkpoints: list[tuple[int, bytes]] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        """The same as numbers, bytes and an array, by name."""
        return {
            "tokens": self.tokens,
            "state": self.state,
            "positions": [pos for pos, _ in self.checkpoints],
            "checkpoints": [state for _, state in self.checkpoints],
        }

    @classmethod
    def from_plain(cls, data: Any) -> HeldMemory:
        """Inverse of `to_plain`.

        Raises:
            StateError: something else.
        """
        try:
            states = [bytes(memoryview(state)) for state in data["checkpoints"]]
            positions = [int(pos) for pos in data["positions"]]
            return cls(
                as_tokens(data["tokens"]), bytes(memoryview(data["state"])), list(zip(positions, states, strict=True))
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StateError(reason=f"no memory of a text: {error!r}") from error


def fingerprint(model: Model) -> dict[str, Any]:
    """What a model is known by, wherever its file lies."""
    return {
        "architecture": model.architecture,
        "description": model.description,
        "n_params": model.n_params,
        "n_bytes": model.n_bytes,
        "n_vocab": model.vocab.n_tokens,
    }


def hold(memory: SequenceMemory, checkpoints: Checkpoints | None, tokens: Tokens) -> HeldMemory:
    """Copy what `memory` holds, which are `tokens` [n_past].

    Raises:
        StateError, MemoryError: the state cannot be saved.
    """
    assert len(tokens) == memory.n_past, "memory holds these tokens"
    state = State()
    memory.context.state_save(memory.rollback.seq_id, state)
    kept = checkpoints.states if checkpoints is not None else []
    return HeldMemory(tokens.copy(), state.to_bytes(), [(pos, one.to_bytes()) for pos, one in kept])


def take(memory: SequenceMemory, checkpoints: Checkpoints | None, held: HeldMemory) -> None:
    """Have in memory what `hold` copied, in place of everything else; after an error memory is empty.

    Raises:
        StateError: a damaged state, one of another model, or of other settings of the context.
        ContextFullError: more tokens than memory has positions.
    """
    memory.clear()
    if checkpoints is not None:
        checkpoints.clear()
    n_past = len(held.tokens)
    if n_past > memory.n_ctx:
        raise ContextFullError(n_past=0, n_new=n_past, n_ctx=memory.n_ctx)
    state = State.from_bytes(held.state)
    if state.pos_max + 1 != n_past:
        raise StateError(reason=f"a state of {state.pos_max + 1} tokens for a text of {n_past}")
    states = [(pos, State.from_bytes(one)) for pos, one in held.checkpoints]
    if any(not 0 < pos <= n_past or one.pos_max + 1 != pos for pos, one in states):
        raise StateError(reason=f"checkpoints at {[pos for pos, _ in states]} of a text of {n_past} tokens")
    try:
        memory.context.state_restore(memory.rollback.seq_id, state)
    except BaseException:
        memory.clear()
        raise
    memory.n_past = n_past
    if checkpoints is not None:
        checkpoints.take(states)
