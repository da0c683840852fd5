"""The drafting benchmark as a library: workloads, forced continuations, runs, pairs, and what drafts are worth."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Llama
from pyspec._core import Context, Model, Vocab
from pyspec.bench import DraftingBenchOptions, Forced, Workload, drafting_turns, measure_drafting
from pyspec.bench.drafting_medians import report_of
from pyspec.bench.drafting_options import SPECS
from pyspec.bench.drafting_runs import DraftingRun, Target
from pyspec.bench.drafting_turns import ORACLE, Drafter, DraftingTurns
from pyspec.bench.workloads import (
    RANDOM,
    Passage,
    agent,
    code_completion,
    code_rewrite,
    json_records,
    names,
    passages,
    prose,
    summary,
    translation,
)
from pyspec.budgeted import BudgetedDrafting
from pyspec.errors import InvalidValueError, SamplerError, UnknownOptionError, VocabularyMissingError
from pyspec.stats import Stats

MODULES = {
    "code-rewrite": code_rewrite,
    "code-completion": code_completion,
    "json": json_records,
    "summary": summary,
    "translation": translation,
    "agent": agent,
    "prose": prose,
}
N_CTX = 2100


@pytest.fixture(scope="module")
def tiny(tiny_target_path: Path) -> Model:
    return Model(tiny_target_path)


@cache
def vocab_of(path: Path) -> Vocab:
    return Model(path, vocab_only=True).vocab


def options_of(**changes: Any) -> DraftingBenchOptions:
    some: dict[str, Any] = {"budgets": ("counts",), "widths": (4,), "n_runs": 1, "n_threads": 1}
    return DraftingBenchOptions(**some | changes)


def passage_of(name: str, vocab: Vocab, n_tokens: int = 400) -> Passage:
    return passages((name,), vocab, n_tokens=n_tokens, seed=1)[0]


@pytest.fixture(scope="module")
def target(tiny: Model) -> Iterator[Target]:
    target = Target(tiny, options_of(), n_ctx=N_CTX)
    yield target
    target.close()


def played(target: Target, passage: Passage, spec: str = "auto", budget: str = "counts") -> DraftingRun:
    with target.drafting(spec, budget) as drafting:
        return target.play(passage, drafting)


# ------------------------------------------------------------------ workloads


def test_all_workloads_have_names():
    assert names() == (*MODULES, RANDOM)


@pytest.mark.parametrize("model", ["tiny_target_path", "smollm2_path", "gemma3_path"])
@pytest.mark.parametrize("name", names())
def test_a_workload_has_a_usual_length_in_every_vocabulary(name: str, model: str, request: pytest.FixtureRequest):
    passage = passage_of(name, vocab_of(request.getfixturevalue(model)))
    assert 150 <= len(passage.prompt) <= 1100
    assert 150 <= len(passage.continuation) <= 1000


@pytest.mark.parametrize("model", ["tiny_target_path", "gemma3_path"])
@pytest.mark.parametrize("name", MODULES)
def test_prompt_and_continuation_are_the_tokens_of_one_text(name: str, model: str, request: pytest.FixtureRequest):
    vocab = vocab_of(request.getfixturevalue(model))
    passage = passage_of(name, vocab)
    module = MODULES[name]
    whole = vocab.tokenize(module.PROMPT + module.CONTINUATION, parse_special=False).tolist()
    assert [*passage.prompt.tolist(), *passage.continuation] == whole
    said = vocab.detokenize(np.array(passage.continuation, np.int32)).decode()
    assert said.strip() == module.CONTINUATION.strip()


def test_a_rewritten_file_differs_by_what_was_asked_for_only():
    old = re.search(r"```python\n(.*?)```", code_rewrite.PROMPT, re.DOTALL)
    new = code_rewrite.CONTINUATION.removesuffix("```\n")
    assert old is not None
    ast.parse(new)
    assert "borrower" not in new
    for before, after in reversed(code_rewrite.CHANGES):
        new = new.replace(after, before)
    assert new == old[1]


@pytest.mark.parametrize("i", range(3))
def test_each_change_of_a_rewritten_file_is_made(i: int):
    before, after = code_rewrite.CHANGES[i]
    assert before in code_rewrite.PROMPT
    assert after.replace("borrower", "reader") in code_rewrite.CONTINUATION


def test_a_completed_class_is_python_with_more_methods():
    before, whole = (
        ast.parse(t) for t in (code_completion.PROMPT, code_completion.PROMPT + code_completion.CONTINUATION)
    )
    n_before, n_after = (sum(isinstance(n, ast.FunctionDef) for n in ast.walk(tree)) for tree in (before, whole))
    assert (n_before, n_after) == (5, 9)


def test_continued_records_are_json_with_the_same_keys():
    text = (json_records.PROMPT + json_records.CONTINUATION).partition("```json\n")[2].removesuffix("```\n")
    records = json.loads(text)
    assert len(records) == 6
    assert len({tuple(record) for record in records}) == 1
    assert len({record["station"] for record in records}) == 6


def test_quotations_of_the_summary_stand_in_the_text():
    quoted = re.findall(r'"([^"]+)"', summary.CONTINUATION)
    assert len(quoted) == 7
    assert all(re.sub(r"[.,]$", "", quotation) in summary.PROMPT for quotation in quoted)


def test_every_copied_sentence_stands_in_the_list_to_be_translated():
    copied = re.findall(r"^English: (.*)$", translation.CONTINUATION, re.MULTILINE)
    assert len(copied) == 6
    assert all(f"\n{sentence}\n" in translation.PROMPT for sentence in copied)


def test_the_agent_quotes_what_its_tools_printed():
    lines = [line for line in agent.CONTINUATION.splitlines() if line.strip()]
    quoted = [line for line in lines if f"{line}\n" in agent.PROMPT]
    assert len(lines) / 3 < len(quoted) < len(lines)


def test_in_the_story_no_four_words_come_twice():
    words = re.findall(r"\w+", (prose.PROMPT + prose.CONTINUATION).lower())
    rows = list(zip(*(words[i:] for i in range(4)), strict=False))
    assert len(set(rows)) == len(rows)


def test_random_tokens_are_drawn_by_the_seed(tiny: Model):
    one, same, other = (passages((RANDOM,), tiny.vocab, n_tokens=50, seed=seed)[0] for seed in (1, 1, 2))
    assert len(one.continuation) == 50
    assert one.continuation == same.continuation != other.continuation
    assert one.prompt.tolist() == same.prompt.tolist() != other.prompt.tolist()


def test_without_text_there_is_the_random_workload_alone(no_text: Vocab):
    assert [passage.name for passage in passages((), no_text, n_tokens=20, seed=1)] == [RANDOM]
    with pytest.raises(VocabularyMissingError, match="prose"):
        passages(("prose",), no_text, n_tokens=20, seed=1)


@pytest.fixture
def no_text(tiny: Model) -> Any:
    class NoText:
        has_text, n_tokens = False, 128

    return NoText()


def test_workloads_that_cannot_be_are_refused(tiny: Model):
    def get(*wanted: Any) -> None:
        passages(wanted, tiny.vocab, n_tokens=20, seed=1)

    with pytest.raises(UnknownOptionError, match="did you mean 'prose'"):
        get("prosa")
    own = Workload(name="prose", about="", prompt="a = 1\n", continuation="b = 2\n")
    with pytest.raises(InvalidValueError, match="different names"):
        get("prose", own)
    with pytest.raises(InvalidValueError, match="continuation of at least two"):
        get(replace(own, continuation=""))


# ------------------------------------------------------------------ forced continuations


@pytest.mark.parametrize("budget", ["counts", "off"])
def test_a_forced_continuation_is_said_with_every_speculator(tiny: Model, tiny_draft_path: Path, budget: str):
    target = Target(tiny, options_of(n_tokens=250), n_ctx=N_CTX, draft_model=Model(tiny_draft_path))
    passage = passage_of("code-rewrite", tiny.vocab)
    for spec in (*SPECS, "draft-model", "none"):
        run = played(target, passage, spec, budget)
        assert run.tokens == passage.continuation[:250], spec
        assert (run.stats.n_drafts > 0) == (spec != "none"), spec
    target.close()


@pytest.mark.parametrize("rollback", ["shadow", "fork", "checkpoint-host", "checkpoint-device"])
def test_a_forced_continuation_is_said_with_every_rollback(tiny: Model, rollback: str):
    target = Target(tiny, options_of(rollback=rollback), n_ctx=N_CTX)
    passage = passage_of("json", tiny.vocab)
    run = played(target, passage, "suffix", "off")
    assert run.tokens == passage.continuation
    assert list(run.stats.rollbacks_by_strategy) == [rollback]
    target.close()


@pytest.mark.parametrize(("arch", "rollback"), [("llama", "trim"), ("mamba", "shadow"), ("qwen35", "checkpoint-host")])
def test_a_forced_continuation_is_said_on_every_memory(arch: str, rollback: str, arch_model: Callable[[str], Path]):
    model = Model(arch_model(arch))
    drawn = np.random.default_rng(3).integers(0, 128, 40).astype(np.int32)
    passage = Passage("p", "", np.tile(drawn, 2), [*drawn[:20].tolist(), 5, *drawn.tolist() * 2])
    target = Target(model, options_of(rollback=rollback), n_ctx=256)
    run = played(target, passage, "suffix", "off")
    assert run.tokens == passage.continuation
    assert (run.stats.n_rollbacks > 0, run.stats.n_accepted > 50) == (True, True)
    target.close()


def test_forcing_does_the_work_of_a_greedy_choice_once_a_decode(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    made: list[Forced] = []

    class Kept(Forced):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr("pyspec.bench.drafting_runs.Forced", Kept)
    target = Target(tiny, options_of(), n_ctx=N_CTX)
    run = played(target, passage_of("agent", tiny.vocab), budget="off")
    assert run.stats.n_drafts > 0
    assert made[0].n_decodes == run.stats.n_rounds < run.stats.n_generated
    target.close()


def test_a_continuation_that_is_over_is_an_error(tiny: Model):
    context = Context(tiny, n_ctx=64, n_threads=1)
    context.decode([1, 2], pos=0, n_outputs=2)
    forced = Forced([7, 8])
    forced.accept(3, prompt=True)
    for row, token in enumerate((7, 8)):
        assert forced.sample(context, row) == token
        forced.accept(token)
    with pytest.raises(SamplerError, match="has 2 tokens"):
        forced.sample(context, 1)
    forced.reset()
    assert forced.sample(context, 0) == 7


def test_own_continuations_are_what_the_model_says(tiny: Model):
    options = options_of(continuation="own", n_tokens=60)
    passage = passage_of("code-completion", tiny.vocab)
    target = Target(tiny, options, n_ctx=N_CTX)
    plain, drafted = target.play(passage), played(target, passage)
    target.close()
    with Llama(tiny, n_ctx=N_CTX, n_threads=1) as llm:
        said = llm.generate(passage.prompt.tolist(), max_tokens=60, spec=None, ignore_eos=True).tokens
    assert plain.tokens == drafted.tokens == said
    assert said != passage.continuation[:60]
    assert drafted.stats.n_accepted > 0


# ------------------------------------------------------------------ runs


def test_plain_decoding_gives_a_token_a_decode(target: Target):
    run = target.play(passage_of("prose", target.model.vocab, 40))
    assert run.n_tokens == run.n_decodes == len(run.tokens) - 1
    assert (run.stats.n_drafted, run.drafts) == (0, [])


def test_parts_lie_within_the_time_and_the_prompt_in_none(target: Target):
    run = played(target, passage_of("agent", target.model.vocab), "suffix", "off")
    assert all(spent > 0 for spent in run.part_s.values())
    assert sum(run.part_s.values()) < run.seconds


def test_drafts_are_on_record_with_their_places(target: Target):
    run = played(target, passage_of("agent", target.model.vocab), "suffix", "off")
    assert sum(n_drafted for _, n_drafted in run.drafts) == run.stats.n_drafted > 0
    assert len(run.drafts) == run.stats.n_drafts
    places = [at for at, _ in run.drafts]
    assert places == sorted(set(places))
    assert 1 <= places[0] <= places[-1] < len(run.tokens)


def test_a_speculator_remembers_nothing_of_an_earlier_run(target: Target):
    passage = passage_of("prose", target.model.vocab)
    first, again = (played(target, passage, "suffix", "off").stats for _ in range(2))
    assert first.n_accepted == again.n_accepted < first.n_generated / 4


@pytest.mark.parametrize("warm", [False, True])
def test_costs_are_remembered_where_that_is_asked_for(tiny: Model, warm: bool):
    target = Target(tiny, options_of(warm=warm), n_ctx=N_CTX)
    found = []
    for budget in ("measured", "measured", "counts"):
        with target.drafting("suffix", budget) as drafting:
            assert isinstance(drafting, BudgetedDrafting)
            found.append(drafting)
    assert (found[0].cost is found[1].cost) == warm
    assert found[0].cost is not found[2].cost
    assert found[0].speculator is not found[1].speculator
    target.close()


# ------------------------------------------------------------------ what drafts are worth


@pytest.mark.parametrize("name", ["prose", RANDOM])
def test_where_nothing_repeats_hardly_anything_is_drafted(target: Target, name: str):
    run = played(target, passage_of(name, target.model.vocab))
    late = [at for at, _ in run.drafts if at > 100]
    assert len(late) <= (len(run.tokens) - 100) / 50


@pytest.mark.parametrize(
    ("name", "at_least"),
    [
        ("code-rewrite", 3.0),
        ("code-completion", 1.5),
        ("json", 1.5),
        ("summary", 1.5),
        ("translation", 1.2),
        ("agent", 2.0),
    ],
)
def test_where_much_repeats_auto_gives_more_tokens_a_decode(target: Target, name: str, at_least: float):
    run = played(target, passage_of(name, target.model.vocab))
    assert run.n_tokens / run.n_decodes > at_least


def test_the_oracle_is_always_right_and_as_wide_as_asked_for(tiny: Model):
    options = options_of(widths=(2, 5, 16), n_tokens=40)
    report = measure_drafting(tiny, replace(options, workloads=("prose", RANDOM), specs=("none",)))
    assert [(row.workload, row.width) for row in report.oracle] == [
        (n, w) for n in ("prose", RANDOM) for w in (2, 5, 16)
    ]
    for row in report.oracle:
        assert row.n_accepted == row.n_drafted > 0
        assert row.n_decodes == ceil(39 / row.width)


# ------------------------------------------------------------------ turns and medians


def turns_of(target: Target, monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int, bool], float], **options: Any):
    """Turns over one workload whose n-th run takes `seconds(n, is_plain)` a token."""
    passage = passage_of("prose", target.model.vocab)
    n_runs = iter(range(10_000))

    def play(self: Target, passage: Passage, drafting: object = None) -> DraftingRun:
        n_tokens = len(passage.continuation) - 1
        spent = seconds(next(n_runs), drafting is None) * n_tokens
        parts = {"draft": 0.1 * spent, "decode": 0.6 * spent, "rollback": 0.2 * spent}
        return DraftingRun(passage.continuation, spent, parts, n_tokens, [], Stats())

    monkeypatch.setattr(Target, "play", play)
    monkeypatch.setattr(drafting_turns, "measure_plain", lambda context, width, n, *, n_rows: 1.0 + 0.1 * (width - 1))
    turns = DraftingTurns(options_of(**options), target, [passage], ("suffix", "ngram-mod", "ngram-simple"))
    turns.run(lambda fraction: None)
    return turns


def test_a_machine_that_slows_down_evenly_changes_no_speed(target: Target, monkeypatch: pytest.MonkeyPatch):
    turns = turns_of(target, monkeypatch, lambda n, is_plain: 1.0 + 0.3 * n, n_runs=2)
    speeds = [paired.speed for runs in turns.runs.values() for paired in runs]
    assert len(speeds) == 2 * 4
    assert speeds == pytest.approx([1.0] * 8)


def test_speeds_are_relative_to_plain_decoding_and_medians(target: Target, monkeypatch: pytest.MonkeyPatch):
    def seconds(n: int, is_plain: bool) -> float:
        turn = n // 7  # four drafters and three plain runs
        return 3.0 if is_plain else (1.0, 1.5, 6.0)[turn]

    turns = turns_of(target, monkeypatch, seconds, n_runs=3)
    assert len(turns.plain_runs["prose"]) == 9
    report = report_of(turns, about={}, draft_model=None)
    (workload,) = report.workloads
    assert (workload.oracle_width, workload.oracle_speed) == (4, pytest.approx(2.0))
    assert (workload.curve_width, workload.curve_speed) == (4, pytest.approx(4 / 1.3))
    assert [row.spec for row in report.rows] == ["suffix", "ngram-mod", "ngram-simple"]
    for row in report.rows:
        assert (row.speed, row.speed_min, row.speed_max) == pytest.approx((2.0, 0.5, 3.0))
        assert row.oracle_share == pytest.approx(1.0)
        assert row.tokens_per_s == pytest.approx(1 / 1.5)
        shares = (row.draft_share, row.decode_share, row.rollback_share, row.rest_share)
        assert shares == pytest.approx((0.1, 0.6, 0.2, 0.1))


def test_where_no_draft_pays_the_oracle_does_not_draft(target: Target, monkeypatch: pytest.MonkeyPatch):
    turns = turns_of(target, monkeypatch, lambda n, is_plain: 1.0 if is_plain else 2.0)
    report = report_of(turns, about={}, draft_model=None)
    assert [(w.oracle_width, w.oracle_speed) for w in report.workloads] == [(1, 1.0)]
    assert all(row.oracle_share == pytest.approx(0.5) for row in report.rows)


def test_everybody_plays_every_workload_in_every_turn(tiny: Model):
    one = Workload(name="one", about="", prompt="x = 1\n", continuation="y = 2\nz = 3\n")
    played_on = (one, replace(one, name="two"))
    options = options_of(workloads=played_on, specs=("suffix", "none"), budgets=("counts", "off", "counts"))
    seen: list[float] = []
    report = measure_drafting(tiny, replace(options, n_runs=2, widths=(4, 2, 4)), progress=seen.append)
    expected = [(w, s, b) for w in ("one", "two") for s in ("suffix", "none") for b in ("counts", "off")]
    assert [(row.workload, row.spec, row.budget) for row in report.rows] == expected
    assert [row.width for row in report.curve] == [1, 2, 4]
    assert report.curve[0].speed == 1.0
    assert (seen[0], seen[-1]) == (0.0, 1.0)
    assert seen == sorted(seen)
    assert report.same_text


def test_a_workload_of_ones_own_is_measured(tiny: Model):
    own = Workload(name="mine", about="counting", prompt="x = [1, 2, 3, 1, 2, 3, 1, 2, 3,", continuation=" 1, 2, 3" * 9)
    report = measure_drafting(tiny, options_of(workloads=(own,), specs=("suffix",)))
    assert [(row.workload, row.about) for row in report.workloads] == [("mine", "counting")]
    assert report.rows[0].n_tokens == len(own.passage(tiny.vocab).continuation) - 1
    assert report.rows[0].tokens_per_decode > 1.5


@pytest.mark.parametrize(
    "changes",
    [
        {"workloads": ("",)},
        {"specs": (3,)},
        {"budgets": ()},
        {"budgets": ("much",)},
        {"widths": (1,)},
        {"widths": ()},
        {"continuation": "mine"},
        {"n_tokens": 1},
        {"n_runs": 0},
        {"warm": 1},
        {"seed": -1},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(changes: dict[str, Any]):
    with pytest.raises(InvalidValueError, match=f"{next(iter(changes))}="):
        options_of(**changes)


def test_the_oracle_is_a_drafter_of_its_own(target: Target):
    turns = DraftingTurns(options_of(widths=(3, 2)), target, [passage_of("prose", target.model.vocab)], ("suffix",))
    assert turns.drafters == [Drafter(ORACLE, width=2), Drafter(ORACLE, width=3), Drafter("suffix", "counts")]
