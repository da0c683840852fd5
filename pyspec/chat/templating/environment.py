"""The guarded Jinja environment: compiles a template and renders it.

Owns what names, attributes and calls mean inside a template. Leaves costs to the other modules of this package, and the
meaning of the variables to `pyspec.chat.template`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, Undefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from pyspec.chat.templating import filters
from pyspec.chat.templating.meter import STEP, LimitReached, Meter, TemplateLimits
from pyspec.chat.templating.methods import METHODS, Method
from pyspec.chat.templating.operators import as_text, binary, check_key
from pyspec.chat.templating.rewrite import Generation, rewritten
from pyspec.errors import ChatTemplateError

__all__ = ["Compiled"]

_LOOP = frozenset(
    "index index0 revindex revindex0 first last length depth depth0 previtem nextitem cycle changed".split()
)
_N_REASON = 500
_MISSING = object()
_FILE = "<template>"
_TIME = re.compile(r"%-?[a-zA-Z%]")


class Refused(Exception):
    """The template called `raise_exception`."""


class _Function:
    """A function of the environment; opaque to the template but for calls."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # or constants would be computed while compiling, without a meter
            extensions=["jinja2.ext.loopcontrols", Generation],
            finalize=self._written,
            cache_size=0,
        )
        self.meter = Meter(TemplateLimits())
        self.now: datetime | None = None
        self.filters = {name: self._guarded(f) for name, f in filters.filters().items()}
        self.tests = {name: self._guarded_test(f) for name, f in filters.tests().items()}
        self.globals = {
            "range": _Function(self._range),
            "dict": _Function(self._dict),
            "namespace": _Function(self._namespace),
            "raise_exception": _Function(self._raise),
            "strftime_now": _Function(self._strftime),
        }

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @pass_context
        def guarded(context: Context, *args: Any, **kwargs: Any) -> Any:
            self.meter.charge(STEP)
            return function(self.meter, context, *args, **kwargs)

        return guarded

    # Without the context, which older Jinjas do not pass to the tests of `select`.
    def _guarded_test(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.meter.charge(STEP)
            return function(self.meter, *args, **kwargs)

        return guarded

    # Jinja evaluates no constant while compiling when `finalize` wants the context.
    @property
    def _written(self) -> Callable[..., str]:
        @pass_context
        def written(context: Context, value: Any) -> str:
            self.meter.charge(STEP)
            text = as_text(self.meter, value)
            self.meter.charge(len(text))
            return text

        return written

    # ------------------------------------------------------------- names
    def _range(self, *bounds: int) -> range:
        made = range(*bounds)
        if 8 * len(made) > self.meter.max_chars:
            raise LimitReached("n_chars", self.meter.max_chars, f"a range of {len(made)} numbers (8 each)")
        return made

    def _dict(self, *given: Any, **items: Any) -> dict[str, Any]:
        for mapping in given:
            if type(mapping) is not dict:
                raise TypeError("dict takes a dict and keywords")
        made = dict(*given, **items)
        self.meter.charge(32 * len(made))
        return made

    def _namespace(self, *given: Any, **items: Any) -> Namespace:
        return Namespace(self._dict(*given, **items))

    def _raise(self, message: Any = "") -> NoReturn:
        raise Refused(as_text(self.meter, message))

    def _strftime(self, form: str) -> str:
        if len(form) > 200 or "%" in _TIME.sub("", form):
            raise TypeError("strftime_now takes a short format without widths")
        return (self.now or datetime.now()).strftime(form)

    # ------------------------------------------------------------- what expressions do
    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`left operator right`, measured."""
        return binary(self.meter, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`: a listed method, an item, or undefined; never an attribute of Python."""
        self.meter.charge(STEP)
        found = self._attribute(obj, attribute)
        if found is _MISSING:
            found = self._item(obj, attribute)
        return self._absent(obj, attribute) if found is _MISSING else found

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`: an item, a listed method, or undefined."""
        self.meter.charge(STEP)
        found = self._item(obj, check_key(argument))
        if found is _MISSING and type(argument) is str:
            found = self._attribute(obj, argument)
        return self._absent(obj, argument) if found is _MISSING else found

    def _item(self, obj: Any, key: Any) -> Any:
        if isinstance(obj, Undefined):
            return obj[key]  # raises, and names the variable
        if type(obj) not in (str, list, tuple, dict, range):
            return _MISSING
        try:
            return obj[key]
        except (TypeError, LookupError):
            return _MISSING

    def _attribute(self, obj: Any, name: str) -> Any:
        handler = METHODS.get(type(obj), {}).get(name)
        if handler is not None:
            return Method(obj, handler)
        if isinstance(obj, Namespace) and not name.startswith("_"):
            return getattr(obj, name, _MISSING)
        if isinstance(obj, LoopContext) and name in _LOOP:
            value = getattr(obj, name)
            return _Function(value) if name in ("cycle", "changed") else value
        return _MISSING

    def _absent(self, obj: Any, name: Any) -> Undefined:
        if type(name) is str and (name.startswith("_") or (hasattr(obj, name) and not isinstance(obj, Namespace))):
            return self.undefined(
                f"{type(obj).__name__}.{name[:80]} is not for chat templates", obj=obj, name=name, exc=SecurityError
            )
        return self.undefined(obj=obj, name=name)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function of the environment, a listed method, a macro or a recursive loop."""
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        meter = __self.meter
        meter.charge(STEP * (2 + len(args) + len(kwargs)))
        if type(__obj) is Method:
            return __obj.call(meter, args, kwargs)
        if type(__obj) is _Function:
            for value in args:
                meter.size(value)
            return __obj.call(*args, **kwargs)
        if isinstance(__obj, (Macro, LoopContext)):
            meter.enter()
            try:
                return __context.call(__obj, *args, **kwargs)
            finally:
                meter.leave()
        if isinstance(__obj, Undefined):
            return __obj()  # raises, and names it
        raise SecurityError(f"a value of type {type(__obj).__name__} cannot be called")


class Compiled:
    """A template that was compiled, for any number of renderings, one at a time."""

    def __init__(self, source: str, limits: TemplateLimits) -> None:
        self._environment = _Environment()
        self._limits = limits
        self._lock = threading.Lock()
        if len(source) > limits.n_source:
            raise ChatTemplateError(
                kind="limit", reason=f"{len(source)} characters, at most {limits.n_source}", limit="n_source"
            )
        try:
            tree = rewritten(self._environment.parse(source), self._environment)
            self._template = self._environment.from_string(tree)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(kind="syntax", reason=_short(error.message or ""), line=error.lineno) from None
        except (TemplateError, SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
            if isinstance(error, ChatTemplateError):
                raise
            raise ChatTemplateError(
                kind="syntax", reason=f"cannot be compiled: {type(error).__name__}: {_short(str(error))}"
            ) from None

    def render(self, variables: Mapping[str, Any], n_input: int, now: datetime | None) -> str:
        """The text.

        Args:
            variables: by name; plain values only.
            n_input: their size in characters, which raises the limits.
            now: what `strftime_now` tells, None for the clock.

        Raises:
            ChatTemplateError: the template refuses, fails, or reaches a limit.
        """
        with self._lock:
            self._environment.meter = meter = Meter(self._limits, n_input, len(variables.get("messages") or ()))
            self._environment.now = now
            parts: list[str] = []
            n_chars = 0
            try:
                for part in self._template.generate(variables):
                    n_chars += len(part)
                    if n_chars > meter.max_chars:
                        raise LimitReached("n_chars", meter.max_chars, "an output that is too long")
                    parts.append(part)
            except Refused as error:
                raise ChatTemplateError(kind="refused", reason=_short(str(error))) from None
            except LimitReached as error:
                line = _line(error.__traceback__)
                raise ChatTemplateError(kind="limit", reason=str(error), limit=error.limit, line=line) from None
            except RecursionError as error:
                line = _line(error.__traceback__)
                reason = "stopped at Python's own limit of recursion"
                raise ChatTemplateError(kind="limit", reason=reason, limit="recursion", line=line) from None
            except Exception as error:
                line, reason = _line(error.__traceback__), f"{type(error).__name__}: {_short(str(error))}"
                raise ChatTemplateError(kind="failed", reason=reason, line=line) from None
            return "".join(parts)


def _short(text: str) -> str:
    return text if len(text) <= _N_REASON else text[:_N_REASON] + "..."


def _line(traceback: TracebackType | None) -> int | None:
    """The template's line where it went wrong."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _FILE:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
