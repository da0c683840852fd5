"""Many sequences of one context: a memory for each, decoded together.

Owns how many sequences a context gets, which of them have a spare one for rollback, and decoding in one batch. Leaves
to others what is decoded when; a spare belongs to one sequence for good, so that nothing can be lost or mixed up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyspec._core import Context, Model, State
from pyspec.errors import ContextFullError, InvalidValueError, PyspecError, UnsupportedError
from pyspec.flash_attention import flash_attention
from pyspec.memory import has_device, probe
from pyspec.rollback import Rollback, cached_costs, candidates, check_name, choose, needs_spare
from pyspec.rollback.trim import Trim
from pyspec.sequence import SequenceMemory
from pyspec.speculators.history import Tokens
from pyspec.width_costs import cached_width_costs

__all__ = ["MAX_SEQUENCES", "MemberMemory", "Part", "Sequences"]

MAX_SEQUENCES = 256
"""Most sequences of a context, spare ones included (LLAMA_MAX_SEQ in llama.cpp's src/llama-cparams.h)."""


class MemberMemory(SequenceMemory):
    """Memory of one sequence among others.

    Args:
        context: of all.
        rollback: strategy of this sequence.
        n_ctx: most tokens that it may hold.
        company: memories of the context, this one among them; read when it is needed.

    Attributes:
        room: most tokens that the next round may decode, beside what others decode.
    """

    def __init__(
        self, context: Context, rollback: Rollback, *, n_ctx: int, company: Sequence[MemberMemory] = ()
    ) -> None:
        super().__init__(context, rollback)
        self._n_ctx = n_ctx
        self._company = company
        self._cells = object()  # the same for memories that may have cells in common
        self._n_intact: int | None = None
        self.room = min(context.n_batch, context.n_ubatch)

    @property
    def n_ctx(self) -> int:
        """Most tokens that this sequence may hold."""
        return self._n_ctx

    @property
    def width_max(self) -> int:
        """Most tokens in a decode that may be rolled back."""
        return min(super().width_max, self.room)

    @property
    def n_intact(self) -> int:
        """Tokens from the first on that memory holds as a decode of them alone does.

        What a shift moved up was decoded while the dropped tokens were seen, and serves no other request.
        """
        return self.n_past if self._n_intact is None else min(self._n_intact, self.n_past)

    @property
    def shares_cells(self) -> bool:
        """Whether another sequence may have cells in common with this one."""
        return any(other.n_past > 0 and other._cells is self._cells for other in self._company if other is not self)

    def clear(self) -> None:
        """Forget everything."""
        self._cells, self._n_intact = object(), None
        super().clear()

    def cut(self) -> None:
        """Forget what is not intact; all, where a sliding window has moved on.

        Raises:
            PyspecError: refused; memory is empty.
        """
        keep, end = self.n_intact, Trim(self.context, self.rollback.seq_id)
        if keep == self.n_past:
            self._n_intact = None
            return
        if not end.can_roll_back(keep):
            self.clear()
            return
        try:
            self.commit()
            self.n_past = end.roll_back(keep)
        except BaseException:
            with contextlib.suppress(PyspecError):
                self.clear()
            raise
        self._n_intact = None

    def share(self, target: MemberMemory) -> None:
        """Give `target`, which is empty, what is intact here; in a unified buffer they have these cells in common."""
        self.context.seq_cp(self.rollback.seq_id, target.rollback.seq_id)
        target.n_past = self.n_intact
        if target.n_past < self.n_past:
            self.context.seq_rm(target.rollback.seq_id, target.n_past, -1)
        if self.context.kv_unified:
            target._cells = self._cells

    def shift(self, n_keep: int, n_drop: int) -> None:
        """As of any memory; nothing moves that other sequences hold, too: this one gets cells of its own first.

        Raises:
            PyspecError: memory cannot, or has no room for them, which those of a request are; it may be empty then.
        """
        self.require_shift(n_keep)
        self.commit()
        if self.shares_cells and (self._n_intact is None or n_keep < self._n_intact):  # later ones share these alone
            state = State()
            self.context.state_save(self.rollback.seq_id, state)
            self.context.seq_rm(self.rollback.seq_id)
            self.context.state_restore(self.rollback.seq_id, state)
            self._cells = object()
        super().shift(n_keep, n_drop)
        self._n_intact = min(n_keep, self.n_intact)

    def decoded(self, n_tokens: int, first_row: int) -> None:
        """A batch has added `n_tokens`; their output rows begin at `first_row`."""
        self.n_decodes += 1
        self.n_past += n_tokens
        self.first_row = first_row


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence has in a batch.

    Attributes:
        memory: of the sequence.
        tokens: [n_tokens] behind what memory holds.
        n_outputs: rows wanted, of the last tokens.
    """

    memory: MemberMemory
    tokens: Tokens | Sequence[int]
    n_outputs: int


class Sequences:
    """A context with a memory for each of `n_sequences` sequences.

    Args:
        model: fully loaded.
        n_sequences: how many.
        n_ctx: positions of each.
        n_cells: positions of all together, 0 for as many as all can use. Others need a unified buffer.
        n_spare: sequences that get a spare one for rollback, None for all where the strategy wants one. The others use
            the next best strategy.
        options: parameters of `pyspec._core.Context`. `kv_unified` is on with a GPU and for recurrent or hybrid memory,
            where spares need it: sequences of different widths then take one graph on attention memory, but sums run in
            the order of the cells, so that the last bits of logits depend on what others hold, and sequences that share
            a beginning share cells. Off, each sequence has a buffer of its own.
        rollback: a strategy, or "auto". Snapshots keep the last states of a decode in one graph, which sequences of
            different widths do not have.
        checkpoint_budget_bytes: most bytes of one checkpoint, 0 for no limit.
        placement: anything that says where the model's layers lie; costs are remembered for it.
        width_max: the widest decode whose cost is of interest; below 2 none is measured.

    Attributes:
        context: of all sequences.
        capabilities: what its memory was seen to do.
        memories: one for each sequence.
        reasons: why each has its rollback strategy.
        n_spare: memories with a spare sequence, the first ones.
        can_batch: several sequences can be decoded at once.
        splits: sequences of different widths take several graphs.
        n_cells: positions of all together.
        flash_attn: as asked for or chosen, None where llama.cpp decides.
        width_costs: measured seconds of decodes by width.

    Raises:
        InvalidValueError: more sequences than a context can have; `n_cells` without a unified buffer.
        UnsupportedError: a strategy that this memory, or many sequences, cannot have; an architecture whose sequences
            llama.cpp mixes up.
        PyspecError: the context cannot be had.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_sequences: int,
        n_ctx: int,
        n_cells: int = 0,
        n_spare: int | None = None,
        options: Mapping[str, Any] | None = None,
        rollback: str = "auto",
        checkpoint_budget_bytes: int = 0,
        placement: object = None,
        width_max: int = 0,
    ) -> None:
        rollback = check_name(rollback)
        if rollback.startswith("snapshot"):
            raise UnsupportedError(
                what=f"rollback={rollback!r} for many sequences",
                why="a snapshot needs all tokens of a decode in one graph, and sequences of different widths are split",
                way_out="use 'shadow', 'fork', 'checkpoint-host' or 'auto'",
            )
        given = dict(options or {})
        device = has_device()
        wants_spares = needs_spare(rollback, model.memory_kind)
        if given.get("kv_unified") is None:
            given["kv_unified"] = n_cells > 0 or device or model.memory_kind in ("recurrent", "hybrid")
        if n_cells and not given["kv_unified"]:
            raise InvalidValueError(
                name="n_cells",
                value=n_cells,
                allowed="0 with kv_unified=False, where each request has n_ctx positions of its own; leave one of the "
                "two out",
            )
        spares = wants_spares and given["kv_unified"]
        self.n_spare = min(n_sequences if n_spare is None else n_spare, n_sequences) if spares else 0
        n_seq_max = n_sequences + self.n_spare
        if n_seq_max > MAX_SEQUENCES:
            allowed = f"at most {MAX_SEQUENCES - self.n_spare} beside n_spare={self.n_spare} spare ones"
            if n_spare is None and spares:
                allowed = f"at most {MAX_SEQUENCES // 2} with a spare sequence for each, or more with less n_spare: "
                allowed += f"a context has {MAX_SEQUENCES} sequences"
            raise InvalidValueError(name="n_parallel", value=n_sequences, allowed=allowed)
        self.n_cells = n_cells or n_ctx * n_sequences
        if not self.n_cells < 2**31:
            name = "n_cells" if n_cells else "n_parallel * n_ctx"
            raise InvalidValueError(name=name, value=self.n_cells, allowed="below 2147483648 positions in all")
        given["flash_attn"] = flash_attention(model, given | {"n_ctx": self.n_cells if given["kv_unified"] else n_ctx})
        self.flash_attn: bool | None = given["flash_attn"]
        self.context = Context(model, **given | {"n_seq_max": n_seq_max, "n_ctx": self.n_cells})
        if n_sequences > 1 and self.context.mixes_sequences:
            raise UnsupportedError(
                what=f"n_parallel={n_sequences} with architecture {model.architecture!r}",
                why="llama.cpp writes the states of one of its sequences over those of others",
                way_out="use n_parallel=1, which shares nothing between requests at work",
            )
        self.capabilities = probe(self.context)
        self.can_batch = self._probe_batch()
        self.splits = self.capabilities.kind in ("recurrent", "hybrid") or not self.context.kv_unified
        settings = {name: str(value) for name, value in given.items()} | {"placement": str(placement)}
        costs = {}
        if rollback == "auto":
            names = candidates(self.capabilities, spare=self.n_spare > 0, device=device)
            costs = cached_costs(self.context, names, spare=n_sequences if self.n_spare else None, settings=settings)
        self.width_costs: dict[int, float] = {}
        if width_max > 1:
            self.width_costs = cached_width_costs(self.context, width_max=width_max, settings=settings)
        self.memories: list[MemberMemory] = []
        self.reasons: list[str] = []
        for seq_id in range(n_sequences):
            spare = n_sequences + seq_id if seq_id < self.n_spare else None
            strategy, reason = choose(
                self.context,
                self.capabilities,
                rollback if spare is not None or not wants_spares else "auto",
                seq_id=seq_id,
                spare=spare,
                checkpoint_budget_bytes=checkpoint_budget_bytes,
                costs=costs,
            )
            n_most = min(n_ctx, self.context.n_ctx_seq, self.n_cells)
            self.memories.append(MemberMemory(self.context, strategy, n_ctx=n_most, company=self.memories))
            self.reasons.append(reason)

    @property
    def n_tokens_max(self) -> int:
        """Most tokens in one decode: one graph, so that no sliding window moves inside a round."""
        return min(self.context.n_batch, self.context.n_ubatch)

    def decode(self, parts: Sequence[Part]) -> None:
        """Decode the parts of several sequences in one batch, or of one.

        Raises:
            ContextFullError: no room; every memory is as before.
            PyspecError: the memories of all parts are empty.
        """
        lengths = [len(part.tokens) for part in parts]
        ends = np.cumsum(lengths)
        tokens = np.concatenate([np.asarray(part.tokens, np.int32) for part in parts])
        pos, outputs = np.empty(len(tokens), np.int32), np.zeros(len(tokens), bool)
        seq_ids = np.repeat(np.array([part.memory.rollback.seq_id for part in parts], np.int32), lengths)
        for part, n, end in zip(parts, lengths, ends.tolist(), strict=True):
            pos[end - n : end] = np.arange(part.memory.n_past, part.memory.n_past + n)
            outputs[end - part.n_outputs : end] = part.n_outputs > 0
        try:
            if len(parts) == 1:
                self.context.decode(tokens, pos=int(pos[0]), seq_id=int(seq_ids[0]), n_outputs=parts[0].n_outputs)
            else:
                self.context.decode_batch(tokens, pos, seq_ids, outputs)
        except ContextFullError:
            raise
        except BaseException:
            for part in parts:
                with contextlib.suppress(PyspecError):
                    part.memory.clear()
            raise
        row = 0
        for part, n in zip(parts, lengths, strict=True):
            part.memory.decoded(n, row)
            row += part.n_outputs

    def share(self, source: MemberMemory, target: MemberMemory) -> None:
        """Give `target`, which is empty, what `source` holds intact; in a unified buffer no attention cell is copied.

        Raises:
            UnsupportedError: this memory cannot share.
        """
        if not self.context.can_seq_cp(partial=False):
            raise UnsupportedError(
                what="sharing a beginning", why="llama.cpp cannot copy a sequence of this memory", way_out="decode it"
            )
        source.share(target)

    def _probe_batch(self) -> bool:
        if self.context.n_seq_max < 2 or self.context.n_batch < 3:
            return False
        try:
            self.context.decode_batch([0, 0, 0], [0, 1, 0], [0, 0, 1], [False, True, True])
        except UnsupportedError:
            return False
        finally:
            self.context.clear()
        return True
