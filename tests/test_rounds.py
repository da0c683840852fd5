"""Each round leaves a record: records add up to the totals, and every token comes from somewhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from pyspec import Completion, Llama
from pyspec.budget import BudgetOptions, CostModel
from pyspec.budgeted import BudgetedDrafting
from pyspec.drafting import Drafting
from pyspec.rounds import REASONS, Decision, Origin, Reason, RoundRecord, Span, columns, origins, per_position, spans
from pyspec.speculators import Chain, History, Scripted, as_tokens
from pyspec.stats import Stats

PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"
N_TOKENS = 48
EAGER = "ngram-mod:n_match=2,n_min=1,n_max=6"


def record(n_drafted: int = 0, n_accepted: int = 0, n_own: int = 1, **given: Any) -> RoundRecord:
    """A round with one pending token, and `n_own` tokens of the target's own."""
    made = {
        "width": 1 + n_drafted,
        "n_pending": 1,
        "n_drafted": n_drafted,
        "n_accepted": n_accepted,
        "n_emitted": n_accepted + n_own,
        "speculator": "a" if n_drafted else "",
        "rollback": "",
        "draft_s": 0.0,
        "decode_s": 1.0,
        "rollback_s": 0.0,
        "reason": "drafted" if n_drafted else "no proposal",
    }
    return RoundRecord(**(made | given))


# ------------------------------------------------------------------ where tokens come from


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        pytest.param([record(), record()], ["plain", "plain"], id="plain"),
        pytest.param([record(3, 3)], ["accepted"] * 3 + ["bonus"], id="whole-draft"),
        pytest.param([record(3, 1)], ["accepted", "correction"], id="part-of-a-draft"),
        pytest.param([record(2, 0)], ["correction"], id="nothing-of-a-draft"),
        pytest.param([record(3, 2, n_own=0)], ["accepted"] * 2, id="ended-inside-a-draft"),
        pytest.param([record(n_own=0)], [], id="ended-at-once"),
        pytest.param(
            [record(), record(1, 1), record(2, 0)], ["plain", "accepted", "bonus", "correction"], id="one-after-another"
        ),
    ],
)
def test_a_token_is_accepted_or_the_targets_own(rounds: list[RoundRecord], found: list[Origin]):
    assert origins(rounds, len(found)) == found


def random_rounds(seed: int) -> list[RoundRecord]:
    rng = random.Random(seed)
    drafts = [rng.choice([0, 0, 1, 2, 7]) for _ in range(30)]
    return [record(n, rng.randint(0, n), rng.choice([0, 1, 1, 1]) if n else 1) for n in drafts]


@pytest.mark.parametrize("n_more", [-40, -1, 0, 5])
@pytest.mark.parametrize("seed", range(5))
def test_spans_cover_all_tokens_without_gaps(seed: int, n_more: int):
    rounds = random_rounds(seed)
    n_tokens = max(0, sum(r.n_emitted for r in rounds) + n_more)
    found = spans(rounds, n_tokens)
    assert [i for span in found for i in range(span.start, span.end)] == list(range(n_tokens))
    assert sum(span.origin == "unrecorded" for span in found) == (n_more > 0)


