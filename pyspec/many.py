"""Several completions of one prompt, which is decoded once.

Owns their seeds and which of them are the best. Leaves generating to `pyspec.generating`, and going back to the end of
the prompt to the reuse of memory (`pyspec.checkpoints`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspec.completion import Completion
from pyspec.config import int_between
from pyspec.errors import InvalidValueError
from pyspec.halt import Halt
from pyspec.speculators import Spec
from pyspec.streams import drained

if TYPE_CHECKING:
    from pyspec.generating import Generating

__all__ = ["generate_many"]

_log = logging.getLogger("pyspec")
_N_SEEDS = 2**32 - 1


def generate_many(
    llm: Generating,
    prompt: str | Sequence[int],
    spec: Spec | Sequence[Spec],
    *,
    n: int,
    best_of: int | None,
    options: dict[str, Any],
) -> list[Completion]:
    """`Llama.generate_many`."""
    _check(n, best_of)
    halt = Halt()
    with llm._exclusive(), llm._at_work.on(halt):
        call, sampling = llm._voice.options(options)
        n_made = n if best_of is None else best_of
        if sampling.temperature == 0 and n_made > 1:
            _log.warning("%d completions at temperature 0 are equal: it always takes the likeliest token", n_made)
        wanted = call.logprobs
        if best_of is not None and wanted is None:
            call = replace(call, logprobs=0)
        if not call.reuse:
            llm._decoder.forget()
        call = replace(call, reuse=True)
        seed = secrets.randbelow(_N_SEEDS) if sampling.seed is None else sampling.seed
        made = [
            drained(llm._run(prompt, spec, call, replace(sampling, seed=(seed + i) % _N_SEEDS), halt))
            for i in range(n_made)
        ]
    if best_of is not None:
        made = sorted(made, key=lambda completion: -completion.mean_logprob)[:n]  # equal ones stay in order
    return [replace(completion, logprobs=None) for completion in made] if wanted is None else made


def _check(n: int, best_of: int | None) -> None:
    ok, allowed = int_between(1, 2**31 - 1)
    if not ok(n):
        raise InvalidValueError(name="n", value=n, allowed=allowed)
    ok, allowed = int_between(n, 2**31 - 1)
    if best_of is not None and not ok(best_of):
        raise InvalidValueError(name="best_of", value=best_of, allowed=f"None or {allowed}, n={n} among them")
