"""Accepted tokens a target decode on the drafting workloads: llama.cpp's n-gram speculators beside ours, as Markdown.

Owns the play of both over the same texts, round by round and without a model, and the table; the process of llama.cpp's
own code is that of the tests. Run: python scripts/compare_llama_cpp_drafts.py [--markdown FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspec import models
from pyspec._core import Model
from pyspec.bench.simulate import CURVES, Simulated, drafting_of, simulate
from pyspec.bench.workloads import Passage, passages
from pyspec.drafting import Drafting
from pyspec.speculators import History, Tokens, make

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT), str(ROOT.parent / "tests" / "speculators")]

from build_test_models import ngram_drafts  # noqa: E402
from llama_cpp_drafts import LlamaCpp  # noqa: E402

NAMES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
N_VOCAB = 2**31 - 1
FLAT = {1: 1.0, 2: 1.0, 128: 1.0}
"""Without a budget no cost decides anything."""


class Theirs(Drafting):
    """llama.cpp's speculator `name` at its defaults, every draft decoded, as llama-server does."""

    def __init__(self, process: LlamaCpp, name: str) -> None:
        super().__init__(None)
        self.process = process
        self.process.open(name, {})
        self._n_told = 0

    def begin(self, prompt: Tokens) -> None:
        """A generation starts."""
        self.process.tell("begin", 0, prompt.tolist())
        self._n_told = len(prompt)

    def draft(self, history: History, n_max: int, *, n_pending: int, n_vocab: int) -> list[int]:
        """What it drafts."""
        self._tell(history)
        return self.process.draft(0, n_max)[:n_max]

    def settle(self, history: History, n_drafted: int, n_accepted: int) -> None:
        """The round is over."""
        if n_drafted:
            self.process.tell("accept", 0, n_accepted)

    def _tell(self, history: History) -> None:
        arrived = history.view()[self._n_told :].tolist()
        if arrived:
            self.process.tell("extend", 0, arrived)
        self._n_told = len(history)


def share(found: Simulated) -> str:
    """Accepted tokens a decode; a dash where nothing was drafted."""
    return f"{found.n_accepted / len(found.rounds):.2f}" if found.n_drafts else "-"


def row(passage: Passage, process: LlamaCpp) -> list[str]:
    """The cells of one workload."""

    def play(drafting: Drafting, curve: dict[int, float] = FLAT) -> str:
        return share(simulate(passage.prompt, passage.continuation, drafting, curve))

    def ours(name: str) -> Drafting:
        return Drafting(make(name, n_vocab=N_VOCAB))

    def auto(curve: str) -> str:
        speculator = make("auto", n_vocab=N_VOCAB)
        assert speculator is not None, "auto drafts"
        return play(drafting_of(speculator, CURVES[curve]), CURVES[curve])

    cells = [f"{play(Theirs(process, name))} / {play(ours(name))}" for name in NAMES]
    return [passage.name, *cells, auto("cpu"), auto("gpu")]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    head = ["workload", *NAMES, "auto, a CPU's budget", "auto, a GPU's"]
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main(say: Callable[[str], object] = sys.stdout.write) -> int:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="whose vocabulary makes the tokens [smollm2-135m]")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    args = parser.parse_args()
    vocab = Model(models.resolve(args.model), vocab_only=True).vocab
    process = LlamaCpp(ngram_drafts())
    try:
        found = table([row(passage, process) for passage in passages((), vocab, n_tokens=400, seed=1)])
    finally:
        process.close()
    if args.markdown:
        args.markdown.write_text(found, encoding="utf-8")
    else:
        say(found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
