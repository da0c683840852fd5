"""A decoder on a model, with every decode that survived on record, and a replay of that record elsewhere.

Owns the recording memory, the runs and the comparison with plain decoding; leaves the laws to the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyspec._core import STATE_PARTIAL_ONLY, Context, Model, Sampler, State
from pyspec.config import SamplingOptions
from pyspec.decoder import Decoder, DecoderOptions, Request
from pyspec.drafting import Drafting
from pyspec.flash_attention import flash_attention
from pyspec.memory import probe
from pyspec.rollback import choose, needs_spare
from pyspec.sequence import SequenceMemory
from pyspec.speculators import History, Speculator, as_tokens
from pyspec.speculators.scripted import Scripted
from pyspec.stats import Stats

STRATEGIES = ("trim", "shadow", "fork", "checkpoint-host", "checkpoint-device", "snapshot", "snapshot+shadow")
#: Fewer than the longest drafts where a shadow stands in for what they cannot undo.
N_SNAPSHOTS = 8
SNAPSHOTS = {"snapshot": N_SNAPSHOTS, "snapshot+shadow": 2}
NEAR_TIE = 1e-3
N_TOKENS = 32

SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 11, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
}

#: Rounds of (tokens that are right, tokens drafted).
PATTERNS: dict[str, tuple[tuple[int, int], ...]] = {
    "accepted": ((4, 4),) * 6,
    "rejected-at-once": ((0, 4),) * 12,
    "rejected-last": ((3, 4),) * 8,
    "each-position": ((0, 4), (1, 4), (2, 4), (3, 4), (4, 4)),
    "accepted-then-none": ((4, 4), (0, 0), (3, 3), (0, 0), (0, 0), (2, 2), (0, 0)),
    "rejected-then-none": ((1, 4), (0, 0), (0, 2), (0, 0), (2, 3), (0, 0)),
    "one-save-many-tries": ((0, 2), (1, 3), (0, 1), (0, 2), (0, 2), (4, 4), (0, 1)),
    "mixed": ((0, 4), (4, 4), (0, 0), (2, 4), (1, 4), (3, 4), (0, 1), (1, 1), (0, 0), (0, 3), (0, 2), (5, 6), (8, 8)),
}

_FAMILIES = {
    "attention": ("trim", "fork", "checkpoint-host"),
    "sliding_window": ("trim", "fork", "checkpoint-host"),
    "recurrent": ("shadow", "fork", "checkpoint-host", "checkpoint-device"),
    "hybrid": ("shadow", "fork", "checkpoint-host", "checkpoint-device"),
}
_MEMORY_KINDS = {
    "lfm2": "hybrid",
    "qwen35": "hybrid",
    "qwen3next": "hybrid",
    "falcon-h1": "hybrid",
    "granitehybrid": "hybrid",
    "nemotron_h": "hybrid",
    "jamba": "hybrid",
    "mamba": "recurrent",
    "mamba2": "recurrent",
    "kimi-linear": "hybrid",
    "gemma3": "sliding_window",
    "llama": "attention",
    "gpt-oss": "sliding_window",
}
#: What llama.cpp's memory of each architecture can do.
ABLE: dict[str, tuple[str, ...]] = {name: _FAMILIES[kind] for name, kind in _MEMORY_KINDS.items()} | {
    "lfm2": (
        "shadow",
        "fork",
        "checkpoint-host",
        *SNAPSHOTS,
    ),  # its random model has a sliding window beside the state
    "qwen35": (*_FAMILIES["hybrid"], *SNAPSHOTS),
    "nemotron_h": (*_FAMILIES["hybrid"], *SNAPSHOTS),
}
ABLE_REAL: dict[str, tuple[str, ...]] = {
    "tiny": (*_FAMILIES["hybrid"], *SNAPSHOTS),
    "smollm2-135m": _FAMILIES["attention"],
    "gemma3-270m": _FAMILIES["sliding_window"],
}


@dataclass
class Decode:
    """One decode: `n_kept` of its tokens are still in memory."""

    tokens: list[int]
    pos: int
    n_kept: int
    n_outputs: int


class RecordingMemory(SequenceMemory):
    """A sequence memory that knows which decodes its content comes from."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.decodes: list[Decode] = []

    def clear(self) -> None:
        super().clear()
        self.decodes = []

    def decode(self, tokens: Any, n_outputs: int) -> None:
        pos = self.n_past
        super().decode(tokens, n_outputs)
        listed = [int(token) for token in tokens]
        self.decodes.append(Decode(listed, pos, len(listed), n_outputs))

    def roll_back(self, keep: int) -> int:
        reached = super().roll_back(keep)
        self.decodes = [d for d in self.decodes if d.pos < reached]
        if self.decodes:
            last = self.decodes[-1]
            last.n_kept = min(last.n_kept, reached - last.pos)
        return reached


