"""Counts of what followed each n-gram of a text: a tree with a node for every run of up to n + 1 tokens.

Owns its nodes, reading in bulk and token by token, and the links from a run to the same run without its first token.
Leaves to the speculator what to draft from the counts, and tables that outlive a text to `ngram_table`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyspec.speculators.history import Tokens

__all__ = ["NgramTrie"]

Nodes = NDArray[np.int32]  # [n_nodes] or [n_keys]; 0 is the root, and as a child: none
Keys = NDArray[np.uint64]  # [n_keys], parent node << 32 | token
Indices = NDArray[np.int64]

_MULTIPLIER = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: Fibonacci hashing (Knuth, vol. 3, 6.4)
_LOW_32_BITS = 0xFFFFFFFF
_LOW_64_BITS = 0xFFFFFFFFFFFFFFFF
_CHUNK = 131_072
_CAPACITY_MIN = 1024
_ONLY = -1


class NgramTrie:
    """For n-grams of 1 to `n_max` tokens, which tokens followed how often in one text.

    A node is a run of tokens; its children are the runs one token longer. `counts[node]` is how often it occurred,
    `best[node]` its most frequent child (of several the one seen last), `suffixes[node]` the run without its first
    token. `last` is the node of the last `depth` tokens of the text, `depth` at most `n_max`. What occurred was
    followed by a token, but for the runs that end the text: `last` and its suffixes.

    Most runs have one child, which is the best one. The children of the others, and of the root, are found through
    hash chains: `heads` by slot of the key, `links` by node, where -1 is for only children.
    """

    # fmt: off
    __slots__ = ("_arrays", "_heads", "_n_bits", "_n_linked", "best", "counts", "depth", "heads", "keys", "last",
                 "links", "n_max", "n_nodes", "n_tokens", "suffixes")
    # fmt: on

    heads: memoryview[int]
    keys: memoryview[int]
    links: memoryview[int]
    counts: memoryview[int]
    best: memoryview[int]
    suffixes: memoryview[int]

    def __init__(self, n_max: int) -> None:
        assert n_max >= 1, "an n-gram has a token"
        self.n_max = n_max
        self.clear()

    def clear(self) -> None:
        """Forget the text."""
        self.n_tokens = self.last = self.depth = self._n_linked = 0
        self.n_nodes = 1
        self._n_bits = _CAPACITY_MIN.bit_length() - 1
        self._heads: Nodes = np.zeros(1 << self._n_bits, np.int32)
        self._arrays = _Arrays(_CAPACITY_MIN)
        self._look()

    def _look(self) -> None:
        """Take views for the loops: reading an element of a memoryview is much cheaper than one of an array."""
        self.heads = memoryview(self._heads)  # type: ignore[arg-type]
        for name in _Arrays.__slots__:
            setattr(self, name, memoryview(getattr(self._arrays, name)))

    @property
    def nbytes(self) -> int:
        """Bytes of nodes and slots: 24 a node and 4 a slot; a new token adds at most n_max + 1 nodes."""
        return self._heads.nbytes + self._arrays.nbytes

    # ------------------------------------------------------------- one by one

    def ends(self) -> list[int]:
        """The nodes of the last `depth`, ..., 2, 1 tokens of the text."""
        nodes, node = [], self.last
        while node:
            nodes.append(node)
            node = self.suffixes[node]
        return nodes

    def length(self, node: int) -> int:
        """How many tokens the run of a node has."""
        n = 0
        while node:
            node, n = self.suffixes[node], n + 1
        return n

    def child(self, node: int, token: int) -> int:
        """The run `node` with `token` behind it, 0 if it did not occur."""
        key, keys = node << 32 | token, self.keys
        if node:
            found = self.best[node]
            if keys[found] == key:
                return found
            if self.links[found] < 0:
                return 0
        found, links = self.heads[(key * _MULTIPLIER & _LOW_64_BITS) >> (64 - self._n_bits)], self.links
        while found and keys[found] != key:
            found = links[found]
        return found

    def read(self, tokens: list[int]) -> None:
        """Count the next `tokens` of the text; meant for few of them."""
        self._make_room((self.n_max + 1) * len(tokens))
        keys, links, counts, best, suffixes = self.keys, self.links, self.counts, self.best, self.suffixes
        for token in tokens:
            node, longer, deepest, is_known = self.last, 0, 0, False
            while True:
                if is_known:  # then all its suffixes are
                    child = suffixes[longer]
                else:
                    child, key = best[node], node << 32 | token
                    if child or not node:
                        is_known = keys[child] == key and node > 0
                        if not is_known:
                            child = self.child(node, token)
                            is_known = child > 0
                            child = child or self._add(node, token)
                    else:  # the first child, as in _add without the calls
                        child = self.n_nodes
                        self.n_nodes = child + 1
                        keys[child], links[child] = key, _ONLY
                    if longer:
                        suffixes[longer] = child
                    else:
                        deepest = child
                count = counts[child] + 1
                counts[child] = count
                if not node:
                    break
                if count >= counts[best[node]]:
                    best[node] = child
                longer, node = child, suffixes[node]
            if self.depth < self.n_max:
                self.depth += 1
                self.last = deepest
            else:
                self.last = suffixes[deepest]
        self.n_tokens += len(tokens)

    def _add(self, node: int, token: int) -> int:
        """A new child of the root, or of a node that has others."""
        new = self.n_nodes
        self.n_nodes = new + 1
        self.keys[new] = node << 32 | token
        if node and self.links[self.best[node]] == _ONLY:
            self._link_one(self.best[node])
        self._link_one(new)
        return new

    def _link_one(self, node: int) -> None:
        slot = (self.keys[node] * _MULTIPLIER & _LOW_64_BITS) >> (64 - self._n_bits)
        self.links[node] = self.heads[slot]
        self.heads[slot] = node
        self._n_linked += 1

    # ------------------------------------------------------------- in bulk

    def read_all(self, tokens: Tokens) -> None:
        """The same for many tokens [n_tokens]."""
        n_nodes = self.n_nodes + 3 * len(tokens)  # what ordinary text needs
        if n_nodes > len(self._arrays.keys):
            self._arrays = self._arrays.grown(n_nodes)
        for start in range(0, len(tokens), _CHUNK):
            self._read_chunk(tokens[start : start + _CHUNK])
            self._look()

    def _read_chunk(self, tokens: Tokens) -> None:
        n_tokens, n_before, n_old = len(tokens), min(self.n_tokens, self.n_max), self.n_nodes
        ends, depth_end = [0, *reversed(self.ends())], min(self.n_max, n_before + n_tokens)
        shorter: Nodes = np.zeros(n_tokens + 1, np.int32)  # runs that end before each token: the root
        is_single = np.zeros(n_tokens + 1, np.bool_)  # and which of them are new and occurred there alone
        for depth in range(1, self.n_max + 2):
            # the first tokens of a text stand behind too few others
            skip = min(n_tokens, max(0, depth - 1 - n_before))
            nodes: Nodes = np.zeros(n_tokens + 1, np.int32)
            nodes[0] = ends[depth] if depth < len(ends) else 0
            singles = np.flatnonzero(is_single[skip:-1]) + skip
            self._follow_singles(singles, shorter, nodes, tokens)
            others = np.flatnonzero(~is_single[skip:-1]) + skip
            parents = shorter[others]
            found = self._find_or_add(_keys(parents, tokens[others]), n_old)
            nodes[others + 1] = found
            self._arrays.suffixes[nodes[1 + skip :]] = shorter[1 + skip :] if depth > 1 else 0
            is_single[singles + 1] = True
            is_single[others + 1] = (self._count(found, parents) == 1) & (found >= n_old)
            shorter = nodes
            if depth == depth_end:
                last = int(nodes[-1])
        self.last, self.depth, self.n_tokens = last, depth_end, self.n_tokens + n_tokens

    def _follow_singles(self, singles: Indices, shorter: Nodes, nodes: Nodes, tokens: Tokens) -> None:
        """Tokens behind runs that occurred once: no other can be the same, so nothing has to be looked up."""
        parents = shorter[singles]
        new = self._append(_keys(parents, tokens[singles]))
        nodes[singles + 1] = new
        self._arrays.counts[new] = 1
        self._arrays.best[parents] = new

    def _count(self, nodes: Nodes, parents: Nodes) -> Indices:
        """Count runs in the order of the text, each with the run without its last token.

        Returns:
            How often each occurred here.
        """
        if not len(nodes):
            return np.zeros(0, np.int64)
        arrays, first = self._arrays, int(nodes.min())
        local = nodes - first
        times: Indices = np.bincount(local).astype(np.int64, copy=False)
        seen = np.flatnonzero(times)
        children = seen + first
        arrays.counts[children] += times[seen].astype(np.int32)
        if parents[0] == 0:
            self._link(children[arrays.links[children] == _ONLY])
        else:
            latest = np.zeros(len(times), np.int64)
            np.maximum.at(latest, local, np.arange(1, len(nodes) + 1))
            self._choose_best(children, latest[seen])
        return times[local]

    def _choose_best(self, children: Indices, latest: Indices) -> None:
        """Let the most frequent child of each parent be its best, `latest` deciding among several."""
        arrays = self._arrays
        parents = (arrays.keys[children] >> np.uint64(32)).astype(np.int64)
        first = int(parents.min())
        local, before = parents - first, arrays.best[parents]
        # the best one so far was seen before all these, unless it is one of them
        highest = np.zeros(int(local.max()) + 1, np.int64)
        highest[local] = arrays.counts[before].astype(np.int64) << 32
        rank = arrays.counts[children].astype(np.int64) << 32 | latest
        np.maximum.at(highest, local, rank)
        is_best = rank == highest[local]
        arrays.best[parents[is_best]] = children[is_best]
        self._link_siblings(children, before, local)

    def _link_siblings(self, children: Indices, before: Nodes, parents: Indices) -> None:
        """Link those of `children`, and of the best children there were `before`, that are no only ones now."""
        arrays = self._arrays
        best = arrays.best[(arrays.keys[children] >> np.uint64(32)).astype(np.int64)]
        has_several = np.zeros(int(parents.max()) + 1, np.bool_)
        has_several[parents[(best != children) | ((before != best) & (before > 0))]] = True
        chosen = has_several[parents]
        family = np.concatenate((children[chosen], before[chosen]))
        is_new = np.zeros(self.n_nodes, np.bool_)
        is_new[family[arrays.links[family] == _ONLY]] = True
        is_new[0] = False
        self._link(np.flatnonzero(is_new))

    def _find_or_add(self, keys: Keys, n_old: int) -> Nodes:
        """The nodes of `keys`, equal ones included, adding those that are missing; not linked yet.

        Nodes from `n_old` on were added since the last linking, so that nothing can be known behind them.
        """
        found: Nodes = np.zeros(len(keys), np.int32)
        first_new = np.uint64(n_old << 32)
        rest = np.flatnonzero(keys >= first_new)
        if len(rest) < len(keys):
            rest = np.concatenate((rest, self._find(keys, found, np.flatnonzero(keys < first_new))))
        n_bits = (2 * len(keys)).bit_length()
        owners = np.empty(1 << n_bits, np.int64)
        slots = _slots(keys[rest], n_bits)
        while len(rest):
            # one index of each slot stands for all of the same key, whichever numpy wrote last
            owners[slots] = rest
            owner = owners[slots]
            chosen = rest[owner == rest]
            found[chosen] = self._append(keys[chosen])
            is_same = keys[owner] == keys[rest]
            found[rest] = found[owner]  # wrong for other keys of the slot, which a later round writes again
            rest, slots = rest[~is_same], slots[~is_same]
        return found

    def _find(self, keys: Keys, found: Nodes, asked: Indices) -> Indices:
        """Fill in `found` for the indices `asked`; returns those whose key is in no node."""
        arrays, parents = self._arrays, (keys[asked] >> np.uint64(32)).astype(np.int64)
        best = arrays.best[parents]
        is_best = (arrays.keys[best] == keys[asked]) & (parents > 0)
        found[asked[is_best]] = best[is_best]
        asked, missing = asked[~is_best], [asked[:0]]
        nodes = self._heads[_slots(keys[asked], self._n_bits)]
        while len(asked):
            is_end = nodes == 0
            missing.append(asked[is_end])
            asked, nodes = asked[~is_end], nodes[~is_end]
            is_hit = arrays.keys[nodes] == keys[asked]
            found[asked[is_hit]] = nodes[is_hit]
            asked, nodes = asked[~is_hit], arrays.links[nodes[~is_hit]]
        return np.concatenate(missing)

    def _append(self, keys: Keys) -> Nodes:
        """New nodes for `keys`, which are all different."""
        start, stop = self.n_nodes, self.n_nodes + len(keys)
        if stop > len(self._arrays.keys):
            self._arrays = self._arrays.grown(2 * stop)
        self._arrays.keys[start:stop] = keys
        self._arrays.links[start:stop] = _ONLY
        self.n_nodes = stop
        new: Nodes = np.arange(start, stop, dtype=np.int32)
        return new

    # ------------------------------------------------------------- slots and room

    def _link(self, nodes: Indices) -> None:
        """Link `nodes`, none of them linked."""
        self._n_linked += len(nodes)
        if self._n_linked > len(self._heads):
            nodes = np.concatenate((nodes, self._unlink_all(self._n_linked)))
        slots = _slots(self._arrays.keys[nodes], self._n_bits)
        while len(nodes):
            # of nodes that share a slot one is written; the others come before it in the next round
            self._arrays.links[nodes] = self._heads[slots]
            self._heads[slots] = nodes
            is_lost = self._heads[slots] != nodes
            nodes, slots = nodes[is_lost], slots[is_lost]

    def _unlink_all(self, n_linked: int) -> Indices:
        """Make more slots than `n_linked`; returns the nodes that were linked."""
        self._n_bits = n_linked.bit_length()
        self._heads = np.zeros(1 << self._n_bits, np.int32)
        return np.flatnonzero(self._arrays.links[: self.n_nodes] != _ONLY)

    def _make_room(self, n_new: int) -> None:
        """Room for `n_new` more nodes and for linking them, and as many that were not linked."""
        n_nodes, n_linked = self.n_nodes + n_new, self._n_linked + 2 * n_new
        if n_nodes <= len(self.counts) and n_linked <= len(self.heads):
            return
        if n_nodes > len(self.counts):
            self._arrays = self._arrays.grown(2 * n_nodes)
        if n_linked > len(self.heads):
            nodes = self._unlink_all(n_linked)
            self._n_linked -= len(nodes)
            self._link(nodes)
        self._look()

    # ------------------------------------------------------------- counts

    def rows(self, n_min: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """All counts of n-grams of `n_min` tokens and more.

        Returns:
            The n-grams [n_rows, n_max], -1 behind shorter ones; the token that followed and how often, each [n_rows].
        """
        keys = self._arrays.keys[: self.n_nodes]
        parents, tokens = (keys >> np.uint64(32)).astype(np.int64), (keys & np.uint64(_LOW_32_BITS)).astype(np.int32)
        depths = np.zeros(self.n_nodes, np.int32)
        above = parents.copy()
        while above.any():
            depths += above != 0
            above = parents[above]
        chosen = np.flatnonzero(depths >= n_min)
        ngrams = np.full((len(chosen), self.n_max), -1, np.int32)
        node, n = parents[chosen], depths[chosen]
        while len(node) and n.max() > 0:
            inside = np.flatnonzero(n > 0)
            ngrams[inside, n[inside] - 1] = tokens[node[inside]]
            node, n = parents[node], n - 1
        return ngrams, tokens[chosen], self._arrays.counts[chosen]


class _Arrays:
    """What a node has, an array each."""

    __slots__ = ("best", "counts", "keys", "links", "suffixes")

    def __init__(self, capacity: int) -> None:
        self.keys: Keys = np.zeros(capacity, np.uint64)
        self.links: Nodes = np.zeros(capacity, np.int32)
        self.links[0] = _ONLY  # no child has no others beside it
        self.counts: Nodes = np.zeros(capacity, np.int32)
        self.best: Nodes = np.zeros(capacity, np.int32)
        self.suffixes: Nodes = np.zeros(capacity, np.int32)

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in self.__slots__)

    def grown(self, n_nodes: int) -> _Arrays:
        """A copy with room for `n_nodes`."""
        new = _Arrays(n_nodes)
        for name in self.__slots__:
            old = getattr(self, name)
            getattr(new, name)[: len(old)] = old
        return new


def _keys(parents: Nodes, tokens: Tokens) -> Keys:
    return (parents.astype(np.uint64) << np.uint64(32)) | tokens.view(np.uint32)


def _slots(keys: Keys, n_bits: int) -> NDArray[np.int64]:
    return ((keys * np.uint64(_MULTIPLIER)) >> np.uint64(64 - n_bits)).astype(np.int64)
