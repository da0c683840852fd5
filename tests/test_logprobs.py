"""Log-probabilities: the target's own, the same with drafts as without, read only where they are asked for (C12)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec import Completion, Llama, logprobs
from pyspec._core import Context, Model
from pyspec.errors import InvalidValueError
from pyspec.logprobs import TokenLogprob, row_logprobs
from pyspec.speculators import History
from pyspec.speculators.scripted import Scripted

PROMPT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n\n"
EAGER = "ngram-mod:n_match=2,n_min=1,n_max=6"
SMALL: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "budget": "off"}
SAMPLED: dict[str, Any] = {"temperature": 0.9, "top_k": 12, "repeat_penalty": 1.2, "seed": 4}
ARCHS = ["llama", "gemma3", "qwen35", "mamba2", "falcon-h1", "rwkv7"]


@pytest.fixture(scope="module")
def llm(tiny_target_path: Path, tiny_draft_path: Path) -> Iterator[Llama]:
    with Llama(tiny_target_path, draft_model=tiny_draft_path, **SMALL) as made:
        yield made


def half_right(plain: Completion, n_vocab: int) -> Scripted:
    """Drafts of four tokens of which the first two are right."""
    n_prompt = len(plain.prompt_tokens)

    def script(history: History, n_max: int) -> list[int]:
        draft = plain.tokens[len(history) - n_prompt :][:4]
        return [(token + 1) % n_vocab if i == 2 else token for i, token in enumerate(draft)]

    return Scripted(script)


def by_hand(path: Path, prompt: list[int], tokens: list[int]) -> list[np.ndarray]:
    """Log-softmax in float64 of the row before each token, one token a decode."""
    context = Context(Model(path), n_ctx=512, n_threads=1, n_threads_batch=1, flash_attn=False)
    context.decode(prompt, pos=0)
    rows = [context.logits(0, 1)[0]]
    for i, token in enumerate(tokens[:-1]):
        context.decode([token], pos=len(prompt) + i)
        rows.append(context.logits(0, 1)[0])
    found = []
    for row in rows:
        wide = row.astype(np.float64) - float(row.max())
        found.append(wide - math.log(np.exp(wide).sum()))
    return found


def the_same_bits(one: Completion, other: Completion) -> bool:
    return one.logprobs is not None and one.logprobs == other.logprobs


# ------------------------------------------------------------------ a row


def test_a_rows_logprobs_are_its_log_softmax():
    rng = np.random.default_rng(1)
    for scale in (0.01, 1.0, 30.0):
        row = (rng.normal(size=50_000) * scale).astype(np.float32)
        wide = row.astype(np.float64)
        want = wide - np.log(np.exp(wide - wide.max()).sum()) - wide.max()
        for token in (0, 777, int(row.argmax())):
            logprob, top = row_logprobs(row, token, 5)
            assert logprob == pytest.approx(want[token], abs=1e-6)
            assert [t for t, _ in top] == np.argsort(-want, kind="stable")[:5].tolist()
            assert [p for _, p in top] == pytest.approx(np.sort(want)[::-1][:5].tolist(), abs=1e-6)


def test_equal_tokens_come_by_id_and_forbidden_ones_have_no_chance():
    row = np.array([1.0, 3.0, -np.inf, 3.0, 3.0, 1.0], np.float32)
    logprob, top = row_logprobs(row, 2, 4)
    assert logprob == -math.inf
    assert [token for token, _ in top] == [1, 3, 4, 0]
    assert [token for token, _ in row_logprobs(row, 2, 99)[1]] == [1, 3, 4, 0, 5, 2]
    assert row_logprobs(row, 1, 0) == (pytest.approx(-math.log(3 + 2 * math.exp(-2))), [])


@pytest.mark.parametrize("n_vocab", [1, 255, 256, 257, 1000, 5000])
@pytest.mark.parametrize("n_top", [1, 3, 19, 20, 300, 6000])
def test_the_likeliest_are_those_of_a_whole_sort(n_vocab: int, n_top: int):
    """Rounded, so that many are equal, also at the edge of what is kept."""
    row = np.random.default_rng(n_vocab + n_top).normal(size=n_vocab).round(1).astype(np.float32)
    want = np.argsort(-row, kind="stable")[:n_top]
    assert [token for token, _ in row_logprobs(row, 0, n_top)[1]] == want.tolist()


def test_a_sure_token_has_a_logprob_of_zero_and_never_a_positive_one():
    row = np.full(1000, -90.0, np.float32)
    row[7] = 90.0
    assert row_logprobs(row, 7, 1) == (0.0, [(7, 0.0)])


# ------------------------------------------------------------------ a generation


@pytest.mark.parametrize("spec", [None, EAGER, "draft-model", "half-right"])
@pytest.mark.parametrize("how", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_drafts_leave_every_logprob_to_the_bit(llm: Llama, tiny_target_path: Path, spec: Any, how: dict[str, Any]):
    plain = llm.generate(PROMPT, max_tokens=40, spec=None, ignore_eos=True, logprobs=3, **how)
    if spec == "half-right":
        spec = half_right(plain, llm.n_vocab)
    drafted = llm.generate(PROMPT, max_tokens=40, spec=spec, ignore_eos=True, logprobs=3, **how)
    assert the_same_bits(drafted, plain)
    assert drafted.logprobs is not None
    assert [one.token for one in drafted.logprobs] == drafted.tokens == plain.tokens
    want = by_hand(tiny_target_path, plain.prompt_tokens, plain.tokens)
    assert [one.logprob for one in drafted.logprobs] == pytest.approx(
        [float(row[token]) for row, token in zip(want, plain.tokens, strict=True)], abs=1e-5
    )
    assert any(one.logprob != 0.0 for one in drafted.logprobs)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_memory_gives_the_logprobs_of_plain_decoding(arch: str, arch_model: Callable[[str], Path]):
    prompt = [(7 * i + 3) % 100 for i in range(40)]
    how: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, "seed": 3, "logprobs": 2}
    with Llama(arch_model(arch), n_ctx=256, n_threads=1, budget="off") as llm:
        plain = llm.generate(prompt, spec=None, **how)
        drafted = llm.generate(prompt, spec=half_right(plain, 128), **how)
    assert drafted.stats.n_rollbacks > 2
    assert drafted.tokens == plain.tokens
    assert drafted.logprobs is not None and plain.logprobs is not None
    pairs = list(zip(drafted.logprobs, plain.logprobs, strict=True))
    assert [one.logprob for one, _ in pairs] == pytest.approx([other.logprob for _, other in pairs], abs=1e-3)
    assert all(one.logprob < -0.01 for one, _ in pairs), "a random model is never sure"


def test_they_are_of_the_target_before_any_sampling_option(llm: Llama):
    free = llm.generate(PROMPT, max_tokens=1, logprobs=2)
    forced = llm.generate(PROMPT, max_tokens=1, logprobs=2, logit_bias={free.tokens[0]: -math.inf}, temperature=0.1)
    assert free.logprobs is not None and forced.logprobs is not None
    assert forced.tokens != free.tokens
    assert forced.logprobs[0].top == free.logprobs[0].top
    assert free.logprobs[0].top[0] == (free.tokens[0], free.logprobs[0].logprob)
    assert forced.logprobs[0].logprob <= free.logprobs[0].top[1][1]


@pytest.mark.parametrize("spec", [None, EAGER])
def test_a_stop_string_cuts_them_with_the_tokens(llm: Llama, spec: Any):
    plain = llm.generate(PROMPT, max_tokens=40, spec=None, ignore_eos=True, logprobs=0)
    stop = plain.text[9:16]
    cut = llm.generate(PROMPT, max_tokens=40, spec=spec, ignore_eos=True, logprobs=0, stop=stop)
    assert cut.logprobs is not None and plain.logprobs is not None
    assert 0 < len(cut.tokens) < 40
    assert cut.logprobs == plain.logprobs[: len(cut.tokens)]


def test_an_end_token_has_none(llm: Llama):
    plain = llm.generate(PROMPT, max_tokens=20, spec=None, ignore_eos=True)
    at = next(i for i in range(5, 20) if plain.tokens[i] not in plain.tokens[:i])
    ended = llm.generate(PROMPT, ignore_eos=True, stop_tokens=[plain.tokens[at]], logprobs=1, spec=EAGER)
    assert ended.logprobs is not None
    assert len(ended.logprobs) == len(ended.tokens) == at


@pytest.mark.parametrize("spec", [None, EAGER])
def test_only_rows_of_emitted_tokens_are_read_and_none_unless_asked(
    llm: Llama, monkeypatch: pytest.MonkeyPatch, spec: Any
):
    calls: list[int] = []

    def counted(row: Any, token: int, n_top: int) -> Any:
        calls.append(token)
        return row_logprobs(row, token, n_top)

    monkeypatch.setattr(logprobs, "row_logprobs", counted)
    completion = llm.generate(PROMPT, max_tokens=30, spec=spec, ignore_eos=True, logprobs=1)
    assert calls == completion.tokens
    calls.clear()
    assert llm.generate(PROMPT, max_tokens=30, spec=spec, ignore_eos=True).logprobs is None
    assert calls == []


def test_the_bytes_of_the_tokens_are_the_text(llm: Llama):
    completion = llm.generate(PROMPT, max_tokens=40, logprobs=0, grammar='root ::= ("😀" "€"){3}')
    assert completion.logprobs is not None
    assert b"".join(one.bytes for one in completion.logprobs).decode("utf-8", "replace") == completion.text
    assert TokenLogprob(1, -0.5, b"\xf0\x9f", []).text == "\ufffd"


def test_the_mean_is_that_of_the_tokens_and_must_be_asked_for(llm: Llama):
    completion = llm.generate(PROMPT, max_tokens=8, logprobs=0)
    assert completion.logprobs is not None
    assert completion.mean_logprob == pytest.approx(np.mean([one.logprob for one in completion.logprobs]))
    assert llm.generate(PROMPT, max_tokens=0, logprobs=0).mean_logprob == -math.inf
    with pytest.raises(InvalidValueError, match="0 or more in the call"):
        _ = llm.generate(PROMPT, max_tokens=1).mean_logprob


@pytest.mark.parametrize("value", [-1, 1.5, True, "3"])
def test_a_number_that_cannot_be_is_refused(llm: Llama, value: Any):
    with pytest.raises(InvalidValueError, match="logprobs"):
        llm.generate(PROMPT, logprobs=value)
