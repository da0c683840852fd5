"""With exact=True, logits are bit-identical with and without speculation, or the object cannot be had."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pyspec
from pyspec.decoder import Decoder
from pyspec.errors import UnsupportedError
from pyspec.exact import WidthClass, width_class
from pyspec.speculators import History, Scripted

N_NEW = 48


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The target's logits behind every emitted token, in order."""
    seen: list[np.ndarray] = []
    verify = Decoder._verify

    def recording(self, request, draft):
        verdict = verify(self, request, draft)
        seen.extend(self.memory.context.logits(self.memory.first_row, len(verdict.tokens)))
        return verdict

    monkeypatch.setattr(Decoder, "_verify", recording)
    return seen


def mixed(plain: list[int], n_prompt: int, n_vocab: int) -> Scripted:
    """Drafts of 0 to 8 tokens of the plain run, more than half of them with one token wrong."""
    rng = np.random.default_rng(3)

    def draft(history: History, n_max: int) -> list[int]:
        at = len(history) - n_prompt
        tokens = plain[at : at + min(n_max, int(rng.integers(0, 9)))]
        if tokens and rng.random() < 0.6:
            wrong = int(rng.integers(0, len(tokens)))
            tokens[wrong] = (tokens[wrong] + 1) % n_vocab
        return tokens

    return Scripted(draft)


def assert_exact(llm: pyspec.Llama, rows: list[np.ndarray], n_prompt: int) -> None:
    prompt = np.random.default_rng(1).integers(1, llm.n_vocab, n_prompt).tolist()
    options = {"max_tokens": N_NEW, "ignore_eos": True}
    plain = llm.generate(prompt, spec=None, **options)
    expected = np.array(rows)
    rows.clear()
    fast = llm.generate(prompt, spec=mixed(plain.tokens, n_prompt, llm.n_vocab), **options)
    assert fast.stats.n_rollbacks > 0
    assert fast.stats.n_accepted > 0
    assert fast.tokens == plain.tokens
    assert np.array_equal(expected, np.array(rows))


@pytest.mark.parametrize("n_prompt", [40, 700])
@pytest.mark.parametrize("replay", ["fused", "immediate"])
@pytest.mark.parametrize("rollback", ["shadow", "fork", "checkpoint-host"])
def test_logits_of_the_tiny_hybrid_are_those_of_plain_decoding(tiny_target_path, rows, rollback, replay, n_prompt):
    with pyspec.Llama(
        tiny_target_path, n_ctx=1024, n_threads=1, exact=True, rollback=rollback, replay=replay, budget="off"
    ) as llm:
        assert_exact(llm, rows, n_prompt)


@pytest.mark.parametrize("model", ["smollm2_path", "gemma3_path"])
def test_logits_of_a_real_model_are_those_of_plain_decoding(model, rows, request):
    with pyspec.Llama(request.getfixturevalue(model), n_ctx=1024, n_threads=1, exact=True, budget="off") as llm:
        assert_exact(llm, rows, 600)


def test_an_architecture_is_exact_or_refused_with_the_difference(arch_model: Callable[[str], Path], arch_name, rows):
    llm, reason = None, ""
    try:
        llm = pyspec.Llama(arch_model(arch_name), n_ctx=512, n_threads=1, exact=True, budget="off")
    except UnsupportedError as refusal:
        reason = str(refusal)
    if llm is None:
        assert "a decode of one token gives other logits than wider ones" in reason
    else:
        with llm:
            assert_exact(llm, rows, 40)


def test_one_token_is_decoded_beside_a_dummy_where_the_class_asks_for_it(tiny_target_path, rows):
    with pyspec.Llama(tiny_target_path, n_ctx=512, n_threads=1, exact=True, budget="off") as llm:
        memory = llm._decoder.memory
        memory.widths = WidthClass(pad=True, width_max=4)
        assert_exact(llm, rows, 40)
        assert llm.context.n_outputs >= 2
        assert llm.context.seq_pos_max(llm.context.n_seq_max - 1) == -1


@pytest.mark.parametrize("pad", [False, True])
def test_a_full_context_ends_the_generation(tiny_target_path, pad: bool):
    with pyspec.Llama(tiny_target_path, n_ctx=256, n_threads=1, exact=True, budget="off") as llm:
        llm._decoder.memory.widths = WidthClass(pad=pad, width_max=8)
        out = llm.generate([5, 6, 7], max_tokens=None, spec=None, ignore_eos=True)
        assert out.finish_reason == "context"
        assert len(out.tokens) == llm.n_ctx - 3 + 1 - pad


def test_no_round_is_wider_than_the_class(tiny_target_path, monkeypatch: pytest.MonkeyPatch):
    with pyspec.Llama(tiny_target_path, n_ctx=512, n_threads=1, exact=True, budget="off") as llm:
        memory = llm._decoder.memory
        memory.widths = WidthClass(pad=False, width_max=3)
        decoded: list[int] = []
        decode = memory.decode
        monkeypatch.setattr(memory, "decode", lambda tokens, n: (decoded.append(len(tokens)), decode(tokens, n))[1])
        plain = llm.generate([5, 6, 7], max_tokens=32, spec=None, ignore_eos=True)
        llm.generate([5, 6, 7], max_tokens=32, spec=mixed(plain.tokens, 3, llm.n_vocab), ignore_eos=True)
        assert max(decoded) == 3


@pytest.mark.parametrize("sizes", [{"n_batch": 1, "n_ubatch": 1}, {"n_ubatch": 1}])
def test_a_context_without_room_for_two_tokens_is_refused_with_its_sizes(tiny_target_path, sizes):
    with pytest.raises(UnsupportedError, match="leave no room for decodes of two tokens"):
        pyspec.Llama(tiny_target_path, **{"n_ctx": 256, "n_threads": 1, "exact": True} | sizes)


def test_the_class_is_measured_and_memory_left_empty(tiny_target_path):
    with pyspec.Llama(tiny_target_path, n_ctx=512, n_seq_max=2, n_threads=1) as llm:
        found = width_class(llm.context, scratch=1)
        assert found.width_max >= 2
        assert llm.context.seq_pos_max(0) == llm.context.seq_pos_max(1) == -1
