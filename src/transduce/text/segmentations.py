"""Random segmentations of words, determined by the numbers drawn.

SentencePiece can sample segmentations too, but from version 0.2.3 on, equal seeds give different
segmentations in each process, which rules it out for exactly resumable training.

A word is a string that no piece extends beyond: a space and the text up to the next space.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect
from collections.abc import Callable, Mapping

Draw = Callable[[], float]
"""Function returning the next random number in [0, 1)."""

KEPT_WORDS = 100_000
"""Words with cached probabilities; most of a text are among its most frequent."""


class MergeDropout:
    """Byte-pair encoding with randomly dropped merges (Provilkov et al. 2020)."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        """scores: of each piece; of two merges, that to the better piece is made first."""
        self._scores = scores

    def cut(self, word: str, alpha: float, draw: Draw) -> list[str]:
        """Pieces of a word, with each merge dropped with probability `alpha`."""
        pieces = list(word)
        n = len(pieces)
        after, before = list(range(1, n + 1)), list(range(-1, n - 1))
        waiting: list[tuple[float, int, str]] = []

        def offer(left: int) -> None:
            """Queue the merge of the piece at `left` with the next."""
            if left >= 0 and after[left] < n:
                merged = pieces[left] + pieces[after[left]]
                score = self._scores.get(merged)
                if score is not None:
                    heapq.heappush(waiting, (-score, left, merged))

        for left in range(n - 1):
            offer(left)
        while waiting:
            _, left, merged = heapq.heappop(waiting)
            right = after[left]
            # One of the two may have been merged with another meanwhile.
            if right == n or not pieces[left] or pieces[left] + pieces[right] != merged:
                continue
            if draw() < alpha:
                continue
            pieces[left], pieces[right] = merged, ""
            after[left] = after[right]
            if after[right] < n:
                before[after[right]] = left
            offer(before[left])
            offer(left)
        return [piece for piece in pieces if piece]


class LatticeSampling:
    """Segmentations of a unigram model, sampled by their probabilities to a power (Kudo 2018)."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        """scores: log-probability of each piece."""
        self._scores = scores
        self._longest = max(map(len, scores), default=1)
        self._known: dict[tuple[str, float], list[tuple[list[int], list[float]]]] = {}

    def cut(self, word: str, alpha: float, draw: Draw) -> list[str]:
        """Pieces of a word, sampled with probabilities to the power `alpha`."""
        key = (word, alpha)
        chances = self._known.get(key)
        if chances is None:
            chances = self._chances(word, alpha)
            if len(self._known) < KEPT_WORDS:
                self._known[key] = chances
        pieces, end = [], len(word)
        while end:
            starts, shares = chances[end]
            start = starts[min(bisect(shares, draw()), len(starts) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _chances(self, word: str, alpha: float) -> list[tuple[list[int], list[float]]]:
        """Possible starts for each end of a piece, with their cumulative probabilities; characters
        outside the vocabulary are allowed at a penalty."""
        price = alpha * (min(self._scores.values()) - 10.0)
        total = [0.0]  # log of the summed probabilities of all segmentations up to a place
        chances: list[tuple[list[int], list[float]]] = [([], [])]
        for end in range(1, len(word) + 1):
            starts, logs = [], []
            for start in range(max(0, end - self._longest), end):
                score = self._scores.get(word[start:end])
                if score is not None or start == end - 1:
                    starts.append(start)
                    logs.append(total[start] + (price if score is None else alpha * score))
            highest = max(logs)
            weights = [math.exp(log - highest) for log in logs]
            whole = sum(weights)
            total.append(highest + math.log(whole))
            chances.append((starts, [part / whole for part in itertools.accumulate(weights)]))
        return chances
