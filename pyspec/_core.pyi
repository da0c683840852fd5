"""The extension: llama.cpp's model, context, memory, state and sampler as checked primitives, no policy.

Every call that would reach an assertion of llama.cpp is checked first and raises one of `pyspec.errors`.
Heavy calls release the GIL; a second thread in a busy object gets `BusyError`.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Tokens = NDArray[np.int32]  # [n_tokens]
LogitRows = NDArray[np.float32]  # [n_rows, n_vocab]
MemoryKind = Literal["attention", "sliding_window", "recurrent", "hybrid", "none"]

LLAMA_CPP_COMMIT: str
STATE_NONE: int
STATE_PARTIAL_ONLY: int
STATE_ON_DEVICE: int

@final
class Device:
    """A compute device that llama.cpp found. Memory in bytes, as its driver reports it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def kind(self) -> Literal["cpu", "gpu", "igpu", "accel", "meta"]: ...
    @property
    def backend(self) -> str: ...
    @property
    def memory_free_bytes(self) -> int: ...
    @property
    def memory_total_bytes(self) -> int: ...

def devices() -> list[Device]: ...
def backends() -> list[str]:
    """Names of the backends compiled in or loaded, e.g. `["CPU", "CUDA"]`."""

def load_backends(folder: str) -> None:
    """Load the backends that lie as shared libraries in `folder` (portable builds); once, idempotent.

    Raises:
        UnsupportedError: this build has its backends compiled in.
    """

def system_info() -> str:
    """llama.cpp's line about CPU features and threads."""

def supports_gpu_offload() -> bool: ...
def set_log_level(level: int) -> None:
    """Drop llama.cpp's messages below `level` (numbers of `logging`) before they reach Python."""

def flush_log() -> int:
    """Hand the messages collected so far to the logger `pyspec.llama`; returns how many."""

