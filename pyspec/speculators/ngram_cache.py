"""ngram-cache: drafts the token that most often followed the last one to four, while it is frequent enough.

Owns the rules of choosing from three sources: the present text, a dynamic table of earlier texts and a static one of a
corpus; and what of the present text enters the dynamic table. `ngram_trie` counts the text, `ngram_table` holds the
tables. Rules, thresholds and file format as in llama.cpp (common/ngram-cache.cpp, examples/lookup).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pyspec.config import int_between, validate
from pyspec.errors import InvalidValueError, StateError
from pyspec.speculators.history import History, Tokens, as_tokens, n_common
from pyspec.speculators.ngram_table import N_MAX, NgramTable
from pyspec.speculators.ngram_trie import NgramTrie
from pyspec.speculators.protocol import check_kind, check_verdict

__all__ = ["N_WEIGHED", "NgramCache", "NgramCacheOptions"]

# by length of the n-gram, from one token on: how often it must have been seen, and the share of the drafted token in %
_LAX = ((2, 66), (2, 50), (1, 50), (1, 50))
_STRICT = ((4, 75), (3, 66), (2, 66), (2, 66))
_N_STATIC = 2  # tokens of the n-grams of the static table that are looked up
_STATIC_WEIGHT = 100  # what one sight in the static table weighs
N_WEIGHED = 32  # most frequent followers in a table that are looked at: bounds the time of a draft
_BULK = 384  # from so many new tokens on, numpy is faster than the loop
_TOKEN = 0xFFFFFFFF

Weights = dict[int, int]  # of tokens that the static table knows here, the heaviest first; others weigh 1


def _is_path(value: object) -> bool:
    return value is None or (isinstance(value, (str, os.PathLike)) and os.fspath(value) != "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramCacheOptions:
    """Most tokens of a draft `n_draft`; files of the `static` and the `dynamic` table, read at the start.

    llama.cpp: --lookup-cache-static and --lookup-cache-dynamic, and 8 for `n_draft`, which has no flag there.

    Raises:
        InvalidValueError: out of range, or no path.
    """

    n_draft: int = 8
    static: str | os.PathLike[str] | None = None
    dynamic: str | os.PathLike[str] | None = None

    _CHECKS: ClassVar[dict[str, Any]] = {
        "n_draft": int_between(1, 1024),
        "static": (_is_path, "the path of a lookup cache, or None"),
        "dynamic": (_is_path, "the path of a lookup cache, or None"),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)


class NgramCache:
    """Speculator of one sequence over its own text, a dynamic and a static table, asked in this order.

    Token after token: for n-grams of four tokens down to one, the text's most frequent follower (the later one of two)
    is drafted if the n-gram was seen often enough and the follower has a large enough share of it; if the text has
    none, the same with stricter limits from the dynamic table, and last what followed the last two tokens in the
    static table. Where the static table knows followers of the last two tokens, these count 100 times what it saw
    in the choice among the others' followers; of the tables, the 32 most frequent followers are looked at.

    The text's counts are of the history alone and start anew with each `begin`. `remember` adds them to the dynamic
    table, `save` does so and writes it; nothing else changes it. Verdicts change nothing. (llama.cpp's server counts a
    text in pieces, one a round, without what reaches across them; keeps counting through `begin`; never saves; and
    lets the order of its hash table choose between equal counts.)

    Args:
        options: `NgramCacheOptions`, by default without tables.
        static: a table in place of the option's file; may be shared by speculators.
        dynamic: the same for earlier texts; not changed, `remember` makes a new one.
        n_vocab: tables with other tokens are refused, if given.

    Raises:
        InvalidValueError: a table and a file of the same kind.
        StateError: a file that cannot be read, is damaged or foreign, or a table of a larger vocabulary.
    """

    name = "ngram-cache"
    match_length: int
    """Tokens of the n-gram that gave the last draft's first token; 0 for one of a table, or without a draft."""

    def __init__(
        self,
        options: NgramCacheOptions | None = None,
        *,
        static: NgramTable | None = None,
        dynamic: NgramTable | None = None,
        n_vocab: int | None = None,
    ) -> None:
        self.options = options = options or NgramCacheOptions()
        self._static = _table("static", static, options.static, n_vocab)
        self._dynamic = _table("dynamic", dynamic, options.dynamic, n_vocab)
        self._trie = NgramTrie(N_MAX)
        self.match_length = 0
        self._epoch: int | None = None
        self._text: History | Tokens = np.empty(0, np.int32)
        self._remembered: Tokens = np.empty(0, np.int32)  # the text as it was when it entered the dynamic table

    @property
    def dynamic(self) -> NgramTable:
        """Counts of earlier texts, as far as they were remembered."""
        return self._dynamic

    @property
    def static(self) -> NgramTable:
        """Counts of a corpus."""
        return self._static

    @property
    def nbytes(self) -> int:
        """Bytes held: about 100 to 300 a token of text, and the tables (`static` may be shared)."""
        own_text = 0 if isinstance(self._text, History) else self._text.nbytes
        tables = self._static.nbytes + self._dynamic.nbytes
        return self._trie.nbytes + tables + own_text + self._remembered.nbytes

    # ------------------------------------------------------------- the present text

    def begin(self, tokens: Tokens) -> None:
        """Count the prompt, forgetting the text before it but for what was remembered of it."""
        prompt = as_tokens(tokens)
        self._text = prompt.copy()
        self._epoch = None
        self._trie.clear()
        self._trie.read_all(prompt)

    def _follow(self, history: History) -> None:
        trie, epoch, n_new = self._trie, history.epoch, len(history) - self._trie.n_tokens
        if n_new < 0 or self._epoch not in (None, epoch):
            trie.clear()
            n_new = len(history)
        self._epoch = epoch
        self._text = history
        if n_new >= _BULK:
            trie.read_all(history.tail(n_new))
        elif n_new:
            trie.read(history.tail(n_new).tolist())

    def remember(self) -> None:
        """Add the present text to the dynamic table: all tokens decided so far, each once.

        What the text has in common with the one remembered before, from its start on, does not count again.
        """
        text = self._text.view() if isinstance(self._text, History) else self._text
        n_known = n_common(self._remembered, text)
        if n_known < len(text):
            self._dynamic = self._dynamic.merge(NgramTable.from_tokens(text, n_known=n_known))
            self._remembered = text.copy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Remember the present text and write the dynamic table, for `dynamic` or llama.cpp's --lookup-cache-dynamic.

        Raises:
            StateError: it cannot be written; names the file. An older file is as it was.
        """
        self.remember()
        self._dynamic.save(path)

    # ------------------------------------------------------------- drafting

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """Tokens chosen one after the other, at most `n_max` and `n_draft`; ends where none is frequent enough."""
        self._follow(history)
        n_draft, trie = min(n_max, self.options.n_draft), self._trie
        draft: list[int] = []
        self.match_length = 0
        if n_draft <= 0 or len(history) < _N_STATIC:
            return draft
        node, depth, ends = trie.last, trie.depth, self._trie.ends()
        window: list[int] = history.tail(N_MAX).tolist()
        has_static, has_tables = self._static.n_ngrams > 0, self._static.n_ngrams + self._dynamic.n_ngrams > 0
        while True:
            weights = self._weights(window) if has_static else None
            child = self._from_text(node, depth, ends, weights)
            if child:
                token = trie.keys[child] & _TOKEN
                self.match_length = self.match_length if draft else trie.length(child) - 1
            else:
                token = self._from_tables(window, weights) if has_tables else -1
                if token < 0:
                    return draft
            draft.append(token)
            if len(draft) == n_draft:
                return draft
            node, depth = self._step(node, depth, token)
            if has_tables:
                window = [*window[1 - N_MAX :], token]

    def _from_text(self, node: int, depth: int, ends: list[int], weights: Weights | None) -> int:
        """The run of the text that ends with the chosen token, 0 where none is frequent enough."""
        trie = self._trie
        while node:
            best, total = trie.best[node], trie.counts[node]
            if node in ends:
                total -= 1
            n_seen, percent = _LAX[depth - 1]
            # a token with such a share is the most frequent one, or as frequent as it
            if total >= n_seen and 100 * trie.counts[best] >= percent * total:
                if weights and trie.counts[best] < total:
                    best = self._heaviest(node, best, total - trie.counts[best], weights)
                if 100 * trie.counts[best] >= percent * total:
                    return best
            node, depth = trie.suffixes[node], depth - 1
        return 0

    def _heaviest(self, node: int, best: int, n_others: int, weights: Weights) -> int:
        """Of the followers of `node`, seen `n_others` times but for `best`, that of the highest count times weight."""
        trie = self._trie
        n_best = trie.counts[best]
        highest = n_best * weights.get(trie.keys[best] & _TOKEN, 1)
        n_others = min(n_best, n_others)  # as often at most was any of them seen
        for token, weight in weights.items():
            if n_others * weight <= highest:
                break
            child = trie.child(node, token)
            if child and trie.counts[child] * weight > highest:
                best, highest = child, trie.counts[child] * weight
        return best

    def _step(self, node: int, depth: int, token: int) -> tuple[int, int]:
        """The longest run of the text that the history and the draft end with, and its length."""
        trie = self._trie
        while True:
            child = trie.child(node, token)
            if child:
                return (child, depth + 1) if depth < N_MAX else (trie.suffixes[child], depth)
            if not node:
                return 0, 0
            node, depth = trie.suffixes[node], depth - 1

    def _weights(self, window: list[int]) -> Weights | None:
        found = self._static.find(window[-_N_STATIC:])
        if found < 0:
            return None
        tokens, counts, _ = self._static.followers(found, N_WEIGHED)
        return {token: _STATIC_WEIGHT * count for token, count in zip(tokens, counts, strict=True)}

    def _from_tables(self, window: list[int], weights: Weights | None) -> int:
        """The token chosen from the dynamic table, or from the static one, or -1."""
        for n in range(len(window) if self._dynamic.n_ngrams else 0, 0, -1):
            token = _frequent(self._dynamic, window[-n:], _STRICT[n - 1], weights)
            if token >= 0:
                return token
        return _frequent(self._static, window[-_N_STATIC:], _LAX[_N_STATIC - 1], None) if weights else -1

    # ------------------------------------------------------------- verdicts, state

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Change nothing."""
        check_verdict(n_drafted, n_accepted)

    def get_state(self) -> dict[str, Any]:
        """The dynamic table's rows and the text remembered last; the history gives the counts of the text.

        The static table stays outside: it belongs to the options and never changes.
        """
        rows = dict(zip(("ngrams", "tokens", "counts"), self._dynamic.rows, strict=True))
        return {"kind": self.name, "dynamic": rows, "remembered": self._remembered.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved speculator did, from the history given to the next `draft`.

        Raises:
            StateError: of another kind, or damaged; nothing was changed.
        """
        check_kind(state, self.name)
        try:
            dynamic, remembered = NgramTable(**state["dynamic"]), as_tokens(state["remembered"])
        except (KeyError, TypeError, InvalidValueError) as error:
            raise StateError(reason=f"no {self.name} state: {error!r}") from error
        self._dynamic, self._remembered = dynamic, remembered.copy()
        self._epoch = None
        self._text = np.empty(0, np.int32)
        self._trie.clear()


def _table(name: str, table: NgramTable | None, path: str | os.PathLike[str] | None, n_vocab: int | None) -> NgramTable:
    if table is not None and path is not None:
        raise InvalidValueError(name=name, value=path, allowed="a table or a file, not both")
    loaded = table if table is not None else NgramTable() if path is None else NgramTable.load(path)
    if n_vocab is not None and loaded.token_max >= n_vocab:
        whose = f"{os.fspath(path)!r}" if path is not None else "the table"
        raise StateError(reason=f"{name} {whose} has token {loaded.token_max}, the vocabulary ends at {n_vocab - 1}")
    return loaded


def _frequent(table: NgramTable, ngram: list[int], limits: tuple[int, int], weights: Weights | None) -> int:
    """The heaviest follower of `ngram` in a table, the lower token of two, or -1 where it is not frequent enough."""
    found = table.find(ngram)
    if found < 0:
        return -1
    tokens, counts, total = table.followers(found, N_WEIGHED)
    n_seen, percent = limits
    if total < n_seen or 100 * counts[0] < percent * total:
        return -1
    best = 0
    if weights:
        best = max(range(len(tokens)), key=lambda i: counts[i] * weights.get(tokens[i], 1))
    return tokens[best] if 100 * counts[best] >= percent * total else -1
