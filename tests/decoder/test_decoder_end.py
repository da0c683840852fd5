"""Where a generation ends, memory ends too: nothing behind the end token, the stop or the limit stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from decoder_rig import ABLE, N_SNAPSHOTS, N_TOKENS, SAMPLINGS, Rig, Run, Subject

from pyspec.speculators.scripted import Scripted

CASES = [(name, strategy) for name in ("llama", "mamba2", "qwen35", "lfm2", "gpt-oss") for strategy in ABLE[name]]
cases = pytest.mark.parametrize(("subject_name", "strategy"), CASES)
LAW = SAMPLINGS["sampled"]


def first_new(plain: list[int], start: int) -> int:
    """First index at or after `start` whose token was not said before."""
    return next(i for i in range(start, len(plain)) if plain[i] not in plain[:i])


def rounds(n_draft: int, n_rounds: int = 12) -> tuple[tuple[int, int], ...]:
    return ((n_draft, n_draft),) * n_rounds


def assert_memory_ends_at_the_text(rig: Rig, run: Run, prompt: list[int], text: list[int]) -> None:
    assert run.history == prompt + text
    assert run.held == (prompt + text)[: len(run.held)]
    assert rig.context.seq_pos_max(rig.memory.rollback.seq_id) + 1 == rig.memory.n_past == len(run.held)


@pytest.mark.parametrize("start", [2, 5, 8])
@cases
def test_an_end_token_inside_a_draft_ends_memory_at_the_text(subject: Subject, strategy: str, start: int):
    plain = subject.plain("sampled")
    at = first_new(plain, start)
    rig = subject.rig(strategy)
    script = subject.script(rounds(N_SNAPSHOTS), "sampled")
    run = rig.run(subject.prompt, script, max_tokens=N_TOKENS, end_tokens=frozenset({plain[at]}), **LAW)
    assert (run.tokens, run.finish) == (plain[:at], "stop")
    assert_memory_ends_at_the_text(rig, run, subject.prompt, plain[:at])


@cases
def test_a_stop_inside_a_draft_ends_memory_at_the_token_that_completed_it(subject: Subject, strategy: str):
    plain = subject.plain("sampled")
    at = first_new(plain, 5)
    rig = subject.rig(strategy)
    script = subject.script(rounds(N_SNAPSHOTS), "sampled")
    run = rig.run(
        subject.prompt, script, max_tokens=N_TOKENS, emit=lambda token: "stop" if token == plain[at] else None, **LAW
    )
    assert (run.tokens, run.finish) == (plain[: at + 1], "stop")
    assert_memory_ends_at_the_text(rig, run, subject.prompt, plain[: at + 1])


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 6, 9, 10])
@cases
def test_a_limit_inside_a_draft_ends_memory_at_the_text(subject: Subject, strategy: str, max_tokens: int):
    rig = subject.rig(strategy)
    script = subject.script(rounds(N_SNAPSHOTS), "sampled")
    run = rig.run(subject.prompt, script, max_tokens=max_tokens, **LAW)
    plain = subject.plain("sampled", max_tokens)
    assert (run.tokens, run.finish) == (plain, "length")
    assert_memory_ends_at_the_text(rig, run, subject.prompt, plain)


@cases
def test_a_generation_after_one_cut_inside_a_draft_says_the_same(subject: Subject, strategy: str):
    plain = subject.plain("sampled")
    rig = subject.rig(strategy)
    ends = frozenset({plain[first_new(plain, 5)]})
    rig.run(subject.prompt, subject.script(rounds(8), "sampled"), max_tokens=N_TOKENS, end_tokens=ends, **LAW)
    again = rig.run(subject.prompt, subject.script(rounds(3), "sampled"), max_tokens=N_TOKENS, **LAW)
    assert again.tokens == plain


def test_tokens_drafted_behind_an_end_token_are_cut_not_accepted(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("llama")
    plain = subject.plain("sampled")
    at = first_new(plain, 3)
    script = Scripted([plain[1 : at + 4]])
    run = subject.rig().run(subject.prompt, script, end_tokens=frozenset({plain[at]}), max_tokens=N_TOKENS, **LAW)
    assert (run.stats.n_drafted, run.stats.n_accepted, run.stats.n_cut) == (at + 3, at - 1, 3)


def test_an_end_token_as_first_choice_gives_no_token(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("lfm2")
    run = subject.rig().run(subject.prompt, None, end_tokens=frozenset({subject.plain()[0]}))
    assert (run.tokens, run.finish, run.stats.n_rounds) == ([], "stop", 1)


def test_a_limit_of_zero_decodes_nothing(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("lfm2")
    run = subject.rig().run(subject.prompt, None, max_tokens=0)
    assert (run.tokens, run.finish, run.stats.n_decodes) == ([], "length", 0)


@pytest.mark.parametrize("n_left", [0, 1, 2, 5])
@cases
def test_a_full_context_ends_the_generation_with_the_text_of_plain_decoding(
    subject: Subject, strategy: str, n_left: int
):
    """No draft may reach past the last position; with `n_left` 0 the prompt fills the context by itself."""
    rig = subject.rig(strategy, n_ctx=256)
    n_ctx = rig.context.n_ctx_seq
    prompt = [(5 * i + 1) % 97 for i in range(n_ctx - n_left)]
    plain = subject.rig(n_ctx=256).run(prompt, None, max_tokens=None, **LAW)
    script = Scripted(lambda history, n_max: plain.tokens[len(history) - n_ctx + n_left :][:3] or [1, 2, 3])
    run = rig.run(prompt, script, max_tokens=None, **LAW)
    assert (run.finish, len(run.tokens)) == ("context", n_left + 1)
    assert run.tokens == plain.tokens
    assert all(n_history + n_max <= n_ctx for n_history, n_max in script.calls)
