"""Laws of a matcher: exactly the tokens that can go on are allowed, the end exactly where the text is complete."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspec._core import Model
from pyspec.constraint import Choice, Constraint, Json, JsonSchema, Lark, Regex, as_constraint
from pyspec.constraint.matcher import Matcher, _Tokenizer, compile_constraint
from pyspec.errors import ConstraintError, InvalidValueError, UnsupportedError, VocabularyMissingError

TEXTS = ["no", "no, not now", "née", "nè", "日本", "日本語", "yes\n", 'a "quoted" \\ one', "[a](b)|c", "yes\n\n\tthen"]
"""A language small enough to ask every token about every text of it."""

WORDS = ("oh", "ow", "!")
FINITE: dict[str, tuple[Constraint, list[str]]] = {
    "choice": (Choice(TEXTS), TEXTS),
    "regex": (Regex("(ab|b)[ab]{0,2}"), [s + t for s in ("ab", "b") for t in ("", *"ab", "aa", "ab", "ba", "bb")]),
    "schema": (JsonSchema({"enum": ["é", 17, None, [1, 2]]}), ['"é"', "17", "null", "[1, 2]"]),
    "compact": (JsonSchema({"enum": [{"a": [1, 2], "b": 0}]}, "compact"), ['{"a":[1,2],"b":0}']),
    "lark": (Lark('start: "x" (WORD | "!"){1,2}\nWORD: /o[hw]/'), ["x" + s + t for s in WORDS for t in ("", *WORDS)]),
}


@pytest.fixture(scope="module", params=["tiny", "smollm2", "gemma3"])
def model(request: pytest.FixtureRequest) -> Model:
    """A byte-level vocabulary that cannot spell everything in one way, a larger one, and SentencePiece."""
    names = {"tiny": "tiny_target_path", "smollm2": "smollm2_path", "gemma3": "gemma3_path"}
    return Model(request.getfixturevalue(names[request.param]), vocab_only=True)


@pytest.fixture(scope="module")
def tiny(tiny_target_path: Path) -> Model:
    return Model(tiny_target_path, vocab_only=True)


def allowed_by(mask: np.ndarray, n_vocab: int) -> set[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:n_vocab]
    return set(np.flatnonzero(bits).tolist())


def pieces_of(model: Model) -> list[bytes]:
    """The bytes that each token gives a user; none for those that end a text."""
    vocab = model.vocab
    return [b"" if vocab.is_eog(token) else vocab.token_to_piece(token) for token in range(vocab.n_tokens)]


def common_start(texts: list[bytes]) -> bytes:
    n = 0
    while all(len(text) > n for text in texts) and len({text[: n + 1] for text in texts}) == 1:
        n += 1
    return texts[0][:n]


@pytest.mark.parametrize("name", FINITE)
def test_allowed_is_what_a_text_of_the_language_goes_on_with(model: Model, name: str):
    constraint, texts = FINITE[name]
    language = {text.encode() for text in texts}
    pieces, ends, rng = pieces_of(model), set(model.vocab.eog_tokens), random.Random(1)
    spelling: dict[bytes, set[int]] = {}
    for token, piece in enumerate(pieces):
        spelling.setdefault(piece, set()).add(token)
    matcher = compile_constraint(constraint, model, ends=ends)
    finished = set()
    for _ in range(30):
        matcher.reset()
        said = b""
        while not matcher.is_finished:
            rests = [text[len(said) :] for text in language if text.startswith(said)]
            starts = {rest[:n] for rest in rests for n in range(1, len(rest) + 1)}
            expected = set().union(*(spelling.get(start, set()) for start in starts))
            allowed = allowed_by(matcher.mask(), model.vocab.n_tokens)
            assert matcher.is_complete == (said in language)
            assert allowed & ends == (ends if said in language else set())
            forced = common_start(rests)
            assert matcher.is_forced == bool(forced)
            tokens = matcher.forced(64)
            assert forced.startswith(b"".join(pieces[t] for t in tokens))
            assert allowed - ends == ({tokens[0]} if tokens else expected)
            if not forced:
                sample = [*rng.sample(range(len(pieces)), 50), *sorted(expected)[:50], *ends]
                assert all(matcher.allows(token) == (token in allowed) for token in sample)
            if said in language and rng.random() < 0.3:
                matcher.accept(min(ends))
                break
            token = rng.choice(sorted(allowed - ends))
            matcher.accept(token)
            said += pieces[token]
        assert said in language
        assert matcher.is_finished
        assert matcher.forced(8) == []
        finished.add(said)
    assert len(finished) >= min(3, len(language))


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema({"type": "object", "properties": {"long_name": {"type": "integer"}}, "required": ["long_name"]}),
        Json("any"),
        Regex("(ab|cd){2,4}-[0-9]{3}( euros and some cents| dollars)?"),
    ],
    ids=lambda c: type(c).__name__,
)
def test_asking_for_forced_tokens_changes_nothing_and_they_are_the_only_ones(model: Model, constraint: Constraint):
    ends, rng = model.vocab.eog_tokens, random.Random(2)
    quiet, asked = (compile_constraint(constraint, model, ends=ends) for _ in range(2))
    n_forced = 0
    for _ in range(8):
        quiet.reset(), asked.reset()
        open_: list[int] = []
        while not quiet.is_finished and rng.random() > 0.03:
            forced = asked.forced(32)
            assert forced[: len(open_)] == open_[: len(forced)]
            mask = quiet.mask()
            assert np.array_equal(mask, asked.mask())
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: model.vocab.n_tokens]
            bits[ends] = 0
            allowed = np.flatnonzero(bits)
            if forced:
                n_forced += 1
                assert allowed.tolist() == [forced[0]]
            token = int(rng.choice(allowed))
            open_ = forced[1:]
            quiet.accept(token), asked.accept(token)
    assert n_forced or isinstance(constraint, Json)


def test_the_forced_tokens_are_those_that_the_text_is_usually_cut_into(model: Model):
    text = '{"a rather long name": "hello world"}'
    matcher = compile_constraint(Choice([text]), model, ends=model.vocab.eog_tokens)
    usual = model.vocab.tokenize(text, add_special=False).tolist()
    assert matcher.forced(100) == usual
    assert matcher.forced(3) == usual[:3]


def test_a_matcher_starts_again(tiny: Model):
    matcher = compile_constraint(Regex("ab?"), tiny, ends=tiny.vocab.eog_tokens)
    first = matcher.mask().copy()
    for text in ("a", "b"):
        matcher.accept(int(tiny.vocab.tokenize(text, add_special=False)[0]))
    assert matcher.is_finished
    matcher.reset()
    assert not matcher.is_finished
    assert np.array_equal(matcher.mask(), first)


def test_a_token_that_may_not_come_is_an_error_that_tells_where(tiny: Model):
    vocab = tiny.vocab
    matcher = compile_constraint(Regex("[a-z]{2}9"), tiny, ends=vocab.eog_tokens)
    a, nine = (int(vocab.tokenize(text, add_special=False)[0]) for text in "a9")
    for token in (nine, vocab.eog_tokens[0]):
        matcher.reset()
        matcher.accept(a)
        with pytest.raises(ConstraintError, match=rf"token {token} \(.*\) cannot follow 'a'"):
            matcher.accept(token)


def test_where_nothing_can_follow_and_nothing_ends_is_an_error(tiny: Model):
    matcher = compile_constraint(Regex("a{0}"), tiny)
    with pytest.raises(ConstraintError, match="no token of the vocabulary can follow the beginning of the text"):
        matcher.mask()


def test_generations_at_once_have_places_of_their_own(tiny: Model):
    one, two = (compile_constraint(Choice(["abc", "xyz"]), tiny) for _ in range(2))
    one.accept(int(tiny.vocab.tokenize("x", add_special=False)[0]))
    assert not np.array_equal(one.mask(), two.mask())


# ------------------------------------------------------------------ refusals

BAD: dict[str, tuple[Constraint, str]] = {
    "regex": (Regex("a("), "unclosed group"),
    "look-around": (Regex("a(?=b)"), "look-around"),
    "type": (JsonSchema({"type": "blah"}), "Invalid type: blah"),
    "unknown keyword": (JsonSchema({"uniqueItems": True, "type": "array"}), "uniqueItems"),
    "unsatisfiable": (JsonSchema({"type": "integer", "minimum": 5, "maximum": 3}), "Unsatisfiable"),
    "lark": (Lark('start: "a" unknown_rule'), "unknown_rule"),
    "lark without start": (Lark('begin: "a"'), "start"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_constraint_that_cannot_be_is_refused_with_the_librarys_reason(tiny: Model, name: str):
    constraint, reason = BAD[name]
    with pytest.raises(ConstraintError, match=reason):
        compile_constraint(constraint, tiny)


WRONG: dict[str, Callable[[], Any]] = {
    "schema of another type": lambda: JsonSchema(7),  # type: ignore[arg-type]
    "false": lambda: JsonSchema(False),
    "text that is no JSON": lambda: JsonSchema("{"),
    "no JSON value": lambda: JsonSchema({"const": {1, 2}}),
    "not a number": lambda: JsonSchema({"const": float("nan")}),
    "whitespace": lambda: JsonSchema({}, "some"),  # type: ignore[arg-type]
    "json whitespace": lambda: Json("none"),  # type: ignore[arg-type]
    "empty regex": lambda: Regex(""),
    "bytes": lambda: Regex(b"a"),  # type: ignore[arg-type]
    "surrogate": lambda: Lark("start: \ud800"),
    "a text for a list": lambda: Choice("yes"),
    "no texts": lambda: Choice([]),
    "twice": lambda: Choice(["a", "a"]),
    "an empty text": lambda: Choice(["a", ""]),
    "a pattern alone": lambda: as_constraint("[a-z]+"),
    "a schema alone": lambda: as_constraint({"type": "object"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_constraint_is_refused_by_name(name: str):
    with pytest.raises(InvalidValueError, match="must be"):
        WRONG[name]()


def test_a_schema_may_be_json_text(tiny: Model):
    as_dict, as_text = (compile_constraint(JsonSchema(s), tiny) for s in ({"const": 12}, '{"const": 12}'))
    assert as_dict.forced(9) == as_text.forced(9) != []


def test_without_the_library_the_error_tells_how_to_get_it(tiny: Model, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UnsupportedError, match=r'pip install "pyspec-llama\[constraints\]"'):
        compile_constraint(Regex("a"), tiny)


def test_a_model_without_text_takes_no_constraint(arch_model: Callable[[str], Path], tmp_path: Path):
    data = bytearray(arch_model("llama").read_bytes())
    key = b"tokenizer.ggml.model"
    value = data.index(key) + len(key) + 4 + 8  # behind the value's type and length
    data[value : value + 4] = b"none"
    (tmp_path / "none.gguf").write_bytes(data)
    with pytest.raises(VocabularyMissingError, match="a constraint needs a text vocabulary"):
        compile_constraint(Regex("a"), Model(tmp_path / "none.gguf"))


def test_a_vocabulary_is_read_once_and_goes_with_its_model(tiny_target_path: Path):
    import gc
    import weakref

    from pyspec.constraint import matcher

    own = Model(tiny_target_path, vocab_only=True)
    made: list[Matcher] = [compile_constraint(Regex("a"), own) for _ in range(2)]
    assert made[0]._tokenizer is made[1]._tokenizer
    n, gone = len(matcher._tokenizers), weakref.ref(own)
    del own, made
    gc.collect()
    assert gone() is None
    assert len(matcher._tokenizers) == n - 1


class SpacedVocab:
    """As some SentencePiece vocabularies: a space stands in front of every text, and words are short."""

    has_text = True

    def __init__(self) -> None:
        self.words = ["<s>", "</s>", "\n", " ", "a", "b", "ab", " a", " ab", "c"]
        self.n_tokens = len(self.words)
        self.eog_tokens = [1]

    def is_eog(self, token: int) -> bool:
        return token == 1

    def token_to_piece(self, token: int, *, special: bool = False) -> bytes:
        return self.words[token].encode() if special or token > 1 else b""

    def tokenize(self, text: bytes, *, add_special: bool) -> np.ndarray:
        rest, tokens = " " + text.decode(), []
        while rest:
            token = min((t for t in range(2, 10) if rest.startswith(self.words[t])), key=lambda t: len(self.words[t]))
            tokens.append(token)
            rest = rest[len(self.words[token]) :]
        return np.array(tokens, np.int32)


class SpacedModel:
    vocab = SpacedVocab()


@pytest.mark.parametrize(
    ("text", "words"), [("abc", list("abc")), (" ab", list(" ab")), ("a\nb", list("a\nb")), ("", [])], ids=repr
)
def test_a_vocabulary_that_begins_texts_with_a_space_spells_what_stands_inside_of_one(text: str, words: list[str]):
    model = SpacedModel()
    tokenizer = _Tokenizer(model)  # type: ignore[arg-type]
    assert [model.vocab.words[token] for token in tokenizer(text)] == words


def test_a_vocabulary_that_changes_a_text_spells_as_much_as_it_can(monkeypatch: pytest.MonkeyPatch):
    model = SpacedModel()
    tokenizer = _Tokenizer(model)  # type: ignore[arg-type]
    monkeypatch.setattr(SpacedVocab, "tokenize", lambda *_, **__: np.array([4, 4], np.int32))
    assert tokenizer("abab c") == [6, 6, 3, 9]
    assert tokenizer("abX") == [6]
