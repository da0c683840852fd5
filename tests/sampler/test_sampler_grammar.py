"""Laws of grammars: every token follows them, bad ones are refused with a reason and without a trap.

Owns what a user sees of GBNF; leaves its meaning to llama.cpp (grammars/README.md).
"""

from __future__ import annotations

import json
import math

import pytest
from sampler_reference import OPEN, law_of, softmax

from pyspec import errors
from pyspec._core import Context, Model, Sampler
from pyspec.config import SamplingOptions

DIGITS = 'root ::= "[" digit ("," digit)* "]"\ndigit ::= [0-9]'
OBJECT = r"""
root   ::= object
object ::= "{" pair ("," pair)? "}"
pair   ::= string ":" (string | number)
string ::= "\"" [a-z]{1,6} "\""
number ::= [1-9] [0-9]{0,3}
"""


def _constrained(model: Model, context: Context, options: SamplingOptions, n_max: int) -> tuple[str, bool]:
    """What a run says, and whether it ended by itself."""
    sampler = Sampler(model, options)
    pos = context.seq_pos_max(0) + 1
    said = []
    for i in range(n_max):
        token = sampler.sample(context, 0)
        sampler.accept(token)
        if model.vocab.is_eog(token):
            break
        said.append(token)
        context.decode([token], pos=pos + i)
    else:
        return model.vocab.detokenize(said).decode(), False
    return model.vocab.detokenize(said).decode(), True


def _prompted(model: Model) -> Context:
    context = Context(model, n_ctx=128, n_threads=1)
    context.decode(model.vocab.tokenize("numbers = "), pos=0)
    return context


@pytest.mark.parametrize("temperature", [0.0, 1.0, 3.0])
def test_every_token_follows_the_grammar_of_digits(text_model: Model, temperature: float) -> None:
    context = _prompted(text_model)
    start = context.seq_pos_max(0) + 1
    ended = 0
    for seed in range(12):
        context.clear()
        context.decode(text_model.vocab.tokenize("numbers = "), pos=0)
        assert context.seq_pos_max(0) + 1 == start
        options = SamplingOptions(temperature=temperature, seed=seed, grammar=DIGITS, top_k=0, min_p=0.0)
        text, done = _constrained(text_model, context, options, 40)
        closed = text if done else text.rstrip(",") + "]"
        if text != "[":
            values = json.loads(closed if done or text[-1] != "]" else text)
            assert all(isinstance(value, int) and 0 <= value <= 9 for value in values)
        ended += done
    assert ended > 0


def test_every_finished_text_is_a_json_object(text_model: Model) -> None:
    context = _prompted(text_model)
    n_finished = 0
    for seed in range(12):
        context.clear()
        context.decode(text_model.vocab.tokenize("numbers = "), pos=0)
        options = SamplingOptions(temperature=1.5, seed=seed, grammar=OBJECT)
        text, done = _constrained(text_model, context, options, 60)
        if done:
            n_finished += 1
            assert all(isinstance(value, (int, str)) for value in json.loads(text).values())
        else:
            assert text.startswith("{")
    assert n_finished > 4


def test_probabilities_give_nothing_to_forbidden_tokens(text_context: Context, text_model: Model) -> None:
    sampler = Sampler(text_model, SamplingOptions(temperature=2.0, grammar=DIGITS, top_k=0, top_p=1.0, min_p=0.0))
    law = law_of(sampler, text_context)
    assert sum(law.values()) == pytest.approx(1.0)
    assert {text_model.vocab.token_to_piece(token)[:1] for token in law} == {b"["}


