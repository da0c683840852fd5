"""One seed gives one text, with and without speculation, for sampling options of every kind drawn together."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from decoder_rig import PATTERNS, Subject, drafts_from

from pyspec.config import SamplingOptions

N_TOKENS = 24
N_SETS = 40
GRAMMARS = (
    'root ::= item+\nitem ::= [a-z ]+ "(" [a-z, ]* ")" "\\n"',
    "root ::= [^Q]*",
    'root ::= ("def " | "return " | [a-z_ \\n:()#+=0-9])*',
)
TEXT_ONLY = {"grammar", "grammar_root", "dry_sequence_breakers"}


def drawn(i: int) -> dict[str, Any]:
    """Options of the set `i`: each kind stands in about a third of the sets, with values drawn from its range."""
    rng = np.random.default_rng([2024, i])

    def sometimes(chance: float = 0.35) -> bool:
        return bool(rng.random() < chance)

    def number(low: float, high: float) -> float:
        return round(float(rng.uniform(low, high)), 3)

    options: dict[str, Any] = {"seed": int(rng.integers(2**32 - 1))}
    options["temperature"] = 0.0 if sometimes(0.15) else number(0.3, 2.0)
    kinds: dict[str, dict[str, Any]] = {
        "top-k": {"top_k": int(rng.choice([0, 1, 3, 17]))},
        "top-p": {"top_p": number(0.3, 1.0)},
        "min-p": {"min_p": number(0.0, 0.3)},
        "min-keep": {"min_keep": int(rng.integers(2, 6))},
        "typical": {"typical_p": number(0.2, 0.95)},
        "dynatemp": {"dynatemp_range": number(0.1, 0.8), "dynatemp_exponent": number(0.5, 2.0)},
        "xtc": {"xtc_probability": number(0.2, 1.0), "xtc_threshold": number(0.01, 0.3)},
        "mirostat": {
            "mirostat": int(rng.integers(1, 3)),
            "mirostat_tau": number(1.0, 8.0),
            "mirostat_eta": number(0.02, 0.5),
        },
        "penalties": {
            "repeat_penalty": number(0.8, 1.6),
            "frequency_penalty": number(-0.5, 1.0),
            "presence_penalty": number(-0.5, 1.0),
            "penalty_last_n": int(rng.integers(1, 100)),
        },
        "dry": {
            "dry_multiplier": number(0.2, 2.0),
            "dry_base": number(1.1, 3.0),
            "dry_allowed_length": int(rng.integers(1, 4)),
            "dry_penalty_last_n": int(rng.integers(4, 200)),
            "dry_sequence_breakers": ("\n", "(") if sometimes() else (),
        },
        "bias": {
            "logit_bias": {
                int(token): -math.inf if sometimes() else number(-4.0, 4.0) for token in rng.choice(100, 12, False)
            }
        },
        "grammar": {"grammar": str(rng.choice(GRAMMARS))},
    }
    for kind in kinds.values():
        if sometimes():
            options |= kind
    if "grammar" in options and sometimes():
        options |= {"grammar": options["grammar"].replace("root", "start"), "grammar_root": "start"}
    return options


SETS = [drawn(i) for i in range(N_SETS)]


def test_the_sets_hold_every_option_in_company():
    default = SamplingOptions()
    for field in fields(SamplingOptions):
        where = [s for s in SETS if field.name in s and s[field.name] != getattr(default, field.name)]
        assert len(where) >= 3, field.name
        assert any(len(s) > 4 for s in where), field.name
    assert {s["mirostat"] for s in SETS if "mirostat" in s} == {1, 2}


@pytest.mark.parametrize("i_set", range(N_SETS))
@pytest.mark.parametrize("subject_name", ["tiny"])
def test_same_seed_same_text_on_a_hybrid_whatever_options_meet(subject: Subject, i_set: int):
    same_text(subject, SETS[i_set])


@pytest.mark.parametrize("i_set", range(0, N_SETS, 8))
@pytest.mark.parametrize("subject_name", ["smollm2-135m"])
def test_same_seed_same_text_on_attention_whatever_options_meet(subject: Subject, i_set: int):
    same_text(subject, SETS[i_set])


@pytest.mark.parametrize("i_set", range(0, N_SETS, 3))
@pytest.mark.parametrize("subject_name", ["llama", "mamba2", "qwen35", "falcon-h1"])
def test_same_seed_same_tokens_without_a_vocabulary(subject: Subject, i_set: int):
    same_text(subject, {name: value for name, value in SETS[i_set].items() if name not in TEXT_ONLY})


def same_text(subject: Subject, options: dict[str, Any]) -> None:
    vocab = subject.model.vocab
    how: dict[str, Any] = {"max_tokens": N_TOKENS, "end_tokens": frozenset(vocab.eog_tokens)} | options
    if not vocab.has_text:
        how["dry_sequence_breakers"] = ()
    plain = subject.rig().run(subject.prompt, None, **how)
    script = drafts_from(plain.tokens, len(subject.prompt), PATTERNS["mixed"], vocab.n_tokens)
    run = subject.rig().run(subject.prompt, script, **how)
    assert (run.tokens, run.finish) == (plain.tokens, plain.finish)
    assert len(plain.tokens) < N_TOKENS or (run.stats.n_rollbacks > 0 and run.stats.n_accepted > 4)
