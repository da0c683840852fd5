"""Grammars as llama-cpp-python names them, and what a response's format asks for.

Owns `LlamaGrammar`, which holds GBNF text, and a grammar of JSON objects. Leaves following it to the sampler.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from pyspec.errors import InvalidValueError

__all__ = ["LlamaGrammar", "format_options", "grammar_options", "schema_options"]

_JSON_OBJECT = r"""
root   ::= object
object ::= "{" blank (pair ("," blank pair)*)? "}"
pair   ::= string blank ":" blank value
array  ::= "[" blank (value ("," blank value)*)? "]"
value  ::= (object | array | string | number | "true" | "false" | "null") blank
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" hex hex hex hex))* "\""
hex    ::= [0-9a-fA-F]
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,3})?
blank  ::= [ \n]{0,8}
"""


class LlamaGrammar:
    """GBNF text (llama.cpp grammars/README.md), or a JSON schema.

    Args:
        text: the grammar.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise InvalidValueError(name="grammar", value=text, allowed="GBNF text")
        self.text = text
        self.options: dict[str, Any] = {"grammar": text}

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """The grammar of a text; `verbose` has no meaning here."""
        return cls(grammar)

    @classmethod
    def from_file(cls, file: str | PathLike[str], verbose: bool = True) -> LlamaGrammar:
        """The grammar of a file; `verbose` has no meaning here."""
        return cls(Path(file).read_text(encoding="utf-8"))

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """JSON of a schema, followed by a constraint (`pyspec.constraint`); `verbose` has no meaning here.

        Raises:
            InvalidValueError: no JSON schema.
        """
        options = schema_options(json_schema)
        grammar = cls(json_schema)
        grammar.options = options
        return grammar


def grammar_options(grammar: LlamaGrammar | str | None) -> dict[str, Any]:
    """Options of a generation whose text follows `grammar`, none for None.

    Raises:
        InvalidValueError: something else.
    """
    if grammar is None or isinstance(grammar, str):
        return {} if grammar is None else {"grammar": grammar}
    if isinstance(grammar, LlamaGrammar):
        return dict(grammar.options)
    raise InvalidValueError(name="grammar", value=grammar, allowed="a pyspec.compat.LlamaGrammar, GBNF text, or None")


def format_options(response_format: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a generation that make its text what `response_format` asks for.

    Raises:
        InvalidValueError: a format that is not known.
        UnsupportedError: a JSON schema, where the package that follows them is missing.
    """
    if response_format is None:
        return {}
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return {}
    if kind == "json_object" and response_format.get("schema") is None:
        return {"grammar": _JSON_OBJECT}
    schema = response_format.get("schema") if kind == "json_object" else None
    if kind == "json_schema" and isinstance(response_format.get("json_schema"), Mapping):
        schema = response_format["json_schema"].get("schema")
    if schema is None:
        allowed = "{'type': 'text'}, {'type': 'json_object'}, with a 'schema' or without, or None"
        raise InvalidValueError(name="response_format", value=response_format, allowed=allowed)
    return schema_options(schema)


def schema_options(schema: Any) -> dict[str, Any]:
    """Options of a generation that make its text JSON of this schema."""
    from pyspec.constraint import JsonSchema

    return {"constraint": JsonSchema(schema)}
