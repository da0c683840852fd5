"""Speculators: everything that proposes the next tokens of a sequence.

Owns the protocol, the n-gram speculators, chains and the names; values in, values out.
Leaves verifying drafts to the decoder, and drafting with a model to a later layer that registers itself here.
"""

from pyspec.speculators.adapted import identity
from pyspec.speculators.chain import Chain
from pyspec.speculators.checked import (
    checked_accept,
    checked_begin,
    checked_draft,
    checked_get_state,
    checked_laws,
    checked_reseed,
    checked_set_state,
    checked_unread,
    optional,
    optional_seconds,
)
from pyspec.speculators.edited_copy import EditedCopy, EditedCopyOptions
from pyspec.speculators.grammar import Grammar
from pyspec.speculators.history import History, Tokens, as_tokens
from pyspec.speculators.ngram_cache import NgramCache, NgramCacheOptions
from pyspec.speculators.ngram_map_k import NgramMapK, NgramMapKOptions
from pyspec.speculators.ngram_map_k4v import NgramMapK4v, NgramMapK4vOptions
from pyspec.speculators.ngram_mod import NgramMod, NgramModOptions
from pyspec.speculators.ngram_mod_table import NgramModTable
from pyspec.speculators.ngram_simple import NgramSimple, NgramSimpleOptions
from pyspec.speculators.ngram_table import NgramTable
from pyspec.speculators.protocol import Law, Speculator
from pyspec.speculators.registry import SPEC_DEFAULT, Spec, make, names, parse_options, register
from pyspec.speculators.scripted import Scripted
from pyspec.speculators.suffix import Suffix, SuffixOptions
from pyspec.speculators.suffix_corpus import SuffixCorpus

__all__ = [
    "SPEC_DEFAULT",
    "Chain",
    "EditedCopy",
    "EditedCopyOptions",
    "Grammar",
    "History",
    "Law",
    "NgramCache",
    "NgramCacheOptions",
    "NgramMapK",
    "NgramMapK4v",
    "NgramMapK4vOptions",
    "NgramMapKOptions",
    "NgramMod",
    "NgramModOptions",
    "NgramModTable",
    "NgramSimple",
    "NgramSimpleOptions",
    "NgramTable",
    "Scripted",
    "Spec",
    "Speculator",
    "Suffix",
    "SuffixCorpus",
    "SuffixOptions",
    "Tokens",
    "as_tokens",
    "checked_accept",
    "checked_begin",
    "checked_draft",
    "checked_get_state",
    "checked_laws",
    "checked_reseed",
    "checked_set_state",
    "checked_unread",
    "identity",
    "make",
    "names",
    "optional",
    "optional_seconds",
    "parse_options",
    "register",
]
