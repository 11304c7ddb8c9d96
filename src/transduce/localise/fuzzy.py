"""Fuzzy matches: segments of a memory that are like another one, with their share of equal tokens.

The share is counted as OmegaT counts it over all tokens: 100 (n - d) / n, rounded down, with n
tokens in the longer text and d of them changed, put in or taken out.  Tokens are words, characters
of scripts without blanks, other characters and runs of blanks.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from transduce.localise.checks import PLURAL, checked
from transduce.localise.document import Document, Segment
from transduce.localise.memory import memory_texts, moved
from transduce.text.scripts import is_unspaced

FUZZY_TOKEN = re.compile(r"\s+|\w+|.", re.DOTALL)
LEAST_SHARE = 75
MOST_TOKENS = 300
"""Tokens of a text that is compared."""
MOST_CANDIDATES = 10
"""Texts that a text is compared with."""
MOST_POSTINGS = 200
"""Texts of a token that leads to others."""


class _Known(NamedTuple):
    """A segment of a memory, its tokens and their numbers."""

    segment: Segment
    tokens: Sequence[str]
    counts: Counter[str]


def fuzzy_tokens(text: str) -> list[str]:
    """Tokens of a text."""
    tokens: list[str] = []
    for token in FUZZY_TOKEN.findall(text):
        tokens += token if is_unspaced(token[0]) else [token]
    return tokens


def share(source: Sequence[str], other: Sequence[str]) -> int:
    """Percentage of equal tokens of two texts, 0 below `LEAST_SHARE`."""
    longest = max(len(source), len(other), 1)
    most = longest * (100 - LEAST_SHARE) // 100
    row = list(range(len(other) + 1))
    for i, token in enumerate(source, 1):
        before, row = row, [i]
        for j, candidate in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (token != candidate)))
        if min(row) > most:
            return 0
    return 100 * (longest - row[-1]) // longest if row[-1] <= most else 0


class FuzzyMemory:
    """Confirmed segments by their rare tokens."""

    def __init__(self, memory: Iterable[Segment]) -> None:
        self._known: list[_Known] = []
        self._places: dict[str, list[int]] = {}
        for segment in memory:
            if segment.state != "translated" or segment.key.endswith(PLURAL):
                continue
            tokens = fuzzy_tokens(" ".join(memory_texts(segment)))
            if len(tokens) <= MOST_TOKENS:
                for token in set(tokens):
                    self._places.setdefault(token, []).append(len(self._known))
                self._known.append(_Known(segment, tokens, Counter(tokens)))

    def suggested(self, document: Document, is_reviewed: bool) -> Document:
        """A document whose segments without a match have that of a segment that is at least as like
        as `LEAST_SHARE`, with its share and the difference as the origin.

        is_reviewed: the translations are marked for a review; in others the origin alone is set.
        """
        segments = []
        for segment in document.segments:
            if not segment.match and segment.state == "missing":
                segment = self._suggested(segment, is_reviewed)
            segments.append(segment)
        return dataclasses.replace(document, segments=segments)

    def _suggested(self, segment: Segment, is_reviewed: bool) -> Segment:
        tokens = fuzzy_tokens(" ".join(memory_texts(segment)))
        if len(tokens) > MOST_TOKENS or segment.key.endswith(PLURAL):
            return segment
        matches = [(share(tokens, known.tokens), known) for known in self._candidates(tokens)]
        for percent, known in sorted(matches, key=lambda match: -match[0]):
            if percent < LEAST_SHARE or len(known.segment.tags) != len(segment.tags):
                continue
            target = moved(known.segment, segment)
            (record,) = checked([dataclasses.replace(segment, target=target)])
            if record.is_done:
                origin = f"{percent} % like {_differing(tokens, known.tokens)}"
                if is_reviewed:
                    return dataclasses.replace(segment, match=target, origin=origin)
                return dataclasses.replace(segment, origin=f"{origin}: {target}")
        return segment

    def _candidates(self, tokens: Sequence[str]) -> list[_Known]:
        """Segments that may have the share: they have one of the rarest tokens, more of which than
        may differ."""
        counts = Counter(tokens)
        n_rare = len(tokens) * (100 - LEAST_SHARE) // LEAST_SHARE + 1
        rare = sorted(counts, key=lambda token: len(self._places.get(token, ())))[:n_rare]
        likely = []
        for number in {n for token in rare for n in self._places.get(token, ())[:MOST_POSTINGS]}:
            known = self._known[number]
            total = (counts & known.counts).total()
            if 100 * total >= LEAST_SHARE * max(len(tokens), len(known.tokens)):
                likely.append((total, number))
        return [self._known[number] for _, number in sorted(likely, reverse=True)[:MOST_CANDIDATES]]


def _differing(source: Sequence[str], other: Sequence[str]) -> str:
    """The source of a match, with what differs in the text: 'Open a file', where it has 'the' for
    'a'."""
    matcher = difflib.SequenceMatcher(None, other, source, autojunk=False)
    parts = [
        f"{''.join(source[j:j_end])!r} for {''.join(other[i:i_end])!r}"
        for kind, i, i_end, j, j_end in matcher.get_opcodes()
        if kind != "equal"
    ]
    return f"a segment of the memory, with {', '.join(parts)}"
