"""Saved sessions under bad treatment: killed writers, damaged and forged files, other versions, threads."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Llama, Session
from pyspec.errors import BusyError, InvalidValueError, PyspecError, StateError
from pyspec.session.file import read_session, write_session
from pyspec.session.plain_data import pack, unpack

FIRST = "def area(width, height):\n    return width * height\n\n"
HOW: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True}
N_FIXED = 24


@pytest.fixture
def llm(tiny_target_path: Path, tiny_draft_path: Path) -> Iterator[Llama]:
    draft: dict[str, Any] = {"draft_model": tiny_draft_path, "spec": ["suffix", "draft-model"], "budget": "off"}
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, **draft) as made:
        yield made


@pytest.fixture
def saved(llm: Llama, tmp_path: Path) -> Path:
    session = Session(llm)
    session.generate(FIRST, **HOW)
    session.generate("# again\n", **HOW)
    session.save(tmp_path / "talk.session")
    return tmp_path / "talk.session"


def n_header(raw: bytes) -> int:
    return int.from_bytes(raw[20:N_FIXED], "little")


def forged(raw: bytes | bytearray) -> bytes:
    """The same with a checksum that fits."""
    return bytes(raw[:-32]) + hashlib.sha256(raw[:-32]).digest()


def with_header(raw: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The same with a changed header and a checksum that fits."""
    about = json.loads(raw[N_FIXED : N_FIXED + n_header(raw)])
    change(about)
    header = json.dumps(about).encode()
    start = raw[:20] + len(header).to_bytes(4, "little") + header
    return forged(start + raw[N_FIXED + n_header(raw) :])


# ------------------------------------------------------------------ writing


def test_a_speculator_without_a_name_is_refused_with_the_way_out(tiny_target_path: Path, tmp_path: Path):
    class Mine:
        def begin(self, tokens: Any) -> None: ...

        def draft(self, history: Any, n_max: int) -> list[int]:
            return []

        def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None: ...

    with Llama(tiny_target_path, n_ctx=256, n_threads=1, spec=Mine()) as llm:
        with pytest.raises(InvalidValueError, match=r"^spec=.*Llama\(spec=\.\.\.\)"):
            Session(llm, spec=["suffix", Mine()]).save(tmp_path / "talk.session")
        session = Session(llm)
        session.generate("x", max_tokens=2)
        session.save(tmp_path / "talk.session")
        assert Session.load(tmp_path / "talk.session", llm).tokens == session.tokens


