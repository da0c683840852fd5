"""The facade: what a user types, what comes back, and an object that stays usable whatever happened."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyspec
from pyspec import Completion, Llama
from pyspec.config import SamplingOptions
from pyspec.errors import (
    BusyError,
    VocabularyMismatchError,
    VocabularyMissingError,
)
from pyspec.speculators import History, NgramMapK, NgramMapKOptions, NgramMod, NgramModOptions
from pyspec.speculators.scripted import Scripted

PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"
N_TOKENS = 40
EAGER = "ngram-mod:n_match=2,n_min=1,n_max=6"
SMALL: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "budget": "off"}
ROLLBACKS = ("shadow", "fork", "checkpoint", "checkpoint-host", "checkpoint-device", "snapshot")


@pytest.fixture(scope="module")
def llm(tiny_target_path: Path, tiny_draft_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, draft_model=tiny_draft_path, **SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def plain(llm: Llama) -> Completion:
    return llm.generate(PROMPT, max_tokens=N_TOKENS, spec=None, ignore_eos=True)


# ------------------------------------------------------------------ speculators


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("none", id="none"),
        pytest.param("default", id="default"),
        pytest.param("ngram-mod", id="name"),
        pytest.param(EAGER, id="name-with-options"),
        pytest.param("draft-model", id="draft-model"),
        pytest.param("draft-model:n_max=6,p_min=0.3", id="draft-model-with-options"),
        pytest.param(["ngram-map-k:size_n=3,size_m=4", "draft-model"], id="list"),
        pytest.param([], id="empty-list"),
        pytest.param(NgramMod(NgramModOptions(n_match=2, n_min=1, n_max=6)), id="object"),
        pytest.param(NgramModOptions(n_match=2, n_min=1, n_max=6), id="options"),
        pytest.param(["draft-model", NgramMapK(NgramMapKOptions(size_n=3, size_m=4))], id="name-and-object"),
        pytest.param(Scripted([[1, 2, 3]] * N_TOKENS), id="always-wrong"),
    ],
)
def test_every_way_to_name_a_speculator_leaves_the_text(llm: Llama, plain: Completion, spec: Any):
    completion = llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True)
    assert (completion.text, completion.tokens) == (plain.text, plain.tokens)


@pytest.mark.parametrize("spec", [EAGER, "draft-model"])
def test_a_speculator_named_in_the_call_is_the_one_that_drafts(llm: Llama, spec: str):
    stats = llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True).stats
    assert list(stats.by_speculator) == [spec.split(":")[0]]
    assert stats.n_drafted > 0


def test_the_objects_default_speculator_is_used_when_the_call_names_none(tiny_target_path: Path):
    with Llama(tiny_target_path, spec=EAGER, **SMALL) as llm:
        assert llm.generate(PROMPT, max_tokens=N_TOKENS, ignore_eos=True).stats.n_drafted > 0
        assert llm.generate(PROMPT, max_tokens=N_TOKENS, ignore_eos=True, spec=None).stats.n_drafted == 0


def half_right(plain: Completion, *, n_vocab: int = 256) -> Scripted:
    """Drafts of four tokens of which the first two are right."""
    n_prompt = len(plain.prompt_tokens)

    def script(history: History, n_max: int) -> list[int]:
        draft = plain.tokens[len(history) - n_prompt :][:4]
        return [(token + 1) % n_vocab if i == 2 else token for i, token in enumerate(draft)]

    return Scripted(script)


@pytest.mark.parametrize("rollback", ROLLBACKS)
@pytest.mark.parametrize("replay", ["fused", "immediate"])
def test_every_rollback_leaves_the_text(tiny_target_path: Path, plain: Completion, rollback: str, replay: Any):
    n_rs_seq = 8 if rollback == "snapshot" else 0
    with Llama(tiny_target_path, rollback=rollback, replay=replay, n_rs_seq=n_rs_seq, **SMALL) as llm:
        completion = llm.generate(PROMPT, max_tokens=N_TOKENS, ignore_eos=True, spec=half_right(plain))
        assert completion.tokens == plain.tokens
        assert completion.stats.n_rollbacks > 4
        assert completion.stats.rollback == llm.rollback


@pytest.mark.parametrize("draft_rollback", ["shadow", "fork", "checkpoint-host", "checkpoint-device"])
def test_the_draft_models_rollback_is_an_option_of_its_own(
    tiny_target_path: Path, tiny_draft_path: Path, draft_rollback: str
):
    """Sampled, so that a greedy draft model is often wrong and its memory goes back."""
    how: dict[str, Any] = {"max_tokens": N_TOKENS, "ignore_eos": True, "temperature": 1.5, "seed": 4}
    with Llama(tiny_target_path, draft_model=tiny_draft_path, draft_rollback=draft_rollback, **SMALL) as llm:
        completion = llm.generate(PROMPT, spec="draft-model", **how)
        assert completion.tokens == llm.generate(PROMPT, spec=None, **how).tokens
        assert completion.stats.n_rollbacks > 0


def test_n_draft_limits_every_draft(tiny_target_path: Path):
    with Llama(tiny_target_path, n_draft=2, spec=EAGER, **SMALL) as llm:
        stats = llm.generate(PROMPT, max_tokens=N_TOKENS, ignore_eos=True).stats
        assert len(stats.drafted_per_position) == 2


def test_a_second_generation_says_the_same(llm: Llama, plain: Completion):
    for spec in (EAGER, "draft-model", EAGER):
        llm.generate("something else entirely", max_tokens=5, spec=spec)
        assert llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True).tokens == plain.tokens


@pytest.mark.parametrize("spec", ["draft-model", "default"])
def test_a_draft_model_of_another_vocabulary_is_refused(tiny_target_path: Path, smollm2_path: Path, spec: str):
    with pytest.raises(VocabularyMismatchError, match="same tokenizer"):
        Llama(tiny_target_path, draft_model=smollm2_path, spec=["draft-model", spec], **SMALL)


def test_a_draft_model_that_nobody_uses_is_told(
    tiny_target_path: Path, tiny_draft_path: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, logger="pyspec"):
        Llama(tiny_target_path, draft_model=tiny_draft_path, spec="ngram-mod", **SMALL).close()
    assert any("does not use it" in record.getMessage() for record in caplog.records)


def test_a_draft_model_that_never_drafts_is_told(
    tiny_target_path: Path, tiny_draft_path: Path, caplog: pytest.LogCaptureFixture
):
    options = {"p_min": 1.0}
    with (
        Llama(tiny_target_path, draft_model=tiny_draft_path, draft_options=options, spec="draft-model", **SMALL) as llm,
        caplog.at_level(logging.WARNING, logger="pyspec"),
    ):
        llm.generate(PROMPT, max_tokens=N_TOKENS, ignore_eos=True)
    assert any("draft-model drafted nothing" in record.getMessage() for record in caplog.records)


def test_at_start_it_says_what_is_active(tiny_target_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="pyspec"):
        Llama(tiny_target_path, spec="ngram-map-k", rollback="fork", **SMALL).close()
    told = [record.getMessage() for record in caplog.records if record.name == "pyspec"]
    assert any("rollback fork" in line and "ngram-map-k" in line and "hybrid" in line for line in told)


# ------------------------------------------------------------------ prompts and ends


def test_a_prompt_is_text_or_its_token_ids(llm: Llama, plain: Completion):
    ids = llm.tokenize(PROMPT)
    completion = llm.generate(ids, max_tokens=N_TOKENS, spec=None, ignore_eos=True)
    assert completion.tokens == plain.tokens
    assert completion.prompt_tokens == plain.prompt_tokens == ids


def test_tokens_and_text_belong_together(llm: Llama, plain: Completion):
    assert llm.detokenize(plain.tokens) == plain.text
    assert llm.detokenize(llm.tokenize(PROMPT, add_special=False)) == PROMPT


@pytest.mark.parametrize("spec", [None, EAGER, "draft-model"])
@pytest.mark.parametrize("n_left", [0, 1, 7])
def test_a_full_context_ends_the_text(llm: Llama, spec: Any, n_left: int):
    prompt = (llm.tokenize(PROMPT) * 40)[: llm.n_ctx - n_left]
    completion = llm.generate(prompt, max_tokens=None, spec=spec, ignore_eos=True)
    assert (completion.finish_reason, len(completion.tokens)) == ("context", n_left + 1)


@pytest.mark.parametrize(("max_tokens", "n_tokens"), [(0, 0), (1, 1), (7, 7)])
def test_max_tokens_ends_the_text(llm: Llama, max_tokens: int, n_tokens: int):
    completion = llm.generate(PROMPT, max_tokens=max_tokens, spec=EAGER, ignore_eos=True)
    assert (len(completion.tokens), completion.finish_reason) == (n_tokens, "length")


@pytest.mark.parametrize("spec", [None, EAGER, "draft-model"])
def test_a_stop_string_ends_the_text_wherever_tokens_and_rounds_lie(llm: Llama, plain: Completion, spec: Any):
    """Stop strings of two to seven characters from everywhere in the text."""
    text = plain.text
    for start in range(2, 40, 4):
        stop = text[start : start + 2 + start % 6]
        completion = llm.generate(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True, stop=[stop, "never said"])
        assert completion.text == text.split(stop)[0]
        assert (completion.finish_reason, completion.stop) == ("stop", stop)
        assert completion.text.startswith(llm.detokenize(completion.tokens))
        assert completion.tokens == plain.tokens[: len(completion.tokens)]


@pytest.mark.parametrize("spec", [None, EAGER])
def test_a_stop_token_ends_the_text_before_it(llm: Llama, plain: Completion, spec: Any):
    at = next(i for i in range(5, N_TOKENS) if plain.tokens[i] not in plain.tokens[:i])
    completion = llm.generate(PROMPT, spec=spec, ignore_eos=True, stop_tokens=[plain.tokens[at]])
    assert completion.tokens == plain.tokens[:at]
    assert (completion.finish_reason, completion.stop) == ("stop", None)


def test_the_seed_of_a_completion_gives_its_text_again(llm: Llama):
    first = llm.generate(PROMPT, max_tokens=N_TOKENS, temperature=1.2)
    again = llm.generate(PROMPT, max_tokens=N_TOKENS, temperature=1.2, seed=first.seed, spec=EAGER)
    assert (again.text, again.seed) == (first.text, first.seed)


# ------------------------------------------------------------------ streams


@pytest.mark.parametrize("spec", [None, EAGER, "draft-model"])
def test_the_pieces_of_a_stream_are_the_text_and_the_last_item_is_the_completion(
    llm: Llama, plain: Completion, spec: Any
):
    *pieces, completion = llm.stream(PROMPT, max_tokens=N_TOKENS, spec=spec, ignore_eos=True)
    assert isinstance(completion, Completion)
    assert len(pieces) > 2
    assert "".join(str(piece) for piece in pieces) == completion.text == plain.text


def test_pieces_given_to_a_function_are_the_text(llm: Llama, plain: Completion):
    pieces: list[str] = []
    llm.generate(PROMPT, max_tokens=N_TOKENS, spec=EAGER, ignore_eos=True, on_text=pieces.append)
    assert "".join(pieces) == plain.text


@pytest.mark.parametrize("spec", [None, EAGER])
def test_characters_of_several_tokens_come_whole(llm: Llama, spec: Any):
    assert len(llm.tokenize("😀", add_special=False)) > 1
    *pieces, completion = llm.stream(PROMPT, max_tokens=60, spec=spec, grammar='root ::= ("😀" "€"?){5,8}')
    assert len(pieces) > 3
    assert set("".join(str(piece) for piece in pieces)) <= set("😀€")
    assert isinstance(completion, Completion)
    assert completion.text.rstrip("\ufffd").strip("😀€") == ""


def test_a_stream_closed_early_leaves_the_object_usable(llm: Llama, plain: Completion):
    stream = llm.stream(PROMPT, max_tokens=N_TOKENS, spec=EAGER, ignore_eos=True)
    next(stream)
    with pytest.raises(BusyError):
        llm.generate(PROMPT)
    stream.close()
    assert llm.generate(PROMPT, max_tokens=N_TOKENS, spec=EAGER, ignore_eos=True).tokens == plain.tokens


# ------------------------------------------------------------------ models without text


def test_every_architecture_takes_and_gives_token_ids(arch_path: Path, arch_name: str):
    prompt = [(7 * i + 3) % 100 for i in range(40)]
    how: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, "seed": 3}
    with Llama(arch_path, n_ctx=256, n_threads=1, budget="off") as llm:
        plain = llm.generate(prompt, spec=None, **how)
        drafted = llm.generate(prompt, spec=["ngram-map-k:size_n=2,size_m=4", half_right(plain, n_vocab=128)], **how)
    assert len(plain.tokens) == 24
    assert drafted.tokens == plain.tokens
    assert drafted.stats.n_rollbacks > 2


@pytest.fixture(scope="module")
def textless(arch_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    """A llama whose file says that it has no vocabulary."""
    key = b"tokenizer.ggml.model\x08\0\0\0\x04\0\0\0\0\0\0\0"
    data = arch_model("llama").read_bytes()
    assert data.count(key + b"test") == 1
    path = tmp_path_factory.mktemp("textless") / "textless.gguf"
    path.write_bytes(data.replace(key + b"test", key + b"none"))
    with Llama(path, n_ctx=256, n_threads=1) as made:
        yield made


@pytest.mark.parametrize("spec", [None, EAGER])
def test_a_model_without_text_takes_and_gives_token_ids(textless: Llama, spec: Any):
    *pieces, completion = textless.stream([1, 2, 3] * 9, max_tokens=24, spec=spec)
    assert pieces == []
    assert isinstance(completion, Completion)
    assert (len(completion.tokens), completion.text, completion.finish_reason) == (24, "", "length")


@pytest.mark.parametrize("use", ["prompt", "tokenize", "detokenize", "grammar"])
def test_text_for_a_model_without_text_is_refused(textless: Llama, use: str):
    calls = {
        "prompt": lambda: textless.generate("text"),
        "tokenize": lambda: textless.tokenize("text"),
        "detokenize": lambda: textless.detokenize([1, 2]),
        "grammar": lambda: textless.generate([1, 2], grammar='root ::= "a"'),
    }
    with pytest.raises(VocabularyMissingError):
        calls[use]()


# ------------------------------------------------------------------ names that scripts rely on


@pytest.mark.parametrize("name", ["text", "tokens", "finish_reason", "stats", "timings"])
def test_a_completion_has_what_scripts_read(plain: Completion, name: str):
    assert getattr(plain, name) is not None


@pytest.mark.parametrize(
    "name",
    ["n_drafted", "n_accepted", "n_rounds", "n_decodes", "n_rollbacks", "n_replayed", "accepted_per_position"],
)
def test_the_stats_have_what_scripts_read(plain: Completion, name: str):
    assert name in plain.stats.to_dict()


def test_sampling_options_and_call_agree(llm: Llama):
    options = SamplingOptions(temperature=0.9, top_k=7, seed=5)
    one = llm.generate(PROMPT, max_tokens=9, temperature=0.9, top_k=7, seed=5)
    other = llm.generate(PROMPT, max_tokens=9, temperature=options.temperature, top_k=options.top_k, seed=options.seed)
    assert one.tokens == other.tokens
    assert pyspec.Llama is Llama
