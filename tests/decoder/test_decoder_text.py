"""Speculation changes nothing that the model says: texts against plain decoding, for every memory and strategy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from decoder_rig import ABLE, ABLE_REAL, N_TOKENS, PATTERNS, SAMPLINGS, Subject, assert_same_choices

from pyspec._core import Model
from pyspec.speculators import NgramMapK, NgramMapKOptions, NgramMod, NgramModOptions
from pyspec.speculators.draft_model import DraftModel, DraftModelOptions

ARCH_CASES = [(name, strategy) for name, able in ABLE.items() for strategy in able]
REAL_CASES = [(name, strategy) for name, able in ABLE_REAL.items() for strategy in able]
FEW = ("llama", "mamba2", "qwen35", "lfm2", "gpt-oss")
FEW_CASES = [(name, strategy) for name in FEW for strategy in ABLE[name]]

MAP_K = NgramMapKOptions(size_n=3, size_m=6, min_hits=1)
MOD = NgramModOptions(n_match=2, n_min=1, n_max=8)


@pytest.mark.parametrize("law", ["greedy", "sampled"])
@pytest.mark.parametrize("replay", ["fused", "immediate"])
@pytest.mark.parametrize(("subject_name", "strategy"), ARCH_CASES)
def test_scripted_drafts_leave_the_text_of_plain_decoding(subject: Subject, strategy: str, replay: str, law: str):
    run = subject.play(strategy, replay, "mixed", law).run
    if law == "greedy":
        assert_same_choices(subject.model, subject.prompt, subject.plain(), run.tokens)
    else:
        assert run.tokens == subject.plain(law)


@pytest.mark.parametrize("replay", ["fused", "immediate"])
@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "mixed"])
@pytest.mark.parametrize(("subject_name", "strategy"), FEW_CASES)
def test_every_pattern_of_drafts_leaves_the_text(subject: Subject, strategy: str, pattern: str, replay: str):
    run = subject.play(strategy, replay, pattern, "sampled").run
    assert run.tokens == subject.plain("sampled")


@pytest.mark.usefixtures("smollm2_path", "gemma3_path")
@pytest.mark.parametrize(("subject_name", "strategy"), REAL_CASES)
def test_scripted_drafts_leave_the_text_of_a_real_model(subject: Subject, strategy: str):
    assert subject.play(strategy, "fused", "mixed").run.tokens == subject.plain()


@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize(("subject_name", "strategy"), [c for c in REAL_CASES if c[0] != "gemma3-270m"])
def test_replayed_at_once_the_text_of_a_real_model_is_the_same(subject: Subject, strategy: str):
    assert subject.play(strategy, "immediate", "mixed").run.tokens == subject.plain()


@pytest.mark.parametrize("strategy", ["trim", "fork", "checkpoint-host", "shadow", "checkpoint-device", "snapshot"])
def test_a_pattern_is_followed_as_written(arch_subject: Callable[[str], Subject], strategy: str):
    subject = arch_subject("qwen35" if strategy in ("shadow", "checkpoint-device", "snapshot") else "llama")
    run = subject.play(strategy, "immediate", "each-position", "sampled").run
    assert (run.stats.n_drafted, run.stats.n_accepted, run.stats.n_rollbacks) == (20, 10, 4)


# ------------------------------------------------------------------ speculators


def make_ngram(kind: str) -> NgramMapK | NgramMod:
    return NgramMapK(MAP_K) if kind == "ngram-map-k" else NgramMod(MOD)


@pytest.mark.parametrize("kind", ["ngram-map-k", "ngram-mod"])
@pytest.mark.parametrize("subject_name", list(ABLE))
def test_an_ngram_speculator_drafts_and_leaves_the_text(subject: Subject, kind: str):
    run = subject.rig().run(subject.prompt * 2, make_ngram(kind), max_tokens=N_TOKENS)
    plain = subject.rig().run(subject.prompt * 2, None, max_tokens=N_TOKENS)
    assert run.stats.n_drafted > 0
    assert_same_choices(subject.model, subject.prompt * 2, plain.tokens, run.tokens)


@pytest.mark.parametrize("subject_name", list(ABLE))
def test_a_draft_model_drafts_and_leaves_the_text(subject: Subject):
    draft = DraftModel(subject.model, target=subject.model.vocab, n_ctx=512, context={"n_threads": 1})
    run = subject.rig().run(subject.prompt, draft, max_tokens=N_TOKENS)
    assert run.stats.n_drafted > 0
    assert_same_choices(subject.model, subject.prompt, subject.plain(), run.tokens)


@pytest.mark.usefixtures("smollm2_path", "gemma3_path")
@pytest.mark.parametrize("kind", ["ngram-map-k", "ngram-mod"])
@pytest.mark.parametrize("subject_name", list(ABLE_REAL))
def test_an_ngram_speculator_leaves_the_text_of_a_real_model(subject: Subject, kind: str):
    run = subject.rig().run(subject.prompt, make_ngram(kind), max_tokens=N_TOKENS)
    assert run.stats.n_accepted > 0
    assert run.tokens == subject.plain()


@pytest.mark.parametrize("strategy", ABLE_REAL["tiny"])
def test_a_hybrid_draft_model_leaves_the_text_of_a_hybrid_target(
    tiny: Subject, tiny_draft_path: Path, load: Callable[[Path], Model], strategy: str
):
    draft = DraftModel(
        load(tiny_draft_path),
        target=tiny.model.vocab,
        options=DraftModelOptions(n_max=5),
        n_ctx=tiny.n_ctx,
        context={"n_threads": 1},
    )
    # sampled, so that the greedy draft model is wrong now and then, however well the pair was trained
    run = tiny.rig(strategy).run(tiny.prompt, draft, max_tokens=N_TOKENS, **SAMPLINGS["sampled"])
    assert run.stats.n_drafted > run.stats.n_accepted > 0
    assert run.tokens == tiny.plain("sampled")
