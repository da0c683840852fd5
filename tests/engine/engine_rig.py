"""Requests with known answers, and speculators that are often wrong, for tests of many sequences at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyspec import Llama
from pyspec.speculators import History, Scripted

#: One of each way in which memory is built; "tiny" is a trained hybrid.
#: The last three can do less: not share, not batch several tokens of each, not choose rows of a batch.
KINDS = "llama gemma3 mamba2 rwkv7 lfm2 qwen35 falcon-h1 granitehybrid tiny deepseek4 arwkv7 cogvlm".split()
N_TOKENS = 24
ANY = {"max_tokens": N_TOKENS, "ignore_eos": True}


def each_round(act: Callable[[int, History], object]) -> Scripted:
    """Drafts nothing; `act` is called with the number of the round behind the prompt's, and the text."""
    n_rounds = [0]

    def draft(history: History, n_max: int) -> list[int]:
        n_rounds[0] += 1
        act(n_rounds[0], history)
        return []

    return Scripted(draft)


class Hold:
    """Stops an engine's thread: `spec` in round `n` of its request, where `n` + 1 tokens are decided with its end.

    `release` lets it go on; at the end of a with block that is done.
    """

    def __init__(self, n: int = 3) -> None:
        self._reached, self._go_on = threading.Event(), threading.Event()
        self.spec = each_round(lambda now, _: self.on_progress(0, 0) if now == n else None)

    def on_progress(self, n_done: int, n_total: int) -> None:
        """Stops it at once."""
        self._reached.set()
        assert self._go_on.wait(60)

    def wait(self) -> None:
        """Until it is stopped."""
        assert self._reached.wait(60)

    def release(self) -> None:
        self._go_on.set()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Answers:
    """Prompts with what plain decoding says to each when nobody else is there."""

    def __init__(self, path: Path, n_prompts: int, *, n_tokens: int = N_TOKENS) -> None:
        rng = np.random.default_rng(5)
        with Llama(path, n_ctx=256, n_threads=1, spec=None) as llm:
            self.prompts = [rng.integers(1, llm.n_vocab, int(rng.integers(3, 40))).tolist() for _ in range(n_prompts)]
            made = [llm.generate(p, max_tokens=n_tokens, ignore_eos=True) for p in self.prompts]
        self.tokens = [one.tokens for one in made]

    def misleading(self, seed: int) -> Scripted:
        """Drafts of 0 to 6 tokens of the right answer, most with a wrong one; it knows all answers."""
        rng = np.random.default_rng(seed)

        def draft(history: History, n_max: int) -> list[int]:
            text = history.view().tolist()
            for prompt, answer in zip(self.prompts, self.tokens, strict=True):
                if text[: len(prompt)] == prompt:
                    at = len(text) - len(prompt)
                    tokens = answer[at : at + min(n_max, int(rng.integers(0, 7)))]
                    if tokens and rng.random() < 0.6:
                        wrong = int(rng.integers(0, len(tokens)))
                        tokens[wrong] = (tokens[wrong] + 1) % 100
                    return tokens
            return []

        return Scripted(draft)
