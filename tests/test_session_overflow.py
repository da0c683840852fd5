"""A conversation longer than its context: refused, or the model sees less of it and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Llama, Session
from pyspec.errors import ContextFullError, InvalidValueError, UnsupportedError
from pyspec.speculators import Suffix
from pyspec.speculators.scripted import Scripted

N_CTX = 256
HOW: dict[str, Any] = {"max_tokens": 30, "ignore_eos": True, "spec": None}


def ids(n: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(1, 100, n).tolist()


@pytest.fixture
def llm(arch_model: Callable[[str], Path]) -> Iterator[Llama]:
    """A random attention model."""
    with Llama(arch_model("llama"), n_ctx=N_CTX, n_threads=1, budget="counts") as made:
        yield made


def whole(session: Session, texts: list[list[int]], outs: list[list[int]]) -> bool:
    return session.tokens == [token for pair in zip(texts, outs, strict=True) for part in pair for token in part]


# ------------------------------------------------------------------ errors, the default


def test_by_default_a_text_that_is_too_long_is_an_error_and_a_full_context_an_end(llm: Llama):
    session = Session(llm)
    out = session.generate(ids(200), max_tokens=100, ignore_eos=True)
    assert (out.finish_reason, len(session)) == ("context", N_CTX + 1)
    with pytest.raises(ContextFullError, match="256"):
        session.generate(ids(10))
    assert len(session) == N_CTX + 1
    assert session.seen == session.tokens


@pytest.mark.parametrize("arch", ["mamba2", "rwkv7", "falcon-h1", "qwen35", "gemma3"])
def test_memory_that_cannot_shift_is_refused_at_once(arch: str, arch_model: Callable[[str], Path]):
    with Llama(arch_model(arch), n_ctx=1024, n_batch=64, n_ubatch=64, n_threads=1) as llm:
        with pytest.raises(UnsupportedError, match="full context"):
            Session(llm, overflow="shift")
        with pytest.raises(UnsupportedError, match="full context"):
            llm.generate([1, 2, 3], n_keep=1)
        assert llm.generate([1, 2, 3], max_tokens=2, ignore_eos=True).tokens


def test_settings_that_cannot_shift_are_refused_at_once(smollm2_path: Path, arch_model: Callable[[str], Path]):
    packed: dict[str, Any] = {"flash_attn": True, "context": {"type_k": "q8_0", "type_v": "q8_0"}}
    for path, options, why in ((smollm2_path, packed, "type_k"), (arch_model("llama"), {"exact": True}, "exact")):
        with (
            Llama(path, n_ctx=N_CTX, n_threads=1, **options) as llm,
            pytest.raises(UnsupportedError, match=why),
        ):
            Session(llm, overflow="shift")


@pytest.mark.parametrize(
    "options",
    [{"overflow": "wrap"}, {"overflow": None}, {"n_keep": -1}, {"n_keep": N_CTX // 2 + 1}, {"n_keep": 1.5}],
)
def test_what_cannot_be_is_refused_by_name(llm: Llama, options: dict[str, Any]):
    with pytest.raises(InvalidValueError, match=next(iter(options))):
        Session(llm, **options)


# ------------------------------------------------------------------ shifting


def test_a_conversation_goes_on_beyond_its_context(llm: Llama):
    session = Session(llm, overflow="shift", n_keep=5)
    texts = [ids(40, seed) for seed in range(12)]
    outs = [session.generate(text, **HOW).tokens for text in texts]
    assert len(session) == 12 * 70 > 3 * N_CTX
    assert whole(session, texts, outs)
    assert len(session.seen) <= N_CTX + 1
    assert session.seen[:5] == session.tokens[:5]
    assert session.seen[5:] == session.tokens[-len(session.seen[5:]) :]
    assert sum(turn.n_dropped for turn in session.turns) == len(session) - len(session.seen)


def test_a_turn_that_drops_old_text_decodes_only_what_is_new(llm: Llama):
    session = Session(llm, overflow="shift")
    for seed in range(12):
        before = len(session)
        session.generate(ids(40, seed), **HOW)
        turn = session.turns[-1]
        assert turn.n_decoded <= turn.n_prompt - before + 1
    assert any(turn.n_dropped for turn in session.turns)


def test_a_generation_goes_on_beyond_its_context(llm: Llama):
    session = Session(llm, overflow="shift", n_keep=3)
    out = session.generate(ids(50), max_tokens=900, ignore_eos=True, spec=None)
    assert (out.finish_reason, len(out.tokens)) == ("length", 900)
    assert out.stats.n_dropped == session.turns[0].n_dropped == len(session) - len(session.seen) > 2 * N_CTX
    assert out.stats.n_decodes <= 900 + 2, "nothing is decoded again"


def test_memory_is_the_old_one_moved_up(llm: Llama):
    """Bit for bit what `seq_rm` and `seq_add` make of the same decodes."""
    session = Session(llm, overflow="shift", n_keep=4)
    session.generate(ids(200), **HOW)
    before = session.tokens
    session.generate(ids(40, 2), max_tokens=1, ignore_eos=True, spec=None)
    turn = session.turns[-1]
    assert turn.n_dropped == (200 + 30 + 40 - 4) // 2
    logits = next_logits(llm)
    memory = llm._decoder.memory
    memory.clear()
    memory.decode(before[:200][:-1], 0)
    for token in before[199:229]:
        memory.decode([token], 1)
    memory.shift(4, turn.n_dropped)
    memory.decode([before[-1], *ids(40, 2)][:-1], 0)
    memory.decode(ids(40, 2)[-1:], 1)
    assert np.array_equal(logits, next_logits(llm))


def next_logits(llm: Llama) -> np.ndarray:
    memory = llm._decoder.memory
    memory.commit()
    memory.decode([7], 1)
    return llm.context.logits(0, 1)[0]


def test_drafts_change_neither_the_text_nor_the_place_of_a_shift(arch_model: Callable[[str], Path]):
    outs = []
    with Llama(arch_model("llama"), n_ctx=N_CTX, n_threads=1, budget="off") as llm:
        for spec in (None, "suffix"):
            session = Session(llm, overflow="shift", spec=spec)
            outs.append(session.generate(ids(20), max_tokens=450, ignore_eos=True))
    plain, fast = outs
    assert fast.stats.n_accepted > 50
    assert plain.stats.n_dropped == fast.stats.n_dropped > 100
    assert fast.tokens == plain.tokens


def test_speculators_are_told_the_shorter_text(llm: Llama):
    session = Session(llm, overflow="shift", n_keep=4)
    told = Scripted(lambda history, n_max: [])
    out = session.generate(ids(200), max_tokens=100, ignore_eos=True, spec=told)
    assert len(told.prompts) == 2
    n_dropped = session.turns[0].n_dropped
    text, at = ids(200) + out.tokens, N_CTX + 1
    assert told.prompts[1] == text[:4] + text[4 + n_dropped : at]


def test_speculators_draft_on_after_a_shift(arch_model: Callable[[str], Path]):
    with Llama(arch_model("llama"), n_ctx=N_CTX, n_threads=1, budget="off") as llm:
        session = Session(llm, overflow="shift")
        out = session.generate(ids(20), max_tokens=400, ignore_eos=True, spec=Suffix())
        at = next(i for i, r in enumerate(out.stats.rounds) if sum(x.n_emitted for x in out.stats.rounds[:i]) > 300)
        assert sum(r.n_accepted for r in out.stats.rounds[at:]) > 20


@pytest.mark.parametrize("rollback", ["fork", "checkpoint-host"])
def test_every_rollback_goes_on(arch_model: Callable[[str], Path], rollback: str):
    wrong = Scripted(lambda history, n_max: [5, 6, 7][:n_max])
    with Llama(arch_model("llama"), n_ctx=N_CTX, n_threads=1, rollback=rollback, budget="off") as llm:
        session = Session(llm, overflow="shift")
        out = session.generate(ids(200), max_tokens=400, ignore_eos=True, spec=wrong)
        assert len(out.tokens) == 400
        assert out.stats.n_rollbacks > 50
        memory = llm._decoder.memory
        assert llm.context.seq_pos_max(memory.rollback.seq_id) + 1 == memory.n_past


def test_what_is_new_is_never_dropped(llm: Llama):
    session = Session(llm, overflow="shift", n_keep=4)
    session.generate(ids(100), **HOW)
    before = session.tokens
    session.append(ids(100, 2))
    with pytest.raises(ContextFullError, match="256"):
        session.generate(ids(160, 3), **HOW)
    assert session.tokens == before + ids(100, 2)
    session.generate(ids(150, 3), max_tokens=1, ignore_eos=True, spec=None)
    new = ids(100, 2) + ids(150, 3)
    assert session.seen[-1 - len(new) : -1] == new
    assert session.turns[-1].n_dropped == 130 - 4, "all of the turn before"


def test_the_first_text_must_fit(llm: Llama):
    session = Session(llm, overflow="shift")
    with pytest.raises(ContextFullError):
        session.generate(ids(N_CTX))
    assert session.generate(ids(N_CTX - 1), **HOW).tokens


def test_text_taken_back_is_seen_again(llm: Llama):
    session = Session(llm, overflow="shift", n_keep=4)
    for seed in range(5):
        session.generate(ids(40, seed), **HOW)
    assert len(session.seen) < len(session)
    while session.turns:
        session.undo()
        assert len(session.seen) <= N_CTX + 1
        assert session.seen[:4] == session.tokens[:4]
        if len(session) <= N_CTX // 2:
            assert session.seen == session.tokens
    session.generate(ids(40), **HOW)


def test_a_branch_sees_what_the_session_sees(llm: Llama):
    session = Session(llm, overflow="shift")
    for seed in range(5):
        session.generate(ids(40, seed), **HOW)
    branch = session.branch()
    assert (branch.seen, branch.overflow, branch.n_keep) == (session.seen, "shift", session.n_keep)
    a, b = session.generate(ids(9), **HOW), branch.generate(ids(9), **HOW)
    assert a.prompt_tokens == b.prompt_tokens


def test_a_turn_that_fails_leaves_what_is_seen(llm: Llama):
    session = Session(llm, overflow="shift")
    for seed in range(3):
        session.generate(ids(40, seed), **HOW)
    before, seen = session.tokens, session.seen
    stream = session.stream(ids(100, 8), max_tokens=200, ignore_eos=True)
    next(stream)
    stream.close()
    assert (session.tokens, session.seen) == (before, seen)
    session.generate(ids(100, 8), **HOW)
    assert session.tokens[: len(before)] == before


def test_a_loaded_session_sees_what_the_saved_one_did(llm: Llama, tmp_path: Path, arch_model: Callable[[str], Path]):
    session = Session(llm, overflow="shift", n_keep=7, spec=None)
    for seed in range(6):
        session.generate(ids(40, seed), **HOW)
    session.save(tmp_path / "long.session")
    assert len(session) > N_CTX
    expected = session.generate(ids(9), **HOW)
    with Llama(arch_model("llama"), n_ctx=N_CTX, n_threads=1) as other:
        loaded = Session.load(tmp_path / "long.session", other)
        assert loaded.tokens == session.tokens[: len(loaded)]
        assert (loaded.overflow, loaded.n_keep) == ("shift", 7)
        again = loaded.generate(ids(9), **HOW)
        assert again.tokens == expected.tokens
        assert loaded.turns[-1] == session.turns[-1]
        assert loaded.seen == session.seen


def test_a_shifting_session_comes_to_a_shorter_context(arch_model: Callable[[str], Path], tmp_path: Path):
    with Llama(arch_model("llama"), n_ctx=2 * N_CTX, n_threads=1) as long:
        session = Session(long, overflow="shift")
        session.generate(ids(400), **HOW)
        session.save(tmp_path / "long.session")
    with Llama(arch_model("llama"), n_ctx=N_CTX, n_threads=1) as short:
        loaded = Session.load(tmp_path / "long.session", short)
        loaded.generate(ids(20), **HOW)
        assert len(loaded.seen) <= N_CTX + 1
        assert loaded.tokens[:430] == session.tokens


def test_a_sliding_window_as_long_as_the_context_goes_on(arch_model: Callable[[str], Path]):
    """Its window is in memory whole, so it can be moved; the text is that of a memory which keeps everything."""
    outs = []
    for context in ({}, {"swa_full": True}):
        with Llama(arch_model("gemma3"), n_ctx=N_CTX, n_threads=1, context=context) as llm:
            out = Session(llm, overflow="shift").generate(ids(100), max_tokens=500, ignore_eos=True, spec=None)
            assert out.stats.n_dropped > N_CTX
            outs.append(out.tokens)
    assert outs[0] == outs[1]