@pytest.mark.parametrize("grammar", [DIGITS, "root ::= [a-z ]+", "root ::= [q]+"], ids=["[", "letters", "q"])
def test_the_law_is_the_free_choice_where_allowed_and_the_best_allowed_otherwise(
    text_context: Context, text_model: Model, grammar: str
) -> None:
    """However few candidates the grammar is asked about, the law is that of asking about all of them."""
    everything = Sampler(text_model, SamplingOptions(grammar=grammar, **OPEN))
    allowed = set(law_of(everything, text_context))
    logits = dict(enumerate(text_context.logits(0, 1)[0].tolist()))
    best = sorted(logits, key=lambda token: -logits[token])
    free = softmax({token: logits[token] for token in best[:5]})
    constrained = softmax({token: logits[token] for token in [t for t in best if t in allowed][:5]})
    forbidden = sum(p for token, p in free.items() if token not in allowed)
    expected = {token: forbidden * p for token, p in constrained.items()}
    for token in allowed.intersection(free):
        expected[token] = expected.get(token, 0.0) + free[token]
    sampler = Sampler(text_model, SamplingOptions(grammar=grammar, **{**OPEN, "top_k": 5}))
    assert law_of(sampler, text_context) == pytest.approx(expected, rel=1e-3, abs=1e-9)
    greedy = Sampler(text_model, SamplingOptions(grammar=grammar))
    assert greedy.sample(text_context, 0) == next(token for token in best if token in allowed)


def test_a_forbidden_token_is_refused_and_changes_nothing(text_context: Context, text_model: Model) -> None:
    sampler = Sampler(text_model, SamplingOptions(grammar=DIGITS, repeat_penalty=1.5))
    bracket = sampler.sample(text_context, 0)
    x = int(text_model.vocab.tokenize("x", add_special=False)[0])
    eog = text_model.vocab.eog_tokens[0]
    for token in (x, eog):
        with pytest.raises(errors.GrammarError, match=f"token {token} .* is not allowed here"):
            sampler.accept(token)
    assert sampler.sample(text_context, 0) == bracket
    sampler.accept(bracket)
    with pytest.raises(errors.GrammarError, match="not allowed"):
        sampler.accept(bracket)


def test_prompt_tokens_do_not_move_the_grammar(text_context: Context, text_model: Model) -> None:
    sampler = Sampler(text_model, SamplingOptions(grammar=DIGITS))
    bracket = sampler.sample(text_context, 0)
    for token in text_model.vocab.tokenize("anything at all"):
        sampler.accept(int(token), prompt=True)
    assert sampler.sample(text_context, 0) == bracket


def test_a_finished_grammar_allows_only_the_end(text_context: Context, text_model: Model) -> None:
    sampler = Sampler(text_model, SamplingOptions(temperature=1.0, grammar='root ::= "["'))
    sampler.accept(sampler.sample(text_context, 0))
    for _ in range(3):
        token = sampler.sample(text_context, 0)
        assert text_model.vocab.is_eog(token)
        sampler.accept(token)


def test_a_finished_grammar_without_an_end_token_is_an_error(text_context: Context, text_model: Model) -> None:
    forbidden = dict.fromkeys(text_model.vocab.eog_tokens, -math.inf)
    sampler = Sampler(text_model, SamplingOptions(grammar='root ::= "["', logit_bias=forbidden))
    sampler.accept(sampler.sample(text_context, 0))
    with pytest.raises(errors.SamplerError, match="no candidate is left"):
        sampler.sample(text_context, 0)
    with pytest.raises(errors.SamplerError, match="no candidate is left"):
        sampler.probabilities(text_context, 0)


def test_a_lost_place_is_an_error_until_reset(text_context: Context, text_model: Model) -> None:
    """llama.cpp lets a token pass whose first letters match where a rule for that token itself follows."""
    vocab = text_model.vocab
    token = next(t for t in range(vocab.n_tokens) if vocab.token_to_piece(t) == b"the")
    sampler = Sampler(text_model, SamplingOptions(grammar=f'root ::= "t" <[{token}]>'))
    with pytest.raises(errors.GrammarError, match="reset the sampler"):
        sampler.accept(token)
    with pytest.raises(errors.GrammarError, match="reset the sampler"):
        sampler.sample(text_context, 0)
    sampler.reset()
    assert vocab.token_to_piece(sampler.sample(text_context, 0)).startswith(b"t")


