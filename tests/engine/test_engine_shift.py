"""A request that drops tokens in a full context moves none that others share, and gives nobody what it moved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from engine_rig import each_round

from pyspec import Completion, Engine
from pyspec.engine.admission import MIN_SHARED
from pyspec.errors import UnsupportedError
from pyspec.speculators import History, Scripted

N_CTX, N_PROMPT = 128, 80
HOW = {"max_tokens": 44, "ignore_eos": True, "logprobs": 3}
LONG = {"max_tokens": 400, "ignore_eos": True, "temperature": 2.0, "seed": 5}
#: The last bits of sums in another order; what was moved differs by more than 0.1.
TOLERANCE = 0.01


def settings(kind: str, unified: bool) -> dict[str, object]:
    context = {"kv_unified": unified} | ({"swa_full": True} if kind == "gemma3" else {})
    return {"n_ctx": N_CTX, "n_threads": 1, "budget": "off", "spec": "none", "context": context}


@pytest.fixture(params=[True, False], ids=["unified", "separate"])
def unified(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=["llama", "gemma3"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(kind: str, unified: bool, model_of) -> Callable[..., Engine]:
    return lambda **how: Engine(model_of(kind), **settings(kind, unified) | {"n_parallel": 6} | how)


@pytest.fixture
def alone(made: Callable[..., Engine]) -> Callable[..., Completion]:
    def say(prompt: list[int], **how: int) -> Completion:
        with made(n_parallel=1, share_prefix=False) as engine:
            return engine.generate(prompt, **HOW | how)

    return say


@pytest.fixture
def prompt() -> list[int]:
    return np.random.default_rng(3).integers(1, 128, N_PROMPT).tolist()


def assert_same(one: Completion, other: Completion) -> None:
    for a, b in zip(one.logprobs, other.logprobs, strict=True):
        assert max(abs(x[1] - y[1]) for x, y in zip(a.top, b.top, strict=True)) < TOLERANCE
        if a.token != b.token:
            assert a.top[0][1] - a.top[1][1] < TOLERANCE, "two tokens were as likely"
            break
        assert abs(a.logprob - b.logprob) < TOLERANCE


@pytest.mark.parametrize("rollback", ["auto", "fork"])
def test_who_begins_with_cells_of_a_request_keeps_them_when_it_shifts(rollback, made, alone, prompt) -> None:
    taken = []
    with made(rollback=rollback) as engine:

        def act(n: int, history: History) -> None:
            if n in (2, 30, 47):  # the first shift comes after 48 tokens
                taken.append(engine.submit(prompt, **HOW))
            if n in (90, 150, 200):
                taken.append(engine.submit(prompt[:60] + prompt[:20], **HOW))

        first = engine.submit(prompt, n_keep=4, spec=each_round(act), **LONG)
        done = [first.result(60), *(ticket.result(60) for ticket in taken)]
        after = engine.generate(prompt, **HOW)
    assert done[0].stats.n_dropped > 4 * 60
    assert [one.stats.n_reused for one in done[1:4]] == [N_PROMPT - 1] * 3
    for one in (*done[1:4], after):
        assert_same(one, alone(prompt))
    for one in done[4:]:
        assert_same(one, alone(prompt[:60] + prompt[:20]))


def test_who_gave_its_cells_keeps_them_when_the_other_shifts(made, alone, prompt) -> None:
    rest, taken = prompt[::-1][:40], []
    with made() as engine:

        def act(n: int, history: History) -> None:
            if n in (5, 20):  # these have 8 positions left
                taken.append(engine.submit(prompt + rest, n_keep=4, **LONG))

        first = engine.submit(prompt, spec=each_round(act), **HOW).result(60)
        others = [ticket.result(60) for ticket in taken]
    assert [one.stats.n_reused >= N_PROMPT - 1 for one in others] == [True, True]
    assert all(one.stats.n_dropped > 4 * 60 for one in others)
    assert_same(first, alone(prompt))


def test_memory_that_nobody_works_with_keeps_its_cells(made, alone, prompt) -> None:
    rest = prompt[::-1][:40]
    with made() as engine:
        for ticket in [engine.submit(prompt, **HOW), engine.submit(prompt + rest, max_tokens=4, ignore_eos=True)]:
            ticket.result(60)
        shifted = engine.generate(prompt + rest, n_keep=4, **LONG)
        assert shifted.stats.n_reused == N_PROMPT + 39 and shifted.stats.n_dropped > 4 * 60
        again = engine.generate(prompt, **HOW)
    assert again.stats.n_reused == N_PROMPT - 1
    assert_same(again, alone(prompt))


@pytest.mark.parametrize("n_keep", [4, 40])
def test_what_was_moved_serves_nobody_else(n_keep: int, kind: str, made, alone, prompt) -> None:
    texts: list[list[int]] = []
    taken = []
    with made() as engine:

        def act(n: int, history: History) -> None:
            texts.append(history.view().tolist())
            if n == 70:
                taken.append(engine.submit(texts[-1][:N_PROMPT], **HOW))

        shifted = engine.generate(prompt, n_keep=n_keep, spec=each_round(act), **LONG)
        assert shifted.stats.n_dropped > 4 * 40
        at_work = taken[0].result(60)
        last = texts[-1][:N_PROMPT]
        after = engine.generate(last, **HOW)
    assert texts[69][:n_keep] == last[:n_keep] == prompt[:n_keep]
    n_reused = {at_work.stats.n_reused, after.stats.n_reused}
    if kind == "llama":  # tokens that a sliding window has left may be gone
        assert n_reused == {n_keep if n_keep >= MIN_SHARED else 0}
    assert n_reused <= {0, n_keep}
    assert_same(at_work, alone(texts[69][:N_PROMPT]))
    assert_same(after, alone(last))


@pytest.mark.parametrize("n_keep", [4, 40])
def test_what_was_moved_serves_not_even_the_next_in_its_place(n_keep: int, made, alone, prompt) -> None:
    texts: list[list[int]] = []
    with made(n_parallel=1) as engine:
        spec = each_round(lambda _, history: texts.append(history.view().tolist()))
        assert engine.generate(prompt, n_keep=n_keep, spec=spec, **LONG).stats.n_dropped > 4 * 40
        after = engine.generate(texts[-1][:N_PROMPT], **HOW)
    assert after.stats.n_reused in (0, n_keep)
    assert_same(after, alone(texts[-1][:N_PROMPT]))


@pytest.mark.parametrize("n_cells", [300, 400])
def test_there_is_room_for_cells_of_its_own(n_cells: int, model_of, prompt) -> None:
    with Engine(model_of("llama"), n_parallel=4, n_cells=n_cells, **settings("llama", True)) as engine:
        tickets = [engine.submit(prompt, n_keep=n, **LONG) for n in range(4, 12)]
        done = [ticket.result(60) for ticket in tickets]
    assert [len(one.tokens) for one in done] == [400] * 8
    assert all(one.stats.n_dropped > 0 for one in done)


def test_a_shift_is_refused_where_memory_cannot(model_of, answers_of) -> None:
    answers = answers_of("lfm2")
    with Engine(model_of("lfm2"), n_parallel=2, **settings("lfm2", True)) as engine:
        other = engine.submit(answers.prompts[0], max_tokens=24, ignore_eos=True)
        with pytest.raises(UnsupportedError, match="full context"):
            engine.generate(answers.prompts[0], n_keep=4)
        assert other.result(60).tokens == answers.tokens[0]


@pytest.mark.parametrize("seed", range(2))
def test_in_a_crowd_of_those_who_shift_every_text_is_its_own(seed: int, kind: str, unified: bool, made, alone) -> None:
    rng = np.random.default_rng(seed)
    common = rng.integers(1, 128, 80).tolist()  # longer than what stays where it is
    prompts = [common[: rng.integers(72, 80)] + rng.integers(1, 128, 6).tolist() for _ in range(6)]

    def guesses() -> Scripted:
        own = np.random.default_rng(int(rng.integers(0, 2**31)))
        return Scripted(lambda history, n_max: own.integers(1, 128, int(own.integers(0, 5))).tolist())

    with made(n_parallel=4, rollback="fork" if unified and seed % 2 else "auto") as engine:
        tickets, others = [], []
        for i, prompt in enumerate(prompts):
            how = LONG | {"max_tokens": 200, "n_keep": int(rng.choice([0, 4, 8, 40])), "seed": i, "spec": guesses()}
            tickets.append(engine.submit(prompt, spec=guesses(), **HOW | {"max_tokens": 40}))
            others.append(engine.submit((prompt + common[::-1])[:118], **how))  # 10 positions are left
        others[3].cancel()
        done = [ticket.result(60) for ticket in tickets]
        assert sum(ticket.result(60).stats.n_dropped for ticket in others) > 400
        assert engine.stats.n_failed == 0 and engine.stats.n_reused > 100
    for prompt, one in zip(prompts, done, strict=True):
        assert_same(one, alone(prompt, max_tokens=40))
