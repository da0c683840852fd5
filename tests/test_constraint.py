"""Laws of constrained generations: the constraint holds for every token, and speculation changes nothing (case C14)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Completion, Llama, Session
from pyspec._core import Sampler
from pyspec.config import SamplingOptions
from pyspec.constraint import Choice, Constraint, Json, JsonSchema, Lark, Regex, matcher
from pyspec.constraint.matcher import compile_constraint
from pyspec.constraint.sampler import ConstrainedSampler
from pyspec.errors import ConstraintError, InvalidValueError, SamplerError
from pyspec.speculators import Grammar, History, Scripted

PERSON = {
    "type": "object",
    "properties": {
        "name_of_the_person": {"type": "string", "maxLength": 10},
        "age_in_years": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"const": "a person of some interest"},
    },
    "required": ["name_of_the_person", "age_in_years", "kind"],
    "additionalProperties": False,
}
LIST = {
    "type": "array",
    "items": {"anyOf": [{"type": "boolean"}, {"enum": ["left", "right", None]}]},
    "minItems": 2,
    "maxItems": 4,
}


def _is_person(text: str) -> bool:
    value = json.loads(text)
    assert list(value) == list(PERSON["properties"])  # type: ignore[call-overload]
    assert isinstance(value["age_in_years"], int)
    return (
        0 <= value["age_in_years"] <= 150
        and len(value["name_of_the_person"]) <= 10
        and value["kind"] == "a person of some interest"
        and text == json.dumps(value, ensure_ascii=False)
    )


def _is_list(text: str) -> bool:
    value = json.loads(text)
    return 2 <= len(value) <= 4 and all(v in (True, False, None, "left", "right") for v in value)


DATE = r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]( at (noon|midnight))?"
PROSE = r"[a-z]{1,6}( [a-zé]{1,6}){2,5}\."
WORDS = ["yes, of course", "no", "no, certainly not", "née"]
CASES: dict[str, tuple[Constraint, Callable[[str], object]]] = {
    "person": (JsonSchema(PERSON), _is_person),
    "list": (JsonSchema(LIST, "compact"), _is_list),
    "date": (Regex(DATE), re.compile(DATE).fullmatch),
    "prose": (Regex(PROSE), re.compile(PROSE).fullmatch),
    "choice": (Choice(WORDS), WORDS.__contains__),
    "lark": (Lark('start: ("(" start ")") | "x" "y"*'), lambda text: re.fullmatch(r"\(*xy*\)*", text)),
}
HOW: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.0},
    "wild": {"temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "penalties": {"temperature": 0.0, "repeat_penalty": 1.4, "dry_multiplier": 0.8},
    "mirostat": {"temperature": 1.0, "mirostat": 2},
}
PROMPT = "# A note about somebody:\n"


@pytest.fixture(scope="module")
def tiny(tiny_target_path: Path) -> Iterator[Llama]:
    """A hybrid."""
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, budget="off", rollback="shadow") as llm:
        yield llm


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Llama]:
    """Attention."""
    with Llama(smollm2_path, n_ctx=512, n_threads=1, budget="counts", rollback="trim") as llm:
        yield llm


def plain(llm: Llama, name: str, how: str, *, seed: int = 1, max_tokens: int = 120, **more: Any) -> Completion:
    options: dict[str, Any] = {"spec": None, "constraint": CASES[name][0], "seed": seed, "max_tokens": max_tokens}
    return llm.generate(PROMPT, **options | HOW[how] | more)


# ------------------------------------------------------------------ the constraint holds


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", CASES)
def test_every_finished_text_is_what_was_asked_for(tiny: Llama, name: str, how: str):
    n_finished = 0
    for seed in range(4):
        out = plain(tiny, name, how, seed=seed)
        if out.finish_reason == "stop":
            n_finished += 1
            assert CASES[name][1](out.text), out.text
        else:
            assert out.finish_reason == "length"
    assert n_finished or name == "lark", "a test of nothing"


@pytest.mark.parametrize("name", ["person", "date"])
def test_it_holds_on_a_model_that_was_not_made_for_code(smollm2: Llama, name: str):
    for how in ("greedy", "drawn"):
        out = plain(smollm2, name, how)
        assert out.finish_reason == "stop"
        assert CASES[name][1](out.text)


@pytest.mark.parametrize("name", ["person", "prose"])
def test_a_text_that_is_cut_is_the_beginning_of_the_whole_one(tiny: Llama, name: str):
    whole = plain(tiny, name, "drawn", seed=5)
    assert whole.finish_reason == "stop"
    for n in (1, 2, len(whole.tokens) // 2, len(whole.tokens) - 1):
        for spec in (None, "auto"):
            cut = plain(tiny, name, "drawn", seed=5, max_tokens=n, spec=spec)
            assert (cut.tokens, cut.finish_reason) == (whole.tokens[:n], "length")


def test_the_last_token_that_may_come_ends_the_generation_without_another_decode(tiny: Llama):
    out = plain(tiny, "person", "greedy")
    exact = plain(tiny, "person", "greedy", max_tokens=len(out.tokens))
    assert out.stats.n_decodes == len(out.tokens)
    assert (exact.tokens, exact.finish_reason) == (out.tokens, "stop")


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_model_ends_a_text_only_where_it_is_complete(tiny: Llama, ignore_eos: bool):
    """The end token is made the likeliest by far: it is taken at the first place where it may be."""
    end = tiny.model.vocab.eog_tokens[0]
    for seed in range(4):
        out = tiny.generate(
            PROMPT,
            constraint=Regex("([a-c][0-9]){2,3}"),
            logit_bias={end: 100.0},
            seed=seed,
            temperature=1.0,
            spec=None,
            ignore_eos=ignore_eos,
        )
        assert re.fullmatch("([a-c][0-9]){3}" if ignore_eos else "([a-c][0-9]){2}", out.text)
        assert out.finish_reason == "stop"


def test_a_stop_token_of_the_users_ends_a_text_only_where_it_is_complete(tiny: Llama):
    comma = int(tiny.tokenize(",", add_special=False)[0])
    out = tiny.generate(
        PROMPT,
        constraint=Regex("(a|b){4}[,a]*"),
        stop_tokens=[comma],
        logit_bias={comma: 100.0},
        max_tokens=9,
        spec=None,
    )
    assert re.fullmatch("(a|b){4}", out.text)
    assert out.finish_reason == "stop"


def test_a_text_of_nothing_is_empty(tiny: Llama):
    out = tiny.generate(PROMPT, constraint=Regex("a{0}"))
    assert (out.text, out.tokens, out.finish_reason) == ("", [], "stop")
    with pytest.raises(ConstraintError, match="no token of the vocabulary can follow the beginning of the text"):
        tiny.generate(PROMPT, constraint=Regex("a{0}"), ignore_eos=True)
    assert plain(tiny, "choice", "greedy").text in WORDS


def test_a_bias_and_a_constraint_both_hold(tiny: Llama):
    vocab = tiny.model.vocab
    with_a = {t: float("-inf") for t in range(vocab.n_tokens) if b"a" in vocab.token_to_piece(t)}
    out = tiny.generate(PROMPT, constraint=Regex("[ab]{6}"), logit_bias=with_a)
    assert out.text == "bbbbbb"
    with pytest.raises(SamplerError, match="no candidate is left"):
        tiny.generate(PROMPT, constraint=Regex("a+"), logit_bias=with_a)


def test_a_vocabulary_without_end_tokens_stops_with_the_text(arch_path: Path):
    with Llama(arch_path, n_ctx=128, n_threads=1, budget="off") as llm:
        assert not llm.model.vocab.eog_tokens
        options: dict[str, Any] = {"constraint": Regex("[0-9]{4}(77)?123123123"), "temperature": 1.0, "seed": 3}
        out = llm.generate([1, 2, 3], spec=None, **options)
        assert re.fullmatch("[0-9]{4}(77)?123123123", out.text)
        assert out.finish_reason == "stop"
        fast = llm.generate([1, 2, 3], spec=["grammar", "suffix"], **options)
        assert fast.tokens == out.tokens
        assert fast.stats.n_accepted > 0


def test_where_no_token_can_go_on_the_generation_fails_and_says_where(arch_path: Path):
    """These vocabularies spell digits alone."""
    with Llama(arch_path, n_ctx=128, n_threads=1, budget="off") as llm:
        for spec in (None, "grammar"):
            with pytest.raises(ConstraintError, match=r"no token of the vocabulary can follow '[0-9]{2}'"):
                llm.generate([1, 2, 3], spec=spec, constraint=Regex("[0-9]{2}x"), temperature=1.0, seed=3)


# ------------------------------------------------------------------ speculation changes nothing


def violating(right: list[int], end: int, bad: int) -> Scripted:
    """Right tokens, then one that the constraint forbids, then right ones; past the end of the text, more of it."""
    text = [*right, end]

    def draft(history: History, n_max: int) -> list[int]:
        done = text[len(history) - n_prompt[0] :]
        k = len(history) % 4
        if k == 3:
            return [bad, *done][:n_max]
        return [*done[:k], bad, *done[k + 1 :], end, bad, bad][:n_max] if k else [*done, end, bad, 7, 8][:n_max]

    n_prompt = [0]
    scripted = Scripted(draft)
    begin = scripted.begin
    scripted.begin = lambda tokens: (n_prompt.__setitem__(0, len(tokens)), begin(tokens))[1]  # type: ignore[method-assign]
    return scripted


SPECS: dict[str, Any] = {
    "grammar": "grammar",
    "auto": "auto",
    "ngrams": ["ngram-map-k:size_n=2", "suffix"],
    "scripted": lambda out, llm: violating(out.tokens, llm.model.vocab.eog_tokens[0], 300),
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", CASES)
def test_constrained_text_is_the_same_with_drafts(tiny: Llama, name: str, how: str, spec: str):
    out = plain(tiny, name, how, seed=2, max_tokens=60)
    drafts = SPECS[spec](out, tiny) if spec == "scripted" else SPECS[spec]
    fast = plain(tiny, name, how, seed=2, max_tokens=60, spec=drafts)
    assert (fast.tokens, fast.text, fast.finish_reason) == (out.tokens, out.text, out.finish_reason)
    if spec == "scripted" and name != "choice":  # which the grammar may draft alone
        assert fast.stats.n_drafted > fast.stats.n_accepted
    if spec == "grammar":
        assert set(fast.stats.by_speculator) <= {"grammar"}


def test_drafts_of_a_draft_model_change_nothing(tiny: Llama, tiny_draft_path: Path):
    with Llama(tiny.model, n_ctx=512, n_threads=1, budget="off", draft_model=tiny_draft_path, rollback="fork") as llm:
        for how in ("greedy", "drawn"):
            out = plain(llm, "person", how)
            fast = plain(llm, "person", how, spec="draft-model")
            assert fast.tokens == out.tokens
            assert fast.stats.by_speculator["draft-model"].n_drafted > 0
            assert fast.stats.by_speculator["grammar"].n_accepted > 0


@pytest.mark.parametrize("how", ["greedy", "drawn"])
def test_an_attention_model_says_the_same_with_drafts(smollm2: Llama, how: str):
    out = plain(smollm2, "person", how)
    for spec in ("auto", violating(out.tokens, smollm2.model.vocab.eog_tokens[0], 300)):
        assert plain(smollm2, "person", how, spec=spec).tokens == out.tokens


# ------------------------------------------------------------------ forced tokens are drafted


@pytest.mark.parametrize("how", ["greedy", "drawn", "wild"])
def test_forced_tokens_are_drafted_and_always_right(tiny: Llama, how: str):
    out = plain(tiny, "person", how, seed=4)
    fast = plain(tiny, "person", how, seed=4, spec="grammar")
    counts = fast.stats.by_speculator["grammar"]
    n_forced = len(tiny.tokenize('"name_of_the_person"", "age_in_years"', add_special=False))
    assert counts.n_accepted == counts.n_drafted > n_forced
    assert fast.stats.n_decodes < len(fast.tokens) / 2
    assert out.stats.n_decodes == len(out.tokens)
    assert fast.stats.n_rollbacks == 0


def test_the_budget_takes_forced_drafts_at_once(smollm2: Llama):
    fast = plain(smollm2, "person", "greedy", spec="auto")
    counts = fast.stats.by_speculator["grammar"]
    assert counts.n_accepted == counts.n_drafted > 20


def test_they_stand_in_front_and_only_where_something_is_asked_for(tiny: Llama):
    pool = tiny._speculators
    assert [member.name for member in pool.drafting("suffix").members] == ["suffix"]
    assert [member.name for member in pool.drafting("suffix", grammar=True).members] == ["grammar", "suffix"]
    assert pool.drafting(None, grammar=True).members == ()
    own = Grammar()
    assert pool.drafting(["suffix", own], grammar=True).members[1] is own
    free = tiny.generate(PROMPT, max_tokens=24, spec="grammar")
    assert free.stats.n_drafts == 0


def test_a_generation_without_a_constraint_forgets_the_last_one(tiny: Llama):
    speculator = Grammar()
    plain(tiny, "person", "greedy", spec=speculator, max_tokens=3)
    free = tiny.generate(PROMPT, max_tokens=24, spec=speculator)
    assert free.stats.n_drafts == 0
    assert free.tokens == tiny.generate(PROMPT, max_tokens=24, spec=None).tokens


# ------------------------------------------------------------------ GBNF

GBNF = r"""
root ::= "{\"name\": \"" letter{1,8} "\", \"a longer name\": " ("true" | "false") "}"
letter ::= [a-z]
"""


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("regex", "grammar"),
    [
        (r"[a-z ]{4,12}[.!]", "root ::= [a-z ]{4,12} [.!]"),
        ("(é|[0-9]|日)*[xyz]", 'root ::= ("é" | [0-9] | "日")* [xyz]'),
        (r"[A-Z0-9_ (){}=,]{2,9}", r"root ::= [A-Z0-9_ (){}=,]{2,9}"),
    ],
    ids=["letters", "characters", "others"],
)
def test_a_constraint_chooses_as_the_same_grammar_in_gbnf(tiny: Llama, regex: str, grammar: str, how: str):
    """Token for token, for a seed: one law, and one random number a token."""
    for seed in range(6):
        options = HOW[how] | {"seed": seed, "max_tokens": 24, "spec": None}
        ours = tiny.generate(PROMPT, constraint=Regex(regex), **options)
        theirs = tiny.generate(PROMPT, grammar=grammar, **options)
        assert ours.tokens == theirs.tokens
        assert ours.finish_reason == theirs.finish_reason


@pytest.mark.parametrize("how", ["greedy", "drawn"])
@pytest.mark.parametrize("spec", ["grammar", "auto"])
def test_a_gbnf_grammar_drafts_what_it_forces_and_keeps_its_text(smollm2: Llama, how: str, spec: str):
    options = HOW[how] | {"seed": 1, "grammar": GBNF}
    out = smollm2.generate(PROMPT, spec=None, **options)
    fast = smollm2.generate(PROMPT, spec=spec, **options)
    assert json.loads(out.text).keys() == {"name", "a longer name"}
    assert fast.tokens == out.tokens
    assert fast.stats.by_speculator["grammar"].n_accepted > 0
    assert fast.stats.n_decodes < out.stats.n_decodes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grammar": 'start ::= "a long text"', "grammar_root": "start"}, "its root is 'start'"),
        ({"grammar": 'root ::= "a" | <[300]>'}, "no drafts from the grammar"),
    ],
    ids=["root", "tokens"],
)
def test_a_gbnf_grammar_that_cannot_be_followed_works_without_drafts(
    tiny: Llama, options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, "pyspec"):
        fast = tiny.generate(PROMPT, spec="grammar", max_tokens=16, **options)
    assert said in caplog.text
    assert fast.stats.n_drafts == 0
    assert fast.tokens == tiny.generate(PROMPT, spec=None, max_tokens=16, **options).tokens


def test_without_the_library_a_gbnf_grammar_works(tiny: Llama, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    assert re.fullmatch("[ab]{3}", tiny.generate(PROMPT, grammar="root ::= [ab]{3}").text)


# ------------------------------------------------------------------ drawn drafts


def chi_square(counts: np.ndarray, chances: np.ndarray) -> float:
    expected = counts.sum() * chances
    return float(((counts - expected) ** 2 / expected).sum())


def law_of_texts(llm: Llama, constraint: Constraint, sampling: dict[str, Any]) -> dict[str, float]:
    """The chance of every text, from the rows of a plain run: the sampler's law times that of what follows."""
    vocab, context = llm.model.vocab, llm.context
    sampler = Sampler(llm.model, SamplingOptions(**sampling))
    prompt, law = llm.tokenize(PROMPT), dict[str, float]()

    def visit(said: list[int], chance: float) -> None:
        place = compile_constraint(constraint, llm.model, ends=vocab.eog_tokens)
        for token in said:
            place.accept(token)
        if place.is_finished:
            text = llm.detokenize(said)
            law[text] = law.get(text, 0.0) + chance
            return
        context.clear()
        context.decode([*prompt, *said], pos=0, n_outputs=1)
        for token, p in zip(*sampler.probabilities(context, 0, place.mask()), strict=True):
            visit([*said, int(token)], chance * float(p))

    visit([], 1.0)
    context.clear()
    return law


