"""From token ids to text that may be shown.

Owns UTF-8 that straddles tokens, stop strings that straddle tokens, and which tokens the shown text holds.
Leaves end-of-generation tokens to `pyspec.verify`.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

__all__ = ["Pieces", "TextStream"]


class Pieces:
    """The bytes of each token, asked of the vocabulary once. Empty for a vocabulary without text."""

    def __init__(self, token_to_piece: Callable[[int], bytes] | None) -> None:
        self._ask = token_to_piece
        self._known: dict[int, bytes] = {}

    def __call__(self, token: int) -> bytes:
        """The token's bytes."""
        piece = self._known.get(token)
        if piece is None:
            piece = self._known[token] = self._ask(token) if self._ask else b""
        return piece


class TextStream:
    """Collects the text of emitted tokens.

    Text is held back while it could be the beginning of a stop string, or the first bytes of a character.
    Malformed UTF-8 becomes U+FFFD.

    Args:
        piece: the bytes of a token.
        stop: texts that end it.
        echo: what the text begins with; stop strings are not looked for in it.
    """

    def __init__(self, piece: Callable[[int], bytes], stop: Sequence[str] = (), *, echo: str = "") -> None:
        self._piece = piece
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.echo = echo
        self._parts: list[str] = [echo] if echo else []
        self._n_taken = 0  # parts already handed out
        self._held = ""
        self._n_chars = len(echo)  # characters decoded so far, shown or held
        self._ends: list[int] = []  # characters after each token
        self._n_kept: int | None = None
        self.stopped_by: str | None = None

    def push(self, token: int) -> bool:
        """Add one token; True when a stop string is complete, which ends the text before it."""
        new = self._decoder.decode(self._piece(token))
        self._n_chars += len(new)
        # a token that began a character ends inside the next one
        self._ends.append(self._n_chars + bool(self._decoder.getstate()[0]))
        if not self._stop:
            if new:
                self._parts.append(new)
            return False
        self._held += new
        found = [(at, s) for s in self._stop if (at := self._held.find(s)) >= 0]
        if found:
            at, self.stopped_by = min(found, key=lambda hit: hit[0])
            shown = self._n_chars - len(self._held) + at
            self._n_kept = sum(end <= shown for end in self._ends)
            self._parts.append(self._held[:at])
            self._held = ""
            return True
        keep = max(self._overlap(s) for s in self._stop)
        cut = len(self._held) - keep
        if cut:
            self._parts.append(self._held[:cut])
            self._held = self._held[cut:]
        return False

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins `stop`."""
        held = self._held
        for n in range(min(len(stop) - 1, len(held)), 0, -1):
            if held.endswith(stop[:n]):
                return n
        return 0

    def finish(self) -> None:
        """No more tokens: release what was held back."""
        if self.stopped_by is None:
            self._parts.append(self._held + self._decoder.decode(b"", final=True))
            self._held = ""

    def take(self) -> str:
        """The text that became showable since the last call."""
        new = "".join(self._parts[self._n_taken :])
        self._n_taken = len(self._parts)
        return new

    @property
    def text(self) -> str:
        """All showable text."""
        return "".join(self._parts)

    @property
    def ends(self) -> list[int]:
        """[n_tokens] characters of the text up to the end of each token that belongs to it."""
        return self._ends[: self.n_tokens]

    @property
    def n_tokens(self) -> int:
        """Tokens that lie wholly inside the text: all of them, unless a stop string cut it."""
        return len(self._ends) if self._n_kept is None else self._n_kept
