"""Two generations of one prompt, plain and speculative, side by side.

Owns their pairing (the second takes the first one's seed) and the judgement; leaves showing the text to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspec.cli.report import COLUMNS, as_dict, first_difference, run_cells
from pyspec.cli.table import table
from pyspec.completion import Completion

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two completions of one prompt."""

    plain: Completion
    speculative: Completion

    @property
    def ratio(self) -> float:
        """Speed of the speculative run over the plain one's, 0 when either made less than two tokens."""
        base = self.plain.timings.tokens_per_s
        return self.speculative.timings.tokens_per_s / base if base else 0.0

    @property
    def difference(self) -> str | None:
        """Where the texts part, None when they are equal."""
        return first_difference(self.plain, self.speculative)

    def to_dict(self) -> dict[str, Any]:
        """Both runs and the judgement as plain data."""
        return {
            "plain": as_dict(self.plain),
            "speculative": as_dict(self.speculative),
            "ratio": self.ratio,
            "equal": self.difference is None,
            "difference": self.difference,
        }

    def __str__(self) -> str:
        runs = {"plain": (self.plain, None), "speculative": (self.speculative, self.ratio)}
        rows = [[name, *run_cells(c, c.timings.tokens_per_s, ratio)] for name, (c, ratio) in runs.items()]
        lines = [table(rows, header=["", *COLUMNS], right=range(1, len(COLUMNS) + 1))]
        slower = "; that is slower" if 0 < self.ratio < 1 else ""
        lines.append(f"speculative / plain: {self.ratio:.2f} times the tokens a second{slower}")
        if self.difference is None:
            lines.append(f"the texts are equal ({len(self.plain.tokens)} tokens)")
        else:
            lines.append(f"THE TEXTS DIFFER {self.difference}")
            lines.append("(llama.cpp rounds differently at different batch widths, which can turn a near tie)")
        return "\n".join(lines)


def compare(run: Callable[..., Completion], show: Callable[[str], object], **options: Any) -> Comparison:
    """Call `run(spec=None, on_text=show)`, then `run()` with the same seed.

    Args:
        run: `Llama.generate` with the prompt bound.
        show: called with the plain run's pieces of text.
        options: further arguments of `run`, but `spec`.
    """
    plain = run(**options | {"spec": None, "on_text": show})
    return Comparison(plain, run(**options | {"seed": plain.seed}))
