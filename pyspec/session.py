"""A conversation: turns on one text, of which memory keeps as much as it can.

Owns the text's tokens, the record of turns, and saving and loading. Leaves generating to `pyspec.llm`, and what memory
can keep to `pyspec.checkpoints`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pyspec._core import State
from pyspec.arguments import prompt_tokens
from pyspec.completion import Completion
from pyspec.errors import ContextFullError, InvalidValueError, StateError
from pyspec.llm import Llama
from pyspec.session_file import HeldMemory, SessionData, read_session, write_session
from pyspec.speculators import History, Tokens

__all__ = ["Session", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one generation of a session did.

    Attributes:
        start: tokens of the session before what this turn appended.
        n_prompt: tokens before the first generated one, earlier turns included.
        n_decoded: tokens of the prompt that were decoded; the others were in memory.
        n_generated: tokens generated.
        finish_reason: as of the completion.
    """

    start: int
    n_prompt: int
    n_decoded: int
    n_generated: int
    finish_reason: str


class Session:
    """Turns on one text.

    Each `generate` appends to the text and goes on from what memory holds of it: on attention memory everything up to
    where the text was changed, on recurrent and hybrid memory the newest of its context checkpoints before that.
    Several sessions may share a `Llama`; a change from one to another decodes the text again. For one thread at a time.

    Args:
        llm: generates; its context is the session's while it generates.
        defaults: options of every `generate`, e.g. `temperature=0.7`.
    """

    def __init__(self, llm: Llama, **defaults: Any) -> None:
        self.llm = llm
        self.defaults = defaults
        self.turns: list[Turn] = []
        self._tokens: list[int] = []
        self._start = 0

    # ------------------------------------------------------------- the text
    @property
    def tokens(self) -> list[int]:
        """All tokens, a copy."""
        return list(self._tokens)

    @property
    def text(self) -> str:
        """All tokens as text, special ones as they are written."""
        return self.llm.detokenize(self._tokens, special=True)

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, text: str | Sequence[int]) -> int:
        """Add text, or token ids, without generating; returns the number of tokens added.

        A beginning-of-text token goes in front of the first text only, if the model wants one.

        Raises:
            InvalidValueError, TokenRangeError, VocabularyMissingError: not a text or not ids of this model.
        """
        vocab = self.llm.model.vocab
        if isinstance(text, str):
            new = self.llm.tokenize(text, add_special=not self._tokens) if text else []
        else:
            new = prompt_tokens(vocab, text).tolist() if len(text) else []
        self._tokens += new
        return len(new)

    def truncate(self, n_tokens: int) -> None:
        """Keep the first `n_tokens` tokens: what follows is taken back, turns included.

        Raises:
            InvalidValueError: more than there are, or fewer than none.
        """
        if not isinstance(n_tokens, int) or isinstance(n_tokens, bool) or not 0 <= n_tokens <= len(self._tokens):
            raise InvalidValueError(name="n_tokens", value=n_tokens, allowed=f"from 0 to {len(self._tokens)}")
        del self._tokens[n_tokens:]
        self.turns = [turn for turn in self.turns if turn.n_prompt + turn.n_generated <= n_tokens]

    def undo(self) -> Turn:
        """Take back the last turn, what it appended included; returns it.

        Raises:
            InvalidValueError: there is none.
        """
        if not self.turns:
            raise InvalidValueError(name="session", value="no turns", allowed="one with a turn to take back")
        turn = self.turns[-1]
        self.truncate(turn.start)
        return turn

    def branch(self) -> Session:
        """Another session with the same text and turns, on the same `Llama`."""
        other = Session(self.llm, **self.defaults)
        other._tokens, other.turns = list(self._tokens), list(self.turns)
        return other

    # ------------------------------------------------------------- generating
    def generate(self, text: str | Sequence[int] = "", **options: Any) -> Completion:
        """Append `text` and generate; the generated tokens become part of the session.

        Args:
            text: a text or token ids, possibly none.
            options: as `Llama.generate`, before the session's defaults.

        Returns:
            The completion; `turns[-1].n_decoded` tells how much of the prompt had to be decoded.

        Raises:
            As `Llama.generate`; then the session is as it was before.
        """
        stream = self.stream(text, **options)
        while True:
            try:
                next(stream)
            except StopIteration as end:
                completion: Completion = end.value
                return completion

    def stream(self, text: str | Sequence[int] = "", **options: Any) -> Generator[str | Completion, None, Completion]:
        """As `generate`, piece by piece, like `Llama.stream`; a stream that is closed early takes the turn back."""
        start = len(self._tokens)
        try:
            self.append(text)
            if not self._tokens:
                raise InvalidValueError(name="text", value=text, allowed="some text: the session is empty")
            completion = yield from self.llm.stream(self._tokens, reuse=True, **self.defaults | options)
        except BaseException:
            del self._tokens[start:]
            raise
        n_prompt = len(self._tokens)
        self._tokens += completion.tokens
        stats = completion.stats
        self.turns.append(
            Turn(start, n_prompt, n_prompt - stats.n_reused, len(completion.tokens), completion.finish_reason)
        )
        return completion

    # ------------------------------------------------------------- files
    def save(self, path: str | PathLike[str]) -> int:
        """Write the session to a file, in one step: a crash leaves the old one. Returns its bytes.

        Text, turns, options, and, where memory holds this session's text, the whole state of memory, the context
        checkpoints and the speculators' states.

        Raises:
            OSError: the file cannot be written.
            InvalidValueError: options that cannot be written as JSON.
        """
        with self.llm._exclusive():
            held = _hold(self.llm, np.asarray(self._tokens, np.int32))
        data = SessionData(
            model=_fingerprint(self.llm),
            tokens=np.asarray(self._tokens, np.int32),
            turns=[asdict(turn) for turn in self.turns],
            defaults=self.defaults,
            memory=held,
        )
        return write_session(path, data)

    @classmethod
    def load(cls, path: str | PathLike[str], llm: Llama) -> Session:
        """Read what `save` wrote; the next turn decodes only what is new.

        Raises:
            StateError: a damaged file, no session, another version, or a session of another model.
            OSError: the file cannot be read.
        """
        data = read_session(path)
        if data.model != _fingerprint(llm):
            about, own = data.model.get("description"), _fingerprint(llm)["description"]
            raise StateError(reason=f"{Path(path).name} is a session of another model: {about!r}, not {own!r}")
        session = cls(llm, **data.defaults)
        session._tokens = data.tokens.tolist()
        session.turns = [Turn(**turn) for turn in data.turns]
        if data.memory is not None:
            with llm._exclusive():
                _take(llm, data.memory)
        return session


