#!/usr/bin/env python3
"""What a session saves: prompt tokens decoded in a second turn, and the time of save, load and a turn.

Owns two measurements and their tables; judges nothing. Times are compared within one run, as medians of several.
Run: python scripts/bench_session.py [MODEL ...] [--threads N]; a MODEL is a path or a name of `pyspec models`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np

from pyspec import Llama, Session, models

N_HISTORY = 1500
N_SAVED = 4096
N_NEW = 20
T = TypeVar("T")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help="models to measure; default: tiny LFM2 hybrid and SmolLM2-135M")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=N_SAVED, help=f"length of the saved text, {N_SAVED} by default")
    options = parser.parse_args()
    paths = options.models or [str(models.tiny_target()), str(models.fetch("smollm2-135m"))]
    print(f"second turn after {N_HISTORY} tokens of history: {N_NEW} new ones and an answer of 16")
    print("model                            memory     new  decoded  of prompt")
    for path in paths:
        print(turns(path, options.threads))
    print(f"\n{options.tokens} tokens saved, loaded, {N_NEW} new ones and one generated; seconds, median of runs")
    print("model                            memory       MiB    save    load    turn  prefill   ratio")
    for path in paths:
        print(files(path, options.threads, options.repeats, options.tokens))


def turns(path: str, n_threads: int) -> str:
    """One row: what a second turn decodes."""
    with opened(path, n_threads, N_HISTORY + 512) as llm:
        session = Session(llm)
        session.generate(text(llm, N_HISTORY), max_tokens=16, ignore_eos=True)
        before = len(session)
        session.generate(text(llm, N_NEW, seed=2), max_tokens=16, ignore_eos=True)
        turn = session.turns[-1]
        n_new = turn.n_prompt - before
        return f"{name(llm):<32} {llm.capabilities.kind:<9} {n_new:>5} {turn.n_decoded:>8} {turn.n_prompt:>10}"


def files(path: str, n_threads: int, n_repeats: int, n_tokens: int) -> str:
    """One row: a saved session taken up again, against reading the whole text."""
    new: dict[str, Any] = {"max_tokens": 1, "ignore_eos": True}
    seconds: dict[str, list[float]] = {"save": [], "load": [], "turn": [], "prefill": []}
    with tempfile.TemporaryDirectory() as folder, opened(path, n_threads, n_tokens + 512) as llm:
        file, n_bytes = Path(folder) / "talk.session", 0
        session = Session(llm)
        session.generate(text(llm, n_tokens), **new)
        for seed in range(n_repeats):
            n_bytes = timed(seconds["save"], session.save, file)
            llm.generate(text(llm, 8, seed=100 + seed), **new)  # memory holds something else
            loaded = timed(seconds["load"], Session.load, file, llm)
            more = text(llm, N_NEW, seed=seed)
            timed(seconds["turn"], loaded.generate, more, **new)
            whole = session.tokens + more
            timed(seconds["prefill"], llm.generate, whole, **new)
            session = Session.load(file, llm)
        kind, label = llm.capabilities.kind, name(llm)
    save, load, turn, prefill = (median(seconds[part]) for part in ("save", "load", "turn", "prefill"))
    row = f"{label:<32} {kind:<9} {n_bytes / 2**20:>6.1f} {save:>7.4f} {load:>7.4f} {turn:>7.4f} {prefill:>8.3f}"
    return f"{row} {prefill / (save + load + turn):>7.1f}"


def opened(path: str, n_threads: int, n_ctx: int) -> Llama:
    """The model with a context of that length, drafting with n-grams alone."""
    return Llama(path, n_ctx=n_ctx, n_threads=n_threads, budget="counts")


def name(llm: Llama) -> str:
    """A model's file name, short."""
    return Path(llm.model.path).stem[:32]


def text(llm: Llama, n_tokens: int, *, seed: int = 1) -> list[int]:
    """Random tokens of the model's vocabulary."""
    ids: list[int] = np.random.default_rng(seed).integers(10, llm.n_vocab - 10, n_tokens).tolist()
    return ids


def timed(seconds: list[float], call: Callable[..., T], *args: Any, **options: Any) -> T:
    """The call's result; its seconds are appended."""
    start = time.perf_counter()
    result = call(*args, **options)
    seconds.append(time.perf_counter() - start)
    return result


if __name__ == "__main__":
    main()
