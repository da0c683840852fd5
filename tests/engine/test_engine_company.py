"""A request's text is the same alone and in company, whatever the company does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from engine_rig import KINDS, N_TOKENS

from pyspec import Engine
from pyspec.speculators import Speculator

SETTINGS = {"n_ctx": 128, "n_threads": 1, "budget": "off"}
#: The trained model is quantised, and llama.cpp's flash attention on a CPU sums in half precision: the same to the bit
#: only where each sequence has a buffer of its own.
APART = SETTINGS | {"context": {"kv_unified": False}}


def settings(kind: str) -> dict[str, object]:
    return APART if kind == "tiny" else SETTINGS


def misleading(answers) -> Callable[[], Speculator]:
    """One speculator for each request, each with a script of its own."""
    seeds = count(7)
    return lambda: answers.misleading(next(seeds))


@pytest.mark.parametrize("n_parallel", [1, 3, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_in_company_is_the_text_alone(kind: str, n_parallel: int, model_of, answers_of) -> None:
    answers = answers_of(kind)
    with Engine(model_of(kind), n_parallel=n_parallel, **settings(kind)) as engine:
        drafts = misleading(answers)
        tickets = [engine.submit(p, spec=drafts(), max_tokens=N_TOKENS, ignore_eos=True) for p in answers.prompts]
        done = [ticket.result(120) for ticket in tickets]
        stats = engine.stats
    assert [one.tokens for one in done] == answers.tokens
    assert sum(one.stats.n_accepted for one in done) > 30
    assert sum(one.stats.n_rollbacks for one in done) > 20
    assert (stats.n_done, stats.n_failed, stats.n_generated) == (16, 0, 16 * N_TOKENS)


@pytest.mark.parametrize("kind", KINDS)
def test_arrivals_and_cancellations_of_others_change_no_text(kind: str, model_of, answers_of) -> None:
    answers = answers_of(kind)
    rng = random.Random(3)
    with Engine(model_of(kind), n_parallel=3, **settings(kind)) as engine:
        drafts = misleading(answers)

        def hand_in(i: int):
            return engine.submit(answers.prompts[i], spec=drafts(), max_tokens=N_TOKENS, ignore_eos=True)

        first = hand_in(0)
        pieces: Iterator[str] = iter(first)
        tickets = {0: first}
        for i in range(1, 16):
            if i % 4 == 0 and not first.done:
                next(pieces, None)  # something was generated meanwhile
            tickets[i] = hand_in(i)
            if rng.random() < 0.4:
                tickets[rng.randrange(i + 1)].cancel()
        done = {i: ticket.result(120) for i, ticket in tickets.items()}
    reasons = {one.finish_reason for one in done.values()}
    assert reasons == {"length", "cancelled"}
    for i, one in done.items():
        assert one.tokens == answers.tokens[i][: len(one.tokens)], i
        assert len(one.tokens) == N_TOKENS or one.finish_reason == "cancelled"


@pytest.mark.parametrize("n_spare", [0, 1])
@pytest.mark.parametrize("kind", ["lfm2", "mamba2", "qwen35"])
def test_where_spare_sequences_run_out_the_next_strategy_takes_over(
    kind: str, n_spare: int, model_of: Callable[[str], Path], answers_of
) -> None:
    answers = answers_of(kind)
    with Engine(model_of(kind), n_parallel=3, n_spare=n_spare, rollback="shadow", **SETTINGS) as engine:
        drafts = misleading(answers)
        tickets = [engine.submit(p, spec=drafts(), max_tokens=N_TOKENS, ignore_eos=True) for p in answers.prompts]
        done = [ticket.result(120) for ticket in tickets]
    assert [one.tokens for one in done] == answers.tokens
    used = {one.stats.rollback for one in done}
    assert used == ({"checkpoint-host"} if n_spare == 0 else {"shadow", "checkpoint-host"})


def test_every_request_has_a_draft_model_context_of_its_own(tiny_target_path, tiny_draft_path, answers_of) -> None:
    answers = answers_of("tiny")
    with Engine(
        tiny_target_path, n_parallel=3, draft_model=tiny_draft_path, spec="draft-model:n_max=4", **APART
    ) as engine:
        tickets = [engine.submit(p, max_tokens=N_TOKENS, ignore_eos=True) for p in answers.prompts]
        done = [ticket.result(120) for ticket in tickets]
    assert [one.tokens for one in done] == answers.tokens
    assert all(one.stats.n_drafted > 0 for one in done)
    assert sum(one.stats.n_accepted for one in done) > 20


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["llama", "tiny"])
def test_a_sampled_text_has_its_seed_alone(kind: str, seed: int, model_of, answers_of) -> None:
    answers = answers_of(kind)
    how = {"max_tokens": N_TOKENS, "ignore_eos": True, "temperature": 0.9, "top_k": 20, "seed": seed}
    with Engine(model_of(kind), n_parallel=1, spec="none", **settings(kind)) as engine:
        alone = [engine.generate(p, **how).tokens for p in answers.prompts[:6]]
    with Engine(model_of(kind), n_parallel=6, **settings(kind)) as engine:
        drafts = misleading(answers)
        together = [engine.submit(p, spec=drafts(), **how) for p in answers.prompts[:6]]
        assert [ticket.result(60).tokens for ticket in together] == alone


def test_a_shared_buffer_changes_a_text_only_where_two_tokens_are_nearly_as_likely(model_of, answers_of) -> None:
    answers = answers_of("tiny")
    how = {"max_tokens": N_TOKENS, "ignore_eos": True, "logprobs": 1}
    with Engine(model_of("tiny"), n_parallel=1, spec="none", **APART) as engine:
        alone = [engine.generate(p, **how) for p in answers.prompts]
    with Engine(model_of("tiny"), n_parallel=3, **SETTINGS) as engine:
        assert engine.rollback == "shadow"
        drafts = misleading(answers)
        tickets = [engine.submit(p, spec=drafts(), **how) for p in answers.prompts]
        together = [ticket.result(60) for ticket in tickets]
    for one, other in zip(alone, together, strict=True):
        for a, b in zip(one.logprobs, other.logprobs, strict=True):
            assert abs(a.top[0][1] - b.top[0][1]) < 0.2
            if a.token != b.token:
                break