class Drawn(Scripted):
    """Draws its one token evenly among some, of which the constraint allows a part."""

    draws = True

    def __init__(self, ids: list[int]) -> None:
        super().__init__(lambda history, n_max: self._one())
        self.ids = np.array(ids, np.int32)

    def reseed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed + 77)

    def _one(self) -> list[int]:
        self.laws = [(self.ids, np.full(len(self.ids), 1 / len(self.ids), np.float32))]
        return [int(self.ids[self.rng.integers(len(self.ids))])]


def test_drawn_drafts_leave_the_law_under_the_constraint(tiny: Llama):
    sampling: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    constraint = Regex("[adx][eim]?[eist]")
    law = law_of_texts(tiny, constraint, sampling)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-4)
    ids = [int(tiny.tokenize(c, add_special=False)[0]) for c in "aeimstqz"]
    spec, n = Drawn(ids), 800
    counts: dict[str, int] = {}
    n_drafted = n_accepted = 0
    for seed in range(n):
        out = tiny.generate(PROMPT, constraint=constraint, seed=seed, spec=spec, max_tokens=4, **sampling)
        counts[out.text] = counts.get(out.text, 0) + 1
        n_drafted += out.stats.n_drafted
        n_accepted += out.stats.n_accepted
    assert set(counts) <= set(law)
    assert n_drafted / 20 < n_accepted < n_drafted * 19 / 20
    common = sorted(law, key=lambda text: -law[text])[:7]
    seen = np.array([*(counts.get(text, 0) for text in common), n - sum(counts.get(text, 0) for text in common)])
    chances = np.array([*(law[text] for text in common), 1 - sum(law[text] for text in common)])
    assert chi_square(seen, chances) < 29.9, "the 99.99 % quantile for 7 degrees of freedom"


