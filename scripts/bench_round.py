#!/usr/bin/env python3
"""Python's own work in one round: drafting, verifying, committing, text.

Runs the real decoder, speculators and text stream against a context that answers at once, so that nothing of a
model is in the time. Prints microseconds a round; asserts nothing.
"""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from pyspec.budget import BudgetOptions, CostModel
from pyspec.budgeted import BudgetedDrafting
from pyspec.decoder import Decoder, DecoderOptions, Request
from pyspec.drafting import Drafting
from pyspec.rollback.protocol import Rollback
from pyspec.sequence import SequenceMemory
from pyspec.speculators import make
from pyspec.text import TextStream


class InstantContext:
    """Answers with a known continuation; counts no memory."""

    n_batch = n_ubatch = n_outputs_max = 2048
    n_ctx_seq = 2**30
    model = SimpleNamespace(n_swa=0)

    def __init__(self, truth: np.ndarray) -> None:
        self.truth = truth
        self.rows = truth[:0]

    def decode(self, tokens: Any, *, pos: int, seq_id: int, n_outputs: int) -> None:
        """Note which rows were asked for."""
        np.asarray(tokens, np.int32)
        end = pos + len(tokens)
        self.rows = self.truth[end - n_outputs + 1 : end + 1]

    def argmax_rows(self, first_row: int, n_rows: int) -> np.ndarray:
        """The true continuation at these rows."""
        return self.rows[first_row : first_row + n_rows]

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> None:
        """Forget nothing."""


class Instant(Rollback):
    """Reaches the saved position, so that rounds replay as on a hybrid."""

    name = "instant"

    def roll_back(self, keep: int) -> int:
        """Say that the saved position is reached."""
        return self._require(keep)

    def _save(self, pos: int) -> None:
        pass


def truth(n: int, repeat: bool, seed: int = 1) -> np.ndarray:
    """[n] tokens: a block of 600 again and again, each time with 3 % of it changed; or no repetition at all."""
    rng = np.random.default_rng(seed)
    if not repeat:
        return rng.integers(0, 49152, n).astype(np.int32)
    out = np.tile(rng.integers(0, 49152, 600), n // 600 + 1)[:n]
    changed = rng.random(n) < 0.03
    out[changed] = rng.integers(0, 49152, int(changed.sum()))
    return out.astype(np.int32)


def drafting_of(spec: str, budget: str) -> Drafting:
    """What drafts, with or without a budget; its costs are assumed, since nothing here takes a model's time."""
    speculator = make(spec, n_vocab=49152)
    if budget == "off" or speculator is None:
        return Drafting(speculator)
    options = BudgetOptions(measured=False)
    return BudgetedDrafting(speculator, options, cost=CostModel(options), keeps_accepted=False)


def measure(spec: str, budget: str, n_prompt: int, n_new: int, repeat: bool) -> tuple[float, int, float]:
    """Microseconds a round, rounds, and tokens a round."""
    tokens = truth(n_prompt + n_new + 512, repeat)
    context: Any = InstantContext(tokens)
    decoder = Decoder(SequenceMemory(context, Instant(context, 0)), DecoderOptions(), n_vocab=49152)
    sampler: Any = SimpleNamespace(is_greedy=True, reset=lambda: None)
    stream = TextStream(lambda token: b"abc", ["\n\n\n"])
    decoder.begin(
        Request(
            prompt=tokens[:n_prompt],
            sampler=sampler,
            drafting=drafting_of(spec, budget),
            max_tokens=n_new,
            end_tokens=frozenset({49151}),
            emit=lambda token: "stop" if stream.push(token) else None,
        )
    )
    decoder.step()
    decoder.step()
    n0, start = decoder.stats.n_rounds, time.perf_counter()
    while decoder.finish is None:
        decoder.step()
        stream.take()
    spent = time.perf_counter() - start
    rounds = decoder.stats.n_rounds - n0
    return spent / rounds * 1e6, rounds, decoder.stats.tokens_per_round


def main() -> None:
    """Print one line per speculator and text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--history", type=int, default=32768, help="tokens of prompt")
    parser.add_argument("--new", type=int, default=4000, help="tokens to generate")
    args = parser.parse_args()
    print(f"{'speculator':44} {'budget':7} {'text':10} {'us/round':>9} {'rounds':>7} {'tokens/round':>13}")
    cases = [
        ("none", "off"),
        ("default", "off"),
        ("ngram-mod:n_match=6,n_min=2,n_max=16", "off"),
        ("ngram-map-k:size_n=6,size_m=16", "off"),
        ("ngram-map-k:size_n=6,size_m=16", "counts"),
        ("suffix", "off"),
        ("auto", "counts"),
    ]
    for spec, budget in cases:
        for repeat in (True, False):
            us, rounds, per_round = min(measure(spec, budget, args.history, args.new, repeat) for _ in range(3))
            text = "repeating" if repeat else "random"
            print(f"{spec:44} {budget:7} {text:10} {us:9.1f} {rounds:7} {per_round:13.2f}")


if __name__ == "__main__":
    main()
