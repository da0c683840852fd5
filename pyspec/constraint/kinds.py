"""What a generated text must look like: a JSON schema, a regular expression, a Lark grammar, one of several texts.

Owns the kinds of constraints and how each is written as a grammar of the library llguidance. Leaves following a
text through the grammar to `matcher`, and choosing among the tokens that it allows to `sampler`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Literal

from pyspec.config import validate
from pyspec.errors import InvalidValueError, UnsupportedError

__all__ = ["Choice", "Constraint", "Json", "JsonSchema", "Lark", "Regex", "as_constraint", "llguidance"]

Whitespace = Literal["spaced", "compact", "any"]

_LAYOUTS: dict[str, dict[str, Any]] = {
    "spaced": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    "compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    "any": {"whitespace_flexible": True, "item_separator": ",", "key_separator": ":"},
}


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


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != "" and not any("\ud800" <= c <= "\udfff" for c in value)


_TEXT = (_is_text, "a text that is not empty and that UTF-8 can hold")
_WHITESPACE = (lambda v: isinstance(v, str) and v in _LAYOUTS, "'spaced', 'compact' or 'any'")


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that a schema describes (llguidance's docs/json_schema.md tells which keywords it knows).

    Attributes:
        schema: as a dict, True (any JSON), or JSON text. Properties come in the order in which the schema has them.
        whitespace: "spaced" writes `{"a": 1, "b": 2}` as Python's `json.dumps` does, "compact" `{"a":1,"b":2}`; "any"
            leaves it to the model, which then has less that is forced, and may go on with spaces for ever.

    Raises:
        InvalidValueError: no JSON, or another `whitespace`.
    """

    schema: dict[str, Any] | str | bool
    whitespace: Whitespace = "spaced"

    _CHECKS: ClassVar = {"whitespace": _WHITESPACE}

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)
        self._text()

    def _text(self) -> str:
        allowed = "a JSON schema: a dict, True for any JSON, or one of these as JSON text"
        try:
            value = json.loads(self.schema) if isinstance(self.schema, str) else self.schema
            if isinstance(value, dict) or value is True:
                return json.dumps({} if value is True else value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            allowed += f" ({error})"
        raise InvalidValueError(name="schema", value=self.schema, allowed=allowed)

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        matcher = llguidance().LLMatcher
        text: str = matcher.grammar_from_json_schema(self._text(), overrides=_LAYOUTS[self.whitespace])
        return text


@dataclass(frozen=True, slots=True)
class Json:
    """Any JSON value; for an object, `JsonSchema({"type": "object"})`.

    Attributes:
        whitespace: as in `JsonSchema`.
    """

    whitespace: Whitespace = "spaced"

    _CHECKS: ClassVar = {"whitespace": _WHITESPACE}

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)

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

    _CHECKS: ClassVar = {"pattern": _TEXT}

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        text: str = llguidance().LLMatcher.grammar_from_regex(self.pattern)
        return text


@dataclass(frozen=True, slots=True)
class Lark:
    """A context-free grammar in llguidance's variant of Lark (its docs/syntax.md), with the rule `start`.

    Attributes:
        text: the grammar.
    """

    text: str

    _CHECKS: ClassVar = {"text": _TEXT}

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        text: str = llguidance().LLMatcher.grammar_from_lark(self.text)
        return text


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several texts.

    Attributes:
        texts: at least one, none empty, none twice; stored as a tuple.
    """

    texts: Sequence[str]

    def __post_init__(self) -> None:
        texts = self.texts
        if (
            not isinstance(texts, (list, tuple))
            or not texts
            or not all(_is_text(text) for text in texts)
            or len(set(texts)) < len(texts)
        ):
            allowed = "a list of texts, at least one, none empty and none twice"
            raise InvalidValueError(name="texts", value=texts, allowed=allowed)
        object.__setattr__(self, "texts", tuple(texts))

    def grammar(self) -> str:
        """The grammar, as llguidance reads it."""
        pattern = "|".join("".join(_escaped(c) for c in text) for text in self.texts)
        text: str = llguidance().LLMatcher.grammar_from_regex(pattern)
        return text


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
