"""Workloads of the drafting benchmark: what people let models write, from all repeated to nothing.

Owns their names; each file owns the words of one. All of them are written for this benchmark.
"""

from __future__ import annotations

from pyspec._core import Vocab
from pyspec.bench.workloads import agent, code_completion, code_rewrite, json_records, prose, summary, translation
from pyspec.bench.workloads.workload import Passage, Workload, random_passage
from pyspec.errors import InvalidValueError, UnknownOptionError

__all__ = ["RANDOM", "Passage", "Workload", "names", "passages"]

RANDOM = "random"
"""The workload of token ids drawn at random, which any vocabulary has."""

_ABOUT_RANDOM = "tokens drawn at random"
_N_PROMPT_RANDOM, _N_TOKENS_RANDOM = 256, 400

_TABLE = {
    name: Workload(name=name, about=about, prompt=module.PROMPT, continuation=module.CONTINUATION)
    for name, about, module in (
        ("code-rewrite", "a file again, with three small changes", code_rewrite),
        ("code-completion", "more methods like those before", code_completion),
        ("json", "more records with the same keys", json_records),
        ("summary", "new words and quoted sentences", summary),
        ("translation", "sentences copied, each with its translation", translation),
        ("agent", "errors quoted, a file and its tests written again", agent),
        ("prose", "a story, nothing comes twice", prose),
    )
}


def names(*, has_text: bool = True) -> tuple[str, ...]:
    """All workloads, or those that a vocabulary without text has."""
    return (*_TABLE, RANDOM) if has_text else (RANDOM,)


def _get(name: str) -> Workload:
    if name not in _TABLE:
        raise UnknownOptionError(name=name, known=names(), where="workload")
    return _TABLE[name]


def passages(wanted: tuple[str | Workload, ...], vocab: Vocab, *, n_tokens: int, seed: int) -> list[Passage]:
    """The token ids of each workload; none `wanted` means all that the vocabulary has.

    Args:
        wanted: names, or workloads of one's own.
        vocab: the model's.
        n_tokens: of the random continuation, which has 400 at most.
        seed: of the random ids.

    Raises:
        UnknownOptionError: no such workload.
        VocabularyMissingError: a text for a vocabulary without text.
        InvalidValueError: a workload of one's own that is too short, or two of one name.
    """
    found = []
    for one in dict.fromkeys(wanted or names(has_text=vocab.has_text)):
        if one == RANDOM:
            shape = {"n_prompt": _N_PROMPT_RANDOM, "n_tokens": min(n_tokens, _N_TOKENS_RANDOM)}
            found.append(random_passage(RANDOM, _ABOUT_RANDOM, vocab.n_tokens, **shape, seed=seed))
        else:
            found.append((_get(one) if isinstance(one, str) else one).passage(vocab))
    if len({passage.name for passage in found}) < len(found):
        called = [passage.name for passage in found]
        raise InvalidValueError(name="workloads", value=called, allowed="workloads of different names")
    return found
