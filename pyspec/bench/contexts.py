"""The contexts that rollback strategies are measured on: each one what `Llama` would give that strategy.

Owns their settings and their sharing. Strategies that need the same settings share one context; plain decoding has its
own settings (no spare sequence, no snapshots), so that what a strategy's settings cost is seen, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspec._core import Context, Model
from pyspec.errors import UnknownOptionError, UnsupportedError
from pyspec.flash_attention import flash_attention
from pyspec.memory import Capabilities, probe
from pyspec.rollback import NAMES, Rollback, able, build, check_name, extra_bytes, needs_spare

__all__ = ["Contestant", "Contexts", "contestants"]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A strategy on its context.

    Attributes:
        name: the strategy's name.
        rollback: the strategy; it alone uses its context while it is measured.
        extra_bytes: bytes held beside plain decoding's memory.
    """

    name: str
    rollback: Rollback
    extra_bytes: int

    @property
    def replays(self) -> bool:
        """Whether accepted tokens may have to be decoded again after a rollback."""
        return self.name not in ("trim", "snapshot")


class Contexts:
    """Contexts of one model by settings, made when first asked for.

    Args:
        model: fully loaded.
        n_rs_seq: states to keep where snapshots are used.
        options: of every `pyspec._core.Context`.
    """

    def __init__(self, model: Model, *, n_rs_seq: int, **options: Any) -> None:
        self._model, self._n_rs_seq = model, n_rs_seq
        self._options = options | {"flash_attn": flash_attention(model, options)}
        self._made: dict[tuple[bool, int], tuple[Context, Capabilities]] = {}

    @property
    def plain(self) -> Context:
        """For plain decoding: one sequence and nothing else."""
        return self._get(False, 0)[0]

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's recurrent state, 0 where the memory has none."""
        can = self._get(False, 0)[1]
        return can.state_bytes if can.kind in ("recurrent", "hybrid") else 0

    def contestant(self, name: str) -> Contestant | None:
        """Strategy `name` on its context; None where the memory cannot do it."""
        spare = needs_spare(name, self._model.memory_kind)
        context, can = self._get(spare, self._n_rs_seq if name.startswith("snapshot") else 0)
        if not able(can, spare=spare)[name]:
            return None
        return Contestant(name, build(name, context, seq_id=0, spare=1 if spare else None), extra_bytes(name, can))

    def why_not(self, name: str) -> str:
        """Why `contestant` found that the memory cannot do strategy `name`."""
        why = f"the {self._model.memory_kind.replace('_', ' ')} memory of {self._model.architecture} cannot do it"
        return f"{why} with n_rs_seq={self._n_rs_seq}" if name.startswith("snapshot") else why

    def keep_only(self, used: Sequence[Contestant]) -> None:
        """Close the contexts that neither plain decoding nor one of `used` needs."""
        kept = [self.plain, *(one.rollback.context for one in used)]
        for key, (context, _) in list(self._made.items()):
            if not any(context is other for other in kept):
                context.close()
                del self._made[key]

    def close(self) -> None:
        """Close all contexts."""
        for context, _ in self._made.values():
            context.close()
        self._made.clear()

    def _get(self, spare: bool, n_rs_seq: int) -> tuple[Context, Capabilities]:
        key = (spare, n_rs_seq)
        if key not in self._made:
            settings: dict[str, Any] = {"n_seq_max": 1 + spare, "kv_unified": True if spare else None}
            context = Context(self._model, n_rs_seq=n_rs_seq, **settings, **self._options)
            self._made[key] = context, probe(context)
        return self._made[key]


def contestants(contexts: Contexts, names: Sequence[str]) -> tuple[list[Contestant], list[str]]:
    """The strategies `names`, or with none of them all that the memory can do; and the names of the others.

    Raises:
        UnknownOptionError: no such strategy.
        UnsupportedError: the memory cannot do one of `names`.
    """
    known = [name for name in NAMES if name != "auto"]
    found, missing = [], []
    for name in dict.fromkeys(map(check_name, names)) or known:
        if name not in known:
            raise UnknownOptionError(name=name, known=known, where="strategy to measure")
        one = contexts.contestant(name)
        if one is not None:
            found.append(one)
        elif names:
            way_out = "name no strategies to measure all that it can do"
            raise UnsupportedError(what=f"measuring {name!r}", why=contexts.why_not(name), way_out=way_out)
        else:
            missing.append(name)
    contexts.keep_only(found)
    return found, missing
