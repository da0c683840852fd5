"""Every exception that pyspec raises on purpose.

Owns the types, their attributes and their wording; the extension raises them by name, with numbers only.
Leaves to others when to raise. Each names the condition, the numbers and the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyspec.shown import cut, shown

__all__ = [
    "AbortedError",
    "BatchTooLargeError",
    "BusyError",
    "ChatTemplateError",
    "ClosedError",
    "ConstraintError",
    "ContextCreateError",
    "ContextFullError",
    "DecodeError",
    "EmptyBatchError",
    "GrammarError",
    "InvalidValueError",
    "LoadCancelledError",
    "MemoryRefusedError",
    "ModelFetchError",
    "ModelLoadError",
    "NoOutputError",
    "OutputRowError",
    "PositionError",
    "PyspecError",
    "QueueFullError",
    "SamplerError",
    "SequenceIdError",
    "SpeculatorError",
    "StateError",
    "StateSizeError",
    "TokenRangeError",
    "TooManyOutputsError",
    "UnknownOptionError",
    "UnsupportedError",
    "VocabularyMismatchError",
    "VocabularyMissingError",
]


class PyspecError(Exception):
    """Base of all errors of this package; keyword arguments become attributes."""

    def __init__(self, message: str, **numbers: object) -> None:
        super().__init__(cut(message))
        self._numbers = numbers
        for name, value in numbers.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self._numbers)


def _rebuild(kind: type[PyspecError], args: tuple[object, ...], numbers: dict[str, object]) -> PyspecError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(numbers, _numbers=numbers)
    return error


# ------------------------------------------------------------------ callers' values


class InvalidValueError(PyspecError, ValueError):
    """An argument has a value that cannot be used."""

    name: str

    def __init__(self, *, name: str, value: object, allowed: str) -> None:
        super().__init__(f"{name}={shown(value)}: must be {allowed}", name=name, value=value, allowed=allowed)


class UnknownOptionError(PyspecError, TypeError):
    """An option that does not exist; names the nearest one that does."""

    name: str

    def __init__(self, *, name: str, known: Iterable[str], where: str = "option") -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"unknown {where} {shown(name)}; {hint}", name=name, known=tuple(known))


class UnsupportedError(PyspecError):
    """The model, its memory or this build cannot do what was asked."""

    def __init__(self, *, what: str, why: str, way_out: str = "") -> None:
        tail = f"; {way_out}" if way_out else ""
        super().__init__(f"{what} is not possible here: {why}{tail}", what=what, why=why, way_out=way_out)


# ------------------------------------------------------------------ models


class ModelLoadError(PyspecError):
    """llama.cpp could not load a model file."""

    path: str

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(f"cannot load model {path!r}: {reason}", path=path, reason=reason)


class LoadCancelledError(PyspecError):
    """The progress callback of a model load returned False."""

    def __init__(self, *, path: str, progress: float) -> None:
        super().__init__(
            f"loading {path!r} was cancelled by its progress callback at {progress:.0%}",
            path=path,
            progress=progress,
        )


class ModelFetchError(PyspecError):
    """A named model could not be fetched into the cache."""

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"cannot fetch model {name!r}: {reason}", name=name, reason=reason)


class ContextCreateError(PyspecError):
    """llama.cpp refused to create a context."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"cannot create a context: {reason}", reason=reason)


class ClosedError(PyspecError):
    """An object was used after `close()`."""

    def __init__(self, *, what: str) -> None:
        super().__init__(f"this {what} has been closed; create a new one", what=what)


class VocabularyMissingError(PyspecError):
    """The model has no text vocabulary."""

    def __init__(self, *, what: str) -> None:
        super().__init__(
            f"{what} needs a text vocabulary and this model has none; pass and read token ids instead",
            what=what,
        )


class VocabularyMismatchError(PyspecError):
    """Draft and target disagree about what a token id means."""

    def __init__(self, *, differences: Iterable[str]) -> None:
        shown = tuple(differences)
        super().__init__(
            "the draft model's vocabulary differs from the target's: "
            + "; ".join(shown)
            + "; use a draft model with the same tokenizer",
            differences=shown,
        )


class TokenRangeError(PyspecError, ValueError):
    """A token id is outside the vocabulary."""

    token: int

    def __init__(self, *, token: int, index: int, n_vocab: int) -> None:
        super().__init__(
            f"token {token} at index {index} is outside the vocabulary of {n_vocab} (0 to {n_vocab - 1})",
            token=token,
            index=index,
            n_vocab=n_vocab,
        )


class ChatTemplateError(PyspecError, ValueError):
    """A chat template is missing, does not parse, refuses the messages, fails, or is stopped at a limit.

    `kind` is "missing", "syntax", "refused", "failed" or "limit"; `limit` names the limit, `line` the template's line.
    """

    kind: str
    limit: str | None
    line: int | None

    def __init__(self, *, kind: str, reason: str, limit: str | None = None, line: int | None = None) -> None:
        where = f" (line {line})" if line else ""
        super().__init__(f"chat template{where}: {reason}", kind=kind, reason=reason, limit=limit, line=line)


# ------------------------------------------------------------------ decoding


class EmptyBatchError(PyspecError, ValueError):
    """A decode was asked for no tokens at all."""

    def __init__(self) -> None:
        super().__init__("a decode needs at least one token, got 0")


