"""suffix: drafts what most often followed the longest end of the history that was seen before.

Owns which tokens are proposed, how many, and what verdicts change about that; `suffix_index` finds the occurrences and
`suffix_corpus` remembers earlier outputs. After SuffixDecoding (Oliaro et al. 2024, arXiv:2411.04975); what differs is
told at the class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pyspec.config import between, int_between, validate
from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators.history import History, Tokens, as_tokens
from pyspec.speculators.protocol import check_kind, check_verdict
from pyspec.speculators.suffix_corpus import CORPUS_TOKENS, MAX_DEPTH, SuffixCorpus
from pyspec.speculators.suffix_index import END, SuffixIndex

__all__ = ["Suffix", "SuffixOptions", "most_frequent_path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixOptions:
    """What is looked for, and how much of what followed it is drafted.

    `n_match_min` to `max_depth` tokens must have been seen before. A draft has at most `n_max` tokens, at most `factor`
    times the tokens that matched (but one in any case), and ends where fewer than `p_min` of the counted occurrences
    went on like it. The latest `n_counted` occurrences count. `corpus_tokens` of earlier outputs are remembered.

    Raises:
        InvalidValueError: out of range, or `n_match_min` > `max_depth`.
    """

    n_match_min: int = 2
    n_max: int = 64
    factor: float = 2.0
    p_min: float = 0.3
    max_depth: int = 64
    n_counted: int = 8
    corpus_tokens: int = 65_536

    _CHECKS: ClassVar[dict[str, Any]] = {
        "n_match_min": int_between(1, 1024),
        "n_max": int_between(0, 1024),
        "factor": between(0, 1024),
        "p_min": between(0, 1),
        "max_depth": MAX_DEPTH,
        "n_counted": int_between(1, 65_536),
        "corpus_tokens": CORPUS_TOKENS,
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)
        if self.n_match_min > self.max_depth:
            allowed = f"at most max_depth={self.max_depth}"
            raise InvalidValueError(name="n_match_min", value=self.n_match_min, allowed=allowed)


class Suffix:
    """Speculator of one sequence over its own text and a corpus of earlier outputs, its own or a shared one.

    The longest end of the history that occurred before, in the text or in the corpus, is the match; all its latest
    occurrences vote on the next token, those that agree on the one after it, and so on. The later occurrence wins
    among equal counts, the text's before the corpus's. An occurrence so near that it runs into the end of the text
    votes for repeating that period. (The paper keeps two suffix trees, counts all occurrences, compares drafts of
    several match lengths and may propose a tree.)

    A draft that was not right to its end shortens the next ones after a match of about that length (the same power of
    two), half-way to what was right; one that was right doubles them again.

    What the target said enters the corpus at the next `begin`, as far as `draft` had seen it.

    Raises:
        InvalidValueError: `corpus` has another `max_depth` than `options`.
    """

    name = "suffix"

    def __init__(self, options: SuffixOptions | None = None, *, corpus: SuffixCorpus | None = None) -> None:
        self.options = options = options or SuffixOptions()
        if corpus is not None and corpus.max_depth != options.max_depth:
            allowed = f"that of the corpus, {corpus.max_depth}"
            raise InvalidValueError(name="max_depth", value=options.max_depth, allowed=allowed)
        self._shared = corpus
        if corpus is None:
            corpus = SuffixCorpus(options.max_depth, n_tokens_max=options.corpus_tokens)
        self._corpus = corpus
        self._text = SuffixIndex(options.max_depth)
        self._n_prompt = 0  # what follows in the text is output
        self._epoch: int | None = None
        self.match_length = 0
        self._limits = [options.n_max] * (options.max_depth.bit_length() + 1)  # by bit length of the match length
        self._open: int | None = None  # index of the limit that the open draft may change

    @property
    def corpus(self) -> SuffixCorpus:
        """The corpus in use: the shared one unless a state took its place."""
        return self._corpus

    @property
    def nbytes(self) -> int:
        """Bytes of the text's index and of the corpora: at most 24 a token, 64 an output, and some KiB."""
        shared = self._shared
        beside = shared.nbytes if shared is not None and shared is not self._corpus else 0
        return self._text.nbytes + self._corpus.nbytes + beside

    def begin(self, tokens: Tokens) -> None:
        """Remember the output of the generation before, and read the prompt; what both texts begin with stays read."""
        tokens = as_tokens(tokens)
        output = self._text.tokens()[self._n_prompt :]
        if self._shared is not None:
            self._corpus = self._shared
        self._corpus.add(output)
        self._open = None
        self._epoch = None
        self._n_prompt = len(tokens)
        self._align(tokens)

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """What most often followed the longest match, at most `n_max` tokens; none where nothing matched."""
        self._open = None
        self._read_new(history)
        n_max = min(n_max, self.options.n_max)
        if n_max <= 0:
            return []
        length, continuations = self._find(n_max)
        self.match_length = length
        if not continuations:
            return []
        draft = most_frequent_path(continuations, self.options.p_min)
        self._open = length.bit_length() if draft else None
        return draft

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Learn from the verdict on one's own draft how long the next one after such a match may be."""
        check_verdict(n_drafted, n_accepted)
        limit, self._open = self._open, None
        if not own or limit is None:
            return
        if n_accepted == n_drafted:
            self._limits[limit] = min(self.options.n_max, max(self._limits[limit], 2 * n_drafted))
        else:
            self._limits[limit] = max(1, (n_drafted + n_accepted) // 2)

    def get_state(self) -> dict[str, Any]:
        """The text [n_tokens] and where its output begins, the corpus (arrays [n_tokens]), and the learned lengths."""
        return {
            "kind": self.name,
            "text": self._text.tokens(),
            "n_prompt": self._n_prompt,
            "corpus": self._corpus.outputs(),
            "limits": list(self._limits),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved speculator did; in place of a shared corpus, from a private one until `begin`.

        Raises:
            StateError: of another kind, of a `max_depth` with more or fewer limits, or damaged; nothing was changed.
        """
        check_kind(state, self.name)
        try:
            outputs = [as_tokens(output) for output in state["corpus"]]
            text, n_prompt = as_tokens(state["text"]), int(state["n_prompt"])
            limits = [int(limit) for limit in state["limits"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StateError(reason=f"no suffix state: {error!r}") from error
        if len(limits) != len(self._limits) or min(limits) < min(1, self.options.n_max):
            raise StateError(reason=f"draft lengths {limits}, here are {len(self._limits)} of at least 1")
        if any((tokens < 0).any() for tokens in (text, *outputs)):
            raise StateError(reason="a token below 0")
        if not 0 <= n_prompt <= len(text):
            raise StateError(reason=f"n_prompt={n_prompt} of {len(text)} tokens")
        self._corpus = SuffixCorpus(self.options.max_depth, n_tokens_max=self._corpus.n_tokens_max)
        self._corpus.add(*outputs)
        self._text.clear()
        self._text.extend(text)
        self._n_prompt = n_prompt
        self._limits = [min(limit, self.options.n_max) for limit in limits]
        self._open = None
        self._epoch = None

    # ------------------------------------------------------------- finding

    def _find(self, n_max: int) -> tuple[int, list[bytearray]]:
        """Length of the match, and what followed its occurrences as far as a draft may go; none without a match."""
        options, text, corpus = self.options, self._text, self._corpus.index
        key = text.context(text.n_tokens)
        in_text, place = text.match()
        in_corpus, corpus_place = corpus.match(key) if self._corpus.n_tokens else (0, 0)
        length = max(in_text, in_corpus)
        if length < options.n_match_min:
            return length, []
        n_draft = min(n_max, self._limits[length.bit_length()], max(1, int(options.factor * length)))
        found: list[bytearray] = []
        if in_text == length:
            ends = text.occurrences(key, length, place, options.n_counted)
            found += [text.continuation(end, n_draft) for end in ends]
        if in_corpus == length and len(found) < options.n_counted:
            ends = corpus.occurrences(key, length, corpus_place, options.n_counted - len(found))
            found += [corpus.continuation(end, n_draft) for end in ends]
        return length, found

    # ------------------------------------------------------------- reading

    def _read_new(self, history: History) -> None:
        n_seen = self._text.n_tokens
        if history.epoch == self._epoch and len(history) >= n_seen:
            if len(history) > n_seen:
                self._text.extend(history.view()[n_seen:])
            return
        self._epoch = history.epoch
        self._n_prompt = min(self._n_prompt, self._align(history.view()))

    def _align(self, tokens: Tokens) -> int:
        """Make the text `tokens`; returns how many of its first tokens were the same."""
        known = self._text.tokens()[: len(tokens)]
        differing = np.flatnonzero(known != tokens[: len(known)])
        n_same = int(differing[0]) if len(differing) else len(known)
        self._text.truncate(n_same)
        self._text.extend(tokens[n_same:])
        return n_same


def most_frequent_path(continuations: Sequence[bytearray], p_min: float) -> list[int]:
    """Token by token what most of those that agree so far go on with; the first of equals wins.

    Args:
        continuations: What followed each occurrence, one or more of equal length, as `SuffixIndex.continuation` has it.
        p_min: Ends the path where fewer than this share of all agree; so does the end of an output.
    """
    # the first token is the lowest 32 bits: the lowest bit that differs tells how far all agree
    rows = [int.from_bytes(row, "big") for row in continuations]
    n_needed, n_path = p_min * len(rows), len(continuations[0]) // 4
    while len(rows) > 1:
        differing = 0
        for row in rows:
            differing |= row ^ rows[0]
        if not differing:
            break
        n_same = ((differing & -differing).bit_length() - 1) // 32
        column = [row >> (32 * n_same) & 0xFFFFFFFF for row in rows]
        counts = Counter(column)
        counts.pop(END + 1, None)
        best = max(counts, key=counts.__getitem__)
        if counts[best] < n_needed:
            n_path = n_same
            break
        rows = [row for row, token in zip(rows, column, strict=True) if token == best]
    cells = np.frombuffer(rows[0].to_bytes(len(continuations[0]), "little"), "<u4", n_path)
    path: list[int] = (cells.astype(np.int64) - 1).tolist()
    return path[: path.index(END)] if END in path else path
