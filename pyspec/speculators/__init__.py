"""Speculators: everything that proposes the next tokens of a sequence.

Owns the protocol, the n-gram speculators, chains and the names; values in, values out.
Leaves verifying drafts to the decoder, and drafting with a model to a later layer that registers itself here.
"""

from pyspec.speculators.chain import Chain
from pyspec.speculators.checked import checked_accept, checked_begin, checked_draft
from pyspec.speculators.history import History, Tokens, as_tokens
from pyspec.speculators.ngram_map_k import NgramMapK, NgramMapKOptions
from pyspec.speculators.ngram_mod import NgramMod, NgramModOptions
from pyspec.speculators.ngram_mod_table import NgramModTable
from pyspec.speculators.protocol import Speculator
from pyspec.speculators.registry import SPEC_DEFAULT, Spec, make, names, parse_options, register
from pyspec.speculators.scripted import Scripted

__all__ = [
    "SPEC_DEFAULT",
    "Chain",
    "History",
    "NgramMapK",
    "NgramMapKOptions",
    "NgramMod",
    "NgramModOptions",
    "NgramModTable",
    "Scripted",
    "Spec",
    "Speculator",
    "Tokens",
    "as_tokens",
    "checked_accept",
    "checked_begin",
    "checked_draft",
    "make",
    "names",
    "parse_options",
    "register",
]
