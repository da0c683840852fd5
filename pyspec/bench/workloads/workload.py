"""What a workload is: a text to go on from, and how it goes on.

Owns the type, the token ids of a workload in a vocabulary, and those that are drawn at random.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pyspec._core import Vocab
from pyspec.arguments import text_tokens
from pyspec.errors import InvalidValueError, VocabularyMissingError
from pyspec.speculators import Tokens

__all__ = ["Passage", "Workload", "flow", "random_passage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A prompt and a continuation as people or models would write it.

    Attributes:
        name: how options and reports call it.
        about: what repeats in it.
        prompt, continuation: texts; the second goes on where the first one ends.
    """

    name: str
    about: str
    prompt: str
    continuation: str

    def passage(self, vocab: Vocab) -> Passage:
        """Token ids of both in `vocab`.

        The text is tokenized as one; the continuation begins where the tokens of the prompt alone are left. What looks
        like a special token is text here.

        Raises:
            VocabularyMissingError: a vocabulary without text.
            InvalidValueError: a prompt of no tokens, or a continuation of fewer than two.
        """
        if not vocab.has_text:
            raise VocabularyMissingError(what=f"workload {self.name!r}")
        alone = text_tokens(vocab, self.prompt, name="prompt", parse_special=False)
        whole = text_tokens(vocab, self.prompt + self.continuation, name="prompt", parse_special=False)
        n_common = min(len(alone), len(whole))
        differing = np.flatnonzero(alone[:n_common] != whole[:n_common])
        n_prompt = int(differing[0]) if len(differing) else n_common
        if n_prompt < 1 or len(whole) - n_prompt < 2:
            allowed = "a prompt of at least one token and a continuation of at least two"
            raise InvalidValueError(name=f"workload {self.name}", value=whole.tolist()[:4], allowed=allowed)
        return Passage(self.name, self.about, whole[:n_prompt].copy(), whole[n_prompt:].tolist())


@dataclass(frozen=True, slots=True)
class Passage:
    """A workload in token ids.

    Attributes:
        name, about: the workload's.
        prompt: [n_prompt].
        continuation: at least two.
    """

    name: str
    about: str
    prompt: Tokens
    continuation: list[int]


def random_passage(name: str, about: str, n_vocab: int, *, n_prompt: int, n_tokens: int, seed: int) -> Passage:
    """Ids drawn evenly from the vocabulary."""
    drawn = np.random.default_rng(seed).integers(0, n_vocab, n_prompt + n_tokens).astype(np.int32)
    return Passage(name, about, drawn[:n_prompt].copy(), drawn[n_prompt:].tolist())


def flow(text: str) -> str:
    """`text` with the lines of each paragraph joined to one."""
    return re.sub(r"(?<!\n)\n(?!\n|$)", " ", text)
