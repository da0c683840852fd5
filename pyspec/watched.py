"""One speculator as the budget sees it: its record, and what it proposed last.

Owns the asking for a proposal and its judgement by what the target said, whether it was decoded or only watched. Leaves
to `pyspec.budgeted` who is asked and what is decoded.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter

from pyspec.acceptance import AcceptanceRecord
from pyspec.allowance import CallAccount
from pyspec.budget import BudgetOptions
from pyspec.speculators import History, Speculator, checked_draft, checked_unread, optional, optional_seconds

__all__ = ["Watched"]

_N_CALLS = 8
_N_READ = 64  # tokens that tell what reading one takes
_FADE = 0.25
_OUTLIER = 2.0  # times what calls take: a busy machine


class Watched:
    """One speculator with its record and what it proposed last.

    `call_s` is what a call takes, 0 when unknown: as it is between decodes, which leave nothing of it in the caches.
    `owed_s` is what the last call took and is not paid yet, and `saved` how many decodes its draft saved so far.
    `n_draft_max`, `n_draft_min` and `read_s` are what the speculator says of itself, 0 when it does not.
    """

    def __init__(self, speculator: Speculator, options: BudgetOptions) -> None:
        self.speculator = speculator
        self.record = AcceptanceRecord(options)
        self.decodes = bool(optional(speculator, "decodes"))
        self.n_draft_max = optional(speculator, "n_draft_max")
        self.n_draft_min = optional(speculator, "n_draft_min")
        self._known_token_s = optional_seconds(speculator, "token_s")
        self.read_s = optional_seconds(speculator, "read_s")
        self.account = CallAccount(options.overhead)
        self.call_s = 0.0
        self._tokens: deque[float] = deque(maxlen=_N_CALLS)
        self._rest_until = 0
        self._first_s = 0.0  # what the first call of the last generation took
        self.begin(0, 0)

    def begin(self, n_prompt: int, n_before: int) -> None:
        """A generation starts: what was learned stays, and what is left of a rest; what was proposed does not.

        Args:
            n_prompt: tokens of its prompt.
            n_before: tokens of the history where the one before it ended.
        """
        self._rest_until = n_prompt + max(0, self._rest_until - n_before)
        self.proposal: list[int] = []
        self.n_right = 0  # tokens of the proposal that the history has confirmed
        self.streak = 0
        self.match_length = 0
        self.seen = 0  # length of the history up to which the proposal was compared
        self.ask_at = self._rest_until
        self.asked_at = -1  # length of the history at the last call
        self.n_useless = 0
        self.probe_gap = 0
        self.probe_at = 0
        self.probed_at = 0  # length of the history at the last probe
        self.decoded = False
        self.owed_s = self.saved = 0.0
        self._n_calls = 0
        self._n_proposed = 0  # at the last call

    @property
    def is_open(self) -> bool:
        """Something is proposed that the history has neither confirmed nor refuted."""
        return self.n_right < len(self.proposal)

    @property
    def n_open(self) -> int:
        """Tokens of the proposal that are neither confirmed nor refuted."""
        return len(self.proposal) - self.n_right

    @property
    def token_s(self) -> float:
        """Seconds for each drafted token, 0 when unknown."""
        return min(self._tokens, default=self._known_token_s)

    def rest(self, until: int) -> None:
        """It is not asked at shorter histories, nor for as many tokens of the next generation."""
        self._rest_until = max(self._rest_until, until)
        self.ask_at = max(self.ask_at, until)

    def n_unread(self, history: History) -> int:
        """Tokens of the history that are new to it; what it was not asked about yet, where it does not say."""
        if not self.read_s:
            return 0
        said = checked_unread(self.speculator, history)
        return len(history) - max(self.asked_at, 0) if said is None else said

    def propose(self, history: History, n_max: int, n_vocab: int) -> float:
        """Ask for a new proposal; returns the seconds it took."""
        if len(history) - self.seen > 1:  # one token, the bonus, it could not know
            self.streak = 0
        n_new = len(history) - self.asked_at if self.asked_at >= 0 else len(history)
        start = perf_counter()
        n_unread = self.n_unread(history)
        proposal = checked_draft(self.speculator, history, n_max, n_vocab)
        self.match_length = optional(self.speculator, "match_length")
        spent = perf_counter() - start
        if n_unread >= _N_READ:  # what drafting took is little beside it, or known
            read_s = max(0.0, spent - self.token_s * len(proposal)) / n_unread
            self.read_s += _FADE * (min(read_s, _OUTLIER * self.read_s) - self.read_s)
        self._n_calls += 1
        self.saved, usual = 0.0, self.call_s
        self.owed_s = min(spent, _OUTLIER * usual or self._first_s)
        if self._n_calls == 1:  # it reads the prompt
            self._first_s = spent
        else:
            self.call_s = usual + _FADE * (min(spent, _OUTLIER * usual) - usual) if usual else spent
            if proposal and n_new <= self._n_proposed + 1:  # with more to read, the time is not that of its tokens
                self._tokens.append(spent / len(proposal))
        self._n_proposed = len(proposal)
        self.proposal, self.n_right, self.decoded = proposal, 0, False
        self.seen = self.asked_at = len(history)
        return spent

    def compare(self, history: History) -> bool:
        """Judge the open proposal by the new tokens of the history; True when that closed it."""
        said = history.view()[self.seen :].tolist()
        self.record.n_verdicts += len(said) > 0
        proposed = self.proposal[self.n_right : self.n_right + len(said)]
        n_right = len(proposed)
        if proposed != said[:n_right]:
            n_right = next(i for i, token in enumerate(proposed) if token != said[i])
        self.record.observe_right(self.streak, self.match_length, n_right)
        self.streak += n_right
        self.n_right += n_right
        self.seen += n_right
        if n_right < len(proposed):
            self.record.observe(self.streak, self.match_length, False)
            self.streak, self.seen = 0, len(history)
            return True
        return not self.is_open