@dataclass
class Run:
    """What one generation did."""

    tokens: list[int]
    finish: str
    stats: Stats
    n_round_tokens: list[int]
    held: list[int]
    """Tokens in memory at the end."""
    history: list[int]
    decodes: list[Decode] = field(repr=False)


@dataclass(frozen=True)
class Played:
    """A finished run with what its memory looked like, and what a replay of its surviving decodes looks like."""

    run: Run
    state: bytes
    replayed_state: bytes
    logits: np.ndarray
    replayed_logits: np.ndarray


class Subject:
    """A model, a prompt, and plain decoding's answer to it."""

    def __init__(self, name: str, model: Model, prompt: list[int], *, n_ctx: int = 512) -> None:
        self.name = name
        self.model = model
        self.prompt = prompt
        self.n_ctx = n_ctx
        self._plain: dict[str, list[int]] = {}
        self._played: dict[tuple[str, ...], Played] = {}

    def rig(self, rollback: str = "auto", **settings: Any) -> Rig:
        return Rig(self.model, rollback, **{"n_ctx": self.n_ctx} | settings)

    def plain(self, law: str = "greedy", n_tokens: int = N_TOKENS) -> list[int]:
        """The first `n_tokens` (at most `N_TOKENS`) that plain decoding says under `SAMPLINGS[law]`."""
        if law not in self._plain:
            self._plain[law] = self.rig().run(self.prompt, None, max_tokens=N_TOKENS, **SAMPLINGS[law]).tokens
        return self._plain[law][:n_tokens]

    def script(self, pattern: Iterable[tuple[int, int]], law: str = "greedy") -> Scripted:
        return drafts_from(self.plain(law), len(self.prompt), pattern, self.model.vocab.n_tokens)

    def play(self, rollback: str, replay_mode: str, pattern: str, law: str = "greedy") -> Played:
        """The run of one pattern of drafts, and its replay; computed once."""
        key = (rollback, replay_mode, pattern, law)
        if key not in self._played:
            rig = self.rig(rollback, replay=replay_mode)
            script = self.script(PATTERNS[pattern], law)
            run = rig.run(self.prompt, script, max_tokens=N_TOKENS, **SAMPLINGS[law])
            again = rig.fresh()
            replay(again, run.decodes, filler=5)
            pending = run.history[len(run.held) :]
            self._played[key] = Played(
                run, rig.state_bytes(), again.state_bytes(), rig.next_logits(pending), again.next_logits(pending)
            )
        return self._played[key]


def flash_attention_of(model: Model, rollback: str) -> bool | None:
    """On where a checkpoint of attention cells comes back in other cells: without it sums depend on which."""
    moves_cells = model.memory_kind == "sliding_window" or model.architecture == "deepseek4"
    return True if moves_cells and rollback.startswith("checkpoint") else None


