"""Laws of the extension's memory and state, on random models of every memory kind.

Owns what holds for each architecture; leaves generation to others. Each runs in a process of its own: an
assertion of llama.cpp is a failed test with its text. Logits are compared to the bit, at equal widths.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyspec import errors
from pyspec._core import (
    STATE_NONE,
    STATE_ON_DEVICE,
    STATE_PARTIAL_ONLY,
    Context,
    Model,
    State,
)

Isolated = Callable[..., object]

PROMPT = [3, 10, 17, 24, 31, 38, 45, 52, 59, 66, 73, 80]
DRAFT = [11, 90, 5, 77]
OTHER = [64, 2, 101, 33]
N = len(PROMPT)
ATTENTION_ONLY = ("gemma3", "llama", "gpt-oss")
SNAPSHOTS = ("lfm2", "qwen35", "nemotron_h")


def _context(path: str, **options: object) -> Context:
    return Context(Model(path), n_ctx=256, n_batch=64, n_ubatch=64, n_threads=1, n_threads_batch=1, **options)  # type: ignore[arg-type]


def _prompted(path: str, **options: object) -> Context:
    context = _context(path, **options)
    context.decode(PROMPT, pos=0)
    return context


def _rows(context: Context, tokens: list[int], pos: int, seq_id: int = 0) -> np.ndarray:
    context.decode(tokens, pos=pos, seq_id=seq_id, n_outputs=len(tokens))
    return context.logits()


def _never_drafted(path: str, **options: object) -> np.ndarray:
    return _rows(_prompted(path, **options), OTHER, N)


# ------------------------------------------------------------------ what each architecture is


def _kind(path: str) -> tuple[str, str]:
    model = Model(path)
    return model.architecture, model.memory_kind


@pytest.mark.parametrize(
    ("arch_name", "memory_kind"),
    [
        ("lfm2", "hybrid"),
        ("qwen35", "hybrid"),
        ("qwen3next", "hybrid"),
        ("falcon-h1", "hybrid"),
        ("granitehybrid", "hybrid"),
        ("nemotron_h", "hybrid"),
        ("jamba", "hybrid"),
        ("mamba", "recurrent"),
        ("mamba2", "recurrent"),
        ("kimi-linear", "hybrid"),
        ("gemma3", "sliding_window"),
        ("llama", "attention"),
        ("gpt-oss", "sliding_window"),
    ],
)
def test_memory_kind_is_llama_cpps_own_answer(
    isolated: Isolated, arch_model: Callable[[str], Path], arch_name: str, memory_kind: str
) -> None:
    assert isolated(_kind, str(arch_model(arch_name))) == (arch_name, memory_kind)


# ------------------------------------------------------------------ forgetting


def _forget_draft(path: str) -> tuple[str, bool]:
    context = _prompted(path)
    context.decode(DRAFT, pos=N)
    try:
        context.seq_rm(0, N, -1)
    except errors.MemoryRefusedError:
        # Refused means untouched: the sequence goes on behind the draft.
        fresh = _prompted(path)
        fresh.decode(DRAFT, pos=N)
        end = N + len(DRAFT)
        return "refused", np.array_equal(_rows(context, OTHER, end), _rows(fresh, OTHER, end))
    return "forgotten", np.array_equal(_rows(context, OTHER, N), _never_drafted(path))


def test_seq_rm_forgets_a_draft_or_refuses_and_changes_nothing(
    isolated: Isolated, arch_name: str, arch_path: Path
) -> None:
    expected = "forgotten" if arch_name in ATTENTION_ONLY else "refused"
    assert isolated(_forget_draft, str(arch_path)) == (expected, True)


def _start_again(path: str) -> bool:
    context = _prompted(path)
    context.decode(DRAFT, pos=N)
    context.seq_rm(0)
    assert (context.seq_pos_min(0), context.seq_pos_max(0)) == (-1, -1), "the sequence is empty"
    context.decode(PROMPT, pos=0)
    return np.array_equal(_rows(context, OTHER, N), _never_drafted(path))


def test_a_sequence_removed_whole_starts_again_like_a_new_one(isolated: Isolated, arch_path: Path) -> None:
    assert isolated(_start_again, str(arch_path)) is True


# ------------------------------------------------------------------ snapshots of the last states


def _n_rs_seq(path: str) -> int:
    return _context(path, n_rs_seq=4).n_rs_seq


def test_only_some_architectures_keep_the_states_that_were_asked_for(
    isolated: Isolated, arch_name: str, arch_path: Path
) -> None:
    assert isolated(_n_rs_seq, str(arch_path)) == (4 if arch_name in SNAPSHOTS else 0)


def _roll_back(path: str, steps: list[int]) -> str | bool:
    drafted = [*DRAFT, *OTHER]
    context = _prompted(path, n_rs_seq=4)
    context.decode(drafted, pos=N)
    kept = len(drafted)
    try:
        for n_undone in steps:
            kept -= n_undone
            context.seq_rm(0, N + kept, -1)
    except errors.MemoryRefusedError:
        return "refused"
    fresh = _prompted(path, n_rs_seq=4)
    fresh.decode(drafted[:kept], pos=N)
    return np.array_equal(_rows(context, OTHER, N + kept), _rows(fresh, OTHER, N + kept))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [([1], True), ([4], True), ([5], "refused"), ([8], "refused"), ([1, 1], "refused")],
    ids=["one", "all-kept-states", "one-more", "the-whole-decode", "twice"],
)
@pytest.mark.parametrize("arch_name", SNAPSHOTS)
def test_a_snapshot_rolls_back_once_and_no_further_than_its_states(
    isolated: Isolated, arch_name: str, arch_path: Path, steps: list[int], expected: str | bool
) -> None:
    assert isolated(_roll_back, str(arch_path), steps) == expected


# ------------------------------------------------------------------ state


def _undo_twice_by_state(path: str, flags: int) -> list[bool]:
    expected = _never_drafted(path)
    context = _prompted(path)
    state = State()
    context.state_save(0, state, flags)

    def undo() -> None:
        if not flags & STATE_PARTIAL_ONLY:
            context.seq_rm(0)
        context.state_restore(0, state)
        context.seq_rm(0, N, -1)
        assert context.seq_pos_max(0) == N - 1, "the sequence ends where it was saved"

    same = []
    for _ in range(2):
        context.decode(DRAFT, pos=N)
        undo()
        same.append(np.array_equal(_rows(context, OTHER, N), expected))
        undo()
    return same


@pytest.mark.parametrize("flags", [STATE_NONE, STATE_PARTIAL_ONLY], ids=["full", "partial"])
def test_a_state_undoes_two_drafts_and_leaves_the_logits_of_a_run_without_them(
    isolated: Isolated, arch_path: Path, flags: int
) -> None:
    assert isolated(_undo_twice_by_state, str(arch_path), flags) == [True, True]


def _undo_twice_on_the_device(path: str) -> list[bool] | str:
    try:
        return _undo_twice_by_state(path, STATE_PARTIAL_ONLY | STATE_ON_DEVICE)
    except errors.UnsupportedError as error:
        return str(error)


def test_a_state_on_the_device_undoes_like_one_on_the_host_where_layers_are_recurrent(
    isolated: Isolated, arch_name: str, arch_path: Path
) -> None:
    found = isolated(_undo_twice_on_the_device, str(arch_path))
    # The random lfm2 has a sliding window, whose cells belong to the partial state.
    if arch_name in (*ATTENTION_ONLY, "lfm2"):
        assert "attention cells" in str(found)
    else:
        assert found == [True, True]


def _carry_to_another_context(path: str) -> bool:
    state = State()
    _prompted(path).state_save(0, state)
    context = _context(path)
    context.state_restore(0, State.from_bytes(state.to_bytes()))
    return np.array_equal(_rows(context, OTHER, N), _never_drafted(path))


def test_a_state_carried_as_bytes_to_a_new_context_continues_the_sequence(isolated: Isolated, arch_path: Path) -> None:
    assert isolated(_carry_to_another_context, str(arch_path)) is True


# ------------------------------------------------------------------ copies of a sequence


def _undo_twice_by_shadow(path: str) -> list[bool]:
    expected = _never_drafted(path, n_seq_max=2)
    context = _prompted(path, n_seq_max=2)
    assert context.can_seq_cp(partial=True), "this memory shares parts"
    context.seq_cp(0, 1, N, -1)

    def undo() -> None:
        context.seq_cp(1, 0, N, -1)
        context.seq_rm(0, N, -1)
        assert context.seq_pos_max(0) == N - 1, "the sequence ends where it was shared"

    same = []
    for _ in range(2):
        context.decode(DRAFT, pos=N)
        undo()
        same.append(np.array_equal(_rows(context, OTHER, N), expected))
        undo()
    return same


def test_a_shadow_undoes_two_drafts_and_leaves_the_logits_of_a_run_without_them(
    isolated: Isolated, arch_path: Path
) -> None:
    assert isolated(_undo_twice_by_shadow, str(arch_path)) == [True, True]


def _fork(path: str) -> tuple[bool, bool]:
    expected = _never_drafted(path, n_seq_max=2)
    context = _prompted(path, n_seq_max=2)
    assert context.can_seq_cp(partial=False), "this memory shares whole sequences"
    context.seq_cp(0, 1)
    context.decode(DRAFT, pos=N, seq_id=1)
    context.seq_rm(1)
    kept = np.array_equal(_rows(context, OTHER, N), expected)
    context.seq_rm(0)
    context.decode(PROMPT, pos=0)
    context.seq_cp(0, 1)
    context.seq_rm(0)
    return kept, np.array_equal(_rows(context, OTHER, N, seq_id=1), expected)


def test_a_fork_goes_on_like_its_origin_and_leaves_it_alone(isolated: Isolated, arch_path: Path) -> None:
    assert isolated(_fork, str(arch_path)) == (True, True)


# ------------------------------------------------------------------ two sequences


def _two_at_once(path: str) -> float:
    context = _prompted(path, n_seq_max=2)
    context.decode(PROMPT[::-1], pos=0, seq_id=1)
    pos = [N, N + 1, N + 2, N + 3] * 2
    context.decode_batch(OTHER + DRAFT, pos, [0] * 4 + [1] * 4, [True] * 8)
    together = context.logits()
    other = _context(path, n_seq_max=2)
    other.decode(PROMPT[::-1], pos=0)
    alone = np.concatenate([_never_drafted(path, n_seq_max=2), _rows(other, DRAFT, N)])
    return float(np.max(np.abs(together - alone)))


def test_two_sequences_in_one_decode_get_the_logits_of_each_alone(isolated: Isolated, arch_path: Path) -> None:
    # Eight tokens are decoded together and four alone: another width, hence not to the bit.
    assert isolated(_two_at_once, str(arch_path)) < 1e-5


# ------------------------------------------------------------------ nothing aborts

_EDGES = {
    "rm-nothing": lambda c, s: c.seq_rm(0, 5, 5),
    "rm-behind-the-end": lambda c, s: c.seq_rm(0, 1000, -1),
    "rm-middle": lambda c, s: c.seq_rm(0, 3, 6),
    "rm-start": lambda c, s: c.seq_rm(0, 0, 4),
    "rm-last": lambda c, s: c.seq_rm(0, N - 1, -1),
    "rm-backwards": lambda c, s: c.seq_rm(0, 6, 3),
    "rm-empty-sequence": lambda c, s: c.seq_rm(1),
    "rm-no-such-sequence": lambda c, s: c.seq_rm(7),
    "cp-to-itself": lambda c, s: c.seq_cp(0, 0),
    "cp-middle": lambda c, s: c.seq_cp(0, 1, 3, 6),
    "cp-from-empty": lambda c, s: c.seq_cp(1, 0),
    "cp-twice": lambda c, s: (c.seq_cp(0, 1), c.seq_cp(0, 1)),
    "cp-no-such-sequence": lambda c, s: c.seq_cp(0, 7),
    "keep": lambda c, s: c.seq_keep(0),
    "keep-empty": lambda c, s: c.seq_keep(1),
    "add": lambda c, s: c.seq_add(0, 4, -1, 3),
    "add-backwards": lambda c, s: c.seq_add(0, 4, -1, -100),
    "clear-twice": lambda c, s: (c.clear(), c.clear()),
    "save-empty-sequence": lambda c, s: c.state_save(1, s),
    "save-empty-sequence-partial": lambda c, s: c.state_save(1, s, STATE_PARTIAL_ONLY),
    "restore-empty-state": lambda c, s: c.state_restore(0, s),
    "restore-to-another-sequence": lambda c, s: (c.state_save(0, s), c.state_restore(1, s)),
    "restore-partial-to-another-sequence": lambda c, s: (
        c.state_save(0, s, STATE_PARTIAL_ONLY),
        c.state_restore(1, s),
    ),
    "restore-after-clear": lambda c, s: (c.state_save(0, s), c.clear(), c.state_restore(0, s)),
    "restore-partial-after-clear": lambda c, s: (
        c.state_save(0, s, STATE_PARTIAL_ONLY),
        c.clear(),
        c.state_restore(0, s),
    ),
    "device-after-clear": lambda c, s: (
        c.state_save(0, s, STATE_PARTIAL_ONLY | STATE_ON_DEVICE),
        c.clear(),
        c.state_restore(0, s),
    ),
    "device-to-another-sequence": lambda c, s: (
        c.state_save(0, s, STATE_PARTIAL_ONLY | STATE_ON_DEVICE),
        c.state_restore(1, s),
    ),
    "decode-gap": lambda c, s: c.decode([1], pos=N + 1),
    "decode-before-the-end": lambda c, s: c.decode([1], pos=N - 1),
    "decode-past-the-context": lambda c, s: [c.decode(DRAFT * 16, pos=N + 64 * i) for i in range(8)],
    "decode-two-sequences": lambda c, s: c.decode_batch(
        DRAFT + OTHER, [N, N + 1, N + 2, N + 3, 0, 1, 2, 3], [0] * 4 + [1] * 4, [True] * 8
    ),
    "decode-interleaved": lambda c, s: c.decode_batch([5, 6, 7, 8], [N, 0, N + 1, 1], [0, 1, 0, 1], [True] * 4),
}


def _edge(path: str, name: str) -> str:
    context, state = _prompted(path, n_seq_max=2), State()
    with contextlib.suppress(errors.PyspecError):
        _EDGES[name](context, state)
    # Whatever happened, a cleared context works as a new one.
    context.clear()
    context.decode(PROMPT, pos=0)
    same = np.array_equal(_rows(context, OTHER, N), _never_drafted(path, n_seq_max=2))
    return "as new" if same else "not as new"


def _edges(path: str) -> dict[str, str]:
    found = {}
    for name in _EDGES:
        sys.stderr.write(f"{name}\n")  # the last one is the culprit when the process dies
        found[name] = _edge(path, name)
    return found


def test_no_memory_call_aborts_and_clear_makes_the_context_as_new(isolated: Isolated, arch_path: Path) -> None:
    assert isolated(_edges, str(arch_path)) == dict.fromkeys(_EDGES, "as new")
