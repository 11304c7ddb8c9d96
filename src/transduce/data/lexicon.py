"""Lexicon of source and target tokens, learnt from pairs alone.

IBM model 1 (Brown et al. 1993) with the prior of Dyer et al. (2013), which favours the diagonal.
The probability that target token j of n comes from source token i of m is, up to normalisation over
i,

    (1 - null) · exp(-tension · |(i + ½) / m - (j + ½) / n|)

and `null` for no source token.  These priors and the probabilities t(target | source) are learned
by EM, in a few rounds over all (source, target) cells of all pairs at once.

Shape letters: n pairs, y target tokens of them, c cells (y times the source tokens and null).
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.encoded import MixedPairs
from transduce.text.tokenizer import PAD

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]

NULL = PAD
"""Id of the empty source token; it occurs in no text."""
TENSION = 4.0
"""Strength of the preference for the diagonal; 0 is IBM model 1."""
FROM_NULL = 0.08
"""Probability that a target token comes from no source token."""
ROUNDS = 5
UNSEEN = 1e-9
"""Probability of two tokens never seen together."""
MAX_CELLS = 1 << 26
"""Maximum cells to learn from, in pairs spread evenly over the data: half a gigabyte."""
CHUNK_CELLS = 1 << 22


class Cells(NamedTuple):
    """Each target token with null and each source token of its pair.

    keys: (c,) both tokens as a number.  prior: (c,).  starts, sizes: (y,) first cell of each
    target token, always null, and number of its cells.
    """

    keys: Ints
    prior: Floats | float
    starts: Ints
    sizes: Ints


@dataclass(frozen=True)
class Lexicon:
    """t(target | source) for tokens that occur in a pair.

    keys: (k,) source · n_targets + target, ascending; the source NULL stands for none.
    probabilities: (k,) float64.
    """

    keys: Ints
    probabilities: Floats
    n_targets: int
    backward: bool

    def choices(self, pairs: MixedPairs, rows: Ints) -> tuple[Ints, Ints]:
        """Best source position for each target token, concatenated over pairs, -1 for none; (n,)
        their numbers."""
        cells = _cells(pairs, rows, self.n_targets, self.backward)
        at = np.minimum(np.searchsorted(self.keys, cells.keys), len(self.keys) - 1)
        known = self.keys[at] == cells.keys
        scores = np.where(known, self.probabilities[at], UNSEEN) * cells.prior
        best = np.repeat(np.maximum.reduceat(scores, cells.starts), cells.sizes)
        hits = np.flatnonzero(scores == best)
        # Of equals the first: null before any, the left before the right.
        first = hits[np.searchsorted(hits, cells.starts)]
        _, lengths = _sides(self.backward)
        return first - cells.starts - 1, getattr(pairs, lengths)[rows]

    def likely(self, n_sources: int, count: int) -> NDArray[np.int32]:
        """(n_sources, count) likeliest targets of each source token, best first, padded with -1."""
        sources = self.keys // self.n_targets
        order = np.lexsort((self.keys, -self.probabilities, sources))
        ordered = sources[order]
        rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        likely = (rank < count) & (ordered != NULL) & (self.probabilities[order] > 0)
        table = np.full((n_sources, count), -1, np.int32)
        table[ordered[likely], rank[likely]] = (self.keys[order] % self.n_targets)[likely]
        return table


def learn_lexicon(pairs: MixedPairs, n_targets: int, backward: bool = False) -> Lexicon:
    """Run EM over the pairs, or over an even sample with at most `MAX_CELLS` cells.

    n_targets: size of the target vocabulary.  backward: learn source tokens given target tokens;
    then it is of the source vocabulary.
    """
    n_cells = _cell_counts(pairs, backward).sum()
    taken = max(1, min(len(pairs), int(len(pairs) * MAX_CELLS / max(int(n_cells), 1))))
    rows = np.unique(np.linspace(0, len(pairs) - 1, taken).astype(np.int64))
    parts = _lexicon_chunks(pairs, rows, backward)
    chunks = [_cells(pairs, part, n_targets, backward) for part in parts]
    keys = np.unique(np.concatenate([np.unique(chunk.keys) for chunk in chunks]))
    # From here on keys go by their place, which takes half the memory.
    chunks = [c._replace(keys=np.searchsorted(keys, c.keys).astype(np.int32)) for c in chunks]
    sources = keys // n_targets
    probabilities = 1 / np.bincount(sources)[sources]
    probabilities = expectation_maximisation(chunks, sources, probabilities, ROUNDS)
    return Lexicon(keys, probabilities, n_targets, backward)


def expectation_maximisation(
    chunks: Sequence[Cells], sources: Ints, probabilities: Floats, rounds: int
) -> Floats:
    """(k,) t(target | source) of the keys in chunks of cells, after some rounds.

    sources: (k,) source of each key.  probabilities: (k,) to begin with.
    """
    for _ in range(rounds):
        counts = np.zeros(len(sources))
        for chunk in chunks:
            scores = probabilities[chunk.keys] * chunk.prior
            sums = np.add.reduceat(scores, chunk.starts)
            expected = scores / np.repeat(np.maximum(sums, 1e-300), chunk.sizes)
            counts += np.bincount(chunk.keys, expected, len(sources))
        totals = np.maximum(np.bincount(sources, counts), 1e-300)
        probabilities = counts / totals[sources]
    return probabilities


def chunks_of(pairs: MixedPairs) -> Iterator[Ints]:
    """Indices of all pairs, in parts with few cells, to bound the memory."""
    return _lexicon_chunks(pairs, np.arange(len(pairs)), False)


def _sides(backward: bool) -> tuple[str, str]:
    """Names of the lengths of the given side and of the generated side."""
    names = ("source_lengths", "target_lengths")
    return (names[1], names[0]) if backward else names


def _cell_counts(pairs: MixedPairs, backward: bool) -> Ints:
    observed, made = (getattr(pairs, name).astype(np.int64) for name in _sides(backward))
    counts: Ints = (observed + 1) * made
    return counts


def _lexicon_chunks(pairs: MixedPairs, rows: Ints, backward: bool) -> Iterator[Ints]:
    for part in parts_by_cells(_cell_counts(pairs, backward)[rows], CHUNK_CELLS):
        yield rows[part]


def parts_by_cells(counts: Ints, size: int) -> Iterator[slice]:
    """Parts of rows with few cells, to bound the memory: `size` at most beside those of a row.

    counts: (n,) cells of each row; n is at least 1.
    """
    filled = np.cumsum(counts) // size
    edges = np.flatnonzero(np.diff(filled, prepend=-1, append=filled[-1] + 1))
    for start, end in itertools.pairwise(edges):
        yield slice(start, end)


def _cells(pairs: MixedPairs, chosen: Ints, n_targets: int, backward: bool) -> Cells:
    rows = chosen.astype(np.int64, copy=False)
    observed, starts, m = pairs.gather("target" if backward else "source", rows)
    made, _, n = pairs.gather("source" if backward else "target", rows)
    pair = np.repeat(np.arange(len(rows)), n)  # (y,) the pair of each target token
    j = np.arange(len(made)) - np.repeat(np.cumsum(n) - n, n)
    sizes = m[pair].astype(np.int64) + 1
    begin = np.cumsum(sizes) - sizes
    token = np.repeat(np.arange(len(made)), sizes)  # (c,)
    i = np.arange(len(token)) - begin[token] - 1  # -1 for null
    there = (i + 0.5) / m[pair][token] - ((j + 0.5) / n[pair])[token]
    weight = np.where(i < 0, 0.0, np.exp(-TENSION * np.abs(there)))
    weight *= (1 - FROM_NULL) / np.add.reduceat(weight, begin)[token]
    weight[begin] = FROM_NULL
    source = np.where(i < 0, NULL, observed[np.maximum(starts[pair][token] + i, 0)])
    keys = source.astype(np.int64) * n_targets + made[token]
    return Cells(keys, weight.astype(np.float32), begin, sizes)