def test_a_place_that_cannot_be_written_to_is_named(llm: Llama, tmp_path: Path):
    session = Session(llm)
    with pytest.raises(IsADirectoryError, match=str(tmp_path)) as error:
        session.save(tmp_path)
    assert error.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        session.save(tmp_path / "nowhere" / "talk.session")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_a_writer_that_is_killed_leaves_the_old_file(saved: Path, tiny_target_path: Path, call: str):
    old = saved.read_bytes()
    source = f"""
import os, signal, sys
from pyspec import Llama, Session

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

with Llama(sys.argv[1], n_ctx=512, n_threads=1, spec=None) as llm:
    session = Session(llm)
    session.generate("something else", max_tokens=4)
    {call} = die
    session.save(sys.argv[2])
"""
    done = subprocess.run([sys.executable, "-c", source, str(tiny_target_path), str(saved)], timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert saved.read_bytes() == old


def test_a_second_save_takes_the_place_of_the_first(llm: Llama, saved: Path):
    session = Session.load(saved, llm)
    session.generate("# more\n", **HOW)
    session.save(saved)
    assert Session.load(saved, llm).tokens == session.tokens
    assert list(saved.parent.iterdir()) == [saved]


# ------------------------------------------------------------------ damage


def test_every_damaged_region_is_noticed_and_nothing_of_it_is_taken(llm: Llama, saved: Path):
    raw, rng = saved.read_bytes(), random.Random(1)
    before = llm._decoder.memory.n_past
    ends = [0, 16, 20, N_FIXED, N_FIXED + n_header(raw)]
    for n in json.loads(raw[N_FIXED : ends[-1]])["lengths"]:
        ends.append(ends[-1] + n)
    assert ends[-1] + 32 == len(raw)
    regions = [(a, b) for a, b in zip(ends, [*ends[1:], len(raw)], strict=True) if b > a]
    assert len(regions) > 10
    for start, end in regions:
        for _ in range(3):
            damaged = bytearray(raw)
            damaged[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
            saved.write_bytes(damaged)
            with pytest.raises(StateError, match=r"talk\.session"):
                Session.load(saved, llm)
    assert llm._decoder.memory.n_past == before


def test_a_file_cut_anywhere_is_noticed(llm: Llama, saved: Path):
    raw = saved.read_bytes()
    for n in [*range(60), *range(60, len(raw), len(raw) // 50), len(raw) - 1]:
        saved.write_bytes(raw[:n])
        with pytest.raises(StateError, match=r"talk\.session"):
            Session.load(saved, llm)
    saved.write_bytes(raw + b"\0")
    with pytest.raises(StateError, match=r"talk\.session"):
        Session.load(saved, llm)


@pytest.mark.parametrize("version", [0, 1, 3, 2**32 - 1])
def test_another_version_is_refused_by_number(llm: Llama, saved: Path, version: int):
    raw = bytearray(saved.read_bytes())
    raw[16:20] = version.to_bytes(4, "little")
    saved.write_bytes(forged(raw))
    with pytest.raises(StateError, match=f"version {version}, known is 2"):
        Session.load(saved, llm)


def test_a_forged_file_is_refused_or_is_a_session(llm: Llama, saved: Path):
    """The checksum fits, anything else may not: an error of the package, or a session that generates."""
    raw, rng = saved.read_bytes(), random.Random(2)
    n_refused = 0
    for i in range(300):
        damaged = bytearray(raw)
        end = N_FIXED + n_header(raw) if i % 2 else len(raw)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(N_FIXED, end)] = rng.randrange(256)
        saved.write_bytes(forged(damaged))
        try:
            session = Session.load(saved, llm)
        except PyspecError:
            n_refused += 1
            continue
        if i % 10 == 0:
            try:
                session.generate("x", max_tokens=2)
            except PyspecError:
                n_refused += 1
    assert n_refused > 50
    saved.write_bytes(raw)
    assert Session.load(saved, llm).generate("x", **HOW).tokens


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.pop("memory"),
        lambda a: a.update(tokens=5),
        lambda a: a.update(turns=None),
        lambda a: a.update(turns=[{"start": 0}]),
        lambda a: a["turns"][0].update(n_generated=10**6),
        lambda a: a["turns"][0].update(start=-5),
        lambda a: a["turns"].reverse(),
        lambda a: a["turns"][0].update(n_prompt="x"),
        lambda a: a.update(overflow={}),
        lambda a: a["overflow"].update(overflow="wrap"),
        lambda a: a["overflow"].update(n_keep=10**9),
        lambda a: a["overflow"].update(n_dropped=-1),
        lambda a: a["overflow"].update(n_dropped=10**6),
        lambda a: a["overflow"].update(n_dropped=None),
        lambda a: a.update(defaults={"temprature": 1}),
        lambda a: a.update(defaults={"llm": 1}),
        lambda a: a.update(defaults=[1]),
        lambda a: a.update(lengths=[-1, *a["lengths"]]),
        lambda a: a.update(lengths=[10**18]),
        lambda a: a.update(lengths=["x"]),
        lambda a: a["memory"].update(state=5),
        lambda a: a["memory"].update(positions=[1, 2]),
        lambda a: a["memory"].update(tokens=[1.5]),
        lambda a: a["memory"]["tokens"].update(dtype="O"),
        lambda a: a["memory"]["tokens"].update(dtype="M8[s]"),
        lambda a: a["memory"]["tokens"].update(dtype="nonsense"),
        lambda a: a["memory"]["tokens"].update(shape=[10**9]),
        lambda a: a["memory"]["tokens"].update({"$part": 10**6}),
        lambda a: a["memory"]["tokens"].update({"$part": -1}),
        lambda a: a.update(drafting=[1]),
    ],
)
def test_a_header_of_nonsense_is_refused_by_the_name_of_the_file(
    llm: Llama, saved: Path, change: Callable[[dict[str, Any]], object]
):
    saved.write_bytes(with_header(saved.read_bytes(), change))
    with pytest.raises(StateError, match=r"talk\.session"):
        Session.load(saved, llm)


def test_a_header_nested_without_end_is_refused(llm: Llama, saved: Path):
    raw = saved.read_bytes()
    header = b"[" * 200_000
    saved.write_bytes(forged(raw[:20] + len(header).to_bytes(4, "little") + header + bytes(32)))
    with pytest.raises(StateError, match=r"talk\.session"):
        Session.load(saved, llm)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(speculators="x"),
        lambda d: d.update(speculators=[None, {"kind": "draft-model"}]),
        lambda d: d["speculators"].reverse(),
        lambda d: d["speculators"][1].update(memory={"tokens": 1}),
        lambda d: d["speculators"][1]["memory"].update(state=b"no state"),
        lambda d: d["speculators"][1]["memory"].update(tokens=np.arange(5)),
        lambda d: d["speculators"][1]["memory"].update(tokens=np.arange(10_000)),
        lambda d: d["speculators"][1]["memory"].update(
            positions=[9 for _ in d["speculators"][1]["memory"]["positions"]]
        ),
        lambda d: d["speculators"][0].update(corpus=7),
        lambda d: d["speculators"][0].update(text=np.array([-1])),
    ],
)
def test_speculators_that_cannot_take_their_state_start_anew(
    llm: Llama, saved: Path, change: Callable[[dict[str, Any]], object], caplog: pytest.LogCaptureFixture
):
    expected = Session.load(saved, llm).generate("# more\n", **HOW)
    data = read_session(saved)
    assert data.drafting is not None
    change(data.drafting)
    write_session(saved, data)
    caplog.clear()
    loaded = Session.load(saved, llm)
    assert "no use here" in caplog.text
    assert loaded.generate("# more\n", **HOW).tokens == expected.tokens
    assert loaded.turns[-1].n_decoded < 20, "the target's memory came back all the same"


