"""Conversations: what is decoded again and what is not, edits, branches, and files that come back whole or not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Completion, Llama, Session
from pyspec.constraint import Choice
from pyspec.errors import BusyError, ContextFullError, InvalidValueError, StateError, UnknownOptionError
from pyspec.session.file import read_session, write_session

FIRST = "def area(width, height):\n    return width * height\n\n"
SECOND = "# the same function again:\n"
HOW: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True}
ARCHS = ["falcon-h1", "mamba2", "rwkv7", "qwen35", "jamba", "gemma3", "llama"]


@pytest.fixture
def llm(tiny_target_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, n_ctx=2048, n_threads=1, budget="counts") as made:
        yield made


def fresh(llm: Llama, tokens: list[int], n: int = 12) -> list[int]:
    return llm.generate(tokens, max_tokens=n, ignore_eos=True, spec=None).tokens


# ------------------------------------------------------------------ turns


def test_a_turn_decodes_only_what_is_new(llm: Llama):
    session = Session(llm)
    session.generate(FIRST, **HOW)
    before = len(session)
    session.generate(SECOND, **HOW)
    first, second = session.turns
    assert (first.start, first.n_decoded) == (0, first.n_prompt)
    n_new = second.n_prompt - before
    assert 0 < n_new <= second.n_decoded <= n_new + 1, "the last generated token was not in memory yet"
    assert second.n_prompt + second.n_generated == len(session)


def test_the_text_is_that_of_the_whole_prompt(llm: Llama):
    session = Session(llm)
    one = session.generate(FIRST, **HOW)
    prompt = session.tokens
    assert prompt == one.prompt_tokens + one.tokens
    two = session.generate(SECOND, **HOW)
    assert fresh(llm, two.prompt_tokens) == two.tokens
    assert session.text.endswith(two.text)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("spec", [None, "auto"])
def test_every_memory_goes_on_from_the_last_turn(arch: str, spec: str | None, arch_model: Callable[[str], Path]):
    with Llama(arch_model(arch), n_ctx=512, n_threads=1, budget="counts", spec=spec) as llm:
        session = Session(llm, temperature=1.0, seed=5)
        rng = np.random.default_rng(1)
        for n in (40, 17, 1, 30):
            session.generate(rng.integers(1, 100, n).tolist(), **HOW)
            turn = session.turns[-1]
            if turn.start:
                assert turn.n_decoded <= n + 6, "new tokens, and those that rode in front of the last draft"


@pytest.mark.parametrize("model", ["tiny_target_path", "smollm2_path"])
def test_a_second_turn_on_a_long_text_decodes_at_most_64_tokens_more(model: str, request: pytest.FixtureRequest):
    with Llama(request.getfixturevalue(model), n_ctx=2048, n_threads=1) as llm:
        session = Session(llm)
        words = llm.tokenize(FIRST * 120)[:1500]
        session.generate(words, max_tokens=8, ignore_eos=True)
        before = len(session)
        session.generate(SECOND, max_tokens=4, ignore_eos=True)
        turn = session.turns[-1]
        assert turn.n_decoded <= turn.n_prompt - before + 64


def test_a_sliding_window_that_has_passed_goes_on(gemma3_path: Path):
    with Llama(gemma3_path, n_ctx=2048, n_threads=1) as llm:
        session = Session(llm)
        session.generate(llm.tokenize(FIRST * 80)[:700], max_tokens=4, ignore_eos=True)
        session.generate(SECOND, max_tokens=4, ignore_eos=True)
        assert session.turns[-1].n_decoded < 40


def test_the_same_prompt_again_decodes_one_token(llm: Llama):
    session = Session(llm)
    one = session.generate(FIRST, **HOW)
    session.truncate(session.turns[0].n_prompt)
    two = session.generate("", **HOW)
    assert session.turns[-1].n_decoded == 1
    assert two.tokens == one.tokens


def test_an_edited_turn_goes_back_to_where_the_text_was_the_same(llm: Llama):
    session = Session(llm)
    session.generate(FIRST, **HOW)
    end = len(session)
    session.generate("# one thing\n", **HOW)
    undone = session.undo()
    assert len(session) == end == undone.start
    other = session.generate("# another thing\n", **HOW)
    turn = session.turns[-1]
    assert turn.n_decoded <= turn.n_prompt - end + 2, "the checkpoint at the turn's beginning"
    assert fresh(llm, other.prompt_tokens) == other.tokens


def test_without_checkpoints_a_hybrid_decodes_the_whole_text_again(tiny_target_path: Path):
    with Llama(tiny_target_path, n_ctx=1024, n_threads=1, ctx_checkpoints=0) as llm:
        session = Session(llm)
        session.generate(FIRST, **HOW)
        session.generate("# one thing\n", **HOW)
        session.undo()
        other = session.generate("# another thing\n", **HOW)
        assert session.turns[-1].n_decoded == session.turns[-1].n_prompt
        assert fresh(llm, other.prompt_tokens) == other.tokens


def test_branches_share_a_model_and_not_a_text(llm: Llama):
    session = Session(llm)
    session.generate(FIRST, **HOW)
    branch = session.branch()
    a = session.generate("# a\n", **HOW)
    b = branch.generate("# b\n", **HOW)
    c = session.generate("# c\n", **HOW)
    assert session.tokens[: len(a.prompt_tokens)] == a.prompt_tokens
    assert branch.tokens == b.prompt_tokens + b.tokens
    assert [fresh(llm, x.prompt_tokens) for x in (a, b, c)] == [a.tokens, b.tokens, c.tokens]


def test_a_generation_outside_of_the_session_costs_time_and_changes_nothing(llm: Llama):
    session = Session(llm)
    session.generate(FIRST, **HOW)
    llm.generate("something else\n", max_tokens=3)
    two = session.generate(SECOND, **HOW)
    assert session.turns[-1].n_decoded == session.turns[-1].n_prompt
    assert fresh(llm, two.prompt_tokens) == two.tokens


def test_a_stop_text_leaves_the_session_at_what_the_user_got(llm: Llama):
    session = Session(llm)
    one = session.generate(FIRST, max_tokens=40, stop=["return"])
    assert session.tokens == one.prompt_tokens + one.tokens
    two = session.generate("pass\n", **HOW)
    assert fresh(llm, two.prompt_tokens) == two.tokens


def test_checkpoints_keep_to_their_number(tiny_target_path: Path):
    with Llama(tiny_target_path, n_ctx=1024, n_threads=1, ctx_checkpoints=3) as llm:
        session = Session(llm)
        for _ in range(6):
            session.generate("x = 1\n", max_tokens=4, ignore_eos=True)
        kept = llm._decoder.checkpoints
        assert len(kept.positions) == 3
        assert kept.positions == sorted(kept.positions)
        assert kept.nbytes >= 3 * 1000


def test_attention_keeps_none(smollm2_path: Path):
    with Llama(smollm2_path, n_ctx=512, n_threads=1) as llm:
        session = Session(llm)
        session.generate("one two", max_tokens=2)
        session.generate(" three", max_tokens=2)
        assert llm._decoder.checkpoints.positions == []


def test_exact_decodes_everything_in_the_same_steps(tiny_target_path: Path):
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, exact=True) as llm:
        session = Session(llm)
        session.generate(FIRST, **HOW)
        session.generate(SECOND, **HOW)
        assert session.turns[-1].n_decoded == session.turns[-1].n_prompt


# ------------------------------------------------------------------ mistakes


def test_what_fails_leaves_the_session_as_it_was(llm: Llama):
    session = Session(llm)
    session.generate(FIRST, **HOW)
    before = session.tokens
    with pytest.raises(UnknownOptionError):
        session.generate("more", temprature=1)
    with pytest.raises(ContextFullError):
        session.generate([5] * 3000)
    stream = session.stream("more", **HOW)
    next(stream)
    stream.close()
    assert session.tokens == before
    assert len(session.turns) == 1
    two = session.generate(SECOND, **HOW)
    assert fresh(llm, two.prompt_tokens) == two.tokens


def test_an_empty_session_has_nothing_to_go_on_from(llm: Llama):
    session = Session(llm)
    with pytest.raises(InvalidValueError, match="empty"):
        session.generate("")
    with pytest.raises(InvalidValueError, match="turn"):
        session.undo()


@pytest.mark.parametrize("n", [-1, 10_000, 1.5, True, None])
def test_a_length_that_is_none_is_refused(llm: Llama, n: Any):
    session = Session(llm)
    session.append(FIRST)
    with pytest.raises(InvalidValueError, match="n_tokens"):
        session.truncate(n)


def test_truncating_takes_turns_back(llm: Llama):
    session = Session(llm)
    session.generate(FIRST, **HOW)
    session.generate(SECOND, **HOW)
    session.truncate(session.turns[0].n_prompt + 1)
    assert session.turns == []
    assert session.generate("", **HOW).tokens


def test_a_turn_is_kept_once_its_completion_is_there(llm: Llama):
    session = Session(llm)
    for piece in session.stream(FIRST, **HOW):
        if isinstance(piece, Completion):
            break
    assert len(session.turns) == 1
    assert session.tokens == piece.prompt_tokens + piece.tokens
    session.generate(SECOND, **HOW)
    assert [turn.start for turn in session.turns] == [0, session.turns[0].n_prompt + session.turns[0].n_generated]


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.append("x"),
        lambda s: s.truncate(1),
        lambda s: s.undo(),
        lambda s: s.generate("x"),
        lambda s: next(s.stream("x")),
    ],
)
def test_the_text_of_an_open_stream_cannot_be_changed(llm: Llama, change: Callable[[Session], object]):
    session = Session(llm)
    session.generate(FIRST, **HOW)
    stream = session.stream(SECOND, **HOW)
    next(stream)
    with pytest.raises(BusyError, match="session"):
        change(session)
    list(stream)
    assert len(session.turns) == 2
    session.append("x")


def test_a_stream_left_at_its_completion_does_not_open_a_later_ones_text(llm: Llama):
    session = Session(llm)
    old = session.stream(FIRST, **HOW)
    for piece in old:
        if isinstance(piece, Completion):
            break
    new = session.stream(SECOND, **HOW)
    next(new)
    old.close()
    with pytest.raises(BusyError, match="session"):
        session.append("lost")
    list(new)
    session.append("kept")
    assert session.text.endswith("kept")


def test_undo_under_an_open_first_stream_is_refused(llm: Llama):
    session = Session(llm)
    stream = session.stream(FIRST, **HOW)
    next(stream)
    with pytest.raises(BusyError, match="session"):
        session.undo()


@pytest.mark.parametrize("wrong", [None, "model.gguf"])
def test_only_a_llama_carries_a_session(wrong: Any):
    with pytest.raises(InvalidValueError, match="llm"):
        Session(wrong)


def test_a_misspelt_default_is_refused_at_once(llm: Llama):
    with pytest.raises(UnknownOptionError, match="temperature"):
        Session(llm, temprature=1)


def test_text_is_told_as_it_comes(llm: Llama):
    pieces: list[str] = []
    out = Session(llm).generate(FIRST, on_text=pieces.append, **HOW)
    assert "".join(pieces) == out.text


@pytest.mark.parametrize("name", ["reuse", "prompt"])
def test_what_the_session_decides_itself_is_no_option(llm: Llama, name: str):
    with pytest.raises(UnknownOptionError, match=name):
        Session(llm).generate("x", **{name: True})
    with pytest.raises(UnknownOptionError, match=name):
        Session(llm, **{name: True})


@pytest.mark.parametrize("text", [None, 5, b"bytes", iter([1])])
def test_what_is_no_text_is_refused(llm: Llama, text: Any):
    session = Session(llm)
    with pytest.raises(InvalidValueError, match="text"):
        session.append(text)
    with pytest.raises(InvalidValueError, match="text"):
        session.generate(text)


# ------------------------------------------------------------------ files


@pytest.fixture
def saved(llm: Llama, tmp_path: Path) -> Path:
    session = Session(llm, temperature=0.7, seed=3)
    session.generate(FIRST, **HOW)
    session.generate(SECOND, **HOW)
    session.save(tmp_path / "talk.session")
    return tmp_path / "talk.session"


def test_a_loaded_session_goes_on_as_the_saved_one_would(llm: Llama, tiny_target_path: Path, tmp_path: Path):
    session = Session(llm, temperature=0.7, seed=3)
    session.generate(FIRST, **HOW)
    path = tmp_path / "talk.session"
    assert session.save(path) == path.stat().st_size
    expected = session.generate(SECOND, **HOW)
    with Llama(tiny_target_path, n_ctx=2048, n_threads=1, budget="counts") as other:
        loaded = Session.load(path, other)
        assert loaded.turns == session.turns[:1]
        assert loaded.defaults == {"temperature": 0.7, "seed": 3}
        again = loaded.generate(SECOND, **HOW)
    assert again.tokens == expected.tokens
    assert loaded.turns[-1].n_decoded == session.turns[-1].n_decoded < 30


def test_checkpoints_come_back_too(llm: Llama, saved: Path, tiny_target_path: Path):
    with Llama(tiny_target_path, n_ctx=2048, n_threads=1) as other:
        loaded = Session.load(saved, other)
        undone = loaded.undo()
        loaded.generate("# something else\n", **HOW)
        turn = loaded.turns[-1]
        assert turn.n_decoded <= turn.n_prompt - undone.start + 2


def test_a_session_whose_memory_is_gone_is_saved_as_text(llm: Llama, tmp_path: Path):
    session = Session(llm)
    one = session.generate(FIRST, **HOW)
    llm.generate("something else", max_tokens=2)
    session.save(tmp_path / "talk.session")
    loaded = Session.load(tmp_path / "talk.session", llm)
    assert loaded.tokens == session.tokens
    two = loaded.generate(SECOND, **HOW)
    assert loaded.turns[-1].n_decoded == loaded.turns[-1].n_prompt
    assert two.prompt_tokens[: len(one.prompt_tokens)] == one.prompt_tokens


def test_every_damaged_byte_is_noticed(llm: Llama, saved: Path):
    raw = saved.read_bytes()
    before = llm.generate("x", max_tokens=2).tokens
    places = {0, 8, 16, 20, 24, len(raw) // 2, len(raw) - 1, *range(30, len(raw), len(raw) // 40)}
    for at in sorted(places):
        damaged = bytearray(raw)
        damaged[at] ^= 0x40
        saved.write_bytes(damaged)
        with pytest.raises(StateError, match=r"talk\.session"):
            Session.load(saved, llm)
    assert llm.generate("x", max_tokens=2).tokens == before


@pytest.mark.parametrize("n", [0, 1, 15, 16, 23, 24, 40, -1, -33, -1000])
def test_a_cut_file_is_noticed(llm: Llama, saved: Path, n: int):
    raw = saved.read_bytes()
    saved.write_bytes(raw[:n])
    with pytest.raises(StateError, match=r"talk\.session"):
        Session.load(saved, llm)


def test_a_session_of_another_model_is_refused_by_name(saved: Path, tiny_draft_path: Path):
    with Llama(tiny_draft_path, n_ctx=512, n_threads=1) as other, pytest.raises(StateError, match="another model"):
        Session.load(saved, other)


def test_a_shorter_context_is_refused_with_the_numbers(llm: Llama, tmp_path: Path, tiny_target_path: Path):
    session = Session(llm)
    session.generate([5] * 600, max_tokens=2, ignore_eos=True)
    session.save(tmp_path / "long.session")
    with Llama(tiny_target_path, n_ctx=256, n_threads=1) as small, pytest.raises(ContextFullError, match="256"):
        Session.load(tmp_path / "long.session", small)


def test_a_crash_while_saving_leaves_the_old_file(llm: Llama, saved: Path, monkeypatch: pytest.MonkeyPatch):
    old = saved.read_bytes()
    session = Session(llm)
    session.generate(FIRST, **HOW)

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="disk full"):
                session.save(saved)
    assert saved.read_bytes() == old
    assert list(saved.parent.iterdir()) == [saved]


def test_options_that_no_file_can_hold_are_refused(llm: Llama, tmp_path: Path):
    session = Session(llm, constraint=Choice(["one", "two"]))
    session.append(FIRST)
    with pytest.raises(InvalidValueError, match="JSON"):
        session.save(tmp_path / "talk.session")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bias", [{5: -1.0}, {5: -np.inf}, ((5, -1.0),)])
def test_token_ids_stay_numbers_in_a_file(llm: Llama, tmp_path: Path, bias: Any):
    session = Session(llm, logit_bias=bias)
    session.generate(FIRST, **HOW)
    session.save(tmp_path / "talk.session")
    expected = session.generate(SECOND, **HOW)
    assert Session.load(tmp_path / "talk.session", llm).generate(SECOND, **HOW).tokens == expected.tokens


def test_a_session_that_filled_its_context_comes_back(tiny_target_path: Path, tmp_path: Path):
    with Llama(tiny_target_path, n_ctx=256, n_threads=1) as small:
        session = Session(small)
        out = session.generate([5] * 250, max_tokens=20, ignore_eos=True)
        assert (out.finish_reason, len(session)) == ("context", 257)
        session.save(tmp_path / "full.session")
        assert Session.load(tmp_path / "full.session", small).tokens == session.tokens


def test_numbers_of_numpy_stand_in_a_file_as_numbers(llm: Llama, tmp_path: Path):
    session = Session(llm, temperature=np.float32(0.5), seed=np.int64(3), stop_tokens=np.array([7]))
    session.append(FIRST)
    session.save(tmp_path / "talk.session")
    assert Session.load(tmp_path / "talk.session", llm).defaults == {"temperature": 0.5, "seed": 3, "stop_tokens": [7]}


def test_a_missing_folder_is_named(llm: Llama, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="nowhere'"):
        Session(llm).save(tmp_path / "nowhere" / "talk.session")


def test_a_file_keeps_its_permissions(llm: Llama, saved: Path):
    saved.chmod(0o644)
    Session(llm).save(saved)
    assert saved.stat().st_mode & 0o777 == 0o644


def test_a_context_that_cannot_take_the_state_decodes_the_text(
    saved: Path, tiny_target_path: Path, caplog: pytest.LogCaptureFixture
):
    with Llama(tiny_target_path, n_ctx=2048, n_threads=1, context={"type_k": "f32", "type_v": "f32"}) as other:
        loaded = Session.load(saved, other)
        assert "decoded again" in caplog.text
        loaded.generate(SECOND, **HOW)
        assert loaded.turns[-1].n_decoded == loaded.turns[-1].n_prompt


@pytest.mark.parametrize(
    "changes", [{"turns": [{"a": 1}]}, {"tokens": np.array([10**6], np.int32)}, {"tokens": np.array([-1], np.int32)}]
)
def test_a_whole_file_of_another_make_is_refused(llm: Llama, saved: Path, changes: dict[str, Any]):
    write_session(saved, replace(read_session(saved), **changes))
    with pytest.raises(StateError, match="another make"):
        Session.load(saved, llm)


def test_nothing_in_a_file_is_executed(llm: Llama, saved: Path):
    raw = saved.read_bytes()
    n_header = int.from_bytes(raw[20:24], "little")
    assert raw[:14] == b"pyspec-session"
    assert set(json.loads(raw[24 : 24 + n_header])) == {
        "model",
        "tokens",
        "turns",
        "defaults",
        "overflow",
        "memory",
        "drafting",
        "lengths",
    }