def test_a_span_names_its_round():
    assert spans([record(), record(2, 1)], 3) == [
        Span(0, 1, "plain", 0),
        Span(1, 2, "accepted", 1),
        Span(2, 3, "correction", 1),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_positions_are_those_that_drafts_were_counted_at(seed: int):
    rounds, stats = random_rounds(seed), Stats()
    for r in rounds:
        if r.n_drafted:
            stats.count_draft("a", r.n_drafted, r.n_accepted)
    pairs = list(zip(stats.accepted_per_position, stats.drafted_per_position, strict=True))
    assert per_position(rounds, "a") == pairs
    assert per_position([*rounds, record(9, 9, speculator="b")], "a") == pairs
    assert per_position(rounds, "b") == []


def test_columns_hold_every_field_of_every_round():
    rounds = random_rounds(1)
    table = columns(rounds)
    assert [RoundRecord(*row) for row in zip(*table.values(), strict=True)] == rounds
    assert list(table) == list(RoundRecord._fields)


# ------------------------------------------------------------------ what is kept


def test_only_so_many_rounds_are_kept_and_all_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pyspec.stats.N_ROUNDS_KEPT", 3)
    monkeypatch.setattr("pyspec.summary.N_ROUNDS_KEPT", 3)
    stats = Stats(n_rounds=5)
    for n in range(5):
        stats.record_round(record(n, n))
    assert [r.n_drafted for r in stats.rounds] == [0, 1, 2]
    assert stats.decisions == {"no proposal": 1, "drafted": 4}
    assert "the first 3 of 5 rounds" in str(stats)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (record(), "no proposal"),
        (record(4, 1, n_proposed=6), "drafted 4 of 6"),
        (record(4, 1, n_proposed=6, expected_gain=1.875), "drafted 4 of 6, expected 1.88 times plain"),
        (record(2, 1, n_proposed=2, reason="probe"), "probe 2 of 2"),
        (record(reason="save failed", n_proposed=0), "save failed"),
    ],
)
def test_a_round_says_why(made: RoundRecord, words: str):
    assert made.why == words


def test_every_reason_is_explained():
    assert set(REASONS) == set(get_args(Reason))


# ------------------------------------------------------------------ rounds of a model


@pytest.fixture(
    scope="module", params=["shadow-fused-off", "shadow-immediate-counts", "checkpoint-host-fused-measured"]
)
def llm(request: pytest.FixtureRequest, tiny_target_path: Path, tiny_draft_path: Path) -> Iterator[Llama]:
    rollback, replay, budget = request.param.rsplit("-", 2)
    made = Llama(
        tiny_target_path,
        draft_model=tiny_draft_path,
        n_ctx=512,
        n_batch=16,
        n_ubatch=16,
        n_threads=1,
        rollback=rollback,
        replay=replay,
        budget=budget,
        max_tries=2,
    )
    with made as open_llm:
        yield open_llm


SPECS: list[Any] = [None, EAGER, ["suffix", "draft-model"], Scripted(lambda history, n_max: [5] * min(3, n_max))]
specs = pytest.mark.parametrize("spec", SPECS, ids=["plain", "ngram", "suffix+model", "always-wrong"])


@pytest.fixture(scope="module")
def generated(llm: Llama) -> dict[int, tuple[Completion, list[int]]]:
    """By the index in SPECS: a generation and the widths of its decodes with outputs."""
    decode = llm._decoder.memory.decode
    made = {}
    for i, spec in enumerate(SPECS):
        widths: list[int] = []

        def watched(tokens: Any, n_outputs: int, widths: list[int] = widths) -> None:
            if n_outputs:
                widths.append(len(tokens))
            decode(tokens, n_outputs)

        llm._decoder.memory.decode = watched  # type: ignore[method-assign]
        made[i] = (llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True), widths)
        llm._decoder.memory.decode = decode  # type: ignore[method-assign]
    return made


@pytest.fixture(params=range(len(SPECS)), ids=["plain", "ngram", "suffix+model", "always-wrong"])
def completion(request: pytest.FixtureRequest, generated: dict[int, tuple[Completion, list[int]]]) -> Completion:
    return generated[request.param][0]


def test_records_sum_to_the_totals(completion: Completion):
    s, rounds = completion.stats, completion.stats.rounds
    assert len(rounds) == s.n_rounds
    assert sum(r.n_emitted for r in rounds) == s.n_generated == N_TOKENS
    assert sum(r.n_drafted for r in rounds) == s.n_drafted
    assert sum(r.n_accepted for r in rounds) == s.n_accepted
    assert Counter(r.rollback for r in rounds if r.rollback) == s.rollbacks_by_strategy
    assert Counter(r.speculator for r in rounds if r.speculator) == {n: o.n_drafts for n, o in s.by_speculator.items()}
    assert Counter(r.reason for r in rounds) == s.decisions
    assert s.decisions.get("forced commit", 0) == s.n_forced_commits
    assert s.decisions.get("probe", 0) + s.decisions.get("drafted", 0) == s.n_drafts


