"""What goes wrong in a round leaves an empty or a true memory, and an object that generates on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from decoder_rig import ABLE, N_TOKENS, SAMPLINGS, Rig, Subject

from pyspec._core import Context
from pyspec.errors import DecodeError, MemoryRefusedError, SpeculatorError, StateError, TokenRangeError
from pyspec.speculators.scripted import Scripted

SAVING = ("shadow", "fork", "checkpoint-host", "checkpoint-device")
CASES = [(name, s) for name in ("llama", "mamba2", "qwen35", "lfm2", "gpt-oss") for s in ABLE[name]]
SAVING_CASES = [(name, s) for name, s in CASES if s in SAVING]
SAMPLED = SAMPLINGS["sampled"]


class FaultyContext:
    """A context whose method `name` raises `error` at call `at_call` (from 0, counted once `armed`)."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.name = ""
        self.error: BaseException = DecodeError(status=-3, reason="injected")
        self.at_call = 0
        self.after = False

    def arm(self, name: str, error: BaseException, at_call: int, *, after: bool = False) -> None:
        self.name, self.error, self.at_call, self.after = name, error, at_call, after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._context, name)
        if name != self.name:
            return real

        def faulty(*args: Any, **kwargs: Any) -> Any:
            self.at_call -= 1
            if self.at_call >= 0:
                return real(*args, **kwargs)
            self.name = ""
            if self.after:
                real(*args, **kwargs)
            raise self.error

        return faulty


def assert_empty(rig: Rig) -> None:
    assert rig.memory.n_past == 0
    assert rig.context.seq_pos_max(rig.memory.rollback.seq_id) == -1


def assert_generates_on(rig: Rig, subject: Subject) -> None:
    script = subject.script(((2, 4),) * 8, "sampled")
    assert rig.run(subject.prompt, script, max_tokens=N_TOKENS, **SAMPLED).tokens == subject.plain("sampled")


# ------------------------------------------------------------------ saving