def test_memory_of_another_text_is_not_taken_for_this_one(llm: Llama, saved: Path):
    data = read_session(saved)
    other = np.array(data.tokens[::-1])
    write_session(saved, replace(data, tokens=other, turns=[]))
    loaded = Session.load(saved, llm)
    out = loaded.generate("", **HOW)
    assert out.tokens == llm.generate(other, spec=None, **HOW).tokens


# ------------------------------------------------------------------ seeds


def test_the_seed_of_a_llama_goes_with_its_session(tiny_target_path: Path, tmp_path: Path):
    drawn: dict[str, Any] = {"temperature": 1.0, "spec": None}
    with (
        Llama(tiny_target_path, n_ctx=512, n_threads=1, seed=5) as one,
        Llama(tiny_target_path, n_ctx=512, n_threads=1) as other,
    ):
        session = Session(one, **drawn)
        session.generate(FIRST, **HOW)
        session.save(tmp_path / "talk.session")
        expected = session.generate("# again\n", **HOW)
        loaded = Session.load(tmp_path / "talk.session", other)
        assert loaded.generate("# again\n", **HOW).tokens == expected.tokens
        assert "seed" not in session.defaults
        assert loaded.generate("# again\n", seed=7, **HOW).seed == 7


def test_without_a_seed_each_turn_draws_one(tiny_target_path: Path, tmp_path: Path):
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, spec=None) as llm:
        session = Session(llm, temperature=1.0)
        session.generate(FIRST, **HOW)
        session.save(tmp_path / "talk.session")
        loaded = Session.load(tmp_path / "talk.session", llm)
        assert "seed" not in loaded.defaults
        assert loaded.generate("x", **HOW).seed != loaded.generate("x", **HOW).seed


# ------------------------------------------------------------------ threads


def test_one_session_in_many_threads_takes_turns_or_says_busy(tiny_target_path: Path):
    with Llama(tiny_target_path, n_ctx=2048, n_threads=1, spec=None) as llm:
        session = Session(llm)
        done: list[int] = []

        def work(seed: int) -> None:
            for i in range(8):
                try:
                    session.generate([seed + 1, i + 1], max_tokens=3, ignore_eos=True)
                    done.append(seed)
                except BusyError:
                    pass

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(session.turns) == len(done) > 0
        assert len(session) == 5 * len(done)
        assert [turn.start for turn in session.turns] == [5 * i for i in range(len(done))]


