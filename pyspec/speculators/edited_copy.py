"""copy: follows one earlier passage through edits, and repeats the edits that it has seen.

Owns where in the passage the text stands, how far that is trusted, and when a place is taken; `passage_edits` finds
where a passage goes on behind an edit and what was replaced by what, `ngram_chains` the places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspec.config import int_between, validate
from pyspec.errors import StateError
from pyspec.speculators.history import History, Tokens, as_tokens, n_common
from pyspec.speculators.ngram_chains import NgramChains
from pyspec.speculators.passage_edits import PassageEdits, realign
from pyspec.speculators.protocol import check_kind, check_verdict

__all__ = ["EditedCopy", "EditedCopyOptions"]

_N_BLIND = 8
"""Inside an edit whose end is not in sight the next token is mostly wrong (measured: 1 in 10 is right), and more tokens
would be drafted in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedCopyOptions:
    """A passage is found by `size_n` tokens that stood before; drafts have at most `n_max` tokens.

    An edit of more than `edit_max` tokens loses the passage.

    Raises:
        InvalidValueError: out of range.
    """

    size_n: int = 6
    n_max: int = 64
    edit_max: int = 12

    _CHECKS: ClassVar[dict[str, Any]] = {
        "size_n": int_between(1, 1024),
        "n_max": int_between(0, 1024),
        "edit_max": int_between(1, 64),
    }

    def __post_init__(self) -> None:
        validate(self, self._CHECKS)


