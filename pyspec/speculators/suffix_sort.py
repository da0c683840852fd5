"""Sorting all ends of a text by what stands before them, in bulk.

Owns the prefix doubling (Manber and Myers 1993, over reversed text and to a bounded depth); leaves keeping the order
while a text grows to `suffix_index`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyspec.speculators.history import Tokens

__all__ = ["Ends", "sorted_ends"]

Ends = NDArray[np.int32]  # [n_ends], each the number of tokens that stand before

_PACKED_BITS = 21  # rank, second rank and end share 63 bits


def sorted_ends(tokens: Tokens, max_depth: int) -> Ends:
    """The ends 1 to n_tokens - 1 of `tokens`, ordered by the last token before, then the one before that, ...

    Tokens compare as unsigned values of token + 1, so that -1 comes first; so does a context that is cut off by the
    start of the text. Ends whose last `max_depth` tokens agree stand in the order of the text.

    Returns:
        Shape [max(0, n_tokens - 1)].
    """
    n_ends = len(tokens) - 1
    if n_ends < 1:
        return np.empty(0, np.int32)
    first = tokens[:-1].view(np.uint32) + np.uint32(1)
    order, is_first = _sort_pairs(np.zeros(n_ends, np.int64), first.astype(np.int64), np.arange(1, n_ends + 1))
    ranks = np.zeros(n_ends + 1, np.int64)  # of an end: 1 + where its group of equals starts; the empty context is 0
    places = np.arange(n_ends)
    depth = 1
    while True:
        ranks[order[places]] = 1 + np.maximum.accumulate(np.where(is_first, places, 0))
        # alone in its group: first itself, and followed by the first of another
        is_alone = is_first & np.append(is_first[1:], True)
        places = places[~is_alone]
        if depth >= max_depth or not len(places):
            return order.astype(np.int32)
        step = min(depth, max_depth - depth)
        ends = order[places]
        # groups keep their places, so sorting all of them together sorts each
        order[places], is_first = _sort_pairs(ranks[ends], ranks[np.maximum(ends - step, 0)], ends)
        depth += step


def _sort_pairs(
    rank: NDArray[np.int64], second: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`ends` by rank, second and end, and which of them differ in rank or second from the one before."""
    bits = _PACKED_BITS
    if len(rank) and max(int(rank.max()), int(second.max()), int(ends.max())) < 1 << bits:
        keys = (rank << (2 * bits)) | (second << bits) | ends
        keys.sort()
        pairs, ends = keys >> bits, keys & ((1 << bits) - 1)
        is_new = pairs[1:] != pairs[:-1]
    else:
        by = np.lexsort((ends, second, rank))
        rank, second, ends = rank[by], second[by], ends[by]
        is_new = (rank[1:] != rank[:-1]) | (second[1:] != second[:-1])
    return ends, np.append(True, is_new)