def test_seconds_of_the_records_sum_to_the_timings(completion: Completion):
    first, *rest = completion.stats.rounds
    t = completion.timings
    assert t is completion.stats.timings
    assert first.decode_s == t.prompt_decode_s > 0
    assert sum(r.decode_s for r in rest) == pytest.approx(t.decode_s + t.verify_s)
    assert sum(r.draft_s for r in (first, *rest)) == pytest.approx(t.draft_s)
    assert sum(r.rollback_s for r in (first, *rest)) == pytest.approx(t.rollback_s)
    assert all(r.decode_s > 0 for r in rest)


def test_a_record_has_the_width_that_was_decoded(generated: dict[int, tuple[Completion, list[int]]]):
    for completion, widths in generated.values():
        assert [r.width for r in completion.stats.rounds] == widths
        assert all(r.width == r.n_pending + r.n_drafted for r in completion.stats.rounds)


def test_no_round_gives_more_tokens_than_it_decodes(completion: Completion):
    for r in completion.stats.rounds:
        assert r.n_emitted == r.n_accepted + 1 <= r.width
        assert 0 <= r.n_accepted <= r.n_drafted <= r.n_proposed
        assert (r.rollback != "") == (r.n_accepted < r.n_drafted)


def test_every_generated_token_has_an_origin(completion: Completion):
    found = Counter(completion.origins)
    assert len(completion.origins) == len(completion.tokens) == N_TOKENS
    assert found["accepted"] == completion.stats.n_accepted
    assert found["bonus"] + found["correction"] == completion.stats.n_drafts
    assert found["correction"] == completion.stats.n_rollbacks
    assert found["plain"] == completion.stats.n_rounds - completion.stats.n_drafts


def test_the_prompts_decodes_are_known(completion: Completion):
    s = completion.stats
    assert s.n_prompt_decodes == -(-len(completion.prompt_tokens) // 16) - 1
    n_replays = s.n_decodes - s.n_prompt_decodes - s.n_rounds
    assert n_replays >= 0
    assert s.tokens_per_decode == N_TOKENS / (s.n_rounds + n_replays)
    assert s.rounds[0].reason == "prompt"
    assert "prompt" not in {r.reason for r in s.rounds[1:]}


def test_plain_rounds_have_no_speculator(generated: dict[int, tuple[Completion, list[int]]]):
    s = generated[0][0].stats
    assert s.decisions == {"prompt": 1, "no speculator": N_TOKENS - 2, "no room": 1}
    assert s.tokens_per_decode == 1.0


def test_each_kind_of_round_occurs(tiny_target_path: Path):
    """So that the laws above are about something."""
    seen, found = set(), set()
    for budget in ("off", "counts"):
        with Llama(tiny_target_path, n_ctx=512, n_threads=1, budget=budget, max_tries=2) as llm:
            for spec in SPECS[1], SPECS[3]:
                made = llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True)
                seen |= set(made.stats.decisions)
                found |= set(made.origins)
    assert {"prompt", "drafted", "no room", "no proposal", "forced commit", "does not pay"} <= seen
    assert found == {"accepted", "bonus", "correction", "plain"}


def test_a_text_cut_by_a_stop_string_keeps_the_origins_of_what_is_left(llm: Llama):
    whole = llm.generate(PROMPT, max_tokens=N_TOKENS, spec=EAGER, ignore_eos=True)
    stop = whole.text[30:36]
    cut = llm.generate(PROMPT, max_tokens=N_TOKENS, spec=EAGER, ignore_eos=True, stop=stop)
    assert cut.stop == stop
    assert 0 < len(cut.origins) == len(cut.tokens) == len(cut.token_ends) <= cut.stats.n_generated
    assert "unrecorded" not in cut.origins