class EditedCopy:
    """Speculator of one sequence that copies a passage of its history on, over the places where the copy differs.

    Other speculators look up the last tokens, which are new after an edit. This one stays where it is in the passage:
    behind a token that differs it drafts what stood behind that token's place, and as soon as tokens of the passage
    come again it goes on from there, whatever was left out, put in or replaced. A replacement is remembered: where the
    passage has what was replaced, the draft has what took its place.

    Every right token is a point of trust and every edit costs half of them. `match_length` is the trust; without any
    the passage is lost, and the latest place where the last `size_n` tokens stood is the next one.
    """

    name = "copy"

    def __init__(self, options: EditedCopyOptions | None = None) -> None:
        self.options = options or EditedCopyOptions()
        self._chains = NgramChains(self.options.size_n)
        self._edits = PassageEdits()
        self._epoch: int | None = None
        self._lose()
        self._n_read = 0

    def _lose(self) -> None:
        self._trust = 0
        self._aligned = True  # the last token said stands before the place
        self._at: int | None = None  # of the token of the passage that comes next
        self._coming: list[int] = []  # what stands in its place, as far as it has not come
        self._n_came = 0  # of that
        self._known_edit: tuple[int, ...] = ()  # what that edit replaces
        self._edit: tuple[int, int] | None = None  # where one began: in the passage, in the history

    @property
    def match_length(self) -> int:
        """Trust in the place of the last draft; the least inside an edit of which no end is in sight."""
        return self._trust if self._aligned else min(self._trust, 1)

    @property
    def nbytes(self) -> int:
        """Bytes held: 1 MiB, 4 to 8 a token of history, and some KiB of edits."""
        return self._chains.nbytes + self._edits.nbytes

    def begin(self, tokens: Tokens) -> None:
        """Index the prompt; passages and edits of the generation before are forgotten."""
        tokens = as_tokens(tokens)
        self._chains.begin(tokens)
        self._edits.clear()
        self._epoch = None
        self._lose()
        self._n_read = len(tokens)

    def draft(self, history: History, n_max: int) -> Sequence[int]:
        """The passage on from where the text stands, with the edits that were seen; none where there is no passage."""
        tokens = history.view()
        if history.epoch != self._epoch or len(history) < self._n_read:
            if self._epoch is not None:
                self._lose()
                self._n_read = len(history)
            self._epoch = history.epoch
        self._chains.follow(history)
        self._read(tokens)
        if self._trust < self.options.size_n:
            self._find(tokens)
        n_max = min(n_max, self.options.n_max if self._aligned else _N_BLIND)
        if self._at is None or n_max <= 0:
            return []
        return self._walk(tokens, n_max)

    def accept(self, n_drafted: int, n_accepted: int, *, own: bool) -> None:
        """Change nothing: the history tells what was right."""
        check_verdict(n_drafted, n_accepted)

    def get_state(self) -> dict[str, Any]:
        """The place, its trust and the edits; the history gives the index."""
        return {
            "kind": self.name,
            "n_read": self._n_read,
            "place": None
            if self._at is None
            else [self._at, self._trust, int(self._aligned), self._n_came, *(self._edit or ())],
            "coming": [list(self._known_edit), list(self._coming)],
            "edits": self._edits.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Draft as the saved speculator did, from the history given to the next `draft`.

        Raises:
            StateError: of another kind, or damaged; nothing was changed.
        """
        check_kind(state, self.name)
        try:
            n_read, edits = int(state["n_read"]), PassageEdits(state["edits"])
            place = None if state["place"] is None else [int(number) for number in state["place"]]
            known, coming = ([int(token) for token in part] for part in state["coming"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(reason=f"no copy state: {error!r}") from error
        numbers = [n_read, *(place or [])]
        if min(numbers) < 0 or (
            place is not None and (len(place) not in (4, 6) or max(place[0], *place[4:], 0) > n_read)
        ):
            raise StateError(reason=f"place {place} in {n_read} tokens")
        self._chains.clear()
        self._lose()
        self._n_read, self._edits, self._epoch = n_read, edits, None
        self._known_edit, self._coming = tuple(known), coming
        if place is not None:
            self._at, self._trust, self._aligned, self._n_came = place[0], place[1], bool(place[2]), place[3]
            self._edit = (place[4], place[5]) if len(place) == 6 else None

    # ------------------------------------------------------------- following
    def _read(self, tokens: Tokens) -> None:
        """Go on in the passage by the tokens that are new."""
        i, n_tokens = self._n_read, len(tokens)
        while i < n_tokens and self._at is not None:
            if self._edit is not None:
                self._go_on_in_edit(tokens, i)
            elif not self._coming and (n_same := self._go_on_unchanged(tokens, i, self._at)):
                i += n_same
                continue
            else:
                self._go_on(tokens, i)
            i += 1
        self._n_read = n_tokens

    def _go_on_unchanged(self, tokens: Tokens, i: int, at: int) -> int:
        """Go on by the tokens from `i` on that the passage has, too, where no known edit may begin; how many."""
        passage = tokens[at : min(at + len(tokens) - i, i)]
        if not self._edits.leaves(passage.tolist()):
            return 0
        n_same = n_common(passage, tokens[i:])
        self._trust += n_same
        self._at = at + n_same
        return n_same

    def _go_on(self, tokens: Tokens, i: int) -> None:
        """Compare the token at `i` with what the passage, or a known edit of it, has next."""
        at, token = self._at, int(tokens[i])
        assert at is not None, "there is a passage"
        if not self._coming and at < i:
            self._known_edit, value = self._edits.find(tokens[at : min(at + self._edits.longest, i)].tolist())
            self._coming = list(value) if self._known_edit else [int(tokens[at])]
            self._n_came = 0
        if self._coming and self._coming[0] == token:
            self._trust += 1
            self._n_came += 1
            del self._coming[0]
            if not self._coming:
                self._at = at + max(1, len(self._known_edit))
            return
        if self._known_edit:
            self._edits.forget(self._known_edit)
        self._trust //= 2
        start = i - self._n_came
        self._coming, self._known_edit, self._n_came = [], (), 0
        self._edit = (at, start)
        self._go_on_in_edit(tokens, i)

    def _go_on_in_edit(self, tokens: Tokens, i: int) -> None:
        """Look where the passage goes on behind the edit that is open, the token at `i` included."""
        assert self._edit is not None, "an edit is open"
        at, start = self._edit
        n_max = self.options.edit_max
        said = tokens[start : i + 1].tolist()
        if self._trust == 0 or len(said) > n_max:
            self._lose()
            return
        passage = tokens[at : min(at + len(said) + n_max, start)].tolist()
        n_passage, n_same = realign(passage, said)
        self._at, self._aligned = at + n_passage, n_same > 1 or (n_same == 1 and n_passage == len(said))
        if n_same >= 2 or (n_same and n_passage == len(said)):
            before = int(tokens[at - 1]) if at else None
            self._edits.learn(passage[: n_passage - n_same], said[: len(said) - n_same], before)
            self._trust += n_same
            self._edit = None

    def _find(self, tokens: Tokens) -> None:
        """Take the latest place of the last tokens, where that is another one than is trusted."""
        found = self._chains.find(tokens, 1)
        if found is None or found[1] == self._at:
            return
        self._lose()
        self._at, self._trust = found[1], self.options.size_n

    def _walk(self, tokens: Tokens, n_max: int) -> list[int]:
        """What the passage and the edits have next."""
        at = self._at
        assert at is not None, "there is a passage"
        draft = list(self._coming)
        if draft:
            at += max(1, len(self._known_edit))
        n_left = n_max - len(draft)
        if n_left > 0:
            # where every edit makes a passage shorter, so many tokens of it are enough
            draft += self._edits.applied(tokens[at : at + n_left * max(1, self._edits.longest)].tolist(), n_left)
        return draft[:n_max]