BAD_GRAMMARS: dict[str, tuple[str, str]] = {
    "open-literal": ('root ::= "abc', r"line 1, column 10: this literal is not closed"),
    "open-class": ("root ::= [abc", r"line 1, column 10: this class is not closed"),
    "open-group": ('root ::= ("a" | "b"', r"line 1, column 20: expected '\)' of the group, found the end"),
    "second-line": ('root ::= a\na := "x"', r"line 2, column 3: expected '::='"),
    "escape": (r'root ::= "\q"', "unknown escape"),
    "hex": (r'root ::= "\x4"', "2 hexadecimal digits"),
    "nothing-to-repeat": ("root ::= *", "expected something to repeat"),
    "backwards": ('root ::= "a"{3,2}', "at least 3 and at most 2"),
    "too-many": ('root ::= "a"{2001}', "at most 2000"),
    "nested-repetitions": ('root ::= "a"{50}{50}', "multiply to more than 2000"),
    "undefined": ("root ::= a", "rule 'a' is used but not defined"),
    "no-root": ('start ::= "a"', "no rule 'root'"),
    "empty": ("# nothing", "contains no rule"),
    "left-recursion": ('root ::= root "a" | "b"', "left recursion: rule 'root'"),
    "left-recursion,indirect": ('root ::= a\na ::= b "x"\nb ::= a | "y"', "left recursion"),
    "left-recursion,behind-empty": (
        'root ::= ws root "x" | "y"\nws ::= w\nw ::= " "*',
        "left recursion: rule 'root'",
    ),
    "nothing": ("root ::= a\na ::= e a\ne ::= f\nf ::= ", "can never produce any text"),
    "exponential": (
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} | r{i + 1}\n" for i in range(60)) + 'r60 ::= "a"',
        "too many ways to begin",
    ),
    "deep": ("root ::= " + "(" * 300 + '"a"' + ")" * 300, "nested deeper than 200"),
    "long-chain": (
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(3000)) + 'r3000 ::= "a"',
        "more than 1000 deep",
    ),
    "expansion": ('root ::= "' + "a" * 5000 + '"{2000}', "more than 4000000 elements"),
    "unknown-token": ("root ::= <[99999999]>", "token 99999999 is outside the vocabulary"),
    "not-one-token": ("root ::= <|not a token|>", "is not one token"),
}


@pytest.mark.parametrize("name", BAD_GRAMMARS)
def test_a_bad_grammar_is_refused_with_its_reason(
    text_model: Model, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    grammar, reason = BAD_GRAMMARS[name]
    with pytest.raises(errors.GrammarError, match=reason):
        Sampler(text_model, SamplingOptions(grammar=grammar))
    assert capfd.readouterr() == ("", "")


GOOD_GRAMMARS = {
    "empty-root": "root ::= ",
    "repeated-optionals": 'root ::= ("a"? "b"?)* "c"',
    "tail-recursion-behind-empty": 'root ::= ws root | "y"\nws ::= w\nw ::= " "*',
    "comments": '# one\nroot ::= a # two\n  # three\na ::= "x" |\n  "y"\r\n',
    "token-by-text": "root ::= <|TOKEN|>",
    "not-token": "root ::= !<[5]>",
    "unicode": 'root ::= "é" [ぁ-ゟ]+ "\\u00e9"',
    "redefined": 'root ::= "a"\nroot ::= "b"',
    "other-root": 'root ::= "a"\nmain ::= "b"',
}


@pytest.mark.parametrize("name", GOOD_GRAMMARS)
def test_a_good_grammar_is_taken(text_context: Context, text_model: Model, name: str) -> None:
    control = next(
        t for t in range(text_model.vocab.n_tokens) if text_model.vocab.is_control(t) and not text_model.vocab.is_eog(t)
    )
    grammar = GOOD_GRAMMARS[name].replace("<|TOKEN|>", text_model.vocab.text(control))
    root = "main" if name == "other-root" else "root"
    sampler = Sampler(text_model, SamplingOptions(grammar=grammar, grammar_root=root))
    token = sampler.sample(text_context, 0)
    sampler.accept(token)
    first = {"empty-root": None, "repeated-optionals": b"abc", "redefined": b"b", "other-root": b"b"}.get(name)
    if name == "empty-root":
        assert text_model.vocab.is_eog(token)
    if first is not None:
        assert text_model.vocab.token_to_piece(token)[:1] in {first[i : i + 1] for i in range(len(first))}
