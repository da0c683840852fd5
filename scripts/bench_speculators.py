"""Measure the speculators of tokens alone: ingest speed and microseconds a round at 32k and 100k tokens of history.

Owns the measurement and its table; judges nothing. Run: python scripts/bench_speculators.py
"""

from __future__ import annotations

import time
from statistics import mean, median

import numpy as np

from pyspec.speculators import (
    EditedCopy,
    History,
    NgramCache,
    NgramMapK,
    NgramMapK4v,
    NgramMod,
    NgramSimple,
    Speculator,
    Suffix,
    Tokens,
    checked_draft,
)

N_VOCAB = 150_000
N_ROUNDS = 2000
N_NEW = 5


def repetitive_text(n_tokens: int, rng: np.random.Generator) -> Tokens:
    """Passages of 400 tokens, half of them a repetition of an earlier one."""
    passages: list[Tokens] = []
    while len(passages) * 400 < n_tokens:
        again = passages and rng.random() < 0.5
        new = rng.integers(0, N_VOCAB, 400, np.int32)
        passages.append(passages[rng.integers(len(passages))] if again else new)
    return np.concatenate(passages)[:n_tokens]


def ingest_rate(speculator: Speculator, prompt: Tokens) -> float:
    """Tokens a second of `begin`, median of 9 after a first one."""
    seconds = []
    speculator.begin(prompt)
    for _ in range(9):
        speculator.begin(prompt[:0])  # or a prompt that is still read would cost nothing
        start = time.perf_counter()
        speculator.begin(prompt)
        seconds.append(time.perf_counter() - start)
    return len(prompt) / median(seconds)


def round_times(speculator: Speculator, prompt: Tokens, coming: Tokens, *, checked: bool) -> tuple[list[float], int]:
    """Seconds of each draft and accept while `coming` arrives five tokens at a time, and tokens drafted."""
    speculator.begin(prompt)
    history = History(prompt)
    seconds, n_drafted = [], 0
    for i in range(N_ROUNDS):
        history.extend(coming[i * N_NEW : (i + 1) * N_NEW])
        start = time.perf_counter()
        draft = checked_draft(speculator, history, 64, N_VOCAB) if checked else speculator.draft(history, 64)
        if len(draft):
            speculator.accept(len(draft), len(draft), own=True)
        seconds.append(time.perf_counter() - start)
        n_drafted += len(draft)
    return seconds, n_drafted


def main() -> None:
    """Print one line per speculator, length and kind of text."""
    rng = np.random.default_rng(7)
    print("speculator    n_history text      Mtok/s    mean us checked  median  draft")
    for kind in (NgramSimple, NgramMapK, NgramMapK4v, NgramMod, NgramCache, Suffix, EditedCopy):
        for n_history in (32_768, 100_000):
            prompt = repetitive_text(n_history, rng)
            again = np.tile(prompt[-2000:], N_ROUNDS * N_NEW // 2000 + 1)
            for text, coming in (
                ("repeats", again),
                ("random", rng.integers(0, N_VOCAB, N_ROUNDS * N_NEW, np.int32)),
            ):
                rate = ingest_rate(kind(), prompt)
                seconds, n_drafted = round_times(kind(), prompt, coming, checked=False)
                seconds_checked, _ = round_times(kind(), prompt, coming, checked=True)
                micros = [1e6 * s for s in (mean(seconds), mean(seconds_checked), median(seconds))]
                columns = "".join(f"{us:>8.1f}" for us in micros)
                row = f"{kind.name:<13} {n_history:>9} {text:<8} {rate / 1e6:>7.1f} {columns}"
                print(f"{row} {n_drafted / N_ROUNDS:>6.1f}")


if __name__ == "__main__":
    main()
