"""Several completions of one prompt: each is the single call's, and the prompt is decoded once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspec import Completion, Llama
from pyspec.errors import BusyError, ContextFullError, InvalidValueError, UnknownOptionError

PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"
EAGER = "ngram-mod:n_match=2,n_min=1,n_max=6"
SMALL: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "budget": "off"}
HOW: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True, "temperature": 1.0}
ARCHS = ["llama", "gemma3", "qwen35", "mamba2", "falcon-h1", "jamba", "rwkv7"]


@pytest.fixture(scope="module")
def llm(tiny_target_path: Path, tiny_draft_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, draft_model=tiny_draft_path, **SMALL) as made:
        yield made


def singles(llm: Llama, prompt: Any, seeds: list[int], **how: Any) -> list[list[int]]:
    return [llm.generate(prompt, seed=seed, spec=None, **how).tokens for seed in seeds]


def n_decoded(completion: Completion) -> int:
    """Tokens of the prompt that were decoded."""
    return completion.stats.n_prompt - completion.stats.n_reused


@pytest.mark.parametrize("spec", [None, EAGER, "draft-model", "auto"])
def test_each_is_the_single_call_of_its_seed_and_the_prompt_is_decoded_once(llm: Llama, spec: Any):
    many = llm.generate_many(PROMPT, 4, seed=7, spec=spec, **HOW)
    assert [one.seed for one in many] == [7, 8, 9, 10]
    assert [one.tokens for one in many] == singles(llm, PROMPT, [7, 8, 9, 10], **HOW)
    assert len({one.text for one in many}) == 4
    assert [n_decoded(one) for one in many] == [many[0].stats.n_prompt, 1, 1, 1]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("spec", [None, "auto"])
def test_every_memory_goes_back_to_the_prompts_end(arch: str, spec: Any, arch_model: Callable[[str], Path]):
    prompt = [(7 * i + 3) % 100 for i in range(100)]
    with Llama(arch_model(arch), n_ctx=256, n_threads=1, budget="off") as llm:
        many = llm.generate_many(prompt, 3, seed=1, spec=spec, **HOW)
        assert [n_decoded(one) for one in many] == [100, 1, 1]
        assert [one.tokens for one in many] == singles(llm, prompt, [1, 2, 3], **HOW)


def test_attention_is_cut_back_to_the_prompts_end(smollm2_path: Path):
    with Llama(smollm2_path, **SMALL) as llm:
        many = llm.generate_many(PROMPT, 2, seed=1, spec=EAGER, **HOW)
        assert [one.tokens for one in many] == singles(llm, PROMPT, [1, 2], **HOW)
        assert [n_decoded(one) for one in many] == [many[0].stats.n_prompt, 1]


def test_exact_decodes_the_prompt_each_time_in_the_same_steps(tiny_target_path: Path):
    with Llama(tiny_target_path, exact=True, **SMALL) as llm:
        many = llm.generate_many(PROMPT, 2, seed=1, spec=EAGER, **HOW)
        assert [one.tokens for one in many] == singles(llm, PROMPT, [1, 2], **HOW)
        assert [n_decoded(one) for one in many] == [many[0].stats.n_prompt] * 2


def test_without_checkpoints_a_hybrid_decodes_the_prompt_each_time(tiny_target_path: Path):
    with Llama(tiny_target_path, ctx_checkpoints=0, **SMALL) as llm:
        many = llm.generate_many(PROMPT, 2, seed=7, **HOW)
        assert [one.tokens for one in many] == singles(llm, PROMPT, [7, 8], **HOW)
        assert n_decoded(many[1]) == many[1].stats.n_prompt


def test_what_memory_held_before_counts_only_when_asked_for(llm: Llama):
    llm.generate(PROMPT, reuse=True, **HOW)
    assert llm.generate_many(PROMPT, 1, **HOW)[0].stats.n_reused == 0
    reused = llm.generate_many(PROMPT, 2, reuse=True, **HOW)
    assert [n_decoded(one) for one in reused] == [1, 1]


def test_a_drawn_seed_is_told_and_the_objects_own_is_used(llm: Llama, tiny_target_path: Path):
    one, two = llm.generate_many(PROMPT, 2, **HOW)
    assert two.seed == (one.seed + 1) % (2**32 - 1)
    assert singles(llm, PROMPT, [one.seed, two.seed], **HOW) == [one.tokens, two.tokens]
    with Llama(tiny_target_path, seed=40, **SMALL) as seeded:
        assert [one.seed for one in seeded.generate_many(PROMPT, 2, **HOW)] == [40, 41]


def test_the_largest_seed_is_followed_by_the_smallest(llm: Llama):
    assert [one.seed for one in llm.generate_many(PROMPT, 2, seed=2**32 - 2, **HOW)] == [2**32 - 2, 0]


@pytest.mark.parametrize("spec", [None, EAGER])
def test_best_of_returns_the_likeliest_first(llm: Llama, spec: Any):
    every = llm.generate_many(PROMPT, 6, seed=3, spec=None, logprobs=1, **HOW)
    best = llm.generate_many(PROMPT, 2, best_of=6, seed=3, spec=spec, **HOW)
    want = sorted(every, key=lambda completion: completion.mean_logprob, reverse=True)[:2]
    assert [one.seed for one in want] != [3, 4], "the best are not the first"
    assert [(one.seed, one.tokens) for one in best] == [(one.seed, one.tokens) for one in want]
    assert [one.logprobs for one in best] == [None, None], "they were not asked for"
    kept = llm.generate_many(PROMPT, 2, best_of=6, seed=3, spec=spec, logprobs=1, **HOW)
    assert [one.logprobs for one in kept] == [one.logprobs for one in want]


def test_each_may_end_on_its_own(llm: Llama):
    how = HOW | {"ignore_eos": False, "stop": "\n", "max_tokens": 40}
    many = llm.generate_many(PROMPT, 4, seed=2, spec=EAGER, **how)
    assert [one.tokens for one in many] == singles(llm, PROMPT, [2, 3, 4, 5], **how)
    assert len({len(one.tokens) for one in many}) > 1


def test_equal_ones_are_told(llm: Llama, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, logger="pyspec"):
        one, two = llm.generate_many(PROMPT, 2, max_tokens=8)
    assert one.tokens == two.tokens
    assert any("temperature 0" in record.getMessage() for record in caplog.records)


def test_cancelling_and_the_time_are_for_all_together(llm: Llama):
    """The second one is cancelled while it reads the prompt; what follows is empty."""
    n_calls = 0

    def on_progress(n_done: int, n_total: int) -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            llm.cancel()

    many = llm.generate_many(PROMPT, 4, on_progress=on_progress, **HOW)
    assert n_calls == 3
    assert [one.finish_reason for one in many] == ["length", "cancelled", "cancelled", "cancelled"]
    assert [one.tokens for one in many[2:]] == [[], []]
    late = llm.generate_many(PROMPT, 2, timeout_s=0, **HOW)
    assert [(one.finish_reason, one.tokens) for one in late] == [("timeout", []), ("timeout", [])]
    assert llm.generate(PROMPT, **HOW).finish_reason == "length"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"n": 0}, InvalidValueError),
        ({"n": True}, InvalidValueError),
        ({"n": 3, "best_of": 2}, InvalidValueError),
        ({"n": 1, "best_of": 1.5}, InvalidValueError),
        ({"n": 2, "on_text": print}, UnknownOptionError),
        ({"n": 2, "temprature": 1}, UnknownOptionError),
        ({"n": 2, "prompt": [5] * 600}, ContextFullError),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_the_object_usable(llm: Llama, given: dict[str, Any], error: Any):
    with pytest.raises(error):
        llm.generate_many(**({"prompt": PROMPT} | HOW | given))
    assert llm.generate(PROMPT, max_tokens=2, ignore_eos=True).finish_reason == "length"


def test_no_other_generation_comes_between(llm: Llama):
    raised: list[BaseException] = []

    def on_progress(n_done: int, n_total: int) -> None:
        try:
            llm.generate(PROMPT)
        except BusyError as error:
            raised.append(error)

    llm.generate_many(PROMPT, 2, on_progress=on_progress, **HOW)
    assert len(raised) == 3, "the prompt takes two decodes, its end the second time one"
