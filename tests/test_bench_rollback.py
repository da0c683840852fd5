"""The rollback benchmark as a library: drafts, judgement of texts, traces, prompts, pictures of odd names."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Llama
from pyspec._core import Context, Model
from pyspec.bench import RollbackBenchOptions, Traced, generations, measure_rollback, read_trace, write_trace
from pyspec.bench.generations import Run, drafts_of, judge, play_plain
from pyspec.bench.patterns import Pattern, parse_pattern
from pyspec.bench.prompts import prompt_of
from pyspec.bench.rollback_plot import rollback_svg
from pyspec.bench.rollback_tables import rollback_markdown
from pyspec.errors import InvalidValueError
from pyspec.speculators import History, as_tokens
from pyspec.speculators.scripted import Scripted
from pyspec.stats import Stats

PROMPT = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def tiny(tiny_target_path: Path) -> Model:
    return Model(tiny_target_path)


# ------------------------------------------------------------------ drafts


@pytest.mark.parametrize(
    ("name", "rounds"), [("all", (4, 4)), ("none", (4, 0)), ("half", (4, 2)), ("3of8", (8, 3)), ("1of2", (2, 1))]
)
def test_patterns_by_name(name: str, rounds: tuple[int, int]):
    assert parse_pattern(name, n_draft=4) == Pattern(name, (rounds,))


def test_a_draft_is_right_up_to_its_first_wrong_token_and_follows_the_actual_history():
    truth = list(range(10, 30))
    script = drafts_of(Pattern("p", ((4, 2), (3, 3), (0, 0), (2, 1))), truth, len(PROMPT), n_vocab=100)
    history = History(PROMPT)
    history.extend(truth[:1])
    assert script.draft(history, 8) == [11, 12, 14, 14]
    history.extend(truth[1:4])
    assert script.draft(history, 8) == [14, 15, 16]
    history.extend(truth[4:9])
    assert script.draft(history, 8) == []
    assert script.draft(history, 8) == [19, 21]
    assert script.draft(history, 2) == [19, 20], "from the start again, cut to what the decoder has room for"


def test_nothing_is_drafted_once_the_text_has_left_the_plain_one():
    truth = list(range(10, 30))
    script = drafts_of(Pattern("p", ((4, 4),)), truth, len(PROMPT), n_vocab=100)
    history = History(PROMPT)
    history.extend([10, 11, 99])
    assert script.draft(history, 8) == []
    history.extend([13])
    assert script.draft(history, 8) == [], "equal tokens later do not make the texts equal"


# ------------------------------------------------------------------ the judgement of a text


def run_of(tokens: list[int]) -> Run:
    return Run(tokens, 1.0, [(3, 2)], Stats())


@pytest.mark.parametrize(
    ("margin", "rounding", "near_tie"),
    [(0.1, 0.06, True), (0.1, 0.04, False), (0.0, 0.0, True), (1e-4, 0.0, True), (0.5, 0.0, False)],
)
def test_a_near_tie_is_a_margin_that_rounding_explains(
    monkeypatch: pytest.MonkeyPatch, tiny: Model, margin: float, rounding: float, near_tie: bool
):
    row = np.array([0.0, 1.0, 1.0 - margin, -1.0], np.float32)

    def fake(context: Context, prompt: Any, said: list[int], width: int) -> Any:
        assert said == [0, 3]
        return row if width == 1 else row + np.float32(rounding)

    monkeypatch.setattr(generations, "_row_after", fake)
    found = judge(None, as_tokens(PROMPT), [0, 3, 1, 0], run_of([0, 3, 2, 0]))
    assert found is not None
    assert (found.index, found.plain_token, found.token) == (2, 1, 2)
    assert found.margin == pytest.approx(margin, abs=1e-6)
    assert found.near_tie == near_tie


def test_a_wrong_token_is_no_near_tie_on_a_real_model(tiny: Model):
    context = Context(tiny, n_ctx=128, n_threads=1, n_threads_batch=1)
    prompt = prompt_of(tiny.vocab, "def area(width, height):\n", 12)
    plain = play_plain(context, prompt, 12).tokens
    assert judge(context, prompt, plain, run_of(plain[:8])) is None
    wrong = [*plain[:6], (plain[6] + 1) % tiny.vocab.n_tokens]
    found = judge(context, prompt, plain, run_of(wrong))
    assert found is not None
    assert (found.index, found.near_tie) == (6, False)
    assert found.margin > found.rounding
    assert context.seq_pos_max(0) == -1


# ------------------------------------------------------------------ traces


def test_a_trace_of_a_real_generation_has_its_counts_and_reads_back(tiny: Model, tmp_path: Path):
    with Llama(tiny, n_ctx=256, n_threads=1, budget="off") as llm:
        plain = llm.generate("x = 1\n", max_tokens=24, spec=None)
        n_prompt, truth = len(plain.prompt_tokens), plain.tokens
        rounds = iter([(4, 2), (0, 0), (3, 3), (2, 0)])

        def script(history: History, n_max: int) -> list[int]:
            n_drafted, n_right = next(rounds, (0, 0))
            start = len(history) - n_prompt
            draft = truth[start : start + n_drafted]
            return [t if i < n_right else (t + 1) % llm.n_vocab for i, t in enumerate(draft)]

        traced = Traced(Scripted(script))
        out = llm.generate("x = 1\n", max_tokens=24, spec=traced)
    assert traced.pairs[:4] == [(4, 2), (0, 0), (3, 3), (2, 0)]
    assert sum(n for n, _ in traced.pairs) == out.stats.n_drafted
    assert sum(n for _, n in traced.pairs) == out.stats.n_accepted
    assert list(out.stats.by_speculator) == ["scripted"]
    write_trace(tmp_path / "t.json", traced.pairs)
    assert read_trace(tmp_path / "t.json") == tuple(traced.pairs)


def test_verdicts_of_a_script_are_a_trace(tmp_path: Path):
    write_trace(tmp_path / "t.json", [(4, 2, True), (1, 1, True)])
    assert read_trace(tmp_path / "t.json") == ((4, 2), (1, 1))


def test_a_trace_that_cannot_be_is_not_written(tmp_path: Path):
    with pytest.raises(InvalidValueError, match="round 1"):
        write_trace(tmp_path / "t.json", [(4, 2), (1, 2)])
    assert not (tmp_path / "t.json").exists()


# ------------------------------------------------------------------ prompts


@pytest.mark.parametrize("n_tokens", [1, 3, 50])
def test_a_prompt_has_the_length_that_was_asked_for_and_one_start(gemma3_path: Path, n_tokens: int):
    vocab = Model(gemma3_path, vocab_only=True).vocab
    once, again = (vocab.tokenize("a = 1\n", add_special=special).tolist() for special in (True, False))
    assert once == [vocab.bos, *again]
    assert prompt_of(vocab, "a = 1\n", n_tokens).tolist() == (once + again * 50)[:n_tokens]
    assert prompt_of(vocab, [7, 8], n_tokens).tolist() == ([7, 8] * 50)[:n_tokens]
    assert len(prompt_of(vocab, None, n_tokens)) == n_tokens


def test_a_prompt_of_nothing_is_refused(tiny: Model):
    for nothing in ("", []):
        with pytest.raises(InvalidValueError, match="at least one token"):
            prompt_of(tiny.vocab, nothing, 4)


# ------------------------------------------------------------------ the whole, from Python


def options_of(**changes: Any) -> RollbackBenchOptions:
    some: dict[str, Any] = {"n_context": 8, "widths": (2,), "strategies": ("shadow",), "patterns": ("half",)}
    return RollbackBenchOptions(**some | {"n_rounds": 1, "n_threads": 1} | changes)


def test_every_draft_has_its_full_length_to_the_last(tiny: Model):
    # 256 positions, as many as a context is rounded up to, would hold the tokens but not the last draft
    report = measure_rollback(tiny, options_of(n_draft=4, n_tokens=248), prompt=PROMPT)
    for row in report.generations:
        assert (row.n_drafted, row.n_accepted) == (4 * row.n_drafts, 2 * row.n_drafts)


def test_progress_goes_from_0_to_1_and_odd_names_stay_well_formed(tiny: Model):
    seen: list[float] = []
    options = options_of(n_draft=2, n_tokens=4, n_rounds=2)
    data = measure_rollback(tiny, options, prompt=PROMPT, progress=seen.append).to_dict()
    assert (seen[0], seen[-1]) == (0.0, 1.0)
    assert seen == sorted(seen)
    data["about"]["model"] = 'a<b>&"c"|d.gguf'
    for row in data["generations"]:
        row["pattern"] = "trace:<|>&.json"
    root = ElementTree.fromstring(rollback_svg(data))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0].startswith('Rollback of a<b>&"c"|d.gguf: ')
    assert "trace:<|>&.json: shadow, fused" in texts
    assert "| shadow | fused | trace:<\\|>&.json |" in rollback_markdown(data)