class Rig:
    """One context of `model` with a decoder; `rollback` as in `pyspec.rollback.choose`."""

    def __init__(
        self,
        model: Model,
        rollback: str = "auto",
        *,
        replay: str = "fused",
        max_tries: int = 4,
        max_pending: int = 16,
        n_draft: int | None = None,
        budget_bytes: int = 0,
        seq_id: int = 0,
        wrap: Callable[[Context], Any] = lambda context: context,
        **settings: Any,
    ) -> None:
        self.model = model
        self.drafting: Drafting | None = None
        spare = needs_spare(rollback, model.memory_kind)
        self.settings = {
            "n_ctx": 512,
            "n_threads": 1,
            "n_threads_batch": 1,
            "n_seq_max": 2 if spare else 1,
            "kv_unified": True if spare else None,
            "n_rs_seq": max(0, min(SNAPSHOTS.get(rollback, 0), settings.get("n_ubatch", 512) - 2)),
        } | settings
        self.settings.setdefault("flash_attn", flash_attention_of(model, rollback))
        self.settings["flash_attn"] = flash_attention(model, self.settings)  # as everything that generates
        self.context: Any = wrap(Context(model, **self.settings))
        self.can = probe(self.context)
        strategy, _ = choose(
            self.context,
            self.can,
            rollback,
            seq_id=seq_id,
            spare=1 - seq_id if spare else None,
            checkpoint_budget_bytes=budget_bytes,
        )
        self.memory = RecordingMemory(self.context, strategy)
        self.decoder = Decoder(
            self.memory,
            DecoderOptions(replay=replay, max_tries=max_tries, max_pending=max_pending, n_draft=n_draft),
            n_vocab=model.vocab.n_tokens,
        )

    def run(
        self,
        prompt: Sequence[int],
        speculator: Speculator | None = None,
        *,
        max_tokens: int | None = 24,
        end_tokens: frozenset[int] = frozenset(),
        emit: Callable[[int], str | None] = lambda token: None,
        after_round: Callable[[], object] = lambda: None,
        **sampling: Any,
    ) -> Run:
        """Generate to the end; `after_round` is called after each round."""
        decoder = self.decoder
        decoder.begin(
            Request(
                prompt=as_tokens(list(prompt)),
                sampler=Sampler(self.model, SamplingOptions(**sampling)),
                drafting=self.drafting if self.drafting is not None else Drafting(speculator),
                max_tokens=max_tokens,
                end_tokens=end_tokens,
                emit=emit,
            )
        )
        tokens: list[int] = []
        rounds: list[int] = []
        while decoder.finish is None:
            verdict = decoder.step()
            tokens += verdict.tokens
            rounds.append(len(verdict.tokens))
            after_round()
        n_past = self.memory.n_past
        history = decoder.history.view().tolist()
        return Run(tokens, decoder.finish, decoder.stats, rounds, history[:n_past], history, list(self.memory.decodes))

    def state_bytes(self) -> bytes:
        """The part of the sequence's state that cannot be cut back."""
        state = State()
        self.context.state_save(self.memory.rollback.seq_id, state, STATE_PARTIAL_ONLY)
        return state.view().tobytes()

    def next_logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits [n_vocab] after `tokens` at the end of memory; changes the memory."""
        self.memory.decode(list(tokens), 1)
        logits: np.ndarray = self.context.logits(0, 1)[0]
        return logits

    def fresh(self) -> Rig:
        """Another context with the same settings and an empty memory, on the sequence that holds the tokens here."""
        return Rig(self.model, self.memory.rollback.name, seq_id=self.memory.rollback.seq_id, **self.settings)


def drafts_from(plain: Sequence[int], n_prompt: int, pattern: Iterable[tuple[int, int]], n_vocab: int) -> Scripted:
    """A script whose draft in round i is as long as `pattern[i][1]` says and right in its first `pattern[i][0]` tokens.

    `plain` is what plain decoding says after the prompt; after the pattern nothing is drafted.
    """
    rounds = iter(pattern)

    def script(history: History, n_max: int) -> list[int]:
        n_right, n_draft = next(rounds, (0, 0))
        start = len(history) - n_prompt
        draft = list(plain[start : start + n_draft])
        if n_right < len(draft):
            draft[n_right] = (draft[n_right] + 1) % n_vocab
        return draft

    return Scripted(script)


def replay(rig: Rig, decodes: Sequence[Decode], *, filler: int) -> list[list[int]]:
    """Decode what survived, in the same widths, in order, on the empty memory of another rig.

    Where only the first tokens of a decode survived (`trim`, `snapshot`), `filler` stands in for the others, which
    are removed again. Returns the argmax of every output row of each decode that kept a token.
    """
    rig.memory.clear()
    chosen: list[list[int]] = []
    for decode in decodes:
        n_lost = len(decode.tokens) - decode.n_kept
        tokens = decode.tokens[: decode.n_kept] + [filler] * n_lost
        rig.memory.decode(tokens, decode.n_outputs)
        rows = rig.context.argmax_rows().tolist() if decode.n_outputs else []
        chosen.append(rows[: max(0, decode.n_outputs - n_lost)])
        if n_lost:
            rig.context.seq_rm(rig.memory.rollback.seq_id, rig.memory.n_past - n_lost, -1)
            rig.memory.n_past -= n_lost
    return chosen


def assert_same_choices(model: Model, prompt: Sequence[int], plain: Sequence[int], other: Sequence[int]) -> None:
    """Plain and speculative greedy decoding said the same, up to the first near-tie.

    Kernels of llama.cpp may round the same row differently at width 1 and at larger widths. Where the texts part, the
    target must therefore be torn between both tokens at either width: by less than `NEAR_TIE` of the row's spread.
    """
    if list(plain) == list(other):
        return
    n_same = next((i for i, (a, b) in enumerate(zip(plain, other, strict=False)) if a != b), None)
    assert n_same is not None, f"one text ends early: {len(plain)} and {len(other)} tokens"
    for width in (1, 2):
        margin = _margin(Rig(model), [*prompt, *plain[:n_same]], len(prompt), plain[n_same], other[n_same], width)
        assert abs(margin) < NEAR_TIE, f"token {n_same}: {plain[n_same]} became {other[n_same]}, margin {margin:.2g}"


def _margin(rig: Rig, tokens: Sequence[int], n_prompt: int, one: int, other: int, width: int) -> float:
    """Logit of `one` less that of `other` after `tokens`, in standard deviations of the row."""
    rig.memory.decode(tokens[:n_prompt], 1)
    for start in range(n_prompt, len(tokens), width):
        rig.memory.decode(tokens[start : start + width], 1)
    row = rig.context.logits(0, 1)[0]
    return float((row[one] - row[other]) / row.std())