# ----------------------------------------------------------------- memory
def _fingerprint(llm: Llama) -> dict[str, Any]:
    """What a session's model is known by, wherever its file lies."""
    model = llm.model
    return {
        "architecture": model.architecture,
        "description": model.description,
        "n_params": model.n_params,
        "n_bytes": model.n_bytes,
        "n_vocab": model.vocab.n_tokens,
    }


def _hold(llm: Llama, tokens: Tokens) -> HeldMemory | None:
    """What memory holds of `tokens`; None where it holds another text."""
    decoder = llm._decoder
    memory, n = decoder.memory, decoder.memory.n_past
    held = decoder.history.view()[:n]
    if n == 0 or n > len(tokens) or not np.array_equal(held, tokens[:n]):
        return None
    state = State()
    llm.context.state_save(memory.rollback.seq_id, state)
    kept = decoder.checkpoints.states if decoder.checkpoints is not None else []
    return HeldMemory(held.copy(), state.to_bytes(), [(pos, one.to_bytes()) for pos, one in kept])


def _take(llm: Llama, held: HeldMemory) -> None:
    """Give memory what a file held; where that cannot be, memory is empty and the next turn decodes everything.

    Raises:
        StateError: a state of another model or of other settings of the context.
    """
    decoder = llm._decoder
    memory, checkpoints = decoder.memory, decoder.checkpoints
    memory.clear()
    if checkpoints is not None:
        checkpoints.clear()
    if len(held.tokens) > memory.n_ctx:
        raise ContextFullError(n_past=0, n_new=len(held.tokens), n_ctx=memory.n_ctx)
    state = State.from_bytes(held.state)
    if state.pos_max + 1 != len(held.tokens):
        raise StateError(reason=f"a state of {state.pos_max + 1} tokens for a text of {len(held.tokens)}")
    llm.context.state_restore(memory.rollback.seq_id, state)
    memory.n_past = len(held.tokens)
    decoder.history = History(held.tokens)
    if checkpoints is not None:
        checkpoints.take([(pos, State.from_bytes(one)) for pos, one in held.checkpoints])
