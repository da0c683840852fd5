"""A conversation: turns on one text, of which memory keeps as much as it can.

Owns the text's tokens, the record of turns, how much of the text the model sees, and saving and loading. Leaves
generating to `pyspec.generating`, what memory can keep to `pyspec.checkpoints`, and what of it is saved to `state`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import aclosing, closing, contextmanager
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pyspec.arguments import check_call, checked_path, is_one_of, tokens_in_range
from pyspec.completion import Completion
from pyspec.config import int_between
from pyspec.errors import BusyError, ContextFullError, InvalidValueError, StateError
from pyspec.generation import OPTIONS, refuse_options
from pyspec.halt import Halt
from pyspec.held import fingerprint
from pyspec.llm import Llama
from pyspec.session.file import SessionData, read_session, write_session
from pyspec.session.state import NO_SPEC, drop_behind, give_drafting, give_memory, held_drafting, held_memory
from pyspec.session.turn import OpenTurn, Turn, as_turn
from pyspec.streams import drained

__all__ = ["Session", "Turn"]

_OPTIONS = OPTIONS - {"reuse", "n_keep"}


class Session:
    """Turns on one text.

    Each `generate` appends to the text and goes on from what memory holds of it: on attention memory everything up to
    where the text was changed, on recurrent and hybrid memory the newest of its context checkpoints before that.
    Several sessions may share a `Llama`; a change from one to another decodes the text again. For one thread at a time.

    Args:
        llm: generates; its context is the session's while it generates.
        overflow: what happens where the context is full. "error": a prompt that is too long is a `ContextFullError`,
            and a generation ends there. "shift": the model no longer sees the older half of the text behind its first
            tokens, and goes on; the session keeps the whole text.
        n_keep: with "shift", how many first tokens the model always sees. Without the first few, attention that learned
            to rest on them breaks down (Xiao et al. 2023, arXiv:2309.17453).
        defaults: options of every `generate`, e.g. `temperature=0.7`.

    Raises:
        InvalidValueError, UnknownOptionError: an argument.
        UnsupportedError: "shift" on memory that cannot: recurrent and hybrid, sliding windows, or with `exact=True`.
    """

    def __init__(self, llm: Llama, *, overflow: str = "error", n_keep: int = 4, **defaults: Any) -> None:
        _check_llm(llm)
        if not is_one_of(overflow, ("error", "shift")):
            raise InvalidValueError(name="overflow", value=overflow, allowed="'error' or 'shift'")
        ok, allowed = int_between(0, llm.n_ctx // 2)
        if not ok(n_keep):
            raise InvalidValueError(name="n_keep", value=n_keep, allowed=f"{allowed}, half of the context")
        _check_options(defaults)
        llm._voice.options({name: value for name, value in defaults.items() if name != "spec"})
        llm._speculators.get(defaults.get("spec"))
        if overflow == "shift":
            llm._decoder.memory.require_shift()
        self.llm = llm
        self.overflow, self.n_keep = overflow, n_keep
        self.defaults = defaults
        self.turns: list[Turn] = []
        self._tokens: list[int] = []
        self._n_dropped = 0  # tokens behind the first n_keep that the model no longer sees
        self._lock = threading.Lock()
        self._open: OpenTurn | None = None  # of the stream that is at work

    # ------------------------------------------------------------- the text
    @property
    def tokens(self) -> list[int]:
        """All tokens, a copy."""
        return list(self._tokens)

    @property
    def text(self) -> str:
        """All tokens as text, special ones as they are written."""
        return self.llm.detokenize(self._tokens, special=True)

    @property
    def seen(self) -> list[int]:
        """The tokens that the model sees: all of them until `overflow="shift"` has dropped some."""
        return self._seen(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, text: str | Sequence[int]) -> int:
        """Add text, or token ids, without generating; returns the number of tokens added.

        A beginning-of-text token goes in front of the first text only, if the model wants one.

        Raises:
            InvalidValueError, TokenRangeError, VocabularyMissingError: not a text or not ids of this model.
        """
        with self._changing():
            new = self._as_tokens(text)
            self._tokens += new
        return len(new)

    def truncate(self, n_tokens: int) -> None:
        """Keep the first `n_tokens` tokens: what follows is taken back, turns included.

        Raises:
            InvalidValueError: more than there are, or fewer than none.
        """
        with self._changing():
            ok, allowed = int_between(0, len(self._tokens))
            if not ok(n_tokens):
                raise InvalidValueError(name="n_tokens", value=n_tokens, allowed=allowed)
            self._truncate(n_tokens)

    def undo(self) -> Turn:
        """Take back the last turn, what it appended included; returns it.

        Raises:
            InvalidValueError: there is none.
        """
        with self._changing():
            if not self.turns:
                raise InvalidValueError(name="session", value="no turns", allowed="one with a turn to take back")
            turn = self.turns[-1]
            self._truncate(turn.start)
        return turn

    def branch(self) -> Session:
        """Another session with the same text and turns, on the same `Llama`."""
        with self._lock:
            other = Session(self.llm, overflow=self.overflow, n_keep=self.n_keep, **self.defaults)
            other._tokens, other.turns, other._n_dropped = list(self._tokens), list(self.turns), self._n_dropped
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
        check_call(on_text=on_text)
        return drained(self.stream(text, **options), on_text)

    def stream(self, text: str | Sequence[int] = "", **options: Any) -> Generator[str | Completion, None, Completion]:
        """As `generate`, piece by piece, like `Llama.stream`; a stream that is closed early takes the turn back.

        Until it ends the session's text cannot be changed.
        """
        with self._turn(text, options) as turn, closing(self._pieces(turn, options, Halt())) as pieces:
            for piece in pieces:
                if isinstance(piece, Completion):
                    self._record(turn, piece)
                yield piece
        assert isinstance(piece, Completion)
        return piece

    async def astream(self, text: str | Sequence[int] = "", **options: Any) -> AsyncGenerator[str | Completion, None]:
        """As `stream`, for `async for`: the turn runs in a thread of its own (`Llama.astream`).

        Cancelling the task or leaving the loop before the completion breaks it off and takes the turn back.
        """
        from pyspec.asynchronous import astream

        with self._turn(text, options) as turn:
            async with aclosing(astream(self.llm, lambda halt: self._pieces(turn, options, halt))) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Completion):
                        self._record(turn, piece)
                    yield piece

    async def agenerate(
        self, text: str | Sequence[int] = "", *, on_text: Callable[[str], object] | None = None, **options: Any
    ) -> Completion:
        """As `generate`, without blocking the event loop; see `astream`. `on_text` is called in the loop's thread."""
        from pyspec.asynchronous import adrained

        return await adrained(self.astream(text, **options), on_text)

    @contextmanager
    def _turn(self, text: str | Sequence[int], options: Mapping[str, Any]) -> Iterator[OpenTurn]:
        """A turn that is open inside; what it did is kept once `_record` was called."""
        _check_options(options)
        with self._changing():
            turn = OpenTurn(len(self._tokens), self._tokens + self._as_tokens(text))
            if not turn.prompt:
                raise InvalidValueError(name="text", value=text, allowed="some text: the session is empty")
            self._open = turn
        try:
            yield turn
        finally:
            if self._open is turn:  # a stream that was left at its completion closes no later one
                self._open = None

    def _pieces(
        self, turn: OpenTurn, options: Mapping[str, Any], halt: Halt
    ) -> Generator[str | Completion, None, Completion]:
        seen, turn.n_dropped = self._make_room(turn.prompt)
        own = {"reuse": True, "n_keep": self.n_keep if self.overflow == "shift" else None}
        return (yield from self.llm._stream_to_completion(seen, {**self.defaults, **options, **own}, halt))

    def _record(self, turn: OpenTurn, completion: Completion) -> None:
        tokens, stats = completion.tokens, completion.stats
        n_decoded = stats.n_prompt - stats.n_reused
        n_dropped = turn.n_dropped + stats.n_dropped
        with self._lock:
            self._open = None
            self._tokens = turn.prompt + tokens
            self._n_dropped += n_dropped
            reason = completion.finish_reason
            self.turns.append(Turn(turn.start, len(turn.prompt), n_decoded, len(tokens), reason, n_dropped))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One change of the text at a time, and none under an open stream.

        Raises:
            BusyError: a stream is open.
        """
        with self._lock:
            if self._open is not None:
                raise BusyError(what="session")
            yield

    # ------------------------------------------------------------- the text that the model sees
    def _seen(self, tokens: list[int]) -> list[int]:
        n_keep, n_dropped = self.n_keep, self._n_dropped
        return tokens[:n_keep] + tokens[n_keep + n_dropped :] if n_dropped else list(tokens)

    def _truncate(self, n_tokens: int) -> None:
        del self._tokens[n_tokens:]
        self.turns = [turn for turn in self.turns if turn.end <= n_tokens]
        if n_tokens <= self.n_keep + self._n_dropped:
            self._n_dropped = 0  # what is left may fit again

    def _make_room(self, prompt: list[int]) -> tuple[list[int], int]:
        """What of `prompt` the model will see, and how much it will see no more; nothing since the last turn goes.

        Raises:
            ContextFullError: what is new is too long itself.
        """
        seen, n_ctx, n_keep = self._seen(prompt), self.llm.n_ctx, self.n_keep
        n_over = len(seen) + 1 - n_ctx  # one token at least shall be generated
        if self.overflow != "shift" or n_over <= 0:
            return seen, 0
        n_new = len(prompt) - (self.turns[-1].end if self.turns else 0)
        n_old = max(0, len(seen) - n_new - n_keep)
        if n_over > n_old:
            n_past, way_out = min(n_keep, len(seen) - n_new), "append less, or raise n_ctx"
            raise ContextFullError(n_past=n_past, n_new=n_new + 1, n_ctx=n_ctx, way_out=way_out)
        n_drop = max(n_over, min(n_old, (len(seen) - n_keep) // 2))
        with self.llm._exclusive():
            drop_behind(self.llm, np.asarray(seen, np.int32), n_keep, n_drop)
        return seen[:n_keep] + seen[n_keep + n_drop :], n_drop

    def _as_tokens(self, text: str | Sequence[int]) -> list[int]:
        """Token ids of what is appended; what stands first gets the tokens that a text begins with."""
        if isinstance(text, str):
            return self.llm.tokenize(text, add_special=not self._tokens) if text else []
        if isinstance(text, (bytes, Mapping, Set)) or not hasattr(text, "__len__"):
            raise InvalidValueError(name="text", value=text, allowed="a text or token ids")
        return tokens_in_range(text, self.llm.n_vocab, name="text").tolist() if len(text) else []

    # ------------------------------------------------------------- files
    def save(self, path: str | PathLike[str]) -> int:
        """Write the session to a file, in one step: a crash leaves the old one. Returns its bytes.

        Text, turns and options; where memory holds this session's text, its whole state and the context checkpoints;
        and what the session's speculators learned, from texts of other sessions, too: a draft model's memory, tables,
        and how often they were right. A speculator named for single generations only is not the session's.

        Raises:
            BusyError: a generation is at work.
            OSError: the file cannot be written.
            InvalidValueError: no path, or options that cannot be written as JSON.
        """
        checked_path(path)
        llm, spec, seed = self.llm, self.defaults.get("spec", NO_SPEC), self.llm._voice.seed
        if spec is not NO_SPEC and not all(one is None or isinstance(one, str) for one in _as_list(spec)):
            allowed = "speculators by name to be saved; one of your own belongs to Llama(spec=...), and is saved, too"
            raise InvalidValueError(name="spec", value=spec, allowed=allowed)
        with self._changing(), llm._exclusive():
            data = SessionData(
                model=fingerprint(llm.model),
                tokens=np.asarray(self._tokens, np.int32),
                turns=[asdict(turn) for turn in self.turns],
                defaults=_plain(({} if seed is None else {"seed": seed}) | self.defaults),
                overflow={"overflow": self.overflow, "n_keep": self.n_keep, "n_dropped": self._n_dropped},
                memory=held_memory(llm, np.asarray(self.seen, np.int32)),
                drafting=held_drafting(llm, spec),
            )
        return write_session(path, data)

    @classmethod
    def load(cls, path: str | PathLike[str], llm: Llama) -> Session:
        """Read what `save` wrote; the next turn decodes only what is new, and drafts as it would have without saving.

        Where this context cannot take the state (another type of cache, say), the next turn decodes the whole text;
        where this `Llama` drafts with others, they start anew. A log line says why.

        Raises:
            StateError: a damaged file, no session, another version, or a session of another model.
            ContextFullError: the text is longer than this context, with `overflow="error"`.
            UnsupportedError: `overflow="shift"` on memory that cannot.
            OSError: the file cannot be read.
            InvalidValueError: no path, or no Llama.
        """
        _check_llm(llm)
        data = read_session(checked_path(path))
        name, own = Path(path).name, fingerprint(llm.model)
        if data.model != own:
            about = data.model.get("description")
            raise StateError(reason=f"{name} is a session of another model: {about!r}, not {own['description']!r}")
        try:
            session = cls(llm, overflow=data.overflow["overflow"], n_keep=data.overflow["n_keep"], **data.defaults)
            session._tokens = tokens_in_range(data.tokens.tolist(), llm.n_vocab, name="tokens").tolist()
            session._n_dropped = int(data.overflow["n_dropped"])
            session.turns = [as_turn(turn) for turn in data.turns]
            ends = [0, *(n for turn in session.turns for n in (turn.start, turn.end)), len(session)]
            if ends != sorted(ends) or not 0 <= session._n_dropped <= max(0, len(session) - session.n_keep):
                raise ValueError("turns that are longer than the text")
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(reason=f"{name} is a session of another make: {error}") from error
        if session.overflow == "error" and len(session) > llm.n_ctx + 1:  # a full context's last token is beyond memory
            way_out = "load it into a Llama with a larger n_ctx"
            raise ContextFullError(n_past=0, n_new=len(session), n_ctx=llm.n_ctx, way_out=way_out)
        with llm._exclusive():
            if data.memory is not None:
                give_memory(llm, data.memory)
            if data.drafting is not None:
                give_drafting(llm, session.defaults.get("spec", NO_SPEC), data.drafting)
        return session


def _check_llm(llm: object) -> None:
    if not isinstance(llm, Llama):
        raise InvalidValueError(name="llm", value=llm, allowed="a pyspec.Llama")


# ----------------------------------------------------------------- plain data
def _as_list(spec: Any) -> list[Any]:
    """One speculator or several."""
    return list(spec) if isinstance(spec, (list, tuple)) else [spec]


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options as JSON can hold them: token ids are no names."""
    return {n: [list(pair) for pair in v.items()] if isinstance(v, Mapping) else v for n, v in options.items()}


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse what `Llama.stream` does not know, or a session decides itself.

    Raises:
        UnknownOptionError: with the nearest name.
    """
    refuse_options(options, _OPTIONS)
