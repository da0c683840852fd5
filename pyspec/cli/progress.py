"""The bar of a long prompt.

Owns when it is shown; leaves its drawing to `pyspec.progress`.
"""

from __future__ import annotations

from pyspec.progress import ProgressBar

__all__ = ["PromptBar"]


class PromptBar(ProgressBar):
    """For `on_progress` of a generation: shown between the decodes of a prompt that takes several, wiped behind it."""

    def __init__(self) -> None:
        super().__init__("reading the prompt")

    def tell(self, n_done: int, n_total: int) -> None:
        """`n_done` of the prompt's `n_total` tokens are in memory."""
        if n_done < n_total:
            self(n_done / n_total)
        else:
            self.wipe()
