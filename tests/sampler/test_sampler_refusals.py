"""Refusals of the sampler: values, tokens, contexts and threads that would be an abort or a wrong token.

Owns what the extension checks by itself, behind options that nobody checked; leaves grammars to
test_sampler_grammar.py.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sampler_reference import (
    N_VOCAB,
    PROMPT,
    law_of,
)

from pyspec import errors
from pyspec._core import Context, Model, Sampler
from pyspec.config import SamplingOptions


def _plain(**changes: object) -> SimpleNamespace:
    """Options that nobody checked before the extension."""
    plain = SamplingOptions()
    fields = {name: getattr(plain, name) for name in SamplingOptions.__slots__}
    return SimpleNamespace(**{**fields, **changes})


OUT_OF_RANGE: list[tuple[str, object]] = [
    ("seed", -1),
    ("seed", 2**32 - 1),
    ("seed", 2**70),
    ("temperature", -0.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("dynatemp_range", -1.0),
    ("dynatemp_exponent", -1.0),
    ("top_k", -1),
    ("top_k", 2**31),
    ("top_p", 1.1),
    ("min_p", -0.1),
    ("typical_p", math.nan),
    ("xtc_probability", 2.0),
    ("xtc_threshold", -1.0),
    ("mirostat", 3),
    ("mirostat_tau", -1.0),
    ("mirostat_eta", 1.5),
    ("penalty_last_n", -1),
    ("repeat_penalty", 0.0),
    ("frequency_penalty", math.inf),
    ("presence_penalty", -1e9),
    ("dry_multiplier", -1.0),
    ("dry_base", 0.5),
    ("dry_allowed_length", -1),
    ("dry_penalty_last_n", 2**31 - 1),
    ("min_keep", 0),
    ("logit_bias", ((3, math.inf),)),
    ("logit_bias", ((3, math.nan),)),
    ("logit_bias", ((3, 1e30),)),
    ("dry_sequence_breakers", ("",)),
    ("dry_sequence_breakers", ("x" * 41,)),
    ("dry_sequence_breakers", ("a\0b",)),
]
WRONG_TYPE: list[tuple[str, object]] = [
    ("seed", 1.5),
    ("seed", True),
    ("temperature", "hot"),
    ("temperature", None),
    ("top_k", 4.0),
    ("top_p", True),
    ("mirostat", "2"),
    ("logit_bias", {3: 1.0}),
    ("logit_bias", (3, 1.0)),
    ("logit_bias", ((3.5, 1.0),)),
    ("logit_bias", ((3, 1.0, 2.0),)),
    ("dry_sequence_breakers", "ab"),
    ("dry_sequence_breakers", (1, 2)),
    ("grammar", b"root ::= [a]"),
    ("grammar", "\ud800"),
    ("grammar_root", None),
]


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE + WRONG_TYPE)
def test_the_extension_refuses_what_no_option_can_be(model: Model, name: str, value: object) -> None:
    with pytest.raises(errors.InvalidValueError, match=f"^{name}="):
        Sampler(model, _plain(**{name: value}))


def test_options_without_an_attribute_are_refused_by_its_name(model: Model) -> None:
    with pytest.raises(errors.InvalidValueError, match="it has no 'seed'"):
        Sampler(model, object())
    incomplete = _plain()
    del incomplete.min_keep
    with pytest.raises(errors.InvalidValueError, match="it has no 'min_keep'"):
        Sampler(model, incomplete)


@pytest.mark.parametrize("token", [N_VOCAB, 2**31, 2**40], ids=["n_vocab", "2**31", "2**40"])
def test_a_token_outside_the_vocabulary_is_refused(model: Model, context: Context, token: int) -> None:
    with pytest.raises(errors.TokenRangeError) as caught:
        Sampler(model, SamplingOptions(logit_bias={1: 1.0, token: 1.0}))
    assert (caught.value.token, caught.value.index, caught.value.n_vocab) == (token, 1, N_VOCAB)  # type: ignore[attr-defined]
    sampler = Sampler(model, SamplingOptions(temperature=1.0, presence_penalty=1.0))
    for outside in (token, -1 - token):
        with pytest.raises(errors.TokenRangeError):
            sampler.accept(outside)
    assert len(law_of(sampler, context)) > 1


def test_every_token_forbidden_is_an_error(context: Context, model: Model) -> None:
    forbidden = dict.fromkeys(range(N_VOCAB), -math.inf)
    for temperature in (0.0, 1.0):
        sampler = Sampler(model, SamplingOptions(temperature=temperature, logit_bias=forbidden))
        with pytest.raises(errors.SamplerError, match="no candidate is left"):
            sampler.sample(context, 0)


@pytest.fixture(scope="module")
def patched(arch_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """The random model with some bytes of its file changed."""

    def load(patch: Callable[[bytearray], None]) -> Model:
        data = bytearray(arch_model("llama").read_bytes())
        patch(data)
        path = tmp_path_factory.mktemp("patched") / "model.gguf"
        path.write_bytes(data)
        return Model(path)

    return load


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1.0}, {"repeat_penalty": 1.2}, {"temperature": 1.0, "mirostat": 2}],
    ids=["greedy", "temperature", "penalties", "mirostat"],
)
@pytest.mark.parametrize("value", [b"\xff\xff\xff\xff", b"\x00\x00\x80\x7f"], ids=["nan", "inf"])
def test_undefined_logits_are_an_error(patched: Callable[..., Model], options: dict[str, Any], value: bytes) -> None:

    def damage_the_last_weights(data: bytearray) -> None:
        data[-4096:] = value * 1024

    model = patched(damage_the_last_weights)
    context = Context(model, n_ctx=32, n_threads=1)
    context.decode([1, 2, 3], pos=0)
    assert not np.isfinite(context.logits()).all()
    sampler = Sampler(model, SamplingOptions(**options))
    for call in (sampler.sample, sampler.probabilities):
        with pytest.raises(errors.SamplerError, match="NaN"):
            call(context, 0)


def test_a_model_without_text_has_no_grammar_and_no_breakers(patched: Callable[..., Model]) -> None:

    def take_the_tokenizer(data: bytearray) -> None:
        key = b"tokenizer.ggml.model"
        value = data.index(key) + len(key) + 4 + 8  # behind the value's type and length
        data[value : value + 4] = b"none"

    model = patched(take_the_tokenizer)
    assert not model.vocab.has_text
    with pytest.raises(errors.VocabularyMissingError, match="a grammar needs a text vocabulary"):
        Sampler(model, SamplingOptions(grammar="root ::= [a]"))
    with pytest.raises(errors.VocabularyMissingError, match="dry_sequence_breakers"):
        Sampler(model, SamplingOptions(dry_multiplier=1.0))
    assert Sampler(model, SamplingOptions(dry_multiplier=1.0, dry_sequence_breakers=())).names == [
        "dry",
        "greedy",
    ]


def test_a_context_of_another_model_is_refused(model: Model, text_context: Context) -> None:
    sampler = Sampler(model, SamplingOptions())
    with pytest.raises(errors.InvalidValueError, match="context of another model"):
        sampler.sample(text_context, 0)


@pytest.mark.parametrize("row", [-1, len(PROMPT), 2**40])
def test_a_row_that_does_not_exist_is_refused(context: Context, model: Model, row: int) -> None:
    with pytest.raises(errors.OutputRowError):
        Sampler(model, SamplingOptions()).sample(context, row)


def test_a_context_without_output_is_refused(model: Model) -> None:
    with pytest.raises(errors.NoOutputError):
        Sampler(model, SamplingOptions()).sample(Context(model, n_ctx=32), 0)


def test_closed_models_and_contexts_are_refused(arch_model: Callable[[str], Path]) -> None:
    model = Model(arch_model("llama"))
    context = Context(model, n_ctx=32)
    context.decode([1], pos=0)
    sampler = Sampler(model, SamplingOptions())
    context.close()
    with pytest.raises(errors.ClosedError):
        sampler.sample(context, 0)
    model.close()
    with pytest.raises(errors.ClosedError):
        Sampler(model, SamplingOptions())


def test_none_is_no_model_and_no_context(model: Model) -> None:
    with pytest.raises(TypeError):
        Sampler(None, SamplingOptions())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Sampler(model, SamplingOptions()).sample(None, 0)  # type: ignore[arg-type]


def test_a_second_thread_gets_an_error_and_no_wrong_token(text_context: Context, text_model: Model) -> None:
    """Two threads sample until each was refused once; what they got is what one thread gets."""
    options = SamplingOptions(grammar="root ::= [0-9]*", temperature=1.0, top_k=0, seed=1)
    allowed = set(law_of(Sampler(text_model, options), text_context))
    sampler = Sampler(text_model, options)
    refused = threading.Event()
    wrong: list[int] = []

    def work() -> None:
        for _ in range(5000):
            try:
                token = sampler.sample(text_context, 0)
            except errors.BusyError:
                refused.set()
            else:
                if token not in allowed:
                    wrong.append(token)
            if refused.is_set():
                return

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused.is_set()
    assert wrong == []
