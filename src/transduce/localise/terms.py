"""Terms of a glossary, as constraints of the sentences that they occur in."""

from __future__ import annotations

import bisect
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from transduce.decoding.options import MOST_PHRASES
from transduce.errors import DataError
from transduce.localise.patterns import PLACEHOLDER
from transduce.text.scripts import is_of_word

Constraint = str | tuple[str, ...]
"""A phrase that is in the output, or phrases of which any is."""
Glossary = Callable[[str], Sequence[Constraint]]
"""Constraints of a sentence, by the terms in it."""
MOST_OF_A_TERM = 1000
"""Characters of a term."""
WORD, INSIDE = re.compile(r"\w"), re.compile(r"(?<=\w)")


def no_glossary(sentence: str) -> Sequence[Constraint]:
    """The glossary without terms."""
    return ()


class Terms:
    """Source terms with their translations, both with `|` between their forms: any form of the
    term is found, and any of its translation is in the output.

    A term is found as a whole word outside of placeholders, also with a capital at its beginning;
    of two that overlap the longer counts.  Its translation is in the output as given; with a
    capital at its beginning only if it has none and the term begins the sentence.

    form: of terms and sentences when they are compared, such as lower case.
    """

    def __init__(self, entries: Mapping[str, str], form: Callable[[str], str] = str) -> None:
        forms = {f: target for term, target in entries.items() for f in term.split("|") if f}
        targets = {capitalised(term): target for term, target in forms.items()} | forms
        self._targets = {form(term): target for term, target in targets.items()}
        self._terms = sorted(self._targets)
        self._lengths = [*map(len, self._terms)]
        self._longest = max(self._lengths, default=0)
        # Of each term the index of the longest other one that it begins with; -1 for none.
        self._beginnings: list[int] = []
        for i, term in enumerate(self._terms):
            shorter = i - 1
            while shorter >= 0 and not term.startswith(self._terms[shorter]):
                shorter = self._beginnings[shorter]
            self._beginnings.append(shorter)
        self._form = form

    def constraints(self, text: str) -> tuple[Constraint, ...]:
        """For each term in a sentence its translation, each once, at most `MOST_PHRASES`."""
        text = PLACEHOLDER.sub(lambda match: " " * len(match[0]), self._form(text))
        first = next((i for i, c in enumerate(text) if c.isalnum()), 0)
        spellings: dict[str, Constraint] = {}
        start = 0
        while self._terms and start < len(text):
            term = self._term_at(text, start)
            if term:
                target = self._targets[term]
                may_begin = start <= first and target.islower()
                forms = [form for form in target.split("|") if form]
                both = (*forms, *map(capitalised, forms)) if may_begin else forms
                spellings.setdefault(target, tuple(dict.fromkeys(both)))
            start += max(len(term), 1)
        return tuple(spellings.values())[:MOST_PHRASES]

    def _term_at(self, text: str, start: int) -> str:
        """The longest term that begins at a place, as a whole word; "" for none."""
        if is_of_word(text[start]) and INSIDE.match(text, start):
            return ""
        rest = text[start : start + self._longest]
        i = bisect.bisect(self._terms, rest) - 1
        pairs = zip(rest, self._terms[i], strict=False)
        common = next((j for j, (a, b) in enumerate(pairs) if a != b), len(rest))
        while i >= 0 and (self._lengths[i] > common or self._ends_inside(text, start, i)):
            i = self._beginnings[i]
        return self._terms[i] if i >= 0 else ""

    def _ends_inside(self, text: str, start: int, i: int) -> bool:
        """True for a term that a word goes on after."""
        end = start + self._lengths[i]
        return is_of_word(text[end - 1]) and WORD.match(text, end) is not None


def capitalised(text: str) -> str:
    """A text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def as_words(term: str) -> str:
    """Pattern of a term that no word goes on before or after, in scripts with spaces."""
    before = r"(?<!\w)" if is_of_word(term[0]) else ""
    after = r"(?!\w)" if is_of_word(term[-1]) else ""
    return before + re.escape(term) + after


def read_entries(text: str, is_csv: bool) -> dict[str, str]:
    """Entries from lines of source and target, between which is a tab, or in CSV a comma.

    Raises DataError with the number of the line.
    """
    entries: dict[str, str] = {}
    for number, (source, target) in enumerate(_rows(text, is_csv), 1):
        source, target = source.strip(), target.strip()
        if not source or not target:
            raise DataError(f"entry {number} of the glossary lacks a source or a target")
        if max(len(source), len(target)) > MOST_OF_A_TERM:
            raise DataError(f"entry {number} of the glossary exceeds {MOST_OF_A_TERM} characters")
        if source in entries:
            raise DataError(f"entry {number} of the glossary has the source of an earlier one")
        entries[source] = target
    if not entries:
        raise DataError("the glossary has no entries")
    return entries


def _rows(text: str, is_csv: bool) -> Iterator[tuple[str, str]]:
    if is_csv:
        rows: Iterator[list[str]] = csv.reader(io.StringIO(text))
    else:
        rows = (line.split("\t") for line in text.splitlines() if line.strip())
    try:
        for number, row in enumerate(filter(None, rows), 1):
            if len(row) < 2 or (len(row) > 2 and not is_csv):
                raise DataError(f"entry {number} of the glossary is not a source and a target")
            yield row[0], row[1]
    except csv.Error as error:
        raise DataError(f"the glossary is not CSV: {error}") from None
