"""A speculator of one's own: three methods, used like the built-in ones.

This one drafts what followed the last place where the same two tokens stood. Run it: python examples/own_speculator.py
"""

import pyspec
from pyspec.testing import SpeculatorContract


class AfterTheSamePair:
    """Drafts what followed the latest earlier occurrence of the last two tokens."""

    def begin(self, tokens):
        """A generation starts with these prompt tokens: forget the last one."""
        self.places = {}
        self.n_read = 0
        self.epoch = None

    def draft(self, history, n_max):
        """Propose at most `n_max` tokens to follow `history`."""
        if history.epoch != self.epoch:  # tokens were taken back: read again
            self.places, self.n_read, self.epoch = {}, 0, history.epoch
        tokens = history.view().tolist()
        for i in range(max(2, self.n_read), len(tokens)):
            self.places[tokens[i - 2], tokens[i - 1]] = i
        self.n_read = len(tokens)
        at = self.places.get(tuple(tokens[-2:]))
        return tokens[at : at + n_max] if at is not None else []

    def accept(self, n_drafted, n_accepted, *, own):
        """Of the first `n_drafted` tokens of a draft (`own`: of ours), `n_accepted` were right."""


class TestAfterTheSamePair(SpeculatorContract):
    """With pytest, this runs the laws that every speculator must keep."""

    def make(self):
        """A new one."""
        return AfterTheSamePair()


def main():
    """Generate plainly and with it."""
    with pyspec.Llama(pyspec.models.tiny_target(), n_ctx=1024, budget="counts") as llm:
        prompt = "def area(width, height):\n    return width * height\n\n# the same function again:\n"
        plain = llm.generate(prompt, max_tokens=40, spec=None)
        fast = llm.generate(prompt, max_tokens=40, spec=AfterTheSamePair())
        assert fast.tokens == plain.tokens
        print(fast.text)
        print(f"{plain.stats.n_decodes} decodes became {fast.stats.n_decodes}")
        print(fast.stats)
        return fast


if __name__ == "__main__":
    main()
