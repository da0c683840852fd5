"""Forced continuations: a chooser that says a given text, whatever the model would say.

Owns the choosing alone, for `pyspec.decoder.Request`. Acceptance is then that of the text, however small the model is,
while drafting, decoding and going back cost what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pyspec._core import Context
from pyspec.errors import SamplerError

__all__ = ["Forced"]


class Forced:
    """Chooses the tokens of `continuation` one after the other.

    Does the work that a greedy choice is, too: each decode's rows are reduced to their largest logit once, which also
    waits for the device. The result is not used.
    """

    is_greedy: ClassVar[bool] = False

    def __init__(self, continuation: Sequence[int]) -> None:
        self._tokens = list(continuation)
        self.reset()

    def reset(self) -> None:
        """Start the continuation again."""
        self._n_said = 0
        self._row = -1  # asked last; rows rise within a decode
        self.n_decodes = 0

    def sample(self, context: Context, row: int) -> int:
        """The next token of the continuation, for an output row of the last decode.

        Raises:
            SamplerError: the continuation is over.
            PyspecError: as `Context.argmax_rows`.
        """
        if self._row < 0 or row <= self._row:
            context.argmax_rows()
            self.n_decodes += 1
        self._row = row
        if self._n_said == len(self._tokens):
            raise SamplerError(reason=f"the forced continuation has {self._n_said} tokens, all of them said")
        return self._tokens[self._n_said]

    def accept(self, token: int, *, prompt: bool = False) -> None:
        """Go one token on, unless `token` is of the prompt."""
        self._n_said += not prompt
