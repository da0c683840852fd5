#!/usr/bin/env python3
"""What `auto` reaches of the oracle on the drafting workloads where costs are known, as Markdown; no model decodes.

Beside it a bound: a speculator that may only copy what followed the last token somewhere before, but knows the text and
so always takes the right place and the right length. Run: python scripts/simulate_drafting.py [--curve cpu]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping

from pyspec import models
from pyspec._core import Model
from pyspec.bench.simulate import CURVES, drafting_of, oracle_seconds, seconds_by_width, simulate
from pyspec.bench.workloads import Passage, passages
from pyspec.speculators import make

N_VOCAB = 2**31 - 1
WIDTH_MAX = 48


def copied(text: list[int], start: int) -> list[int]:
    """For each place from `start` on, how many coming tokens stand together behind its last token somewhere before."""
    ends: defaultdict[int, list[int]] = defaultdict(list)
    found = [0] * len(text)
    for at in range(1, len(text)):
        if at >= start:
            for end in ends[text[at - 1]]:
                n = 0
                while at + n < len(text) and text[end + n] == text[at + n]:
                    n += 1
                found[at] = max(found[at], n)
        ends[text[at - 1]].append(at)
    return found


def bound_seconds(passage: Passage, ratios: Mapping[int, float]) -> float:
    """The least time in which the continuation can be said with drafts that are copied."""
    text = [*passage.prompt.tolist(), *passage.continuation]
    start, curve = len(passage.prompt) + 1, seconds_by_width(ratios, WIDTH_MAX)
    n_copied = copied(text, start)
    least = [0.0] * (len(text) + 1)
    for at in range(len(text) - 1, start - 1, -1):
        longest = min(n_copied[at], WIDTH_MAX - 1, len(text) - at - 1)
        least[at] = min(float(curve[1 + n]) + least[at + n + 1] for n in range(longest + 1))
    return least[start]


def row(passage: Passage, ratios: Mapping[int, float]) -> list[str]:
    """The cells of one workload."""
    n_tokens = len(passage.continuation) - 1
    best, bound = oracle_seconds(n_tokens, ratios), bound_seconds(passage, ratios)
    cells = [passage.name, str(n_tokens), f"{n_tokens / best:.2f}", f"{best / bound:.0%}"]
    for spec, keeps in (("suffix", True), ("auto", True), ("auto", False)):
        speculator = make(spec, n_vocab=N_VOCAB)
        assert speculator is not None, f"{spec} drafts"
        drafting = drafting_of(speculator, ratios, keeps_accepted=keeps)
        found = simulate(passage.prompt, passage.continuation, drafting, ratios, keeps_accepted=keeps)
        cells.append(f"{best / found.seconds:.0%} ({n_tokens / found.seconds:.2f})")
    return cells


def main() -> None:
    """Print a table for each curve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="whose vocabulary makes the tokens [smollm2-135m]")
    parser.add_argument("--curve", choices=list(CURVES), help="one curve only")
    args = parser.parse_args()
    vocab = Model(models.resolve(args.model), vocab_only=True).vocab
    head = ["workload", "tokens", "oracle, x plain", "copying bound", "suffix", "auto", "auto, tokens ride along"]
    for name in [args.curve] if args.curve else CURVES:
        ratios = CURVES[name]
        print(f"\n{name}: decodes of {', '.join(f'{width} {cost:g}' for width, cost in ratios.items())}\n")
        found = [row(passage, ratios) for passage in passages((), vocab, n_tokens=400, seed=1)]
        for line in (head, ["---", *["--:"] * (len(head) - 1)], *found):
            print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
