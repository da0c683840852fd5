#!/usr/bin/env python3
"""exact=True held to its word: every logit of a speculative run against those of a plain one, to the bit.

Long runs on whole models, at short and long contexts; drafts of 0 to 8 tokens, most with a wrong one, so that memory is
rolled back all the time. A model that has no width class is refused by pyspec with the reason, which is printed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import pyspec
from pyspec.decoder import Decoder
from pyspec.errors import UnsupportedError
from pyspec.speculators import History, Scripted


def mixed(plain: list[int], n_prompt: int, n_vocab: int) -> Scripted:
    """Drafts of 0 to 8 tokens of the plain run, three of five with one token wrong."""
    rng = np.random.default_rng(3)

    def draft(history: History, n_max: int) -> list[int]:
        at = len(history) - n_prompt
        tokens = plain[at : at + min(n_max, int(rng.integers(0, 9)))]
        if tokens and rng.random() < 0.6:
            wrong = int(rng.integers(0, len(tokens)))
            tokens[wrong] = (tokens[wrong] + 1) % n_vocab
        return tokens

    return Scripted(draft)


class Recorder:
    """Keeps a digest of each emitted token's logits, in order."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        verify = Decoder._verify

        def recording(decoder, request, draft):
            verdict = verify(decoder, request, draft)
            rows = decoder.memory.context.logits(decoder.memory.first_row, len(verdict.tokens))
            self.rows += [row.tobytes() for row in rows]
            return verdict

        Decoder._verify = recording

    def take(self) -> list[bytes]:
        """The rows since the last call."""
        rows, self.rows = self.rows, []
        return rows


def check(path: str, n_context: int, n_tokens: int, n_threads: int, recorder: Recorder) -> str:
    """One line about one model at one length of context."""
    n_ctx = n_context + n_tokens + 16
    with pyspec.Llama(path, n_ctx=n_ctx, n_threads=n_threads, exact=True, budget="off", spec=None) as llm:
        prompt = np.random.default_rng(1).integers(1, llm.n_vocab, n_context).tolist()
        how = {"max_tokens": n_tokens, "ignore_eos": True}
        recorder.take()
        plain = llm.generate(prompt, spec=None, **how)
        expected = recorder.take()
        fast = llm.generate(prompt, spec=mixed(plain.tokens, n_context, llm.n_vocab), **how)
        rows = recorder.take()
        widths = llm._decoder.memory.widths
        equal = sum(a == b for a, b in zip(expected, rows, strict=True))
        verdict = "EQUAL" if plain.tokens == fast.tokens and equal == len(expected) else "DIFFERENT"
        s = fast.stats
        return (
            f"{verdict}: {equal} of {len(expected)} rows of {llm.n_vocab} logits; {s.n_rollbacks} rollbacks by "
            f"{s.rollback}, {s.n_accepted} of {s.n_drafted} accepted; pad {widths.pad}, widths to {widths.width_max}"
        )


def main() -> int:
    """Check every model at every length; 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="GGUF files, or names that `pyspec models` lists")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--contexts", default="64,3500", help="lengths of prompts")
    parser.add_argument("-t", "--threads", type=int, default=0)
    args = parser.parse_args()
    recorder, failed = Recorder(), False
    for path in args.models:
        for n_context in map(int, args.contexts.split(",")):
            start = time.perf_counter()
            try:
                line = check(path, n_context, args.tokens, args.threads, recorder)
            except UnsupportedError as refusal:
                line = f"REFUSED: {refusal}"
            failed |= line.startswith("DIFFERENT")
            print(f"{Path(path).name}, {n_context} before: {line} ({time.perf_counter() - start:.0f} s)", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