def test_two_sessions_in_two_threads_share_a_llama(tiny_target_path: Path, tmp_path: Path):
    with Llama(tiny_target_path, n_ctx=1024, n_threads=1, spec=None) as llm:
        alone = [Session(llm), Session(llm)]
        for seed, session in enumerate(alone):
            for i in range(4):
                session.generate([seed + 5, i + 1], max_tokens=3, ignore_eos=True)
        together = [Session(llm), Session(llm)]

        def work(seed: int) -> None:
            session, path = together[seed], tmp_path / f"{seed}.session"
            for i in range(4):
                retry(lambda i=i: session.generate([seed + 5, i + 1], max_tokens=3, ignore_eos=True))
                retry(lambda: session.save(path))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [s.tokens for s in together] == [s.tokens for s in alone]
        for seed in range(2):
            assert Session.load(tmp_path / f"{seed}.session", llm).tokens == alone[seed].tokens


def retry(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
            return
        except BusyError:
            pass


def test_a_session_at_work_is_neither_saved_nor_loaded(llm: Llama, saved: Path, tmp_path: Path):
    session = Session(llm)
    stream = session.stream(FIRST, **HOW)
    next(stream)
    for call in (lambda: session.save(tmp_path / "other"), lambda: Session.load(saved, llm)):
        with pytest.raises(BusyError):
            call()
    list(stream)
    session.save(tmp_path / "other")


# ------------------------------------------------------------------ what memory holds


def test_tokens_behind_the_text_do_not_cost_the_memory(tiny_target_path: Path, tmp_path: Path):
    """A stop text of several tokens: memory is ahead of the text, and is brought back before it is saved."""
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, spec=None) as llm:
        free = llm.generate(FIRST, max_tokens=40, ignore_eos=True)
        session = Session(llm)
        session.generate(FIRST, max_tokens=40, ignore_eos=True, stop=[free.text[-12:]])
        n_past = llm._decoder.memory.n_past
        assert n_past > len(session)
        session.save(tmp_path / "talk.session")
        held = read_session(tmp_path / "talk.session").memory
        assert held is not None
        assert 0 < len(held.tokens) <= len(session)
        assert held.tokens.tolist() == session.tokens[: len(held.tokens)]


def test_a_session_whose_memory_another_one_has_taken_leaves_it_alone(llm: Llama, tmp_path: Path):
    first, second = Session(llm), Session(llm)
    first.generate(FIRST, **HOW)
    second.generate("something else entirely\n", **HOW)
    n_past = llm._decoder.memory.n_past
    first.save(tmp_path / "first.session")
    assert read_session(tmp_path / "first.session").memory is None
    assert llm._decoder.memory.n_past == n_past


# ------------------------------------------------------------------ plain data


@pytest.mark.parametrize(
    "data",
    [
        None,
        True,
        -5,
        1.5,
        "text",
        [1, [2.0, None]],
        {"a": {"b": b"bytes"}, "c": []},
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.array([], np.float64),
        np.array([1, 2], ">i8"),
        np.array([True, False]),
        [np.float32(0.5), np.uint8(3)],
        b"",
    ],
)
def test_plain_data_comes_back(data: Any):
    parts: list[bytes] = []
    packed = json.loads(json.dumps(pack(data, parts)))
    again = unpack(packed, [memoryview(part) for part in parts])
    if isinstance(data, np.ndarray):
        assert again.shape == data.shape
        assert again.dtype == data.dtype.newbyteorder("=")
        assert np.array_equal(again, data)
        again[...] = 0
    else:
        assert again == data


@pytest.mark.parametrize("data", [object(), {1: 2}, {"$part": 0}, {1}, np.array([object()]), np.array(["x"]), 1j])
def test_what_is_not_plain_is_refused(data: Any):
    with pytest.raises(TypeError, match="plain"):
        pack([data], [])
