"""Who is asked, how much is drafted, and what became of it: where a budget decides between the speculators.

Owns the asking, the judging of drafts that were decoded and of drafts that were only watched, and one acceptance
record for each speculator. Leaves the arithmetic of lengths to `pyspec.budget`, that of time to `pyspec.allowance` and
`pyspec.reading`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter
from typing import Any

from pyspec.agreement import reconciled
from pyspec.allowance import Allowance
from pyspec.budget import BudgetOptions, CostModel, RoundCosts, best_length
from pyspec.drafting import Drafting
from pyspec.errors import StateError
from pyspec.reading import Reading
from pyspec.rounds import Decision
from pyspec.speculators import History, Speculator, Tokens, checked_accept, checked_begin
from pyspec.stats import DraftingCounts
from pyspec.undisturbed import N_CALM, Undisturbed
from pyspec.watched import Watched

__all__ = ["BudgetedDrafting"]

_N_USELESS = 4
_FADE = 0.2
_ASK_AT_LEAST_EVERY = 128  # tokens, where a call takes no longer than a decode
_N_PROBE, _PROBES_RARER = 2, 16

_SURE = 32
"""A cheap speculator whose last draft was right to its end, after so many right tokens in a row, is asked alone."""

_HEAVY = 1.0
"""Decodes: a call that takes longer is paid by its speculator alone, and silences no other."""

_CLEARLY = 1.15
"""So many times the gain of one before it must a member promise: the highest of estimates mostly errs upwards."""

_NO_PROPOSAL = Decision("no proposal")
_NOT_ASKED = Decision("not asked")
_DOES_NOT_PAY = Decision("does not pay")


class BudgetedDrafting(Drafting):
    """The draft that promises the most tokens a second is decoded, if any; the others are watched.

    A watched draft costs no decode: the target's own tokens judge it as they come. So a speculator that is silent
    because its record is bad is heard again as soon as the text starts to repeat. A speculator that decodes itself
    (`decodes = True`, a draft model) is not asked for drafts that are only watched, but for a short one now and then.
    """

    def __init__(
        self, speculator: Speculator, options: BudgetOptions, *, cost: CostModel, keeps_accepted: bool
    ) -> None:
        super().__init__(speculator)
        self.options = options
        self.cost = cost
        self._members = sorted((Watched(member, options) for member in self.members), key=lambda m: m.decodes)
        self._cheap = [member for member in self._members if not member.decodes]
        self._round = RoundCosts(keeps_accepted=keeps_accepted)
        self._chosen: Watched | None = None
        self._leader: Watched | None = None  # sure enough to be asked alone
        self._allowance = Allowance(options.overhead)
        self._judged_s = self._thought_s = 0.0  # seconds of the last call of `_judge`, and of thinking about a draft
        self._heavy_s = 0.0  # of this round's calls, those that are paid by the speculators alone
        self._quiet_until = 0  # at shorter histories nobody is thought about
        self._n_prompt = self._n_history = 0  # tokens of the generation's prompt, and of its history
        self._undisturbed = Undisturbed(cost) if options.measured and cost.hears_decodes else None

    def begin(self, prompt: Tokens) -> None:
        """As `Drafting.begin`; costs and records of earlier generations stay."""
        self.counts = DraftingCounts()
        self.drafted, self.laws = [], []
        self._chosen = self._leader = None
        self._quiet_until = 0
        n_before, self._n_prompt, self._n_history = self._n_history, len(prompt), len(prompt)
        if self._undisturbed is not None:
            self._undisturbed.begin()
        self._judged_s = self._thought_s = 0.0
        self._allowance.begin()
        for member in self._members:
            member.begin(len(prompt), n_before)
            checked_begin(member.speculator, prompt)

    def draft(self, history: History, n_max: int, *, n_pending: int, n_vocab: int) -> list[int]:
        """As `Drafting.draft`, cut to the length that pays."""
        if not self._quiet_until and n_pending == 1 and self._undisturbed is not None and self._undisturbed.is_wanted:
            self._quiet_until = len(history) + N_CALM
        if len(history) < self._quiet_until:
            self._thought_s = 0.0
            self.counts.n_silent += 1
            self.decision = _NOT_ASKED
            return []
        if self._quiet_until:
            self._quiet_until = 0
            self._judge(history)
        start, self._heavy_s = perf_counter(), 0.0
        self._round.n_pending = n_pending
        best = None
        if self._leader is not None:
            best, best_n, best_ratio = self._cheap_offer([self._leader], history, n_max, n_vocab)
        if best is None:
            best, best_n, best_ratio = self._cheap_offer(self._cheap, history, n_max, n_vocab)
        for member in self._members[len(self._cheap) :]:
            n, ratio = self._costly_offer(member, history, n_max, n_vocab, best_ratio)
            if n and ratio > best_ratio:
                best, best_n, best_ratio = member, n, ratio
        self._chosen = best
        if best is None:
            self._fall_silent(len(history), start)
            return []
        self.author = best.speculator.name
        best.decoded = True
        n_proposed = best.n_open
        probes = best_ratio == math.inf
        self.decision = Decision("probe", n_proposed) if probes else Decision("drafted", n_proposed, best_ratio)
        draft = best.proposal[best.n_right : best.n_right + best_n]
        self._note(best.speculator, draft, best.n_right)
        self._thought_s = self._thinking_s(start)
        return draft

    def observe(self, width: int, decode_s: float, rollback_s: float) -> None:
        """Learn the cost of the width, of going back, and of what disturbs plain decodes."""
        if self._undisturbed is None:
            self.cost.observe(width, decode_s)
        else:
            if self._quiet_until and width == 1 and not self._thought_s and self._undisturbed.skips():
                return
            self._undisturbed.observe(width, decode_s, self._thought_s)
            self._round.after = self._undisturbed.after
        if self.options.measured and rollback_s > 0:
            self._round.rollback += _FADE * (rollback_s - self._round.rollback)

    def settle(self, history: History, n_drafted: int, n_accepted: int) -> None:
        """Judge all open proposals by what the target said."""
        self.n_rounds += 1
        self._n_history = len(history)
        if self._quiet_until and not self._thought_s and not n_drafted:
            return  # a round like most, where all that is done between decodes shows
        self.drafted, self.laws = [], []
        chosen, self._chosen = self._chosen, None
        if not n_drafted:
            if chosen is not None and not chosen.n_right:
                chosen.decoded = False  # it could not be saved for
            if not self._quiet_until:
                self._judge(history)
            self._thought_s = 0.0
            return
        for member in self._members:
            if member is not chosen:
                checked_accept(member.speculator, n_drafted, n_accepted, own=False)
        if chosen is not None and self._is_timed:
            chosen.saved += self._round.saved(self.cost, n_drafted, n_accepted)
        self._judge(history)
        is_sure = chosen is not None and n_accepted == n_drafted and chosen.streak >= _SURE and not chosen.decodes
        self._leader = chosen if is_sure else None
        if self._is_timed:
            saved = self._round.saved(self.cost, n_drafted, n_accepted)
            self._allowance.gain(len(history) - n_accepted - 1, saved, self._thought_s / self.cost.plain)
        self._thought_s = 0.0

    def get_state(self) -> dict[str, Any]:
        """As `Drafting.get_state`, with the records of acceptance; costs are this machine's and are measured anew."""
        return super().get_state() | {"records": [member.record.get_state() for member in self._members]}

    def set_state(self, state: dict[str, Any]) -> None:
        """As `Drafting.set_state`; a saved one that had no budget left no records."""
        records = state.get("records", [])
        if not isinstance(records, list) or len(records) not in (0, len(self._members)):
            raise StateError(reason=f"no records of the speculators {self.name}")
        super().set_state(state)
        for member, record in zip(self._members, records, strict=False):
            member.record.set_state(record)

    # ------------------------------------------------------------- offers
    def _cheap_offer(
        self, members: list[Watched], history: History, n_max: int, n_vocab: int
    ) -> tuple[Watched | None, int, float]:
        """The best of what these propose, as `_best`; they are asked where nothing of theirs is open."""
        for member in members:
            if not member.is_open and len(history) >= member.ask_at:
                self._ask(member, history, n_max, n_vocab)
        best, whole = self._best(members, n_max)
        wanted = [member for member in whole if member.n_open < n_max and member.asked_at < len(history)]
        for member in wanted:
            self._pay(member)
        if again := [member for member in wanted if member.ask_at <= len(history)]:
            for member in again:
                self._close(member)  # it is right so far, and more of it is wanted
                self._ask(member, history, n_max, n_vocab)
            best, _ = self._best(members, n_max)
        return best

    def _best(self, members: list[Watched], n_max: int) -> tuple[tuple[Watched | None, int, float], list[Watched]]:
        """The member whose proposal promises most, how much of it to draft, and by how much that beats plain.

        And those of whose proposals all is worth drafting.
        """
        whole: list[Watched] = []
        proposing = [member for member in members if member.is_open]
        if proposing:
            least = self.cost.least_slope(self._round.n_pending)
            proposing = [m for m in proposing if m.record.chance(m.streak, m.match_length) > least]
        if not proposing:
            return (None, 0, 1.0), whole
        drafts = [member.proposal[member.n_right : member.n_right + n_max] for member in proposing]
        reached = [m.record.expected(m.streak, m.match_length, len(d)) for m, d in zip(proposing, drafts, strict=True)]
        best, best_n, best_ratio = None, 0, 1.0
        for member, own in zip(proposing, reconciled(drafts, reached), strict=True):
            n, ratio = best_length(own, self.cost, self._round, gain=self.options.gain)
            if n == member.n_open:
                whole.append(member)
            if n and ratio - 1.0 > _CLEARLY * (best_ratio - 1.0):
                best, best_n, best_ratio = member, n, ratio
        return (best, best_n, best_ratio), whole

    def _costly_offer(
        self, member: Watched, history: History, n_max: int, n_vocab: int, best: float
    ) -> tuple[int, float]:
        """The same, but asked only when that promises more than the best draft so far, or to probe."""
        measured = self.options.measured
        if len(history) < member.ask_at or measured != self._is_timed:
            return 0, 1.0
        n_max = min(n_max, member.n_draft_max or n_max)
        token_s = member.token_s if measured else self.options.draft_token * self.cost.plain
        costs = replace(self._round, draft_token=token_s)
        streak = member.streak if len(history) - member.seen <= 1 else 0
        n, ratio = best_length(member.record.expected(streak, 0, n_max), self.cost, costs, gain=self.options.gain)
        if n and ratio > best and self._reading(member, history).pays(1.0 + ratio - max(best, 1.0)):
            member.probe_gap = 0
        elif best > 1.0 or not self._may_probe(member, history, n_max, costs):
            return 0, 1.0
        else:
            n, ratio = min(n_max, max(_N_PROBE, member.n_draft_min)), math.inf
        if member.is_open:
            self._close(member)
        self._ask(member, history, n, n_vocab)
        return len(member.proposal), ratio

    def _may_probe(self, member: Watched, history: History, n_max: int, costs: RoundCosts) -> bool:
        """Whether it is time to see if a speculator with a bad record has become better; ever more rarely.

        Not where drafts of its longest would not pay even if they were always right.
        """
        n_history, first, every = len(history), member.probe_gap == 0, self.options.probe_every
        if not first and n_history < member.probe_at:
            return False
        can_pay, most = best_length([1.0] * n_max, self.cost, costs, gain=self.options.gain)
        wait = self._reading(member, history).wait(most, member.probe_gap) if can_pay and not first else 0
        probes = can_pay > 0 and not first and not wait
        if first or not can_pay:
            member.probe_gap = every
        elif probes:
            member.probe_gap = min(2 * member.probe_gap, _PROBES_RARER * every)
            member.probed_at = n_history
        member.probe_at = n_history + (wait or member.probe_gap)
        self.counts.n_probes += probes
        return probes

    def _reading(self, member: Watched, history: History) -> Reading:
        """What it must read before it can draft; nothing where seconds are not known."""
        plain, n_history = self.cost.plain if self._is_timed else math.inf, len(history)
        return Reading(
            decodes=member.read_s * member.n_unread(history) / plain,
            of_token=member.read_s / plain,
            n_said=n_history - self._n_prompt,
            n_since=n_history - max(member.probed_at, self._n_prompt),
            n_judged=member.record.n_verdicts,
        )

    # ------------------------------------------------------------- parts
    def _fall_silent(self, n_history: int, start: float) -> None:
        """No draft; and none is thought about before somebody may be asked again and the time for it is earned."""
        self.counts.n_silent += 1
        self.decision = self._why_silent(n_history)
        self._leader, quiet_until = None, 0
        self._thought_s = self._thinking_s(start)
        if not any(member.is_open or member.decodes for member in self._members):
            quiet_until = min((member.ask_at for member in self._members), default=0)
        if self._is_timed:
            disturbed = self._undisturbed.disturbed if self._undisturbed is not None else 0.0
            thought = (self._thought_s + disturbed) / self.cost.plain
            quiet_until = max(quiet_until, n_history + self._allowance.spend(n_history, thought))
            costly = self._members[len(self._cheap) :]
            soon = [max(one.ask_at, one.probe_at if one.probe_gap else 0) for one in costly]
            quiet_until = min([quiet_until, *(at for at in soon if at > n_history)])
        self._quiet_until = quiet_until if quiet_until > n_history + 1 else 0

    def _thinking_s(self, start: float) -> float:
        """Seconds that went into this round's draft, without the calls that the speculators pay alone."""
        return max(0.0, self._judged_s + perf_counter() - start - self._heavy_s)

    def _pay(self, member: Watched) -> None:
        """Charge a cheap speculator with its last call; one whose calls take more than they save is not asked for long.

        Not with a light one whose proposal was only watched: that is thinking like any other.
        """
        owed, member.owed_s = member.owed_s / self.cost.plain, 0.0
        saved, member.saved = member.saved, 0.0
        if self._is_timed and not member.decodes and (member.decoded or owed > _HEAVY):
            rest = member.account.settle(saved, owed)
            member.rest(member.seen + rest)

    @property
    def _is_timed(self) -> bool:
        """Whether seconds are measured, and it is known what a decode takes."""
        return self.options.measured and self.cost.is_known

    def _judge(self, history: History) -> None:
        """Compare what is open with the history; what that decides is closed."""
        start = perf_counter()
        for member in self._members:
            if member.is_open and member.compare(history):
                self._close(member)
        self._judged_s = perf_counter() - start

    def _why_silent(self, n_history: int) -> Decision:
        """Why there is no draft: what is proposed, or would have to be decoded first, does not pay; or nothing is."""
        asked = False
        for member in self._members:
            asked_now = member.asked_at == n_history
            if member.is_open or (member.decodes and not asked_now):
                return _DOES_NOT_PAY
            asked = asked or asked_now
        return _NO_PROPOSAL if asked else _NOT_ASKED

    def _ask(self, member: Watched, history: History, n_max: int, n_vocab: int) -> None:
        self.counts.count_call(member.speculator.name, member.propose(history, n_max, n_vocab))
        if self._is_timed and not member.decodes and member.owed_s > _HEAVY * self.cost.plain:
            self._heavy_s += member.owed_s
        if not member.is_open:
            self._pay(member)
            self._ask_later(member, member.seen + 1)
        elif member.decodes:
            member.n_useless = 0

    def _close(self, member: Watched) -> None:
        """Tell the speculator about a proposal that was decoded: about the tokens that were judged, and no others."""
        self._pay(member)
        n_right, n_judged = member.n_right, member.n_right + (member.streak == 0)
        member.proposal, member.n_right = [], 0
        if member.decoded:
            checked_accept(member.speculator, n_judged, n_right, own=True)
        else:
            self.counts.n_watched += 1
            self.counts.n_watched_right += n_right
        if n_right:
            member.n_useless = 0
        elif not member.decodes:  # of the others the record decides
            self._ask_later(member, member.seen)

    def _ask_later(self, member: Watched, soonest: int) -> None:
        """Spend no more than the overhead on asking those that have nothing of use to say, but get there slowly."""
        member.n_useless += 1
        n_more = member.n_useless - _N_USELESS
        if self.options.measured and n_more >= 0:
            heavy_s = _HEAVY * self.cost.plain
            alone = member.decodes or member.call_s > heavy_s
            calls_s = member.call_s if alone else sum(one.call_s for one in self._cheap if one.call_s <= heavy_s)
            calls = calls_s / self.cost.plain
            most = min(calls / self.options.overhead, _ASK_AT_LEAST_EVERY * max(1.0, calls))
            member.ask_at = max(member.ask_at, soonest + min(math.ceil(most), 2 << min(n_more, 10)) - 1)
