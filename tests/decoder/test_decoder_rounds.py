"""What a round may do: how much it drafts, that it always gets on, and that everything is counted once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from decoder_rig import ABLE, N_TOKENS, PATTERNS, SAMPLINGS, Rig, Subject, assert_same_choices

from pyspec._core import Context
from pyspec.decoder import DecoderOptions
from pyspec.errors import ContextFullError, InvalidValueError, SpeculatorError
from pyspec.speculators import Chain, NgramMapK, NgramMapKOptions, NgramMod, NgramModOptions
from pyspec.speculators.draft_model import DraftModel
from pyspec.speculators.scripted import Scripted

CASES = [(name, strategy) for name in ("llama", "mamba2", "qwen35", "lfm2", "gpt-oss") for strategy in ABLE[name]]
cases = pytest.mark.parametrize(("subject_name", "strategy"), CASES)
KEEPS_ACCEPTED = ("trim", "snapshot")
SAMPLED = SAMPLINGS["sampled"]


class FlippingContext:
    """A context whose greedy choice after each position of `flips` depends on the width of the decode."""

    def __init__(self, context: Context, flips: set[int]) -> None:
        self._context = context
        self._flips = flips
        self._first_row = self._width = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def decode(self, tokens: Any, *, pos: int, seq_id: int = 0, n_outputs: int = 1) -> None:
        self._context.decode(tokens, pos=pos, seq_id=seq_id, n_outputs=n_outputs)
        self._width = len(tokens)
        self._first_row = pos + len(tokens) - n_outputs

    def argmax_rows(self, first_row: int = 0, n_rows: int | None = None) -> Any:
        rows = self._context.argmax_rows(first_row, n_rows).copy()
        for i in range(len(rows)):
            if self._first_row + i in self._flips:
                rows[i] = (rows[i] + self._width) % 97
        return rows


@pytest.mark.parametrize("replay", ["fused", "immediate"])
@cases
def test_choices_that_flip_with_width_never_stop_a_generation(subject: Subject, strategy: str, replay: str):
    """Decided tokens are decided: each round adds at least one, and none is taken back."""
    flips = set(range(len(subject.prompt) + 2, len(subject.prompt) + N_TOKENS, 2))
    rig = subject.rig(strategy, replay=replay, wrap=lambda context: FlippingContext(context, flips))
    plain = subject.plain()
    script = Scripted(lambda history, n_max: plain[len(history) - len(subject.prompt) :][:4])
    seen: list[list[int]] = [subject.prompt]

    def check() -> None:
        history = rig.decoder.history.view().tolist()
        assert len(history) > len(seen[-1])
        assert history[: len(seen[-1])] == seen[-1]
        seen.append(history)

    run = rig.run(subject.prompt, script, max_tokens=N_TOKENS, after_round=check)
    assert len(run.tokens) == N_TOKENS
    assert run.stats.n_rollbacks > 0


# ------------------------------------------------------------------ empty drafts


@cases
def test_empty_drafts_are_plain_decoding(subject: Subject, strategy: str):
    run = subject.rig(strategy).run(subject.prompt, Scripted(()), max_tokens=N_TOKENS)
    stats = run.stats
    assert run.tokens == subject.plain()
    assert (stats.n_rounds, stats.n_decodes, stats.n_drafts) == (N_TOKENS, N_TOKENS, 0)
    assert (stats.n_saves, stats.saved_bytes, stats.n_rollbacks) == (0, 0, 0)


# ------------------------------------------------------------------ how long a draft may be


@pytest.mark.parametrize(
    ("settings", "n_max"),
    [
        pytest.param({"n_batch": 64, "n_ubatch": 4}, 3, id="n_ubatch=4"),
        pytest.param({"n_batch": 6, "n_ubatch": 6}, 5, id="n_batch=6"),
        pytest.param({"n_outputs_max": 3}, 2, id="n_outputs_max=3"),
        pytest.param({"n_draft": 2}, 2, id="n_draft=2"),
    ],
)
@cases
def test_no_draft_is_longer_than_a_round_has_room_for(
    subject: Subject, strategy: str, settings: dict[str, int], n_max: int
):
    plain = subject.rig(strategy, **settings).run(subject.prompt, None, max_tokens=N_TOKENS, **SAMPLED).tokens
    n_prompt = len(subject.prompt)
    wrong_every_third = Scripted(
        lambda history, n: [t if i % 3 != 2 else (t + 1) % 97 for i, t in enumerate(plain[len(history) - n_prompt :])]
    )
    rig = subject.rig(strategy, **settings)
    run = rig.run(subject.prompt, wrong_every_third, max_tokens=N_TOKENS, **SAMPLED)
    if strategy == "snapshot":
        n_max = min(n_max, rig.context.n_rs_seq)
    assert max(n for _, n in wrong_every_third.calls) == n_max
    assert len(run.stats.drafted_per_position) == n_max
    assert run.tokens == plain


@cases
def test_a_speculator_that_ignores_its_limit_is_refused(subject: Subject, strategy: str):
    greedy_for_room = Scripted(lambda history, n_max: [1] * (n_max + 1), cut=False)
    rig = subject.rig(strategy)
    with pytest.raises(SpeculatorError, match="at most"):
        rig.run(subject.prompt, greedy_for_room, max_tokens=N_TOKENS)
    assert rig.run(subject.prompt, None, max_tokens=N_TOKENS).tokens == subject.plain()


@pytest.mark.parametrize("kind", ["ngram-map-k", "ngram-mod", "draft-model", "scripted"])
@pytest.mark.parametrize("subject_name", list(ABLE))
def test_the_smallest_batch_decodes_the_same_text(subject: Subject, kind: str):
    smallest = {"n_batch": 1, "n_ubatch": 1}
    speculator = {
        "ngram-map-k": lambda: NgramMapK(NgramMapKOptions(size_n=2, size_m=4)),
        "ngram-mod": lambda: NgramMod(NgramModOptions(n_match=2, n_min=1, n_max=4)),
        "draft-model": lambda: DraftModel(
            subject.model, target=subject.model.vocab, n_ctx=512, context={"n_threads": 1, **smallest}
        ),
        "scripted": lambda: Scripted([[1, 2, 3]] * N_TOKENS),
    }[kind]()
    run = subject.rig(**smallest).run(subject.prompt, speculator, max_tokens=12)
    assert_same_choices(subject.model, subject.prompt, subject.plain(n_tokens=12), run.tokens)
    assert run.stats.n_rounds == 12  # width 1 leaves no room for a draft


def test_pending_tokens_never_outgrow_the_batch(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("qwen35")
    rig = subject.rig("shadow", n_batch=5, n_ubatch=5, max_tries=100, max_pending=100)
    widest = 0

    def check() -> None:
        nonlocal widest
        widest = max(widest, rig.decoder.n_pending)

    script = Scripted(lambda history, n_max: [96] * n_max)
    run = rig.run(subject.prompt, script, max_tokens=N_TOKENS, after_round=check, **SAMPLED)
    assert widest == 5
    assert len(run.tokens) == N_TOKENS


# ------------------------------------------------------------------ replay


@pytest.mark.parametrize("max_tries", [1, 2, 3])
@pytest.mark.parametrize("strategy", ["shadow", "fork", "checkpoint-host", "checkpoint-device"])
def test_after_max_tries_from_one_save_a_round_commits(
    arch_subject: Callable[[str], Subject], strategy: str, max_tries: int
):
    subject = arch_subject("mamba2")
    wrong = subject.script(((0, 2),) * 30, "sampled")
    run = subject.rig(strategy, max_tries=max_tries).run(subject.prompt, wrong, max_tokens=N_TOKENS, **SAMPLED)
    stats = run.stats
    assert run.tokens == subject.plain("sampled")
    # one round for the prompt, then max_tries that draft and one that commits, over and over
    n_cycles = (N_TOKENS - 1) // (max_tries + 1)
    assert n_cycles - 1 <= stats.n_forced_commits <= n_cycles + 1
    assert stats.n_drafts <= max_tries * (n_cycles + 1)
    assert stats.n_saves <= n_cycles + 1


@pytest.mark.parametrize("strategy", ["shadow", "fork", "checkpoint-host", "checkpoint-device"])
def test_more_than_max_pending_tokens_force_a_commit(arch_subject: Callable[[str], Subject], strategy: str):
    subject = arch_subject("mamba2")
    script = subject.script(((3, 4),) * 30, "sampled")
    rig = subject.rig(strategy, max_tries=100, max_pending=4)
    run = rig.run(subject.prompt, script, max_tokens=N_TOKENS, **SAMPLED)
    assert run.stats.n_forced_commits > 0
    assert max(len(d.tokens) for d in run.decodes[1:]) <= 4 + 4 + 4
    assert run.tokens == subject.plain("sampled")


@pytest.mark.parametrize("max_tries", [0, -1, True, 1.5])
def test_a_limit_that_is_no_count_is_refused(max_tries: Any):
    with pytest.raises(InvalidValueError, match="max_tries"):
        DecoderOptions(max_tries=max_tries)


def test_a_replay_of_another_name_is_refused():
    with pytest.raises(InvalidValueError, match="replay"):
        DecoderOptions(replay="later")


# ------------------------------------------------------------------ counting


@pytest.mark.parametrize("pattern", list(PATTERNS))
@pytest.mark.parametrize("replay", ["fused", "immediate"])
@cases
def test_drafts_are_counted_once(subject: Subject, strategy: str, replay: str, pattern: str):
    rig = subject.rig(strategy, replay=replay)
    script = subject.script(PATTERNS[pattern], "sampled")
    run = rig.run(subject.prompt, script, max_tokens=N_TOKENS, **SAMPLED)
    stats = run.stats
    told = script.verdicts
    assert (stats.n_drafts, stats.n_drafted) == (len(told), sum(n for n, _, _ in told))
    assert stats.n_accepted == sum(n for _, n, _ in told) == sum(stats.accepted_per_position)
    assert stats.n_drafted == sum(stats.drafted_per_position)
    assert stats.n_generated == len(run.tokens) == stats.n_rounds + stats.n_accepted
    assert stats.by_speculator["scripted"].n_accepted == stats.n_accepted


@pytest.mark.parametrize("pattern", ["rejected-at-once", "rejected-last", "mixed"])
@cases
def test_fused_replay_never_spends_a_decode(subject: Subject, strategy: str, pattern: str):
    stats = subject.play(strategy, "fused", pattern, "sampled").run.stats
    assert stats.n_rollbacks > 0
    assert stats.n_decodes == stats.n_rounds


@pytest.mark.parametrize("pattern", ["rejected-at-once", "rejected-last", "mixed"])
@cases
def test_immediate_replay_spends_a_decode_after_each_rollback(subject: Subject, strategy: str, pattern: str):
    stats = subject.play(strategy, "immediate", pattern, "sampled").run.stats
    n_replays = sum(n for name, n in stats.rollbacks_by_strategy.items() if name not in KEEPS_ACCEPTED)
    assert stats.n_decodes == stats.n_rounds + n_replays


@cases
def test_only_strategies_that_lose_accepted_tokens_replay(subject: Subject, strategy: str):
    stats = subject.play(strategy, "immediate", "rejected-last", "sampled").run.stats
    # immediate: each rejected draft of 4 costs its one pending token and its 3 accepted ones
    n_replays = sum(n for name, n in stats.rollbacks_by_strategy.items() if name not in KEEPS_ACCEPTED)
    assert stats.n_rollbacks >= 4
    assert n_replays in ({0} if strategy in (*KEEPS_ACCEPTED, "snapshot+shadow") else {stats.n_rollbacks})
    assert stats.n_replayed == 4 * n_replays
    assert sum(stats.rollbacks_by_strategy.values()) == stats.n_rollbacks


def test_drafts_of_a_chain_are_counted_under_their_author(arch_subject: Callable[[str], Subject]):
    subject = arch_subject("llama")
    plain, n_prompt = subject.plain("sampled"), len(subject.prompt)
    sometimes = Scripted([[], [], [1], []], name="first")
    always = Scripted(lambda history, n_max: plain[len(history) - n_prompt :][:2], name="second")
    chain = Chain([sometimes, always], n_vocab=subject.model.vocab.n_tokens)
    run = subject.rig().run(subject.prompt, chain, max_tokens=N_TOKENS, **SAMPLED)
    by = run.stats.by_speculator
    assert (by["first"].n_drafts, by["first"].n_drafted) == (1, 1)
    assert by["second"].n_accepted == by["second"].n_drafted > 10
    assert run.stats.n_drafts == by["first"].n_drafts + by["second"].n_drafts
    assert len(sometimes.verdicts) == len(always.verdicts) == run.stats.n_drafts


# ------------------------------------------------------------------ refusals


def test_an_empty_prompt_is_refused(arch_subject: Callable[[str], Subject]):
    with pytest.raises(InvalidValueError, match="prompt"):
        arch_subject("llama").rig().run([], None)


def test_a_prompt_longer_than_the_context_is_refused_with_the_numbers(arch_subject: Callable[[str], Subject]):
    rig: Rig = arch_subject("llama").rig(n_ctx=256)
    with pytest.raises(ContextFullError) as caught:
        rig.run([1] * 257, None)
    assert (caught.value.n_past, caught.value.n_new, caught.value.n_ctx) == (0, 257, 256)
