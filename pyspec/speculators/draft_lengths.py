"""How long the next draft for a key may be, learned from how much of the last one was right.

Owns the rule and its memory of the latest shortened keys; leaves to the speculator what a key is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyspec.errors import StateError

__all__ = ["N_KEYS_MAX", "DraftLengths"]

N_KEYS_MAX = 1024


class DraftLengths:
    """Lengths for keys of `n_key` tokens (as bytes), below the `n_max` that holds for all others.

    A draft that was accepted in part sets its key's length to what was right, at least one token; a draft that was
    right to its end doubles it again. The latest 1,024 shortened keys are remembered.
    """

    __slots__ = ("_lengths", "n_key", "n_max")

    def __init__(self, n_key: int, n_max: int) -> None:
        self.n_key = n_key
        self.n_max = n_max
        self._lengths: dict[bytes, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the shortened keys, an upper bound."""
        return len(self._lengths) * (4 * self.n_key + 200)

    def get(self, key: bytes) -> int:
        """Most tokens of the next draft for `key`."""
        return self._lengths.get(key, self.n_max)

    def judge(self, key: bytes, n_drafted: int, n_accepted: int) -> None:
        """Learn from a verdict on a draft for `key`."""
        length = self._lengths.pop(key, self.n_max)
        length = max(length, 2 * n_drafted) if n_accepted == n_drafted else max(1, n_accepted)
        if length < self.n_max:
            self._lengths[key] = length
            if len(self._lengths) > N_KEYS_MAX:
                del self._lengths[next(iter(self._lengths))]

    def get_state(self) -> dict[str, Any]:
        """The shortened `keys` [n_keys, n_key], oldest first, and their `limits` [n_keys]."""
        keys = np.frombuffer(b"".join(self._lengths), np.int32).reshape(-1, self.n_key)
        return {"keys": keys.copy(), "limits": list(self._lengths.values())}

    def set_state(self, state: dict[str, Any]) -> None:
        """Inverse of `get_state`; a smaller `n_max` than the saved one makes some of the lengths no limit at all.

        Raises:
            StateError: damaged, or of another `n_key`; nothing was changed.
        """
        try:
            keys = np.ascontiguousarray(state["keys"], np.int32)
            keys = keys if keys.size else keys.reshape(0, self.n_key)
            lengths = [int(length) for length in state["limits"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StateError(reason=f"no draft lengths: {error!r}") from error
        if keys.shape != (len(lengths), self.n_key) or len(lengths) > N_KEYS_MAX:
            raise StateError(reason=f"keys {keys.shape} for {len(lengths)} limits and keys of {self.n_key} tokens")
        if any(length < 1 for length in lengths):
            raise StateError(reason="a draft length below 1")
        self._lengths = {k.tobytes(): length for k, length in zip(keys, lengths, strict=True) if length < self.n_max}
