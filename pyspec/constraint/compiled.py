"""Grammars of a vocabulary that llguidance has compiled, kept for the next generation that asks for the same one.

Owns how many are kept, and that compiling a deep one cannot overrun the stack. Leaves following a text to `matcher`,
which copies what is kept and never moves it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from pyspec.constraint.kinds import llguidance
from pyspec.errors import ConstraintError

__all__ = ["Compiled", "reason_of"]

_log = logging.getLogger("pyspec")
_T = TypeVar("_T")

N_KEPT = 16
_N_LONGEST = 1_000_000  # characters of a grammar that is kept
_N_SHALLOW = 1000  # characters of a grammar that fits every stack
_STACK_BYTES = 64 * 2**20  # llguidance takes some 4 KB for each rule that stands inside another; touched where needed
_sizing = threading.Lock()


class Compiled:
    """The grammars that were asked for last. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, grammar: str, tokenizer: Any) -> Any:
        """An `LLMatcher` at the beginning of `grammar`, shared: to be copied (`deep_copy`), never moved.

        Raises:
            ConstraintError: llguidance refuses it, with its reason.
        """
        with self._lock:
            if grammar in self._kept:
                self._kept.move_to_end(grammar)
                return self._kept[grammar]
        native = _compile(grammar, tokenizer)
        if len(grammar) <= _N_LONGEST:
            with self._lock:
                self._kept[grammar] = native
                if len(self._kept) > N_KEPT:
                    self._kept.popitem(last=False)
        return native


def _compile(grammar: str, tokenizer: Any) -> Any:
    library = llguidance()
    limits = library.LLParserLimits(verbose_errors=False)

    def make() -> Any:
        return library.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)

    native = make() if len(grammar) <= _N_SHALLOW else _on_a_deep_stack(make)
    if native.is_error():
        raise ConstraintError(reason=reason_of(native))
    for warning in native.get_grammar_warnings():
        _log.warning("constraint: %s", warning)
    return native


def _on_a_deep_stack(call: Callable[[], _T]) -> _T:
    """What `call` gives, in a thread of its own: the caller's may have half a megabyte, where an overrun ends all."""
    made: list[_T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            made.append(call())
        except BaseException as error:
            failed.append(error)

    with _sizing:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=work, name="pyspec-grammar", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def reason_of(native: Any) -> str:
    """What llguidance says about its error, without the traces of its own code."""
    text: str = native.get_error()
    return text.partition("<backtrace>")[0].replace("<non-verbose/>", "").strip()
