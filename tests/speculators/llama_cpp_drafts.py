"""llama.cpp's own n-gram speculators beside ours: the same tokens, and what each of them drafts.

Owns the process of `ngram-drafts` (scripts/test_models/ngram_drafts.cpp) and the play of a text; leaves judging what
differs to the tests.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspec.speculators import History, as_tokens, make

N_VOCAB = 2**31 - 1
N_MAX = 1024


class LlamaCpp:
    """A running `ngram-drafts`."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(60) == 0, "a clean end"

    def tell(self, *words: object) -> None:
        """Give a command that prints nothing; lists are spelled out."""
        assert self._process.stdin is not None
        spelled = (" ".join(map(str, word)) if isinstance(word, list) else str(word) for word in words)
        self._process.stdin.write(" ".join(spelled) + "\n")

    def ask(self, *words: object) -> Any:
        """Give a command and read its line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.tell(*words)
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "ngram-drafts ended"
        return json.loads(line)

    def open(self, name: str, options: dict[str, Any], *, n_seq: int = 1) -> None:
        """Start a speculator anew."""
        self.tell("open", name, n_seq, *(f"{option}={value}" for option, value in options.items()))

    def draft(self, seq_id: int = 0, n_max: int = N_MAX) -> list[int]:
        """What it drafts after the tokens so far."""
        drafted: list[int] = self.ask("draft", seq_id, n_max)
        return drafted


@dataclass(frozen=True)
class Round:
    """What both drafted after `tokens`, and how much of it was right."""

    tokens: list[int]
    ours: list[int]
    theirs: list[int]
    n_right_ours: int
    n_right_theirs: int


def spec(name: str, options: dict[str, Any]) -> str:
    """Our spelling of a speculator with options."""
    return f"{name}:{','.join(f'{option}={value}' for option, value in options.items())}"


def n_right(draft: list[int], coming: list[int]) -> int:
    """Tokens of a draft that come, up to the first that does not."""
    n = 0
    while n < min(len(draft), len(coming)) and draft[n] == coming[n]:
        n += 1
    return n


def play(
    llama_cpp: LlamaCpp, name: str, options: dict[str, Any], tokens: list[int], steps: Iterable[int], *, judged: bool
) -> Iterator[Round]:
    """Let `tokens` arrive, a prompt first and then `steps` tokens at a time, and have both draft after each step.

    With `judged` each hears how much of its own draft was right.
    """
    speculator = make(spec(name, options), n_vocab=N_VOCAB)
    assert speculator is not None
    steps = iter(steps)
    pos = next(steps)
    speculator.begin(as_tokens(tokens[:pos]))
    history = History(tokens[:pos])
    llama_cpp.open(name, options)
    llama_cpp.tell("begin", 0, tokens[:pos])
    for step in steps:
        arrived = tokens[pos : pos + step]
        if not arrived:
            return
        pos += len(arrived)
        history.extend(arrived)
        llama_cpp.tell("extend", 0, arrived)
        ours, theirs = list(speculator.draft(history, N_MAX)), llama_cpp.draft()
        rights = n_right(ours, tokens[pos:]), n_right(theirs, tokens[pos:])
        if judged and ours:
            speculator.accept(len(ours), rights[0], own=True)
        if judged and theirs:
            llama_cpp.tell("accept", 0, rights[1])
        yield Round(tokens[:pos], ours, theirs, *rights)


def small_steps(n_prompt: int, rng: random.Random) -> Iterator[int]:
    """A prompt, then what rounds add: mostly one token, sometimes many."""
    yield n_prompt
    while True:
        yield rng.choice([1, 1, 1, 2, 3, 5, 9])
