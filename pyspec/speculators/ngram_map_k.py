"""ngram-map-k: drafts what followed the last n tokens when they stood in this history before.

Owns an exact index of the history (hash chains, keys compared token by token) and the learned draft lengths.
Names and defaults as in llama.cpp (common/ngram-map.h, key-only mode); differences are told at the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pyspec.config import int_between, validate
from pyspec.errors import StateError
from pyspec.speculators.history import History, Tokens, as_tokens
from pyspec.speculators.ngram_chains import NgramChains
from pyspec.speculators.protocol import check_verdict

__all__ = ["NgramMapK", "NgramMapKOptions"]

_BULK = 64  # from so many new tokens on, numpy is faster than the loop
_N_LIMITS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramMapKOptions:
    """Key length `size_n`, draft length `size_m`, earlier occurrences needed `min_hits`.

    Raises:
        InvalidValueError: out of range.
    """

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1

    _CHECKS: ClassVar[dict[str, Any]] = {
        "size_n": int_between(1, 1024),
        "size_m": int_between(1, 1024),
        "min_hits": int_between(1, 1024),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)


class NgramMapK:
    """Speculator of one sequence: its last `size_n` tokens are the key, the draft is what followed it.

    Of the history alone: a new `begin` starts from nothing but the learned lengths. Where the latest
    occurrence is so near that its continuation runs into the end of the history, the draft repeats that
    period.

    A key whose draft was accepted in part drafts that many tokens next time, at least one; full acceptance
    doubles the length again, up to `size_m`. (llama.cpp only shortens, wants `size_m` tokens after an
    occurrence, may take an older one, and ignores `min_hits` in this mode.) The 1,024 latest shortened keys
    are remembered.
    """

    name = "ngram-map-k"

    def __init__(self, options: NgramMapKOptions | None = None) -> None:
        self.options = options or NgramMapKOptions()
        self._chains = NgramChains(self.options.size_n)
        self._limits: dict[bytes, int] = {}  # key -> draft length, only where below size_m
        self._open_key: bytes | None = None
        self._epoch: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held: 1 MiB, 4 to 8 a token of history, and the shortened keys (at most 1,024)."""
        return self._chains.nbytes + len(self._limits) * (4 * self.options.size_n + 200)

    def begin(self, tokens: Tokens) -> None:
        """Index the prompt, forgetting the history before it."""
        self._open_key = None
        self._epoch = None
        self._chains.clear()
        self._chains.read_all(as_tokens(tokens))

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """What followed the latest earlier occurrence of the key; at most `n_max` tokens."""
        self._open_key = None
        self._read_new(history)
        tokens = history.view()
        if n_max <= 0:
            return []
        found = self._chains.find(tokens, self.options.min_hits)
        if found is None:
            return []
        key, end = found
        n_draft = min(n_max, self._limits.get(key, self.options.size_m))
        draft: list[int] = tokens[end : end + n_draft].tolist()
        if len(draft) < n_draft:
            draft = (draft * (n_draft // len(draft) + 1))[:n_draft]
        self._open_key = key
        return draft

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Learn from the verdict on one's own draft how long the next one with the same key may be."""
        check_verdict(n_drafted, n_accepted)
        key, self._open_key = self._open_key, None
        if not own or key is None or n_drafted == 0:
            return
        limit = self._limits.pop(key, self.options.size_m)
        limit = max(limit, 2 * n_drafted) if n_accepted == n_drafted else max(1, n_accepted)
        if limit < self.options.size_m:
            self._limits[key] = limit
            if len(self._limits) > _N_LIMITS_MAX:
                del self._limits[next(iter(self._limits))]

    def get_state(self) -> dict[str, Any]:
        """The shortened keys [n_keys, size_n] and their lengths [n_keys]; the history gives the index."""
        keys = np.frombuffer(b"".join(self._limits), np.int32).reshape(-1, self.options.size_n)
        return {"kind": self.name, "keys": keys.copy(), "limits": list(self._limits.values())}

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved speculator did, from the history given to the next `draft`.

        Raises:
            StateError: of another kind or `size_n`, or damaged; nothing was changed.
        """
        size_n, size_m = self.options.size_n, self.options.size_m
        try:
            if state["kind"] != self.name:
                raise StateError(reason=f"of speculator {state['kind']!r}, not {self.name!r}")
            keys = np.ascontiguousarray(state["keys"], np.int32)
            keys = keys if keys.size else keys.reshape(0, size_n)
            limits = [int(limit) for limit in state["limits"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StateError(reason=f"no ngram-map-k state: {error!r}") from error
        if keys.shape != (len(limits), size_n) or len(limits) > _N_LIMITS_MAX:
            raise StateError(reason=f"keys {keys.shape} for {len(limits)} limits and size_n={size_n}")
        if any(limit < 1 for limit in limits):
            raise StateError(reason="a draft length below 1")
        # a shorter size_m makes some of them no limit at all
        self._limits = {k.tobytes(): limit for k, limit in zip(keys, limits, strict=True) if limit < size_m}
        self._open_key = None
        self._epoch = None
        self._chains.clear()

    def _read_new(self, history: History) -> None:
        chains = self._chains
        is_first = self._epoch is None
        if len(history) < chains.n_seen or (history.epoch != self._epoch and not is_first):
            chains.clear()
        self._epoch = history.epoch
        n_new = len(history) - chains.n_seen
        if chains.slot is None or n_new >= _BULK:
            chains.read_all(history.view())
        elif n_new:
            chains.read(history.tail(self.options.size_n + n_new).tolist())
