"""What a generated text must look like: a JSON schema, a regular expression, a Lark grammar, one of several texts.

Owns the kinds of constraints and how each is written as a grammar of the library llguidance. Leaves following a
text through the grammar to `matcher`, and choosing among the tokens that it allows to `sampler`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from pyspec.constraint.schema import N_LINKS, schema_text, surrogate_at
from pyspec.errors import ConstraintError, InvalidValueError, UnsupportedError

__all__ = ["Choice", "Constraint", "Json", "JsonSchema", "Lark", "Regex", "as_constraint", "llguidance"]

Whitespace = Literal["spaced", "compact", "any"]

_LAYOUTS: dict[str, dict[str, Any]] = {
    "spaced": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    "compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    "any": {"whitespace_flexible": True, "item_separator": ",", "key_separator": ":"},
}
_RULES = re.compile(r"^[^\S\n]*[?!]?\w[^:\n\"/]*:", re.MULTILINE)


def llguidance() -> ModuleType:
    """The library that follows grammars, imported when it is first needed.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        import llguidance as library
    except ImportError as error:
        raise UnsupportedError(
            what="a constraint by JSON schema, regular expression, Lark grammar or choice",
            why=f"it needs the package llguidance ({error})",
            way_out='pip install "pyspec-llama[constraints]"; a GBNF grammar (grammar=) works without it',
        ) from error
    return library


def _written(writer: str, *args: Any, **options: Any) -> str:
    """What a writer of grammars of llguidance gives.

    Raises:
        ConstraintError: it refuses, with its reason.
    """
    try:
        text: str = getattr(llguidance().LLMatcher, writer)(*args, **options)
    except ValueError as error:
        raise ConstraintError(reason=str(error)) from None
    return text


def _check_text(text: object, name: str) -> None:
    """Refuse what is no text, with the place of what UTF-8 cannot hold."""
    allowed = "a text that is not empty and that UTF-8 can hold"
    if isinstance(text, str) and text:
        at = surrogate_at(text)
        if at is None:
            return
        allowed += f", this has a lone surrogate at index {at}"
    raise InvalidValueError(name=name, value=text, allowed=allowed)


def _check_whitespace(whitespace: object) -> None:
    if not isinstance(whitespace, str) or whitespace not in _LAYOUTS:
        raise InvalidValueError(name="whitespace", value=whitespace, allowed="'spaced', 'compact' or 'any'")


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that a schema describes (llguidance's docs/json_schema.md tells which keywords it knows).

    Attributes:
        schema: as a dict, True (any JSON), or JSON text. Properties come in the order in which the schema has them.
        whitespace: "spaced" writes `{"a": 1, "b": 2}` as Python's `json.dumps` does, "compact" `{"a":1,"b":2}`; "any"
            leaves it to the model, which then has less that is forced, and may go on with spaces for ever.

    Raises:
        InvalidValueError: no JSON, too deep or too large, a lone surrogate, or another `whitespace`.
    """

    schema: dict[str, Any] | str | bool
    whitespace: Whitespace = "spaced"

    def __post_init__(self) -> None:
        _check_whitespace(self.whitespace)
        schema_text(self.schema)

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        return _written("grammar_from_json_schema", schema_text(self.schema), overrides=_LAYOUTS[self.whitespace])


@dataclass(frozen=True, slots=True)
class Json:
    """Any JSON value; for an object, `JsonSchema({"type": "object"})`.

    Attributes:
        whitespace: as in `JsonSchema`.
    """

    whitespace: Whitespace = "spaced"

    def __post_init__(self) -> None:
        _check_whitespace(self.whitespace)

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        return JsonSchema(True, self.whitespace).grammar()


@dataclass(frozen=True, slots=True)
class Regex:
    r"""A text that a regular expression matches from its first to its last character, as `re.fullmatch` would.

    Attributes:
        pattern: in the syntax of Rust's regex crate, which is Python's without look-around and back-references.
    """

    pattern: str

    def __post_init__(self) -> None:
        _check_text(self.pattern, "pattern")

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        return _written("grammar_from_regex", self.pattern)


@dataclass(frozen=True, slots=True)
class Lark:
    """A context-free grammar in llguidance's variant of Lark (its docs/syntax.md), with the rule `start`.

    Attributes:
        text: the grammar.
    """

    text: str

    def __post_init__(self) -> None:
        _check_text(self.text, "text")
        n_rules = len(_RULES.findall(self.text)) + self.text.count('"$ref"')
        if n_rules > N_LINKS:
            allowed = f"a grammar of at most {N_LINKS} rules and references, this has {n_rules}"
            raise InvalidValueError(name="text", value=self.text, allowed=allowed)

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        return _written("grammar_from_lark", self.text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several texts.

    Attributes:
        texts: at least one, none empty, none twice; stored as a tuple.
    """

    texts: Sequence[str]

    def __post_init__(self) -> None:
        texts = self.texts
        if not isinstance(texts, (list, tuple)) or not texts:
            raise InvalidValueError(name="texts", value=texts, allowed="a list of texts, at least one")
        for at, text in enumerate(texts):
            _check_text(text, f"texts[{at}]")
        if len(set(texts)) < len(texts):
            raise InvalidValueError(name="texts", value=texts, allowed="a list of texts, none of them twice")
        object.__setattr__(self, "texts", tuple(texts))

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        pattern = "|".join("".join(_escaped(c) for c in text) for text in self.texts)
        return _written("grammar_from_regex", pattern)


def _escaped(character: str) -> str:
    """The character as a regular expression that matches it alone."""
    return character if character.isalnum() or character == "_" else f"\\x{{{ord(character):x}}}"


Constraint = JsonSchema | Json | Regex | Lark | Choice


def as_constraint(value: object) -> Constraint | None:
    """A constraint, or None for none.

    Raises:
        InvalidValueError: something else.
    """
    if value is None or isinstance(value, Constraint):
        return value
    allowed = "None or a pyspec.constraint: JsonSchema(...), Json(), Regex(...), Lark(...) or Choice([...])"
    raise InvalidValueError(name="constraint", value=value, allowed=allowed)
