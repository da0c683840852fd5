"""What speculation leaves in memory is what decoding the kept tokens alone, in the same widths, would have left.

The bytes of a sequence's partial state hold, per cell, its position and sequence id, then the tensors; a replay on the
same sequence id must therefore give every byte again, so nothing is left out of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from decoder_rig import ABLE, ABLE_REAL, N_TOKENS, PATTERNS, SAMPLINGS, Rig, Subject

from pyspec._core import Context

KINDS = {"recurrent", "hybrid", "sliding_window"}  # the others have no partial state
ARCH_CASES = [(name, strategy) for name, able in ABLE.items() for strategy in able]
REAL_CASES = [(name, strategy) for name, able in ABLE_REAL.items() for strategy in able]
FEW_CASES = [(name, strategy) for name in ("llama", "mamba2", "qwen35", "lfm2", "gpt-oss") for strategy in ABLE[name]]


@pytest.mark.parametrize("law", ["greedy", "sampled"])
@pytest.mark.parametrize("replay", ["fused", "immediate"])
@pytest.mark.parametrize(("subject_name", "strategy"), ARCH_CASES)
def test_state_after_mixed_rounds_is_that_of_sequential_decoding(
    subject: Subject, strategy: str, replay: str, law: str
):
    played = subject.play(strategy, replay, "mixed", law)
    assert len(played.state) > 0
    assert played.state == played.replayed_state


@pytest.mark.parametrize("law", ["greedy", "sampled"])
@pytest.mark.parametrize("replay", ["fused", "immediate"])
@pytest.mark.parametrize(("subject_name", "strategy"), ARCH_CASES)
def test_logits_after_mixed_rounds_are_those_of_sequential_decoding(
    subject: Subject, strategy: str, replay: str, law: str
):
    played = subject.play(strategy, replay, "mixed", law)
    assert np.array_equal(played.logits, played.replayed_logits)


@pytest.mark.parametrize("replay", ["fused", "immediate"])
@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "mixed"])
@pytest.mark.parametrize(("subject_name", "strategy"), FEW_CASES)
def test_state_after_each_pattern_is_that_of_sequential_decoding(
    subject: Subject, strategy: str, pattern: str, replay: str
):
    played = subject.play(strategy, replay, pattern, "sampled")
    assert played.state == played.replayed_state
    assert np.array_equal(played.logits, played.replayed_logits)


@pytest.mark.usefixtures("smollm2_path", "gemma3_path")
@pytest.mark.parametrize(("subject_name", "strategy"), REAL_CASES)
def test_state_of_a_real_model_is_that_of_sequential_decoding(subject: Subject, strategy: str):
    played = subject.play(strategy, "fused", "mixed")
    assert played.state == played.replayed_state
    assert np.array_equal(played.logits, played.replayed_logits)


@pytest.mark.parametrize("subject_name", ["lfm2", "mamba2", "qwen35", "jamba"])
def test_a_single_lost_token_shows_in_the_state(subject: Subject):
    played = subject.play("shadow", "fused", "mixed", "sampled")
    rig = subject.rig("shadow")
    for decode in played.run.decodes[:-1]:
        rig.memory.decode(decode.tokens, 0)
    last = played.run.decodes[-1].tokens
    rig.memory.decode([*last[:-1], (last[-1] + 1) % subject.model.vocab.n_tokens], 0)
    assert rig.state_bytes() != played.state


# Snapshots keep the accepted tokens of a wider decode. llama.cpp may sum a matrix row of one token in another order
# than one of several (design.md, width classes), so the kept tokens decoded alone agree to rounding, not to the bit.
SNAPSHOT_TOLERANCE = 1e-4


@pytest.mark.parametrize("n_kept", [1, 2, 4, 8])
@pytest.mark.parametrize("subject_name", ["lfm2", "qwen35", "nemotron_h"])
def test_a_snapshot_is_the_state_of_the_kept_tokens_alone(subject: Subject, n_kept: int):
    tokens = [3, 17, 42, 8, 77, 21, 64, 90, 11]
    wide, alone = subject.rig("snapshot"), subject.rig("snapshot")
    for rig in (wide, alone):
        rig.memory.decode(subject.prompt, 1)
    wide.memory.save(8)
    wide.memory.decode(tokens, 1)
    wide.memory.roll_back(len(subject.prompt) + n_kept)
    alone.memory.decode(tokens[:n_kept], 1)
    a, b = wide.next_logits([5]), alone.next_logits([5])
    assert np.abs(a - b).max() <= SNAPSHOT_TOLERANCE * a.std()


@pytest.mark.parametrize("replay", ["fused", "immediate"])
@pytest.mark.parametrize(("subject_name", "strategy"), FEW_CASES)
def test_memory_holds_a_prefix_of_the_history_after_every_round(subject: Subject, strategy: str, replay: str):
    rig = subject.rig(strategy, replay=replay)
    seen: list[tuple[int, int]] = []

    def check() -> None:
        memory = rig.memory
        end = rig.context.seq_pos_max(memory.rollback.seq_id) + 1
        held = [token for d in memory.decodes for token in d.tokens[: d.n_kept]]
        assert memory.n_past == end == len(held)
        assert held == rig.decoder.history.view().tolist()[: memory.n_past]
        seen.append((memory.n_past, len(rig.decoder.history)))

    rig.run(subject.prompt, subject.script(PATTERNS["mixed"]), max_tokens=N_TOKENS, after_round=check)
    assert len(seen) > 8
    assert all(n_past < n_history for n_past, n_history in seen[:-1])


@pytest.mark.parametrize("replay", ["fused", "immediate"])
@pytest.mark.parametrize(("subject_name", "strategy"), [case for case in FEW_CASES if case[1] != "trim"])
def test_a_save_is_held_only_where_memory_went_back_to_it(subject: Subject, strategy: str, replay: str):
    """What was kept must not stay shared or copied: it would cost cells, and a later rollback would lose tokens."""
    rig = subject.rig(strategy, replay=replay)
    held: list[bool] = []

    def check() -> None:
        rollback = rig.memory.rollback
        assert rollback.saved_pos in (None, rig.memory.n_past)
        held.append(rollback.saved_pos is not None)

    rig.run(subject.prompt, subject.script(PATTERNS["mixed"], "sampled"), after_round=check, **SAMPLINGS["sampled"])
    assert any(held) == (replay == "fused" and strategy != "snapshot")


@pytest.mark.parametrize(("subject_name", "strategy"), ARCH_CASES)
def test_a_finished_generation_leaves_no_cell_behind(subject: Subject, strategy: str):
    """The next one fills the whole context, which it could not if the spare sequence still held something."""
    rig = subject.rig(strategy, n_ctx=256)
    rig.run(subject.prompt, subject.script(PATTERNS["rejected-at-once"]), max_tokens=8)
    n_ctx = rig.context.n_ctx_seq
    run = rig.run([5] * (n_ctx - 3), None, max_tokens=None)
    assert (run.finish, len(run.held), len(run.tokens)) == ("context", n_ctx, 4)


def test_a_save_that_fails_half_way_leaves_no_cell_behind(arch_subject: Callable[[str], Subject]):
    class Failing:
        """A context whose second `seq_cp` fails after it has shared the cells."""

        def __init__(self, context: Context) -> None:
            self._context = context
            self.n_copies = 0

        def __getattr__(self, name: str) -> object:
            return getattr(self._context, name)

        def seq_cp(self, *args: int) -> None:
            self._context.seq_cp(*args)
            self.n_copies += 1
            if self.n_copies == 2:
                raise MemoryError("injected")

    subject = arch_subject("llama")
    rig: Rig = subject.rig("fork", n_ctx=256, wrap=Failing)
    rig.run(subject.prompt, subject.script(PATTERNS["accepted"]), max_tokens=N_TOKENS)
    assert rig.context.n_copies == 2
    n_ctx = rig.context.n_ctx_seq
    assert len(rig.run([5] * n_ctx, None, max_tokens=4).held) == n_ctx
