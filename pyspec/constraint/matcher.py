"""A constraint at one point of a text: which tokens may come next, and which ones must.

Owns the vocabulary as llguidance reads it, built once for a model, and the place in the grammar. Leaves choosing
among the allowed tokens to `pyspec.constraint.sampler`, and drafting the forced ones to `pyspec.speculators.grammar`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pyspec._core import Model, Vocab
from pyspec.constraint.compiled import Compiled, reason_of
from pyspec.constraint.kinds import Constraint, llguidance
from pyspec.errors import ConstraintError, VocabularyMissingError

__all__ = ["Matcher", "TokenMask", "compile_constraint", "compile_grammar"]

TokenMask = NDArray[np.uint32]
"""[ceil((n_vocab + 1) / 32)]: bit i % 32 of word i // 32 is 1 where token i may come next."""

_SENTINEL = b"\n"
_N_TOLD = 8  # last tokens that an error tells


class _Tokenizer:
    """A vocabulary as llguidance asks for it: the bytes of each token, and the usual tokens of a text.

    A token has the bytes that the user gets for it. Those that give none (control tokens), and those that end a
    generation, stand for no text. One token more than there are, `eos_token_id`, tells where the text may end.
    """

    bos_token_id = None

    def __init__(self, model: Model) -> None:
        vocab = model.vocab
        n = vocab.n_tokens
        self._model = weakref.ref(model)
        pieces = [vocab.token_to_piece(token) for token in range(n)]
        special = [token for token, piece in enumerate(pieces) if not piece or vocab.is_eog(token)]
        for token in special:
            pieces[token] = vocab.token_to_piece(token, special=True) or b"<%d>" % token
        self.tokens = [*pieces, b"<end>"]
        self.special_token_ids = [*special, n]
        self.eos_token_id = n
        no_text = set(special)
        self._pieces = pieces
        self._by_bytes = {piece: token for token, piece in reversed(list(enumerate(pieces))) if token not in no_text}
        self._longest = max(map(len, self._by_bytes), default=0)
        # SentencePiece vocabularies may put a space in front of a text, which must not come into the middle of one.
        self._prefix = b"" if self._spell(vocab, b"a") == b"a" else self._spell(vocab, _SENTINEL)

    def _spell(self, vocab: Vocab, text: bytes) -> bytes:
        return b"".join(self._pieces[token] for token in vocab.tokenize(text, add_special=False).tolist())

    def __call__(self, text: bytes | str) -> list[int]:
        """The tokens of `text`, whose bytes are exactly those of the text."""
        model = self._model()
        assert model is not None, "a matcher is used while its model lives"
        text = text.encode() if isinstance(text, str) else text
        asked = _SENTINEL + text if self._prefix else text
        tokens = model.vocab.tokenize(asked, add_special=False).tolist()
        n, spelled = 0, b""
        while spelled != self._prefix and n < len(tokens):
            spelled += self._pieces[tokens[n]]
            n += 1
        tokens = tokens[n:]
        if b"".join(self._pieces[token] for token in tokens) == text:
            return tokens  # type: ignore[no-any-return]
        return self._longest_first(text)

    def _longest_first(self, text: bytes) -> list[int]:
        """For vocabularies that change a text before they cut it into tokens."""
        tokens: list[int] = []
        at = 0
        while at < len(text):
            for n in range(min(self._longest, len(text) - at), 0, -1):
                token = self._by_bytes.get(text[at : at + n])
                if token is not None:
                    break
            else:
                return tokens  # no token has this byte, so the rest cannot be said
            tokens.append(token)
            at += n
        return tokens


_tokenizers: weakref.WeakKeyDictionary[Model, Any] = weakref.WeakKeyDictionary()
_compiled: weakref.WeakKeyDictionary[Model, Compiled] = weakref.WeakKeyDictionary()
_building = threading.Lock()


def _tokenizer(model: Model) -> Any:
    """The model's `LLTokenizer`, built at the first call: about a second for 100,000 tokens.

    Raises:
        VocabularyMissingError: the model has no text.
        UnsupportedError: llguidance is not installed.
    """
    library = llguidance()
    with _building:
        made = _tokenizers.get(model)
        if made is None:
            if not model.vocab.has_text:
                raise VocabularyMissingError(what="a constraint")
            wrapped = library.TokenizerWrapper(_Tokenizer(model))
            made = library.LLTokenizer(wrapped, slices=library.LLTokenizer.json_slices())
            _tokenizers[model] = made
    return made


def compile_constraint(constraint: Constraint, model: Model, *, ends: Iterable[int] = ()) -> Matcher:
    """The constraint at the beginning of a text.

    Args:
        constraint: what the text must look like.
        model: whose tokens the text is made of.
        ends: tokens that end the text, allowed exactly where it is complete.

    Raises:
        ConstraintError: a schema, pattern or grammar that llguidance refuses, with its reason.
        VocabularyMissingError: the model has no text.
        UnsupportedError: llguidance is not installed.
        ClosedError: the model was closed.
    """
    return compile_grammar(constraint.grammar(), model, ends=ends)