@final
class Vocab:
    """The vocabulary of a model. Keeps its model alive. Thread-safe."""

    @property
    def n_tokens(self) -> int: ...
    @property
    def kind(
        self,
    ) -> Literal["none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "test"]: ...
    @property
    def has_text(self) -> bool:
        """Whether tokenize and detokenize work (kind is not "none")."""
    # ids of special tokens, None where the model has none
    @property
    def bos(self) -> int | None: ...
    @property
    def eos(self) -> int | None: ...
    @property
    def eot(self) -> int | None: ...
    @property
    def sep(self) -> int | None: ...
    @property
    def nl(self) -> int | None: ...
    @property
    def pad(self) -> int | None: ...
    @property
    def mask(self) -> int | None: ...
    @property
    def fim_pre(self) -> int | None: ...
    @property
    def fim_suf(self) -> int | None: ...
    @property
    def fim_mid(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def add_eos(self) -> bool: ...
    @property
    def eog_tokens(self) -> list[int]:
        """All ids that end a generation, ascending."""

    def is_eog(self, token: int) -> bool: ...
    def is_control(self, token: int) -> bool: ...
    def text(self, token: int) -> str:
        """The token's text as the GGUF spells it."""

    def score(self, token: int) -> float: ...
    def tokenize(
        self,
        text: str | bytes,
        *,
        add_special: bool = True,
        parse_special: bool = False,
    ) -> Tokens: ...
    def detokenize(
        self,
        tokens: ArrayLike,
        *,
        remove_special: bool = False,
        unparse_special: bool = False,
    ) -> bytes: ...
    def token_to_piece(self, token: int, *, special: bool = False) -> bytes: ...
    def differences(self, other: Vocab, *, limit: int = 8) -> list[str]:
        """Why tokens of `other` cannot stand for tokens of this one; an empty list means compatible.

        Compares kind, special ids, add_bos/add_eos and every token's text; sizes may differ by at most 128 as
        llama.cpp allows for draft models (common/speculative.cpp). Two vocabularies without text are compatible
        when they have the same size.
        """

@final
class Model:
    """A loaded GGUF model. Read only, may be shared by contexts and threads.

    Raises:
        ModelLoadError: the file is missing, damaged or of an unknown architecture (with llama.cpp's own reason).
        LoadCancelledError: `progress` returned False.
        Any exception raised by `progress` itself is passed on.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        n_gpu_layers: int = -1,
        devices: Sequence[str] | None = None,
        main_gpu: int = 0,
        split_mode: Literal["none", "layer", "row"] = "layer",
        tensor_split: Sequence[float] | None = None,
        use_mmap: bool = True,
        use_mlock: bool = False,
        use_extra_bufts: bool = True,
        check_tensors: bool = False,
        vocab_only: bool = False,
        progress: Callable[[float], bool | None] | None = None,
    ) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def memory_kind(self) -> MemoryKind: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def vocab(self) -> Vocab: ...
    @property
    def vocab_only(self) -> bool: ...
    @property
    def n_gpu_layers(self) -> int:
        """As it was asked for: negative for all."""
    @property
    def n_ctx_train(self) -> int: ...
    @property
    def n_embd(self) -> int: ...
    @property
    def n_layer(self) -> int: ...
    @property
    def n_head(self) -> int: ...
    @property
    def n_head_kv(self) -> int: ...
    @property
    def n_swa(self) -> int: ...
    @property
    def n_params(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def quantization(self) -> str: ...
    @property
    def has_encoder(self) -> bool: ...
    @property
    def has_decoder(self) -> bool: ...
    @property
    def is_recurrent(self) -> bool: ...
    @property
    def is_hybrid(self) -> bool: ...
    @property
    def is_diffusion(self) -> bool: ...
    def chat_template(self, name: str | None = None) -> str | None: ...
    def close(self) -> None:
        """Forbid new use; memory is freed when the last context, vocabulary and sampler of it are gone."""

    @property
    def closed(self) -> bool: ...

@final
class State:
    """A reusable buffer that holds one sequence's state; grows on demand, never shrinks by itself.

    Filled only by `Context.state_save` or `State.from_bytes`, so its bytes can be trusted when given back.
    """

    def __init__(self) -> None: ...
    @property
    def n_bytes(self) -> int:
        """Bytes of state it holds now (host bytes; 0 when empty)."""
    @property
    def capacity_bytes(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def pos_max(self) -> int:
        """Last position of the sequence when saved, -1 when it was empty."""

    def clear(self) -> None:
        """Forget the state and free the memory."""

    def view(self) -> NDArray[np.uint8]:
        """The state's raw bytes, read only, without a copy. Shape [n_bytes]. Valid until the next save or clear."""

    def to_bytes(self) -> bytes:
        """Header (magic, version, model and context fingerprint, flags, positions, length, checksum) and state.

        Raises:
            StateError: empty, or ON_DEVICE (its tensors are not in host memory).
        """

    @staticmethod
    def from_bytes(data: bytes) -> State:
        """Inverse of `to_bytes`.

        Raises:
            StateError: no header of ours, another version, a wrong checksum.
            StateSizeError: truncated or too long.
        """

@final
class Context:
    """A llama_context: memory for `n_seq_max` sequences and room for one decode.

    Zero means llama.cpp's or the model's default. `n_threads=0` means the number of physical cores usable by this
    process. `flash_attn` and `kv_unified`: None lets llama.cpp decide / is False for one sequence and True for more.

    Raises:
        InvalidValueError: a size or a type that cannot be (with the allowed ones).
        UnsupportedError: an encoder-only, diffusion or vocabulary-only model.
        ContextCreateError: llama.cpp refused; its own words are the reason.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int = 0,
        n_batch: int = 2048,
        n_ubatch: int = 512,
        n_seq_max: int = 1,
        n_rs_seq: int = 0,
        n_outputs_max: int = 0,
        n_threads: int = 0,
        n_threads_batch: int = 0,
        flash_attn: bool | None = None,
        type_k: str = "f16",
        type_v: str = "f16",
        offload_kqv: bool = True,
        op_offload: bool = True,
        swa_full: bool = False,
        kv_unified: bool | None = None,
        rope_scaling: Literal["none", "linear", "yarn", "longrope"] | None = None,
        rope_freq_base: float = 0.0,
        rope_freq_scale: float = 0.0,
        yarn_ext_factor: float = -1.0,
        yarn_attn_factor: float = -1.0,
        yarn_beta_fast: float = -1.0,
        yarn_beta_slow: float = -1.0,
        yarn_orig_ctx: int = 0,
    ) -> None: ...
    @property
    def model(self) -> Model: ...
    # values read back from llama.cpp after creation
    @property
    def n_ctx(self) -> int: ...
    @property
    def n_ctx_seq(self) -> int: ...
    @property
    def n_batch(self) -> int: ...
    @property
    def n_ubatch(self) -> int: ...
    @property
    def n_seq_max(self) -> int: ...
    @property
    def n_rs_seq(self) -> int: ...
    @property
    def n_outputs_max(self) -> int: ...
    @property
    def kv_unified(self) -> bool: ...
    @property
    def mixes_sequences(self) -> bool:
        """Whether llama.cpp mixes up the states of several sequences, decoded together or one by one."""

    @property
    def n_threads(self) -> int: ...
    @property
    def n_threads_batch(self) -> int: ...
    def set_n_threads(self, n_threads: int, n_threads_batch: int) -> None: ...

    # ------------------------------------------------------------- decode
    def decode(self, tokens: ArrayLike, *, pos: int, seq_id: int = 0, n_outputs: int = 1) -> None:
        """Decode `tokens` ([n_tokens]) of one sequence at pos, pos+1, ...; the last `n_outputs` give logits rows.

        `pos` is `seq_pos_max(seq_id) + 1`, so an empty sequence begins at 0.

        Raises:
            EmptyBatchError, BatchTooLargeError, TokenRangeError, SequenceIdError, PositionError,
            TooManyOutputsError, InvalidValueError (n_outputs > n_tokens), ContextFullError, BusyError,
            ClosedError: nothing was changed.
            ContextFullError: also when llama.cpp finds no slot; the memory is as before.
            AbortedError, DecodeError: part of the tokens may be in memory.
            KeyboardInterrupt: Ctrl-C during the decode (main thread); as AbortedError.
        """

    def decode_batch(self, tokens: ArrayLike, pos: ArrayLike, seq_ids: ArrayLike, outputs: ArrayLike) -> None:
        """The same for several sequences: four arrays [n_tokens]; `outputs` is bool. Positions consecutive in each.

        Raises:
            UnsupportedError: several sequences at once, for an architecture whose states llama.cpp then mixes up.
            Everything that `decode` raises.
        """

    def abort(self) -> None:
        """Stop the decode at work, from any thread; without one, the next decode stops at once."""

    def clear_abort(self) -> None:
        """Take back an `abort` that has stopped nothing yet; from any thread."""

    # ------------------------------------------------------------- output
    @property
    def n_outputs(self) -> int:
        """Rows that the last decode produced."""

    def logits(self, first_row: int = 0, n_rows: int | None = None) -> LogitRows:
        """A copy of rows [first_row, first_row + n_rows), in batch order."""

    def argmax(self, row: int) -> int: ...
    def argmax_rows(self, first_row: int = 0, n_rows: int | None = None) -> Tokens:
        """Greedy choices of these rows ([n_rows]), first index on ties, without copying the rows."""

    # ------------------------------------------------------------- memory
    def clear(self) -> None: ...
    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> None:
        """Forget positions [p0, p1) of a sequence (-1: from the start, to the end). A whole sequence always goes.

        Raises:
            MemoryRefusedError: the memory cannot; nothing was changed. Also where llama.cpp would accept and leave
                wrong contents: a snapshot (`n_rs_seq`) of before the last decode, the middle of a recurrent
                sequence, a sliding window that was already pruned.
        """

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        """Share positions [p0, p1) of `src` with `dst`; a recurrent state is always shared whole.

        Raises:
            UnsupportedError: a copy that llama.cpp would assert on (see `can_seq_cp`), one that leaves off the end
                of a recurrent sequence or of a pruned window, or one between `seq_rm` by snapshot and the next
                decode; nothing was changed.
        """

    def can_seq_cp(self, *, partial: bool) -> bool:
        """Whether `seq_cp` is safe here, for whole (`partial=False`) or part of a sequence; never tries it."""

    def seq_keep(self, seq_id: int) -> None:
        """Forget every other sequence."""

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Add `delta` to positions [p0, p1); cells shared with another sequence move for both.

        Raises:
            UnsupportedError: the memory cannot (see `can_shift`). InvalidValueError: a position would leave its range.
        """
    def seq_pos_min(self, seq_id: int) -> int:
        """Smallest position held, -1 when empty."""

    def seq_pos_max(self, seq_id: int) -> int: ...
    @property
    def can_shift(self) -> bool:
        """Whether `seq_add` works: llama.cpp says so, no recurrent layers, and `type_k` is f16 or f32."""

    # ------------------------------------------------------------- state
    def state_size(self, seq_id: int, flags: int = 0) -> int: ...
    def state_save(self, seq_id: int, state: State, flags: int = 0) -> int:
        """Fill `state` with the sequence's state; returns its bytes. With ON_DEVICE earlier saves of `seq_id` die.

        PARTIAL_ONLY takes what cannot be removed by `seq_rm`: recurrent states and sliding windows. On a memory
        without those it is the whole state.

        Raises:
            UnsupportedError: ON_DEVICE where the partial state has attention cells. InvalidValueError: other flags.
        """

    def state_restore(self, seq_id: int, state: State) -> int:
        """Give a saved state to a sequence of a context of the same model and settings; returns its bytes.

        A whole state replaces the sequence. A PARTIAL_ONLY state replaces only its part: attention cells behind
        `state.pos_max` stay until `seq_rm(seq_id, state.pos_max + 1)` removes them.

        Raises:
            StateError: empty, stale (a later ON_DEVICE save), of another model or other settings, or a part whose
                other positions are gone; nothing changed. If there is no room the sequence is emptied, and the
                error says so.
        """

    def state_save_file(self, path: str | PathLike[str], seq_id: int, tokens: ArrayLike) -> int: ...
    def state_load_file(self, path: str | PathLike[str], seq_id: int) -> Tokens:
        """Load what `state_save_file` wrote; returns its tokens ([n_tokens])."""

    # ------------------------------------------------------------- other
    def synchronize(self) -> None: ...
    def perf(self) -> dict[str, float]:
        """Counters of llama.cpp: load_s, prompt_s, eval_s, n_prompt, n_eval, n_reused."""

    def perf_reset(self) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

@final
class Sampler:
    """llama.cpp's sampler chain, built from a `pyspec.config.SamplingOptions` in llama.cpp's default order.

    `temperature` 0 is greedy: penalties, DRY, bias and grammar still apply, the rest does not. Otherwise each `sample`
    makes exactly one random draw (XTC makes one of its own), whatever the grammar does, so the tokens for a seed depend
    on the sequence of (logits, accepted tokens) alone: speculation that samples once per emitted token changes nothing.

    Raises:
        InvalidValueError: an option of a wrong type or outside its range.
        TokenRangeError: a logit bias outside the vocabulary.
        GrammarError: the grammar does not parse (with line and column), has no root, recurses on the left, or would
            expand without bound.
        VocabularyMissingError: a grammar or DRY breakers for a model without text.
        ClosedError: the model was closed.
    """

    def __init__(self, model: Model, options: Any) -> None: ...
    @property
    def seed(self) -> int:
        """The seed in use (a drawn one where the options said None)."""
    @property
    def names(self) -> list[str]:
        """Names of the active samplers, in order; the grammar, checked last, comes last."""
    @property
    def is_greedy(self) -> bool:
        """True when choosing is plain argmax, so that `Context.argmax_rows` gives the same tokens."""

    def sample(self, context: Context, row: int, mask: NDArray[np.uint32] | None = None, *, again: bool = False) -> int:
        """Choose a token from an output row of the last decode. Changes nothing but the random numbers' position.

        `mask` [at least ceil(n_vocab / 32)]: bit i % 32 of word i // 32 is 0 where token i is forbidden, as by grammar.
        `again` chooses with the random numbers of the call before, no choice having been accepted since.

        Raises:
            NoOutputError, OutputRowError, SamplerError (no candidate left, NaN or infinite logits, nothing to choose
            again), GrammarError (its place was lost, see `accept`), InvalidValueError (a context of another model, a
            mask that is too short or no uint32 array), ClosedError, BusyError.
        """

    def probabilities(
        self, context: Context, row: int, mask: NDArray[np.uint32] | None = None
    ) -> tuple[Tokens, NDArray[np.float32]]:
        """The law that `sample` would draw from: ids and probabilities above 0, most likely first. Draws nothing.

        Raises:
            The same errors as `sample`.
        """

    def accept(self, token: int, *, prompt: bool = False) -> None:
        """Tell every sampler that `token` was chosen. A `prompt` token counts for penalties and DRY, not the grammar.

        Raises:
            TokenRangeError: outside the vocabulary; nothing was changed.
            GrammarError: the grammar forbids the token; nothing was changed. Says so where the grammar's place in the
                text was lost, then only `reset` helps.
        """

    def reset(self) -> None:
        """Back to the state after construction, the seed included."""

    def clone(self) -> Sampler:
        """A copy that continues as this one would."""
