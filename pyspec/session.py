"""A conversation: turns on one text, of which memory keeps as much as it can.

Owns the text's tokens, the record of turns, and saving and loading. Leaves generating to `pyspec.llm`, and what memory
can keep to `pyspec.checkpoints`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pyspec._core import State
from pyspec.arguments import prompt_tokens, tokens_in_range
from pyspec.completion import Completion
from pyspec.config import SamplingOptions, int_between
from pyspec.errors import (
    BusyError,
    ContextFullError,
    InvalidValueError,
    PyspecError,
    StateError,
    TokenRangeError,
    UnknownOptionError,
)
from pyspec.generation import CALL_OPTIONS
from pyspec.llm import Llama
from pyspec.session_file import HeldMemory, SessionData, read_session, write_session
from pyspec.speculators import History, Tokens

__all__ = ["Session", "Turn"]

_log = logging.getLogger("pyspec")
_OPTIONS = (CALL_OPTIONS - {"reuse"}) | {"spec"}


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
        if not isinstance(llm, Llama):
            raise InvalidValueError(name="llm", value=llm, allowed="a pyspec.Llama")
        _check_options(defaults)
        self.llm = llm
        self.defaults = defaults
        self.turns: list[Turn] = []
        self._tokens: list[int] = []
        self._open: object | None = None  # the stream that is at work

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
        self._refuse_open()
        new = self._as_tokens(text)
        self._tokens += new
        return len(new)

    def truncate(self, n_tokens: int) -> None:
        """Keep the first `n_tokens` tokens: what follows is taken back, turns included.

        Raises:
            InvalidValueError: more than there are, or fewer than none.
        """
        self._refuse_open()
        ok, allowed = int_between(0, len(self._tokens))
        if not ok(n_tokens):
            raise InvalidValueError(name="n_tokens", value=n_tokens, allowed=allowed)
        del self._tokens[n_tokens:]
        self.turns = [turn for turn in self.turns if turn.n_prompt + turn.n_generated <= n_tokens]

    def undo(self) -> Turn:
        """Take back the last turn, what it appended included; returns it.

        Raises:
            InvalidValueError: there is none.
        """
        self._refuse_open()
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
    def generate(
        self, text: str | Sequence[int] = "", *, on_text: Callable[[str], object] | None = None, **options: Any
    ) -> Completion:
        """Append `text` and generate; the generated tokens become part of the session.

        Args:
            text: a text or token ids, possibly none.
            on_text: called with each new piece of text.
            options: as `Llama.generate`, before the session's defaults.

        Returns:
            The completion; `turns[-1].n_decoded` tells how much of the prompt had to be decoded.

        Raises:
            BusyError: a stream of this session is open.
            As `Llama.generate`; then the session is as it was before.
        """
        with closing(self.stream(text, **options)) as stream:
            for piece in stream:
                if isinstance(piece, Completion):
                    return piece
                if on_text is not None:
                    on_text(piece)
        raise AssertionError("a stream ends with its completion")

    def stream(self, text: str | Sequence[int] = "", **options: Any) -> Generator[str | Completion, None, Completion]:
        """As `generate`, piece by piece, like `Llama.stream`; a stream that is closed early takes the turn back.

        Until it ends the session's text cannot be changed.
        """
        self._refuse_open()
        _check_options(options)
        start = len(self._tokens)
        prompt = self._tokens + self._as_tokens(text)
        if not prompt:
            raise InvalidValueError(name="text", value=text, allowed="some text: the session is empty")
        mine = self._open = object()
        try:
            for piece in self.llm.stream(prompt, reuse=True, **self.defaults | options):
                if isinstance(piece, Completion):
                    self._record(start, prompt, piece)
                yield piece
            assert isinstance(piece, Completion)
            return piece
        finally:
            if self._open is mine:  # a stream that was left at its completion closes no later one
                self._open = None

    def _record(self, start: int, prompt: list[int], completion: Completion) -> None:
        self._open = None
        self._tokens = prompt + completion.tokens
        n_decoded = len(prompt) - completion.stats.n_reused
        self.turns.append(Turn(start, len(prompt), n_decoded, len(completion.tokens), completion.finish_reason))

    def _refuse_open(self) -> None:
        if self._open is not None:
            raise BusyError(what="session")

    def _as_tokens(self, text: str | Sequence[int]) -> list[int]:
        """Token ids of what is appended; what stands first gets the tokens that a text begins with."""
        if isinstance(text, str):
            return self.llm.tokenize(text, add_special=not self._tokens) if text else []
        if isinstance(text, bytes) or not hasattr(text, "__len__"):
            raise InvalidValueError(name="text", value=text, allowed="a text or token ids")
        return prompt_tokens(self.llm.model.vocab, text).tolist() if len(text) else []

    # ------------------------------------------------------------- files
    def save(self, path: str | PathLike[str]) -> int:
        """Write the session to a file, in one step: a crash leaves the old one. Returns its bytes.

        Text, turns, options, and, where memory holds this session's text, its whole state and the context checkpoints.
        Speculators, a draft model among them, read the text again.

        Raises:
            BusyError: a generation is at work.
            OSError: the file cannot be written.
            InvalidValueError: options that cannot be written as JSON.
        """
        with self.llm._exclusive():
            held = _hold(self.llm, np.asarray(self._tokens, np.int32))
        data = SessionData(
            model=_fingerprint(self.llm),
            tokens=np.asarray(self._tokens, np.int32),
            turns=[asdict(turn) for turn in self.turns],
            defaults=_plain(self.defaults),
            memory=held,
        )
        return write_session(path, data)

    @classmethod
    def load(cls, path: str | PathLike[str], llm: Llama) -> Session:
        """Read what `save` wrote; the next turn decodes only what is new.

        Where this context cannot take the state (another type of cache, say), the next turn decodes the whole text, and
        a log line says why.

        Raises:
            StateError: a damaged file, no session, another version, or a session of another model.
            ContextFullError: the text is longer than this context.
            OSError: the file cannot be read.
        """
        data = read_session(path)
        if data.model != _fingerprint(llm):
            about, own = data.model.get("description"), _fingerprint(llm)["description"]
            raise StateError(reason=f"{Path(path).name} is a session of another model: {about!r}, not {own!r}")
        if len(data.tokens) > llm.n_ctx + 1:  # the last token of a full context stands beyond memory
            raise ContextFullError(n_past=0, n_new=len(data.tokens), n_ctx=llm.n_ctx)
        session = cls(llm)
        try:
            session.defaults = dict(data.defaults)
            session._tokens = tokens_in_range(data.tokens.tolist(), llm.n_vocab, name="tokens").tolist()
            session.turns = [Turn(**turn) for turn in data.turns]
        except (TypeError, TokenRangeError) as error:
            raise StateError(reason=f"{Path(path).name} is a session of another make: {error}") from error
        if data.memory is not None:
            with llm._exclusive():
                try:
                    _take(llm, data.memory)
                except PyspecError as error:
                    llm._decoder.memory.clear()
                    _log.warning("the saved memory is of no use here, the text will be decoded again: %s", error)
        return session


# ----------------------------------------------------------------- memory
def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options as JSON can hold them: token ids are no names."""
    return {n: [list(pair) for pair in v.items()] if isinstance(v, Mapping) else v for n, v in options.items()}


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse what `Llama.stream` does not know, or a session decides itself.

    Raises:
        UnknownOptionError: with the nearest name.
    """
    known = _OPTIONS | {field.name for field in fields(SamplingOptions)}
    for name in options:
        if name not in known:
            raise UnknownOptionError(name=name, known=known)


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
        StateError, ContextFullError: a state of another model or of other settings of the context.
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
