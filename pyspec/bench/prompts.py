"""Prompts of an exact number of tokens, so that runs start from equally full memory.

Owns how a text is stretched or cut, and what stands in for it where the vocabulary has no text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyspec._core import Vocab
from pyspec.arguments import prompt_tokens
from pyspec.errors import InvalidValueError
from pyspec.speculators import Tokens

__all__ = ["prompt_of"]


def prompt_of(vocab: Vocab, prompt: str | Sequence[int] | None, n_tokens: int) -> Tokens:
    """`prompt` as exactly `n_tokens` (at least 1) token ids, repeated or cut; random ids for None.

    A text's special tokens stand only at the start. A text for a vocabulary without text counts as None.

    Raises:
        InvalidValueError: a prompt of no tokens. TokenRangeError: an id outside the vocabulary.
    """
    if prompt is None or (isinstance(prompt, str) and not vocab.has_text):
        return np.random.default_rng(1).integers(0, vocab.n_tokens, n_tokens).astype(np.int32)
    first = prompt_tokens(vocab, prompt)
    again = vocab.tokenize(prompt, add_special=False) if isinstance(prompt, str) else first
    if not len(first) or not len(again):
        raise InvalidValueError(name="prompt", value=prompt, allowed="a prompt of at least one token")
    n_times = max(0, n_tokens - len(first)) // len(again) + 1
    return np.concatenate([first, *[again] * n_times])[:n_tokens]
