"""One seed gives one text, with and without speculation, whatever chooses the tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from decoder_rig import PATTERNS, Subject, drafts_from

from pyspec.speculators import NgramMod, NgramModOptions

N_TOKENS = 24
GRAMMAR = 'root ::= item+\nitem ::= [a-z ]+ "(" [a-z, ]* ")" "\\n"'

LAWS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.8, "seed": 7},
    "top-k": {"temperature": 1.2, "top_k": 5, "top_p": 1.0, "min_p": 0.0, "seed": 8},
    "top-p": {"temperature": 1.0, "top_k": 0, "top_p": 0.8, "min_p": 0.0, "seed": 9},
    "min-p": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.2, "seed": 10},
    "typical": {"temperature": 1.0, "typical_p": 0.7, "seed": 11},
    "dynatemp": {"temperature": 0.9, "dynatemp_range": 0.4, "seed": 12},
    "penalties": {
        "temperature": 0.8,
        "repeat_penalty": 1.3,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "penalty_last_n": 16,
        "seed": 13,
    },
    "greedy-penalties": {"repeat_penalty": 1.4, "penalty_last_n": 20},
    "mirostat-1": {"temperature": 0.9, "mirostat": 1, "seed": 14},
    "mirostat-2": {"temperature": 0.9, "mirostat": 2, "seed": 15},
    "xtc": {"temperature": 0.9, "xtc_probability": 0.5, "xtc_threshold": 0.05, "seed": 16},
    "dry": {"temperature": 0.8, "dry_multiplier": 0.8, "dry_allowed_length": 1, "seed": 17},
    "grammar": {"temperature": 0.8, "grammar": GRAMMAR, "seed": 18},
    "greedy-grammar": {"grammar": GRAMMAR},
}

subjects = pytest.mark.parametrize("subject_name", ["tiny", "smollm2-135m"])
laws = pytest.mark.parametrize("law", list(LAWS))


@pytest.fixture(scope="module")
def plain_texts() -> dict[tuple[str, str], list[int]]:
    return {}


@pytest.fixture
def plain(plain_texts: dict[tuple[str, str], list[int]], subject: Subject, law: str) -> list[int]:
    key = (subject.name, law)
    if key not in plain_texts:
        plain_texts[key] = subject.rig().run(subject.prompt, None, max_tokens=N_TOKENS, **LAWS[law]).tokens
    return plain_texts[key]


@pytest.mark.usefixtures("smollm2_path")
@laws
@subjects
def test_same_seed_same_text_with_accepted_and_rejected_drafts(subject: Subject, plain: list[int], law: str):
    script = drafts_from(plain, len(subject.prompt), PATTERNS["mixed"], subject.model.vocab.n_tokens)
    run = subject.rig().run(subject.prompt, script, max_tokens=N_TOKENS, **LAWS[law])
    assert run.stats.n_rollbacks > 0
    assert run.stats.n_accepted > 4
    assert run.tokens == plain


@laws
@pytest.mark.parametrize("subject_name", ["tiny"])
def test_same_seed_same_text_with_an_ngram_speculator(subject: Subject, plain: list[int], law: str):
    speculator = NgramMod(NgramModOptions(n_match=1, n_min=1, n_max=6))
    run = subject.rig().run(subject.prompt, speculator, max_tokens=N_TOKENS, **LAWS[law])
    assert run.stats.n_drafted > 0
    assert run.tokens == plain


@laws
@pytest.mark.parametrize("strategy", ["fork", "checkpoint-host", "snapshot"])
@pytest.mark.parametrize("subject_name", ["tiny"])
def test_same_seed_same_text_with_each_strategy(subject: Subject, plain: list[int], law: str, strategy: str):
    script = drafts_from(plain, len(subject.prompt), PATTERNS["mixed"], subject.model.vocab.n_tokens)
    run = subject.rig(strategy, replay="immediate").run(subject.prompt, script, max_tokens=N_TOKENS, **LAWS[law])
    assert run.tokens == plain


@pytest.mark.parametrize("subject_name", ["llama", "mamba2", "qwen35"])
def test_penalties_count_the_prompt(subject: Subject):
    prompt = [(37 * i + 5) % 128 for i in range(120)]
    free = subject.rig().run(prompt, None, max_tokens=1)
    punished = subject.rig().run(prompt, None, max_tokens=8, presence_penalty=1000.0, penalty_last_n=128)
    assert free.tokens[0] in prompt
    assert not set(punished.tokens) & set(prompt)
    assert len(set(punished.tokens)) == 8


@pytest.mark.parametrize("subject_name", ["tiny"])
def test_another_seed_gives_another_text(subject: Subject):
    texts = [
        subject.rig().run(subject.prompt, None, max_tokens=N_TOKENS, temperature=1.5, seed=seed).tokens
        for seed in (1, 2)
    ]
    assert texts[0] != texts[1]


@pytest.mark.parametrize("subject_name", ["tiny"])
def test_a_grammar_that_begins_to_bind_inside_a_draft_holds_for_every_token(subject: Subject):
    """C14: drafted tokens that the grammar forbids are rejected, however likely the model finds them."""
    vocab = subject.model.vocab
    grammar = 'root ::= "return" [ ] ("a" | "b") ";" [0-9]+ "."'
    free = subject.plain()
    script = drafts_from(free, len(subject.prompt), ((6, 6),) * 20, vocab.n_tokens)
    run = subject.rig().run(
        subject.prompt, script, max_tokens=12, grammar=grammar, end_tokens=frozenset(vocab.eog_tokens)
    )
    plain = subject.rig().run(
        subject.prompt, None, max_tokens=12, grammar=grammar, end_tokens=frozenset(vocab.eog_tokens)
    )
    text = vocab.detokenize(np.array(run.tokens, np.int32)).decode()
    assert run.stats.n_drafted > run.stats.n_accepted
    assert run.tokens == plain.tokens
    assert "return a;".startswith(text[:9]) or "return b;".startswith(text[:9])
