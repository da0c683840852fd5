"""Where states of a text are kept on memory that cannot be cut back, and that going back to them is going back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Llama, Session
from pyspec.checkpoints import NEAR, CheckpointOptions
from pyspec.errors import AbortedError, InvalidValueError, UnknownOptionError

HOW: dict[str, Any] = {"max_tokens": 8, "ignore_eos": True}
SAME = 2e-5
"""Widths of decodes make relative differences of 1e-6 at most; a stale state of these models makes 5e-5 to 0.1."""
RECURRENT = ["falcon-h1", "mamba2", "rwkv7", "qwen35", "jamba"]


@pytest.fixture
def llm(tiny_target_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, n_ctx=2048, n_threads=1, budget="counts") as made:
        yield made


def ids(n: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(1, 100, n).tolist()


def positions(llm: Llama) -> list[int]:
    return llm._decoder.checkpoints.positions


def test_a_stop_text_of_several_tokens_costs_64_tokens_at_most(llm: Llama):
    text = "def area(width, height):\n"
    for seed in range(2, 12):  # until one ends in what it said nowhere before
        free = llm.generate(text, max_tokens=220, ignore_eos=True, temperature=1.0, seed=seed, spec=None).text
        stop = next((s for n in range(14, 60) if free.find(s := free[-n:]) == len(free) - n), "")
        if stop:
            break
    session = Session(llm, temperature=1.0, seed=seed, spec=None)
    one = session.generate(text, max_tokens=300, ignore_eos=True, stop=[stop])
    assert one.finish_reason == "stop"
    assert len(one.tokens) > 2 * NEAR
    beyond = llm._decoder.memory.n_past - len(session)
    assert beyond > 0, "memory holds tokens of the stop text"
    before = len(session)
    session.generate("pass\n", **HOW)
    turn = session.turns[-1]
    assert turn.n_decoded <= turn.n_prompt - before + NEAR + 1
    assert (
        llm.generate(session.tokens[: turn.n_prompt], temperature=1.0, seed=seed, spec=None, **HOW).tokens
        == (session.tokens[turn.n_prompt :])
    )


def test_an_end_of_a_prompt_that_changes_costs_64_tokens_at_most(llm: Llama):
    session = Session(llm)
    session.generate(ids(500), **HOW)
    session.truncate(500 - NEAR + 10)
    session.generate(ids(20, 2), **HOW)
    assert session.turns[-1].n_decoded <= NEAR + 20


def test_a_long_answer_has_states_on_the_way(tiny_target_path: Path):
    with Llama(tiny_target_path, n_ctx=1024, n_threads=1, ctx_checkpoint_spacing=32, budget="counts") as llm:
        session = Session(llm)
        session.generate(ids(50), max_tokens=300, ignore_eos=True)
        session.truncate(250)
        session.generate(ids(5, 2), **HOW)
        assert session.turns[-1].n_decoded <= 5 + 32 + 48, "spacing, and the widest round"


def test_without_a_stop_text_nothing_is_kept_near_the_end(llm: Llama):
    Session(llm).generate(ids(20), max_tokens=200, ignore_eos=True)
    assert positions(llm) == [19]


def test_at_most_two_states_follow_the_end(llm: Llama):
    Session(llm).generate(ids(20), max_tokens=400, ignore_eos=True, stop=["\0never"], spec=None)
    assert len(positions(llm)) == 3
    first, *near = positions(llm)
    assert first == 19
    assert np.diff(near).tolist() == [NEAR]
    assert llm._decoder.memory.n_past - near[-1] < NEAR


@pytest.mark.parametrize("arch", RECURRENT)
@pytest.mark.parametrize("spec", [None, "auto"])
def test_going_back_is_as_if_the_rest_had_never_been(arch: str, spec: str | None, arch_model: Callable[[str], Path]):
    """Random models with a strong memory of everything: any stale state would say something else."""
    with Llama(arch_model(arch), n_ctx=1024, n_threads=1, budget="counts", ctx_checkpoint_spacing=40) as llm:
        session = Session(llm, spec=spec)
        session.generate(ids(150), max_tokens=100, ignore_eos=True, stop=["\0"] if llm.model.vocab.has_text else None)
        whole = session.tokens
        for keep in (200, 149, 120, 45):
            session.truncate(0)
            session.generate(whole, **HOW)
            session.truncate(keep)
            session.generate(ids(7, keep), **HOW)
            assert session.turns[-1].n_decoded <= 40 + 7 + (48 if spec else 1), "spacing, and the widest round"
            assert difference(llm) < SAME


def difference(llm: Llama) -> float:
    """Largest difference between the next logits from memory and from a fresh decode of the same tokens, relative."""
    memory = llm._decoder.memory
    held = llm._decoder.history.view()[: memory.n_past].copy()
    rows = []
    for again in (False, True):
        if again:
            memory.clear()
            for start in range(0, len(held), llm.context.n_batch):
                memory.decode(held[start : start + llm.context.n_batch], 0)
        memory.commit()
        memory.decode([7], 1)
        rows.append(llm.context.logits(memory.first_row, 1)[0])
    memory.clear()
    return float(np.abs(rows[0] - rows[1]).max() / np.abs(rows[1]).max())


@pytest.mark.parametrize("n_states", [1, 2, 3])
def test_states_keep_to_their_bytes_and_the_newest_stay(tiny_target_path: Path, n_states: int):
    with Llama(tiny_target_path, n_ctx=512, n_threads=1) as llm:
        n_bytes = llm.capabilities.state_bytes
    limit = n_bytes * n_states + n_bytes // 2
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, ctx_checkpoint_bytes=limit) as llm:
        session = Session(llm)
        for _ in range(4):
            session.generate(ids(20), **HOW)
        kept = llm._decoder.checkpoints
        assert len(kept.positions) == n_states
        assert kept.nbytes <= limit
        assert kept.positions[-1] == session.turns[-1].n_prompt - 1


def test_a_budget_too_small_for_one_state_keeps_none_and_says_so(
    tiny_target_path: Path, caplog: pytest.LogCaptureFixture
):
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, ctx_checkpoint_bytes=100) as llm:
        session = Session(llm)
        session.generate(ids(20), **HOW)
        assert positions(llm) == []
        assert "ctx_checkpoint_bytes=100" in caplog.text


def test_states_of_a_text_that_memory_lost_are_forgotten(arch_model: Callable[[str], Path]):
    """An aborted decode empties memory; a state of the text before it must not come back under another text."""
    with Llama(arch_model("rwkv7"), n_ctx=512, n_threads=1, spec=None, ctx_checkpoint_spacing=32) as llm:
        session = Session(llm)
        session.generate(ids(100), **HOW)
        assert 32 in positions(llm)
        llm.context.abort()
        with pytest.raises(AbortedError):
            session.generate(ids(3), **HOW)
        assert llm._decoder.memory.n_past == 0
        other = Session(llm)
        other.generate(ids(100, 2), **HOW)
        other.truncate(34)
        other.generate([5], max_tokens=1, ignore_eos=True)
        assert difference(llm) < SAME


def test_states_of_another_text_do_not_outlive_a_cut_to_nothing(arch_model: Callable[[str], Path]):
    """A small batch makes a small window, which passes; then only the states can bring back what it held."""
    sizes: dict[str, Any] = {
        "n_ctx": 512,
        "n_batch": 32,
        "n_ubatch": 32,
        "ctx_checkpoint_spacing": 16,
        "ctx_checkpoints": 64,
    }
    with Llama(arch_model("gemma3"), n_threads=1, spec=None, **sizes) as llm:
        Session(llm).generate(ids(400), **HOW)
        other = Session(llm)
        other.generate(ids(400, 2), **HOW)
        other.truncate(60)
        assert 48 in positions(llm)
        other.generate([5], max_tokens=1, ignore_eos=True)
        assert other.turns[-1].n_decoded == 13
        assert difference(llm) < SAME


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ctx_checkpoint_bytes", -1),
        ("ctx_checkpoint_bytes", 1.5),
        ("ctx_checkpoint_spacing", 0),
        ("ctx_checkpoints", -1),
    ],
)
def test_numbers_that_cannot_be_are_refused(tiny_target_path: Path, name: str, value: Any):
    with pytest.raises(InvalidValueError, match=name):
        Llama(tiny_target_path, **{name: value})


def test_a_misspelt_option_names_the_nearest(tiny_target_path: Path):
    with pytest.raises(UnknownOptionError, match="ctx_checkpoint_spacing"):
        Llama(tiny_target_path, ctx_checkpoint_space=3)


@pytest.mark.parametrize("options", [{"n_max": -1}, {"max_bytes": -1}, {"spacing": 0}])
def test_options_have_ranges(options: dict[str, int]):
    with pytest.raises(InvalidValueError, match=next(iter(options))):
        CheckpointOptions(**options)
