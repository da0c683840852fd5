"""Requests with a common beginning decode it once, and say what they would have said."""

from __future__ import annotations

import numpy as np
import pytest
from engine_rig import KINDS

from pyspec import Engine, Llama

SETTINGS = {"n_ctx": 256, "n_threads": 1, "budget": "off"}
N_COMMON = 100


@pytest.fixture(scope="module")
def family(model_of):
    """Prompts that begin alike, with what plain decoding says to each."""
    known: dict[str, tuple[list[list[int]], list[list[int]]]] = {}

    def of(kind: str) -> tuple[list[list[int]], list[list[int]]]:
        if kind not in known:
            rng = np.random.default_rng(9)
            with Engine(model_of(kind), n_parallel=1, spec="none", share_prefix=False, **SETTINGS) as engine:
                n_vocab = engine.model.vocab.n_tokens
                common = rng.integers(1, n_vocab, N_COMMON).tolist()
                prompts = [common + rng.integers(1, n_vocab, 70 + i).tolist() for i in range(6)]
                answers = [engine.generate(p, max_tokens=8, ignore_eos=True).tokens for p in prompts]
            known[kind] = prompts, answers
        return known[kind]

    return of


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tiny"])
def test_a_common_beginning_is_decoded_once(kind: str, model_of, family) -> None:
    prompts, answers = family(kind)
    with Engine(model_of(kind), n_parallel=3, **SETTINGS) as engine:
        tickets = [engine.submit(p, max_tokens=8, ignore_eos=True) for p in prompts]
        done = [ticket.result(60) for ticket in tickets]
        stats = engine.stats
    assert [one.tokens for one in done] == answers
    if kind == "deepseek4":  # llama.cpp cannot copy its sequences
        return
    # recurrent memory can only go back to checkpoints: the first request may be past the common end before others come
    n_first = 1 if kind in ("llama", "gemma3", "cogvlm") else 2
    assert sum(one.stats.n_reused >= N_COMMON for one in done) >= 6 - n_first
    assert stats.n_reused == sum(one.stats.n_reused for one in done)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("tiny", "deepseek4")])
def test_the_same_prompt_again_decodes_its_last_token_alone(kind: str, model_of, family) -> None:
    prompts, answers = family(kind)
    with Engine(model_of(kind), n_parallel=3, **SETTINGS) as engine:
        done = [engine.generate(prompts[0], max_tokens=8, ignore_eos=True) for _ in range(3)]
    assert [one.tokens for one in done] == [answers[0]] * 3
    assert [one.stats.n_reused for one in done] == [0, len(prompts[0]) - 1, len(prompts[0]) - 1]


@pytest.mark.parametrize("n_parallel", [1, 3])
@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba2", "lfm2"])
def test_nothing_of_another_request_is_used_when_sharing_is_off(kind: str, n_parallel: int, model_of, family) -> None:
    prompts, answers = family(kind)
    with Engine(model_of(kind), n_parallel=n_parallel, share_prefix=False, **SETTINGS) as engine:
        done = list(engine.map([*prompts, *prompts], max_tokens=8, ignore_eos=True))
        context, slots = engine._sequences.context, engine._worker._scheduler.slots
        assert [context.seq_pos_max(i) for i in range(context.n_seq_max)] == [-1] * context.n_seq_max
        assert [slot.decoder.checkpoints.positions for slot in slots] == [[]] * n_parallel
        assert engine.stats.n_reused == 0
    assert [one.tokens for one in done] == answers * 2
    assert [one.stats.n_reused for one in done] == [0] * 12


def test_a_conversation_goes_on_in_the_memory_of_its_last_turn(tiny_target_path) -> None:
    with Engine(tiny_target_path, n_parallel=2, n_ctx=512, n_threads=1, spec="none") as engine:
        text = list(range(40, 200))
        first = engine.generate(text, max_tokens=20, ignore_eos=True)
        text += [*first.tokens, 7, 8, 9]
        second = engine.generate(text, max_tokens=20, ignore_eos=True)
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, spec=None) as llm:
        llm.generate(text[:160], max_tokens=20, ignore_eos=True, reuse=True)
        expected = llm.generate(text, max_tokens=20, ignore_eos=True, reuse=True)
    assert second.stats.n_reused == expected.stats.n_reused >= 178
    assert second.tokens == expected.tokens
