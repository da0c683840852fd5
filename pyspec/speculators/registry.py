"""Speculators by name: from what a user writes to an object, and the names that exist.

Owns the table of names and the string form "name:option=number,..."; leaves the options to each speculator's
file. Speculators of later layers enter themselves with `register`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from pyspec.config import from_keywords
from pyspec.errors import InvalidValueError, PyspecError, SpeculatorError, UnknownOptionError
from pyspec.speculators.adapted import Adapted, identity, is_drafter, is_whole
from pyspec.speculators.chain import Chain
from pyspec.speculators.checked import name_of
from pyspec.speculators.edited_copy import EditedCopy, EditedCopyOptions
from pyspec.speculators.grammar import Grammar
from pyspec.speculators.ngram_cache import NgramCache, NgramCacheOptions
from pyspec.speculators.ngram_map_k import NgramMapK, NgramMapKOptions
from pyspec.speculators.ngram_map_k4v import NgramMapK4v, NgramMapK4vOptions
from pyspec.speculators.ngram_mod import NgramMod, NgramModOptions
from pyspec.speculators.ngram_simple import NgramSimple, NgramSimpleOptions
from pyspec.speculators.protocol import Speculator
from pyspec.speculators.suffix import Suffix, SuffixOptions

__all__ = ["SPEC_DEFAULT", "Factory", "Spec", "called", "make", "names", "parse_options", "register"]

_T = TypeVar("_T")

Options = (
    NgramSimpleOptions
    | NgramMapKOptions
    | NgramMapK4vOptions
    | NgramModOptions
    | NgramCacheOptions
    | SuffixOptions
    | EditedCopyOptions
)
Spec = str | Speculator | Options | None
Factory = Callable[..., Speculator]
"""Called as `factory(argument, n_vocab=..., **environment)`; `argument` is what followed the colon, or ""."""

SPEC_DEFAULT = NgramModOptions(n_match=24, n_min=48, n_max=64)
"""What `--spec-default` sets in llama.cpp (common/arg.cpp); the speculator named "default" or "spec-default"."""


def _ngram_mod(argument: str, **_: object) -> Speculator:
    return NgramMod(parse_options(NgramModOptions, argument))


def _ngram_map_k(argument: str, **_: object) -> Speculator:
    return NgramMapK(parse_options(NgramMapKOptions, argument))


def _ngram_map_k4v(argument: str, **_: object) -> Speculator:
    return NgramMapK4v(parse_options(NgramMapK4vOptions, argument))


def _ngram_simple(argument: str, **_: object) -> Speculator:
    return NgramSimple(parse_options(NgramSimpleOptions, argument))


def _ngram_cache(argument: str, *, n_vocab: int, **_: object) -> Speculator:
    return NgramCache(parse_options(NgramCacheOptions, argument), n_vocab=n_vocab)


def _suffix(argument: str, **_: object) -> Speculator:
    return Suffix(parse_options(SuffixOptions, argument))


def _copy(argument: str, **_: object) -> Speculator:
    return EditedCopy(parse_options(EditedCopyOptions, argument))


def _grammar(argument: str, **_: object) -> Speculator:
    if argument:
        raise InvalidValueError(name="spec", value=f"grammar:{argument}", allowed="'grammar' alone, it has no options")
    return Grammar()


def _default(argument: str, **_: object) -> Speculator:
    if argument:
        raise InvalidValueError(
            name="spec", value=f"default:{argument}", allowed="'default' alone; 'ngram-mod' takes options"
        )
    return NgramMod(SPEC_DEFAULT)


def _auto(
    argument: str,
    *,
    n_vocab: int,
    draft: Callable[[str, str], Speculator] | None = None,
    has_draft: bool = False,
    **_: object,
) -> Speculator:
    if argument:
        raise InvalidValueError(name="spec", value=f"auto:{argument}", allowed="'auto' alone, or a list of names")
    members: list[Speculator] = [Suffix(), NgramMod(SPEC_DEFAULT), EditedCopy()]
    return Chain([*members, draft("", "")] if draft is not None and has_draft else members, n_vocab=n_vocab)


_factories: dict[str, Factory] = {
    "ngram-mod": _ngram_mod,
    "ngram-map-k": _ngram_map_k,
    "ngram-map-k4v": _ngram_map_k4v,
    "ngram-simple": _ngram_simple,
    "ngram-cache": _ngram_cache,
    "suffix": _suffix,
    "copy": _copy,
    "grammar": _grammar,
    "auto": _auto,
    "default": _default,
    "spec-default": _default,
}

_of_options: dict[type, Callable[..., Speculator]] = {
    NgramSimpleOptions: NgramSimple,
    NgramMapKOptions: NgramMapK,
    NgramMapK4vOptions: NgramMapK4v,
    NgramModOptions: NgramMod,
    SuffixOptions: Suffix,
    EditedCopyOptions: EditedCopy,
}


def names() -> tuple[str, ...]:
    """All names that `make` knows, in alphabetical order, "none" included."""
    return tuple(sorted((*_factories, "none")))


def register(name: str, factory: Factory) -> None:
    """Let `make` build speculators called `name` or `name:argument`; twice the same is fine.

    Raises:
        InvalidValueError: the name is taken, empty, or has a colon, a space or an upper-case letter.
    """
    if not name or name != name.lower() or any(c in name for c in ": \t\n_"):
        raise InvalidValueError(name="name", value=name, allowed="lower-case words joined by hyphens")
    if name == "none" or _factories.get(name, factory) is not factory:
        raise InvalidValueError(name="name", value=name, allowed=f"none of those taken: {', '.join(names())}")
    _factories[name] = factory


def called(spec: Any) -> Any:
    """`spec` with what the functions and classes in it make, each called without arguments.

    Raises:
        InvalidValueError: one that wants arguments.
        SpeculatorError: one that raised.
    """
    if isinstance(spec, (list, tuple)):
        return [called(one) for one in spec]
    if not callable(spec) or is_drafter(spec):
        return spec
    try:
        inspect.signature(spec).bind()
    except TypeError:
        raise InvalidValueError(
            name="spec", value=spec, allowed="a function or class that is called without arguments, or what it makes"
        ) from None
    except ValueError:  # written in C, without a signature
        pass
    try:
        return spec()
    except PyspecError:
        raise
    except Exception as error:
        name = getattr(spec, "__name__", type(spec).__name__)
        raise SpeculatorError(speculator=name, reason=f"to be made raised {type(error).__name__}: {error}") from error


def make(spec: Spec | Sequence[Spec], *, n_vocab: int, **environment: Any) -> Speculator | None:
    """Build what `spec` names.

    Args:
        spec: A name ("ngram-mod", "ngram-mod:n_match=12,n_max=32", "default", "none"), an options object, a
            speculator (returned as it is), a function or class that makes one, None, or several of these in order of
            preference.
        n_vocab: Size of the target's vocabulary.
        environment: Handed to the factories as it is, for speculators that need more than tokens.

    Returns:
        The speculator, a `Chain` of several, or None where nothing shall be drafted.

    Raises:
        UnknownOptionError: no such name, or no such option (with the nearest).
        InvalidValueError: an option's value cannot be used, or `spec` is something else.
    """
    spec = called(spec)
    if not isinstance(spec, (list, tuple)):
        return _make_one(spec, n_vocab, environment)
    made = [_make_one(one, n_vocab, environment) for one in spec]
    members = [member for member in made if member is not None]
    if len({identity(member) for member in members}) < len(members):
        raise InvalidValueError(name="spec", value=spec, allowed="a list without the same object twice")
    if len(members) < 2:
        return members[0] if members else None
    return Chain(members, n_vocab=n_vocab)


def _make_one(spec: Any, n_vocab: int, environment: dict[str, Any]) -> Speculator | None:
    if spec is None:
        return None
    if isinstance(spec, str):
        name, _, argument = spec.partition(":")
        name = name.strip().lower().replace("_", "-")
        if name == "none":
            if argument:
                raise InvalidValueError(name="spec", value=spec, allowed="'none' alone")
            return None
        factory = _factories.get(name)
        if factory is None:
            raise UnknownOptionError(name=spec.partition(":")[0], known=names(), where="speculator")
        return factory(argument, n_vocab=n_vocab, **environment)
    if isinstance(spec, NgramCacheOptions):
        return NgramCache(spec, n_vocab=n_vocab)
    if (kind := _of_options.get(type(spec))) is not None:
        return kind(spec)
    if is_drafter(spec):
        name = name_of(spec)
        return spec if is_whole(spec) else Adapted(spec, name)
    raise InvalidValueError(
        name="spec",
        value=spec,
        allowed="a name, an options object, an object with begin, draft and accept, a function or class that makes one "
        "of these, None, or a list of them",
    )


def parse_options(kind: type[_T], text: str) -> _T:
    """The options dataclass `kind` from "name=number,name=number"; an empty text means all defaults.

    Whole numbers, numbers with a point, and true/false are understood; anything else is passed on as text.

    Raises:
        UnknownOptionError: `kind` has no such field.
        InvalidValueError: a part without "=", a name given twice, or a value that `kind` refuses.
    """
    values: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        name = name.replace("-", "_")
        if not equals or not value or name in values:
            known = ", ".join(f.name for f in fields(kind))  # type: ignore[arg-type]
            raise InvalidValueError(name="spec", value=text, allowed=f"name=value, each once, of {known}")
        values[name] = _as_value(value)
    return from_keywords(kind, values)


def _as_value(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