def test_asking_about_one_token_is_asking_about_all(tiny: Llama, monkeypatch: pytest.MonkeyPatch):
    """The sampler's short cut, against choosing with the whole mask at once."""
    shortly = {(name, how): plain(tiny, name, how, seed=6).tokens for name in CASES for how in HOW}
    monkeypatch.setattr(
        ConstrainedSampler, "sample", lambda self, context, row: self._sampler.sample(context, row, self.matcher.mask())
    )
    for (name, how), tokens in shortly.items():
        assert plain(tiny, name, how, seed=6).tokens == tokens


# ------------------------------------------------------------------ the facade


def test_a_constraint_beside_a_grammar_is_refused(tiny: Llama):
    with pytest.raises(InvalidValueError, match=r"constraint=Regex.*grammar="):
        tiny.generate(PROMPT, constraint=Regex("a"), grammar='root ::= "a"')


@pytest.mark.parametrize("wrong", ["[a-z]", {"type": "object"}, 7], ids=str)
def test_what_is_no_constraint_is_refused(tiny: Llama, wrong: Any):
    with pytest.raises(InvalidValueError, match=r"constraint=.*pyspec\.constraint"):
        tiny.generate(PROMPT, constraint=wrong)


def test_a_constraint_that_cannot_be_leaves_the_object_usable(tiny: Llama):
    with pytest.raises(ConstraintError, match="unclosed group"):
        tiny.generate(PROMPT, constraint=Regex("("))
    assert tiny.generate(PROMPT, max_tokens=4).stats.n_generated == 4


def test_a_stream_and_a_session_take_constraints(tiny: Llama):
    *pieces, completion = tiny.stream(PROMPT, constraint=Choice(WORDS))
    assert "".join(pieces) == completion.text in WORDS  # type: ignore[union-attr]
    talk = Session(tiny)
    talk.generate(PROMPT, constraint=Regex("[a-z]{3,8};"), max_tokens=16)
    answer = talk.generate("\nand again: ", constraint=Regex("[A-Z]{3,8};"), max_tokens=16)
    assert re.fullmatch("[A-Z]{3,8};", answer.text)


def test_a_grammar_that_is_too_complex_to_follow_is_an_error(tiny: Llama, monkeypatch: pytest.MonkeyPatch):
    library = matcher.llguidance()
    limits = library.LLParserLimits(max_items_in_row=3, step_max_items=3, verbose_errors=False)
    monkeypatch.setattr(library, "LLParserLimits", lambda **_: limits)
    with pytest.raises(ConstraintError):
        tiny.generate(PROMPT, constraint=Json(), temperature=2.0, seed=1)
