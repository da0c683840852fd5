"""Constraints from strangers: whatever is handed in, the answer is an error that names the place, never a crash."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import isolated
import pytest

from pyspec import Llama
from pyspec._core import Model
from pyspec.constraint import Choice, Constraint, JsonSchema, Lark, Regex
from pyspec.constraint.compiled import N_KEPT, Compiled
from pyspec.constraint.matcher import _tokenizer, compile_constraint
from pyspec.constraint.schema import N_LEVELS, N_LINKS
from pyspec.errors import ConstraintError, GrammarError, InvalidValueError, PyspecError

SURROGATE = "ab\ud800"


def nested(n_levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    inner = schema
    for _ in range(n_levels - 1):
        inner["items"] = {}
        inner = inner["items"]
    return schema


def circle() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    return schema


def doubled() -> dict[str, Any]:
    """Sixty dicts, each twice in the next: written out they would be 2 to the 60."""
    schema: dict[str, Any] = {}
    for _ in range(60):
        schema = {"a": schema, "b": schema}
    return schema


@pytest.fixture(scope="module")
def model(tiny_target_path: Path) -> Model:
    return Model(tiny_target_path, vocab_only=True)


# ------------------------------------------------------------------ depth and size


def test_a_schema_as_deep_as_the_limit_is_followed(model: Model):
    assert compile_constraint(JsonSchema(nested(N_LEVELS)), model).mask().any()
    assert compile_constraint(JsonSchema(json.dumps(nested(N_LEVELS))), model).mask().any()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (nested(N_LEVELS + 1), "more than 124"),
        (nested(5000), "at most 124 dicts and lists"),
        (json.dumps(nested(N_LEVELS + 1)), "this has 125"),
        ("[" * 100_000, "this has 100000"),
        ('{"a":' * 2000, "this has 2000"),
        ('"' + '\\"' * 200_000, "Unterminated string"),
        (circle(), "or holds itself"),
        (doubled(), "at most 1000000 values"),
        ({"$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(N_LINKS + 1)}}, "10000 references"),
    ],
    ids=["one-too-many", "deep", "deep-text", "brackets", "cut-text", "quotes", "circle", "doubled", "references"],
)
def test_a_schema_beyond_a_limit_is_refused_with_the_numbers(schema: Any, says: str):
    with pytest.raises(InvalidValueError, match=r"^schema=") as caught:
        JsonSchema(schema)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_brackets_in_texts_are_not_levels():
    JsonSchema(json.dumps({"const": "[" * 1000 + '"{'}))


HOSTILE: dict[str, Callable[[], Constraint]] = {
    "regex-parentheses": lambda: Regex("(" * 100_000),
    "regex-groups": lambda: Regex("(" * 1000 + "a" + ")" * 1000),
    "regex-classes": lambda: Regex("[" * 100_000),
    "regex-stars": lambda: Regex("a" + "*" * 100_000),
    "lark-parentheses": lambda: Lark("start: " + "(" * 100_000),
    "lark-symbols": lambda: Lark("start: " + '"a" ' * 70_000),
    "lark-regex": lambda: Lark("start: /" + "(" * 50_000 + "a" + ")" * 50_000 + "/"),
    "lark-schema": lambda: Lark("start: %json " + json.dumps(nested(300))),
    "lark-unknown": lambda: Lark("start: nothing"),
    "lark-rules": lambda: Lark("start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(N_LINKS)) + '\nr: "a"'),
    "schema-pattern": lambda: JsonSchema({"type": "string", "pattern": "(" * 50_000}),
    "schema-number": lambda: JsonSchema({"type": "integer", "minimum": 10**400}),
    "schema-number-that-python-writes-not": lambda: JsonSchema({"const": 10**5000}),
    "schema-nan": lambda: JsonSchema({"const": float("nan")}),
    "schema-of-objects": lambda: JsonSchema({"const": object()}),
    "schema-key": lambda: JsonSchema({(1, 2): 3}),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_compiled_is_an_error_of_a_length_that_can_be_read(model: Model, name: str):
    with pytest.raises((InvalidValueError, ConstraintError)) as caught:
        compile_constraint(HOSTILE[name](), model)
    assert len(str(caught.value)) < 3000
    assert "backtrace" not in str(caught.value)


def test_a_long_choice_is_followed(model: Model):
    assert compile_constraint(Choice([f"w{i}" for i in range(20_000)]), model).mask().any()
    assert compile_constraint(Choice(["a" * 50_000]), model).mask().any()


@pytest.mark.parametrize(
    "grammar",
    ["root ::= " + "(" * 100_000, "root ::= root", "root ::= [" + "a" * 10_000],
    ids=["parentheses", "itself", "class"],
)
def test_a_hostile_gbnf_grammar_is_refused(tiny_target_path: Path, grammar: str):
    with Llama(tiny_target_path, n_ctx=64, n_threads=1, budget="off", rollback="shadow") as llm:
        with pytest.raises(GrammarError) as caught:
            llm.generate("x", grammar=grammar)
        assert len(str(caught.value)) < 3000


def compile_a_chain(kind: str, path: str) -> str:
    """In a thread with a small stack, as on other systems; rules inside each other to the limit."""
    n = N_LINKS - 2
    rules = "\n".join(f"r{i}: r{i + 1}" for i in range(n - 1))
    defs: dict[str, Any] = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(n)}
    made: dict[str, Callable[[], Constraint]] = {
        "lark": lambda: Lark(f'start: r0\n{rules}\nr{n - 1}: "a"'),
        "schema": lambda: JsonSchema({"$defs": defs | {f"a{n}": {"const": 1}}, "$ref": "#/$defs/a0"}),
    }
    model = Model(path, vocab_only=True)
    told: list[str] = []

    def work() -> None:
        try:
            told.append("followed" if compile_constraint(made[kind](), model).mask().any() else "nothing")
        except PyspecError as error:
            told.append(str(error))

    threading.stack_size(512 * 1024)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return told[0]


@pytest.mark.parametrize("kind", ["lark", "schema"])
def test_rules_inside_each_other_overrun_no_stack(tiny_target_path: Path, kind: str):
    assert isolated.call(compile_a_chain, kind, str(tiny_target_path)) == "followed"


# ------------------------------------------------------------------ what UTF-8 cannot hold


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: JsonSchema({"const": SURROGATE}), r"schema\['const'\] has one at index 2"),
        (lambda: JsonSchema({"properties": {SURROGATE: {}}}), r"schema\['properties'\]\['ab\\ud800'\] has one"),
        (lambda: JsonSchema({"enum": ["a", SURROGATE]}), r"schema\['enum'\]\[1\] has one"),
        (lambda: JsonSchema('{"const": "ab\\ud800"}'), r"schema\['const'\] has one at index 2"),
        (lambda: Regex(SURROGATE), "pattern=.*index 2"),
        (lambda: Lark(f'start: "{SURROGATE}"'), "text=.*index 10"),
        (lambda: Choice(["a", SURROGATE]), r"texts\[1\]=.*index 2"),
    ],
    ids=["value", "key", "list", "text", "regex", "lark", "choice"],
)
def test_a_lone_surrogate_is_refused_with_its_place(make: Callable[[], object], place: str):
    with pytest.raises(InvalidValueError, match=place) as caught:
        make()
    str(caught.value).encode()


def test_a_lone_surrogate_in_a_gbnf_grammar_is_refused(tiny_target_path: Path):
    llm = Llama(tiny_target_path, n_ctx=64, n_threads=1, budget="off", rollback="shadow")
    with llm, pytest.raises(InvalidValueError, match=r"grammar=.*surrogates"):
        llm.generate("x", grammar=f'root ::= "{SURROGATE}"')


# ------------------------------------------------------------------ what is compiled once


def test_the_same_grammar_is_compiled_once(model: Model, monkeypatch: pytest.MonkeyPatch):
    import pyspec.constraint.compiled as module

    n_compiled = 0
    real = module._compile

    def counting(grammar: str, tokenizer: Any) -> Any:
        nonlocal n_compiled
        n_compiled += 1
        return real(grammar, tokenizer)

    monkeypatch.setattr(module, "_compile", counting)
    for _ in range(3):
        compile_constraint(JsonSchema({"const": "said once"}), model)
    compile_constraint(JsonSchema({"const": "said once"}, "compact"), model)
    assert n_compiled == 2


def test_the_grammars_asked_for_last_are_kept(model: Model):
    kept, tokenizer = Compiled(), _tokenizer(model)
    grammars = [Choice([f"w{i}"]).grammar() for i in range(N_KEPT + 1)]
    first = kept.get(grammars[0], tokenizer)
    for grammar in grammars[1:N_KEPT]:
        kept.get(grammar, tokenizer)
    assert kept.get(grammars[0], tokenizer) is first
    kept.get(grammars[N_KEPT], tokenizer)
    assert len(kept) == N_KEPT
    assert kept.get(grammars[0], tokenizer) is first, "the one that was not asked for went"


def test_an_error_is_not_kept(model: Model):
    for _ in range(2):
        with pytest.raises(ConstraintError, match="unclosed"):
            compile_constraint(Regex("("), model)


def test_followers_of_one_kept_grammar_do_not_move_each_other(model: Model):
    """Many threads at different places of one grammar, each as far as alone."""
    constraint = Regex("(ab|cd){3,9}e")
    tokens = {c: model.vocab.tokenize(c, add_special=False).tolist()[0] for c in "abcde"}
    texts = ["ab" * 3 + "e", "cd" * 4 + "e", "abcd" * 2 + "e", "cdab" * 3 + "e"]
    wrong: list[str] = []

    def follow(text: str) -> None:
        for _ in range(50):
            matcher = compile_constraint(constraint, model)
            for character in text:
                if matcher.is_complete or not matcher.mask().any():
                    wrong.append(text)
                matcher.accept(tokens[character])
            if not matcher.is_finished:
                wrong.append(text)

    threads = [threading.Thread(target=follow, args=(text,)) for text in texts * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
