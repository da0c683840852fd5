"""For authors of speculators: the contract that a speculator must keep, as tests to run on one's own.

Owns the laws and the text they are played on. Needs no test framework: a subclass of `SpeculatorContract` is collected
by pytest like any class of tests, `check_speculator` runs all laws anywhere. `Scripted` drafts what it is told to.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from pyspec.errors import InvalidValueError
from pyspec.speculators import (
    History,
    Scripted,
    Speculator,
    as_tokens,
    checked_draft,
    checked_laws,
    checked_reseed,
    make,
    optional,
    optional_seconds,
)

__all__ = ["Scripted", "SpeculatorContract", "check_speculator"]


class SpeculatorContract:
    """Laws of a speculator, each a method `test_...`; subclass it and say how one is made.

    ```python
    class TestMine(SpeculatorContract):
        n_vocab = 100

        def make(self):
            return Mine()
    ```

    Attributes:
        n_vocab: token ids of the texts that the laws are played on are below this; at least 8.
    """

    n_vocab = 64

    def make(self) -> Any:
        """A new speculator; overridden by authors."""
        raise NotImplementedError("say how your speculator is made: def make(self): return ...")

    # ------------------------------------------------------------- laws
    def test_it_has_the_calls_of_the_protocol(self) -> None:
        """`begin`, `draft` and `accept`; a name."""
        speculator = self._new()
        assert isinstance(speculator, Speculator)
        assert speculator.name, "name is empty"
        assert speculator.nbytes >= 0, f"nbytes is {speculator.nbytes}"
        for name in ("match_length", "decodes", "draws", "n_draft_max", "n_draft_min"):
            optional(speculator, name)
        for name in ("token_s", "read_s"):
            optional_seconds(speculator, name)

    def test_drafts_keep_to_n_max_and_to_the_vocabulary(self) -> None:
        """Over generations of changing text, with drafts kept, cut and rejected."""
        for seed in range(4):
            self._play(self._new(), History(self._text(40)), 60, random.Random(seed))

    def test_a_generation_may_start_with_no_or_one_token(self) -> None:
        """A prompt of any length is one."""
        for prompt in ([], [3]):
            self._play(self._new(), History(prompt), 30, random.Random(2))

    def test_no_room_means_no_draft(self) -> None:
        """`n_max` of 0 is a question like any other."""
        history = History(self._text(60))
        speculator = self._begun(history)
        draft = speculator.draft(history, 0)
        assert len(draft) == 0, f"drafted {len(draft)} tokens where 0 were asked for"

    def test_the_history_is_not_changed(self) -> None:
        """It belongs to the decoder."""
        history = History(self._text(60))
        before = history.view().copy()
        speculator = self._begun(history)
        checked_draft(speculator, history, 16, self.n_vocab)
        assert np.array_equal(history.view(), before), "draft changed the history"

    def test_the_prompt_is_not_kept_by_reference(self) -> None:
        """Its buffer is the caller's, who may use it again."""
        prompt = as_tokens(self._text(60))
        kept, fresh = self._new(), self._new()
        kept.begin(prompt)
        fresh.begin(prompt.copy())
        history = History(prompt)
        prompt[:] = self.n_vocab - 1
        drafts = [checked_draft(s, history, 16, self.n_vocab) for s in (kept, fresh)]
        assert drafts[0] == drafts[1], "begin kept the caller's array"

    def test_a_second_generation_with_the_same_prompt_can_be_drafted_for(self) -> None:
        """`begin` may come at any time, also in the middle of a generation."""
        speculator = self._new()
        for _ in range(3):
            history = History(self._text(50))
            speculator.begin(history.view())
            self._play_on(speculator, history, 10, random.Random(5))

    def test_a_verdict_without_an_open_draft_is_no_error(self) -> None:
        """Others' drafts are told, too, and a draft may have been cut to nothing."""
        speculator = self._begun(History(self._text(60)))
        for n_drafted, n_accepted, own in ((4, 0, True), (4, 4, True), (3, 1, False), (1, 0, False)):
            speculator.accept(n_drafted, n_accepted, own=own)

    def test_a_history_that_was_cut_is_drafted_for_as_it_is_now(self) -> None:
        """`History.epoch` tells that tokens were taken back: whatever was read must be read again."""
        history = History(self._text(80))
        speculator = self._begun(history)
        checked_draft(speculator, history, 16, self.n_vocab)
        history.truncate(20)
        history.extend(self._text(40))
        checked_draft(speculator, history, 16, self.n_vocab)

    def test_a_restored_speculator_drafts_as_the_saved_one_would(self) -> None:
        """Where there is a state to save; one of three methods starts anew and is not asked."""
        saved = self._new()
        if not callable(getattr(getattr(saved, "drafter", saved), "get_state", None)):
            return
        history = History(self._text(40))
        saved.begin(history.view())
        self._play_on(saved, history, 20, random.Random(3))
        restored, copy = self._new(), History(history.view())
        restored.set_state(saved.get_state())
        one = self._play_on(saved, history, 20, random.Random(4))
        other = self._play_on(restored, copy, 20, random.Random(4))
        assert one == other, "the restored speculator drafts something else"

    # ------------------------------------------------------------- playing
    def _new(self) -> Speculator:
        speculator = make(self.make(), n_vocab=self.n_vocab)
        assert speculator is not None, "make() returned nothing that drafts"
        if optional(speculator, "draws"):
            checked_reseed(speculator, 1)
        return speculator

    def _begun(self, history: History) -> Speculator:
        speculator = self._new()
        speculator.begin(history.view())
        return speculator

    def _text(self, n: int) -> list[int]:
        rng = random.Random(n)
        block = [rng.randrange(self.n_vocab) for _ in range(7)]
        return [block[i % 7] if i % 11 else rng.randrange(self.n_vocab) for i in range(n)]

    def _play(self, speculator: Speculator, history: History, n_rounds: int, rng: random.Random) -> list[list[int]]:
        speculator.begin(history.view())
        return self._play_on(speculator, history, n_rounds, rng)

    def _play_on(self, speculator: Speculator, history: History, n_rounds: int, rng: random.Random) -> list[list[int]]:
        """Rounds of a text that follows its drafts half of the time and repeats itself."""
        drafts = []
        for _ in range(n_rounds):
            draft = checked_draft(speculator, history, rng.choice([1, 4, 16]), self.n_vocab)
            optional(speculator, "match_length")
            if draft and optional(speculator, "draws"):
                checked_laws(speculator, draft, 0)
            drafts.append(draft)
            n_accepted = rng.randrange(len(draft) + 1)
            if draft:
                speculator.accept(len(draft), n_accepted, own=True)
            elif rng.random() < 0.3:
                speculator.accept(3, 1, own=False)
            history.extend(draft[:n_accepted])
            seen = history.view()
            start = rng.randrange(len(seen)) if len(seen) else 0
            history.extend(seen[start : start + rng.choice([5, 30])])
            history.extend([rng.randrange(self.n_vocab)])
        return drafts


def check_speculator(make_one: Callable[[], Any], *, n_vocab: int = 64) -> None:
    """Run every law of `SpeculatorContract` on speculators that `make_one` makes.

    Raises:
        AssertionError: a law is broken; the message starts with its name.
    """
    if n_vocab < 8:
        raise InvalidValueError(name="n_vocab", value=n_vocab, allowed="at least 8")
    contract = SpeculatorContract()
    contract.n_vocab = n_vocab
    contract.make = make_one  # type: ignore[method-assign]
    for name in [n for n in vars(SpeculatorContract) if n.startswith("test_")]:
        try:
            getattr(contract, name)()
        except Exception as broken:
            raise AssertionError(
                f"{name.removeprefix('test_').replace('_', ' ')}: {type(broken).__name__}: {broken}"
            ) from broken