def compile_grammar(grammar: str, model: Model, *, ends: Iterable[int] = ()) -> Matcher:
    """As `compile_constraint`, of a grammar in llguidance's own form."""
    tokenizer = _tokenizer(model)
    with _building:
        kept = _compiled.setdefault(model, Compiled())
    return Matcher(kept.get(grammar, tokenizer), tokenizer, ends)


class Matcher:
    """A place in a grammar. Serves one generation at a time.

    Args:
        native: an `LLMatcher` at the beginning; it is only copied, so that others may have it, too.
        tokenizer: its `LLTokenizer`, with one token more than the vocabulary.
        ends: tokens that end the text.
    """

    def __init__(self, native: Any, tokenizer: Any, ends: Iterable[int] = ()) -> None:
        self._beginning = native
        self._tokenizer = tokenizer
        self._n_vocab: int = tokenizer.vocab_size - 1
        self._ends = frozenset(ends)
        self._mask: TokenMask = np.zeros((self._n_vocab + 32) // 32, np.uint32)
        self._end_bits = np.zeros_like(self._mask)
        for token in (*self._ends, self._n_vocab):
            self._end_bits[token // 32] |= np.uint32(1 << token % 32)
        self.reset()

    def reset(self) -> None:
        """Back to the beginning, also after an error."""
        self._native = self._beginning.deep_copy()
        self._tokens: list[int] = []
        self._known = False  # the mask is that of this place
        self._ended = False

    @property
    def is_complete(self) -> bool:
        """Whether the text may end here."""
        complete: bool = self._native.is_accepting()
        return complete

    @property
    def is_finished(self) -> bool:
        """Whether the text must end here: it is complete, and no token may follow.

        Raises:
            ConstraintError: as `mask`.
        """
        if self._ended or not self.is_complete:
            return self._ended
        return not (self._computed() & ~self._end_bits).any()

    @property
    def is_forced(self) -> bool:
        """Whether the next bytes are known, whatever the model says."""
        return not self._ended and bool(self._native.compute_ff_bytes())

    def allows(self, token: int) -> bool:
        """Whether `token` may come next, where nothing `is_forced`; some hundred times cheaper than `mask`."""
        if self._ended:
            return False
        if token in self._ends:
            return self.is_complete
        n_valid: int = self._native.validate_tokens([token])
        return n_valid == 1

    def mask(self) -> TokenMask:
        """The tokens that may come next, `ends` among them where the text may end. Lent until the next call.

        Where bytes are forced, of the tokens that begin with them only the usual one is allowed (llguidance's choice),
        so that a text is cut into tokens as the model knows it.

        Raises:
            ConstraintError: none may; or the grammar is too complex to be followed from here.
        """
        mask = self._computed()
        if not mask.any():
            self._refuse()
        return mask

    def accept(self, token: int) -> None:
        """`token` is the next one.

        Raises:
            ConstraintError: it is not allowed here; the place is lost.
        """
        if token in self._ends and not self._ended and self.is_complete:
            self._ended = True
            return
        if self._ended or token in self._ends or not self._native.consume_token(token):
            why = f": {reason_of(self._native)}" if self._native.is_error() else ""
            raise ConstraintError(reason=f"token {token} ({self._spelled([token])}) cannot follow {self._told()}{why}")
        self._tokens.append(token)
        self._known = False

    def forced(self, n_max: int) -> list[int]:
        """At most `n_max` tokens that must come next, because all others are forbidden."""
        if self._ended or self._native.is_error():
            return []
        tokens: list[int] = self._native.compute_ff_tokens()[:n_max]
        return tokens

    def _computed(self) -> TokenMask:
        if not self._known:
            mask, ends = self._mask, self._end_bits
            self._native.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            if self._native.is_error():
                reason = reason_of(self._native)
                if "NoExtension" in reason:
                    self._refuse()
                raise ConstraintError(reason=f"after {self._told()}: {reason}")
            complete = bool(mask[-1] >> np.uint32(self._n_vocab % 32) & np.uint32(1))
            np.bitwise_and(mask, ~ends, out=mask)
            if complete and self._ends:
                np.bitwise_or(mask, ends, out=mask)
            self._known = True
        return self._mask

    def _refuse(self) -> NoReturn:
        raise ConstraintError(reason=f"no token of the vocabulary can follow {self._told()}")

    def _told(self) -> str:
        last = self._tokens[-_N_TOLD:]
        return self._spelled(last) if last else "the beginning of the text"

    def _spelled(self, tokens: list[int]) -> str:
        return repr(self._tokenizer.decode_bytes(tokens).decode("utf-8", "replace"))
