"""One generation with a speculator, as `pyspec.Llama` would do it, and where its time went.

Owns the target's context and decoder, a new speculator for each run, and the parts of a run. Leaves the order of runs,
repeating and comparing to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from pyspec._core import Context, Model, Sampler
from pyspec.arguments import as_budget
from pyspec.assembly import assemble
from pyspec.bench.drafting_options import DraftingBenchOptions
from pyspec.bench.forced import Forced
from pyspec.bench.workloads import Passage
from pyspec.budget import CostModel
from pyspec.config import SamplingOptions
from pyspec.decoder import Decoder, DecoderOptions, Request
from pyspec.drafting import Drafting
from pyspec.rollback import check_name
from pyspec.speculator_pool import SpeculatorPool
from pyspec.stats import Stats
from pyspec.text import Pieces, TextStream

__all__ = ["PARTS", "DraftingRun", "Target"]

PARTS = ("draft", "decode", "rollback")
"""Parts of a run's time; what is left is the rest: bookkeeping and text. Committing counts as rollback."""

_N_BATCH, _N_UBATCH = 2048, 512  # the defaults of pyspec.Llama


@dataclass(frozen=True, slots=True)
class DraftingRun:
    """One generation; the first round, which decodes the prompt, counts in `tokens` and `stats` only.

    Attributes:
        tokens: all that was said, the first token included.
        seconds: of the rounds behind the first.
        part_s: of these, by `PARTS`; choosing a token counts as decode, since it waits for the device.
        n_decodes: target decodes of these rounds.
        drafts: for each one that was decoded, how many tokens had been said before, and how many it had.
        stats: the decoder's counts.
    """

    tokens: list[int]
    seconds: float
    part_s: dict[str, float]
    n_decodes: int
    drafts: list[tuple[int, int]]
    stats: Stats

    @property
    def n_tokens(self) -> int:
        """Tokens that the counted rounds gave."""
        return len(self.tokens) - 1

    @property
    def s_per_token(self) -> float:
        """Seconds a token."""
        return self.seconds / self.n_tokens


class Target:
    """A model with a context of its own, on which everything is played.

    Args:
        model: fully loaded.
        options: of the benchmark.
        n_ctx: positions.
        draft_model: what "draft-model" means.

    Raises:
        PyspecError: the context or the rollback strategy cannot be had.
    """

    def __init__(
        self, model: Model, options: DraftingBenchOptions, *, n_ctx: int, draft_model: Model | None = None
    ) -> None:
        self.model, self.options, self._draft_model = model, options, draft_model
        n_threads = options.n_threads
        self._sizes: dict[str, Any] = {"n_batch": _N_BATCH, "n_ubatch": _N_UBATCH, "flash_attn": options.flash_attn}
        self._sizes |= {"n_threads": n_threads, "n_threads_batch": n_threads}
        budgets = [as_budget(budget, None) for budget in options.budgets]
        self.assembly = assemble(
            model,
            options=self._sizes | {"n_ctx": n_ctx, "n_rs_seq": 0},
            rollback=check_name(options.rollback),
            placement=(options.n_gpu_layers, None),
            width_max=max((b.width_max for b in budgets if b is not None and b.measured), default=0),
        )
        self._decoder = Decoder(self.assembly.memory, DecoderOptions(), n_vocab=model.vocab.n_tokens)
        self._pieces = Pieces(model.vocab.token_to_piece if model.vocab.has_text else None)
        self._costs: dict[str, CostModel] = {}

    @property
    def context(self) -> Context:
        """The context; what is in its memory does not outlive the next run."""
        return self.assembly.context

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's recurrent state, 0 where the memory has none."""
        can = self.assembly.capabilities
        return can.state_bytes if can.kind in ("recurrent", "hybrid") else 0

    def close(self) -> None:
        """Close the context."""
        self.context.close()

    # ------------------------------------------------------------- speculators
    @contextmanager
    def drafting(self, spec: str, budget: str) -> Iterator[Drafting]:
        """A speculator that has seen nothing yet, with a budget; its draft model is closed at the end.

        Raises:
            UnknownOptionError, InvalidValueError: no such speculator, option or budget.
            PyspecError: a draft model that cannot be used.
        """
        options = as_budget(budget, None)
        cost = self._costs.get(budget) if self.options.warm else None
        if cost is None and options is not None:
            cost = self._costs[budget] = CostModel(options, self.assembly.width_costs)
        pool = SpeculatorPool(
            self.model,
            n_ctx=self.context.n_ctx_seq,
            draft_model=self._draft_model,
            context=self._sizes,
            n_gpu_layers=self.options.n_gpu_layers,
            budget=options,
            keeps_accepted=self.assembly.memory.rollback.keeps_accepted,
            cost=cost,
        )
        try:
            yield pool.drafting(spec)
        finally:
            pool.close()

    # ------------------------------------------------------------- a run
    def play(self, passage: Passage, drafting: Drafting | None = None) -> DraftingRun:
        """Say the passage's continuation, or what the model has to say, as the options ask for.

        Without a drafting decoding is plain.

        Raises:
            PyspecError: a decode or a rollback failed, or a speculator did.
        """
        if self.options.continuation == "forced":
            n_tokens = min(self.options.n_tokens, len(passage.continuation))
            chooser: Forced | Sampler = Forced(passage.continuation[:n_tokens])
        else:
            n_tokens = self.options.n_tokens
            chooser = Sampler(self.model, SamplingOptions())
        stream = TextStream(self._pieces)
        decoder = self._decoder
        decoder.begin(
            Request(
                prompt=passage.prompt,
                sampler=chooser,
                drafting=drafting or Drafting(None),
                max_tokens=n_tokens,
                end_tokens=frozenset(),
                emit=lambda token: "stop" if stream.push(token) else None,
            )
        )
        tokens = decoder.step().tokens
        before, n_before = _parts(decoder), decoder.stats.n_decodes
        drafts: list[tuple[int, int]] = []
        start = perf_counter()
        _rounds(decoder, tokens, drafts, stream.take)
        self.context.synchronize()  # a replay at the end gave no rows to wait for
        seconds = perf_counter() - start
        assert decoder.finish == "length", "the context has room for all tokens"
        part_s = {part: spent - before[part] for part, spent in _parts(decoder).items()}
        return DraftingRun(tokens, seconds, part_s, decoder.stats.n_decodes - n_before, drafts, decoder.stats)


def _rounds(decoder: Decoder, tokens: list[int], drafts: list[tuple[int, int]], take: Callable[[], str]) -> None:
    """All rounds that are left, as a caller of `Llama.stream` would have them."""
    stats = decoder.stats
    n_drafted = stats.n_drafted
    while decoder.finish is None:
        said = decoder.step().tokens
        if stats.n_drafted > n_drafted:
            drafts.append((len(tokens), stats.n_drafted - n_drafted))
            n_drafted = stats.n_drafted
        tokens += said
        take()


def _parts(decoder: Decoder) -> dict[str, float]:
    timings = asdict(decoder.timings)
    return {
        "draft": timings["draft_s"],
        "decode": timings["decode_s"] + timings["verify_s"],
        "rollback": timings["rollback_s"],
    }