@pytest.mark.parametrize("error", [StateError(reason="injected"), MemoryError("injected")], ids=["state", "memory"])
@pytest.mark.parametrize("at_save", [0, 2])
@pytest.mark.parametrize(("subject_name", "strategy"), SAVING_CASES)
def test_a_failing_save_ends_drafting_and_not_the_generation(
    subject: Subject,
    strategy: str,
    at_save: int,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    rig = subject.rig(strategy)
    save, n_saves = rig.memory.rollback._save, 0

    def failing(pos: int) -> None:
        nonlocal n_saves
        n_saves += 1
        if n_saves == at_save + 1:
            raise error
        save(pos)

    monkeypatch.setattr(rig.memory.rollback, "_save", failing)
    with caplog.at_level(logging.WARNING, logger="pyspec"):
        run = rig.run(subject.prompt, subject.script(((3, 3),) * 9, "sampled"), max_tokens=N_TOKENS, **SAMPLED)
    assert run.tokens == subject.plain("sampled")
    assert (run.stats.n_failed_saves, run.stats.n_drafts, n_saves) == (1, at_save, at_save + 1)
    told = [r for r in caplog.records if r.name == "pyspec"]
    assert len(told) == 1
    assert "no more drafts" in told[0].getMessage()


@pytest.mark.parametrize(("subject_name", "strategy"), SAVING_CASES)
def test_drafting_comes_back_in_the_generation_after_a_failed_save(
    subject: Subject, strategy: str, monkeypatch: pytest.MonkeyPatch
):
    rig = subject.rig(strategy)
    with monkeypatch.context() as patched:

        def failing(pos: int) -> None:
            raise StateError(reason="injected")

        patched.setattr(rig.memory.rollback, "_save", failing)
        rig.run(subject.prompt, subject.script(((3, 3),) * 9, "sampled"), max_tokens=N_TOKENS, **SAMPLED)
    run = rig.run(subject.prompt, subject.script(((3, 3),) * 9, "sampled"), max_tokens=N_TOKENS, **SAMPLED)
    assert (run.stats.n_failed_saves, run.stats.n_accepted > 20) == (0, True)


@pytest.mark.parametrize("strategy", ["checkpoint-host", "checkpoint-device"])
def test_a_state_over_the_byte_budget_is_a_failed_save(arch_subject: Callable[[str], Subject], strategy: str):
    subject = arch_subject("mamba2")
    rig = subject.rig(strategy, budget_bytes=100)
    run = rig.run(subject.prompt, subject.script(((3, 3),) * 9, "sampled"), max_tokens=N_TOKENS, **SAMPLED)
    assert run.tokens == subject.plain("sampled")
    assert (run.stats.n_failed_saves, run.stats.saved_bytes) == (1, 0)


# ------------------------------------------------------------------ decoding and rolling back


@pytest.mark.parametrize(
    "error", [DecodeError(status=-3, reason="injected"), KeyboardInterrupt()], ids=["decode", "ctrl-c"]
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at_call", [0, 1, 3, 4])
@pytest.mark.parametrize(("subject_name", "strategy"), CASES)
def test_a_decode_that_fails_leaves_an_empty_memory(
    subject: Subject, strategy: str, at_call: int, after: bool, error: BaseException
):
    rig = subject.rig(strategy, replay="immediate", wrap=FaultyContext)
    rig.context.arm("decode", error, at_call, after=after)
    with pytest.raises(type(error)):
        rig.run(subject.prompt, subject.script(((1, 3),) * 8, "sampled"), max_tokens=N_TOKENS, **SAMPLED)
    assert_empty(rig)
    assert_generates_on(rig, subject)


@pytest.mark.parametrize(("subject_name", "strategy"), CASES)
def test_a_sequence_whose_decode_failed_is_empty(subject: Subject, strategy: str):
    """Whoever decodes, the draft model included: how many of its tokens are in memory nobody knows."""
    rig = subject.rig(strategy, wrap=FaultyContext)
    rig.memory.decode(subject.prompt, 1)
    rig.context.arm("decode", DecodeError(status=-3, reason="injected"), 0, after=True)
    with pytest.raises(DecodeError):
        rig.memory.decode([5, 6], 1)
    assert_empty(rig)


@pytest.mark.parametrize(("subject_name", "strategy"), CASES)
def test_a_refused_removal_is_an_error_and_no_rejected_token_stays(subject: Subject, strategy: str):
    """C5 and C20: what `seq_rm` refuses would stay in the state without a word."""
    rig = subject.rig(strategy, wrap=FaultyContext)
    refused = MemoryRefusedError(seq_id=0, p0=21, p1=-1)

    def arm() -> None:
        if rig.decoder.stats.n_rounds == 1:
            name = "seq_rm" if strategy != "fork" else "seq_cp"
            rig.context.arm(name, refused, 1 if strategy in ("shadow", "fork") else 0)

    with pytest.raises(MemoryRefusedError):
        rig.run(subject.prompt, subject.script(((1, 3),) * 8, "sampled"), after_round=arm, **SAMPLED)
    assert_empty(rig)
    assert_generates_on(rig, subject)


@pytest.mark.parametrize("strategy", ["checkpoint-host", "checkpoint-device"])
def test_a_state_that_cannot_be_restored_is_an_error(arch_subject: Callable[[str], Subject], strategy: str):
    subject = arch_subject("mamba2")
    rig = subject.rig(strategy, wrap=FaultyContext)
    rig.context.arm("state_restore", StateError(reason="injected"), 0)
    with pytest.raises(StateError):
        rig.run(subject.prompt, subject.script(((1, 3),) * 8, "sampled"), **SAMPLED)
    assert_empty(rig)
    assert_generates_on(rig, subject)


@pytest.mark.parametrize(("subject_name", "strategy"), CASES)
def test_an_interrupt_while_choosing_leaves_an_empty_memory(subject: Subject, strategy: str):
    rig = subject.rig(strategy)
    emitted: list[int] = []

    def emit(token: int) -> None:
        emitted.append(token)
        if len(emitted) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rig.run(subject.prompt, subject.script(((3, 4),) * 8, "sampled"), emit=emit, **SAMPLED)
    assert_empty(rig)
    assert_generates_on(rig, subject)


# ------------------------------------------------------------------ speculators


def raising(history: object, n_max: int) -> list[int]:
    raise ZeroDivisionError("in the script")


@pytest.mark.parametrize(
    ("drafts", "reason"),
    [
        pytest.param(raising, "ZeroDivisionError", id="raises"),
        pytest.param([[1, 2, 128]], "token 128 at index 2", id="token-outside"),
        pytest.param([[1, -1]], "token -1 at index 1", id="negative-token"),
        pytest.param([[1.5]], "1.5", id="float"),
        pytest.param(["abc"], "str", id="text"),
    ],
)
@pytest.mark.parametrize(("subject_name", "strategy"), [("llama", "trim"), ("mamba2", "shadow")])
def test_a_bad_draft_is_an_error_that_harms_no_memory(subject: Subject, strategy: str, drafts: Any, reason: str):
    rig = subject.rig(strategy)
    with pytest.raises(SpeculatorError, match=reason):
        rig.run(subject.prompt, Scripted(drafts), **SAMPLED)
    held = rig.decoder.history.view()[: rig.memory.n_past].tolist()
    assert held == subject.prompt
    assert rig.context.seq_pos_max(rig.memory.rollback.seq_id) == len(held) - 1
    assert_generates_on(rig, subject)


def test_a_verdict_that_a_speculator_cannot_bear_comes_after_the_round(arch_subject: Callable[[str], Subject]):
    class Deaf(Scripted):
        def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
            raise RuntimeError("deaf")

    subject = arch_subject("mamba2")
    rig = subject.rig("shadow")
    plain = subject.plain("sampled")
    with pytest.raises(SpeculatorError, match="deaf"):
        rig.run(subject.prompt, Deaf([plain[1:4]]), **SAMPLED)
    assert rig.decoder.history.view().tolist() == subject.prompt + plain[:5]
    assert (rig.decoder.stats.n_drafted, rig.decoder.stats.n_accepted) == (3, 3)


def test_a_prompt_token_outside_the_vocabulary_is_refused_before_anything(arch_subject: Callable[[str], Subject]):
    rig = arch_subject("llama").rig()
    with pytest.raises(TokenRangeError):
        rig.run([1, 2, 128], None)
    assert_empty(rig)