class BatchTooLargeError(PyspecError, ValueError):
    """More tokens in one decode than the context was made for."""

    def __init__(self, *, n_tokens: int, n_batch: int) -> None:
        super().__init__(
            f"decoding {n_tokens} tokens at once, the context was created with n_batch={n_batch}; "
            "split the tokens or raise n_batch",
            n_tokens=n_tokens,
            n_batch=n_batch,
        )


class PositionError(PyspecError, ValueError):
    """A token's position does not follow the last one of its sequence."""

    def __init__(self, *, seq_id: int, pos: int, expected: int) -> None:
        super().__init__(
            f"sequence {seq_id} continues at position {expected}, got {pos}; positions must be consecutive",
            seq_id=seq_id,
            pos=pos,
            expected=expected,
        )


class SequenceIdError(PyspecError, ValueError):
    """A sequence id outside the context's range."""

    def __init__(self, *, seq_id: int, n_seq_max: int) -> None:
        super().__init__(
            f"sequence id {seq_id} is outside 0 to {n_seq_max - 1}; create the context with a larger n_seq_max",
            seq_id=seq_id,
            n_seq_max=n_seq_max,
        )


class TooManyOutputsError(PyspecError, ValueError):
    """More output rows in one decode than the context has room for."""

    def __init__(self, *, n_outputs: int, n_outputs_max: int) -> None:
        super().__init__(
            f"{n_outputs} output rows asked for in one decode, the context has room for {n_outputs_max}; "
            "raise n_outputs_max or draft less",
            n_outputs=n_outputs,
            n_outputs_max=n_outputs_max,
        )


class OutputRowError(PyspecError, IndexError):
    """An output row that the last decode did not produce."""

    def __init__(self, *, row: int, n_outputs: int) -> None:
        super().__init__(
            f"output row {row} does not exist, the last decode produced {n_outputs} rows",
            row=row,
            n_outputs=n_outputs,
        )


class NoOutputError(PyspecError):
    """Logits were asked for and the last decode produced none."""

    def __init__(self) -> None:
        super().__init__("there are no logits: nothing was decoded yet, or the last decode asked for no outputs")


class ContextFullError(PyspecError):
    """The context has no room for the tokens of a decode."""

    n_past: int
    n_new: int
    n_ctx: int

    def __init__(self, *, n_past: int, n_new: int, n_ctx: int, way_out: str = "raise n_ctx or draft less") -> None:
        super().__init__(
            f"decoding {n_new} tokens after {n_past} needs {n_past + n_new} positions, the context has {n_ctx}; "
            f"{way_out}",
            n_past=n_past,
            n_new=n_new,
            n_ctx=n_ctx,
        )


class DecodeError(PyspecError):
    """llama_decode failed; the sequence's memory must be considered lost."""

    def __init__(self, *, status: int, reason: str) -> None:
        super().__init__(
            f"llama_decode returned {status}: {reason}; clear the sequence and decode it again",
            status=status,
            reason=reason,
        )


class AbortedError(PyspecError):
    """A decode was stopped by `abort()`; part of its tokens may be in memory."""

    def __init__(self) -> None:
        super().__init__("the decode was aborted; clear the sequence before it is used again")


class BusyError(PyspecError):
    """A second thread entered an object that is at work."""

    def __init__(self, *, what: str) -> None:
        super().__init__(
            f"this {what} is at work, in another thread or in a stream that was not finished; wait for it, close the "
            f"stream, or use another {what}",
            what=what,
        )


class QueueFullError(PyspecError):
    """An engine has as many waiting requests as it may."""

    def __init__(self, *, n_queued: int, max_queue: int) -> None:
        super().__init__(
            f"{n_queued} requests are waiting, max_queue={max_queue}; wait for some of them, or raise max_queue",
            n_queued=n_queued,
            max_queue=max_queue,
        )


# ------------------------------------------------------------------ memory and state


class MemoryRefusedError(PyspecError):
    """`seq_rm` was refused: the memory cannot forget only these positions."""

    def __init__(self, *, seq_id: int, p0: int, p1: int) -> None:
        super().__init__(
            f"the memory of sequence {seq_id} cannot remove positions [{p0}, {p1}) alone; "
            "restore a checkpoint or remove the whole sequence",
            seq_id=seq_id,
            p0=p0,
            p1=p1,
        )


class StateError(PyspecError):
    """State bytes could not be taken or given back."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"state refused: {reason}", reason=reason)


class StateSizeError(StateError):
    """State bytes of the wrong length."""

    def __init__(self, *, n_bytes: int, expected_bytes: int) -> None:
        PyspecError.__init__(
            self,
            f"state of {n_bytes} bytes, expected {expected_bytes}; it is truncated or of another context",
            n_bytes=n_bytes,
            expected_bytes=expected_bytes,
        )


# ------------------------------------------------------------------ sampling and speculation


class GrammarError(PyspecError, ValueError):
    """A grammar that does not parse, or a token that it forbids."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"grammar: {reason}", reason=reason)


class ConstraintError(PyspecError, ValueError):
    """A constraint that cannot be used, or a text that it leaves no way to go on."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"constraint: {reason}", reason=reason)


class SamplerError(PyspecError):
    """A sampler chain could not choose a token."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"sampling failed: {reason}", reason=reason)


class SpeculatorError(PyspecError):
    """A speculator broke its contract; the generation itself is not harmed."""

    def __init__(self, *, speculator: str, reason: str) -> None:
        super().__init__(f"speculator {speculator!r}: {reason}", speculator=speculator, reason=reason)
