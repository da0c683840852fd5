"""Laws of the vocabulary: text to tokens and back, special ids, comparison, and every refusal."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyspec import errors
from pyspec._core import Model, Vocab


@pytest.fixture(scope="module")
def vocab(tiny: Model) -> Vocab:
    return tiny.vocab


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _without_text(file: Path, n_vocab: int) -> Vocab:
    pairs = [("general.architecture", "llama"), ("tokenizer.ggml.model", "none")]
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs) + 1)
    for key, value in pairs:
        out += _text(key) + struct.pack("<I", 8) + _text(value)
    out += _text("llama.vocab_size") + struct.pack("<II", 4, n_vocab)
    file.write_bytes(out)
    return Model(file, vocab_only=True).vocab


@pytest.fixture
def no_text(tmp_path: Path) -> Vocab:
    """A vocabulary of 128 tokens without text."""
    return _without_text(tmp_path / "no_text.gguf", 128)


@pytest.mark.parametrize(
    "text",
    ["", " ", "def f(x):\n    return x + 1\n", "naïve café 模型 🦊", "\x00\x01 tab\tend", "a" * 5000],
    ids=["empty", "space", "code", "unicode", "control", "long"],
)
def test_text_survives_tokens_and_back(vocab: Vocab, text: str) -> None:
    tokens = vocab.tokenize(text, add_special=False)
    assert tokens.dtype == np.int32
    assert vocab.detokenize(tokens) == text.encode()
    assert vocab.tokenize(text.encode(), add_special=False).tolist() == tokens.tolist()


def test_pieces_join_to_the_text(vocab: Vocab) -> None:
    tokens = vocab.tokenize("for i in range(10):", add_special=False)
    assert b"".join(vocab.token_to_piece(t) for t in tokens) == b"for i in range(10):"


def test_bytes_that_are_not_utf8_tokenize_or_raise(vocab: Vocab) -> None:
    try:
        tokens = vocab.tokenize(b"ok \xff\xfe\x80 end", add_special=False)
    except errors.UnsupportedError:
        return
    assert tokens.size > 0


def test_special_tokens_are_parsed_only_when_asked(vocab: Vocab) -> None:
    eos = vocab.eos
    assert eos is not None
    text = vocab.text(eos)
    assert vocab.tokenize(text, add_special=False, parse_special=True).tolist() == [eos]
    assert eos not in vocab.tokenize(text, add_special=False).tolist()
    assert vocab.token_to_piece(eos) == b""
    assert vocab.token_to_piece(eos, special=True) == text.encode()
    assert vocab.detokenize([eos], unparse_special=True) == text.encode()


def test_ends_of_generation_agree_with_each_other(vocab: Vocab) -> None:
    ends = vocab.eog_tokens
    assert vocab.eos in ends
    assert ends == [t for t in range(vocab.n_tokens) if vocab.is_eog(t)]
    assert all(vocab.is_control(t) for t in ends)


@pytest.mark.parametrize("token", [-1, 4096, 1 << 40])
@pytest.mark.parametrize("method", ["is_eog", "is_control", "text", "score", "token_to_piece"])
def test_token_outside_the_vocabulary_is_refused(vocab: Vocab, method: str, token: int) -> None:
    with pytest.raises(errors.TokenRangeError) as caught:
        getattr(vocab, method)(token)
    assert caught.value.token == token


def test_detokenize_names_the_index_of_a_bad_token(vocab: Vocab) -> None:
    with pytest.raises(errors.TokenRangeError, match="token 9999 at index 2"):
        vocab.detokenize([1, 2, 9999])


@pytest.mark.parametrize("tokens", [[1.5], [[1, 2]], ["a"], [True], None], ids=str)
def test_detokenize_refuses_what_is_no_array_of_integers(vocab: Vocab, tokens: object) -> None:
    with pytest.raises(errors.InvalidValueError, match="tokens"):
        vocab.detokenize(tokens)  # type: ignore[arg-type]


def test_tokenize_refuses_what_is_no_text(vocab: Vocab) -> None:
    with pytest.raises(errors.InvalidValueError, match="text"):
        vocab.tokenize(5)  # type: ignore[arg-type]


def test_vocabulary_without_text_says_so(no_text: Vocab) -> None:
    assert (no_text.kind, no_text.has_text, no_text.n_tokens, no_text.eog_tokens) == ("none", False, 128, [])
    assert no_text.bos is None
    assert not no_text.is_eog(5)
    assert not no_text.is_control(5)
    uses: list[Callable[[], object]] = [
        lambda: no_text.tokenize("x"),
        lambda: no_text.detokenize([1]),
        lambda: no_text.token_to_piece(1),
        lambda: no_text.text(1),
        lambda: no_text.score(1),
    ]
    for use in uses:
        with pytest.raises(errors.VocabularyMissingError):
            use()


def test_vocabulary_agrees_with_itself_and_its_draft_model(vocab: Vocab, tiny_draft_path: Path) -> None:
    assert vocab.differences(vocab) == []
    assert vocab.differences(Model(tiny_draft_path).vocab) == []


def test_differences_name_kind_and_size(vocab: Vocab, no_text: Vocab) -> None:
    found = vocab.differences(no_text)
    assert "kind of tokenizer: bpe and none" in found
    assert "number of tokens: 4096 and 128" in found
    assert vocab.differences(no_text, limit=1) == ["kind of tokenizer: bpe and none"]


def test_vocabularies_without_text_agree_when_equally_large(no_text: Vocab, tmp_path: Path) -> None:
    assert no_text.differences(_without_text(tmp_path / "same.gguf", 128)) == []
    assert no_text.differences(_without_text(tmp_path / "other.gguf", 129)) == ["number of tokens: 128 and 129"]


def test_vocabulary_keeps_its_model_alive(tiny_draft_path: Path) -> None:
    vocab = Model(tiny_draft_path).vocab
    assert vocab.detokenize(vocab.tokenize("alive", add_special=False)) == b"alive"