def test_token_ends_cut_the_text_into_its_tokens(llm: Llama):
    made = llm.generate(PROMPT, max_tokens=N_TOKENS, spec=EAGER, ignore_eos=True)
    ends = made.token_ends
    pieces = [made.text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    assert "".join(pieces) == made.text
    assert pieces == [llm.model.vocab.token_to_piece(token).decode() for token in made.tokens]


# ------------------------------------------------------------------ why


class Costly(Scripted):
    """As a draft model."""

    decodes = True


def decide(speculator: Any, n: int, *, wrong: bool, **options: Any) -> list[Decision]:
    """The decisions of `n` rounds of one text, whose tokens are all 1; `wrong` drafts are of 2s."""
    settings = BudgetOptions(measured=False, **options)
    drafting = BudgetedDrafting(speculator, settings, cost=CostModel(settings), keeps_accepted=True)
    history = History(as_tokens([1] * 4))
    drafting.begin(history.view())
    found = []
    for _ in range(n):
        draft = drafting.draft(history, 8, n_pending=1, n_vocab=10)
        found.append(drafting.decision)
        n_right = 0 if wrong else len(draft)
        history.extend([1] * (n_right + 1))
        drafting.settle(history, len(draft), n_right)
        assert bool(draft) == (drafting.decision.reason in ("drafted", "probe"))
    return found


def test_a_silent_speculator_is_no_proposal():
    assert set(decide(Scripted([]), 20, wrong=True)) == {Decision("no proposal")}


def test_a_draft_says_what_it_was_cut_from_and_what_it_promises():
    for decision in decide(Scripted(lambda history, n_max: [1] * 8), 20, wrong=False):
        assert decision.reason == "drafted"
        assert 1 <= decision.n_proposed <= 8
        assert decision.expected_gain is not None
        assert decision.expected_gain > 1.03


def test_drafts_that_are_never_right_soon_do_not_pay():
    found = decide(Scripted(lambda history, n_max: [2] * 8), 40, wrong=True)
    assert {d.reason for d in found[-20:]} == {"does not pay"}


def test_a_costly_speculator_with_a_bad_record_does_not_pay_but_for_probes():
    found = decide(Costly(lambda history, n_max: [2] * n_max), 120, wrong=True, probe_every=10)
    late = Counter(d.reason for d in found[40:])
    assert set(late) == {"does not pay", "probe"}
    assert late["probe"] < late["does not pay"]
    assert all(d.expected_gain is None for d in found if d.reason == "probe")


def test_a_rested_speculator_is_not_asked(monkeypatch: pytest.MonkeyPatch):
    now = iter(range(10**6))
    monkeypatch.setattr("pyspec.watched.perf_counter", lambda: 0.02 * next(now))
    settings = BudgetOptions(overhead=0.005)
    drafting = BudgetedDrafting(Scripted([]), settings, cost=CostModel(settings), keeps_accepted=True)
    history = History(as_tokens([1] * 4))
    drafting.begin(history.view())
    found = []
    for _ in range(40):
        n_asked = drafting.counts.n_asked
        assert drafting.draft(history, 8, n_pending=1, n_vocab=10) == []
        found.append((drafting.decision.reason, drafting.counts.n_asked > n_asked))
        history.extend([1])
        drafting.observe(1, 1.0, 0.0)
        drafting.settle(history, 0, 0)
    assert set(found) == {("not asked", False), ("no proposal", True)}
    assert drafting.counts.asked_s["scripted"] == pytest.approx(0.02 * drafting.counts.n_asked)


def test_of_a_chain_what_does_not_pay_goes_before_what_has_no_proposal():
    wrong = Scripted(lambda history, n_max: [2] * 8, name="wrong")
    found = decide(Chain([Scripted([]), wrong], n_vocab=10), 40, wrong=True)
    assert {d.reason for d in found[-20:]} == {"does not pay"}


def test_without_a_budget_nothing_is_expected():
    drafting = Drafting(Scripted([[1, 2, 3]]))
    history = History(as_tokens([1] * 4))
    drafting.begin(history.view())
    assert len(drafting.draft(history, 8, n_pending=1, n_vocab=10)) == 3
    assert drafting.decision == Decision("drafted", 3)
    assert drafting.draft(history, 8, n_pending=1, n_vocab=10) == []
    assert drafting.decision == Decision("no proposal")
    assert Drafting(None).decision == Decision("no speculator")
