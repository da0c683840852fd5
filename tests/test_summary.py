"""A short table names what happened and leaves out what did not; the log has a line for each generation."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspec import Llama
from pyspec.rounds import RoundRecord
from pyspec.stats import Stats, Timings
from pyspec.summary import line, rows, text

PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"


def drafted() -> Stats:
    stats = Stats(n_prompt=31, n_generated=6, n_rounds=3, n_decodes=4, n_prompt_decodes=1, n_cut=1)
    stats.rollback = "shadow"
    stats.timings = Timings(0.5, 1.0, 0.375, 0.15, 0.6, 0.075, 0.0, n_prompt=31, n_generated=6)
    stats.record_round(RoundRecord(30, 30, 0, 0, 1, "", "", 0.0, 0.3, 0.0, "prompt"))
    stats.record_round(RoundRecord(5, 1, 4, 3, 4, "suffix", "shadow", 0.01, 0.4, 0.0, "drafted", 6, 1.5))
    stats.record_round(RoundRecord(2, 2, 0, 0, 1, "", "", 0.01, 0.2, 0.0, "no proposal"))
    stats.count_draft("suffix", 4, 3)
    stats.count_rollback("shadow")
    stats.n_saves, stats.saved_bytes, stats.n_replayed = 1, 3 * 2**20, 4
    stats.drafting.count_call("suffix", 0.002)
    stats.drafting.n_watched, stats.drafting.n_watched_right = 2, 5
    return stats


def test_the_table_tells_everything_that_happened():
    assert text(drafted()) == (
        "prompt       31 tokens, 0.500 s, 62.0 tokens/s\n"
        "generated    6 tokens, 1.000 s, 5.0 tokens/s\n"
        "rounds       3, 2.00 tokens a round, 4 decodes, 2.00 tokens a decode\n"
        "drafted      4 tokens in 1 draft; 1 cut by the end\n"
        "accepted     3, 75% of the drafted, 3.00 a draft\n"
        "  suffix     1 draft, 4 drafted, 3 accepted (75%), 3.00 a draft, 0.002 s\n"
        "by position  1/1 1/1 1/1 0/1\n"
        "decisions    1 no proposal, 1 drafted\n"
        "watched      2 drafts, 5 tokens right\n"
        "rollback     shadow: 1 rollback, 4 tokens replayed, 1 save, 3.0 MiB copied\n"
        "time         prompt 25%, draft 10%, decode 40%, verify 5%, rollback 0%, rest 20%\n"
        "oracle       12.5 tokens/s at width 5, 40% of it reached"
    )


def test_the_table_leaves_out_what_never_happened():
    assert [name for name, _ in rows(Stats())] == ["prompt", "generated", "rounds"]


def test_what_a_full_memory_dropped_is_told():
    assert ("dropped", "12 tokens from the middle of a full memory") in rows(Stats(n_dropped=12))


def test_rollbacks_of_several_strategies_are_told_apart():
    stats = Stats(rollback="snapshot+shadow")
    for strategy in ("snapshot", "shadow", "snapshot"):
        stats.count_rollback(strategy)
    assert "snapshot+shadow: 3 rollbacks (2 snapshot, 1 shadow)" in str(stats)


def test_of_many_positions_the_first_are_shown():
    stats = Stats()
    stats.count_draft("a", 40, 20)
    shown = dict(rows(stats))["by position"]
    assert shown == " ".join(["1/1"] * 16) + " ..."


def test_a_line_names_speed_acceptance_and_rollback():
    assert line(drafted()) == (
        "6 tokens, 5.0 tokens/s, 2.00 tokens a decode, accepted 3 of 4 (75%), rollback shadow: 1"
    )
    assert line(Stats(rollback="trim")) == "0 tokens, 0.0 tokens/s, 0.00 tokens a decode, no drafts, rollback trim: 0"


# ------------------------------------------------------------------ of a model


@pytest.fixture(scope="module")
def llm(tiny_target_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, n_ctx=512, n_threads=1, budget="off") as made:
        yield made


@pytest.mark.parametrize("spec", [None, "ngram-map-k:size_n=4"])
def test_each_generation_is_one_line_of_the_log(llm: Llama, caplog: pytest.LogCaptureFixture, spec: str | None):
    with caplog.at_level(logging.INFO, logger="pyspec"):
        made = llm.generate(PROMPT * 2, max_tokens=16, spec=spec, ignore_eos=True)
    told = [(r.levelno, r.getMessage()) for r in caplog.records if r.name == "pyspec"]
    assert told == [(logging.INFO, f"{line(made.stats)}, finish: length")]
    assert ("no drafts" in told[0][1]) == (spec is None)


def test_above_info_the_log_stays_silent(llm: Llama, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, logger="pyspec"):
        llm.generate(PROMPT, max_tokens=8)
    assert not caplog.records


def test_a_stopped_generation_has_its_numbers_so_far(llm: Llama):
    seen = []

    def stop(piece: str) -> None:
        seen.append(piece)
        if len(seen) == 5:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        llm.generate(PROMPT, max_tokens=40, on_text=stop, spec=None)
    stats = llm.stats
    assert stats.timings.n_generated == stats.n_generated == len(stats.rounds) >= 5
    assert sum(stats.timings.shares.values()) == pytest.approx(1.0)
    assert str(stats).startswith("prompt")
